
typedef unsigned long long u64;
#ifdef __CUDACC_RTC__
static __device__ u64 pl_next(u64 at) {
    u64 next;
    asm volatile("ld.global.u64 %0, [%1];" : "=l"(next) : "l"(at) : "memory");
    return next;
}
#else
static __device__ u64 pl_next(u64 at) { return *(const __attribute__((address_space(1))) u64 *)at; }
#endif
extern "C" PL_KERNEL(PL_BLOCK) pathline(const char *src, char *dst, u64 bytes, u64 *sink) {
    if ((blockIdx.x ^ (unsigned)(u64)dst) | threadIdx.x) return;
    const unsigned steps = bytes / 128 ? bytes / 128 : 1;
    u64 at = (u64)src + threadIdx.x;
    _Pragma("unroll 16") for (unsigned i = 0; i < steps; i++) at = pl_next(at);
    *sink = at;
}
