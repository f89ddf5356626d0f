//! The kernel of a suite for a path: the best one found on this GPU, else the best one measured on
//! GPUs of its kind, else a plain one.

use pathline_schema::{
    Bytes, Case, Flow, Gpu, KernelOp, KernelVariant, MemKind, Mover, Place, Topology, Unit,
};
use serde::{Deserialize, Serialize};

/// Source and destination of a kernel, in the view of its GPU. The best kernel differs between
/// paths: one is limited by the memory, one by packets on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathClass {
    /// Within the GPU.
    Local,
    /// Loads from another GPU.
    PeerRead,
    /// Stores to another GPU.
    PeerWrite,
    /// Loads from the host.
    HostRead,
    /// Stores to the host.
    HostWrite,
}

impl PathClass {
    /// Every class, in search order.
    pub const ALL: [Self; 5] =
        [Self::Local, Self::PeerRead, Self::PeerWrite, Self::HostRead, Self::HostWrite];

    /// Display text: `from a peer`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Local => "within the GPU",
            Self::PeerRead => "from a peer",
            Self::PeerWrite => "to a peer",
            Self::HostRead => "from the host",
            Self::HostWrite => "to the host",
        }
    }

    /// The operations that are searched on a path of this class.
    pub const fn ops(self) -> &'static [KernelOp] {
        match self {
            Self::Local => &[KernelOp::Copy, KernelOp::Read, KernelOp::Write, KernelOp::Triad],
            Self::PeerRead | Self::HostRead => &[KernelOp::Copy, KernelOp::Read],
            Self::PeerWrite | Self::HostWrite => &[KernelOp::Copy, KernelOp::Write],
        }
    }

    /// The class of a kernel's flow; `None` if both its ends are remote.
    pub fn of(flow: &Flow) -> Option<Self> {
        let at = flow.by.at();
        let away = |p: &Place| (p.mem != MemKind::Reg && p.unit != at).then_some(p.unit);
        match (away(&flow.src), away(&flow.dst)) {
            (None, None) => Some(Self::Local),
            (Some(Unit::Gpu(_)), None) => Some(Self::PeerRead),
            (Some(Unit::Numa(_)), None) => Some(Self::HostRead),
            (None, Some(Unit::Gpu(_))) => Some(Self::PeerWrite),
            (None, Some(Unit::Numa(_))) => Some(Self::HostWrite),
            _ => None,
        }
    }
}

/// The best kernel that a search found on a GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BestKernel {
    /// Product name of the GPU.
    pub gpu: String,
    /// Its compile target.
    pub arch: String,
    /// The class of the measured path.
    pub class: PathClass,
    /// The winner.
    pub variant: KernelVariant,
    /// Its payload rate, in GB/s.
    pub gbs: f64,
    /// The rate of the plain kernel in the same round.
    pub plain_gbs: f64,
    /// The payload of the last round.
    pub payload: Bytes,
    /// Date in RFC 3339 format.
    pub date: String,
    /// Version of pathline that measured it.
    pub version: String,
}

/// Winners of searches, and whether built-in winners for kinds of GPUs apply.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TunedKernels {
    best: Vec<BestKernel>,
    measured_elsewhere: bool,
}

/// The file of winners.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TunedFile {
    format: u32,
    kernels: Vec<BestKernel>,
}

/// Version of [`TunedFile`].
const FORMAT: u32 = 1;

