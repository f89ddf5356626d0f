//! Slow paths of one cause, in the words that every command uses.

use std::collections::BTreeSet;

use pathline_schema::{Flow, LinkEnd, LinkKind, RunBegin, Topology, WorldKind, shell_word};

use crate::labels::{gpus_in, is_read_by_engine, loss_text, paths_text};
use crate::outlier::UnlikePath;

/// Paths out of or into one GPU that make one fault, where no part explains them better.
const MIN_OF_GPU: usize = 3;

/// Slow paths with one cause.
#[derive(Debug, Clone, PartialEq)]
pub struct SlowGroup {
    /// The part that slows them: `xGMI gpu2-gpu4, both directions`; none where no part explains them.
    pub part: Option<String>,
    /// The paths, the slowest first.
    pub paths: Vec<UnlikePath>,
}

/// Slow paths by the part that slows them, else by the GPU that they leave or enter; that of the slowest first.
pub fn slow_groups(mut rest: Vec<UnlikePath>) -> Vec<SlowGroup> {
    let mut groups = Vec::new();
    while let Some(worst) = rest.first().cloned() {
        let with = |is_of: &dyn Fn(&UnlikePath) -> bool| {
            rest.iter().filter(|path| is_of(path)).cloned().collect::<Vec<_>>()
        };
        let (part, paths) = match &worst.part {
            Some(part) => (Some(part.clone()), with(&|path| path.part.as_ref() == Some(part))),
            None => {
                let [out, into] = [0, 1].map(|side: usize| {
                    let end = |path: &UnlikePath| match path.case.timed.as_slice() {
                        [flow] => Some([flow.src.unit, flow.dst.unit][side]),
                        _ => None,
                    };
                    let unit = end(&worst).filter(|unit| unit.gpu().is_some());
                    with(&|path| path.part.is_none() && unit.is_some() && end(path) == unit)
                });
                let most = if out.len() >= into.len() { out } else { into };
                (None, if most.len() >= MIN_OF_GPU { most } else { vec![worst] })
            }
        };
        rest.retain(|path| !paths.contains(path));
        groups.push(SlowGroup { part, paths });
    }
    groups
}

impl SlowGroup {
    /// The flows that stand for the group: single copies that a table of pairs shows (by the source or a kernel),
    /// else all single copies, else all.
    fn shown(&self) -> Vec<&UnlikePath> {
        let lone = |path: &&UnlikePath| path.case.timed.len() == 1;
        let usual = |path: &&UnlikePath| {
            lone(path) && path.case.timed.iter().all(|f| !is_read_by_engine(f))
        };
        let of = |is_meant: &dyn Fn(&&UnlikePath) -> bool| {
            self.paths.iter().filter(is_meant).collect::<Vec<_>>()
        };
        [of(&usual), of(&lone), of(&|_| true)]
            .into_iter()
            .find(|all| !all.is_empty())
            .unwrap_or_default()
    }

