//! The transport of an MPI library's messages, as far as the library reports it.
//!
//! MPICH and its derivatives name their device in the version text. Open MPI chooses a messaging
//! component in `MPI_Init` and reports it by no standard call: the component is a symbol of the
//! library, and starts with the common component header. Of the transports below it, only open ones
//! keep their variables, which MPI_T lists.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int, c_void};

use pathline_dylib::SharedLibrary;

use super::collective_components;

/// The header of an Open MPI component: three version numbers, the project, three numbers of its
/// version, the kind, three numbers of its version, the name. Source: Open MPI, opal/mca/mca.h,
/// `mca_base_component_2_1_0_t`, the same in 4.1 and 5.0.
#[repr(C)]
struct McaComponent {
    versions: [c_int; 3],
    project: [c_char; 16],
    of_project: [c_int; 3],
    kind: [c_char; 32],
    of_kind: [c_int; 3],
    name: [c_char; 64],
}

/// Version of that layout.
const LAYOUT: c_int = 2;

/// The device of a library of MPICH's family: `device ch4:ucx`; `None` if the text names none.
pub(super) fn of_device(version: &str) -> Option<String> {
    // `MPICH Device:    ch4:ofi`
    let line = version.lines().find_map(|line| line.split_once("Device:"))?;
    let device = line.1.trim();
    (!device.is_empty()).then(|| format!("device {device}"))
}

/// What Open MPI chose for messages and for collectives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct OpenMpiChoice {
    /// `pml ob1 over one of btl self, tcp, vader`.
    pub(super) messages: Option<String>,
    /// `coll tuned (30), basic (10)`.
    pub(super) collectives: Option<String>,
}

/// The choice of Open MPI. Valid after `MPI_Init`.
pub(super) fn of_open_mpi(library: &SharedLibrary, several_hosts: bool) -> OpenMpiChoice {
    let variables = variables(library).unwrap_or_default();
    let names: Vec<String> = variables.iter().map(|(name, _)| name.clone()).collect();
    let pml = messages(library);
    // Other libraries may have variables of such names.
    let settings = || -> Vec<(String, i64)> {
        variables.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    };
    let collectives =
        pml.as_ref().and_then(|_| collective_components::describe(&settings(), several_hosts));
    OpenMpiChoice { messages: pml.map(|pml| messages_text(&pml, &names)), collectives }
}

/// The messaging component with what is open under it.
fn messages_text(pml: &str, variables: &[String]) -> String {
    let open = components(variables);
    // `cm` sends by one MTL; BTLs that remain open next to it carry nothing.
    let below = if pml == "cm" { "mtl" } else { "btl" };
    let of = |kind: &str| -> Vec<&str> {
        open.iter().filter(|(k, _)| k == kind).map(|(_, name)| name.as_str()).collect()
    };
    let mut text = format!("pml {pml}");
    // UCX brings its own transports.
    let (transports, copies) = (of(below), of("smsc"));
    if pml != "ucx" && !transports.is_empty() {
        text.push_str(&format!(" over one of {below} {}", transports.join(", ")));
    }
    if pml == "ob1" && !copies.is_empty() {
        text.push_str(&format!(", single copies by {}", copies.join(" or ")));
    }
    text
}

/// The component that Open MPI sends messages by.
fn messages(library: &SharedLibrary) -> Option<String> {
    let at = library.symbol("mca_pml_base_selected_component")?.cast::<McaComponent>();
    // SAFETY: the symbol is a component, which is longer than its beginning; MPI_Init has written it
    // and nothing changes it afterwards.
    let McaComponent { versions, project, kind, name, .. } =
        unsafe { at.as_ptr().read_unaligned() };
    let text = |chars: &[c_char]| {
        let bytes: Vec<u8> = chars.iter().map(|&c| c as u8).take_while(|&b| b != 0).collect();
        String::from_utf8(bytes).ok().filter(|text| !text.is_empty())
    };
    let known = versions[0] == LAYOUT
        && text(&project).as_deref() == Some("ompi")
        && text(&kind).as_deref() == Some("pml");
    text(&name).filter(|_| known)
}

/// Kinds and names of the components of variables: `btl_tcp_links` belongs to `btl` `tcp`.
/// Variables that a whole kind shares belong to none.
fn components(variables: &[String]) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for variable in variables {
        let mut fields = variable.split('_');
        if let (Some(kind @ ("btl" | "mtl" | "smsc")), Some(name), Some(_)) =
            (fields.next(), fields.next(), fields.next())
            && name != "base"
        {
            found.insert((kind.to_owned(), name.to_owned()));
        }
    }
    // From 5.0 on, `vader` is an alias of `sm`.
    let sm = |name: &str| ("btl".to_owned(), name.to_owned());
    if found.contains(&sm("sm")) {
        found.remove(&sm("vader"));
    }
    found
}