/// Built-in winners, by target and path.
///
/// `sm_90`: two H200s of one node, payloads of 2 and 4 GiB, 2026-11-21, GB/s of payload. Copies:
/// local 2140 (plain kernel 1904), from a peer 376.1 (374.3), to a peer 373.7 (369.6), from the
/// host 51.4 (51.2), to the host 52.7 (52.6). Within the GPU, read 4692, write 4691, triad 1466. Why
/// these: `docs/understand/method.md`.
const MEASURED: &[(&str, PathClass, &str)] = &[
    ("sm_90", PathClass::Local, "copy-w16-u1-nt-b256-gt"),
    ("sm_90", PathClass::Local, "read-w16-u8-b256-gt"),
    ("sm_90", PathClass::Local, "write-w16-u1-b256-gt"),
    ("sm_90", PathClass::Local, "triad-w16-u1-b256-gt"),
    ("sm_90", PathClass::PeerRead, "copy-bulk16k-s4-b32-g64"),
    ("sm_90", PathClass::PeerRead, "read-w16-u4-b512-g4sm"),
    ("sm_90", PathClass::PeerWrite, "copy-w16-u1-b256-gt"),
    ("sm_90", PathClass::PeerWrite, "write-w16-u1-b256-gt"),
    ("sm_90", PathClass::HostRead, "copy-w16-u8-b512-g2sm"),
    ("sm_90", PathClass::HostRead, "read-w16-u4-b512-g4sm"),
    ("sm_90", PathClass::HostWrite, "copy-w16-u1-b256-gt"),
    ("sm_90", PathClass::HostWrite, "write-w16-u8-b512-g16"),
];

/// [`TunedKernels::known`], for callers without a search result.
pub static KNOWN: TunedKernels = TunedKernels::known();

impl TunedKernels {
    /// Plain kernels everywhere.
    pub const fn plain() -> Self {
        Self { best: Vec::new(), measured_elsewhere: false }
    }

    /// Built-in winners only.
    pub const fn known() -> Self {
        Self { best: Vec::new(), measured_elsewhere: true }
    }