    /// The path that stands for the group: the slowest that a table of pairs shows.
    pub fn worst(&self) -> Option<&UnlikePath> {
        self.shown().into_iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio))
    }

    /// The part, else what the paths are: `7 pairs out of gpu3`.
    pub fn name(&self) -> String {
        let flows = || self.shown().into_iter().flat_map(|path| path.case.timed.iter().copied());
        self.part.clone().unwrap_or_else(|| paths_text(&flows().collect::<Vec<_>>()))
    }

    /// `gpu3 copy engines to peers: 7 pairs out of gpu3 are 31 to 32 % slower than their peers`.
    pub fn summary(&self) -> String {
        let (shown, Some(worst)) = (self.shown(), self.worst()) else { return String::new() };
        let losses = shown.iter().map(|path| 1.0 - path.ratio);
        let state = self.paths.iter().find_map(|path| path.part_state.as_ref());
        let part = self.part.as_ref().and(state.or(self.part.as_ref()));
        let part = part.map_or(String::new(), |part| format!("{part}: "));
        let when = if self.comes_and_goes() { " now and then" } else { "" };
        let flows: Vec<Flow> =
            shown.iter().flat_map(|path| path.case.timed.iter().copied()).collect();
        match shown.len() {
            1 => format!(
                "{part}{} is {} slower than its {} peers{when}",
                worst.path,
                loss_text(losses),
                worst.peers
            ),
            _ => format!(
                "{part}{} are {} slower than their peers{when}, the worst {}",
                paths_text(&flows),
                loss_text(losses),
                worst.path
            ),
        }
    }

    /// GPUs of the part, else the GPUs that all paths have in common, else the ends of the slowest path.
    pub fn gpus(&self) -> Vec<u32> {
        let named = self.part.as_deref().map(gpus_in).unwrap_or_default();
        let ends = |path: &UnlikePath| -> BTreeSet<u32> {
            path.case
                .timed
                .iter()
                .flat_map(|f| [f.src, f.dst])
                .filter_map(|p| p.unit.gpu())
                .collect()
        };
        let all = || self.paths.iter().map(ends);
        let common = all().reduce(|a, b| &a & &b).unwrap_or_default();
        let sets = [named, common, self.worst().map(ends).unwrap_or_default()];
        sets.into_iter().find(|set| !set.is_empty()).unwrap_or_default().into_iter().collect()
    }

    /// Whether its paths are slow in some of their samples only.
    pub fn comes_and_goes(&self) -> bool {
        self.paths.iter().all(|path| path.comes_and_goes)
    }

    /// Whether an engine that reads from its peers makes copies slow, too.
    pub fn has_engine_reads(&self) -> bool {
        let reads = |path: &UnlikePath| path.case.timed.iter().all(is_read_by_engine);
        self.paths.iter().any(reads) && !self.shown().into_iter().any(reads)
    }

    /// What to do if the paths stay slow: `reset gpu3, then the vendor`.
    pub fn remedy(&self, topology: &Topology) -> String {
        part_remedy(topology, self.part.as_deref().unwrap_or_default(), &self.gpus())
    }
}

/// What comes before the remedy of a fault on a node, so that it takes no more jobs: `drain the node (Slurm: ...)`.
pub fn drain_node(begin: &RunBegin) -> String {
    let host = match begin.world {
        WorldKind::Real if !begin.host.is_empty() => shell_word(&begin.host),
        _ => "NODE".into(),
    };
    format!("drain the node (Slurm: `scontrol update nodename={host} state=drain reason=pathline`)")
}

/// What [`GpuCaps::care_commands`] are for each of these GPUs, by address: tools number GPUs in other orders. None of a
/// vendor without one, and where an address is not known.
fn care_commands(topology: &Topology, gpus: &[u32]) -> [Option<String>; 2] {
    [0, 1].map(|which: usize| {
        let gpus = topology.gpus.iter().filter(|gpu| gpus.contains(&gpu.index));
        let each = gpus.map(|gpu| {
            let address = shell_word(Some(&*gpu.pci).filter(|address| !address.is_empty())?);
            Some(gpu.caps().care_commands[which]?.replace("{}", &address))
        });
        let each: Vec<String> = each.collect::<Option<_>>()?;
        (!each.is_empty()).then(|| format!("`{}`", each.join("; ")))
    })
}

/// `reset gpu3 (`amd-smi reset -g 0000:ce:00.0 --gpureset`)`.
pub(crate) fn reset_text(topology: &Topology, gpus: &[u32]) -> String {
    let names = gpus.iter().map(|gpu| format!("gpu{gpu}")).collect::<Vec<_>>().join(", ");
    match care_commands(topology, gpus) {
        [_, Some(command)] => format!("reset {names} ({command})"),
        _ => format!("reset {names}"),
    }
}

