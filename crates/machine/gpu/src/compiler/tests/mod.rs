//! Kernels and real compilers, without a GPU: everything compiles for every target, and the code
//! holds the instructions that a key promises.

mod blocks;

use std::collections::BTreeSet;
use std::process::Command;

use pathline_hal::kernel;
use pathline_schema::{AccessWidth, CacheHint, KernelOp, KernelVariant};
use pathline_stub::need::missing;

use super::*;
use crate::family::CompilerQuery;
use crate::runtimes::nearest_target;
use crate::search;

/// A compiler of this machine, independent of its driver; `None` if none is found.
/// `PATHLINE_TEST_NVRTC` or `PATHLINE_NVRTC` and `PATHLINE_TEST_HIP` or `PATHLINE_HIP` set where to
/// look, `PATHLINE_PROGRAM` the program that compiles in a separate process, and
/// `PATHLINE_TEST_REQUIRE` (`cuda`, `hip`) which compilers must exist.
fn compiler(family: &str) -> Option<KernelCompiler> {
    let family = RuntimeFamily::named(family)?;
    let first = |names: [&str; 2]| names.into_iter().find_map(std::env::var_os).map(PathBuf::from);
    let (bound, found) = match family.name {
        "cuda" => {
            let nvrtc = first(["PATHLINE_TEST_NVRTC", "PATHLINE_NVRTC"]);
            let query = CompilerQuery { asked: nvrtc.as_deref(), ..CompilerQuery::default() };
            search::compiler(family, query)
        }
        _ => {
            let hip = first(["PATHLINE_TEST_HIP", "PATHLINE_HIP"]);
            let (driver, found) = search::driver(family, hip.as_deref());
            let major = driver.map_or(0, |d| d.major);
            let runtime = found.path.as_deref();
            search::compiler(family, CompilerQuery { asked: None, runtime, major })
        }
    };
    if bound.is_none() {
        missing(family.name, &format!("no {}; {}", found.what, found.way_out));
    }
    let program = std::env::var_os("PATHLINE_PROGRAM").map(PathBuf::from);
    let compile = program.map_or(CompileMode::InProcess, CompileMode::Child);
    Some(KernelCompiler::new(family, bound?, found.version, None, compile))
}

/// Operations over memory.
const OPS: [KernelOp; 4] = [KernelOp::Read, KernelOp::Write, KernelOp::Copy, KernelOp::Triad];

fn variant(key: &str) -> KernelVariant {
    key.parse().unwrap_or_else(|e| panic!("{key}: {e}"))
}

/// Every value of every dimension at least once with every operation.
fn dimensions() -> Vec<KernelVariant> {
    let mut all =
        vec![KernelVariant::chase(), KernelVariant::compute(), variant("fma-w8-u4-b128-g2")];
    for op in OPS {
        for shape in ["w16-u4", "w16-u8-nt", "w8-u1-nt", "w4-u2-na-seg", "w8-u8-na", "w16-u8-na"] {
            all.push(variant(&format!("{op}-{shape}-b256-g2sm")));
        }
    }
    for op in [KernelOp::Read, KernelOp::Write, KernelOp::Copy] {
        for shape in ["bulk16k-s8", "bulk4k-s1-nt-seg", "bulk1k-s64"] {
            all.push(variant(&format!("{op}-{shape}-b64-g1sm")));
        }
    }
    all
}

/// Every shape that runs use or a search tries.
fn shapes(ops: &[KernelOp]) -> Vec<KernelVariant> {
    let keys = ops.iter().flat_map(|op| kernel::SHAPES.lines().map(move |s| format!("{op}-{s}")));
    // Bulk copies have no triads.
    keys.filter_map(|key| key.parse().ok()).collect()
}

/// The texts of variants on a target. Kernels that differ only in their grid share a text.
fn sources(target: &str, variants: &[KernelVariant]) -> BTreeSet<String> {
    let mine = variants.iter().filter(|v| kernel::unsupported(v, target).is_none());
    let own = [kernel::PATTERN, kernel::STORED, kernel::BLOCKS].map(str::to_owned);
    own.into_iter().chain(mine.map(kernel::source)).collect()
}

