//! The ranks of a job as a network of nodes that exchange in pairs, all at once.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use pathline_bench::rails_of;
use pathline_diagnose::{NetShape, PairMeter, PairTimes};
use pathline_hal::{CallError, CallResult, RankGroup};
use pathline_schema::{
    Bytes, Case, CpuSet, Flow, MemKind, MessageOp, Mover, Place, RankMember, Transport, WireOp,
};

use crate::hooks::ProcessHooks;
use crate::machine::HostMachine;
use crate::ranks::{RankJob, RankLimits, RankProcesses};

/// Messages of a repetition: enough bytes for one to outlast the longest round trip.
const SEND: WireOp = WireOp::Send { window: 4 };
const BYTES: Bytes = Bytes::kib(256);
/// Samples of each time; their median counts.
const SAMPLES: usize = 3;
/// What a sample takes at least, ns, and the repetitions that it has at most.
const SAMPLE: f64 = 10e6;
const MOST_REPS: f64 = 1000.0;
/// Of this the ranks have 30 s for a step, and to open each of their libraries.
const STEP_TIMEOUT: Duration = Duration::from_secs(50);

/// The ranks of a job that a launcher started, by node.
pub struct NetRanks {
    ranks: RankProcesses,
    /// Memory that is sent and received, by node and rail.
    places: Vec<Vec<Place>>,
    hosts: Vec<String>,
    /// Rails that all nodes with an MPI have.
    rails: usize,
    lost: Vec<(usize, String)>,
}

impl NetRanks {
    /// Gathers the ranks.
    ///
    /// # Errors
    /// A rank does not come.
    pub fn open(job: &RankJob, host: &HostMachine, hooks: ProcessHooks) -> Result<Self> {
        let limits = RankLimits { step: Some(STEP_TIMEOUT), start: None };
        let ranks = RankProcesses::open(job, host, None, limits, hooks, &mut || ())?;
        let members = ranks.members();
        let mut lost: Vec<(usize, String)> = Vec::new();
        for member in members.iter().filter(|member| !member.ways.contains_key(&Transport::Mpi)) {
            let why = member.without.get(&Transport::Mpi).map_or("not here", String::as_str);
            let node = member.node as usize;
            if lost.iter().all(|(other, _)| *other != node) {
                lost.push((node, format!("no MPI in rank {}: {why}", member.rank.0)));
            }
        }
        // Memory of GPUs only where all ranks can send it.
        let takes_gpus = |member: &RankMember| {
            !member.gpus.is_empty() && member.device_memory.contains_key(&Transport::Mpi)
        };
        let is_lost = |node: usize| lost.iter().any(|(other, _)| *other == node);
        let mut able = members.iter().filter(|member| !is_lost(member.node as usize));
        let mem = if able.all(takes_gpus) { MemKind::Vram } else { MemKind::Paged };
        let place = |member: &&RankMember| match mem {
            MemKind::Vram => member.gpu_memory(mem),
            _ => Some(member.host_memory(mem)),
        };
        let nodes = rails_of(members);
        let places: Vec<Vec<Place>> =
            nodes.iter().map(|node| node.iter().filter_map(place).collect()).collect();
        let of_able = places.iter().enumerate().filter(|(node, _)| !is_lost(*node));
        let rails = of_able.map(|(_, places)| places.len()).min().unwrap_or(0);
        let host = |node: &Vec<&RankMember>| node.first().map_or(String::new(), |m| m.host.clone());
        let hosts = nodes.iter().map(host).collect();
        Ok(Self { places, hosts, rails, lost, ranks })
    }

    /// The nodes, with rails that all of them have.
    pub fn shape(&self) -> NetShape {
        NetShape { hosts: self.hosts.clone(), rails: self.rails, leaves: Vec::new() }
    }

