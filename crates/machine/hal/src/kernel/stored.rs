//! The comparison of what write and triad kernels stored with what they should have stored.

use pathline_schema::{Bytes, KernelOp, KernelVariant};

/// The 32-bit word that a write kernel stores over whole words of its access width.
pub const WRITTEN_WORD: u32 = 0x5061_7468;
/// The byte that it stores over the rest.
pub const WRITTEN_BYTE: u8 = 0x50;

/// Compares a destination with a constant, or with `b + 3 c` of sources that still hold their bytes.
/// Parameters of each kernel: a number or an address, the destination, the payload in bytes, and a
/// 64-bit word that is lowered to the offset of the first wrong element.
///
/// | kernel | first parameter | element |
/// |---|---|---|
/// | `pathline_written` | bytes in whole words of the write kernel | byte |
/// | `pathline_triad1` | `b`, followed by `c` | byte, modulo 256 |
/// | `pathline_triad4` | the same | `float` |
/// | `pathline_triad8` | the same | `double` |
///
/// A compiler may fuse the product and the sum of the timed kernel: both roundings are right. So are
/// zeros where numbers below the smallest normal one are flushed, and any NaN for a NaN.
pub const STORED: &str = r#"// stored
typedef unsigned long long u64;
static __device__ float pl_fused(float b, float c) { return PL_FMA4(3.0f, c, b); }
static __device__ double pl_fused(double b, double c) { return PL_FMA8(3.0, c, b); }
template <class T> static __device__ bool pl_below(T x, T limit) { return x < limit && x > -limit; }
template <class T> static __device__ bool pl_rounded(T stored, T b, T c, T normal) {
    // A product in memory cannot be fused.
    volatile T product = 3 * c;
    const T twice = b + product;
    return stored == pl_fused(b, c) || stored == twice || (stored != stored && twice != twice)
        || (pl_below(stored, 4 * normal) && pl_below(twice, 4 * normal));
}
template <class T> static __device__ bool pl_is_triad(T stored, T b, T c, T normal) {
    if (stored == pl_fused(b, c) || pl_rounded(stored, b, c, normal)) return true;
    const T zero = 0, flushed_b = pl_below(b, normal) ? zero : b, flushed_c = pl_below(c, normal) ? zero : c;
    return pl_rounded(stored, flushed_b, flushed_c, normal);
}
template <class T> static __device__ void pl_triads(const char *src, const char *dst, u64 bytes, T normal, u64 *first) {
    const u64 me = blockIdx.x * (u64)blockDim.x + threadIdx.x, all = gridDim.x * (u64)blockDim.x;
    const T *b = (const T *)src, *c = (const T *)(src + bytes), *z = (const T *)dst;
    for (u64 i = me; i < bytes / sizeof(T); i += all)
        if (!pl_is_triad(z[i], b[i], c[i], normal)) { PL_MIN(first, i * sizeof(T)); return; }
}
extern "C" PL_KERNEL(256) pathline_triad8(const char *src, const char *dst, u64 bytes, u64 *first) {
    pl_triads<double>(src, dst, bytes, 2.2250738585072014e-308, first);
}
extern "C" PL_KERNEL(256) pathline_triad4(const char *src, const char *dst, u64 bytes, u64 *first) {
    pl_triads<float>(src, dst, bytes, 1.17549435e-38f, first);
}
extern "C" PL_KERNEL(256) pathline_triad1(const unsigned char *src, const unsigned char *dst, u64 bytes, u64 *first) {
    const u64 me = blockIdx.x * (u64)blockDim.x + threadIdx.x, all = gridDim.x * (u64)blockDim.x;
    for (u64 i = me; i < bytes; i += all)
        if (dst[i] != (unsigned char)(src[i] + 3 * src[bytes + i])) { PL_MIN(first, i); return; }
}
extern "C" PL_KERNEL(256) pathline_written(u64 whole, const unsigned char *dst, u64 bytes, u64 *first) {
    const u64 me = blockIdx.x * (u64)blockDim.x + threadIdx.x, all = gridDim.x * (u64)blockDim.x;
    u64 wrong = ~0ull;
    for (u64 i = me; i < whole / 4; i += all) {
        const unsigned differs = ((const unsigned *)dst)[i] ^ 0x50617468u;
        if (differs && wrong == ~0ull) {
            u64 byte = 0;
            while (!((differs >> (byte * 8)) & 0xff)) byte++;
            wrong = i * 4 + byte;
        }
    }
    for (u64 i = whole + me; i < bytes; i += all)
        if (dst[i] != 0x50 && i < wrong) wrong = i;
    if (wrong != ~0ull) PL_MIN(first, wrong);
}
"#;

/// See [`STORED`].
pub const WRITTEN: &str = "pathline_written";
/// See [`STORED`].
pub const TRIAD_BYTES: &str = "pathline_triad1";
/// See [`STORED`].
pub const TRIAD_FLOATS: &str = "pathline_triad4";
/// See [`STORED`].
pub const TRIAD_DOUBLES: &str = "pathline_triad8";

/// The kernel of [`STORED`] that compares what `variant` leaves in a destination of that many bytes;
/// none for an operation that stores nothing or copies.
pub fn stored_entry(variant: &KernelVariant, bytes: Bytes) -> Option<&'static str> {
    match variant.op {
        KernelOp::Write => Some(WRITTEN),
        // A triad goes byte by byte where its payload is no multiple of its words.
        KernelOp::Triad if !bytes.0.is_multiple_of(variant.align()) => Some(TRIAD_BYTES),
        KernelOp::Triad if variant.align() == 4 => Some(TRIAD_FLOATS),
        KernelOp::Triad => Some(TRIAD_DOUBLES),
        KernelOp::Copy | KernelOp::Read | KernelOp::Chase | KernelOp::Fma => None,
    }
}

/// Bytes of a payload in whole words of a variant.
pub fn whole_words(variant: &KernelVariant, bytes: Bytes) -> u64 {
    bytes.0 - bytes.0 % variant.align().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_payload_has_its_comparison() {
        let entry = |key: &str, bytes| stored_entry(&key.parse().unwrap(), Bytes(bytes));
        assert_eq!(entry("write-bulk4k-s3-nt-b32-g2", 4097), Some(WRITTEN));
        // 24 B are three doubles, but no multiple of the 16 B word that the kernel needs.
        assert_eq!(entry("triad-w8-u2-b64-g1", 24), Some(TRIAD_DOUBLES));
        assert_eq!(entry("triad-w16-u2-b64-g1", 24), Some(TRIAD_BYTES));
        assert_eq!(entry("triad-w4-u2-b64-g1", 24), Some(TRIAD_FLOATS));
        assert_eq!(entry("copy-w4-u2-b64-g1", 24), None);
        let whole = |key: &str, bytes| whole_words(&key.parse().unwrap(), Bytes(bytes));
        assert_eq!(whole("write-w16-u4-b256-g1", 100), 96);
        assert!(STORED.contains(&format!("{WRITTEN_WORD:#x}u")));
        for name in [WRITTEN, TRIAD_BYTES, TRIAD_FLOATS, TRIAD_DOUBLES] {
            assert!(STORED.contains(&format!("extern \"C\" PL_KERNEL(256) {name}(")));
        }
    }
}
