//! The control variables of an MPI library, as its tool interface (MPI_T) lists them. MPI_T works without
//! `MPI_Init`, and then shows what the environment has set.

use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

use pathline_dylib::{LibraryReport, SharedLibrary, announce_in};
use pathline_schema::{MpiBrand, MpiControls, MpiVariable};

use super::abi::{MpiAbi, device_text, version_text};
use super::search::ProcessPlace;
use crate::c_functions::c_functions;

/// The longest name and description that are read, in bytes.
const MAX_NAME: usize = 256;
const MAX_ABOUT: usize = 4096;
/// The most elements of a value: texts are arrays of characters.
const MAX_ELEMENTS: usize = 1 << 16;
/// The most items of an enumeration that are read.
const MAX_ITEMS: c_int = 256;
/// The largest element, in bytes.
const ELEMENT_BYTES: usize = 8;

/// The form of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueForm {
    Text,
    Signed(usize),
    Unsigned(usize),
}

/// Types of control variables by ABI: handle and form. Source: the headers of MPICH 5.0.2, native and of the
/// standard ABI.
const MPICH_TYPES: &[(usize, ValueForm)] = &[
    (0x4c00_0101, ValueForm::Text),
    (0x4c00_0405, ValueForm::Signed(4)),
    (0x4c00_0406, ValueForm::Unsigned(4)),
    (0x4c00_0807, ValueForm::Signed(8)),
    (0x4c00_0808, ValueForm::Unsigned(8)),
    (0x4c00_0809, ValueForm::Signed(8)),
    (0x4c00_0819, ValueForm::Unsigned(8)),
    (0x4c00_0845, ValueForm::Signed(8)),
    (0x4c00_013f, ValueForm::Unsigned(1)),
];
const STANDARD_TYPES: &[(usize, ValueForm)] = &[
    (0x243, ValueForm::Text),
    (0x209, ValueForm::Signed(4)),
    (0x20d, ValueForm::Unsigned(4)),
    (0x20a, ValueForm::Signed(8)),
    (0x20e, ValueForm::Unsigned(8)),
    (0x20b, ValueForm::Signed(8)),
    (0x20f, ValueForm::Unsigned(8)),
    (0x202, ValueForm::Signed(8)),
    (0x238, ValueForm::Unsigned(1)),
];
/// Open MPI's handles are addresses of symbols.
const OPEN_MPI_TYPES: &[(&str, ValueForm)] = &[
    ("ompi_mpi_char", ValueForm::Text),
    ("ompi_mpi_int", ValueForm::Signed(4)),
    ("ompi_mpi_int32_t", ValueForm::Signed(4)),
    ("ompi_mpi_unsigned", ValueForm::Unsigned(4)),
    ("ompi_mpi_uint32_t", ValueForm::Unsigned(4)),
    ("ompi_mpi_long", ValueForm::Signed(8)),
    ("ompi_mpi_int64_t", ValueForm::Signed(8)),
    ("ompi_mpi_unsigned_long", ValueForm::Unsigned(8)),
    ("ompi_mpi_uint64_t", ValueForm::Unsigned(8)),
    ("ompi_mpi_unsigned_long_long", ValueForm::Unsigned(8)),
    ("ompi_mpi_count", ValueForm::Signed(8)),
    ("ompi_mpi_c_bool", ValueForm::Unsigned(1)),
    ("ompi_mpi_cxx_bool", ValueForm::Unsigned(1)),
];

c_functions! {
    /// The calls of MPI_T that list and read control variables. The MPI standard fixes them: datatypes
    /// that they write are at most of pointer size, and enumerations and handles are pointers in every
    /// ABI.
    ToolCalls;
    init = "MPI_T_init_thread" (c_int, *mut c_int) -> c_int;
    end = "MPI_T_finalize" () -> c_int;
    count = "MPI_T_cvar_get_num" (*mut c_int) -> c_int;
    about = "MPI_T_cvar_get_info" (
        c_int, *mut c_char, *mut c_int, *mut c_int, *mut *mut c_void, *mut *mut c_void, *mut c_char,
        *mut c_int, *mut c_int, *mut c_int
    ) -> c_int;
    alloc = "MPI_T_cvar_handle_alloc" (c_int, *mut c_void, *mut *mut c_void, *mut c_int) -> c_int;
    read = "MPI_T_cvar_read" (*mut c_void, *mut c_void) -> c_int;
    free = "MPI_T_cvar_handle_free" (*mut *mut c_void) -> c_int;
    items = "MPI_T_enum_get_info" (*mut c_void, *mut c_int, *mut c_char, *mut c_int) -> c_int;
    item = "MPI_T_enum_get_item" (*mut c_void, c_int, *mut c_int, *mut c_char, *mut c_int) -> c_int;
}

/// Which part of a variable is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadDepth {
    Name,
    Value,
    /// The value, and the values that it takes.
    Choices,
}

