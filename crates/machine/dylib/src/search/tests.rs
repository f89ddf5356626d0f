use std::os::unix::fs::PermissionsExt;

use super::*;

fn spec<'a>(names: LibraryNames<'a>, places: Vec<SearchPlace<'a>>) -> LibrarySpec<'a> {
    LibrarySpec {
        what: "a library (libx)",
        costs: "nothing works",
        way_out: "install it",
        names,
        places,
        ..LibrarySpec::default()
    }
}

fn write(folder: &Path, names: &[&str]) {
    std::fs::create_dir_all(folder).unwrap();
    for name in names {
        std::fs::write(folder.join(name), "").unwrap();
    }
}

fn names(spec: &LibrarySpec<'_>) -> Vec<String> {
    let name = |c: Candidate| c.path.file_name().unwrap().to_string_lossy().into_owned();
    spec.candidates().0.into_iter().map(name).collect()
}

fn anything(library: &SharedLibrary) -> Result<BoundLibrary<PathBuf>, String> {
    Ok(BoundLibrary { value: library.path.clone(), version: "2.5".into(), number: Some((2, 5)) })
}

const NUMBERED: LibraryNames<'_> =
    LibraryNames::Numbered { stem: "libx.so", linker: &["libx.so.7", "libx.so"] };

#[test]
fn places_are_tried_in_order_and_numbers_from_the_highest() {
    let root = tempfile::tempdir().unwrap();
    let (first, second) = (root.path().join("first"), root.path().join("second"));
    write(&first, &["libx.so.5", "libx.so.10.2", "libx.so", "libx.so.debug", "libxy.so.9"]);
    write(&second, &["libx.so.12"]);
    let places = vec![
        SearchPlace::Found(vec![first.clone()]),
        SearchPlace::Linker,
        SearchPlace::Roots(vec![root.path().into()], &["none", "second", "first"]),
    ];
    let mut spec = spec(NUMBERED, places);
    let bare = ["libx.so.7", "libx.so"];
    let of_first = ["libx.so.10.2", "libx.so.5", "libx.so"];
    assert_eq!(names(&spec), [&of_first[..], &bare, &["libx.so.12"]].concat());
    spec.newest_first = true;
    assert_eq!(names(&spec), [&["libx.so.12"], &of_first[..], &bare].concat());
    // A limit rules files out by their names and reports them; bare names are dropped.
    spec.max_major = Some(MaxMajor { major: 6, limit: "CUDA 6".into() });
    assert_eq!(names(&spec), ["libx.so.5", "libx.so", "libx.so"]);
    let (found, report) = find(&spec, anything);
    assert_eq!(found, None);
    let why: Vec<&str> = report.tried.iter().map(|t| t.why.as_str()).collect();
    assert_eq!(why[..2], ["newer than CUDA 6"; 2]);
    assert_eq!(why[2..4], ["no 64-bit shared object"; 2]);
    assert!(why[4].contains("No such file"), "{why:?}");
}

#[test]
fn what_is_asked_for_is_not_replaced() {
    let root = tempfile::tempdir().unwrap();
    let exact = LibraryNames::Exact(&["libx.so.2", "libx.so.1"]);
    let mut spec = spec(exact, vec![SearchPlace::Files(vec!["libm.so.6".into()])]);
    let (found, report) = find(&spec, anything);
    assert_eq!((found, report.version.as_str()), (report.path, "2.5"));
    spec.asked = Some(root.path());
    let (found, report) = find(&spec, anything);
    assert_eq!((found, report.tried.len()), (None, 1));
    assert_eq!(report.tried[0].place, root.path());
    assert_eq!(report.tried[0].why, "no libx.so.2, libx.so.1 in it");
    // Of another number, and in a folder below.
    write(root.path(), &["libx.so.3"]);
    assert_eq!(names(&spec), ["libx.so.3"]);
    write(&root.path().join("lib"), &["libx.so.1"]);
    spec.below_asked = &["lib", "lib64"];
    assert_eq!(names(&spec), ["libx.so.3", "libx.so.1"]);
    spec.asked = Some(Path::new("/nowhere/libx.so.2"));
    let why = &find(&spec, anything).1.tried[0].why;
    assert!(why.contains("No such file"), "{why}");
}

