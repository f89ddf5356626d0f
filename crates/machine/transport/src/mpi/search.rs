//! Finds MPI libraries, selects one that this process's launcher supports, and loads its
//! prerequisites.

use std::path::{Path, PathBuf};

use pathline_dylib::{
    BoundLibrary, LibraryNames, LibraryReport, LibrarySpec, SearchPlace, SharedLibrary, TriedPlace,
    find, path_list, starting_with,
};

use super::abi::{MpiAbi, MpiFamily, known_as, version_text};
use super::collective_components::ucc_note_of;
use super::launcher::LaunchedRank;

/// A file or folder that replaces the search.
pub(super) const ASKED: &str = "PATHLINE_MPI";

/// Whether Cray MPICH supports GPU addresses: 1 or 0.
pub(super) const GPU_SWITCH: &str = "MPICH_GPU_SUPPORT_ENABLED";

/// A library that can be initialised.
pub(super) struct MpiCandidate {
    pub(super) library: SharedLibrary,
    pub(super) abi: MpiAbi,
    pub(super) family: MpiFamily,
    /// Name and version from its version text.
    pub(super) version: String,
}

/// Names with their interface version: the bare `libmpi.so` comes with headers only and points to
/// the system's current alternative.
const MPICH: &[&str] = &["libmpi.so.12", "libmpich.so.12", "libmpi_cray.so.12"];
const OPEN_MPI: &[&str] = &["libmpi.so.40"];
const STANDARD: &[&str] = &["libmpi_abi.so.1", "libmpi_abi.so.0"];

/// The launch and environment of this process.
pub(super) struct ProcessPlace<'a> {
    pub(super) launched: Option<&'a LaunchedRank>,
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
}

impl ProcessPlace<'_> {
    /// Whether PMIx, which Open MPI needs, is set up for this process.
    fn has_pmix(&self) -> bool {
        (self.env)("PMIX_RANK").is_some() || (self.env)("OMPI_COMM_WORLD_RANK").is_some()
    }
    fn has_pmi(&self) -> bool {
        ["PMI_FD", "PMI_PORT", "PMI_RANK"].iter().any(|name| (self.env)(name).is_some())
    }
    fn by(&self) -> &'static str {
        self.launched.map_or("nobody", |l| l.by)
    }

    /// Library names, likely matches first.
    fn names(&self) -> Vec<&'static str> {
        let order = match self.by() {
            "Open MPI" | "PMIx" => [OPEN_MPI, STANDARD, MPICH],
            "Hydra" | "PALS" | "PMI" => [MPICH, STANDARD, OPEN_MPI],
            _ => [STANDARD, OPEN_MPI, MPICH],
        };
        order.concat()
    }

    /// Why a library would not find its peers in this launch. Checked before initialisation: Open
    /// MPI without PMIx starts a world of one in each process, and MPICH with PMIx alone ends the
    /// process.
    fn misfit(&self, candidate: &MpiCandidate) -> Option<String> {
        let by = self.by();
        let lone = match candidate.family {
            MpiFamily::OpenMpi => {
                matches!(by, "Hydra" | "PALS" | "PMI" | "Slurm") && !self.has_pmix()
            }
            MpiFamily::Mpich => {
                let speaks_pmix = candidate.library.symbol("PMIx_Init").is_some();
                let speaks = self.has_pmi() || (speaks_pmix && self.has_pmix());
                matches!(by, "Open MPI" | "PMIx" | "Slurm") && !speaks
            }
        };
        lone.then(|| {
            let MpiCandidate { version, .. } = candidate;
            let mpirun = sibling_program(&candidate.library.path, "mpirun").map_or_else(
                || format!("the mpirun of {version}"),
                |mpirun| mpirun.display().to_string(),
            );
            let how = match (by, candidate.family) {
                ("Slurm", MpiFamily::OpenMpi) => format!("srun --mpi=pmix, or {mpirun}"),
                ("Slurm", MpiFamily::Mpich) => format!("srun --mpi=pmi2, or {mpirun}"),
                _ => mpirun,
            };
            format!("{version} cannot be launched by {by} like this; start with {how}")
        })
    }

    /// All search places, likely ones first.
    fn places(&self, names: &[&str]) -> Vec<SearchPlace<'static>> {
        // Cray's names include the compiler: libmpi_gnu_123.so.12.
        let mut cray = starting_with(Path::new("/opt/cray/pe/lib64"), "libmpi_");
        cray.retain(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(".so.12") && !name.contains("gtl")
        });
        vec![
            SearchPlace::Files(loaded()),
            SearchPlace::Roots(prefixes(), &IN_PREFIX),
            SearchPlace::Files(names.iter().map(PathBuf::from).collect()),
            SearchPlace::Files(cray),
            SearchPlace::Files(vec!["libmpi.so".into()]),
        ]
    }

    fn candidate(&self, library: &SharedLibrary) -> Result<BoundLibrary<MpiCandidate>, String> {
        let abi = MpiAbi::of(library).ok_or("it has no MPI_Init_thread: no MPI library")?;
        if library.path.to_string_lossy().contains("ilp64") {
            return Err("its integers have 64 bits, which is another interface".to_owned());
        }
        let text = version_text(library).ok_or("it has no version text")?;
        let (version, family) = known_as(&text);
        let shown = format!("{version} ({abi})");
        let candidate = MpiCandidate { library: library.clone(), abi, family, version };
        match self.misfit(&candidate) {
            Some(why) => Err(why),
            None => Ok(BoundLibrary { value: candidate, version: shown, number: None }),
        }
    }

    /// Searches for a usable library: only at `asked` if given, else everywhere.
    pub(super) fn find(&self, asked: Option<&Path>) -> (Option<MpiCandidate>, LibraryReport) {
        let by_variable = (self.env)(ASKED).filter(|text| !text.is_empty()).map(PathBuf::from);
        let (names, preloaded) = (self.names(), self.preload());
        let spec = LibrarySpec {
            what: "MPI",
            costs: "messages and collectives by MPI are not measured",
            way_out: "load its module, name the file or folder in PATHLINE_MPI, or put its mpirun \
                      on PATH",
            names: LibraryNames::Exact(&names),
            asked: asked.or(by_variable.as_deref()),
            below_asked: &IN_PREFIX,
            places: self.places(&names),
            ..LibrarySpec::default()
        };
        match preloaded {
            Ok(()) => find(&spec, |library| self.candidate(library)),
            Err(why) => {
                let tried = TriedPlace { place: "libmpi_gtl".into(), why };
                (None, spec.report(None, vec![tried]))
            }
        }
    }

    /// With GPU support requested, Cray MPICH ends the process in `MPI_Init` unless its transport
    /// layer is already loaded.
    fn preload(&self) -> Result<(), String> {
        let wanted = (self.env)(GPU_SWITCH).is_some_and(|text| text.trim() == "1");
        if !wanted {
            return Ok(());
        }
        let names = ["libmpi_gtl_hsa.so", "libmpi_gtl_cuda.so"];
        let places = ["", "/opt/cray/pe/lib64"];
        let all = places.iter().flat_map(|p| names.iter().map(|name| Path::new(p).join(name)));
        let mut why = Vec::new();
        for place in all {
            match SharedLibrary::open_for_all(&place) {
                Ok(_) => return Ok(()),
                Err(reason) => why.push(format!("{}: {reason}", place.display())),
            }
        }
        Err(format!(
            "{GPU_SWITCH}=1 asks for Cray's layer for GPUs, which does not open ({}); load its \
             module or set {GPU_SWITCH}=0",
            why.join("; ")
        ))
    }
}

