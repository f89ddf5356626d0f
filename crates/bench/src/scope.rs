//! What suites and plans know of a machine.

use std::collections::BTreeMap;

use pathline_schema::{Bytes, RankMember, StoreFacts, Topology};

use crate::tuned::TunedKernels;

/// What is known of a machine without touching it.
#[derive(Debug, Clone, Copy)]
pub struct PlanScope<'a> {
    /// What it is made of.
    pub topology: &'a Topology,
    /// Whether it is a model in virtual time.
    pub simulated: bool,
    /// Why no GPU runtime can be used; none if one can.
    pub without_runtime: Option<&'a str>,
    /// Most host memory for buffers.
    pub memory: Bytes,
    /// Environment switches that were set.
    pub env: &'a BTreeMap<String, String>,
    /// The kernels that suites take.
    pub tuned: &'a TunedKernels,
    /// What random sets are drawn from.
    pub draw: RandomDraw,
    /// The processes that measure together; none in a run of one process.
    pub ranks: &'a [RankMember],
    /// The places for files that the run was given, by number.
    pub stores: &'a [StoreFacts],
}

static NO_SWITCHES: BTreeMap<String, String> = BTreeMap::new();
static PLAIN: TunedKernels = TunedKernels::plain();

impl<'a> PlanScope<'a> {
    /// One process on a real machine: plain kernels, no switches set, no places for files, and
    /// nothing against a GPU runtime.
    pub fn new(topology: &'a Topology, memory: Bytes) -> Self {
        Self {
            topology,
            simulated: false,
            without_runtime: None,
            memory,
            env: &NO_SWITCHES,
            tuned: &PLAIN,
            draw: RandomDraw::default(),
            ranks: &[],
            stores: &[],
        }
    }
}

/// What suites draw their random sets from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomDraw {
    /// The same seed gives the same sets.
    pub seed: u64,
    /// How many sets.
    pub sets: u32,
}

impl Default for RandomDraw {
    /// 240 sets: with 20 of them beyond it, the 90th percentile of their errors is still known.
    fn default() -> Self {
        Self { seed: 1, sets: 240 }
    }
}
