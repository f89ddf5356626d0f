
typedef unsigned long long u64;
extern "C" PL_KERNEL(PL_BLOCK) pathline(const char *src, char *dst, u64 bytes, u64 *sink) {
    const u64 threads = gridDim.x * (u64)blockDim.x;
    const u64 rounds = bytes * PL_FMA_PER_BYTE / (threads * PL_UNROLL) + 1;
    pl_real v[PL_UNROLL], sum = 0;
    _Pragma("unroll") for (int j = 0; j < PL_UNROLL; j++) v[j] = (pl_real)(threadIdx.x + j);
    for (u64 r = 0; r < rounds; r++) {
        _Pragma("unroll") for (int j = 0; j < PL_UNROLL; j++) v[j] = v[j] * (pl_real)0.5 + (pl_real)1;
    }
    _Pragma("unroll") for (int j = 0; j < PL_UNROLL; j++) sum += v[j];
    if (sum == (pl_real)-1) *sink = rounds;
}