/// What a library lists, or why it lists nothing.
pub(super) fn list_variables(
    library: &SharedLibrary,
    abi: MpiAbi,
    depth: &dyn Fn(&str) -> ReadDepth,
) -> Result<Vec<MpiVariable>, String> {
    let calls = ToolCalls::bind(library).map_err(|_| "it has no MPI_T")?;
    announce_in(&library.path, "MPI_T_init_thread");
    let mut given = 0;
    // SAFETY: 0 asks for one thread; the call writes one number. What is begun here is ended below.
    let code = unsafe { (calls.init)(0, &raw mut given) };
    if code != 0 {
        return Err(format!("MPI_T_init_thread returns {code}"));
    }
    announce_in(&library.path, "MPI_T_cvar_get_info");
    let types = value_forms(library, abi);
    let found = calls.list(&types, depth);
    // SAFETY: begun above, ended once.
    unsafe { (calls.end)() };
    Ok(found)
}

fn value_forms(library: &SharedLibrary, abi: MpiAbi) -> Vec<(usize, ValueForm)> {
    match abi {
        MpiAbi::Mpich => MPICH_TYPES.to_vec(),
        MpiAbi::Standard => STANDARD_TYPES.to_vec(),
        MpiAbi::OpenMpi => {
            let at = |name: &str| library.symbol(name).map(|at| at.as_ptr() as usize);
            let all = OPEN_MPI_TYPES.iter();
            all.filter_map(|(name, form)| Some((at(name)?, *form))).collect()
        }
    }
}

