//! The node behind a library: a simulated machine, and the objects made on it.

use std::collections::BTreeMap;

use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::{Driver, KernelId, Machine};
use pathline_schema::{Bytes, Gpu, KernelVariant};

use crate::acts::{NodeBlocks, StoredElement};
use crate::spec::{FaultSpec, StubApi, StubFault, StubSpec};
use crate::status;
use crate::streams::{StreamQueues, StubHandle};
use crate::visible::visible;

/// The result of a call; the error is its status.
pub(crate) type CallOutcome<T = ()> = Result<T, i32>;

/// Prefix of GPU names, so that figures are not mistaken for a real GPU's.
const PREFIX: &str = "stub ";

/// PCI domain of all GPUs: no host has it, so nothing under /sys matches.
pub(crate) const PCI_DOMAIN: i32 = 0xfade;

/// Memory of each GPU: its bytes belong to this process, and suites use larger payloads on larger
/// GPUs.
const MEMORY: Bytes = Bytes::gib(8);

/// A loaded image.
#[derive(Debug)]
pub(crate) struct StubModule {
    pub(crate) gpu: u32,
    pub(crate) source: String,
}

/// The kind of a module's function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StubKernel {
    Pass(KernelVariant),
    Fill,
    Check,
    Sum,
    Stored(StoredElement),
    Blocks,
}

/// A function of a module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StubFunction {
    pub(crate) module: StubHandle,
    pub(crate) kernel: StubKernel,
    /// Maximum dynamic shared memory of a launch, in bytes.
    pub(crate) shared: u32,
}

/// The node and everything on it.
pub(crate) struct StubNode {
    pub(crate) api: StubApi,
    pub(crate) spec: StubSpec,
    /// The error in the spec, if it could not be read.
    pub(crate) wrong: Option<String>,
    machine: Machine,
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) initialised: bool,
    /// GPU of the calling thread's context; set when a call enters.
    pub(crate) gpu: u32,
    /// Reference count of each primary context.
    pub(crate) retained: BTreeMap<u32, u32>,
    /// GPUs whose context has a sticky error, with its status.
    pub(crate) sticky: BTreeMap<u32, i32>,
    pub(crate) blocks: NodeBlocks,
    pub(crate) queues: StreamQueues,
    pub(crate) modules: BTreeMap<StubHandle, StubModule>,
    pub(crate) functions: BTreeMap<StubHandle, StubFunction>,
    pub(crate) kernels: BTreeMap<(u32, KernelVariant), KernelId>,
    /// From, to.
    pub(crate) peers: Vec<(u32, u32)>,
    /// Whether the next enqueued operation writes a wrong byte.
    pub(crate) corrupt: bool,
    calls: BTreeMap<&'static str, u64>,
    made: StubHandle,
}

impl StubNode {
    /// The node that the environment describes; the default one if that cannot be read.
    pub(crate) fn new(api: StubApi) -> Self {
        let mut node = Self::with_spec(api, StubSpec::from_env());
        node.gpus = visible(node.gpus, api, &|name| std::env::var(name).ok());
        node
    }

    /// The node of a specification; the default one without it.
    pub(crate) fn with_spec(api: StubApi, spec: Result<StubSpec, String>) -> Self {
        let (spec, mut wrong) = match spec {
            Ok(spec) => (spec, None),
            Err(why) => (StubSpec::default(), Some(why)),
        };
        let usual = match api {
            StubApi::Cuda => "hgx-h200",
            StubApi::Hip => "mi250x",
        };
        let machine = build(spec.machine.as_deref().unwrap_or(usual)).unwrap_or_else(|why| {
            wrong.get_or_insert(why);
            build(usual).expect("a preset is a machine")
        });
        let mut gpus = machine.topology.gpus.clone();
        gpus.truncate(if spec.no_device { 0 } else { spec.gpus.unwrap_or(gpus.len()) });
        for gpu in &mut gpus {
            gpu.name.insert_str(0, PREFIX);
            let behind = gpu.pci.split_once(':').map_or("", |(_, behind)| behind);
            gpu.pci = format!("{PCI_DOMAIN:04x}:{behind}").parse().unwrap_or_default();
            gpu.memory = gpu.memory.min(spec.memory.unwrap_or(MEMORY));
        }
        Self {
            api,
            spec,
            wrong,
            machine,
            gpus,
            initialised: false,
            gpu: 0,
            retained: BTreeMap::new(),
            sticky: BTreeMap::new(),
            blocks: NodeBlocks::default(),
            queues: StreamQueues::default(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            kernels: BTreeMap::new(),
            peers: Vec::new(),
            corrupt: false,
            calls: BTreeMap::new(),
            made: 0x5b_0000,
        }
    }

    /// The simulated runtime.
    pub(crate) fn sim(&self) -> CallOutcome<&dyn Driver> {
        self.machine.driver.as_deref().ok_or(status::NO_DEVICE)
    }
    /// The simulated node.
    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The simulated host.
    pub(crate) fn host(&self) -> &dyn pathline_hal::Host {
        self.machine.host.as_ref()
    }

    /// A new unique handle.
    pub(crate) fn handle(&mut self) -> StubHandle {
        self.made += 8;
        self.made
    }

    /// The GPU of a program's device number.
    pub(crate) fn device(&self, number: i32) -> CallOutcome<&Gpu> {
        let index = usize::try_from(number).map_err(|_| status::INVALID_DEVICE)?;
        self.gpus.get(index).ok_or(status::INVALID_DEVICE)
    }

    /// Replaces the faults, and counts calls from here.
    pub(crate) fn inject(&mut self, faults: Vec<FaultSpec>) {
        self.spec.faults = faults;
        self.calls.clear();
    }

    /// Counts a call; returns its injected fault.
    pub(crate) fn strike(&mut self, call: &'static str) -> Option<StubFault> {
        self.spec.strike(&mut self.calls, call)
    }

    /// Number of calls of a function.
    pub(crate) fn calls_of(&self, call: &str) -> u64 {
        self.calls.get(call).copied().unwrap_or_default()
    }

    /// Whether anything holds the primary context of a GPU.
    pub(crate) fn is_retained(&self, gpu: u32) -> bool {
        self.retained.get(&gpu).is_some_and(|held| *held > 0)
    }

    /// Whether all memory of its GPUs is mapped for the CPU.
    pub(crate) fn has_large_bar(&self) -> bool {
        self.api == StubApi::Hip && !self.spec.missing.iter().any(|name| name == "large-bar")
    }

    /// Makes the context of a GPU unusable.
    pub(crate) fn ruin(&mut self, gpu: u32, code: i32) {
        self.sticky.entry(gpu).or_insert(code);
    }
}

fn build(name: &str) -> Result<Machine, String> {
    let desc = match name.strip_suffix(".toml") {
        Some(_) => {
            let text = std::fs::read_to_string(name).map_err(|e| format!("{name}: {e}"))?;
            MachineDesc::parse(name, &text)
        }
        None => MachineDesc::preset(name),
    };
    let desc = desc.map_err(|e| e.to_string())?;
    let switches = RuntimeEnv::from_env(&std::env::vars().collect());
    pathline_sim::machine(&desc, switches, 1).map_err(|e| e.to_string())
}