/// Library folders of an installation prefix.
const IN_PREFIX: [&str; 3] = ["lib", "lib64", "lib/release"];

/// Installation prefixes of the launchers among this process's ancestors, then of the `mpirun` in
/// `PATH`.
fn prefixes() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut process = std::process::id().to_string();
    // A shell or a wrapper may stand between this process and its launcher.
    for _ in 0..8 {
        let Some(parent) = parent_of(&process) else { break };
        if let Ok(program) = std::fs::read_link(format!("/proc/{parent}/exe"))
            && is_launcher(&program)
        {
            found.extend(program.parent().and_then(Path::parent).map(Path::to_owned));
        }
        process = parent;
    }
    for folder in path_list("PATH") {
        if let Ok(program) = folder.join("mpirun").canonicalize() {
            found.extend(program.parent().and_then(Path::parent).map(Path::to_owned));
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    found.retain(|prefix| seen.insert(prefix.clone()));
    found
}

fn is_launcher(program: &Path) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    ["mpirun", "mpiexec", "hydra", "orte", "prte"].iter().any(|start| name.starts_with(start))
}

/// The parent of a process, from its `stat`: state and parent follow the name in brackets.
fn parent_of(process: &str) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1).filter(|&p| p != "0").map(str::to_owned)
}

/// MPI libraries already loaded in this process.
fn loaded() -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut found: Vec<PathBuf> = maps
        .lines()
        .filter_map(|line| line.find('/').and_then(|at| line.get(at..)))
        .map(PathBuf::from)
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            ["libmpi.so", "libmpich.so", "libmpi_abi.so"].iter().any(|n| name.starts_with(n))
        })
        .collect();
    found.dedup();
    found
}

/// A program of the same installation as a library.
pub(super) fn sibling_program(library: &Path, program: &str) -> Option<PathBuf> {
    // The root of the file system is no prefix.
    let prefixes = library.ancestors().skip(2).take(3).filter(|p| p.parent().is_some());
    prefixes.map(|p| p.join("bin").join(program)).find(|p| p.exists())
}

