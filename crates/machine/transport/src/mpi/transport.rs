//! The transport of an MPI library's messages, as far as the library reports it.
//!
//! MPICH and its derivatives name their device in the version text. Open MPI chooses a messaging
//! component in `MPI_Init` and reports it by no standard call: the component is a symbol of the
//! library, and starts with the common component header. Of the transports below it, only open ones
//! keep their variables, which MPI_T lists.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int};

use pathline_dylib::SharedLibrary;

use super::abi::MpiAbi;
use super::collective_components;
use super::tool_variables::{ReadDepth, list_variables};

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
    let depth = |name: &str| match collective_components::is_setting(name) {
        true => ReadDepth::Value,
        false => ReadDepth::Name,
    };
    let listed = list_variables(library, MpiAbi::OpenMpi, &depth).ok()?;
    Some(listed.into_iter().map(|v| (v.name, v.value.parse().ok())).collect())
}

#[cfg(test)]
mod tests {
    use super::super::abi::device_text;
    use super::*;

    #[test]
    fn a_device_is_named_in_the_text_of_a_version() {
        let text = "MPICH Version:      5.0.2\nMPICH Device:       ch4:ofi\nMPICH configure:    -x";
        assert_eq!(device_text(text).as_deref(), Some("device ch4:ofi"));
        assert_eq!(device_text("Intel(R) MPI Library 2021.18 for Linux* OS"), None);
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
