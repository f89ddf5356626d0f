//! Sources of kernels. A variant is data with three forms: its key, its effect on memory (both in
//! `schema`) and its source, generated here.
//!
//! The source is C++ that every run-time compiler of GPU kernels accepts without headers, after a
//! short prelude for each compiler (a dialect) that defines:
//!
//! | name | what |
//! |---|---|
//! | `PL_KERNEL(block)` | qualifiers of a kernel of at most that many threads a block |
//! | `pl_w4`, `pl_w8`, `pl_w16` | unsigned words of 4, 8 and 16 bytes |
//! | `pl_f4`, `pl_f8`, `pl_f16` | `float`, `double` and a pair of `double` with members `x`, `y` |
//! | `pl_load_nt`, `pl_store_nt` | streaming load and store of any of these words |
//! | `PL_MIN(address, value)` | atomic minimum of 64-bit words |
//! | `PL_XOR(address, value)` | atomic exclusive or of 32-bit words |
//! | `PL_FMA4(a, b, c)`, `PL_FMA8(a, b, c)` | `a * b + c` of `float` or `double`, rounded once |
//! | `PL_FROM_LANE(word, lane)` | the word of 8 bytes of another thread of 32 that all get there |
//!
//! Bulk copies and [`CacheHint::NoAllocate`] are written in PTX, for NVIDIA alone; [`unsupported`]
//! gives the reason for other targets. The first line of every source is a comment with the key of
//! its variant for a grid of one block, or with `pattern`, `stored` or `blocks`.
//!
//! Nothing else may write the memory of a kernel while it runs.

mod stored;

use std::fmt::Write as _;

use pathline_schema::{
    AccessWidth, Bytes, CacheHint, FMA_PER_BYTE, GridSize, KernelOp, KernelVariant, TileOrder,
};

pub use stored::{
    STORED, TRIAD_BYTES, TRIAD_DOUBLES, TRIAD_FLOATS, WRITTEN, WRITTEN_BYTE, WRITTEN_WORD,
    stored_entry, whole_words,
};

/// Name of the kernel in [`source`]. Parameters: source, destination, payload in bytes, and 8 bytes
/// for values that would otherwise be optimised away. A read kernel has no destination: if that
/// parameter is not 0, it adds the checksum of all loaded bytes to those 8 bytes, by exclusive or.
pub const ENTRY: &str = "pathline";

/// Name of the kernel in [`PATTERN`] that writes a pattern.
pub const FILL: &str = "pathline_fill";
/// Verifies a pattern, see [`FILL`]: lowers a 64-bit word to the offset of the first wrong byte.
pub const CHECK: &str = "pathline_check";
/// Computes the checksum that a read kernel has of a pattern, see [`FILL`]. Parameters: `(whole,
/// bytes, seed, result)`; `whole` bytes lie in whole words of the kernel.
pub const SUM: &str = "pathline_sum";

/// Threads per block for the kernels of [`PATTERN`] and [`STORED`].
pub const PATTERN_BLOCK: u32 = 256;

/// Kernels that write and verify [`crate::pattern`]: `(address, bytes, seed)` and `(address, bytes,
/// seed, result)`. Any alignment; aligned ranges are processed in whole words.
pub const PATTERN: &str = include_str!("kernels/pattern.cu");

/// Name of the kernel in [`BLOCKS`]. Parameters: address of a list and its length.
pub const COPY_BLOCKS: &str = "pathline_blocks";
/// Threads per block for the kernel of [`BLOCKS`].
pub const COPY_BLOCK: u32 = 512;
/// A kernel that copies a list of ranges, three words each: destination, source, bytes. Any alignment.
pub const BLOCKS: &str = include_str!("kernels/blocks.cu");

/// Pieces into which the bytes of a list are cut, if its ranges are longer: many for each of 256 groups of threads.
pub const PIECES: usize = 4096;
/// Shortest piece: the bytes that 32 threads have in flight.
const SHORTEST_PIECE: u64 = 4096;

/// Bytes of the pieces of ranges with that many bytes altogether.
pub fn piece_bytes(total: u64) -> u64 {
    (total / PIECES as u64).checked_next_power_of_two().unwrap_or(total).max(SHORTEST_PIECE)
}

/// The list of the kernel of [`BLOCKS`] for copies `(dst, src, bytes)`: destination, source and bytes of each piece.
pub fn pieces(copies: &[(u64, u64, Bytes)]) -> impl Iterator<Item = [u64; 3]> {
    let total = copies.iter().fold(0_u64, |sum, copy| sum.saturating_add(copy.2.0));
    let piece = piece_bytes(total);
    copies.iter().flat_map(move |&(dst, src, Bytes(bytes))| {
        let starts = (0..bytes).step_by(piece as usize);
        starts.map(move |at| [dst + at, src + at, piece.min(bytes - at)])
    })
}