/// The text in a buffer that a library has terminated.
fn text_of(bytes: &[u8]) -> String {
    let text = bytes.split(|&b| b == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

impl ToolCalls {
    fn list(
        &self,
        types: &[(usize, ValueForm)],
        depth: &dyn Fn(&str) -> ReadDepth,
    ) -> Vec<MpiVariable> {
        let mut all = 0;
        // SAFETY: it writes one number, which lives through the call.
        let _ = unsafe { (self.count)(&raw mut all) };
        (0..all).filter_map(|nth| self.variable(nth, types, depth)).collect()
    }

    /// One variable. `None` if it is not valid: those of a closed component keep their number.
    fn variable(
        &self,
        nth: c_int,
        types: &[(usize, ValueForm)],
        depth: &dyn Fn(&str) -> ReadDepth,
    ) -> Option<MpiVariable> {
        let (mut name, mut about) = ([0_u8; MAX_NAME], [0_u8; MAX_ABOUT]);
        let (mut length, mut long) = (MAX_NAME as c_int, MAX_ABOUT as c_int);
        let (mut verbosity, mut bind, mut scope) = (0, 0, 0);
        // A library with 32-bit handles writes the lower half.
        let (mut datatype, mut items) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: both texts have room for the bytes that their lengths name; numbers and handles live
        // through the call.
        let code = unsafe {
            (self.about)(
                nth,
                name.as_mut_ptr().cast(),
                &raw mut length,
                &raw mut verbosity,
                &raw mut datatype,
                &raw mut items,
                about.as_mut_ptr().cast(),
                &raw mut long,
                &raw mut bind,
                &raw mut scope,
            )
        };
        if code != 0 {
            return None;
        }
        let name = text_of(&name);
        let depth = depth(&name);
        let form = types.iter().find(|(handle, _)| *handle == datatype as usize);
        // A variable that is bound to an object cannot be read without one. 0: MPI_T_BIND_NO_OBJECT of the
        // standard ABI and of Open MPI; MPICH has another number for it, and binds no variable to an object.
        let form = form.map(|(_, form)| *form).filter(|_| depth != ReadDepth::Name);
        let value = form.and_then(|form| self.value(nth, form)).unwrap_or_default();
        let mut choices = Vec::new();
        if depth == ReadDepth::Choices {
            choices = self.choices(items);
        }
        let (mut choices, numbers): (Vec<String>, Vec<i64>) = choices.into_iter().unzip();
        if choices.is_empty() && depth == ReadDepth::Choices && form != Some(ValueForm::Text) {
            choices = described_choices(&text_of(&about));
        }
        Some(MpiVariable { name, value, choices, numbers })
    }

    fn value(&self, nth: c_int, form: ValueForm) -> Option<String> {
        let (mut handle, mut count) = (std::ptr::null_mut(), 0);
        // SAFETY: the variable is bound to no object; handle and number live through the call.
        if unsafe { (self.alloc)(nth, std::ptr::null_mut(), &raw mut handle, &raw mut count) } != 0
        {
            return None;
        }
        let count = usize::try_from(count).unwrap_or(0);
        let mut bytes = vec![0_u8; count.min(MAX_ELEMENTS) * ELEMENT_BYTES + 1];
        let mut code = 1;
        if (1..=MAX_ELEMENTS).contains(&count) {
            // SAFETY: the buffer has room for `count` elements of any type.
            code = unsafe { (self.read)(handle, bytes.as_mut_ptr().cast()) };
        }
        // SAFETY: allocated above, freed once.
        unsafe { (self.free)(&raw mut handle) };
        if code != 0 {
            return None;
        }
        let number = |at: usize, size: usize| -> Option<[u8; 8]> {
            let mut number = [0; 8];
            number.get_mut(..size)?.copy_from_slice(bytes.get(at * size..(at + 1) * size)?);
            Some(number)
        };
        let one = |at: usize| match form {
            ValueForm::Text => None,
            ValueForm::Signed(4) => {
                let [a, b, c, d, ..] = number(at, 4)?;
                Some(i32::from_le_bytes([a, b, c, d]).to_string())
            }
            ValueForm::Signed(size) => Some(i64::from_le_bytes(number(at, size)?).to_string()),
            ValueForm::Unsigned(size) => Some(u64::from_le_bytes(number(at, size)?).to_string()),
        };
        if form == ValueForm::Text {
            return Some(text_of(&bytes));
        }
        let all: Option<Vec<String>> = (0..count).map(one).collect();
        Some(all?.join(":"))
    }

    /// The items of an enumeration, names with numbers.
    fn choices(&self, items: *mut c_void) -> Vec<(String, i64)> {
        if items.is_null() {
            return Vec::new();
        }
        let (mut count, mut name, mut length) = (0, [0_u8; MAX_NAME], MAX_NAME as c_int);
        // SAFETY: the enumeration is the library's; the name has room for `length` bytes.
        let code = unsafe {
            (self.items)(items, &raw mut count, name.as_mut_ptr().cast(), &raw mut length)
        };
        if code != 0 {
            return Vec::new();
        }
        let one = |nth: c_int| {
            let (mut value, mut name, mut length) = (0, [0_u8; MAX_NAME], MAX_NAME as c_int);
            // SAFETY: as above, and the number lives through the call.
            let code = unsafe {
                let name = name.as_mut_ptr().cast();
                (self.item)(items, nth, &raw mut value, name, &raw mut length)
            };
            (code == 0).then(|| (text_of(&name), i64::from(value)))
        };
        (0..count.min(MAX_ITEMS)).filter_map(one).collect()
    }
}

/// The values that a description of MPICH lists, `ring - Force ring algorithm` a line: it has no enumerations.
/// MPICH 4.0 leaves the line ends out, and most lines end in `algorithm`.
fn described_choices(about: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = about;
    while let Some((before, after)) = rest.split_once(" - ") {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let word = before.trim_end().rsplit(|c| !is_part(c)).next().unwrap_or_default();
        let word = word.strip_prefix("algorithm").filter(|rest| !rest.is_empty()).unwrap_or(word);
        if !word.is_empty() {
            found.push(word.to_owned());
        }
        rest = after;
    }
    found
}

/// The MPI library that this process would take, with its control variables as the environment sets them.
/// Nothing is initialised but MPI_T. The error is the report on the search.
pub fn mpi_controls(asked: Option<&Path>) -> Result<MpiControls, Box<LibraryReport>> {
    let env = |name: &str| std::env::var(name).ok();
    let launched = super::launched(&env);
    let (candidate, report) = ProcessPlace { launched: launched.as_ref(), env: &env }.find(asked);
    let candidate = candidate.ok_or(report)?;
    let library = &candidate.library;
    if candidate.abi == MpiAbi::OpenMpi {
        // Its plug-ins may need its symbols without linking to it.
        let _ = SharedLibrary::open_for_all(&library.path);
    }
    let listed = list_variables(library, candidate.abi, &|_| ReadDepth::Choices);
    let (variables, refused) = match listed {
        Ok(variables) => (variables, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    let device = version_text(library).and_then(|text| device_text(&text));
    Ok(MpiControls {
        brand: MpiBrand::of_version(&candidate.version),
        version: candidate.version,
        path: library.path.display().to_string(),
        device: device.and_then(|text| Some(text.strip_prefix("device ")?.to_owned())),
        refused,
        has_xpmem: Path::new("/dev/xpmem").exists(),
        variables,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_listed_in_descriptions() {
        // As MPICH 5.0 has it, and as 4.0, without line ends.
        let lines = "Variable to select x algorithm\nauto - Internal (see FILE)\nnb   - Force nb\nring - Force ring";
        assert_eq!(described_choices(lines), ["auto", "nb", "ring"]);
        let glued = "select x algorithmauto - Internal (see FILE)nb     - Force nb algorithmsmp      - Force smp";
        assert_eq!(described_choices(glued), ["auto", "nb", "smp"]);
        assert_eq!(described_choices("Size of each cell. 4KB * 17 is usual."), [""; 0]);
    }

    #[test]
    fn a_library_without_mpi_t_says_so() {
        let libc = SharedLibrary::open(Path::new("libc.so.6")).unwrap();
        let listed = list_variables(&libc, MpiAbi::OpenMpi, &|_| ReadDepth::Value);
        assert_eq!(listed, Err("it has no MPI_T".to_owned()));
        let report = mpi_controls(Some(Path::new("libc.so.6"))).unwrap_err();
        assert!(report.tried[0].why.contains("no MPI library"), "{:?}", report.tried);
    }
}
