// Runs the kernel that copies blocks on the CPU, thread by thread, and compares every byte: blocks.cu is included, and
// a word of another thread is what that thread loaded.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#define __device__
#define PL_KERNEL(threads) void
#define PL_FROM_LANE(word, lane) (list[nth * 3 + (lane)])
struct alignas(16) pl_w16 { uint32_t x, y, z, w; };
typedef uint32_t pl_w4;
typedef unsigned long long pl_w8;
template <class T> static void check(const T *p)
{
    if ((uintptr_t)p % sizeof(T)) { puts("misaligned"); exit(1); }
}
template <class T> static T pl_load_nt(const T *p) { check(p); return *p; }
template <class T> static void pl_store_nt(T *p, T v) { check(p); *p = v; }
static struct { unsigned x; } threadIdx, blockIdx, gridDim, blockDim;
#include "blocks.cu"

int main()
{
    std::mt19937_64 random(11);
    auto below = [&](u64 n) { return random() % n; };
    for (int round = 0; round < 300; round++) {
        const size_t room = 1 << 18;
        std::vector<unsigned char> src(room), dst(room), expected;
        for (auto &byte : src) byte = (unsigned char)random();
        for (auto &byte : dst) byte = (unsigned char)random();
        expected = dst;
        std::vector<u64> list;
        const u64 longest = round % 3 == 0 ? 40 : round % 3 == 1 ? 600 : 20000;
        for (u64 at = below(64); ; at += below(40)) {
            const u64 bytes = 1 + below(longest), step = 1ull << below(5);
            const u64 from = (at % step + step * below((room / 2) / step)) % (room - bytes);
            if (at + bytes > room) break;
            list.insert(list.end(), {(u64)&dst[at], (u64)&src[from], bytes});
            memcpy(&expected[at], &src[from], bytes);
            at += bytes;
        }
        gridDim.x = 1 + below(4);
        blockDim.x = 32 * (1 + below(4));
        for (blockIdx.x = 0; blockIdx.x < gridDim.x; blockIdx.x++)
            for (threadIdx.x = 0; threadIdx.x < blockDim.x; threadIdx.x++)
                pathline_blocks(list.data(), list.size() / 3);
        if (dst != expected) { printf("round %d differs\n", round); return 1; }
    }
    puts("equal");
}