/// The kernels that runs use and a search tries, as far as a target supports them: all on the first
/// target with bulk copies; on the others one of each kind.
#[test]
fn every_kind_of_kernel_compiles_for_nvidia() {
    let Some(compiler) = compiler("cuda") else { return };
    let all = [dimensions(), shapes(&OPS)].concat();
    for (arch, variants) in [("sm_80", &dimensions()), ("sm_90", &all), ("sm_100", &dimensions())] {
        for source in &sources(arch, variants) {
            let code =
                compiler.code(source, arch).unwrap_or_else(|e| panic!("{arch}: {e}\n{source}"));
            let real = nearest_target(&compiler.bound, arch).unwrap().1;
            assert_eq!(code.starts_with(b"\x7fELF"), real, "{arch}");
        }
    }
    let error = compiler.code("not a kernel", "sm_90").unwrap_err();
    assert_eq!(error.code, 6, "{error}");
    assert!(error.reason.contains("error"), "{error}");
}

#[test]
fn every_kind_of_kernel_compiles_for_amd() {
    let Some(compiler) = compiler("hip") else { return };
    // Every shape that is searched, as a copy; the other operations in every dimension.
    let all = [dimensions(), shapes(&[KernelOp::Copy])].concat();
    for source in &sources("gfx90a", &all) {
        let code = compiler
            .code(source, "gfx90a:sramecc+:xnack-")
            .unwrap_or_else(|e| panic!("{e}\n{source}"));
        assert!(code_object(&code).is_some(), "{:?}", code.get(..24));
    }
    let error = compiler.code("not a kernel", "gfx90a").unwrap_err();
    assert_eq!(error.code, 6, "{error}");
    // An unknown architecture ends the process unless it is checked first.
    let error = compiler.code("", "gfx1").unwrap_err();
    assert!(error.reason.contains("does not know gfx1"), "{error}");
    assert!(compiler.code("", "").unwrap_err().reason.contains("does not report"));
}

#[test]
fn nvidias_code_has_the_instructions_of_a_key() {
    let Some(compiler) = compiler("cuda") else { return };
    // Kernel, instruction, and its minimum count. A tile has all its loads before its first store;
    // the remaining elements need one more.
    let promises = [
        ("copy-w16-u4-b256-g2sm", "ld.global.v4.u32", 5),
        ("copy-w16-u4-b256-g2sm", "st.global.v4.u32", 5),
        ("copy-w16-u8-nt-b256-g2sm", "ld.global.cs.v4.u32", 9),
        ("copy-w16-u8-nt-b256-g2sm", "st.global.cs.v4.u32", 9),
        ("copy-w8-u2-b256-gt", "ld.global.u64", 3),
        ("read-w16-u4-na-b256-gt", "ld.global.L1::no_allocate.L2::256B.v4.u32", 5),
        ("write-w16-u4-na-b256-gt", "st.global.L1::no_allocate.v4.u32", 5),
        ("triad-w16-u2-na-b256-gt", "ld.global.L1::no_allocate.L2::256B.v2.f64", 6),
        ("triad-w16-u2-b256-gt", "fma.rn.f64", 6),
        ("copy-bulk16k-s8-b32-g1sm", "cp.async.bulk.shared::cluster.global.mbarrier", 2),
        ("copy-bulk16k-s8-b32-g1sm", "cp.async.bulk.global.shared::cta.bulk_group", 1),
        ("copy-bulk16k-s8-b32-g1sm", "cp.async.bulk.wait_group.read 2", 1),
        ("read-bulk4k-s4-b32-g1sm", "mbarrier.try_wait.parity", 1),
        ("write-bulk4k-s4-nt-b32-g1sm", "bulk_group.L2::cache_hint", 1),
        ("write-bulk4k-s4-nt-b32-g1sm", "createpolicy.fractional.L2::evict_first", 1),
        ("chase-w8-u1-b1-g1", "ld.global.u64", 16),
        ("fma-w4-u8-b256-g4sm", "fma.rn.f32", 8),
        ("fma-w8-u4-b256-g4sm", "fma.rn.f64", 4),
    ];
    let absent = [
        ("copy-w16-u4-b256-g2sm", "ld.global.cs"),
        ("read-bulk4k-s4-b32-g1sm", "bulk_group"),
        ("copy-bulk16k-s8-b32-g1sm", "cache_hint"),
        ("fma-w4-u8-b256-g4sm", "ld.global"),
    ];
    // A target that no compiler knows gets PTX of the newest known one.
    let ptx = |key: &str| {
        let code = compiler.code(&kernel::source(&variant(key)), "sm_9999").unwrap();
        // Integer registers are u32 or, from NVRTC 13 on, b32.
        String::from_utf8(code).unwrap().replace(".b32", ".u32").replace(".b64", ".u64")
    };
    for (key, instruction, least) in promises {
        let text = ptx(key);
        let found = text.matches(instruction).count();
        assert!(found >= least, "{key}: {found} of {least} {instruction}\n{text}");
    }
    for (key, instruction) in absent {
        assert!(!ptx(key).contains(instruction), "{key}: {instruction}");
    }
    // No load of a chase checks the kind of its memory.
    let chase = ptx("chase-w8-u1-b1-g1");
    assert!(!chase.contains("ld.u64"), "{chase}");
}

