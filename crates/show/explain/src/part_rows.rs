//! Which parts a node is made of: serial numbers, firmware, addresses. For tickets.

use pathline_schema::{GpuFacts, Journal, Nic, Unit};

/// Name and text of the host, its GPUs and its adapters. None of a model.
pub(crate) fn part_rows(journal: &Journal) -> Vec<(String, String)> {
    let (begin, topology) = (&journal.begin, &journal.topology);
    if begin.world.is_model() {
        return Vec::new();
    }
    let joined = |parts: &[&str]| -> String {
        let known: Vec<&str> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
        known.join(", ")
    };
    let named = |name: &str, text: &str| match text {
        "" => String::new(),
        text => format!("{name} {text}"),
    };
    let host = &topology.host;
    let board = named("board", &host.board);
    let bios = named("BIOS", &host.bios);
    let mut rows = vec![("Host".to_owned(), joined(&[&host.product, &board, &bios]))];
    for gpu in &topology.gpus {
        let facts = begin.gpus.get(&Unit::Gpu(gpu.index));
        let identity =
            facts.map_or_else(String::new, |facts: &GpuFacts| facts.identity.text(false));
        rows.push((format!("gpu{}", gpu.index), joined(&[&gpu.name, &identity, &gpu.pci])));
    }
    for nic in &topology.nics {
        let Nic { name, guid, firmware, board, pci, .. } = nic;
        if !guid.is_empty() || !firmware.is_empty() {
            let (firmware, guid) = (named("firmware", firmware), named("GUID", guid));
            rows.push((name.clone(), joined(&[board, &firmware, &guid, pci])));
        }
    }
    rows.retain(|(_, text)| !text.is_empty());
    rows
}

#[cfg(test)]
mod tests {
    use pathline_schema::{BoardIdentity, Gpu, RunBegin, Topology, WorldKind};

    use super::*;

    #[test]
    fn each_part_has_a_row_with_what_is_known() {
        let mut topology = Topology {
            gpus: vec![Gpu { name: "NVIDIA H200".into(), ..Gpu::default() }],
            nics: vec![
                Nic { name: "mlx5_0".into(), firmware: "28.39.1002".into(), ..Nic::default() },
                Nic { name: "eth0".into(), ..Nic::default() },
            ],
            ..Topology::default()
        };
        topology.host.bios = "2.1 05/01/2026".into();
        let mut begin = RunBegin::new(WorldKind::Real);
        let identity =
            BoardIdentity { uuid: "GPU-1b2c".into(), serial: "165".into(), ..Default::default() };
        begin.gpus.insert(Unit::Gpu(0), GpuFacts { identity, ..GpuFacts::default() });
        let mut journal = Journal::of_outcomes(begin, topology, Vec::new());
        let row = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let rows = [
            row("Host", "BIOS 2.1 05/01/2026"),
            row("gpu0", "NVIDIA H200, GPU-1b2c, serial 165"),
            row("mlx5_0", "firmware 28.39.1002"),
        ];
        assert_eq!(part_rows(&journal), rows);
        journal.begin.world = WorldKind::Simulated("mi250x".into());
        assert_eq!(part_rows(&journal), []);
    }
}