/// The names of all valid control variables, with values where they decide on collectives.
fn variables(library: &SharedLibrary) -> Option<Vec<(String, Option<i64>)>> {
    type ToolInitFn = unsafe extern "C" fn(c_int, *mut c_int) -> c_int;
    type ToolCountFn = unsafe extern "C" fn(*mut c_int) -> c_int;
    type ToolEndFn = unsafe extern "C" fn() -> c_int;
    type ToolInfoFn = unsafe extern "C" fn(
        c_int,
        *mut c_char,
        *mut c_int,
        *mut c_int,
        *mut *mut c_void,
        *mut *mut c_void,
        *mut c_char,
        *mut c_int,
        *mut c_int,
        *mut c_int,
    ) -> c_int;
    let find = |name: &str| library.symbol(name).map(std::ptr::NonNull::as_ptr);
    // SAFETY: the MPI standard fixes these signatures; handles of Open MPI are pointers.
    let (init, count, about, end) = unsafe {
        (
            std::mem::transmute::<*mut c_void, ToolInitFn>(find("MPI_T_init_thread")?),
            std::mem::transmute::<*mut c_void, ToolCountFn>(find("MPI_T_cvar_get_num")?),
            std::mem::transmute::<*mut c_void, ToolInfoFn>(find("MPI_T_cvar_get_info")?),
            std::mem::transmute::<*mut c_void, ToolEndFn>(find("MPI_T_finalize")?),
        )
    };
    let (mut given, mut all) = (0, 0);
    // SAFETY: 0 asks for one thread; each call writes one number. What is begun here is ended below.
    unsafe {
        if init(0, &raw mut given) != 0 {
            return None;
        }
        let _ = count(&raw mut all);
    }
    let values = ValueCalls::find(library);
    let mut found = Vec::new();
    for nth in 0..all {
        let mut name = [0_u8; 256];
        let (mut length, mut none) = (name.len() as c_int, 0);
        let (mut verbosity, mut bind, mut scope) = (0, 0, 0);
        let (mut datatype, mut names) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the name has room for `length` bytes; no description is asked for, by a length of
        // 0; numbers and handles live through the call.
        let code = unsafe {
            about(
                nth,
                name.as_mut_ptr().cast(),
                &raw mut length,
                &raw mut verbosity,
                &raw mut datatype,
                &raw mut names,
                std::ptr::null_mut(),
                &raw mut none,
                &raw mut bind,
                &raw mut scope,
            )
        };
        let text = name.split(|&b| b == 0).next().unwrap_or_default();
        // A variable of a closed component has a number and is not valid.
        if code == 0 {
            let name = String::from_utf8_lossy(text).into_owned();
            let wanted = collective_components::is_setting(&name);
            let value = values.as_ref().filter(|_| wanted).and_then(|calls| calls.read(nth));
            found.push((name, value));
        }
    }
    // SAFETY: begun above, ended once.
    unsafe { end() };
    Some(found)
}

/// The calls that read a control variable.
struct ValueCalls {
    alloc: unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void, *mut c_int) -> c_int,
    read: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
    free: unsafe extern "C" fn(*mut *mut c_void) -> c_int,
}

impl ValueCalls {
    fn find(library: &SharedLibrary) -> Option<Self> {
        type AllocFn =
            unsafe extern "C" fn(c_int, *mut c_void, *mut *mut c_void, *mut c_int) -> c_int;
        type ReadFn = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
        type FreeFn = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
        let find = |name: &str| library.symbol(name).map(std::ptr::NonNull::as_ptr);
        // SAFETY: the MPI standard fixes these signatures; handles of Open MPI are pointers.
        unsafe {
            Some(Self {
                alloc: std::mem::transmute::<*mut c_void, AllocFn>(find(
                    "MPI_T_cvar_handle_alloc",
                )?),
                read: std::mem::transmute::<*mut c_void, ReadFn>(find("MPI_T_cvar_read")?),
                free: std::mem::transmute::<*mut c_void, FreeFn>(find("MPI_T_cvar_handle_free")?),
            })
        }
    }

    /// The value of an integer or a boolean, which are at most 8 bytes long.
    fn read(&self, nth: c_int) -> Option<i64> {
        let (mut handle, mut count) = (std::ptr::null_mut(), 0);
        let mut value = [0_u8; 64];
        // SAFETY: the variable is bound to no object; the value has room for the one element that is
        // accepted, and texts, which have more, are not read. The handle is freed once.
        let code = unsafe {
            if (self.alloc)(nth, std::ptr::null_mut(), &raw mut handle, &raw mut count) != 0 {
                return None;
            }
            let code = if count == 1 { (self.read)(handle, value.as_mut_ptr().cast()) } else { 1 };
            (self.free)(&raw mut handle);
            code
        };
        // Priorities and switches are of 4 bytes; those of 1 byte leave the others 0.
        let [a, b, c, d, ..] = value;
        (code == 0).then(|| i64::from(i32::from_ne_bytes([a, b, c, d])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_in_the_text_of_a_version() {
        let text = "MPICH Version:      5.0.2\nMPICH Device:       ch4:ofi\nMPICH configure:    -x";
        assert_eq!(of_device(text).as_deref(), Some("device ch4:ofi"));
        assert_eq!(of_device("Intel(R) MPI Library 2021.18 for Linux* OS"), None);
    }

    #[test]
    fn open_transports_are_those_with_variables() {
        let names = ["btl", "btl_base_verbose", "btl_tcp_links", "btl_sm_priority"];
        let more = ["btl_vader_priority", "btl_self_priority", "smsc_cma_priority", "coll_sm_x"];
        let all: Vec<String> = names.iter().chain(&more).map(|&name| name.to_owned()).collect();
        let of = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
        let found: Vec<_> = components(&all).into_iter().collect();
        let btl = ["self", "sm", "tcp"].map(|name| of("btl", name));
        assert_eq!(found, [&btl[..], &[of("smsc", "cma")]].concat());
        // Open MPI 4 has no other name for it.
        let found = components(&["btl_vader_priority".to_owned()]);
        assert!(found.contains(&of("btl", "vader")));
    }

    #[test]
    fn a_library_other_than_open_mpi_gives_nothing() {
        let libc = SharedLibrary::open(std::path::Path::new("libc.so.6")).unwrap();
        assert_eq!(of_open_mpi(&libc, false), OpenMpiChoice::default());
        assert_eq!(variables(&libc), None);
    }
}