/// The common part of all passes: whole tiles, assigned to the blocks in the order of the variant,
/// then the remaining words and bytes.
const PASS: &str = include_str!("kernels/pass.cu");

/// Tiles of a block: `first`, `first + step` and so on below `last`.
const INTERLEAVED: &str = "const u64 first = blockIdx.x, last = tiles, step = gridDim.x;";
/// Alternative to [`INTERLEAVED`]: contiguous tiles for each block.
const SEGMENTS: &str =
    "const u64 share = (tiles + gridDim.x - 1) / gridDim.x, first = blockIdx.x * share, step = 1;
    const u64 last = first + share < tiles ? first + share : tiles;";

/// Tiles by loads and stores of every thread.
const WORDS: &str = "for (u64 t = first; t < last; t += step) {
        const u64 at = t * tile + threadIdx.x;
        PL_TILE
    }";

/// The same several times. Threads of a block wait for each other between passes, which also keeps the
/// compiler from merging the loads of two passes.
const WORDS_AGAIN: &str = "_Pragma(\"unroll 1\") for (int pass = 0; pass < PL_PASSES; pass++) {
    for (u64 t = first; t < last; t += step) {
        const u64 at = t * tile + threadIdx.x;
        PL_TILE
    }
    __syncthreads();
    }";

/// Bulk asynchronous copies of one chunk, and the barriers that count their bytes. `PL_HINT`,
/// `PL_POLICY` and `PL_WITH` are the cache policy, if any.
const BULK: &str = include_str!("kernels/bulk.cu");

/// One thread keeps loads and stores of chunks in flight. A load of chunk `i + PL_AHEAD` takes the
/// stage of chunk `i + PL_AHEAD - PL_STAGES`, whose store has read it once no more than the
/// `PL_STAGES - PL_AHEAD` stores after it are pending.
const BULK_PASSES: [&str; 3] = [
    // copy
    include_str!("kernels/bulk_copy.cu"),
    // read: what arrives is summed where that is asked for, and its stage is free at once
    include_str!("kernels/bulk_read.cu"),
    // write: one chunk, stored again and again
    include_str!("kernels/bulk_write.cu"),
];

/// The chain is followed through addresses in the global address space: a generic load would first
/// have to determine the space. The address depends on the thread's number, since AMD's scalar
/// cache would serve a uniform address, but not by a test of that number alone, from which the
/// compiler would derive that it is 0. One block of the grid follows the chain; its number replaces
/// the destination parameter: with one block for each compute unit, that selects the unit.
const CHASE: &str = include_str!("kernels/chase.cu");

/// Chains of fused multiply-adds in registers. The values converge to 2 and are not stored.
const FMA: &str = include_str!("kernels/fma.cu");

/// Loads all words of a tile before the first is used, so that all are in flight.
const LOADS: &str = "pl_word v[PL_UNROLL];\n_Pragma(\"unroll\") for (int j = 0; j < PL_UNROLL; j++) v[j] = PL_LOAD(a + at + j * PL_BLOCK);\n";

/// Kernel shapes without their operation that a search tries, one a line. Each dimension varies around values
/// that are good on some GPU: one tile per block with one to eight words in flight; persistent
/// blocks, from few to as many as fit; hints; contiguous pieces; and bulk copies of 2 to 64 KiB, in
/// rings and one per block.
pub const SHAPES: &str = include_str!("kernels/shapes.txt");

/// The parts of a pass that depend on its operation: begin, tile, one word, one byte.
fn pass_parts(op: KernelOp) -> [&'static str; 4] {
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
        KernelOp::Triad | KernelOp::Chase | KernelOp::Fma => [
            "const pl_word *b = (const pl_word *)(src + bytes);",
            "PL_LOADS pl_word w[PL_UNROLL];\n_Pragma(\"unroll\") for (int j = 0; j < PL_UNROLL; j++) w[j] = PL_LOAD(b + at + j * PL_BLOCK);\n_Pragma(\"unroll\") for (int j = 0; j < PL_UNROLL; j++) PL_STORE(z + at + j * PL_BLOCK, pl_triad(v[j], w[j]));",
            "PL_STORE(z + i, pl_triad(PL_LOAD(a + i), PL_LOAD(b + i)));",
            "dst[i] = src[i] + 3 * src[bytes + i];",
        ],
    }
}

