//! An MPI library and its control variables, as the tool interface of MPI (MPI_T) lists them.

use serde::{Deserialize, Serialize};

use crate::nearest_name;

/// What stands in the engine of a series before the control variables of MPI that the environment sets, with
/// the values that the library has read: `; MPI_T reads MPIR_CVAR_A=3 MPIR_CVAR_B=1`.
pub const READ_BACK: &str = "; MPI_T reads ";

/// The code base of an MPI library, which decides the names of its variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MpiBrand {
    /// MPICH, and derivatives that add no names of their own.
    Mpich,
    /// HPE Cray MPI.
    CrayMpich,
    /// Intel MPI.
    IntelMpi,
    /// Open MPI.
    OpenMpi,
}

impl MpiBrand {
    /// By a library's name and version: `Open MPI v5.0.11`, `CRAY MPICH version 8.1.25.17 (ANL base 3.4a2)`.
    pub fn of_version(version: &str) -> Self {
        let upper = version.to_uppercase();
        match () {
            () if upper.contains("OPEN MPI") => Self::OpenMpi,
            () if upper.contains("CRAY MPICH") => Self::CrayMpich,
            () if upper.starts_with("INTEL") => Self::IntelMpi,
            () => Self::Mpich,
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mpich => "MPICH",
            Self::CrayMpich => "Cray MPICH",
            Self::IntelMpi => "Intel MPI",
            Self::OpenMpi => "Open MPI",
        }
    }

    /// Beginnings of the names of the environment by which it reads its control variables. MPICH has three
    /// for each, in this order. Source: maint/extractcvars.in of MPICH 3.2 to 5.0; Open MPI, mca_base_var.c.
    pub const fn prefixes(self) -> &'static [&'static str] {
        match self {
            Self::OpenMpi => &["OMPI_MCA_"],
            Self::Mpich | Self::CrayMpich | Self::IntelMpi => {
                &["MPIR_CVAR_", "MPIR_PARAM_", "MPICH_"]
            }
        }
    }

    /// The control variable that a variable of the environment sets: `MPIR_CVAR_X` of `MPICH_X`, `btl_sm_x` of
    /// `OMPI_MCA_btl_sm_x`. `None` if this library reads no such name.
    pub fn control_variable(self, name: &str) -> Option<String> {
        let rest = self.prefixes().iter().find_map(|prefix| name.strip_prefix(prefix))?;
        Some(match self {
            Self::OpenMpi => rest.to_owned(),
            Self::Mpich | Self::CrayMpich | Self::IntelMpi => format!("MPIR_CVAR_{rest}"),
        })
    }
}

/// A control variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MpiVariable {
    /// Its name in MPI_T: `MPIR_CVAR_CH4_CMA_ENABLE`, `btl_sm_eager_limit`.
    pub name: String,
    /// Its value: a number, or a text; empty if it cannot be read.
    pub value: String,
    /// The values that it takes, by name; empty if it takes numbers or any text. MPICH 4.0 runs these names and
    /// other words together: `algorithmring` for `ring`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// The number of each of `choices`, where the library gives it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numbers: Vec<i64>,
}

impl MpiVariable {
    /// Whether it takes a value, by its name or number. `None` where it has no list.
    pub fn takes(&self, value: &str) -> Option<bool> {
        let is_number = || self.numbers.iter().any(|number| number.to_string() == value);
        let fits = |choice: &String| match self.numbers.is_empty() {
            true => choice.ends_with(value),
            false => choice == value,
        };
        let takes = || !value.is_empty() && (self.choices.iter().any(fits) || is_number());
        (!self.choices.is_empty()).then(takes)
    }

    /// Whether its value is the one that was asked for, as far as the text shows: numbers by value, names by
    /// their number. `None` for a word whose number is not known.
    pub fn is_set_to(&self, asked: &str) -> Option<bool> {
        const SWITCHES: [&str; 6] = ["true", "false", "yes", "no", "on", "off"];
        let asked = asked.trim();
        if let Some(number) = number_of(asked) {
            return Some(self.value.parse::<i128>().ok() == Some(number));
        }
        let nth = self.choices.iter().position(|choice| choice == asked);
        if let Some(number) = nth.and_then(|nth| self.numbers.get(nth)) {
            return Some(self.value == number.to_string());
        }
        if self.value.parse::<i128>().is_err() {
            return Some(self.value == asked);
        }
        // The words of several flags are joined by commas; MPICH's words have no numbers.
        let is_word = SWITCHES.contains(&asked.to_lowercase().as_str()) || asked.contains(',');
        let has_unknown = !self.choices.is_empty() && self.numbers.is_empty();
        (!is_word && !has_unknown).then_some(false)
    }

    /// Its value for readers: `4 (ring)`.
    pub fn value_text(&self) -> String {
        let number = self.value.parse::<i64>().ok();
        let nth = self.numbers.iter().position(|of| Some(*of) == number);
        match nth.and_then(|nth| self.choices.get(nth)) {
            Some(name) => format!("{} ({name})", self.value),
            None if self.value.is_empty() => "nothing".to_owned(),
            None => self.value.clone(),
        }
    }
}

/// A number as users write it; Open MPI takes the units K, M and G of 2^10. Source: opal/mca/base/mca_base_var.c.
fn number_of(text: &str) -> Option<i128> {
    let (digits, factor) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (text.get(..at)?, 1 << 10),
        (at, 'm' | 'M') => (text.get(..at)?, 1 << 20),
        (at, 'g' | 'G') => (text.get(..at)?, 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<i128>().ok().map(|number| number * factor)
}

/// An MPI library and all its control variables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MpiControls {
    /// Name and version: `MPICH 4.0.2`.
    pub version: String,
    /// Its file.
    pub path: String,
    /// Its code base.
    pub brand: MpiBrand,
    /// The device of the MPICH family: `ch4:ofi`.
    #[serde(default)]
    pub device: Option<String>,
    /// Why it lists no variables: it refuses to start with this environment, or has no MPI_T.
    #[serde(default)]
    pub refused: Option<String>,
    /// Whether this host has xpmem, by which processes attach each other's memory.
    #[serde(default)]
    pub has_xpmem: bool,
    /// In its order.
    pub variables: Vec<MpiVariable>,
}

