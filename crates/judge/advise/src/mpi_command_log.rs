//! The list of variables that a command's MPI prints once it has read them: Open MPI lists all with their source,
//! Cray MPICH its Cray variables. Plain MPICH prints no list.

use std::collections::BTreeMap;

use pathline_schema::{MpiBrand, MpiControls, MpiVariable};

use crate::arm::ArmEnv;
use crate::mpi_names::{DYNAMIC_RULES, is_mpi_setting, is_tuned_algorithm, missing_mpi_setting};

/// The variable that makes Open MPI print its list in `MPI_Init`, which is part of that list. Source: ompi_info
/// --all of Open MPI 4.1 and 5.0.
const OPEN_MPI_LIST: &str = "mpi_show_mca_params";
/// The same of Cray MPICH. Source: intro_mpi(3).
const CRAY_LIST: &str = "MPICH_ENV_DISPLAY";

/// Variables of an MPI in what a command printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MpiCommandLog {
    /// Of Open MPI: values, and whether they are its own.
    listed: BTreeMap<String, (String, bool)>,
    /// Of Cray MPICH.
    displayed: BTreeMap<String, String>,
}

impl MpiCommandLog {
    /// Variables with which a command prints such a list.
    pub fn variables() -> ArmEnv {
        let all = [(format!("OMPI_MCA_{OPEN_MPI_LIST}"), "all"), (CRAY_LIST.to_owned(), "1")];
        all.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
    }

    /// Whether a list can show anything of these settings: all are variables of an MPI, and set.
    pub fn shows(settings: &ArmEnv) -> bool {
        let is_set = |(name, value): (&String, &String)| is_mpi_setting(name) && !value.is_empty();
        !settings.is_empty() && settings.iter().all(is_set)
    }

    /// Reads what a command printed.
    pub fn read(text: &str) -> Self {
        let mut log = Self::default();
        for line in text.lines() {
            // `[node1:4711] btl_sm_eager_limit=65536 (environment)`
            if let Some((name, value, source)) = open_mpi_line(line) {
                let own = source == "default";
                log.listed.insert(name.to_owned(), (value.to_owned(), own));
            // `PE 0:   MPICH_GPU_IPC_THRESHOLD   = 1024`
            } else if let Some((_, rest)) = line.split_once("PE 0:")
                && let Some((name, value)) = rest.split_once('=')
            {
                let (name, value) = (name.trim(), value.trim());
                log.displayed.insert(name.to_owned(), value.to_owned());
            }
        }
        log
    }

    /// What the command's MPI has read of settings, or why they do not act. `library` is the MPI of this host, whose
    /// list of names is used if the command has the same. `None` if nothing shows it.
    pub fn judge(
        &self,
        settings: &ArmEnv,
        library: Option<&MpiControls>,
    ) -> Option<Result<String, String>> {
        let brand = match () {
            () if self.listed.contains_key(OPEN_MPI_LIST) => MpiBrand::OpenMpi,
            () if self.displayed.contains_key(CRAY_LIST) => MpiBrand::CrayMpich,
            () => return None,
        };
        let mut shown = Vec::new();
        for (name, asked) in settings {
            let Some(control) = brand.control_variable(name) else {
                let brand = brand.name();
                return Some(Err(format!("the command runs {brand}, which does not read {name}")));
            };
            let (value, is_read) = match brand {
                MpiBrand::OpenMpi => match self.listed.get(&control) {
                    Some((value, own)) => (value, !own && !is_other(value, asked)),
                    // Components that are not chosen are left out of the list.
                    None => {
                        let library = library.filter(|library| library.brand == brand);
                        return library
                            .and_then(|library| missing_mpi_setting(name, library))
                            .map(Err);
                    }
                },
                _ => match self.displayed.get(name) {
                    Some(value) => (value, value.eq_ignore_ascii_case(asked)),
                    None => return None,
                },
            };
            if !is_read {
                return Some(Err(format!("the library's list has {name} as {value}, not as set")));
            }
            if is_tuned_algorithm(name) && self.lacks_rules() {
                let why = format!("without {DYNAMIC_RULES}=1 Open MPI chooses by its own rules");
                return Some(Err(why));
            }
            shown.push(format!("{name} read as {value}"));
        }
        Some(Ok(shown.join(", ")))
    }

    fn lacks_rules(&self) -> bool {
        let name = MpiBrand::OpenMpi.control_variable(DYNAMIC_RULES);
        let listed = name.and_then(|name| self.listed.get(&name));
        listed.is_some_and(|(value, _)| value == "false")
    }
}

/// Whether a listed value is another one than was asked for. The list has names of choices and of switches, for
/// which their numbers may have been asked; and it names the environment as the source of values that were refused.
fn is_other(value: &str, asked: &str) -> bool {
    let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let is_name_of_number = is_number(asked) && !is_number(value);
    let (choices, numbers) = (Vec::new(), Vec::new());
    let listed = MpiVariable { name: String::new(), value: value.to_owned(), choices, numbers };
    let differs = listed.is_set_to(asked) == Some(false);
    differs && !is_name_of_number && !matches!(value, "true" | "false")
}

