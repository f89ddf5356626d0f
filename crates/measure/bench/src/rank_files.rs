//! I/O that several ranks do together: each rank has lanes for the flows that it does. A file of another rank
//! is opened by the name that its owner offers.

use std::rc::Rc;

use pathline_hal::{
    CallError, CallResult, FilePart, Machine, MachineBuffer, RankBarrier, WorkerRange,
};
use pathline_schema::{Case, Flow, IoFiles, IoReading, IoSpec, MemKind, Place, Rank, VerifyResult};

use crate::files::FileLane;
use crate::lane::{BoundLane, LaneSample};
use crate::meta::MetaLane;
use crate::needs;

/// A rank's times of a sample, by flow of the case.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RankSample {
    /// Time of each repetition in ns, or of all together; empty for flows of other ranks.
    pub times: Vec<Vec<f64>>,
    /// Additional data of I/O, of the flows that this rank does.
    pub io: Vec<Option<IoReading>>,
}

/// The rank that does a flow's I/O: that of its memory.
pub(crate) fn worker_rank(flow: &Flow) -> Rank {
    flow.io_ends().1.rank
}

/// Whether a flow's file is of another rank.
pub(crate) fn is_foreign(flow: &Flow) -> bool {
    let (file, memory) = flow.io_ends();
    file.rank != memory.rank
}

/// Flows of a case that use the same file, in order. The file is shared if there are several.
fn sharers<'c>(case: &'c Case, of: &Flow) -> impl Iterator<Item = &'c Flow> {
    let file = of.io_ends().0;
    case.flows().filter(move |flow| flow.by.io().is_some() && flow.io_ends().0 == file)
}

/// The part of a flow in its file; `None` if no other flow uses it.
fn part_of(case: &Case, nth: usize, flow: &Flow) -> Option<FilePart> {
    if sharers(case, flow).count() < 2 {
        return None;
    }
    let threads = |flow: &Flow| flow.by.io().map_or(0, |io| io.threads);
    let file = flow.io_ends().0;
    let before = case.flows().take(nth).filter(|f| f.by.io().is_some() && f.io_ends().0 == file);
    Some(FilePart {
        first: before.map(threads).sum(),
        workers: sharers(case, flow).map(threads).sum(),
        name: None,
    })
}

/// Why ranks cannot do the I/O of a case together; none if nothing is known against it.
pub(crate) fn cannot(case: &Case, ranks: usize) -> Option<String> {
    if !case.is_rank_io() {
        return None;
    }
    if case.flows().any(|flow| !flow.by.is_on_files()) || !case.background.is_empty() {
        return Some("ranks do I/O together, without other flows and background".to_owned());
    }
    for flow in case.flows() {
        let (file, memory) = flow.io_ends();
        let last = file.rank.max(memory.rank).0;
        if last as usize >= ranks {
            return Some(format!(
                "there is no rank {last}: start with --ranks {}, mpirun or srun",
                last.saturating_add(1)
            ));
        }
        let Some(io) = flow.by.io() else { continue };
        let mut all = sharers(case, flow);
        let alike = |other: &Flow| other.by.io() == Some(io) && other.bytes == flow.bytes;
        let owned = sharers(case, flow).any(|other| !is_foreign(other));
        let shared = sharers(case, flow).count() > 1 || is_foreign(flow);
        if shared && io.files != IoFiles::Shared {
            return Some("a file that several ranks use is shared, not own".to_owned());
        }
        if !all.all(alike) {
            return Some("ranks that share a file do the same I/O on it".to_owned());
        }
        if !owned {
            return Some(format!(
                "{file}: the rank that owns a file reads or writes it too; add its flow"
            ));
        }
    }
    None
}

/// A rank's flows of a case.
pub(crate) struct RankFiles<'m> {
    machine: &'m Machine,
    case: Case,
    /// Lanes of this rank's flows, by position in the case.
    lanes: Vec<(usize, RankLane<'m>)>,
    /// Flows on files of other ranks, until their names are known.
    waiting: Vec<(usize, Flow, IoSpec, FilePart)>,
}

