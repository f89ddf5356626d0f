//! Variables of MPI libraries that are set: whether the library has them, takes their value, and reads it as it was
//! meant.

use pathline_schema::{MpiBrand, MpiControls, MpiVariable, nearest_name};

use crate::advice::{Advice, AdviceVerdict, untried_setting};
use crate::arm::ArmEnv;
use crate::setting_table::cray_names;

/// The most values that an answer lists.
const MAX_VALUES: usize = 16;
/// Without it, Open MPI decides on the algorithms of `tuned` by its own rules, whatever else is set. Source:
/// ompi/mca/coll/tuned of Open MPI 4.1 and 5.0, as the descriptions of those variables say.
pub(crate) const DYNAMIC_RULES: &str = "OMPI_MCA_coll_tuned_use_dynamic_rules";

/// Frameworks of Open MPI's launcher: they place and start processes, and are no variables of its library. Source:
/// the folders orte/mca of Open MPI 4.1 and src/mca of PRRTE 3.0.
const LAUNCHER_FRAMEWORKS: [&str; 16] = [
    "orte", "prte", "ess", "plm", "rmaps", "ras", "odls", "oob", "rml", "routed", "grpcomm", "iof",
    "state", "errmgr", "filem", "schizo",
];

/// Whether a variable is one of an MPI library itself, by its name; not of its launcher.
pub fn is_mpi_setting(name: &str) -> bool {
    readers(name).is_some()
}

/// Whether a variable chooses an algorithm of Open MPI's component `tuned`, or sets a part of one.
pub(crate) fn is_tuned_algorithm(name: &str) -> bool {
    name.starts_with("OMPI_MCA_coll_tuned_") && name.contains("_algorithm")
}

/// The libraries that read a name.
fn readers(name: &str) -> Option<&'static [MpiBrand]> {
    const MPICH: &[MpiBrand] = &[MpiBrand::Mpich, MpiBrand::CrayMpich, MpiBrand::IntelMpi];
    if let Some(rest) = name.strip_prefix("OMPI_MCA_") {
        let framework = rest.split('_').next().unwrap_or(rest);
        let of_library = !LAUNCHER_FRAMEWORKS.contains(&framework);
        return of_library.then_some(&[MpiBrand::OpenMpi]);
    }
    match () {
        () if name.starts_with("I_MPI_") => Some(&[MpiBrand::IntelMpi]),
        () if name.starts_with("MPIR_CVAR_") || name.starts_with("MPIR_PARAM_") => Some(MPICH),
        () if name.starts_with("MPICH_") => Some(MPICH),
        () => None,
    }
}

/// Why a script's MPI library does not read a name: it is one of another.
pub(crate) fn of_another_mpi(name: &str, brand: MpiBrand) -> Option<String> {
    let readers = readers(name).filter(|readers| !readers.contains(&brand))?;
    let names: Vec<&str> = readers.iter().map(|brand| brand.name()).take(2).collect();
    let (whose, own) = (names.join(" and "), brand.name());
    Some(format!("{name} is a variable of {whose}, and the script uses {own}"))
}

/// Whether Cray MPICH reads a name that MPI_T need not list.
fn is_of_cray(name: &str) -> bool {
    let rest = name.strip_prefix("MPICH_");
    rest.is_some_and(|rest| rest.starts_with("MPIIO_") || cray_names().any(|name| name == rest))
}

/// A library as it starts with none of the variables, with the one that is judged, and all that are set.
#[derive(Debug, Clone, Copy)]
pub struct MpiSettingReading<'a> {
    /// Without any variable of an MPI.
    pub without: &'a MpiControls,
    /// With the one alone.
    pub with: &'a MpiControls,
    /// What else is set.
    pub all: &'a ArmEnv,
}

/// What is known of a variable of an MPI library by asking the library. `None` where trials have to tell.
pub fn judge_mpi_setting(
    name: &str,
    value: &str,
    reading: &MpiSettingReading<'_>,
) -> Option<Advice> {
    let (verdict, why) = reading.judge(name, value)?;
    let MpiControls { version, path, .. } = reading.without;
    Some(untried_setting(name, value, verdict, format!("{why} ({version}, {path})")))
}

