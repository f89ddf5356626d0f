//! The ABIs of MPI libraries: detection, and constants.

use std::ffi::{c_char, c_int};
use std::fmt;

use pathline_schema::{ElementType, ReduceOp};

use super::table::{MpiAddress, MpiHandle};
use pathline_dylib::{SharedLibrary, announce_in};

/// The form of handles and constants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MpiAbi {
    /// MPICH since 3.1, Intel MPI, Cray MPICH, MVAPICH: handles are 32-bit integers.
    Mpich,
    /// Open MPI: handles are addresses of symbols.
    OpenMpi,
    /// The ABI of MPI 5.0: handles are pointers with small values.
    Standard,
}

impl fmt::Display for MpiAbi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Mpich => "MPICH's ABI",
            Self::OpenMpi => "Open MPI's ABI",
            Self::Standard => "standard ABI",
        })
    }
}

/// The code base of a library, which decides which launchers it supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MpiFamily {
    /// MPICH and its derivatives.
    Mpich,
    /// Open MPI.
    OpenMpi,
}

impl MpiAbi {
    /// Detects the ABI of a library. `None` if it is no MPI library.
    ///
    /// `MPI_Abi_get_version` alone proves nothing: native libraries of MPICH 5 and Intel also
    /// export it and answer -1.
    pub(super) fn of(library: &SharedLibrary) -> Option<Self> {
        library.symbol("MPI_Init_thread")?;
        if library.symbol("ompi_mpi_comm_world").is_some() {
            return Some(Self::OpenMpi);
        }
        let Some(ask) = library.symbol("MPI_Abi_get_version") else { return Some(Self::Mpich) };
        type AbiVersionFn = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
        let (mut major, mut minor) = (-1, -1);
        announce_in(&library.path, "MPI_Abi_get_version");
        // SAFETY: MPI 5.0 fixes the signature, and that it may be called before MPI_Init; it writes
        // two numbers, which live through the call.
        let code = unsafe {
            std::mem::transmute::<*mut std::ffi::c_void, AbiVersionFn>(ask.as_ptr())(
                &raw mut major,
                &raw mut minor,
            )
        };
        Some(if code == 0 && major >= 1 { Self::Standard } else { Self::Mpich })
    }
}