    /// Winners from the text of [`TunedKernels::text`], in addition to the built-in ones.
    ///
    /// # Errors
    /// The text is no such file, or has another version.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: TunedFile = serde_json::from_str(text).map_err(|e| e.to_string())?;
        if file.format != FORMAT {
            return Err(format!("its format is {}, and this version reads {FORMAT}", file.format));
        }
        Ok(Self { best: file.kernels, measured_elsewhere: true })
    }

    /// The winners as a file.
    pub fn text(&self) -> String {
        let file = TunedFile { format: FORMAT, kernels: self.best.clone() };
        // Numbers, texts and lists always have a JSON form.
        serde_json::to_string_pretty(&file).map(|text| text + "\n").unwrap_or_default()
    }

    /// The winners measured on this machine.
    pub fn best(&self) -> &[BestKernel] {
        &self.best
    }

    /// Stores a winner, replacing an earlier one of its GPU, path and operation.
    pub fn set(&mut self, best: BestKernel) {
        let key = |b: &BestKernel| (b.gpu.clone(), b.arch.clone(), b.class, b.variant.op);
        self.best.retain(|b| key(b) != key(&best));
        self.best.push(best);
    }

    /// The kernel to use on a GPU for a path.
    pub fn variant_for(&self, gpu: &Gpu, class: PathClass, op: KernelOp) -> KernelVariant {
        let here = self.best.iter().find(|b| {
            (b.gpu.as_str(), b.arch.as_str()) == (gpu.name.as_str(), gpu.arch.as_str())
                && (b.class, b.variant.op) == (class, op)
        });
        let elsewhere = || {
            let rows = MEASURED.iter().filter(|_| self.measured_elsewhere);
            rows.filter(|(arch, of, _)| *arch == gpu.arch && *of == class)
                .filter_map(|(.., key)| key.parse().ok())
                .find(|variant: &KernelVariant| variant.op == op)
        };
        here.map(|b| b.variant).or_else(elsewhere).unwrap_or(KernelVariant::standard(op))
    }

    /// Replaces the plain kernels of a case by tuned ones.
    pub(crate) fn apply(&self, topology: &Topology, mut case: Case) -> Case {
        for flow in case.timed.iter_mut().chain(&mut case.background) {
            let class = PathClass::of(flow);
            if let Mover::Kernel { at, variant } = &mut flow.by
                && *variant == KernelVariant::standard(variant.op)
                && let Some(class) = class
                && let Some(gpu) = topology.gpus.iter().find(|g| Some(g.index) == at.gpu())
            {
                *variant = self.variant_for(gpu, class, variant.op);
            }
        }
        case
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(arch: &str) -> Gpu {
        Gpu { arch: arch.to_owned(), name: "A GPU".to_owned(), ..Gpu::default() }
    }

    fn best(variant: &str, class: PathClass) -> BestKernel {
        BestKernel {
            gpu: "A GPU".to_owned(),
            arch: "sm_90".to_owned(),
            class,
            variant: variant.parse().unwrap(),
            gbs: 391.0,
            plain_gbs: 375.0,
            payload: Bytes::gib(2),
            date: "2026-11-21T03:00:00Z".to_owned(),
            version: "0.1.0".to_owned(),
        }
    }

    #[test]
    fn every_row_of_the_table_is_a_kernel_of_its_path_and_target() {
        for (arch, class, key) in MEASURED {
            let variant: KernelVariant = key.parse().unwrap();
            assert_eq!(variant.to_string(), *key);
            assert!(class.ops().contains(&variant.op), "{key}");
            assert_eq!(pathline_hal::kernel::unsupported(&variant, arch), None, "{key}");
            let shape = key.split_once('-').unwrap().1;
            assert!(
                pathline_hal::kernel::SHAPES.lines().any(|known| known == shape),
                "{key} is compiled by no test"
            );
            assert_eq!(TunedKernels::known().variant_for(&gpu(arch), *class, variant.op), variant);
        }
    }

    #[test]
    fn local_winners_precede_built_in_ones() {
        let mut tuned = TunedKernels::known();
        tuned.set(best("copy-w16-u2-b128-gt", PathClass::Local));
        tuned.set(best("copy-w16-u8-b128-gt", PathClass::Local));
        tuned.set(best("read-w16-u2-b128-gt", PathClass::Local));
        assert_eq!(tuned.best().len(), 2, "a later winner takes the place of an earlier one");
        let of = |tuned: &TunedKernels, arch, op| {
            tuned.variant_for(&gpu(arch), PathClass::Local, op).to_string()
        };
        assert_eq!(of(&tuned, "sm_90", KernelOp::Copy), "copy-w16-u8-b128-gt");
        assert_eq!(of(&tuned, "sm_90", KernelOp::Write), "write-w16-u1-b256-gt");
        assert_eq!(of(&tuned, "gfx90a", KernelOp::Copy), "copy-w16-u4-b256-g2sm");
        assert_eq!(of(&TunedKernels::plain(), "sm_90", KernelOp::Copy), "copy-w16-u4-b256-g2sm");
        assert_eq!(TunedKernels::parse(&tuned.text()).unwrap(), tuned);
        for broken in ["", "{}", "{\"format\":2,\"kernels\":[]}", "[1", "{\"format\":1}"] {
            assert!(TunedKernels::parse(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn plain_kernels_of_a_case_are_replaced_by_path() {
        let topology = Topology {
            gpus: vec![gpu("sm_90"), Gpu { index: 1, ..gpu("sm_90") }],
            ..Topology::default()
        };
        let apply = |case: &str| {
            let case = case.parse::<Case>().unwrap();
            TunedKernels::known().apply(&topology, case).to_string()
        };
        let plain = "copy-w16-u4-b256-g2sm";
        let cases = [
            ("gpu0.vram > gpu0.vram by kernel@gpu0", "copy-w16-u1-nt-b256-gt"),
            ("gpu0.vram > gpu1.vram by kernel@gpu0", "copy-w16-u1-b256-gt"),
            ("gpu0.vram > gpu1.vram by kernel@gpu1", "copy-bulk16k-s4-b32-g64"),
            ("gpu0.vram > numa0.pinned by kernel@gpu0", "copy-w16-u1-b256-gt"),
            ("numa0.managed > numa0.managed by kernel@gpu0", plain),
        ];
        for (flow, variant) in cases {
            let done = apply(&format!("{flow}[{plain}] x 1GiB"));
            assert!(done.contains(&format!("[{variant}]")), "{done}");
        }
        // An explicitly chosen kernel is not replaced.
        let chosen = apply("gpu0.vram > gpu0.vram by kernel@gpu0[copy-w8-u4-b256-g2sm] x 1GiB");
        assert!(chosen.contains("copy-w8-u4-b256-g2sm"), "{chosen}");
    }
}
