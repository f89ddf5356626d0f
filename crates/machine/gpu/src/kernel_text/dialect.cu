
#define PL_KERNEL(block) __global__ void __launch_bounds__(block)
typedef unsigned int pl_w4;
typedef unsigned long long pl_w8;
typedef float pl_f4;
typedef double pl_f8;
#if defined(__HIP__) || defined(__HIPCC_RTC__)
typedef unsigned int pl_w16 __attribute__((ext_vector_type(4)));
typedef double pl_f16 __attribute__((ext_vector_type(2)));
template <class T> static __device__ T pl_load_nt(const T *p) { return __builtin_nontemporal_load(p); }
template <class T> static __device__ void pl_store_nt(T *p, T v) { __builtin_nontemporal_store(v, p); }
#define PL_FMA4(a, b, c) __builtin_fmaf(a, b, c)
#define PL_FMA8(a, b, c) __builtin_fma(a, b, c)
#define PL_FROM_LANE(word, lane) __shfl(word, lane, 32)
#else
typedef uint4 pl_w16;
typedef double2 pl_f16;
template <class T> static __device__ T pl_load_nt(const T *p) { return __ldcs(p); }
template <class T> static __device__ void pl_store_nt(T *p, T v) { __stcs(p, v); }
#define PL_FMA4(a, b, c) __fmaf_rn(a, b, c)
#define PL_FMA8(a, b, c) __fma_rn(a, b, c)
#define PL_FROM_LANE(word, lane) __shfl_sync(0xffffffffu, word, lane)
#endif
#define PL_MIN(address, value) atomicMin(address, value)
#define PL_XOR(address, value) atomicXor(address, value)