/// Helper functions for one word: fold to 32 bits, constant, and `b + 3 c`.
fn word_helpers(word: u8) -> &'static str {
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

/// Loads and stores that allocate no line in the first-level cache, for integer and floating-point
/// words of one size.
fn no_allocate(word: u8) -> String {
    // Register letter, type and components of integer and floating-point words.
    let kinds: [(&str, &str, &str, &[&str]); 2] = match word {
        16 => [
            ("pl_w16", "r", "v4.u32", &["v.x", "v.y", "v.z", "v.w"]),
            ("pl_f16", "d", "v2.f64", &["v.x", "v.y"]),
        ],
        8 => [("pl_w8", "l", "u64", &["v"]), ("pl_f8", "d", "f64", &["v"])],
        _ => [("pl_w4", "r", "u32", &["v"]), ("pl_f4", "f", "f32", &["v"])],
    };
    let mut text = String::new();
    for (name, letter, kind, parts) in kinds {
        let list = |from: usize| {
            let all: Vec<_> = (from..from + parts.len()).map(|n| format!("%{n}")).collect();
            if all.len() == 1 { all.concat() } else { format!("{{{}}}", all.join(", ")) }
        };
        let bound = |sign: &str| {
            let all: Vec<_> = parts.iter().map(|p| format!("\"{sign}{letter}\"({p})")).collect();
            all.join(", ")
        };
        let _ = write!(
            text,
            "static __device__ {name} pl_load_na(const {name} *p) {{ {name} v; asm volatile(\"ld.global.L1::no_allocate.L2::256B.{kind} {}, [%{}];\" : {} : \"l\"(__cvta_generic_to_global(p)) : \"memory\"); return v; }}\n\
             static __device__ void pl_store_na({name} *p, {name} v) {{ asm volatile(\"st.global.L1::no_allocate.{kind} [%0], {};\" :: \"l\"(__cvta_generic_to_global(p)), {} : \"memory\"); }}\n",
            list(0),
            parts.len(),
            bound("="),
            list(1),
            bound(""),
        );
    }
    text
}

/// Definitions for a bulk pass: sizes, cache policy and the copies.
fn bulk_prelude(variant: &KernelVariant, chunk: u8, stages: u8) -> String {
    let ahead = if stages == 1 { 1 } else { stages - (stages / 4).max(1) };
    let (hint, operand, with, policy) = match variant.hint {
        CacheHint::Nt => (
            "\".L2::cache_hint\"",
            "\", \" n",
            ", \"l\"(policy)",
            "asm volatile(\"createpolicy.fractional.L2::evict_first.b64 %0, 1.0;\" : \"=l\"(policy));",
        ),
        CacheHint::Plain | CacheHint::NoAllocate => ("\"\"", "\"\"", "", ""),
    };
    format!(
        "#define PL_CHUNK ({chunk} * 1024)\n#define PL_STAGES {stages}\n#define PL_AHEAD {ahead}\n\
         #define PL_HINT {hint}\n#define PL_POLICY(n) {operand}\n#define PL_WITH {with}\n\
         #define PL_MAKE_POLICY {policy}\n{BULK}"
    )
}

/// The source of a variant, without the dialect that must precede it. It defines [`ENTRY`].
///
/// The first line is a comment with the variant's key, which identifies cached files and is read by
/// test libraries. The number of blocks does not affect the source and is 1 there.
///
/// `src` and `dst` must be multiples of [`KernelVariant::align`]. A triad reads its second array at
/// `src + bytes`; if `bytes` is not a multiple of the word, it works byte by byte. Launch it with
/// [`KernelVariant::shared`] bytes of dynamic shared memory.
pub fn source(variant: &KernelVariant) -> String {
    let key = KernelVariant { grid: GridSize::Blocks(1), ..*variant };
    let mut text = format!("// {key}\n#define PL_BLOCK {}\n", variant.block);
    let (word, unroll) = match variant.access {
        AccessWidth::Words { word, unroll } => (word, unroll),
        AccessWidth::Bulk { .. } => (16, 1),
    };
    // Writing to a string does not fail.
    let _ = writeln!(text, "#define PL_UNROLL {unroll}");
    match variant.op {
        KernelOp::Chase => text.push_str(CHASE),
        KernelOp::Fma => {
            let real = if word == 8 { "double" } else { "float" };
            let _ = write!(
                text,
                "#define PL_FMA_PER_BYTE {FMA_PER_BYTE}\ntypedef {real} pl_real;{FMA}"
            );
        }
        _ => append_pass(&mut text, variant, word),
    }
    text
}