impl MpiControls {
    /// The control variable that a variable of the environment sets.
    pub fn variable(&self, env_name: &str) -> Option<&MpiVariable> {
        let name = self.brand.control_variable(env_name)?;
        self.variables.iter().find(|variable| variable.name == name)
    }

    /// The name of the environment that a misspelt one may have meant.
    pub fn nearest(&self, env_name: &str) -> Option<String> {
        let prefix = self.brand.prefixes().iter().find(|prefix| env_name.starts_with(**prefix))?;
        let own = match self.brand {
            MpiBrand::OpenMpi => "",
            MpiBrand::Mpich | MpiBrand::CrayMpich | MpiBrand::IntelMpi => "MPIR_CVAR_",
        };
        let names = self.variables.iter().filter_map(|v| v.name.strip_prefix(own));
        let near = nearest_name(env_name.strip_prefix(prefix)?, names)?;
        Some(format!("{prefix}{near}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str, value: &str, choices: &[&str], numbers: &[i64]) -> MpiVariable {
        let choices = choices.iter().map(|&choice| choice.to_owned()).collect();
        MpiVariable { name: name.into(), value: value.into(), choices, numbers: numbers.to_vec() }
    }

    #[test]
    fn brands_read_different_names() {
        let of = MpiBrand::of_version;
        assert_eq!(of("Open MPI v5.0.11"), MpiBrand::OpenMpi);
        assert_eq!(of("CRAY MPICH version 8.1.25.17 (ANL base 3.4a2)"), MpiBrand::CrayMpich);
        assert_eq!(of("Intel(R) MPI Library 2021.18 for Linux* OS"), MpiBrand::IntelMpi);
        assert_eq!(of("MPICH 4.0.2"), MpiBrand::Mpich);
        let sets = |brand: MpiBrand, name: &str| brand.control_variable(name);
        for name in ["MPIR_CVAR_NOLOCAL", "MPICH_NOLOCAL", "MPIR_PARAM_NOLOCAL"] {
            assert_eq!(sets(MpiBrand::Mpich, name).as_deref(), Some("MPIR_CVAR_NOLOCAL"));
            assert_eq!(sets(MpiBrand::OpenMpi, name), None);
        }
        assert_eq!(sets(MpiBrand::OpenMpi, "OMPI_MCA_pml").as_deref(), Some("pml"));
        assert_eq!(sets(MpiBrand::Mpich, "OMPI_MCA_pml"), None);
    }

    #[test]
    fn a_value_is_compared_by_number_and_by_name() {
        let limit = variable("btl_sm_eager_limit", "65536", &[], &[]);
        // 64 * 2^10.
        assert_eq!([limit.is_set_to("65536"), limit.is_set_to("64K")], [Some(true); 2]);
        assert_eq!([limit.is_set_to("4096"), limit.is_set_to("zzz")], [Some(false); 2]);
        assert_eq!(variable("x", "1", &[], &[]).is_set_to("yes"), None);
        let algorithm = variable("coll_tuned_x", "4", &["linear", "ring"], &[1, 4]);
        assert_eq!(
            [algorithm.is_set_to("ring"), algorithm.is_set_to("linear")],
            [Some(true), Some(false)]
        );
        assert_eq!([algorithm.is_set_to("foo"), algorithm.is_set_to("a,b")], [Some(false), None]);
        assert_eq!(algorithm.value_text(), "4 (ring)");
        assert_eq!(
            ["ring", "4", "ing", "3"].map(|value| algorithm.takes(value) == Some(true)),
            [true, true, false, false]
        );
        // MPICH gives names without their numbers, and 4.0 without the gaps between lines.
        let glued = variable("MPIR_CVAR_X", "3", &["algorithmauto", "algorithmsmp"], &[]);
        assert_eq!([glued.takes("smp"), glued.takes("ring")], [Some(true), Some(false)]);
        assert_eq!(glued.is_set_to("smp"), None);
        assert_eq!(variable("smsc", "cma", &[], &[]).is_set_to("xpmem"), Some(false));
    }

    #[test]
    fn misspelt_names_have_a_nearest_one() {
        let variables = ["MPIR_CVAR_BCAST_INTRA_ALGORITHM", "MPIR_CVAR_CH4_CMA_ENABLE"];
        let library = MpiControls {
            version: "MPICH 4.0.2".into(),
            path: "/lib/libmpi.so.12".into(),
            brand: MpiBrand::Mpich,
            device: Some("ch4:ucx".into()),
            refused: None,
            has_xpmem: false,
            variables: variables.iter().map(|name| variable(name, "0", &[], &[])).collect(),
        };
        let near = |name: &str| library.nearest(name);
        assert_eq!(
            near("MPIR_CVAR_BCAST_INTRA_ALGORTHM").as_deref(),
            Some("MPIR_CVAR_BCAST_INTRA_ALGORITHM")
        );
        assert_eq!(near("MPICH_CH4_CMA_ENABEL").as_deref(), Some("MPICH_CH4_CMA_ENABLE"));
        assert_eq!(near("MPIR_CVAR_ASYNC_PROGRESS"), None);
        assert!(library.variable("MPICH_CH4_CMA_ENABLE").is_some());
    }
}
