//! Variables of GPU runtimes and of NCCL and RCCL that are set: whether the files of the library hold the name. A
//! library cannot ask for a variable whose name it does not hold.

use std::collections::BTreeSet;

use pathline_schema::misspelt_name;

use crate::advice::{Advice, AdviceVerdict, untried_setting};
use crate::arm::ArmEnv;

/// A library with fewer names than this hides them, or is none that reads such variables: ROCr 5.2 holds 36 that
/// begin with `HSA_` or `ROCR_`, HIP 5.2 187, NCCL 2.27 196.
const FEWEST_NAMES: usize = 8;

/// A library that reads variables of one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamingLibrary {
    /// NCCL or RCCL. Their plugins and frameworks read further ones: PyTorch `NCCL_BLOCKING_WAIT`, a network plugin
    /// `NCCL_IBEXT_DISABLE`.
    Collectives,
    /// ROCr, the HSA runtime, which nothing extends.
    Rocr,
    /// HIP. Compilers and tools read further variables of these families.
    Hip,
}

impl NamingLibrary {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Collectives, Self::Rocr, Self::Hip];

    /// How the names of its variables begin.
    pub const fn prefixes(self) -> &'static [&'static str] {
        match self {
            Self::Collectives => &["NCCL_", "RCCL_"],
            Self::Rocr => &["HSA_", "ROCR_"],
            Self::Hip => &["HIP_", "GPU_", "AMD_"],
        }
    }

    /// The one that reads a variable of this name, if the name is one of a setting.
    fn of_setting(name: &str) -> Option<(Self, &'static str, &str)> {
        Self::ALL.into_iter().find_map(|library| {
            let of = |prefix: &&'static str| Some((library, *prefix, name.strip_prefix(*prefix)?));
            library.prefixes().iter().find_map(of)
        })
    }

    /// Whether only the library itself reads such names.
    const fn is_alone(self) -> bool {
        matches!(self, Self::Rocr)
    }
}

/// Whether any of these variables is of a library whose files tell its names.
pub fn has_naming_library(variables: &ArmEnv, library: NamingLibrary) -> bool {
    variables
        .keys()
        .any(|name| NamingLibrary::of_setting(name).is_some_and(|(reader, ..)| reader == library))
}

/// Says that a variable cannot act, as `file` and what it needs hold these names of `library` and not that one.
/// `None` if they hold it, if something else may read it, or if the file holds too few names to tell. `is_used`
/// says whether what is measured uses this very file: a command may bring another version, and then only
/// misspellings are named.
pub fn judge_setting_name(
    (name, value): (&str, &str),
    library: NamingLibrary,
    file: &str,
    names: &BTreeSet<String>,
    is_used: bool,
) -> Option<Advice> {
    let (reader, prefix, rest) = NamingLibrary::of_setting(name)?;
    let is_of_library =
        |held: &&String| library.prefixes().iter().any(|prefix| held.starts_with(prefix));
    if reader != library
        || names.contains(name)
        || names.iter().filter(is_of_library).count() < FEWEST_NAMES
    {
        return None;
    }
    let near = misspelt_name(rest, names.iter().filter_map(|held| held.strip_prefix(prefix)));
    let near = match near {
        Some(near) => format!("; did you mean {prefix}{near}?"),
        None if library.is_alone() && is_used => String::new(),
        None => return None,
    };
    let why = format!("the library has no variable of this name{near} ({file})");
    Some(untried_setting(name, value, AdviceVerdict::Ignored, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(name: &str, library: NamingLibrary, names: &[&str]) -> Option<String> {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let advice = judge_setting_name((name, "1"), library, "/lib/libx.so", &names, true)?;
        assert_eq!(advice.verdict, AdviceVerdict::Ignored);
        Some(advice.reason)
    }

    const NCCL: &[&str] = &[
        "NCCL_ALGO",
        "NCCL_PROTO",
        "NCCL_P2P_DISABLE",
        "NCCL_P2P_LEVEL",
        "NCCL_IB_DISABLE",
        "NCCL_IB_HCA",
        "NCCL_NTHREADS",
        "NCCL_COMM_BLOCKING",
        "NCCL_MIN_NCHANNELS",
    ];
    const ROCR: &[&str] = &[
        "HSA_XNACK",
        "HSA_ENABLE_SDMA",
        "HSA_ENABLE_DEBUG",
        "HSA_TOOLS_LIB",
        "HSA_CU_MASK",
        "HSA_SCRATCH_MEM",
        "HSA_CHECK_FLAT_SCRATCH",
        "ROCR_VISIBLE_DEVICES",
    ];

    #[test]
    fn misspelt_names_are_named_and_names_of_others_are_left_to_trials() {
        let nccl = |name| reason(name, NamingLibrary::Collectives, NCCL);
        assert_eq!(
            nccl("NCCL_P2P_DISABEL").unwrap(),
            "the library has no variable of this name; did you mean NCCL_P2P_DISABLE? (/lib/libx.so)"
        );
        assert!(nccl("NCCL_MIN_CHANNELS").unwrap().contains("NCCL_MIN_NCHANNELS?"));
        // Names that it holds, of a plugin, of PyTorch, and of another library.
        for name in [
            "NCCL_ALGO",
            "NCCL_IBEXT_DISABLE",
            "NCCL_BLOCKING_WAIT",
            "HSA_XNACK",
            "RCCL_MSCCL_ENABLE",
        ] {
            assert_eq!(nccl(name), None, "{name}");
        }
        // A library with so few names does not tell.
        assert_eq!(reason("NCCL_P2P_DISABEL", NamingLibrary::Collectives, &NCCL[..7]), None);
    }

    #[test]
    fn a_variable_asks_for_the_names_of_its_own_library_only() {
        let has = |name: &str, library| {
            has_naming_library(&[(name.to_owned(), "1".to_owned())].into(), library)
        };
        use NamingLibrary::{Collectives, Rocr};
        assert!(has("NCCL_ALGO", Collectives) && !has("NCCL_ALGO", Rocr));
        assert!(has("HSA_XNACK", Rocr) && !has("HSA_XNACK", Collectives));
        // PATH is of no library.
        assert!(!has("PATH", Collectives) && !has("PATH", Rocr));
    }

    #[test]
    fn a_name_that_this_version_of_rocr_lacks_is_ignored() {
        let rocr = |name| reason(name, NamingLibrary::Rocr, ROCR);
        // ROCr 5.2 does not have it.
        assert_eq!(
            rocr("HSA_ENABLE_PEER_SDMA").unwrap(),
            "the library has no variable of this name (/lib/libx.so)"
        );
        assert!(rocr("HSA_XNAK").unwrap().contains("did you mean HSA_XNACK?"));
        assert_eq!(rocr("HSA_ENABLE_SDMA"), None);
        // A command may use a ROCr that has it.
        let names: BTreeSet<String> = ROCR.iter().map(|&name| name.to_owned()).collect();
        let by_command = |name| {
            judge_setting_name((name, "0"), NamingLibrary::Rocr, "/lib/libx.so", &names, false)
        };
        assert!(by_command("HSA_ENABLE_PEER_SDMA").is_none() && by_command("HSA_XNAK").is_some());
        assert_eq!(reason("GPU_MAX_HW_QUEUE", NamingLibrary::Rocr, ROCR), None);
    }
}
