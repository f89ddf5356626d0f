//! The components by which Open MPI runs collectives. It takes each operation from the component of
//! highest priority that has it for a communicator, and reports the result by no standard call. The
//! priorities are control variables of MPI_T.
//!
//! Source: Open MPI 5.0, ompi/mca/coll/base/coll_base_comm_select.c and the query functions of the
//! components.

use std::path::Path;

use pathline_dylib::SharedLibrary;

/// Components that have no blocking collective of a communicator of several processes: for one process, for
/// two groups, for agreement after faults, for measurement, barriers around others, non-blocking calls.
const OTHERS: &[&str] = &["self", "inter", "ftagree", "monitoring", "sync", "libnbc"];
/// The component for processes of several hosts only.
const SEVERAL_HOSTS: &str = "han";
/// Components of other libraries, and the variable without which the first takes no part.
const UCC: &str = "ucc";
const UCC_ENABLE: &str = "coll_ucc_enable";
const HCOLL_ENABLE: &str = "coll_hcoll_enable";

/// Whether the value of a control variable is of interest here.
pub(super) fn is_setting(name: &str) -> bool {
    name.starts_with("coll_") && (name.ends_with("_priority") || name.ends_with("_enable"))
}

/// The components that run collectives, highest priority first: `coll tuned (30), basic (10)`. `settings`
/// are control variables with their values. `None` if there are none.
pub(super) fn describe(settings: &[(String, i64)], several_hosts: bool) -> Option<String> {
    let value = |name: &str| settings.iter().find(|(n, _)| n == name).map(|(_, value)| *value);
    let is_off = |component: &str| match component {
        UCC => value(UCC_ENABLE) != Some(1),
        "hcoll" => value(HCOLL_ENABLE) == Some(0),
        SEVERAL_HOSTS => !several_hosts,
        other => OTHERS.contains(&other),
    };
    let component = |name: &str| -> Option<String> {
        let name = name.strip_prefix("coll_")?.strip_suffix("_priority")?;
        (!name.contains('_')).then(|| name.to_owned())
    };
    let mut all: Vec<(i64, String)> = settings
        .iter()
        .filter_map(|(name, priority)| Some((*priority, component(name)?)))
        .filter(|(priority, name)| *priority > 0 && !is_off(name))
        .collect();
    all.sort_by_key(|(priority, _)| std::cmp::Reverse(*priority));
    let list: Vec<String> =
        all.iter().map(|(priority, name)| format!("{name} ({priority})")).collect();
    (!list.is_empty()).then(|| format!("coll {}", list.join(", ")))
}

/// Whether this Open MPI can run collectives by UCC, as a line for `doctor`. `has` finds a symbol of its
/// library.
pub(super) fn ucc_note(library: &Path, has: &dyn Fn(&str) -> bool) -> String {
    let plugin = library.parent().map(|folder| folder.join("openmpi/mca_coll_ucc.so"));
    let is_built = has("mca_coll_ucc_component") || plugin.is_some_and(|file| file.exists());
    match is_built {
        true => "UCC: this build runs collectives by it with OMPI_MCA_coll_ucc_enable=1 \
                 OMPI_MCA_coll_ucc_priority=100"
            .to_owned(),
        false => {
            "UCC: this build has no component for it (configure --with-ucc): collectives run by \
                  Open MPI's own"
                .to_owned()
        }
    }
}

/// The same of an open library.
pub(super) fn ucc_note_of(library: &SharedLibrary) -> String {
    ucc_note(&library.path, &|name| library.symbol(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The defaults of Open MPI 5.0.11.
    fn usual() -> Vec<(String, i64)> {
        let all = [
            ("adapt", 0),
            ("basic", 10),
            ("han", 35),
            ("inter", 40),
            ("libnbc", 10),
            ("self", 75),
            ("sync", 50),
            ("tuned", 30),
            ("ftagree", 30),
            ("sm", 0),
        ];
        all.map(|(name, priority)| (format!("coll_{name}_priority"), priority)).to_vec()
    }

    #[test]
    fn the_component_of_highest_priority_comes_first() {
        let one = describe(&usual(), false);
        assert_eq!(one.as_deref(), Some("coll tuned (30), basic (10)"));
        let several = describe(&usual(), true);
        assert_eq!(several.as_deref(), Some("coll han (35), tuned (30), basic (10)"));
        // A build with UCC has its component off until it is turned on.
        let ucc = |enable| {
            let more = [("coll_ucc_priority".to_owned(), 100), (UCC_ENABLE.to_owned(), enable)];
            describe(&[usual(), more.to_vec()].concat(), false).unwrap_or_default()
        };
        assert_eq!(ucc(0), "coll tuned (30), basic (10)");
        assert_eq!(ucc(1), "coll ucc (100), tuned (30), basic (10)");
        assert_eq!(describe(&[], false), None);
    }

    #[test]
    fn a_build_without_ucc_says_so() {
        let library = Path::new("/opt/none/lib/libmpi.so.40");
        assert!(ucc_note(library, &|_| false).contains("no component"));
        let has = |name: &str| name == "mca_coll_ucc_component";
        assert!(ucc_note(library, &has).contains("OMPI_MCA_coll_ucc_enable=1"));
    }
}
