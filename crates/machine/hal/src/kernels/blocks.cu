// blocks
typedef unsigned long long u64;
typedef unsigned char pl_byte;
#define PL_FLIGHT 8
// Bytes by words on which both ends agree modulo their size; up to 15 bytes before and after them singly. All
// loads of a step are issued before its first store waits for one, those of the single bytes before the first step.
template <class T> static __device__ void pl_move(pl_byte *dst, const pl_byte *src, u64 bytes, unsigned lane) {
    const u64 lead = (u64)(0 - (u64)dst) % sizeof(T), head = lead < bytes ? lead : bytes;
    const u64 words = (bytes - head) / sizeof(T), past = head + words * sizeof(T);
    const u64 at = lane < 16 ? lane : past + lane - 16;
    const bool single = at < (lane < 16 ? head : bytes);
    pl_byte edge = 0;
    if (single) edge = src[at];
    const T *a = (const T *)(src + head);
    T *z = (T *)(dst + head);
    for (u64 i = lane; i < words; i += 32 * PL_FLIGHT) {
        T v[PL_FLIGHT];
        _Pragma("unroll") for (int j = 0; j < PL_FLIGHT; j++) if (i + 32 * j < words) v[j] = pl_load_nt(a + i + 32 * j);
        _Pragma("unroll") for (int j = 0; j < PL_FLIGHT; j++) if (i + 32 * j < words) pl_store_nt(z + i + 32 * j, v[j]);
    }
    if (single) dst[at] = edge;
}
// Each group of 32 threads copies whole ranges and loads the next one of its list meanwhile: the list is in memory
// of the host, a microsecond away. Neighbours in the list go to different blocks.
extern "C" PL_KERNEL(512) pathline_blocks(const u64 *list, u64 count) {
    const unsigned lane = threadIdx.x % 32;
    const u64 step = gridDim.x * (u64)(blockDim.x / 32);
    u64 nth = threadIdx.x / 32 * (u64)gridDim.x + blockIdx.x;
    u64 next = lane < 3 && nth < count ? list[nth * 3 + lane] : 0;
    for (; nth < count; nth += step) {
        pl_byte *dst = (pl_byte *)PL_FROM_LANE(next, 0);
        const pl_byte *src = (const pl_byte *)PL_FROM_LANE(next, 1);
        const u64 bytes = PL_FROM_LANE(next, 2), after = nth + step;
        next = lane < 3 && after < count ? list[after * 3 + lane] : 0;
        const unsigned differ = (unsigned)((u64)dst ^ (u64)src) % 16;
        if (!differ) pl_move<pl_w16>(dst, src, bytes, lane);
        else if (differ % 8 == 0) pl_move<pl_w8>(dst, src, bytes, lane);
        else if (differ % 4 == 0) pl_move<pl_w4>(dst, src, bytes, lane);
        else pl_move<pl_byte>(dst, src, bytes, lane);
    }
}