    /// ns of a repetition of each of these flows, which run at the same time.
    fn times(&self, ends: &[(Place, Place)]) -> CallResult<Vec<f64>> {
        let wire = MessageOp::new(Transport::Mpi, SEND);
        let flow = |(src, dst): &(Place, Place)| Flow {
            src: *src,
            dst: *dst,
            by: Mover::Wire { at: src.unit, wire },
            bytes: BYTES,
        };
        let case = Case::together(ends.iter().map(flow).collect());
        let id = self.ranks.bind(&case, &CpuSet::default())?;
        let samples = self.samples(id)?;
        self.ranks.release(id)?;
        let median = |nth: usize| {
            let of_flow = samples.iter().filter_map(|sample| sample.get(nth).copied());
            let sorted = pathline_stats::ascending(of_flow);
            pathline_stats::interpolated(&sorted, 0.5).unwrap_or(f64::NAN)
        };
        let by_ends: BTreeMap<(Place, Place), f64> =
            case.timed.iter().enumerate().map(|(nth, f)| ((f.src, f.dst), median(nth))).collect();
        Ok(ends.iter().map(|ends| by_ends.get(ends).copied().unwrap_or(f64::NAN)).collect())
    }

    fn samples(&self, id: pathline_hal::ExchangeId) -> CallResult<Vec<Vec<f64>>> {
        let run = |reps: u64| -> CallResult<Vec<f64>> {
            let times = self.ranks.run(id, reps)?;
            Ok(times.into_iter().map(|time| time.elapsed.0 / reps as f64).collect())
        };
        // Connections are made by the first, which takes longer: too few repetitions at worst.
        let first = pathline_stats::ascending(run(1)?);
        let fastest = first.first().copied().unwrap_or(SAMPLE);
        let reps = (SAMPLE / fastest.max(1.0)).clamp(1.0, MOST_REPS).ceil() as u64;
        (0..SAMPLES).map(|_| run(reps)).collect()
    }

    /// Notes whom a failed step lost, and goes on without them.
    fn lose(&mut self, error: &CallError) {
        let named = error.failed_ranks().to_vec();
        let gone = self.ranks.go_on_without(&named);
        let members = self.ranks.members();
        for member in members {
            let is_gone = gone.as_ref().map_or(true, |gone| gone.contains(&member.rank));
            let node = member.node as usize;
            if is_gone && self.lost.iter().all(|(lost, _)| *lost != node) {
                let why = match named.contains(&member.rank) {
                    true => error.to_string(),
                    false => "it waits in vain for a rank that was lost".to_owned(),
                };
                self.lost.push((node, why));
            }
        }
    }

    /// Times of pairs of nodes in one direction, rail by rail. NaN of lost ones.
    fn one_way(&mut self, pairs: &[[usize; 2]]) -> Vec<Vec<f64>> {
        loop {
            let is_lost = |node: &usize| self.lost.iter().any(|(lost, _)| lost == node);
            let ends = |[a, b]: &[usize; 2]| -> Vec<(Place, Place)> {
                let of_node = |node: &usize| self.places.get(*node).map_or(&[][..], Vec::as_slice);
                let lost = is_lost(a) || is_lost(b);
                let both = of_node(a).iter().copied().zip(of_node(b).iter().copied());
                both.take(if lost { 0 } else { self.rails }).collect()
            };
            let ends: Vec<Vec<(Place, Place)>> = pairs.iter().map(ends).collect();
            let all = ends.concat();
            if all.is_empty() {
                return vec![Vec::new(); pairs.len()];
            }
            let before = self.lost.len();
            match self.times(&all) {
                Ok(times) => {
                    let mut times = times.into_iter();
                    return ends.iter().map(|of| times.by_ref().take(of.len()).collect()).collect();
                }
                Err(error) => self.lose(&error),
            }
            if self.lost.len() == before {
                return vec![Vec::new(); pairs.len()];
            }
        }
    }
}

impl PairMeter for NetRanks {
    fn measure(&mut self, pairs: &[[usize; 2]]) -> Vec<PairTimes> {
        let back: Vec<[usize; 2]> = pairs.iter().map(|[a, b]| [*b, *a]).collect();
        let (there, back) = (self.one_way(pairs), self.one_way(&back));
        let both = there.into_iter().zip(back);
        both.map(|(there, back)| PairTimes {
            rails: there.into_iter().zip(back).map(|(there, back)| [there, back]).collect(),
        })
        .collect()
    }

    fn lost(&self) -> Vec<(usize, String)> {
        self.lost.clone()
    }
}
