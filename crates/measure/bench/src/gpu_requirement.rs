//! Whether a run succeeds although its GPUs cannot be used.

use pathline_schema::{RunNote, WorldKind};

use crate::executor::MachineInfo;
use crate::needs::needs_runtime;
use crate::plan::RunPlan;

/// The GPUs that a run must have to succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GpuRequirement {
    /// The GPUs that discovery finds, unless the named suites and cases need none.
    #[default]
    Discovered,
    /// A GPU, even where discovery finds none.
    Always,
    /// None.
    Never,
}

impl GpuRequirement {
    /// The note that a run needs GPUs and cannot use any, with the reason and the remedy; `None` if
    /// it can, or needs none. `named` is whether suites or cases were selected by name.
    pub fn unmet(self, about: &MachineInfo, plan: &RunPlan, named: bool) -> Option<RunNote> {
        let why = about.without.as_deref();
        let gpus = &about.topology.gpus;
        let needed = || !named || plan.entries.iter().any(|entry| needs_runtime(&entry.case));
        let required = match self {
            Self::Never => false,
            Self::Always => why.is_some() || gpus.is_empty(),
            Self::Discovered => {
                let real = about.world == WorldKind::Real;
                real && why.is_some() && !gpus.is_empty() && needed()
            }
        };
        let way_out = "`pathline doctor` shows what is missing; with --require host a run of the host \
                       alone is fine";
        let why = why.map_or(String::new(), |why| format!(": {why}"));
        let text = match gpus.as_slice() {
            [] => format!("--require gpus, and no GPU is on the bus{why}. {way_out}."),
            [one] => format!("The GPU on the bus ({}) cannot be used{why}. {way_out}.", one.pci),
            [first, .., last] => format!(
                "None of the {} GPUs on the bus ({} to {}) can be used{why}. {way_out}.",
                gpus.len(),
                first.pci,
                last.pci
            ),
        };
        let (code, subject) = (RunNote::GPUS_UNUSABLE.to_owned(), "gpus".to_owned());
        required.then_some(RunNote { code, subject, text })
    }
}