/// Why a library has no variable of this name. `None` if it has it, or that is not known.
pub fn missing_mpi_setting(name: &str, library: &MpiControls) -> Option<String> {
    let readers = readers(name)?;
    let own = library.brand.name();
    if !readers.contains(&library.brand) {
        let names: Vec<&str> = readers.iter().map(|brand| brand.name()).take(2).collect();
        let whose = names.join(" and ");
        return Some(format!("{name} is a variable of {whose}, and the MPI library here is {own}"));
    }
    if library.refused.is_some() || library.variable(name).is_some() || name.starts_with("I_MPI_") {
        return None;
    }
    let of_cray = is_of_cray(name);
    match library.brand {
        MpiBrand::CrayMpich if of_cray => return None,
        MpiBrand::Mpich if of_cray => {
            return Some(format!("{name} is a variable of Cray MPICH, and this is {own}"));
        }
        _ => {}
    }
    let near = library.nearest(name).or_else(|| near_cray_name(name, library.brand));
    let near = match near {
        Some(near) => format!("; did you mean {near}?"),
        // Names that are in neither list may be newer than the list.
        None if library.brand == MpiBrand::CrayMpich && name.starts_with("MPICH_") => return None,
        None => String::new(),
    };
    Some(format!("this build of {own} has no variable of this name{near}"))
}

fn near_cray_name(name: &str, brand: MpiBrand) -> Option<String> {
    let rest = name.strip_prefix("MPICH_").filter(|_| brand == MpiBrand::CrayMpich)?;
    nearest_name(rest, cray_names()).map(|near| format!("MPICH_{near}"))
}

impl MpiSettingReading<'_> {
    fn judge(&self, name: &str, value: &str) -> Option<(AdviceVerdict, String)> {
        if let Some(why) = missing_mpi_setting(name, self.without) {
            return Some((AdviceVerdict::Ignored, why));
        }
        let before = self.without.variable(name)?;
        if let Some(why) = &self.with.refused {
            let why = format!("MPI does not start with this value: {why}{}", values_text(before));
            return Some((AdviceVerdict::Remove, why));
        }
        let Some(after) = self.with.variable(name) else {
            let why =
                format!("the library drops the variable with this value{}", values_text(before));
            return Some((AdviceVerdict::Ignored, why));
        };
        let same = after.value == before.value;
        match (after.is_set_to(value), same) {
            (Some(false), true) => {
                let stays = before.value_text();
                let why = format!("the library does not take this value: it stays {stays}");
                Some((AdviceVerdict::Ignored, why + &values_text(before)))
            }
            (Some(false), false) => {
                let why = format!("the library reads '{value}' as {}", after.value_text());
                Some((AdviceVerdict::Remove, why))
            }
            (_, true) => {
                let why = "it is the value that the library has without it".to_owned();
                Some((AdviceVerdict::Remove, why))
            }
            (_, false) => self.lacks_rules(name).then(|| {
                let why = format!(
                    "without {DYNAMIC_RULES}=1 Open MPI chooses this algorithm by its own rules"
                );
                (AdviceVerdict::Ignored, why)
            }),
        }
    }

    /// Whether an algorithm is named that is not asked for.
    fn lacks_rules(&self, name: &str) -> bool {
        let is_on = |value: &str| !matches!(value, "" | "0" | "false" | "no");
        let set = self.all.get(DYNAMIC_RULES).map(String::as_str);
        let usual = self.without.variable(DYNAMIC_RULES).map(|variable| variable.value.as_str());
        is_tuned_algorithm(name) && !set.or(usual).is_some_and(is_on)
    }
}

