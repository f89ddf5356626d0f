//! Directories given as snapshots that are none, or mean harm: what is read stays inside, and
//! ends.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use pathline_topo::{HostSnapshot, from_path, from_snapshot, validate};
use tempfile::TempDir;

/// A saved snapshot to spoil.
fn tree() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    crate::common::h200().save_dir(&tree).unwrap();
    (dir, tree)
}

fn put(tree: &Path, path: &str, text: &str) {
    let path = tree.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn bytes(snapshot: &HostSnapshot) -> usize {
    snapshot.iter().map(|(path, text)| path.len() + text.len()).sum()
}

#[test]
fn pipes_and_devices_are_no_files() {
    let (_dir, tree) = tree();
    for path in ["proc/meminfo", "proc/cpuinfo", "sys/block/nvme0n1/size", "sys/block/p.target"] {
        let path = tree.join(path);
        let _ = fs::remove_file(&path);
        let made = Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
    }
    let _ = fs::remove_file(tree.join("sys/devices/system/node/node0/meminfo"));
    symlink("/dev/zero", tree.join("sys/devices/system/node/node0/meminfo")).unwrap();
    let topology = from_path(&tree).unwrap();
    assert_eq!(topology.gpus.len(), 8);
    assert!(topology.blocks.is_empty());
}

#[test]
fn links_out_of_the_tree_are_not_followed() {
    let (dir, tree) = tree();
    put(dir.path(), "secret/hostname", "secret\n");
    put(dir.path(), "secret/eth9/speed", "1000\n");
    let out = |from: &str, to: &Path| {
        let from = tree.join(from);
        let _ = fs::remove_file(&from);
        fs::create_dir_all(from.parent().unwrap()).unwrap();
        symlink(to, from).unwrap();
    };
    let secret = dir.path().join("secret");
    out("proc/sys/kernel/hostname", &secret.join("hostname"));
    out("proc/sys/kernel/osrelease", Path::new("../../../../secret/hostname"));
    out("sys/class/nvme", &secret);
    out("sys/class/infiniband/evil", &secret.join("eth9"));
    fs::remove_dir_all(tree.join("sys/class/net")).unwrap();
    out("sys/class/net", Path::new("/sys/class/net"));
    let snapshot = HostSnapshot::collect(&tree);
    assert!(snapshot.iter().all(|(_, text)| !text.contains("secret\n") && text != "1000\n"));
    assert!(!snapshot.iter().any(|(path, _)| path.starts_with("sys/class/net/")));
    // A link inside the tree is followed, from wherever the tree is reached.
    put(&tree, "elsewhere", "inside\n");
    out("proc/sys/kernel/hostname", Path::new("../../../elsewhere"));
    let other = dir.path().join("other");
    symlink(&tree, &other).unwrap();
    assert_eq!(HostSnapshot::collect(&other).get("proc/sys/kernel/hostname"), Some("inside\n"));
}

#[test]
fn circles_end() {
    let (_dir, tree) = tree();
    symlink(".", tree.join("sys/class/drm")).unwrap();
    symlink("loop", tree.join("sys/class/loop")).unwrap();
    for cpu in 0..50 {
        let cpu = tree.join(format!("sys/devices/system/cpu/cpu90{cpu:02}"));
        symlink("..", cpu).unwrap();
    }
    symlink("../..", tree.join("sys/devices/system/cpu/cache")).unwrap();
    let topology = from_path(&tree).unwrap();
    assert_eq!(topology.gpus.len(), 8);
}

/// 100000 names in one directory, and a directory of 2000 that 2000 links show again: 4 million
/// places, of which 200000 are looked at.
#[test]
fn many_entries() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path();
    let pci = tree.join("sys/bus/pci/devices");
    fs::create_dir_all(&pci).unwrap();
    for n in 0..100_000u32 {
        File::create(pci.join(format!("{:04x}:{:02x}:00.0", n >> 8, n & 255))).unwrap();
    }
    let real = tree.join("sys/devices/system/cpu/cpu0/cache");
    for n in 0..2000 {
        fs::create_dir_all(real.join(format!("index{n}"))).unwrap();
        fs::write(real.join(format!("index{n}/level")), "3\n").unwrap();
        symlink("cpu0", tree.join(format!("sys/devices/system/cpu/cpu{}", n + 1))).unwrap();
    }
    let snapshot = HostSnapshot::collect(tree);
    assert!(snapshot.len() <= 200_000, "{} files", snapshot.len());
    assert_eq!(validate("t", &from_snapshot("t", &snapshot)), Ok(()));
}

/// A file of 10 GiB that takes no space, wherever a small one is read.
#[test]
fn large_files_are_left_out() {
    let (_dir, tree) = tree();
    for path in ["proc/meminfo", "proc/cpuinfo", "sys/block/nvme0n1/size"] {
        File::create(tree.join(path)).unwrap().set_len(10 << 30).unwrap();
    }
    // One such file under many names: it counts as often as it is read.
    let big = File::create(tree.join("big")).unwrap();
    big.set_len(10 << 30).unwrap();
    for n in 0..1000 {
        let dir = tree.join(format!("sys/class/net/x{n}"));
        fs::create_dir_all(&dir).unwrap();
        symlink("../../../../big", dir.join("speed")).unwrap();
    }
    let snapshot = HostSnapshot::collect(&tree);
    assert_eq!(snapshot.get("proc/meminfo"), None);
    assert!(bytes(&snapshot) < 20 << 20, "{} bytes", bytes(&snapshot));
    assert_eq!(from_path(&tree).unwrap().gpus.len(), 8);
}

#[test]
fn odd_names_and_closed_files() {
    let (_dir, tree) = tree();
    let net = tree.join("sys/class/net");
    for name in [&b"new\nline"[..], b"not\xffutf8", b"back\\slash", b".target", b"...", b" "] {
        let dir = net.join(OsStr::from_bytes(name));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("speed"), "1000\n").unwrap();
    }
    symlink(OsStr::from_bytes(b"0000:00:\n\xff"), net.join("odd")).unwrap();
    let closed = tree.join("proc/meminfo");
    fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
    let snapshot = HostSnapshot::collect(&tree);
    assert!(snapshot.iter().all(|(path, _)| !path.contains(['\n', '\\', '\u{fffd}'])));
    let topology = from_path(&tree).unwrap();
    assert_eq!(topology.gpus.len(), 8);
    // What was read can be saved and is the same again.
    let again = tempfile::tempdir().unwrap();
    snapshot.save_dir(again.path()).unwrap();
    assert_eq!(HostSnapshot::collect(again.path()), snapshot);
}

/// Control groups are followed by a path that the tree states.
#[test]
fn deep_paths() {
    let (_dir, tree) = tree();
    put(&tree, "proc/self/cgroup", &format!("0::{}\n", "/a".repeat(20_000)).repeat(1000));
    let deep = "sys/fs/cgroup".to_owned() + &"/a".repeat(300);
    put(&tree, &format!("{deep}/memory.max"), "4096\n");
    put(&tree, "sys/fs/cgroup/memory.max", "max\n");
    assert_eq!(from_path(&tree).unwrap().gpus.len(), 8);
}

/// The machine that runs this, whatever it is.
#[test]
fn a_live_host_is_small() {
    let snapshot = HostSnapshot::collect(Path::new("/"));
    assert!(bytes(&snapshot) < 8 << 20, "{} bytes", bytes(&snapshot));
    assert!(!snapshot.iter().any(|(path, text)| path.contains("nvidia") && text.contains("UUID")));
}
