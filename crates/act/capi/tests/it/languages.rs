//! The header as a C compiler reads it, and the Python package.

use std::fs;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

use pathline::abi::{pl_counters, pl_options, pl_place};
use pathline_stub::need::missing;
use pathline_stub::{StubLibraries, VARIABLE, built, lay_out};

/// The folder of the workspace.
fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Whether a program of this machine can be started.
fn starts(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Prints sizes and offsets, then what a bad call returns.
const PROGRAM: &str = r#"
#include <pathline.h>
#include <stdio.h>

int main(void)
{
    pl_options options = {0};
    pl_node *node = 0;
    printf("%zu %zu %zu %zu %zu %zu %zu %zu ", sizeof options, offsetof(pl_options, helper_count),
           offsetof(pl_options, threshold), offsetof(pl_options, staging),
           offsetof(pl_options, min_gain), offsetof(pl_options, library),
           offsetof(pl_options, twin), offsetof(pl_options, shared_helpers));
    printf("%zu %zu ", offsetof(pl_options, copy_threads), offsetof(pl_options, max_multiprocessors));
    printf("%zu %zu ", sizeof(pl_counters), offsetof(pl_counters, refused_blocks));
    printf("%zu %zu ", sizeof(pl_place), sizeof(pl_status));
    options.size = 1;
    printf("%d %d ", pl_open(&options, &node) == PL_INVALID, node == 0);
    printf("%d %d ", pl_copy(node, node, node, 1), pl_copy_async(node, node, node, 1, 0));
    printf("%d ", pl_copy_batch_async(node, 0, 0, 0, 1, 0));
    printf("%d ", pl_copy_to_all(node, 1, 0, 0, 0, 1, 0));
    printf("%d %d %d ", pl_host_alloc(node, 1, (pl_place){0}, 0), pl_host_attach(node, 0, 1, 0),
           pl_host_free(node, 0));
    printf("%d ", pl_explain(node, node, node, 1, 0, 0));
    printf("%d\n", pl_stats(node, 0));
    puts(pl_last_error());
    pl_close(node);
    return 0;
}
"#;

#[test]
fn the_header_is_what_the_library_has() {
    if !starts("cc") {
        return missing("cc", "no C compiler can be started");
    }
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("header.c"), folder.path().join("header"));
    fs::write(&source, PROGRAM).unwrap();
    let library = built("pathline").unwrap();
    let compiled = Command::new("cc")
        .args(["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&program, &source, &library])
        .arg("-I")
        .arg(workspace().join("crates/act/capi/include"))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output =
        Command::new(&program).env("LD_LIBRARY_PATH", library.parent().unwrap()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = [
        size_of::<pl_options>(),
        offset_of!(pl_options, helper_count),
        offset_of!(pl_options, threshold),
        offset_of!(pl_options, staging),
        offset_of!(pl_options, min_gain),
        offset_of!(pl_options, library),
        offset_of!(pl_options, twin),
        offset_of!(pl_options, shared_helpers),
        offset_of!(pl_options, copy_threads),
        offset_of!(pl_options, max_multiprocessors),
        size_of::<pl_counters>(),
        offset_of!(pl_counters, refused_blocks),
        size_of::<pl_place>(),
        size_of::<pathline::CopyStatus>(),
    ];
    let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
    // Two comparisons that hold, and PL_INVALID nine times.
    let expected = format!("{} 1 1 1 1 1 1 1 1 1 1 1\n", expected.join(" "));
    assert!(text.starts_with(&expected), "{text}{expected}");
    assert!(text.ends_with("the place of the counters is null or misaligned\n"), "{text}");
}

#[test]
fn the_python_package_copies() {
    if !starts("python3") {
        return missing("python", "no python3 can be started");
    }
    let folder = tempfile::tempdir().unwrap();
    lay_out(folder.path(), &[StubLibraries::Cuda], &[]).unwrap();
    // Built where tests of the whole workspace run; without it one test is left out.
    let program = std::env::current_exe().unwrap().with_file_name("../pathline");
    let output = Command::new("python3")
        .arg(workspace().join("python/test_pathline.py"))
        .env("LD_LIBRARY_PATH", folder.path())
        .env("PATHLINE_CUDA", folder.path())
        .env("PATHLINE_LIBRARY", built("pathline").unwrap())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env(VARIABLE, "gpus=2,memory=1GiB")
        .envs(program.is_file().then_some(("PATHLINE_PROGRAM", &program)))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("Ran 12 tests"), "{text}");
}

/// The package as a wheel installs it: the library is next to its modules.
#[test]
fn the_installed_python_package_finds_its_library() {
    if !starts("python3") {
        return missing("python", "no python3 can be started");
    }
    let folder = tempfile::tempdir().unwrap();
    lay_out(folder.path(), &[StubLibraries::Cuda], &[]).unwrap();
    let package = folder.path().join("pathline");
    fs::create_dir(&package).unwrap();
    for module in ["__init__.py", "_library.py", "_runs.py", "_safetensors.py"] {
        let source = workspace().join("python/pathline").join(module);
        fs::copy(source, package.join(module)).unwrap();
    }
    let library = package.join("libpathline.so");
    fs::copy(built("pathline").unwrap(), &library).unwrap();
    let program = "import pathline\nprint(pathline.library_path())\n\
                   print(pathline.Node().counters()['plain'])\n\
                   try:\n  pathline.Node(twin='/nowhere/here.toml')\n\
                   except pathline.Error as error:\n  print(error.status, error)\n";
    let output = Command::new("python3")
        .args(["-c", program])
        .env_remove("PATHLINE_LIBRARY")
        .env("PYTHONPATH", folder.path())
        .env("LD_LIBRARY_PATH", folder.path())
        .env("PATHLINE_CUDA", folder.path())
        .env(VARIABLE, "gpus=2,memory=1GiB")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let refused = "1 twin /nowhere/here.toml: No such file or directory (os error 2)";
    assert_eq!(
        text.lines().collect::<Vec<_>>(),
        [library.to_str().unwrap(), "0", refused],
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