enum RankLane<'m> {
    Io(FileLane<'m>),
    Meta(MetaLane<'m>),
}

impl<'m> RankLane<'m> {
    fn lane(&mut self) -> &mut (dyn BoundLane + 'm) {
        match self {
            Self::Io(lane) => lane,
            Self::Meta(lane) => lane,
        }
    }
    fn shared(&self) -> &(dyn BoundLane + 'm) {
        match self {
            Self::Io(lane) => lane,
            Self::Meta(lane) => lane,
        }
    }
}

/// Memory of a flow in this process, whose places need no rank.
fn buffer<'m>(
    machine: &'m Machine,
    flow: &Flow,
    io: &IoSpec,
    place: Option<Place>,
) -> CallResult<Option<Rc<MachineBuffer<'m>>>> {
    let Some(place) = place.filter(|place| place.mem != MemKind::Reg) else { return Ok(None) };
    let place = Place { rank: Rank(0), ..place };
    machine.buffer(place, needs::slots(flow, io)).map(|buffer| Some(Rc::new(buffer)))
}

fn file_lane<'m>(
    machine: &'m Machine,
    flow: &Flow,
    io: IoSpec,
    part: Option<FilePart>,
) -> CallResult<RankLane<'m>> {
    let host = buffer(machine, flow, &io, needs::host_memory(flow, &io))?;
    let gpu = buffer(machine, flow, &io, needs::gpu_memory(flow))?;
    let alone = (io, WorkerRange::alone(&io));
    FileLane::with_part(machine, flow, alone, (host, gpu), part).map(RankLane::Io)
}

impl<'m> RankFiles<'m> {
    /// Opens this rank's files; the offer to the others is their names, by flow.
    pub(crate) fn bind(machine: &'m Machine, me: Rank, case: &Case) -> CallResult<(Self, Vec<u8>)> {
        let mut all = Self { machine, case: case.clone(), lanes: Vec::new(), waiting: Vec::new() };
        let mut names: Vec<Option<String>> = Vec::new();
        for (nth, flow) in case.flows().enumerate() {
            let mut name = None;
            if worker_rank(flow) == me {
                let part = part_of(case, nth, flow);
                match (flow.by.io(), part) {
                    (Some(&io), Some(part)) if is_foreign(flow) => {
                        all.waiting.push((nth, *flow, io, part));
                    }
                    (Some(&io), part) => {
                        let lane = file_lane(machine, flow, io, part)?;
                        if let RankLane::Io(lane) = &lane {
                            name = Some(lane.file_name());
                        }
                        all.lanes.push((nth, lane));
                    }
                    (None, _) => {
                        let meta = *flow.by.meta().ok_or_else(|| no_files(flow))?;
                        let lane = MetaLane::new(machine, flow, meta)?;
                        all.lanes.push((nth, RankLane::Meta(lane)));
                    }
                }
            }
            names.push(name);
        }
        let offer = serde_json::to_vec(&names).unwrap_or_default();
        Ok((all, offer))
    }

    /// Opens the files of other ranks by the names that these offer.
    pub(crate) fn join(&mut self, offers: &[Vec<u8>]) -> CallResult<()> {
        for (nth, flow, io, part) in std::mem::take(&mut self.waiting) {
            let owner = flow.io_ends().0.rank;
            let offered = offers.get(owner.0 as usize).map(Vec::as_slice).unwrap_or_default();
            let names: Vec<Option<String>> = serde_json::from_slice(offered).unwrap_or_default();
            let of_file =
                self.case.flows().zip(names).find_map(|(other, name)| {
                    name.filter(|_| other.io_ends().0 == flow.io_ends().0)
                });
            let name = of_file.ok_or_else(|| {
                let why = format!("rank {} has not opened this file", owner.0);
                CallError::unsupported("join", flow.to_string(), why)
            })?;
            let part = FilePart { name: Some(name), ..part };
            self.lanes.push((nth, file_lane(self.machine, &flow, io, Some(part))?));
        }
        self.lanes.sort_by_key(|(nth, _)| *nth);
        Ok(())
    }

