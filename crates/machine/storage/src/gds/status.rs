//! Statuses of cuFile and hipFile: their names, meanings and remedies.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use pathline_hal::{CallError, CallResult};
use pathline_schema::Severity;

use super::library::{GdsLibrary, GdsStatus};
use crate::block_error::StatusMeaning;
use crate::facts;
use pathline_host::files;

/// First status of both: `CUFILEOP_BASE_ERR`, `HIPFILE_BASE_ERR`.
const BASE: i32 = 5000;
/// Of hipFile, an I/O may end by a status of HIP; kept apart from error numbers of the kernel.
const OF_RUNTIME: i32 = 1_000_000;

const DRIVER_NOT_INITIALIZED: i32 = 5001;
const VERSION_MISMATCH: i32 = 5004;
const IO_NOT_SUPPORTED: i32 = 5008;
const MAPPING_SIZE: i32 = 5016;
const DIO_NOT_SET: i32 = 5020;
const PERMISSION_DENIED: i32 = 5025;
const HANDLE_NOT_REGISTERED: i32 = 5027;
const IO_DISABLED: i32 = 5034;
const PINNING_FAILED: i32 = 5036;
const NO_MEMORY: i32 = 5043;

/// By number behind the base: the name of each library, and words.
const ROWS: &str = include_str!("status.csv");

/// `status 5019, CU_FILE_INVALID_FILE_OPEN_FLAG: the file is open with a flag that it refuses`
fn status_text(kind: GdsLibrary, own: i32) -> String {
    let number = format!("{},", own - BASE);
    let row = ROWS.lines().find_map(|line| line.strip_prefix(&number)).unwrap_or_default();
    let mut cells = row.split(',');
    let mut cell = || cells.next().unwrap_or_default();
    let (cufile, hipfile, words) = (cell(), cell(), cell());
    let (prefix, name) = match kind {
        GdsLibrary::CuFile => ("CU_FILE_", cufile),
        GdsLibrary::HipFile => ("hipFile", hipfile),
    };
    match name {
        "" => format!("status {own} of {}, which its header does not list", kind.name()),
        name => format!("status {own}, {prefix}{name}: {words}"),
    }
}

const LOG_CUFILE: &str = "cufile.log in the working folder, or in CUFILE_LOGFILE_PATH, has more";
const LOG_HIPFILE: &str = "ais-check of hipFile lists what this machine lacks";

/// The remedy for a status.
fn way_out(kind: GdsLibrary, own: i32) -> &'static str {
    let cufile = kind == GdsLibrary::CuFile;
    match own {
        DRIVER_NOT_INITIALIZED if cufile => {
            "load nvidia-fs (modprobe nvidia-fs), or allow compatibility mode: CUFILE_ALLOW_COMPAT_MODE=true, or allow_compat_mode in cufile.json"
        }
        VERSION_MISMATCH if cufile => {
            "nvidia-fs (/proc/driver/nvidia-fs/version) and libcufile must be of one release"
        }
        IO_NOT_SUPPORTED if cufile => {
            "take ext4 mounted with data=ordered, or xfs, on NVMe, or allow compatibility mode: CUFILE_ALLOW_COMPAT_MODE=true"
        }
        IO_NOT_SUPPORTED => {
            "take ext4 mounted with data=ordered, or xfs; HIPFILE_ALLOW_COMPAT_MODE=true lets it go through host memory"
        }
        MAPPING_SIZE | PINNING_FAILED if cufile => {
            "use a smaller block or fewer workers, or raise max_device_pinned_mem_size_kb in cufile.json; all of it must fit into the GPU's BAR1"
        }
        DIO_NOT_SET => "use direct",
        PERMISSION_DENIED if cufile => "this user must be able to open /dev/nvidia-fs*",
        IO_DISABLED => {
            "the fs section of cufile.json forbids it (CUFILE_ENV_PATH_JSON names the file)"
        }
        _ if cufile => LOG_CUFILE,
        _ => LOG_HIPFILE,
    }
}

fn severity(own: i32) -> Severity {
    match own {
        MAPPING_SIZE | PINNING_FAILED | NO_MEMORY => Severity::Exhausted,
        _ => Severity::Unsupported,
    }
}

/// The outcome of a call on something.
pub(super) fn outcome(
    kind: GdsLibrary,
    call: &str,
    thing: impl Into<String>,
    status: GdsStatus,
) -> CallResult<()> {
    if status.own == 0 {
        return Ok(());
    }
    let mut reason = status_text(kind, status.own);
    if status.runtime != 0 {
        reason.push_str(&format!(", status {} of {}", status.runtime, kind.runtime()));
    }
    Err(CallError::new(severity(status.own), call, thing, reason)
        .with_code(status.own.into())
        .or_try(way_out(kind, status.own)))
}

/// The outcome of registering a file.
pub(super) fn of_file(
    kind: GdsLibrary,
    call: &str,
    file: &File,
    status: GdsStatus,
) -> CallResult<()> {
    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = std::fs::read_link(&link).unwrap_or_else(|_| link.into());
    let result = outcome(kind, call, path.display().to_string(), status);
    if kind != GdsLibrary::CuFile || status.own != HANDLE_NOT_REGISTERED {
        return result;
    }
    result.map_err(|error| match undescribed(file) {
        Some((why, way_out)) => {
            let reason = format!("{}: {why}", error.reason);
            CallError { reason, ..error }.or_try(way_out)
        }
        None => error,
    })
}