/// Appends a kernel that passes over its payload.
fn append_pass(text: &mut String, variant: &KernelVariant, word: u8) {
    let kind = if variant.op == KernelOp::Triad { 'f' } else { 'w' };
    let words = match variant.op {
        KernelOp::Triad => "((n) % sizeof(pl_word) ? 0 : (n) / sizeof(pl_word))",
        _ => "((n) / sizeof(pl_word))",
    };
    let [begin, tile, one, byte] = pass_parts(variant.op);
    let end =
        if variant.op == KernelOp::Read { "if (dst) PL_XOR((unsigned *)sink, sum);" } else { "" };
    let _ = write!(
        text,
        "#define PL_WORDS(n) {words}\n\
         typedef unsigned long long u64;\ntypedef pl_{kind}{word} pl_word;\n{}",
        word_helpers(word),
    );
    // The remaining words after bulk copies need no hint.
    let suffix = match (variant.access, variant.hint) {
        (AccessWidth::Bulk { .. }, _) | (_, CacheHint::Plain) => "",
        (_, CacheHint::Nt) => "_nt",
        (_, CacheHint::NoAllocate) => "_na",
    };
    if suffix == "_na" {
        text.push_str(&no_allocate(word));
    }
    text.push_str(&match suffix {
        "" => "#define PL_LOAD(p) (*(p))\n#define PL_STORE(p, v) (*(p) = (v))\n".to_owned(),
        hint => format!(
            "#define PL_LOAD(p) pl_load{hint}(p)\n#define PL_STORE(p, v) pl_store{hint}(p, v)\n"
        ),
    });
    let share = match variant.order {
        TileOrder::Interleaved => INTERLEAVED,
        TileOrder::Segments => SEGMENTS,
    };
    let (tiles, tile_words) = match variant.access {
        AccessWidth::Words { .. } if variant.passes > 1 => {
            let _ = writeln!(text, "#define PL_PASSES {}", variant.passes);
            (WORDS_AGAIN, "((u64)PL_BLOCK * PL_UNROLL)")
        }
        AccessWidth::Words { .. } => (WORDS, "((u64)PL_BLOCK * PL_UNROLL)"),
        AccessWidth::Bulk { chunk, stages } => {
            text.push_str(&bulk_prelude(variant, chunk, stages));
            let drive = match variant.op {
                KernelOp::Read => BULK_PASSES[1],
                KernelOp::Write => BULK_PASSES[2],
                _ => BULK_PASSES[0],
            };
            (drive, "((u64)PL_CHUNK / sizeof(pl_word))")
        }
    };
    let tile = tile.replace("PL_LOADS", LOADS);
    let body = [
        ("PL_TILE_WORDS", tile_words),
        ("PL_SHARE", share),
        ("PL_BEGIN", begin),
        ("PL_TILES", tiles),
        ("PL_TILE", &tile),
        ("PL_ONE", one),
        ("PL_BYTE", byte),
        ("PL_END", end),
    ];
    let pass = body.iter().fold(PASS.to_owned(), |text, (name, part)| text.replace(name, part));
    text.push_str(&pass);
}

/// Why a variant does not exist for a target (`sm_90`, `gfx90a`). `None` if it does.
pub fn unsupported(variant: &KernelVariant, target: &str) -> Option<&'static str> {
    let nvidia = target.strip_prefix("sm_");
    let generation: u32 = nvidia
        .map(|n| n.trim_end_matches(|c: char| !c.is_ascii_digit()))
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    match (variant.access, variant.hint) {
        (AccessWidth::Bulk { .. }, _) if nvidia.is_none() => {
            Some("bulk asynchronous copies are instructions of NVIDIA GPUs")
        }
        (AccessWidth::Bulk { .. }, _) if generation < 90 => {
            Some("GPUs before sm_90 have no bulk asynchronous copies")
        }
        (_, CacheHint::NoAllocate) if nvidia.is_none() => {
            Some("loads that allocate no cache line are instructions of NVIDIA GPUs")
        }
        (_, CacheHint::NoAllocate) if generation < 80 => {
            Some("GPUs before sm_80 have no loads that fetch 256 B into the second-level cache")
        }
        _ => None,
    }
}