#[test]
fn versions_that_are_of_no_use_are_passed_over() {
    let mut spec = spec(
        LibraryNames::Exact(&["libm.so.6"]),
        vec![SearchPlace::LinkerPath, SearchPlace::Linker],
    );
    let why = |spec: &LibrarySpec<'_>| find(spec, anything).1.tried.pop().map(|t| t.why);
    for (least, expected) in [((2, 5), None), ((2, 6), Some("2.5 is older than 2.6".to_owned()))] {
        spec.min_version = Some(least);
        assert_eq!(why(&spec), expected);
    }
    spec.min_version = None;
    spec.max_major = Some(MaxMajor { major: 1, limit: "the driver's CUDA 1".into() });
    assert_eq!(why(&spec).as_deref(), Some("2.5 is newer than the driver's CUDA 1"));
    spec.max_major = Some(MaxMajor { major: 2, limit: "the driver's CUDA 2".into() });
    assert_eq!(why(&spec), None);
}

#[test]
fn a_folder_that_others_may_write_to_is_passed_over() {
    let root = tempfile::tempdir().unwrap();
    let libm = resolve("libm.so.6").unwrap();
    std::fs::copy(libm, root.path().join("libx.so.1")).unwrap();
    let exact = LibraryNames::Exact(&["libx.so.1"]);
    let mut spec = spec(exact, vec![SearchPlace::Found(vec![root.path().into()])]);
    let mode = |mode| {
        std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o1777);
    for asked in [None, Some(root.path())] {
        spec.asked = asked;
        let (found, report) = find(&spec, anything);
        assert!(
            found.is_none() && report.tried[0].why.contains("everybody may write"),
            "{report:?}"
        );
        let located = locate(&spec);
        assert_eq!((located.path, located.tried), (None, report.tried));
    }
    mode(0o755);
    let (found, report) = find(&spec, anything);
    assert_eq!(found.map(|_| report.path), Some(locate(&spec).path));
}

#[test]
fn only_an_installed_program_has_libraries_beside_it() {
    let prefix = |program: &str| prefix_of(Path::new(program));
    assert_eq!(prefix("/opt/pathline/bin/pathline"), Some("/opt/pathline".into()));
    assert_eq!(prefix("/scratch/shared/mine/pathline"), None);
    assert_eq!(prefix("/scratch/shared/mybin/pathline"), None);
    assert_eq!(prefix("pathline"), None);
}

/// SHARED/mine/pathline with a SHARED/lib that everybody may write to, and an installation in SHARED.
#[test]
fn files_of_the_installation_are_those_that_nobody_else_writes() {
    let root = tempfile::tempdir().unwrap();
    let lib = root.path().join("lib");
    for folder in ["lib", "mine", "bin"] {
        std::fs::create_dir(root.path().join(folder)).unwrap();
    }
    let name = "libx.so.1";
    std::fs::copy(resolve("libm.so.6").unwrap(), lib.join(name)).unwrap();
    let of = |folder: &str| locate_near(&root.path().join(folder).join("pathline"), name);
    assert_eq!((of("mine").path, of("bin").path), (None, Some(lib.join(name))));
    for (path, mode) in [(lib.clone(), 0o777), (lib.join(name), 0o666)] {
        let old = path.metadata().unwrap().permissions();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let report = of("bin");
        assert_eq!(report.path, None);
        assert!(report.tried[0].why.contains("everybody may write"), "{report:?}");
        std::fs::set_permissions(&path, old).unwrap();
    }
    std::fs::copy(lib.join(name), root.path().join("mine").join(name)).unwrap();
    assert_eq!(of("mine").path, Some(root.path().join("mine").join(name)));
}

#[test]
fn wheels_are_looked_for_in_environments() {
    let root = tempfile::tempdir().unwrap();
    let site = root.path().join("lib/python3.12/site-packages");
    std::fs::create_dir_all(site.join("nvidia/cu13/lib")).unwrap();
    let folders = wheel_folders(root.path(), &["nvidia/cu13/lib"]);
    assert_eq!(folders[0], root.path().join("lib"));
    assert!(folders.contains(&site.join("nvidia/cu13/lib")), "{folders:?}");
}

#[test]
fn the_number_of_a_library_is_read_from_its_name() {
    let of = |name: &str| major_of(Path::new(name), "libamdhip64.so");
    assert_eq!(of("/opt/rocm/lib/libamdhip64.so.6"), Some(6));
    assert_eq!(of("libamdhip64.so.5.2.21153"), Some(5));
    assert_eq!(of("libamdhip64.so.10"), Some(10));
    assert_eq!(of("libamdhip64.so"), None);
    assert_eq!(of("libhiprtc.so.6"), None);
}
