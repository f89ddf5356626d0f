//! Available memory: of a NUMA domain, of the machine, of each enclosing cgroup.

use std::path::{Path, PathBuf};

use crate::files;

/// A cgroup hierarchy that limits memory.
#[derive(Debug, PartialEq, Eq)]
struct CgroupTree {
    v2: bool,
    /// Mount point.
    mount: PathBuf,
    /// The cgroup of this process, relative to the mount.
    path: PathBuf,
}

/// Bytes available on `numa` now, or on the machine if the kernel does not distinguish domains.
/// `None` if unknown.
pub fn free(numa: u32) -> Option<u64> {
    let node = files::text(format!("/sys/devices/system/node/node{numa}/meminfo"))
        .and_then(|t| node_free(&t));
    [node, free_anywhere()].into_iter().flatten().min()
}

/// Bytes available on the machine now, on any domain. If a virtual machine grows on demand, this
/// includes its future memory, which belongs to no domain yet.
pub fn free_anywhere() -> Option<u64> {
    let all = files::text("/proc/meminfo").and_then(|t| {
        files::kilobytes(&t, "MemAvailable").or_else(|| files::kilobytes(&t, "MemFree"))
    });
    [all, cgroup_headroom()].into_iter().flatten().min()
}

/// A domain's meminfo has no MemAvailable: adds free pages and those with clean or soon clean file
/// contents.
fn node_free(text: &str) -> Option<u64> {
    let free = files::kilobytes(text, "MemFree")?;
    let cached =
        ["Inactive(file)", "SReclaimable"].iter().filter_map(|key| files::kilobytes(text, key));
    Some(cached.fold(free, u64::saturating_add))
}

fn cgroup_headroom() -> Option<u64> {
    let groups = files::text("/proc/self/cgroup")?;
    let mounts = files::text("/proc/self/mountinfo")?;
    hierarchies(&groups, &mounts).iter().filter_map(headroom).min()
}

/// Joins `/proc/self/cgroup` and `/proc/self/mountinfo`. A mount may contain only a part of the
/// hierarchy (`root`), as inside a container.
fn hierarchies(groups: &str, mounts: &str) -> Vec<CgroupTree> {
    let mut found = Vec::new();
    for mount in mounts.lines() {
        let Some((left, right)) = mount.split_once(" - ") else { continue };
        let left: Vec<&str> = left.split(' ').take(5).collect();
        let right: Vec<&str> = right.split(' ').take(3).collect();
        let (&[_, _, _, root, at], &[kind, _, options]) = (left.as_slice(), right.as_slice())
        else {
            continue;
        };
        let v2 = kind == "cgroup2";
        let v1 = kind == "cgroup" && options.split(',').any(|o| o == "memory");
        if !v1 && !v2 {
            continue;
        }
        let path = groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let (_, names, path) = (parts.next()?, parts.next()?, parts.next()?);
            let mine = if v2 { names.is_empty() } else { names.split(',').any(|n| n == "memory") };
            mine.then_some(path)
        });
        let Some(path) = path else { continue };
        let inside = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
        let inside = inside.strip_prefix("/").unwrap_or(inside);
        found.push(CgroupTree { v2, mount: at.into(), path: inside.into() });
    }
    found
}

/// Least headroom of any cgroup from this process's up to the mount. Unused pages of files count
/// against a limit but are reclaimed first.
fn headroom(hierarchy: &CgroupTree) -> Option<u64> {
    let (limit, usage, cached) = if hierarchy.v2 {
        ("memory.max", "memory.current", "inactive_file ")
    } else {
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ")
    };
    let groups = hierarchy.path.ancestors();
    let left = groups.filter_map(|group| {
        let group = hierarchy.mount.join(group);
        let limit = files::number(group.join(limit))?;
        let used = files::number(group.join(usage))?;
        let stat = files::text(group.join("memory.stat")).unwrap_or_default();
        let cached =
            stat.lines().find_map(|l| l.strip_prefix(cached)?.trim().parse().ok()).unwrap_or(0);
        Some(limit.saturating_sub(used.saturating_sub(cached)))
    });
    left.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nested_v2_group_is_as_tight_as_its_tightest_ancestor() {
        let dir = tempfile::tempdir().unwrap();
        let write = |group: &str, name: &str, text: &str| {
            let group = dir.path().join(group);
            std::fs::create_dir_all(&group).unwrap();
            std::fs::write(group.join(name), text).unwrap();
        };
        // Inner: no limit. Outer: 1000 - (700 - 100 reclaimable) = 400.
        write("outer", "memory.max", "1000\n");
        write("outer", "memory.current", "700\n");
        write("outer", "memory.stat", "anon 600\ninactive_file 100\n");
        write("outer/inner", "memory.max", "max\n");
        write("outer/inner", "memory.current", "50\n");
        let hierarchy =
            CgroupTree { v2: true, mount: dir.path().into(), path: "outer/inner".into() };
        assert_eq!(headroom(&hierarchy), Some(400));
    }

    #[test]
    fn v1_and_v2_mounts_are_found_and_paths_are_taken_relative_to_what_is_mounted() {
        let groups = "4:memory:/docker/abc/sub\n1:cpu:/\n0::/init.scope\n";
        let mounts = "30 1 0:26 /docker/abc /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n\
                      31 1 0:27 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n\
                      32 1 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      garbage\n";
        let expected = vec![
            CgroupTree { v2: false, mount: "/sys/fs/cgroup/memory".into(), path: "sub".into() },
            CgroupTree {
                v2: true,
                mount: "/sys/fs/cgroup/unified".into(),
                path: "init.scope".into(),
            },
        ];
        assert_eq!(hierarchies(groups, mounts), expected);
    }

    #[test]
    fn something_is_known_of_this_machine() {
        assert!(free(0).unwrap() > 0);
    }
}
