//! One search for every library: where to look is data, what is of use the caller decides.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::SharedLibrary;
use crate::announce::announce_search;
use crate::elf::check_whole;
use crate::environment::{environment_path, path_list};
use crate::linker::resolve;
use crate::trust::{Chosen, check_writers};

/// A place that was looked at in vain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriedPlace {
    /// File, or bare name that the dynamic linker was asked for.
    pub place: PathBuf,
    /// Why it is of no use.
    pub why: String,
}

/// What became of the search for one library.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibraryReport {
    /// What it is for: `CUDA driver (libcuda)`.
    pub what: Cow<'static, str>,
    /// The file, if one is of use.
    pub path: Option<PathBuf>,
    /// Its version; empty if it is not found or reports none.
    pub version: String,
    /// Places that were of no use, in order.
    pub tried: Vec<TriedPlace>,
    /// What cannot be done without it.
    pub costs: Cow<'static, str>,
    /// How to get it.
    pub way_out: Cow<'static, str>,
    /// Facts about this build that change what can be measured with it, a line each.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Names of a library's file.
#[derive(Debug, Clone, Copy)]
pub enum LibraryNames<'a> {
    /// These, the likeliest first.
    Exact(&'a [&'a str]),
    /// Any number behind a name such as `libamdhip64.so`, the highest first.
    Numbered {
        /// The name without its number.
        stem: &'a str,
        /// Names that the linker is asked for: it cannot be asked for any number.
        linker: &'a [&'a str],
    },
}

impl Default for LibraryNames<'_> {
    fn default() -> Self {
        Self::Exact(&[])
    }
}

/// Where files of a library may be.
#[derive(Debug, Clone)]
pub enum SearchPlace<'a> {
    /// Folders of LD_LIBRARY_PATH.
    LinkerPath,
    /// What the dynamic linker finds by the bare name elsewhere.
    Linker,
    /// Roots that variables name, and folders below them.
    Variables(&'a [&'a str], &'a [&'a str]),
    /// Roots where such libraries are usually installed, and folders below them.
    Roots(Vec<PathBuf>, &'a [&'a str]),
    /// Folders where they usually are.
    Folders(&'a [&'a str]),
    /// Folders of libraries that are open already, or below roots that variables name.
    Found(Vec<PathBuf>),
    /// Python environments: their `lib`, and folders that wheels put libraries into.
    Wheels(&'a [&'a str]),
    /// These files; a bare name is what the dynamic linker finds by it, LD_LIBRARY_PATH included.
    Files(Vec<PathBuf>),
}

/// A limit on the first number of a version, and what sets it: `the driver's CUDA 12`.
#[derive(Debug, Clone)]
pub struct MaxMajor {
    /// The highest that is of use.
    pub major: u32,
    /// What sets it.
    pub limit: String,
}

/// What to look for, and where.
#[derive(Debug, Clone, Default)]
pub struct LibrarySpec<'a> {
    /// What it is for: `CUDA driver (libcuda)`.
    pub what: &'static str,
    /// What cannot be done without it.
    pub costs: &'static str,
    /// How to get it.
    pub way_out: &'static str,
    /// Names of its file.
    pub names: LibraryNames<'a>,
    /// The file, or its folder, that the user names. Nothing else is then looked at.
    pub asked: Option<&'a Path>,
    /// Folders below that folder where the file may be as well.
    pub below_asked: &'a [&'a str],
    /// Where it may be, in order.
    pub places: Vec<SearchPlace<'a>>,
    /// Whether the highest number of all folders comes first, rather than that of the first folder.
    pub newest_first: bool,
    /// The oldest version of use.
    pub min_version: Option<(u32, u32)>,
    /// The newest one.
    pub max_major: Option<MaxMajor>,
}

/// A library that is of use.
#[derive(Debug)]
pub struct BoundLibrary<T> {
    /// What the caller has made of it.
    pub value: T,
    /// Its version for display; empty if it reports none.
    pub version: String,
    /// Major and minor version for limits; none if it reports none.
    pub number: Option<(u32, u32)>,
}

/// A file to try, and who has chosen it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    path: PathBuf,
    by_search: bool,
}

