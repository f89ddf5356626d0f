//! Cases that are asked for by name: their ranks and their sizes.

use std::collections::BTreeSet;

use pathline_schema::{Bytes, Cadence, Case, CasePattern, Mover, Place, RankMember};

/// The case with messages between GPUs sent by the ranks that have them: `gpu0 > gpu6 by mpi` names none. A rank of
/// another node than the one that is written does not count.
pub fn with_owning_ranks(case: &Case, ranks: &[RankMember]) -> Case {
    let mut case = case.clone();
    let own = |place: &mut Place| {
        let Some(gpu) = place.unit.gpu() else { return };
        let has = |member: &&RankMember| member.gpus.contains(&gpu);
        let Some(written) = ranks.iter().find(|member| member.rank == place.rank) else { return };
        let owner = ranks.iter().filter(|member| member.node == written.node).find(has);
        if let (false, Some(owner)) = (has(&written), owner) {
            place.rank = owner.rank;
        }
    };
    let is_message = |by: &Mover| by.wire().is_some_and(|wire| wire.op.collective().is_none());
    for flow in case.timed.iter_mut().filter(|flow| is_message(&flow.by)) {
        own(&mut flow.src);
        own(&mut flow.dst);
    }
    case
}

/// The copies among `listed` that a pattern of one size matches in another size, in its size, each once. Files, loads
/// that chase and copies alone in their process keep their sizes.
pub(crate) fn of_size(pattern: &CasePattern, listed: impl Iterator<Item = Case>) -> Vec<Case> {
    let CasePattern::Flow { src, dst, by, bytes } = pattern else { return Vec::new() };
    let Ok(size) = bytes.parse::<Bytes>() else { return Vec::new() };
    let (src, dst, by, bytes) = (src.clone(), dst.clone(), by.clone(), "*".to_owned());
    let any_mover = by == "*";
    let any_size = CasePattern::Flow { src, dst, by, bytes };
    let mut seen = BTreeSet::new();
    let resized = |case: Case| {
        let [flow] = case.timed.as_slice() else { return None };
        let is_copy = case.background.is_empty()
            && case.cadence == Cadence::default()
            && !flow.by.is_on_files()
            && flow.by.has_rate()
            // Plans of several paths are asked for by name.
            && !(any_mover && flow.by.paths().is_some());
        let mut flow = *flow;
        flow.bytes = size;
        (is_copy && flow.misfit().is_none()).then(|| Case::together(vec![flow]))
    };
    let matching = listed.filter(|case| any_size.matches(case));
    matching.filter_map(resized).filter(|case| seen.insert(case.clone())).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pathline_flow::MachineDesc;
    use pathline_schema::Rank;

    use super::*;
    use crate::plan::RunPlan;
    use crate::scope::PlanScope;

    fn member(rank: u32, node: u32, gpus: &[u32]) -> RankMember {
        RankMember {
            rank: Rank(rank),
            host: format!("host{node}"),
            node,
            pid: rank,
            gpus: gpus.to_vec(),
            gpu_identities: Vec::new(),
            gpu: None,
            numa: 0,
            cpus: String::new(),
            ways: BTreeMap::new(),
            without: BTreeMap::new(),
            host_only: BTreeMap::new(),
            device_memory: BTreeMap::new(),
        }
    }

    /// Rank 3 has gpu3 of the first node, and rank 5 that of the second. Rank 1 has its own and two of nobody else.
    #[test]
    fn messages_are_of_the_ranks_that_have_their_gpus() {
        let ranks = [
            member(0, 0, &[0]),
            member(1, 0, &[1, 2]),
            member(3, 0, &[3]),
            member(4, 1, &[0]),
            member(5, 1, &[3]),
        ];
        for (asked, owned) in [
            ("gpu0 > gpu3 by mpi", "r0.gpu0 > r3.gpu3 by mpi"),
            ("gpu3 > gpu2 by mpi", "r3.gpu3 > r1.gpu2 by mpi"),
            ("r0.gpu0 > r4.gpu3 by mpi", "r0.gpu0 > r5.gpu3 by mpi"),
            // Nobody has it, and no copy within a process has an owner.
            ("gpu0 > gpu7 by mpi", "gpu0 > gpu7 by mpi"),
            ("gpu0 > gpu3 by dma", "gpu0 > gpu3 by dma"),
        ] {
            let case = |text: &str| Case::parse_with_defaults(text).expect(text);
            assert_eq!(with_owning_ranks(&case(asked), &ranks), case(owned), "{asked}");
        }
    }

    /// No suite copies 100 MiB: a pattern of that size takes the copies of other sizes, of each kind of memory once. One
    /// of a size that suites have takes theirs, and one of no path is an error.
    #[test]
    fn a_pattern_of_another_size_has_cases() {
        let topology = MachineDesc::preset("mi250x").expect("a preset").topology();
        let memory = Bytes::gib(64);
        let scope = PlanScope { simulated: true, ..PlanScope::new(&topology, memory) };
        let plan = |text: &str| RunPlan::new(&scope, &[], &[text.parse().expect(text)]);
        let found = plan("numa3.* > gpu0 by dma x 100MiB").expect("cases");
        let texts: Vec<String> = found.entries.iter().map(|e| e.case.to_string()).collect();
        for kind in ["paged", "pinned", "registered"] {
            let case = format!("r0.numa3.{kind} > r0.gpu0.vram by dma@gpu0 x 100MiB");
            assert_eq!(texts.iter().filter(|text| **text == case).count(), 1, "{texts:?}");
        }
        assert!(texts.iter().all(|text| text.ends_with("by dma@gpu0 x 100MiB")), "{texts:?}");
        let whole = plan("numa3.* > gpu0 x 100MiB").expect("cases").entries;
        assert!(whole.len() > found.entries.len());
        assert!(whole.iter().all(|entry| entry.case.timed[0].by.paths().is_none()));
        let usual = plan("numa3.pinned > gpu? by dma x 256MiB").expect("cases");
        assert!(usual.entries.iter().all(|entry| !entry.suites.is_empty()));
        assert!(plan("numa3.* > numa9.* x 100MiB").is_err());
    }
}