fn open_mpi_line(line: &str) -> Option<(&str, &str, &str)> {
    let (_, rest) = line.strip_prefix('[')?.split_once("] ")?;
    let (setting, source) = rest.strip_suffix(')')?.rsplit_once(" (")?;
    let (name, value) = setting.split_once('=')?;
    Some((name, value, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(text: &str, set: &[(&str, &str)]) -> Option<Result<String, String>> {
        let variable = MpiVariable {
            name: "pml_ucx_tls".to_owned(),
            value: String::new(),
            choices: Vec::new(),
            numbers: Vec::new(),
        };
        let library = MpiControls {
            version: "Open MPI v5.0.11".to_owned(),
            path: "/lib/libmpi.so.40".to_owned(),
            brand: MpiBrand::OpenMpi,
            device: None,
            refused: None,
            has_xpmem: false,
            variables: vec![variable],
        };
        let set: ArmEnv = set.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        assert!(MpiCommandLog::shows(&set));
        MpiCommandLog::read(text).judge(&set, Some(&library))
    }

    /// As Open MPI 5.0.11 prints it, next to the application's own lines.
    const OPEN_MPI: &str = "[vm:1] mpi_show_mca_params=all (environment)\nrate 5\n\
                            [vm:1] btl_sm_eager_limit=65536 (environment)\n\
                            [vm:1] coll_tuned_use_dynamic_rules=false (default)\n\
                            [vm:1] coll_tuned_bcast_algorithm=ring (environment)\n\
                            [vm:1] coll_tuned_allreduce_algorithm=ignore (environment)\n";

    #[test]
    fn open_mpi_lists_what_it_has_read() {
        let eager = ("OMPI_MCA_btl_sm_eager_limit", "64K");
        let read = judge(OPEN_MPI, &[eager]);
        assert_eq!(read, Some(Ok("OMPI_MCA_btl_sm_eager_limit read as 65536".to_owned())));
        let why = judge(OPEN_MPI, &[eager, ("OMPI_MCA_coll_tuned_allreduce_algorithm", "foo")]);
        assert!(why.unwrap().unwrap_err().contains("allreduce_algorithm as ignore, not as set"));
        // Names and numbers of a choice may be asked; without dynamic rules neither acts.
        for asked in ["ring", "4"] {
            let why = judge(OPEN_MPI, &[("OMPI_MCA_coll_tuned_bcast_algorithm", asked)]);
            assert!(why.unwrap().unwrap_err().contains("by its own rules"), "{asked}");
        }
        let why = judge(OPEN_MPI, &[("MPIR_CVAR_CH4_CMA_ENABLE", "1")]).unwrap().unwrap_err();
        assert_eq!(why, "the command runs Open MPI, which does not read MPIR_CVAR_CH4_CMA_ENABLE");
        // Neither in the list nor a variable of this host's library; the latter alone decides nothing.
        let why = judge(OPEN_MPI, &[("OMPI_MCA_pml_ucx_tsl", "any")]).unwrap().unwrap_err();
        assert!(why.contains("did you mean OMPI_MCA_pml_ucx_tls?"), "{why}");
        assert_eq!(judge(OPEN_MPI, &[("OMPI_MCA_pml_ucx_tls", "any")]), None);
        // A command that has no MPI, or plain MPICH.
        assert_eq!(judge("rate 5\n", &[eager]), None);
    }

    #[test]
    fn cray_mpich_displays_its_own() {
        let text = "PE 0: MPICH environment settings ====\n\
                    PE 0:   MPICH_ENV_DISPLAY                              = 1\n\
                    PE 0:   MPICH_SMP_SINGLE_COPY_MODE                     = XPMEM\n";
        let of = |value: &str| judge(text, &[("MPICH_SMP_SINGLE_COPY_MODE", value)]).unwrap();
        assert_eq!(of("xpmem"), Ok("MPICH_SMP_SINGLE_COPY_MODE read as XPMEM".to_owned()));
        assert!(of("CMA").unwrap_err().contains("as XPMEM, not as set"));
        assert_eq!(judge(text, &[("MPICH_GPU_IPC_THRESHOLD", "1")]), None);
        let why = judge(text, &[("OMPI_MCA_pml", "ucx")]).unwrap().unwrap_err();
        assert!(why.starts_with("the command runs Cray MPICH"), "{why}");
    }

    #[test]
    fn only_settings_of_an_mpi_are_looked_for() {
        let set = |names: &[&str]| -> ArmEnv {
            names.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect()
        };
        assert!(MpiCommandLog::shows(&set(&["OMPI_MCA_btl", "MPIR_CVAR_X"])));
        for others in [&[][..], &["OMPI_MCA_btl", "OMP_NUM_THREADS"], &["NCCL_ALGO"]] {
            assert!(!MpiCommandLog::shows(&set(others)), "{others:?}");
        }
    }
}
