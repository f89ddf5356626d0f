//! Kernels as text. A variant is data with three faces: its key, its effect on memory (both in
//! `schema`) and its source, made here.
//!
//! The text is C++ that every run-time compiler of GPU kernels takes without any header, after a
//! short prelude of its own (a dialect) that defines:
//!
//! | name | what |
//! |---|---|
//! | `PL_KERNEL(block)` | qualifiers of a kernel of at most that many threads a block |
//! | `pl_w4`, `pl_w8`, `pl_w16` | unsigned words of 4, 8 and 16 bytes |
//! | `pl_f4`, `pl_f8`, `pl_f16` | `float`, `double` and a pair of `double` with members `x`, `y` |
//! | `pl_load_nt`, `pl_store_nt` | streaming load and store of any of these words |
//! | `PL_MIN(address, value)` | atomic minimum of 64-bit words |
//!
//! Device memory of one kernel is not written by anybody else while it runs.

use std::fmt::Write as _;

use pathline_schema::{Bytes, Grid, Hint, KernelOp, Variant};

/// Name of the kernel that [`source`] defines. Parameters: source, destination, payload in bytes,
/// and 8 bytes that take what would otherwise be optimised away.
pub const ENTRY: &str = "pathline";

/// Names of the kernels that [`PATTERN`] defines.
pub const FILL: &str = "pathline_fill";
/// See [`FILL`]. Lowers a 64-bit word to the offset of the first wrong byte.
pub const CHECK: &str = "pathline_check";

/// Threads of a block that [`FILL`] and [`CHECK`] are launched with.
pub const PATTERN_BLOCK: u32 = 256;

/// Writes and checks [`crate::pattern`]: `(address, bytes, seed)` and `(address, bytes, seed, result)`.
/// Any address; aligned ones are served in whole words.
pub const PATTERN: &str = r#"
typedef unsigned long long u64;
static __device__ u64 pl_word(u64 seed, u64 index) {
    u64 z = seed + (index + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
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
"#;

/// What all passes share: whole tiles of `PL_BLOCK` threads and `PL_UNROLL` words in flight each,
/// taken by the blocks in turn, then the words and bytes that are left.
const PASS: &str = r#"
extern "C" PL_KERNEL(PL_BLOCK) pathline(const char *src, char *dst, u64 bytes, u64 *sink) {
    const u64 me = blockIdx.x * (u64)blockDim.x + threadIdx.x, all = gridDim.x * (u64)blockDim.x;
    const u64 tile = (u64)PL_BLOCK * PL_UNROLL, words = PL_WORDS(bytes), tiles = words / tile;
    const pl_word *a = (const pl_word *)src;
    pl_word *z = (pl_word *)dst;
    PL_BEGIN
    for (u64 t = blockIdx.x; t < tiles; t += gridDim.x) {
        const u64 at = t * tile + threadIdx.x;
        PL_TILE
    }
    for (u64 i = tiles * tile + me; i < words; i += all) { PL_ONE }
    for (u64 i = words * sizeof(pl_word) + me; i < bytes; i += all) { PL_BYTE }
    PL_END
}
"#;

const CHASE: &str = r#"
typedef unsigned long long u64;
extern "C" PL_KERNEL(PL_BLOCK) pathline(const char *src, char *dst, u64 bytes, u64 *sink) {
    if (blockIdx.x | threadIdx.x) return;
    const u64 steps = bytes / 128 ? bytes / 128 : 1;
    const u64 *at = (const u64 *)src;
    for (u64 i = 0; i < steps; i++) at = (const u64 *)*at;
    *sink = (u64)at;
}
"#;

/// The words of a tile, all in flight before the first is used.
const LOADS: &str = "pl_word v[PL_UNROLL];\n_Pragma(\"unroll\") for (int j = 0; j < PL_UNROLL; j++) v[j] = PL_LOAD(a + at + j * PL_BLOCK);\n";

/// The parts of a pass that its operation decides: begin, tile, one word, one byte.
fn parts(op: KernelOp) -> [&'static str; 4] {
    match op {
        KernelOp::Copy => [
            "",
            "PL_LOADS _Pragma(\"unroll\") for (int j = 0; j < PL_UNROLL; j++) PL_STORE(z + at + j * PL_BLOCK, v[j]);",
            "PL_STORE(z + i, PL_LOAD(a + i));",
            "dst[i] = src[i];",
        ],
        KernelOp::Read => [
            "unsigned sum = 0;",
            "PL_LOADS _Pragma(\"unroll\") for (int j = 0; j < PL_UNROLL; j++) sum ^= pl_fold(v[j]);",
            "sum ^= pl_fold(PL_LOAD(a + i));",
            "sum ^= (unsigned char)src[i];",
        ],
        KernelOp::Write => [
            "const pl_word c = pl_splat(0x50617468u);",
            "_Pragma(\"unroll\") for (int j = 0; j < PL_UNROLL; j++) PL_STORE(z + at + j * PL_BLOCK, c);",
            "PL_STORE(z + i, c);",
            "dst[i] = 0x50;",
        ],
        KernelOp::Triad | KernelOp::Chase => [
            "const pl_word *b = (const pl_word *)(src + bytes);",
            "PL_LOADS pl_word w[PL_UNROLL];\n_Pragma(\"unroll\") for (int j = 0; j < PL_UNROLL; j++) w[j] = PL_LOAD(b + at + j * PL_BLOCK);\n_Pragma(\"unroll\") for (int j = 0; j < PL_UNROLL; j++) PL_STORE(z + at + j * PL_BLOCK, pl_triad(v[j], w[j]));",
            "PL_STORE(z + i, pl_triad(PL_LOAD(a + i), PL_LOAD(b + i)));",
            "dst[i] = src[i] + 3 * src[bytes + i];",
        ],
    }
}

/// Helpers over one word: a fold to 32 bits, a constant, and `b + 3 c`.
fn helpers(word: u8) -> &'static str {
    match word {
        16 => {
            "static __device__ unsigned pl_fold(pl_w16 v) { return v.x ^ v.y ^ v.z ^ v.w; }\n\
             static __device__ pl_w16 pl_splat(unsigned c) { pl_w16 v; v.x = v.y = v.z = v.w = c; return v; }\n\
             static __device__ pl_f16 pl_triad(pl_f16 b, pl_f16 c) { pl_f16 v; v.x = b.x + 3.0 * c.x; v.y = b.y + 3.0 * c.y; return v; }\n"
        }
        8 => {
            "static __device__ unsigned pl_fold(pl_w8 v) { return (unsigned)v ^ (unsigned)(v >> 32); }\n\
             static __device__ pl_w8 pl_splat(unsigned c) { return c | (pl_w8)c << 32; }\n\
             static __device__ pl_f8 pl_triad(pl_f8 b, pl_f8 c) { return b + 3.0 * c; }\n"
        }
        _ => {
            "static __device__ unsigned pl_fold(pl_w4 v) { return v; }\n\
             static __device__ pl_w4 pl_splat(unsigned c) { return c; }\n\
             static __device__ pl_f4 pl_triad(pl_f4 b, pl_f4 c) { return b + 3.0f * c; }\n"
        }
    }
}

/// The source of a variant, to be put behind a dialect. It defines [`ENTRY`].
///
/// Loads and stores are of the variant's word at `src` and `dst`, which must be multiples of it.
/// A triad reads its second array at `src + bytes`; if that is no multiple of the word, it goes
/// byte by byte.
///
/// The first line is a comment with the variant's key, so that a cached file and a test library
/// can tell what they hold. The number of blocks is no part of the text and is 1 there.
pub fn source(variant: &Variant) -> String {
    let key = Variant { grid: Grid::Blocks(1), ..*variant };
    let mut text = format!("// {key}\n#define PL_BLOCK {}\n", variant.block);
    if variant.op == KernelOp::Chase {
        text.push_str(CHASE);
        return text;
    }
    let kind = if variant.op == KernelOp::Triad { 'f' } else { 'w' };
    let nt = variant.hint == Hint::Nt;
    let words = match variant.op {
        KernelOp::Triad => "((n) % sizeof(pl_word) ? 0 : (n) / sizeof(pl_word))",
        _ => "((n) / sizeof(pl_word))",
    };
    let [begin, tile, one, byte] = parts(variant.op);
    let end =
        if variant.op == KernelOp::Read { "if (sum == 0x6c696e65u) *sink = sum;" } else { "" };
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "#define PL_UNROLL {}\n#define PL_WORDS(n) {words}\n\
         typedef unsigned long long u64;\ntypedef pl_{kind}{word} pl_word;\n{}",
        variant.unroll,
        helpers(variant.word),
        word = variant.word,
    );
    text.push_str(if nt {
        "#define PL_LOAD(p) pl_load_nt(p)\n#define PL_STORE(p, v) pl_store_nt(p, v)\n"
    } else {
        "#define PL_LOAD(p) (*(p))\n#define PL_STORE(p, v) (*(p) = (v))\n"
    });
    let tile = tile.replace("PL_LOADS", LOADS);
    let body = [("PL_BEGIN", begin), ("PL_TILE", &tile), ("PL_ONE", one), ("PL_BYTE", byte)];
    let pass = body
        .iter()
        .fold(PASS.replace("PL_END", end), |text, (name, part)| text.replace(name, part));
    text.push_str(&pass);
    text
}

