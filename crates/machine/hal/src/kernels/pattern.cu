// pattern
typedef unsigned long long u64;
#define PL_ELEMENTS 0x656c656d73ull
static __device__ u64 pl_random(u64 seed, u64 index) {
    if (!seed) return 0;
    u64 z = seed + (index + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}
static __device__ u64 pl_encode(int value, int shift, int bits, int mantissa, int bias) {
    const u64 mask = bits == 64 ? ~0ull : (1ull << bits) - 1;
    if (!mantissa) return (u64)(long long)value & mask;
    if (!value) return 0;
    const u64 size = value < 0 ? -value : value;
    int top = 0;
    while (size >> (top + 1)) top++;
    const u64 field = top <= mantissa ? size << (mantissa - top) : size >> (top - mantissa);
    const u64 sign = value < 0 ? 1ull << (bits - 1) : 0;
    return sign | (u64)(top - shift + bias) << mantissa | (field & ((1ull << mantissa) - 1));
}
static __device__ u64 pl_elements(u64 seed, u64 index) {
    const unsigned type = seed >> 15 & 15, op = seed >> 19 & 7, role = seed >> 22 & 3;
    const int ranks = seed >> 8 & 127;
    const int bits = type == 1 || type == 2 || type > 9 ? 8 : type == 6 || type == 7 ? 16 : type == 3 || type == 4 || type == 8 ? 32 : 64;
    const int mantissa = type == 6 ? 10 : type == 7 ? 7 : type == 8 ? 23 : type == 9 ? 52 : type == 10 ? 3 : type == 11 ? 2 : 0;
    const int bias = type == 7 || type == 8 ? 127 : type == 9 ? 1023 : type == 10 ? 7 : 15;
    const int has_sign = type != 0 && type != 2 && type != 4;
    const u64 z = pl_random((seed & 0xff) | 0x100, index);
    u64 word = 0;
    for (int at = 0; at < 64; at += bits) {
        const int x = z >> at & 0xff;
        const int minus_a = has_sign && x & 16 ? -1 : 1, minus_b = has_sign && x & 32 ? -1 : 1;
        int a = minus_a * (1 + (x & 3)), b = minus_b * (1 + (x >> 2 & 3)), none = 0, all = a + b, shift = 0;
        if (op == 1) {
            a = minus_a * (2 << (x & 1)); b = minus_b * (2 << (x >> 1 & 1)); none = 1; all = a * b;
        } else if (op == 2) {
            none = 8; all = a < b ? a : b;
        } else if (op == 3) {
            none = has_sign ? -8 : 0; all = a > b ? a : b;
        } else if (op == 4 && !mantissa) {
            all = minus_a * (ranks <= 32 ? 1 + (x & 1) : 1);
            b = minus_b * (1 + (x >> 2 & 1));
            a = all * ranks - b;
        } else if (op == 4 && role == 3) {
            while (ranks >> (shift + 1)) shift++;
        }
        const int value = role == 0 ? none : role == 1 ? a : role == 2 ? b : all;
        word |= pl_encode(value, shift, bits, mantissa, bias) << at;
    }
    return word;
}
static __device__ u64 pl_word(u64 seed, u64 index) {
    const bool elements = seed >> 24 == PL_ELEMENTS && (seed >> 15 & 15) < 12 && (seed >> 19 & 7) < 5;
    return elements ? pl_elements(seed, index) : pl_random(seed, index);
}
static __device__ unsigned char pl_byte(u64 seed, u64 at) {
    return (unsigned char)(pl_word(seed, at / 8) >> (at % 8 * 8));
}
extern "C" PL_KERNEL(256) pathline_fill(unsigned char *p, u64 bytes, u64 seed) {
    const u64 me = blockIdx.x * (u64)blockDim.x + threadIdx.x, all = gridDim.x * (u64)blockDim.x;
    const u64 words = (u64)p % 8 ? 0 : bytes / 8;
    for (u64 i = me; i < words; i += all) ((u64 *)p)[i] = pl_word(seed, i);
    for (u64 i = words * 8 + me; i < bytes; i += all) p[i] = pl_byte(seed, i);
}
extern "C" PL_KERNEL(256) pathline_check(const unsigned char *p, u64 bytes, u64 seed, u64 *first) {
    const u64 me = blockIdx.x * (u64)blockDim.x + threadIdx.x, all = gridDim.x * (u64)blockDim.x;
    const u64 words = (u64)p % 8 ? 0 : bytes / 8;
    u64 wrong = ~0ull;
    for (u64 i = me; i < words; i += all) {
        const u64 differs = ((const u64 *)p)[i] ^ pl_word(seed, i);
        if (differs && wrong == ~0ull) {
            u64 byte = 0;
            while (!((differs >> (byte * 8)) & 0xff)) byte++;
            wrong = i * 8 + byte;
        }
    }
    for (u64 i = words * 8 + me; i < bytes; i += all)
        if (p[i] != pl_byte(seed, i) && i < wrong) wrong = i;
    if (wrong != ~0ull) PL_MIN(first, wrong);
}
extern "C" PL_KERNEL(256) pathline_sum(u64 whole, u64 bytes, u64 seed, unsigned *result) {
    const u64 me = blockIdx.x * (u64)blockDim.x + threadIdx.x, all = gridDim.x * (u64)blockDim.x;
    unsigned sum = 0;
    for (u64 i = me; i < whole / 8; i += all) {
        const u64 word = pl_word(seed, i);
        sum ^= (unsigned)word ^ (unsigned)(word >> 32);
    }
    if (!me && whole % 8) sum ^= (unsigned)pl_word(seed, whole / 8);
    for (u64 i = whole + me; i < bytes; i += all) sum ^= pl_byte(seed, i);
    PL_XOR(result, sum);
}