impl LibrarySpec<'_> {
    /// The report on a library at a path with its version, or on none.
    pub fn report(&self, at: Option<(PathBuf, String)>, tried: Vec<TriedPlace>) -> LibraryReport {
        let (path, version) = at.map_or((None, String::new()), |(p, v)| (Some(p), v));
        LibraryReport {
            what: self.what.into(),
            path,
            version,
            tried,
            costs: self.costs.into(),
            way_out: self.way_out.into(),
            notes: Vec::new(),
        }
    }

    /// Files and bare names to try in order, and places that are ruled out already.
    fn candidates(&self) -> (Vec<Candidate>, Vec<TriedPlace>) {
        if let Some(asked) = self.asked {
            return self.in_asked(asked);
        }
        let mut all: Vec<Candidate> = Vec::new();
        let mut known: BTreeMap<PathBuf, usize> = BTreeMap::new();
        for candidate in self.places.iter().flat_map(|place| self.in_place(place)) {
            match known.get(&candidate.path) {
                // Whoever names a place that is searched as well has named it.
                Some(&at) => all[at].by_search &= candidate.by_search,
                None => {
                    known.insert(candidate.path.clone(), all.len());
                    all.push(candidate);
                }
            }
        }
        if self.newest_first {
            // What the linker finds by name has no folder that was chosen, and comes last.
            all.sort_by_key(|c| (is_bare(&c.path), std::cmp::Reverse(self.number(&c.path))));
        }
        let Some(MaxMajor { major, limit }) = &self.max_major else { return (all, Vec::new()) };
        let beyond = |c: &Candidate| self.number(&c.path) > *major;
        let passed = all.iter().filter(|c| beyond(c) && !is_bare(&c.path));
        let why = |c: &Candidate| tried(&c.path, format!("newer than {limit}"));
        let passed = passed.map(why).collect();
        all.retain(|c| !beyond(c));
        (all, passed)
    }

    /// The first number behind the name; 0 without any.
    fn number(&self, path: &Path) -> u32 {
        match self.names {
            LibraryNames::Numbered { stem, .. } => major_of(path, stem).unwrap_or(0),
            LibraryNames::Exact(_) => 0,
        }
    }

    /// The file that was asked for, or those in the folder.
    fn in_asked(&self, asked: &Path) -> (Vec<Candidate>, Vec<TriedPlace>) {
        if !asked.is_dir() {
            return (vec![by_user(asked.to_owned())], Vec::new());
        }
        let below = self.below_asked.iter().map(|folder| asked.join(folder));
        // One may be a link to the other.
        let mut below: Vec<PathBuf> = below.filter_map(|f| f.canonicalize().ok()).collect();
        below.dedup();
        let folders = std::iter::once(asked.to_owned()).chain(below);
        let files: Vec<_> = folders.flat_map(|f| self.in_asked_folder(&f)).map(by_user).collect();
        let names = match self.names {
            LibraryNames::Exact(names) => names.join(", "),
            LibraryNames::Numbered { stem, .. } => stem.to_owned(),
        };
        let none = files.is_empty().then(|| tried(asked, format!("no {names} in it")));
        (files, none.into_iter().collect())
    }

    /// Files of these names in a folder that was asked for; of another number if there is none.
    fn in_asked_folder(&self, folder: &Path) -> Vec<PathBuf> {
        let files = self.in_folder(folder);
        match self.names {
            LibraryNames::Exact([name, ..]) if files.is_empty() => {
                let stem = name.find(".so").map_or(*name, |at| name.get(..at + 3).unwrap_or(name));
                numbered(folder, stem)
            }
            _ => files,
        }
    }

    /// Files of these names in a folder.
    fn in_folder(&self, folder: &Path) -> Vec<PathBuf> {
        match self.names {
            LibraryNames::Exact(names) => {
                names.iter().map(|name| folder.join(name)).filter(|file| file.exists()).collect()
            }
            LibraryNames::Numbered { stem, .. } => numbered(folder, stem),
        }
    }

    fn in_place(&self, place: &SearchPlace<'_>) -> Vec<Candidate> {
        let inside = |folders: Vec<PathBuf>| -> Vec<PathBuf> {
            folders.iter().flat_map(|folder| self.in_folder(folder)).collect()
        };
        let named = |files: Vec<PathBuf>| files.into_iter().map(by_user).collect();
        let below = |roots: Vec<PathBuf>, folders: &[&str]| -> Vec<PathBuf> {
            let below = |root: &PathBuf| folders.iter().map(|f| root.join(f)).collect::<Vec<_>>();
            roots.iter().flat_map(below).collect()
        };
        match place {
            SearchPlace::LinkerPath => named(inside(path_list("LD_LIBRARY_PATH"))),
            SearchPlace::Linker => {
                let names = match self.names {
                    LibraryNames::Exact(names) => names,
                    LibraryNames::Numbered { linker, .. } => linker,
                };
                named(names.iter().filter_map(|name| unshadowed(name)).collect())
            }
            SearchPlace::Variables(names, folders) => {
                let roots = names.iter().filter_map(|name| environment_path(name)).collect();
                named(inside(below(roots, folders)))
            }
            SearchPlace::Roots(roots, folders) => {
                inside(below(roots.clone(), folders)).into_iter().map(by_search).collect()
            }
            SearchPlace::Folders(folders) => {
                let folders = folders.iter().map(PathBuf::from).collect();
                inside(folders).into_iter().map(by_search).collect()
            }
            SearchPlace::Found(folders) => named(inside(folders.clone())),
            SearchPlace::Wheels(packages) => {
                let of = |Prefix { root, by_search }| {
                    let files = inside(wheel_folders(&root, packages)).into_iter();
                    files.map(move |path| Candidate { path, by_search })
                };
                prefixes().into_iter().flat_map(of).collect()
            }
            SearchPlace::Files(files) => named(files.clone()),
        }
    }

    /// Refuses versions that are of no use.
    fn check_version<T>(&self, bound: &BoundLibrary<T>) -> Result<(), String> {
        let Some((major, minor)) = bound.number else { return Ok(()) };
        if let Some(least) = self.min_version
            && (major, minor) < least
        {
            return Err(format!("{} is older than {}.{}", bound.version, least.0, least.1));
        }
        match &self.max_major {
            Some(max) if major > max.major => {
                Err(format!("{} is newer than {}", bound.version, max.limit))
            }
            _ => Ok(()),
        }
    }
}

