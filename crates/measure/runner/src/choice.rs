//! The user's choice of libraries and places for files, as it passes between processes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use pathline_gpu::{CompileMode, LibraryOption, LibraryRequest, library_options};
use pathline_schema::Bytes;
use pathline_storage::StoreRequest;
use serde::{Deserialize, Serialize};

/// The GPU runtime to use, and the paths of its libraries. Libraries without a path are searched.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibraryChoice {
    /// Files or folders, by the option that names them: [`pathline_gpu::LibraryOption::name`].
    #[serde(default)]
    pub named: BTreeMap<String, PathBuf>,
    /// Whether MPI takes memory of GPUs.
    #[serde(default)]
    pub device_memory: DeviceMemory,
}

/// Whether an MPI takes memory of GPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceMemory {
    /// It does; nothing is tried.
    Yes,
    /// It does not; pathline stages such messages through the host.
    No,
    /// Find out.
    #[default]
    Try,
}

impl DeviceMemory {
    /// As the option `--device-memory` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Try => "try",
        }
    }
}

impl LibraryChoice {
    /// The options of a child, which then has the same libraries whatever its environment names.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let flag = |option: &LibraryOption| -> Option<[OsString; 2]> {
            let path = self.named.get(option.name)?;
            Some([format!("--{}", option.name).into(), path.into()])
        };
        library_options().filter_map(flag).flatten().collect()
    }

    /// Whether both name the same libraries.
    pub(crate) fn has_same_libraries(&self, other: &Self) -> bool {
        self.flags() == other.flags()
    }

    /// The options as a text, for errors.
    pub(crate) fn describe(&self) -> String {
        let flags: Vec<_> =
            self.flags().iter().map(|flag| flag.to_string_lossy().into_owned()).collect();
        if flags.is_empty() { "no library named".to_owned() } else { flags.join(" ") }
    }

    /// The same for the crate that opens them. Kernels are compiled in a process of this program.
    pub fn request(&self) -> LibraryRequest {
        // The link stands for this very program, even if the file was replaced since.
        let compile = CompileMode::Child("/proc/self/exe".into());
        LibraryRequest { named: self.named.clone(), compile }
    }
}

/// The places for the files of suite storage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorePlaces {
    /// Folders, in which files are made; files and block devices.
    pub paths: Vec<PathBuf>,
    /// Size of each file; by default 1 GiB, and at most a quarter of what is free.
    pub span: Option<Bytes>,
    /// Whether what files and devices hold may be lost.
    pub overwrite: bool,
    /// The server of buckets; that of the environment if none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
}

impl StorePlaces {
    /// The options of a child with the same places.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let places = self.paths.iter().flat_map(|path| ["--store".into(), path.into()]);
        let span =
            self.span.into_iter().flat_map(|span| ["--span".into(), span.to_string().into()]);
        let overwrite = self.overwrite.then(|| "--overwrite".into());
        let endpoint = self.endpoint.iter().flat_map(|url| ["--s3-endpoint".into(), url.into()]);
        places.chain(span).chain(overwrite).chain(endpoint).collect()
    }

    /// The same for the crate that opens them.
    pub(crate) fn requests(&self) -> Vec<StoreRequest> {
        let Self { paths, span, overwrite, endpoint } = self;
        let request = |path: &PathBuf| StoreRequest {
            path: path.clone(),
            span: *span,
            overwrite: *overwrite,
            endpoint: endpoint.clone(),
        };
        paths.iter().map(request).collect()
    }
}