/// What to do about a part; of paths without one, about these GPUs, which they have in common.
pub fn part_remedy(topology: &Topology, part: &str, gpus: &[u32]) -> String {
    let of_part: Vec<u32> = gpus_in(part).into_iter().collect();
    let gpus = if part.is_empty() { gpus } else { of_part.as_slice() };
    let names = gpus.iter().map(|gpu| format!("gpu{gpu}")).collect::<Vec<_>>().join(", ");
    let is = |word: &str| part.contains(word);
    let is_to_host = is("numa") || is("PCIe");
    // A path has the name of no link, and AMD's drivers call the xGMI to the processor PCIe.
    let host = topology.links.iter().find(|link| {
        let ends = [link.a, link.b];
        ends.iter().any(|end| matches!(end, LinkEnd::Numa(_)))
            && gpus.iter().any(|gpu| ends.contains(&LinkEnd::Gpu(*gpu)))
    });
    let host = host.map_or(LinkKind::Pcie, |link| link.kind);
    let is_own = is("copy engine") || is("HBM") || is("path") && gpus.len() == 1 && !is_to_host;
    let first = topology.gpus.iter().find(|gpu| gpus.contains(&gpu.index));
    let reset = reset_text(topology, gpus);
    // Links within a package have no connector.
    let packages = topology.gpus.iter().filter(|gpu| gpus.contains(&gpu.index));
    let packages: BTreeSet<Option<u32>> = packages.map(|gpu| gpu.package).collect();
    let is_inside = gpus.len() == 2 && packages.len() == 1 && !packages.contains(&None);
    match first.map(|gpu| gpu.caps().link_errors) {
        None if is("switch") => {
            "the log of the fabric manager for this switch, reset all GPUs, then the vendor"
                .to_owned()
        }
        None if is("CPU link") => {
            "`ras-mc-ctl --errors` for the link between the processors, then the vendor".to_owned()
        }
        None if is("DDR") || part.is_empty() => {
            "`ras-mc-ctl --errors`, check the memory modules and the processors".to_owned()
        }
        None => format!("check {part}"),
        // The links of a copy engine or of a memory carry other copies as they should.
        _ if is_own => match care_commands(topology, gpus) {
            [Some(state), _] => format!("{state} for a cap or errors, {reset}, then the vendor"),
            _ => format!("{reset}, then the vendor"),
        },
        // Without errors of its links it is not they that make all paths of a GPU slow.
        Some(Some(command)) if part.is_empty() => {
            format!("`{command}` for {names}; without errors there {reset}, then the vendor")
        }
        Some(Some(_)) if is_to_host && host == LinkKind::Pcie => {
            format!("`lspci -vv` of {names}: LnkSta against LnkCap, reseat, then the vendor")
        }
        // NVLink-C2C within a module has no connector.
        Some(Some(_)) if is_to_host && host == LinkKind::Nvlink => format!(
            "`nvidia-smi c2c -s` and `dmesg` for the link of {names} to the processor, then the vendor"
        ),
        // The GPU counts errors of its links to GPUs, the processor those of its own.
        Some(Some(_)) if is_to_host => format!(
            "`ras-mc-ctl --errors` and `dmesg` for the link of {names} to the processor, reseat, then the vendor"
        ),
        Some(Some(command)) if is_inside => {
            format!("`{command}` for {names} of one package, {reset}, then the vendor")
        }
        Some(Some(command)) => format!("`{command}` for {names}, reseat, then the vendor"),
        Some(None) => format!("check the links of {names}"),
    }
}

#[cfg(test)]
mod tests {
    use pathline_flow::MachineDesc;
    use pathline_schema::Gpu;

    use super::*;

    fn slow(case: &str, ratio: f64, part: Option<&str>) -> UnlikePath {
        let case: pathline_schema::Case = format!("{case} x 64MiB").parse().expect("a case");
        let path = format!("{}→{}", case.timed[0].src.unit, case.timed[0].dst.unit);
        let part = part.map(str::to_owned);
        let (movers, movers_fine) = (Vec::new(), Vec::new());
        let (ratio_range, peers, reverse) = ((ratio, ratio), 11, None);
        UnlikePath {
            case,
            path,
            part,
            part_state: None,
            ratio,
            ratio_range,
            peers,
            movers,
            movers_fine,
            reverse,
            cases: 1,
            comes_and_goes: false,
        }
    }

    fn pair(a: u32, b: u32, ratio: f64) -> UnlikePath {
        slow(&format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a}"), ratio, None)
    }

