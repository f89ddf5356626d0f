//! The kernel that copies blocks, run on the CPU.

use std::path::Path;
use std::process::Command;

use pathline_stub::need::missing;

#[test]
fn the_kernel_that_copies_blocks_moves_every_byte() {
    let Ok(_) = Command::new("c++").arg("--version").output() else {
        return missing("c++", "no C++ compiler can be started");
    };
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("blocks");
    let compiled = Command::new("c++")
        .args(["-O1", "-std=c++17", "-w", "-o"])
        .arg(&program)
        .arg(crates.join("src/compiler/tests/blocks.cpp"))
        .arg("-I")
        .arg(crates.join("../hal/src/kernels"))
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&program).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "equal\n");
}
