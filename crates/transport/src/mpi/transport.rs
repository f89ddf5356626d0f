//! The transport of an MPI library's messages, as far as the library reports it.
//!
//! MPICH and its derivatives name their device in the version text. Open MPI chooses a messaging
//! component in `MPI_Init` and reports it by no standard call: the component is a symbol of the
//! library, and starts with the common component header. Of the transports below it, only open ones
//! keep their variables, which MPI_T lists.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int, c_void};

use pathline_dylib::SharedLibrary;

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

/// The choice of Open MPI: `pml ob1 over one of btl self, tcp, vader`. Valid after `MPI_Init`.
pub(super) fn of_open_mpi(library: &SharedLibrary) -> Option<String> {
    let pml = messages(library)?;
    let open = components(&variables(library).unwrap_or_default());
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
    Some(text)
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

/// The names of all valid control variables.
fn variables(library: &SharedLibrary) -> Option<Vec<String>> {
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
    let mut names = Vec::new();
    for nth in 0..all {
        let mut name = [0_u8; 256];
        let (mut length, mut none) = (name.len() as c_int, 0);
        let (mut verbosity, mut bind, mut scope) = (0, 0, 0);
        let (mut datatype, mut values) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the name has room for `length` bytes; no description is asked for, by a length of
        // 0; numbers and handles live through the call.
        let code = unsafe {
            about(
                nth,
                name.as_mut_ptr().cast(),
                &raw mut length,
                &raw mut verbosity,
                &raw mut datatype,
                &raw mut values,
                std::ptr::null_mut(),
                &raw mut none,
                &raw mut bind,
                &raw mut scope,
            )
        };
        let text = name.split(|&b| b == 0).next().unwrap_or_default();
        // A variable of a closed component has a number and is not valid.
        names.extend((code == 0).then(|| String::from_utf8_lossy(text).into_owned()));
    }
    // SAFETY: begun above, ended once.
    unsafe { end() };
    Some(names)
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
        assert_eq!(of_open_mpi(&libc), None);
        assert_eq!(variables(&libc), None);
    }
}