#[test]
fn amds_code_has_the_instructions_of_a_key() {
    let Some(compiler) = compiler("hip") else { return };
    let Some(tool) = disassembler() else {
        missing("llvm-objdump", "Debian has it in the package llvm");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let listing = |key: &str| {
        let code = compiler.code(&kernel::source(&variant(key)), "gfx90a:sramecc+:xnack-").unwrap();
        let file = folder.path().join(key);
        std::fs::write(&file, code_object(&code).unwrap()).unwrap();
        let output = Command::new(tool).args(["-d", "--mcpu=gfx90a"]).arg(&file).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let lines = |text: &str, parts: &[&str]| {
        text.lines().filter(|l| parts.iter().all(|part| l.contains(part))).count()
    };
    let plain = listing("copy-w16-u4-b256-g2sm");
    assert!(lines(&plain, &["global_load_dwordx4"]) >= 5, "{plain}");
    assert!(lines(&plain, &["global_store_dwordx4"]) >= 5, "{plain}");
    assert_eq!(lines(&plain, &["global_", "glc slc"]), 0, "{plain}");
    let streaming = listing("copy-w16-u4-nt-b256-gt");
    assert!(lines(&streaming, &["global_load_dwordx4", "glc slc"]) >= 5, "{streaming}");
    assert!(lines(&streaming, &["global_store_dwordx4", "glc slc"]) >= 5, "{streaming}");
    let triad = listing("triad-w16-u2-b256-gt");
    assert!(lines(&triad, &["global_load_dwordx4"]) >= 4, "{triad}");
    assert!(lines(&triad, &["_fma"]) >= 4, "{triad}");
    let chase = listing("chase-w8-u1-b1-g1");
    assert!(lines(&chase, &["global_load_dwordx2"]) >= 16, "{chase}");
    assert_eq!(lines(&chase, &["flat_load"]), 0, "{chase}");
    let fma = listing("fma-w4-u8-b256-g4sm");
    assert!(lines(&fma, &["_fma"]) >= 4, "{fma}");
    assert_eq!(lines(&fma, &["global_load"]), 0, "{fma}");
}

fn disassembler() -> Option<&'static str> {
    let names =
        ["llvm-objdump", "llvm-objdump-14", "llvm-objdump-15", "/opt/rocm/llvm/bin/llvm-objdump"];
    names.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok())
}

/// The code object of a GPU: a bare one, or the largest of a clang offload bundle (a magic number,
/// a count, and for each entry its offset, length and name).
fn code_object(code: &[u8]) -> Option<&[u8]> {
    if code.starts_with(b"\x7fELF") {
        return Some(code);
    }
    let rest = code.strip_prefix(b"__CLANG_OFFLOAD_BUNDLE__")?;
    let number =
        |at: usize| Some(u64::from_le_bytes(rest.get(at..at + 8)?.try_into().ok()?) as usize);
    let mut at = 8;
    let mut largest: &[u8] = &[];
    for _ in 0..number(0)? {
        let (from, length, name) = (number(at)?, number(at + 8)?, number(at + 16)?);
        let object = code.get(from..from.checked_add(length)?)?;
        if object.len() > largest.len() {
            largest = object;
        }
        at += 24 + name;
    }
    largest.starts_with(b"\x7fELF").then_some(largest)
}

/// Tests that targets without bulk copies get none.
#[test]
fn bulk_copies_need_a_target_that_has_them() {
    let bulk = variant("copy-bulk16k-s8-b32-g1sm");
    assert!(matches!(bulk.access, AccessWidth::Bulk { .. }));
    assert!(kernel::unsupported(&bulk, "sm_80").is_some_and(|why| why.contains("sm_90")));
    assert!(kernel::unsupported(&bulk, "gfx90a:xnack-").is_some_and(|why| why.contains("NVIDIA")));
    for target in ["sm_90", "sm_90a", "sm_100", "sm_121"] {
        assert_eq!(kernel::unsupported(&bulk, target), None, "{target}");
    }
    let hint =
        KernelVariant { hint: CacheHint::NoAllocate, ..KernelVariant::standard(KernelOp::Read) };
    assert!(kernel::unsupported(&hint, "sm_75").is_some());
    assert!(kernel::unsupported(&hint, "gfx942").is_some());
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    writable(folder.path()).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let why = writable(&folder.path().join("none")).unwrap_err();
    assert!(why.contains("none cannot be written: No such file"), "{why}");
}