    /// Runs `reps` operations of each flow of this rank, which start when all ranks are ready.
    pub(crate) fn run(&mut self, reps: u64, barrier: &dyn RankBarrier) -> CallResult<RankSample> {
        let flows = self.case.flows().count();
        let mut sample = RankSample { times: vec![Vec::new(); flows], io: vec![None; flows] };
        let gate = self.machine.gate()?;
        for (_, lane) in &mut self.lanes {
            lane.lane().issue(&gate, reps)?;
        }
        let met = barrier.wait();
        // Workers wait behind the gate, also if another rank could not come.
        gate.release()?;
        let mut failed = met.err();
        for (nth, lane) in &mut self.lanes {
            match lane.lane().wait() {
                Ok(LaneSample { elapsed, io, .. }) => {
                    if let Some(times) = sample.times.get_mut(*nth) {
                        *times = vec![elapsed.0];
                    }
                    if let Some(reading) = sample.io.get_mut(*nth) {
                        *reading = io;
                    }
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(sample), Err)
    }

    /// Spoils the destinations, and does the operations of the check.
    pub(crate) fn land(&mut self) -> CallResult<()> {
        self.lanes.iter_mut().try_for_each(|(_, lane)| lane.lane().land())
    }

    /// The worst verdict of this rank's flows.
    pub(crate) fn check(&self) -> CallResult<VerifyResult> {
        let mut verdict = VerifyResult::Verified;
        for (_, lane) in &self.lanes {
            let one = lane.shared().check()?;
            if one != VerifyResult::Verified {
                verdict = one;
            }
        }
        Ok(verdict)
    }

    pub(crate) fn engine(&self) -> String {
        self.lanes.first().map_or_else(String::new, |(_, lane)| lane.shared().engine())
    }

    /// Closes all files; the first error counts.
    pub(crate) fn close(mut self) -> CallResult<()> {
        let mut closed = Ok(());
        for (_, lane) in &mut self.lanes {
            closed = closed.and(lane.lane().close().map(drop));
        }
        closed
    }
}

fn no_files(flow: &Flow) -> CallError {
    CallError::unsupported("bind", flow.to_string(), "it does no I/O on files")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(text: &str) -> Case {
        text.parse().unwrap()
    }

    const READ: &str = "uring@numa0[seq-read,direct,shared,1GiB,q8,n1,t2] x 1MiB";

    #[test]
    fn ranks_have_consecutive_parts_of_a_shared_file() {
        let shared = case(&format!(
            "r0.store0.file > r0.numa0.huge by {READ} & r0.store0.file > r1.numa0.huge by {READ} & \
             r1.store0.file > r2.numa0.huge by {READ}"
        ));
        let flows: Vec<&Flow> = shared.flows().collect();
        // 2 workers of rank 0, then 2 of rank 1: 4 in all. Rank 2 uses another file.
        let part = |nth: usize| part_of(&shared, nth, flows[nth]);
        let of = |first| Some(FilePart { first, workers: 4, name: None });
        assert_eq!((part(0), part(1), part(2)), (of(0), of(2), None));
        assert!(!is_foreign(flows[0]) && is_foreign(flows[1]));
        assert_eq!(worker_rank(flows[2]), Rank(2));
    }

    #[test]
    fn what_ranks_cannot_do_is_said() {
        let why = |text: &str, ranks| cannot(&case(text), ranks).unwrap_or_default();
        let own = format!(
            "r0.store0.file > r0.numa0.huge by {READ} & r1.store0.file > r1.numa0.huge by {READ}"
        );
        assert_eq!(why(&own, 2), "");
        assert!(why(&own, 1).contains("there is no rank 1: start with --ranks 2"));
        let foreign = format!("r0.store0.file > r1.numa0.huge by {READ}");
        assert!(why(&foreign, 2).contains("owns a file reads or writes it too"));
        let shared = format!("r0.store0.file > r0.numa0.huge by {READ} & {foreign}");
        assert_eq!(why(&shared, 2), "");
        assert!(why(&shared.replace("shared", "own"), 2).contains("shared, not own"));
        assert!(why(&shared.replacen("1MiB", "2MiB", 1), 2).contains("the same I/O"));
        let mixed = format!("{own} & numa0.huge > numa0.huge by cpu@numa0[copy-plain-t1] x 1MiB");
        assert!(why(&mixed, 2).contains("without other flows"));
        // One process: nothing to say.
        assert_eq!(why(&format!("store0.file > numa0.huge by {READ}"), 0), "");
        let made = "r1.numa0.reg > r1.store0.file by meta@numa0[create,own,d1,f9,t1] x 1B";
        assert_eq!(why(made, 2), "");
    }
}