/// Number of blocks for a pass over `bytes`: that of the variant, but at most one per tile.
pub fn blocks(variant: &KernelVariant, bytes: Bytes, compute_units: u32) -> u32 {
    let wanted = match variant.grid {
        GridSize::Blocks(n) => n,
        GridSize::PerSm(n) => n.saturating_mul(compute_units),
        GridSize::Tiles => u32::MAX,
    };
    // CUDA accepts 2^31 - 1 blocks, HIP 2^32 - 1 threads; fewer blocks process several tiles each.
    let most = u32::MAX / u32::from(variant.block).max(2);
    let useful = u32::try_from(bytes.0.div_ceil(variant.tile().0.max(1))).unwrap_or(u32::MAX);
    wanted.min(useful).min(most).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_matches_its_key() {
        let mut variant = KernelVariant::standard(KernelOp::Copy);
        let text = source(&variant);
        assert!(text.starts_with("// copy-w16-u4-b256-g1\n"));
        assert_eq!(text, source(&KernelVariant { grid: GridSize::PerSm(7), ..variant }));
        assert!(text.contains("#define PL_BLOCK 256") && text.contains("#define PL_UNROLL 4"));
        assert!(text.contains("typedef pl_w16 pl_word") && !text.contains("pl_load_nt"));
        assert!(!text.contains("PL_TILE") && !text.contains("PL_LOADS"));
        variant.hint = CacheHint::Nt;
        variant.access = AccessWidth::Words { word: 8, unroll: 4 };
        assert!(source(&variant).contains("pl_load_nt"));
        assert!(source(&variant).contains("typedef pl_w8 pl_word"));
        assert!(
            source(&KernelVariant::standard(KernelOp::Triad)).contains("typedef pl_f16 pl_word")
        );
    }

    #[test]
    fn only_a_read_of_several_passes_loops_over_them() {
        let text = source(&KernelVariant::rereading());
        assert!(text.starts_with("// read-w16-u4-b256-g1-p3\n"), "{text}");
        assert!(text.contains("#define PL_PASSES 3") && text.contains("pass < PL_PASSES"));
        assert!(!source(&KernelVariant::standard(KernelOp::Read)).contains("PL_PASSES"));
    }

    /// 4,096 equal ranges of any size are cut into at most 8,192 pieces, which cover every byte once.
    #[test]
    fn pieces_are_few_and_balanced() {
        assert_eq!(piece_bytes(0), 4096);
        assert_eq!(piece_bytes(4096 * 4096), 4096);
        assert_eq!(piece_bytes(4096 * (64 << 10)), 64 << 10);
        for bytes in [1, 4095, 4097, 70_001, 4 << 20] {
            let copies = [(1 << 40, 1 << 41, Bytes(bytes)); PIECES];
            assert!(pieces(&copies).count() <= 2 * PIECES, "{bytes}");
        }
        let list: Vec<[u64; 3]> = pieces(&[(100, 9, Bytes(4097)), (7, 8, Bytes(1))]).collect();
        assert_eq!(list, [[100, 9, 4096], [4196, 4105, 1], [7, 8, 1]]);
    }

    #[test]
    fn the_model_of_the_copy_of_blocks_is_its_source() {
        let variant = KernelVariant::scattered(8, Bytes::kib(64));
        assert_eq!(u32::from(variant.block), COPY_BLOCK);
        let AccessWidth::Words { word, unroll } = variant.access else { panic!("{variant}") };
        assert!(BLOCKS.contains(&format!("#define PL_FLIGHT {unroll}\n")));
        assert!(BLOCKS.contains("pl_move<pl_w16>") && word == 16);
        // 512 B are one word of each of 32 threads; less is no less.
        let unrolled = |bytes| match KernelVariant::scattered(8, Bytes(bytes)).access {
            AccessWidth::Words { unroll, .. } => unroll,
            AccessWidth::Bulk { .. } => 0,
        };
        assert_eq!([0, 16, 512, 528, 4096, 1 << 20].map(unrolled), [1, 1, 1, 2, 8, 8]);
    }

    #[test]
    fn no_block_is_launched_without_work() {
        let variant = KernelVariant::standard(KernelOp::Copy);
        // A tile is 16 B x 4 x 256 = 16 KiB; 2 blocks on each of 132 multiprocessors are 264.
        assert_eq!(blocks(&variant, Bytes::mib(256), 132), 264);
        assert_eq!(blocks(&variant, Bytes::kib(64), 132), 4);
        assert_eq!(blocks(&variant, Bytes(1), 132), 1);
        // One block per tile: 256 MiB are 16 384 tiles of 16 KiB; 2^46 B exceed the maximum launch.
        let tiles = KernelVariant { grid: GridSize::Tiles, ..variant };
        assert_eq!(blocks(&tiles, Bytes::mib(256), 132), 16_384);
        assert_eq!(blocks(&tiles, Bytes(1 << 50), 132), 16_777_215);
        assert_eq!(blocks(&KernelVariant::chase(), Bytes::mib(256), 132), 1);
    }
}