    fn summaries(paths: Vec<UnlikePath>) -> Vec<(String, Vec<u32>)> {
        slow_groups(paths).iter().map(|group| (group.summary(), group.gpus())).collect()
    }

    /// Three paths out of or into one GPU are one fault, the side with more of them first. Two are two.
    #[test]
    fn three_paths_of_a_gpu_are_one_fault_and_two_are_two() {
        let line = |text: &str, gpus: &[u32]| (text.to_owned(), gpus.to_vec());
        let three = vec![pair(3, 0, 0.6), pair(3, 1, 0.7), pair(3, 2, 0.65), pair(1, 0, 0.9)];
        let one = "gpu1→gpu0 is 10 % slower than its 11 peers";
        assert_eq!(slow_groups(three.clone())[0].name(), "3 pairs out of gpu3");
        let out = "3 pairs out of gpu3 are 30 to 40 % slower than their peers, the worst gpu3→gpu0";
        assert_eq!(summaries(three), [line(out, &[3]), line(one, &[0, 1])]);
        let into = vec![pair(3, 0, 0.5), pair(3, 1, 0.6), pair(1, 0, 0.5), pair(2, 0, 0.5)];
        let most = "3 pairs into gpu0 are 50 % slower than their peers, the worst gpu3→gpu0";
        let rest = "gpu3→gpu1 is 40 % slower than its 11 peers";
        assert_eq!(summaries(into), [line(most, &[0]), line(rest, &[1, 3])]);
        assert_eq!(summaries(vec![pair(3, 0, 0.6), pair(3, 1, 0.7)]).len(), 2);
        // Slow now and then is a group of which every path is.
        let mut flaps = vec![pair(3, 0, 0.6), pair(3, 1, 0.7), pair(3, 2, 0.65)];
        flaps[0].comes_and_goes = true;
        assert!(!summaries(flaps.clone())[0].0.contains("now and then"));
        flaps.iter_mut().for_each(|path| path.comes_and_goes = true);
        assert!(summaries(flaps)[0].0.contains("peers now and then"));
        // The host is no GPU: three copies from it are three.
        let host = |n: u32| slow(&format!("numa0.pinned > gpu{n}.vram by dma@gpu{n}"), 0.8, None);
        assert_eq!(summaries((0..3).map(host).collect()).len(), 3);
    }

    /// Paths of one part are one fault, which is named with its GPUs and shown by what a table of pairs has: not by
    /// what the engine of the destination reads, nor by two flows at once.
    #[test]
    fn a_part_is_shown_by_the_paths_of_a_table() {
        let part = Some("xGMI gpu2-gpu4, both directions");
        let read = slow("gpu2.vram > gpu4.vram by dma@gpu4", 0.3, part);
        let both = slow(
            "gpu2.vram > gpu4.vram by dma@gpu2 x 64MiB & gpu4.vram > gpu2.vram by dma@gpu4",
            0.2,
            part,
        );
        let usual = slow("gpu2.vram > gpu4.vram by dma@gpu2", 0.5, part);
        let groups = slow_groups(vec![both.clone(), read.clone(), usual, pair(0, 1, 0.9)]);
        assert_eq!(groups.len(), 2);
        let text = "xGMI gpu2-gpu4, both directions: gpu2→gpu4 is 50 % slower than its 11 peers";
        assert_eq!((groups[0].summary().as_str(), groups[0].gpus()), (text, vec![2, 4]));
        assert!(groups[0].has_engine_reads() && !groups[1].has_engine_reads());
        let reads = slow_groups(vec![both, read]).remove(0);
        assert_eq!(reads.worst().map(|worst| worst.ratio), Some(0.3));
        assert!(!reads.has_engine_reads(), "they are shown themselves");
    }