/// Why cuFile cannot describe the block device of a file, and what helps. It asks libudev for the
/// properties of the device, whose entry udevd writes; without them it answers 5027.
fn undescribed(file: &File) -> Option<(String, String)> {
    let device = file.metadata().ok()?.dev();
    if libc::major(device) == 0 {
        let why = "its file system has no block device, and cuFile describes files by that";
        return Some((why.into(), "name a folder on ext4 or xfs with --store".into()));
    }
    let number = facts::number(device);
    let entry = Path::new(UDEV).join(format!("b{number}"));
    let described = files::text(&entry).is_some_and(|text| describes(&text));
    (!described).then(|| {
        let entry = entry.display();
        (
            format!("libudev knows no ID_FS_USAGE of block device {number}, which cuFile looks for"),
            format!(
                "run udevd, or in a container mount {UDEV} of the host; or let root write the lines E:ID_FS_USAGE=filesystem and E:ID_FS_TYPE=ext4 into {entry}"
            ),
        )
    })
}

/// The database of udevd.
const UDEV: &str = "/run/udev/data";

fn describes(entry: &str) -> bool {
    entry.lines().any(|line| line.starts_with("E:ID_FS_USAGE="))
}

/// The result of an I/O: bytes, or a negative number that [`of_io`] knows or that is the kernel's.
/// cuFile gives -1 and leaves its own statuses in `errno`; hipFile gives them negative, and those of
/// HIP as well.
pub(super) fn ended(done: isize, error_number: i32) -> i32 {
    match i32::try_from(done) {
        Ok(-1) => -error_number,
        Ok(status) if status < -1 && status > -BASE => status - OF_RUNTIME,
        Ok(other) => other,
        Err(_) => -libc::EIO,
    }
}

/// Reason, remedy and severity of a failed I/O; `None` if the number is the kernel's.
pub(crate) fn of_io(call: &str, number: i32) -> Option<StatusMeaning> {
    let kind = [GdsLibrary::CuFile, GdsLibrary::HipFile]
        .into_iter()
        .find(|k| call.starts_with(k.name()))?;
    if number > OF_RUNTIME {
        let reason = format!("status {} of {}", number - OF_RUNTIME, kind.runtime());
        return Some((reason, way_out(kind, 0), Severity::Transient));
    }
    (number > BASE).then(|| (status_text(kind, number), way_out(kind, number), severity(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_the_names_of_both_headers() {
        for (kind, own, name) in [
            (GdsLibrary::CuFile, 5019, "CU_FILE_INVALID_FILE_OPEN_FLAG"),
            (GdsLibrary::CuFile, 5027, "CU_FILE_HANDLE_NOT_REGISTERED"),
            (GdsLibrary::CuFile, 5049, "CU_FILE_BATCH_NOCOMPAT_ERROR"),
            (GdsLibrary::HipFile, 5013, "hipFileHipMemoryTypeInvalid"),
            (GdsLibrary::HipFile, 5036, "hipFileGPUMemoryPinningFailed"),
        ] {
            assert!(status_text(kind, own).contains(&format!("status {own}, {name}: ")), "{own}");
        }
        // 5021 and 5032 are nobody's, 5043 is cuFile's alone.
        for (kind, own) in
            [(GdsLibrary::CuFile, 5021), (GdsLibrary::CuFile, 5032), (GdsLibrary::HipFile, 5043)]
        {
            assert!(status_text(kind, own).contains("does not list"), "{own}");
        }
        let rows = ROWS.lines().filter(|line| !line.starts_with('#'));
        let rows: Vec<Vec<&str>> = rows.map(|line| line.split(',').collect()).collect();
        assert!(rows.len() == 43 && rows.iter().all(|row| row.len() == 4));
        let numbers: Vec<i32> = rows.iter().map(|row| row[0].parse().unwrap()).collect();
        assert!(numbers.is_sorted());
    }

    #[test]
    fn ends_of_both_libraries_are_distinguished() {
        // Bytes; an error number; a status that cuFile leaves in errno and that hipFile gives.
        assert_eq!(ended(4096, 5), 4096);
        assert_eq!(ended(-1, libc::EIO), -libc::EIO);
        assert_eq!(ended(-1, 5017), -5017);
        assert_eq!(ended(-5022, 0), -5022);
        let (reason, _, _) = of_io("cuFileRead", 5017).unwrap();
        assert!(reason.contains("CU_FILE_INVALID_MAPPING_RANGE"), "{reason}");
        let (reason, _, _) = of_io("hipFileWrite", 5022).unwrap();
        assert!(reason.contains("hipFileInvalidValue"), "{reason}");
        // 700 of HIP is no error number of the kernel.
        let (reason, _, _) = of_io("hipFileRead", -ended(-700, 0)).unwrap();
        assert_eq!(reason, "status 700 of HIP");
        assert!(of_io("cuFileRead", libc::EIO).is_none());
        assert!(of_io("pread", 5017).is_none());
    }

    #[test]
    fn a_device_is_described_by_its_entry() {
        assert!(describes("I:1\nE:ID_FS_USAGE=filesystem\nE:ID_FS_TYPE=ext4\n"));
        assert!(!describes("I:1\nE:ID_FS_TYPE=ext4\n"));
        assert!(!describes(""));
    }
}