/// The version text of a library. Callable before `MPI_Init`.
pub(super) fn version_text(library: &SharedLibrary) -> Option<String> {
    /// `MPI_MAX_LIBRARY_VERSION_STRING` is 256 to 8192 by ABI; one byte more for a library that
    /// terminates a text of that length.
    const LONGEST: usize = 8193;
    type LibraryVersionFn = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;
    let ask = library.symbol("MPI_Get_library_version")?;
    let mut text = vec![0u8; LONGEST];
    let mut length = 0;
    announce_in(&library.path, "MPI_Get_library_version");
    // SAFETY: the signature is MPI's; the buffer is as long as any ABI's longest text.
    let code = unsafe {
        std::mem::transmute::<*mut std::ffi::c_void, LibraryVersionFn>(ask.as_ptr())(
            text.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    let length = usize::try_from(length).ok().filter(|&n| code == 0 && n <= text.len())?;
    text.truncate(length);
    Some(String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned())
}

/// Name, version and family from a library's version text.
pub(super) fn known_as(text: &str) -> (String, MpiFamily) {
    let first = text.lines().next().unwrap_or_default();
    if let Some((open, _)) = first.split_once(',')
        && open.starts_with("Open MPI")
    {
        return (open.trim().to_owned(), MpiFamily::OpenMpi);
    }
    let family = if text.contains("Open MPI") { MpiFamily::OpenMpi } else { MpiFamily::Mpich };
    // `MPICH Version:      5.0.2`, `MVAPICH Version: ...`
    if let Some((name, version)) = first.split_once("Version:") {
        return (format!("{} {}", name.trim(), version.trim()), family);
    }
    // `MPI VERSION    : CRAY MPICH version 8.1.25.17 (ANL base 3.4a2)`
    let name = first.split_once("VERSION").map_or(first, |(_, rest)| rest.trim_start());
    (name.trim_start_matches(':').trim().to_owned(), family)
}

/// The constants that this program passes to MPI.
#[derive(Debug, Clone, Copy)]
pub(super) struct MpiConstants<H: MpiHandle> {
    pub(super) world: H,
    pub(super) of_itself: H,
    pub(super) no_info: H,
    pub(super) no_request: H,
    pub(super) no_comm: H,
    pub(super) byte: H,
    pub(super) types: MpiTypes<H>,
    pub(super) ops: MpiOps<H>,
    pub(super) replace: H,
    pub(super) lock_shared: c_int,
    pub(super) in_place: MpiAddress,
    pub(super) ignore_status: MpiAddress,
}

/// Types of the elements of reductions.
#[derive(Debug, Clone, Copy)]
pub(super) struct MpiTypes<H: MpiHandle> {
    pub(super) int8: H,
    pub(super) uint8: H,
    pub(super) int32: H,
    pub(super) uint32: H,
    pub(super) int64: H,
    pub(super) uint64: H,
    pub(super) float: H,
    pub(super) double: H,
}

impl<H: MpiHandle> MpiTypes<H> {
    /// The handle of a type; `None` if MPI's standard has no such type.
    pub(super) const fn handle(&self, element: ElementType) -> Option<H> {
        Some(match element {
            ElementType::Int8 => self.int8,
            ElementType::Uint8 => self.uint8,
            ElementType::Int32 => self.int32,
            ElementType::Uint32 => self.uint32,
            ElementType::Int64 => self.int64,
            ElementType::Uint64 => self.uint64,
            ElementType::Float => self.float,
            ElementType::Double => self.double,
            ElementType::Half | ElementType::Bf16 | ElementType::Fp8E4m3 | ElementType::Fp8E5m2 => {
                return None;
            }
        })
    }
}

/// Operations of reductions.
#[derive(Debug, Clone, Copy)]
pub(super) struct MpiOps<H: MpiHandle> {
    pub(super) sum: H,
    pub(super) prod: H,
    pub(super) min: H,
    pub(super) max: H,
}

impl<H: MpiHandle> MpiOps<H> {
    /// The handle of an operation; `None` if MPI has no such operation.
    pub(super) const fn handle(&self, op: ReduceOp) -> Option<H> {
        Some(match op {
            ReduceOp::Sum => self.sum,
            ReduceOp::Prod => self.prod,
            ReduceOp::Min => self.min,
            ReduceOp::Max => self.max,
            ReduceOp::Avg => return None,
        })
    }
}

/// Constants of the MPICH family. Source: `mpi.h` of MPICH 4.0.2, MPICH 5.0.2 and Intel MPI
/// 2021.18.1, which agree.
pub(super) fn mpich() -> MpiConstants<c_int> {
    MpiConstants {
        world: 0x4400_0000,
        of_itself: 0x4400_0001,
        no_info: 0x1c00_0000,
        no_request: 0x2c00_0000,
        no_comm: 0x0400_0000,
        byte: 0x4c00_010d,
        types: MpiTypes {
            int8: 0x4c00_0137,
            uint8: 0x4c00_013b,
            int32: 0x4c00_0439,
            uint32: 0x4c00_043d,
            int64: 0x4c00_083a,
            uint64: 0x4c00_083e,
            float: 0x4c00_040a,
            double: 0x4c00_080b,
        },
        ops: MpiOps { sum: 0x5800_0003, prod: 0x5800_0004, min: 0x5800_0002, max: 0x5800_0001 },
        replace: 0x5800_000d,
        lock_shared: 235,
        in_place: std::ptr::without_provenance_mut(usize::MAX),
        ignore_status: std::ptr::without_provenance_mut(1),
    }
}

/// Constants of the standard ABI. Source: MPI 5.0, appendix A; `mpi_abi.h` of MPICH 5.0.2.
pub(super) fn standard() -> MpiConstants<usize> {
    MpiConstants {
        world: 0x101,
        of_itself: 0x102,
        no_info: 0x130,
        no_request: 0x180,
        no_comm: 0x100,
        byte: 0x247,
        types: MpiTypes {
            int8: 0x240,
            uint8: 0x241,
            int32: 0x250,
            uint32: 0x251,
            int64: 0x258,
            uint64: 0x259,
            float: 0x210,
            double: 0x214,
        },
        ops: MpiOps { sum: 0x21, prod: 0x24, min: 0x22, max: 0x23 },
        replace: 0x3c,
        lock_shared: 302,
        in_place: std::ptr::without_provenance_mut(1),
        ignore_status: std::ptr::null_mut(),
    }
}

/// Constants of Open MPI, whose handles are addresses of symbols. The error lists missing names.
pub(super) fn open_mpi(library: &SharedLibrary) -> Result<MpiConstants<usize>, String> {
    // Only the address counts; the library owns the memory behind it.
    let at = |name: &str| {
        let symbol = library.symbol(name).ok_or_else(|| format!("it lacks {name}"))?;
        Ok::<usize, String>(symbol.as_ptr().expose_provenance())
    };
    Ok(MpiConstants {
        world: at("ompi_mpi_comm_world")?,
        of_itself: at("ompi_mpi_comm_self")?,
        no_info: at("ompi_mpi_info_null")?,
        no_request: at("ompi_request_null")?,
        no_comm: at("ompi_mpi_comm_null")?,
        byte: at("ompi_mpi_byte")?,
        types: MpiTypes {
            int8: at("ompi_mpi_int8_t")?,
            uint8: at("ompi_mpi_uint8_t")?,
            int32: at("ompi_mpi_int32_t")?,
            uint32: at("ompi_mpi_uint32_t")?,
            int64: at("ompi_mpi_int64_t")?,
            uint64: at("ompi_mpi_uint64_t")?,
            float: at("ompi_mpi_float")?,
            double: at("ompi_mpi_double")?,
        },
        ops: MpiOps {
            sum: at("ompi_mpi_op_sum")?,
            prod: at("ompi_mpi_op_prod")?,
            min: at("ompi_mpi_op_min")?,
            max: at("ompi_mpi_op_max")?,
        },
        replace: at("ompi_mpi_op_replace")?,
        lock_shared: 2,
        in_place: std::ptr::without_provenance_mut(1),
        ignore_status: std::ptr::null_mut(),
    })
}

/// The device of a library of MPICH's family: `device ch4:ucx`; `None` if the text names none.
pub(super) fn device_text(version: &str) -> Option<String> {
    // `MPICH Device:    ch4:ofi`
    let line = version.lines().find_map(|line| line.split_once("Device:"))?;
    let device = line.1.trim();
    (!device.is_empty()).then(|| format!("device {device}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_texts_identify_libraries() {
        for (text, name, family) in [
            (
                "Open MPI v5.0.11, package: Open MPI root@x Distribution, ident: 5.0.11, repo rev: v5",
                "Open MPI v5.0.11",
                MpiFamily::OpenMpi,
            ),
            (
                "MPICH Version:      5.0.2\nMPICH Release date: Mon\nMPICH ABI: 17:2:5\n",
                "MPICH 5.0.2",
                MpiFamily::Mpich,
            ),
            (
                "Intel(R) MPI Library 2021.18 for Linux* OS\n",
                "Intel(R) MPI Library 2021.18 for Linux* OS",
                MpiFamily::Mpich,
            ),
            (
                "MPI VERSION    : CRAY MPICH version 8.1.25.17 (ANL base 3.4a2)\nMPI BUILD INFO : x\n",
                "CRAY MPICH version 8.1.25.17 (ANL base 3.4a2)",
                MpiFamily::Mpich,
            ),
            ("", "", MpiFamily::Mpich),
        ] {
            assert_eq!(known_as(text), (name.to_owned(), family));
        }
    }

    #[test]
    fn a_library_other_than_mpi_has_no_abi() {
        let libc = SharedLibrary::open(std::path::Path::new("libc.so.6")).unwrap();
        assert_eq!(MpiAbi::of(&libc), None);
        assert_eq!(version_text(&libc), None);
        assert!(open_mpi(&libc).unwrap_err().contains("ompi_mpi_comm_world"));
    }
}