/// The MPI library that a run would use, and programs that may launch processes with it: of its
/// installation, then of `PATH`, which may belong to another MPI. `None` without a library.
pub fn mpi_launchers() -> Option<(PathBuf, Vec<PathBuf>)> {
    let env = |name: &str| std::env::var(name).ok();
    let launched = super::launched(&env);
    let candidate = ProcessPlace { launched: launched.as_ref(), env: &env }.find(None).0?;
    let library = candidate.library.path;
    // Debian installs several MPIs under one prefix, with different suffixes.
    let names = match candidate.family {
        MpiFamily::OpenMpi => ["mpirun.openmpi", "mpirun", "mpiexec"],
        MpiFamily::Mpich => ["mpirun.mpich", "mpirun", "mpiexec"],
    };
    let siblings = names.iter().filter_map(|name| sibling_program(&library, name));
    let on_path = path_list("PATH").into_iter().flat_map(|f| names.map(|name| f.join(name)));
    let mut seen = std::collections::BTreeSet::new();
    let mut found: Vec<PathBuf> = siblings.chain(on_path).filter(|path| path.exists()).collect();
    found.retain(|path| seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())));
    Some((library, found))
}

/// The result of the search for MPI, without initialising it.
pub fn mpi_library(asked: Option<&Path>) -> LibraryReport {
    let env = |name: &str| std::env::var(name).ok();
    let launched = super::launched(&env);
    let (candidate, mut report) =
        ProcessPlace { launched: launched.as_ref(), env: &env }.find(asked);
    let open_mpi = candidate.filter(|found| found.family == MpiFamily::OpenMpi);
    report.notes.extend(open_mpi.map(|found| ucc_note_of(&found.library)));
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here<'a>(
        launched: Option<&'a LaunchedRank>,
        env: &'a dyn Fn(&str) -> Option<String>,
    ) -> ProcessPlace<'a> {
        ProcessPlace { launched, env }
    }

    fn by(by: &'static str) -> LaunchedRank {
        LaunchedRank { rank: 0, size: Some(2), local_rank: None, local_size: None, by }
    }

    #[test]
    fn the_launchers_own_family_comes_first() {
        let none = |_: &str| None;
        for (launcher, name) in
            [("Open MPI", "libmpi.so.40"), ("Hydra", "libmpi.so.12"), ("Slurm", "libmpi_abi.so.1")]
        {
            let launched = by(launcher);
            assert_eq!(here(Some(&launched), &none).names().first(), Some(&name), "{launcher}");
        }
    }

    #[test]
    fn a_library_that_would_start_alone_is_refused() {
        let none = |_: &str| None;
        let pmix = |name: &str| (name == "PMIX_RANK").then(|| "0".to_owned());
        let candidate = |family, version: &str| MpiCandidate {
            library: SharedLibrary::open(Path::new("libc.so.6")).unwrap(),
            abi: MpiAbi::Standard,
            family,
            version: version.to_owned(),
        };
        let open = candidate(MpiFamily::OpenMpi, "Open MPI v5.0.11");
        let mpich = candidate(MpiFamily::Mpich, "MPICH 5.0.2");
        let (hydra, prterun) = (by("Hydra"), by("PMIx"));
        let why = here(Some(&hydra), &none).misfit(&open).unwrap();
        assert!(why.starts_with("Open MPI v5.0.11 cannot be launched by Hydra"), "{why}");
        assert!(here(Some(&hydra), &none).misfit(&mpich).is_none());
        // libc has no PMIx_Init, as MPICH's wheel has none.
        let why = here(Some(&prterun), &pmix).misfit(&mpich).unwrap();
        assert!(why.starts_with("MPICH 5.0.2 cannot be launched by PMIx"), "{why}");
        assert!(here(Some(&prterun), &pmix).misfit(&open).is_none());
    }

    #[test]
    fn a_requested_library_is_not_replaced() {
        let none = |_: &str| None;
        let folder = tempfile::tempdir().unwrap();
        let why = |env, asked: &Path| {
            let (found, LibraryReport { tried, .. }) = here(None, env).find(Some(asked));
            assert!(found.is_none() && tried.len() == 1, "{tried:?}");
            tried[0].why.clone()
        };
        let nothing = why(&none, folder.path());
        assert!(nothing.starts_with("no libmpi_abi.so.1"), "{nothing}");
        let other = why(&none, Path::new("libc.so.6"));
        assert!(other.contains("no MPI library"), "{other}");
        let gpu = |name: &str| (name == "MPICH_GPU_SUPPORT_ENABLED").then(|| "1".to_owned());
        let cray = why(&gpu, Path::new("libc.so.6"));
        assert!(cray.contains("set MPICH_GPU_SUPPORT_ENABLED=0"), "{cray}");
    }

    #[test]
    fn ancestors_are_followed() {
        let parent = parent_of("self").unwrap();
        // SAFETY: it takes nothing and cannot fail.
        assert_eq!(parent, unsafe { libc::getppid() }.to_string());
        assert!(is_launcher(Path::new("/usr/bin/hydra_pmi_proxy")));
        // Programs of /bin belong to no library of /a/b.
        assert!(Path::new("/bin/sh").exists());
        assert_eq!(sibling_program(Path::new("/a/b/libmpi.so.12"), "sh"), None);
        assert!(is_launcher(Path::new("/opt/bin/prterun")));
        assert!(!is_launcher(Path::new("/usr/bin/bash")));
    }
}