    /// Of every kind of part, on a node of each vendor: a command of that vendor that shows the part.
    #[test]
    fn a_remedy_is_that_of_the_part_and_the_vendor() {
        let remedy = |preset: &str, part: &str| {
            let topology = MachineDesc::preset(preset).expect("a preset").topology();
            part_remedy(&topology, part, &gpus_in(part).into_iter().collect::<Vec<_>>())
        };
        let amd = "`amd-smi metric -g 0000:ce:00.0 -c -p -e` for a cap or errors, reset gpu3 (`amd-smi reset -g \
                   0000:ce:00.0 --gpureset`), then the vendor";
        let nvidia = "`nvidia-smi -i 0000:5d:00.0 -q -d CLOCK,PERFORMANCE,POWER,ECC` for a cap or errors, reset gpu3 \
                      (`nvidia-smi -i 0000:5d:00.0 --gpu-reset`), then the vendor";
        let errors = "`ras-mc-ctl --errors`, check the memory modules and the processors";
        let processors =
            "`ras-mc-ctl --errors` for the link between the processors, then the vendor";
        let xgmi_host = "`ras-mc-ctl --errors` and `dmesg` for the link of gpu3 to the processor, reseat, then the \
                         vendor";
        let c2c = "`nvidia-smi c2c -s` and `dmesg` for the link of gpu3 to the processor, then the vendor";
        let slot = "`lspci -vv` of gpu3: LnkSta against LnkCap, reseat, then the vendor";
        let inside = "`rocm-smi --showxgmierr` for gpu2, gpu3 of one package, reset gpu2, gpu3 (`amd-smi reset -g \
                      0000:c9:00.0 --gpureset; amd-smi reset -g 0000:ce:00.0 --gpureset`), then the vendor";
        let xgmi = "`rocm-smi --showxgmierr` for gpu3, gpu4, reseat, then the vendor";
        let ports =
            "`nvidia-smi nvlink -s; nvidia-smi nvlink -e` for gpu3, reseat, then the vendor";
        let switch =
            "the log of the fabric manager for this switch, reset all GPUs, then the vendor";
        let any = "`rocm-smi --showxgmierr` for gpu3; without errors there reset gpu3 (`amd-smi reset -g \
             0000:ce:00.0 --gpureset`), then the vendor";
        for (preset, part, expected) in [
            ("mi250x", "xGMI gpu3-gpu4, both directions", xgmi),
            ("mi250x", "path gpu3→gpu4", xgmi),
            ("mi250x", "xGMI gpu2-gpu3, both directions", inside),
            ("mi250x", "xGMI gpu3-numa1, into the GPU", xgmi_host),
            ("mi250x", "path numa1→gpu3", xgmi_host),
            ("mi250x", "gpu3 PCIe", xgmi_host),
            ("gb200", "NVLink gpu3-numa1, into the GPU", c2c),
            ("gh200x4", "path numa3→gpu3", c2c),
            ("mi250x", "gpu3 copy engines to the host", amd),
            ("mi250x", "gpu3 HBM", amd),
            ("mi250x", "path gpu3, kernel copy", amd),
            ("mi250x", "numa1 DDR", errors),
            ("mi300x", "gpu3 PCIe", slot),
            ("hgx-h200", "NVLink gpu3-switches, both directions", ports),
            ("hgx-h200", "NVLink gpu3 to switches", ports),
            ("hgx-h200", "PCIe gpu3-numa0, both directions", slot),
            ("hgx-h200", "path gpu3→numa0, engine copy", slot),
            ("hgx-h200", "gpu3 copy engines to peers", nvidia),
            ("hgx-h200", "switch1", switch),
            ("hgx-h200", "CPU link numa0-numa1, both directions", processors),
            ("hgx-h200", "mlx5_0", "check mlx5_0"),
        ] {
            assert_eq!(remedy(preset, part), expected, "{preset}: {part}");
        }
        let topology = MachineDesc::preset("mi250x").expect("a preset").topology();
        assert_eq!(part_remedy(&topology, "", &[3]), any);
        // What a memory of the host slows has GPUs, which are not to blame.
        assert_eq!(part_remedy(&topology, "numa1 DDR", &[3]), errors);
        let unknown = Gpu { index: 3, ..Gpu::default() };
        let unknown = Topology { gpus: vec![unknown], ..Topology::default() };
        assert_eq!(part_remedy(&unknown, "gpu3-gpu4", &[3]), "check the links of gpu3, gpu4");
    }
}