/// Looks for a library: opens the first that may be opened, that `bind` accepts and that is of a version
/// of use. What `bind` made of it, and how the search went.
pub fn find<T>(
    spec: &LibrarySpec<'_>,
    bind: impl FnMut(&SharedLibrary) -> Result<BoundLibrary<T>, String>,
) -> (Option<T>, LibraryReport) {
    find_with(spec, &|_| Ok(()), bind)
}

/// The same, and `before` opens what has to be in the process before the file that it is given.
pub fn find_with<T>(
    spec: &LibrarySpec<'_>,
    before: &dyn Fn(&Path) -> Result<(), String>,
    mut bind: impl FnMut(&SharedLibrary) -> Result<BoundLibrary<T>, String>,
) -> (Option<T>, LibraryReport) {
    announce_search(|| spec.report(None, Vec::new()));
    let (candidates, mut in_vain) = spec.candidates();
    for candidate in candidates {
        let (path, chosen) = (&candidate.path, candidate.chosen());
        let open = |()| SharedLibrary::open_with(path, libc::RTLD_LOCAL, chosen);
        let opened = before(path).and_then(open).and_then(|library| {
            let bound = bind(&library)?;
            spec.check_version(&bound)?;
            Ok((library.path, bound))
        });
        match opened {
            Ok((path, BoundLibrary { value, version, .. })) => {
                return (Some(value), spec.report(Some((path, version)), in_vain));
            }
            Err(why) => in_vain.push(tried(&candidate.file(), why)),
        }
    }
    (None, spec.report(None, in_vain))
}

/// The file that [`find`] would open first, without opening it.
pub fn locate(spec: &LibrarySpec<'_>) -> LibraryReport {
    let (candidates, mut in_vain) = spec.candidates();
    for candidate in candidates {
        let chosen = candidate.chosen();
        let file = candidate.file();
        if is_bare(&file) {
            continue;
        }
        match check_whole(&file).and_then(|()| check_writers(&file, chosen)) {
            Ok(()) => return spec.report(Some((file, String::new())), in_vain),
            Err(why) => in_vain.push(tried(&file, why)),
        }
    }
    spec.report(None, in_vain)
}

/// A file that is installed with this program: in the folder of the program, or in `lib` of the root in whose `bin`
/// the program is. None that others may replace.
pub fn locate_installed(name: &str) -> LibraryReport {
    locate_near(&std::env::current_exe().unwrap_or_default(), name)
}