/// How many blocks a pass over `bytes` is launched with: those of the variant, but no more than
/// have something to do.
pub fn blocks(variant: &Variant, bytes: Bytes, compute_units: u32) -> u32 {
    let wanted = match variant.grid {
        Grid::Blocks(n) => n,
        Grid::PerSm(n) => n.saturating_mul(compute_units),
    };
    let tile = u64::from(variant.word) * u64::from(variant.unroll) * u64::from(variant.block);
    let useful = u32::try_from(bytes.0.div_ceil(tile.max(1))).unwrap_or(u32::MAX);
    wanted.min(useful).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_says_what_its_key_says() {
        let mut variant = Variant::standard(KernelOp::Copy);
        let text = source(&variant);
        assert!(text.starts_with("// copy-w16-u4-b256-g1\n"));
        assert_eq!(text, source(&Variant { grid: Grid::PerSm(7), ..variant }));
        assert!(text.contains("#define PL_BLOCK 256") && text.contains("#define PL_UNROLL 4"));
        assert!(text.contains("typedef pl_w16 pl_word") && !text.contains("pl_load_nt"));
        assert!(!text.contains("PL_TILE") && !text.contains("PL_LOADS"));
        variant.hint = Hint::Nt;
        variant.word = 8;
        assert!(source(&variant).contains("pl_load_nt"));
        assert!(source(&variant).contains("typedef pl_w8 pl_word"));
        assert!(source(&Variant::standard(KernelOp::Triad)).contains("typedef pl_f16 pl_word"));
    }

    #[test]
    fn no_block_is_launched_without_work() {
        let variant = Variant::standard(KernelOp::Copy);
        // A tile is 16 B x 4 x 256 = 16 KiB; 2 blocks on each of 132 multiprocessors are 264.
        assert_eq!(blocks(&variant, Bytes::mib(256), 132), 264);
        assert_eq!(blocks(&variant, Bytes::kib(64), 132), 4);
        assert_eq!(blocks(&variant, Bytes(1), 132), 1);
        assert_eq!(blocks(&Variant::chase(), Bytes::mib(256), 132), 1);
    }
}
