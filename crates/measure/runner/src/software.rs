//! Versions of the libraries that carry data, for a snapshot. None is opened in this process.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use pathline_dylib::{
    LibraryNames, LibraryReport, LibrarySpec, SearchPlace, locate, open_plain, starting_with,
    text_with_prefix,
};
use pathline_topo::HostSnapshot;
use pathline_transport::collectives_libraries;

use crate::choice::LibraryChoice;
use crate::probe::{LibraryProbe, ProbeLimits, ask};

/// Names of MPI libraries, as their version texts have them.
const MPI: [(&str, &str); 3] =
    [("Open MPI", "Open MPI"), ("CRAY MPICH", "Cray MPICH"), ("MPICH", "MPICH")];

/// Asks MPI and UCX for their versions, in children, and adds what is found of all libraries.
pub fn ask_versions(snapshot: &mut HostSnapshot, libraries: &LibraryChoice, limits: ProbeLimits) {
    let one = |probe| ask::<LibraryReport>(probe, libraries, limits);
    let reports = thread::scope(|scope| {
        let mpi = thread::Builder::new().spawn_scoped(scope, || one(LibraryProbe::Mpi));
        let ucx = one(LibraryProbe::Ucx);
        let mpi = mpi.ok().and_then(|thread| thread.join().ok());
        [mpi.and_then(Result::ok), ucx.ok()]
    });
    add_versions(snapshot, reports.iter().flatten());
}

/// Adds versions: of MPI and UCX from their reports, of other libraries from their files.
pub fn add_versions<'r>(
    snapshot: &mut HostSnapshot,
    reports: impl IntoIterator<Item = &'r LibraryReport>,
) {
    let mut found: Vec<(&str, String, PathBuf)> = Vec::new();
    for report in reports {
        let Some(path) = report.path.clone() else { continue };
        let mpi = MPI.iter().find(|(text, _)| report.version.contains(text));
        let name = mpi.map(|(_, name)| *name).or((report.what == "UCX").then_some("UCX"));
        found.extend(name.map(|name| (name, report.version.clone(), path)));
    }
    for report in collectives_libraries(None) {
        let Some(path) = report.path else { continue };
        let name = if report.what.starts_with("RCCL") { "RCCL" } else { "NCCL" };
        // The number of librccl's file is not that of the library.
        let by_name = if name == "NCCL" { number_of_file(&path) } else { None };
        let version = by_name.or_else(|| text_with_prefix(&path, &format!("{name} version ")));
        found.push((name, version.unwrap_or_default(), path));
    }
    if let Some(path) = locate(&libfabric()).path {
        found.push(("libfabric", version_of_libfabric(&path).unwrap_or_default(), path));
    }
    // Other plugins of NCCL have the same name.
    if let Some(path) = locate(&network_plugin()).path
        && let Some(version) = text_with_prefix(&path, "aws-ofi-nccl ")
    {
        found.push(("aws-ofi-nccl", version, path));
    }
    let plain = |text: &str| text.replace(['\t', '\n', '\r'], " ");
    let line = |(name, version, path): &(&str, String, PathBuf)| {
        let number = version.find(|c: char| c.is_ascii_digit()).and_then(|at| version.get(at..));
        let number = number.and_then(|text| text.split([' ', ',', '\t', '\n']).next());
        let path = plain(&path.display().to_string());
        format!("{name}\t{}\t{path}\n", number.unwrap_or_default())
    };
    let lines: String = found.iter().map(line).collect();
    if !lines.is_empty() {
        snapshot.insert(HostSnapshot::VERSIONS, lines);
    }
}

/// `2.18.3` of `libnccl.so.2.18.3`, to which the usual name is a link.
fn number_of_file(path: &Path) -> Option<String> {
    let real = fs::canonicalize(path).ok()?;
    let (_, number) = real.file_name()?.to_str()?.split_once(".so.")?;
    number.contains('.').then(|| number.to_owned())
}

/// By the file for compilers in its folder, or by a folder that is named after it.
fn version_of_libfabric(path: &Path) -> Option<String> {
    let folder = path.parent()?;
    let mut text = String::new();
    let file = open_plain(&folder.join("pkgconfig/libfabric.pc"), false, 0).ok();
    let read = file.map(|file| {
        let mut file = std::io::Read::take(file, 1 << 16);
        std::io::Read::read_to_string(&mut file, &mut text)
    });
    let known = text.lines().find_map(|line| line.strip_prefix("Version:"));
    if let (Some(Ok(_)), Some(version)) = (read, known) {
        return Some(version.trim().to_owned());
    }
    let is_version =
        |name: &&str| name.starts_with(|c: char| c.is_ascii_digit()) && name.contains('.');
    folder.iter().rev().filter_map(|part| part.to_str()).find(is_version).map(str::to_owned)
}

fn libfabric() -> LibrarySpec<'static> {
    LibrarySpec {
        what: "libfabric",
        names: LibraryNames::Exact(&["libfabric.so.1"]),
        places: vec![
            SearchPlace::LinkerPath,
            SearchPlace::Linker,
            SearchPlace::Folders(&["/opt/amazon/efa/lib64", "/opt/amazon/efa/lib"]),
            SearchPlace::Roots(starting_with(Path::new("/opt/cray/libfabric"), ""), &["lib64"]),
        ],
        ..LibrarySpec::default()
    }
}

fn network_plugin() -> LibrarySpec<'static> {
    LibrarySpec {
        what: "network plugin of NCCL",
        names: LibraryNames::Exact(&["libnccl-net-ofi.so", "libnccl-net.so"]),
        places: vec![
            SearchPlace::LinkerPath,
            SearchPlace::Linker,
            SearchPlace::Roots(
                vec!["/opt/amazon/ofi-nccl".into(), "/opt/amazon/aws-ofi-nccl".into()],
                &["lib", "lib64", "lib/x86_64-linux-gnu"],
            ),
        ],
        ..LibrarySpec::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_files_and_reports() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("libnccl.so.2.18.3"), "").unwrap();
        std::os::unix::fs::symlink(at("libnccl.so.2.18.3"), at("libnccl.so.2")).unwrap();
        assert_eq!(number_of_file(&at("libnccl.so.2")).as_deref(), Some("2.18.3"));
        fs::write(at("libnccl.so.2"), "").unwrap();
        fs::create_dir_all(at("1.22.0/lib64/pkgconfig")).unwrap();
        let library = at("1.22.0/lib64/libfabric.so.1");
        assert_eq!(version_of_libfabric(&library).as_deref(), Some("1.22.0"));
        fs::write(at("1.22.0/lib64/pkgconfig/libfabric.pc"), "Name: x\nVersion: 2.1.0\n").unwrap();
        assert_eq!(version_of_libfabric(&library).as_deref(), Some("2.1.0"));
        let report = |what: &'static str, version: &str| LibraryReport {
            what: what.into(),
            version: version.into(),
            path: Some("/x\ty".into()),
            ..LibraryReport::default()
        };
        let mut snapshot = HostSnapshot::default();
        let mpi = report("MPI", "CRAY MPICH version 8.1.28 (ANL base 3.4a2)");
        add_versions(&mut snapshot, &[mpi, report("UCX", ""), report("libibverbs", "1 device")]);
        let text = snapshot.get(HostSnapshot::VERSIONS).unwrap();
        let expected = "Cray MPICH\t8.1.28\t/x y\nUCX\t\t/x y\n";
        assert!(text.starts_with(expected), "{text}");
    }
}