fn locate_near(program: &Path, name: &str) -> LibraryReport {
    let near = program.parent().map(Path::to_owned).into_iter().collect();
    let roots = prefix_of(program).into_iter().collect();
    let places = vec![SearchPlace::Roots(near, &[""]), SearchPlace::Roots(roots, &["lib"])];
    locate(&LibrarySpec { names: LibraryNames::Exact(&[name]), places, ..LibrarySpec::default() })
}

impl Candidate {
    /// The file that the linker would open for a bare name, if there is one.
    fn file(&self) -> PathBuf {
        let name = self.path.to_str().filter(|_| is_bare(&self.path));
        name.and_then(resolve).unwrap_or_else(|| self.path.clone())
    }

    fn chosen(&self) -> Chosen {
        if self.by_search { Chosen::BySearch } else { Chosen::ByUser }
    }
}

fn tried(place: &Path, why: String) -> TriedPlace {
    TriedPlace { place: place.to_owned(), why }
}

fn by_user(path: PathBuf) -> Candidate {
    Candidate { path, by_search: false }
}

fn by_search(path: PathBuf) -> Candidate {
    Candidate { path, by_search: true }
}

fn is_bare(path: &Path) -> bool {
    !path.as_os_str().as_bytes().contains(&b'/')
}

/// A name for the linker to find; none if it would find a file of LD_LIBRARY_PATH, which is looked
/// at by itself.
fn unshadowed(name: &str) -> Option<PathBuf> {
    let shadowed = path_list("LD_LIBRARY_PATH").iter().any(|f| f.join(name).exists());
    (!shadowed).then(|| name.into())
}

/// Files of a name with any number or none, the highest first.
fn numbered(folder: &Path, stem: &str) -> Vec<PathBuf> {
    let number = |file: &Path| major_of(file, stem);
    let mut files = starting_with(folder, stem);
    files.retain(|file| number(file).is_some() || file.ends_with(stem));
    files.sort_by_key(|file| std::cmp::Reverse(number(file).unwrap_or(0)));
    files
}

/// The first number behind `stem.`: `7` of `libamdhip64.so.7.2`.
fn major_of(path: &Path, stem: &str) -> Option<u32> {
    let rest = path.file_name()?.to_str()?.strip_prefix(stem)?.strip_prefix('.')?;
    rest.split('.').next()?.parse().ok()
}

/// Entries of a folder whose names start with `prefix`, by name.
pub fn starting_with(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|p| p.file_name().is_some_and(|n| n.as_bytes().starts_with(prefix.as_bytes())))
        .collect();
    found.sort();
    found
}

/// A root that holds a `lib`.
struct Prefix {
    root: PathBuf,
    /// Whether no variable names it.
    by_search: bool,
}

/// That of this program if it is installed, those of environments that are active, of the Python that is
/// first on the path, and of the user.
fn prefixes() -> Vec<Prefix> {
    let searched = |root: PathBuf| Prefix { root, by_search: true };
    let program = std::env::current_exe().ok().as_deref().and_then(prefix_of);
    let active = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(environment_path);
    // Through the links that stand for it and not beyond: an environment's python is itself a link out
    // of it.
    let python = path_list("PATH").into_iter().find(|f| f.join("python3").exists());
    let python = python.as_deref().and_then(Path::parent).map(Path::to_owned);
    let home = environment_path("HOME").map(|home| home.join(".local"));
    let mut prefixes: Vec<Prefix> = program.map(searched).into_iter().collect();
    prefixes.extend(active.map(|root| Prefix { root, by_search: false }));
    prefixes.extend(python.into_iter().chain(home).map(searched));
    prefixes
}

/// The root in whose `bin` a program is. One that lies elsewhere is not installed: the folder around its
/// own is anybody's.
fn prefix_of(program: &Path) -> Option<PathBuf> {
    let folder = program.parent().filter(|folder| folder.ends_with("bin"))?;
    folder.parent().map(Path::to_owned)
}

/// `lib` of a prefix, and the folders that wheels put libraries into, under the names of packages.
fn wheel_folders(prefix: &Path, packages: &[&str]) -> Vec<PathBuf> {
    let mut folders = vec![prefix.join("lib")];
    for python in starting_with(&prefix.join("lib"), "python3") {
        for site in ["site-packages", "dist-packages"] {
            let site = python.join(site);
            folders.extend(packages.iter().map(|package| site.join(package)));
        }
    }
    folders
}

#[cfg(test)]
mod tests;
