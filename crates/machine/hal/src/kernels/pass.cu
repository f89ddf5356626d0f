
extern "C" PL_KERNEL(PL_BLOCK) pathline(const char *src, char *dst, u64 bytes, u64 *sink) {
    const u64 me = blockIdx.x * (u64)blockDim.x + threadIdx.x, all = gridDim.x * (u64)blockDim.x;
    const u64 tile = PL_TILE_WORDS, words = PL_WORDS(bytes), tiles = words / tile;
    const pl_word *a = (const pl_word *)src;
    pl_word *z = (pl_word *)dst;
    PL_SHARE
    PL_BEGIN
    PL_TILES
    for (u64 i = tiles * tile + me; i < words; i += all) { PL_ONE }
    for (u64 i = words * sizeof(pl_word) + me; i < bytes; i += all) { PL_BYTE }
    PL_END
}