/// `; it takes auto, nb, ring`, or nothing where any number goes.
fn values_text(variable: &MpiVariable) -> String {
    let all: Vec<&str> = variable.choices.iter().map(String::as_str).take(MAX_VALUES).collect();
    if all.is_empty() { String::new() } else { format!("; it takes {}", all.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library(version: &str, variables: &[(&str, &str, &[&str])]) -> MpiControls {
        let of = |(name, value, choices): &(&str, &str, &[&str])| MpiVariable {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
            choices: choices.iter().map(|&choice| choice.to_owned()).collect(),
            numbers: if name.starts_with("coll") {
                (0..choices.len() as i64).collect()
            } else {
                vec![]
            },
        };
        MpiControls {
            version: version.to_owned(),
            path: "/lib/libmpi.so".to_owned(),
            brand: MpiBrand::of_version(version),
            device: None,
            refused: None,
            has_xpmem: false,
            variables: variables.iter().map(of).collect(),
        }
    }

    fn said(
        (name, value): (&str, &str),
        without: &MpiControls,
        with: &MpiControls,
        all: &[(&str, &str)],
    ) -> Option<(AdviceVerdict, String)> {
        let all = all.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let reading = MpiSettingReading { without, with, all: &all };
        judge_mpi_setting(name, value, &reading).map(|advice| (advice.verdict, advice.reason))
    }

    const MPICH: &str = "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM";

    #[test]
    fn names_of_another_library_are_ignored() {
        let open = library("Open MPI v5.0.11", &[("pml", "", &[])]);
        let mpich = library("MPICH 4.0.2", &[(MPICH, "0", &["auto", "nb"])]);
        let (verdict, why) = said((MPICH, "nb"), &open, &open, &[]).unwrap();
        assert_eq!(verdict, AdviceVerdict::Ignored);
        assert!(why.contains("a variable of MPICH and Cray MPICH, and the MPI library here is Open MPI (Open MPI v5.0.11"), "{why}");
        let (_, why) = said(("OMPI_MCA_pml", "ucx"), &mpich, &mpich, &[]).unwrap();
        assert!(why.contains("a variable of Open MPI, and the MPI library here is MPICH"), "{why}");
        let (_, why) = said(("MPICH_OFI_NIC_POLICY", "GPU"), &mpich, &mpich, &[]).unwrap();
        assert!(why.contains("a variable of Cray MPICH, and this is MPICH"), "{why}");
        // The launcher's are not the library's.
        assert!(
            !is_mpi_setting("OMPI_MCA_rmaps_base_oversubscribe") && is_mpi_setting("OMPI_MCA_btl")
        );
        let cray = library("CRAY MPICH version 8.1.25.17", &[]);
        assert_eq!(said(("MPICH_OFI_NIC_POLICY", "GPU"), &cray, &cray, &[]), None);
        let (_, why) = said(("MPICH_OFI_NIC_POLCY", "GPU"), &cray, &cray, &[]).unwrap();
        assert!(why.contains("did you mean MPICH_OFI_NIC_POLICY?"), "{why}");
        assert_eq!(said(("MPICH_SOMETHING_NEWER_THAN_THIS", "1"), &cray, &cray, &[]), None);
    }

    #[test]
    fn misspelt_names_and_values_are_named() {
        let choices = &["auto", "nb", "recursive_doubling"][..];
        let plain = library("MPICH 5.0.2", &[(MPICH, "0", choices)]);
        let (verdict, why) =
            said(("MPIR_CVAR_ALLREDUCE_INTRA_ALGORTHM", "nb"), &plain, &plain, &[]).unwrap();
        assert_eq!(verdict, AdviceVerdict::Ignored);
        assert!(why.contains(&format!("did you mean {MPICH}?")), "{why}");
        let refused = MpiControls {
            refused: Some("MPI_T_init_thread returns 15".to_owned()),
            variables: Vec::new(),
            ..plain.clone()
        };
        let (verdict, why) = said((MPICH, "foo"), &plain, &refused, &[]).unwrap();
        assert_eq!(verdict, AdviceVerdict::Remove);
        assert!(
            why.contains("does not start with this value")
                && why.contains("takes auto, nb, recursive_doubling"),
            "{why}"
        );
        // A name that is read as another number acts; one with the same number is the default.
        let set = library("MPICH 5.0.2", &[(MPICH, "3", choices)]);
        assert_eq!(said((MPICH, "recursive_doubling"), &plain, &set, &[]), None);
        let (verdict, why) = said((MPICH, "auto"), &plain, &plain, &[]).unwrap();
        assert!(
            verdict == AdviceVerdict::Remove && why.starts_with("it is the value that"),
            "{why}"
        );
    }

    #[test]
    fn numbers_that_are_read_as_others_are_named() {
        let limit =
            |value: &str| library("Open MPI v5.0.11", &[("btl_sm_eager_limit", value, &[])]);
        let of = |asked: &str, read: &str| {
            said(("OMPI_MCA_btl_sm_eager_limit", asked), &limit("4096"), &limit(read), &[])
        };
        // What Open MPI 5.0.11 makes of them.
        let (verdict, why) = of("zzz", "0").unwrap();
        assert!(
            verdict == AdviceVerdict::Remove && why.starts_with("the library reads 'zzz' as 0"),
            "{why}"
        );
        let (_, why) = of("-5", "18446744073709551611").unwrap();
        assert!(why.contains("reads '-5' as 18446744073709551611"), "{why}");
        assert_eq!(of("64K", "65536"), None);
        assert_eq!(of("4096", "4096").map(|(verdict, _)| verdict), Some(AdviceVerdict::Remove));
    }

    #[test]
    fn algorithms_without_dynamic_rules_are_ignored() {
        let of = |value: &str| {
            let algorithm =
                ("coll_tuned_bcast_algorithm", value, &["ignore", "linear", "chain"][..]);
            let rules = ("coll_tuned_use_dynamic_rules", "0", &["false", "true"][..]);
            library("Open MPI v5.0.11", &[algorithm, rules])
        };
        let asked = ("OMPI_MCA_coll_tuned_bcast_algorithm", "chain");
        let (verdict, why) = said(asked, &of("0"), &of("2"), &[]).unwrap();
        assert!(verdict == AdviceVerdict::Ignored && why.contains("by its own rules"), "{why}");
        assert_eq!(said(asked, &of("0"), &of("2"), &[(DYNAMIC_RULES, "1")]), None);
        let (verdict, why) = said((asked.0, "foo"), &of("0"), &of("0"), &[])
            .unwrap_or((AdviceVerdict::Keep, String::new()));
        assert!(
            verdict == AdviceVerdict::Ignored
                && why.contains("stays 0 (ignore); it takes ignore, linear, chain"),
            "{why}"
        );
    }

    #[test]
    fn a_name_belongs_to_the_libraries_that_read_it() {
        let mpich = "Some([Mpich, CrayMpich, IntelMpi])";
        for (name, expected) in [
            ("OMPI_MCA_pml", "Some([OpenMpi])"),
            ("OMPI_MCA_coll_tuned_priority", "Some([OpenMpi])"),
            ("OMPI_MCA_plm_rsh_agent", "None"),
            ("I_MPI_FABRICS", "Some([IntelMpi])"),
            ("MPIR_CVAR_CH4_OFI", mpich),
            ("MPIR_PARAM_CH4", mpich),
            ("MPICH_GPU_SUPPORT_ENABLED", mpich),
            ("MY_MPIR_CVAR_X", "None"),
            ("MY_MPIR_PARAM_", "None"),
            ("NCCL_ALGO", "None"),
        ] {
            assert_eq!(format!("{:?}", readers(name)), expected, "{name}");
        }
        let [mpich, cray, own] =
            [MpiBrand::Mpich, MpiBrand::CrayMpich, MpiBrand::OpenMpi].map(|brand| brand.name());
        let text =
            format!("MPICH_X is a variable of {mpich} and {cray}, and the script uses {own}");
        assert_eq!(of_another_mpi("MPICH_X", MpiBrand::OpenMpi), Some(text));
        assert_eq!(of_another_mpi("MPICH_X", MpiBrand::Mpich), None);
        for (name, expected) in [
            ("MPICH_MPIIO_HINTS", true),
            ("MPICH_X_MPIIO_", false),
            ("MPICH_GPU_SUPPORT_ENABLED", true),
            ("MPICH_NEVER_HEARD_OF", false),
            ("OMPI_MCA_MPIIO_", false),
        ] {
            assert_eq!(is_of_cray(name), expected, "{name}");
        }
    }
}
