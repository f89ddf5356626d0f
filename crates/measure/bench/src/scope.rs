//! The facts about a machine that suites and plans use.

use std::collections::BTreeMap;

use pathline_schema::{Bytes, RankMember, StoreFacts, Topology};

use crate::message_grid::MessageGrid;
use crate::tuned::TunedKernels;

/// Facts about a machine, known without using it.
#[derive(Debug, Clone, Copy)]
pub struct PlanScope<'a> {
    /// Its components.
    pub topology: &'a Topology,
    /// Whether it is a model in virtual time.
    pub simulated: bool,
    /// Why no GPU runtime can be used; `None` if one can.
    pub without_runtime: Option<&'a str>,
    /// Maximum host memory for buffers.
    pub memory: Bytes,
    /// Environment variables that are set.
    pub env: &'a BTreeMap<String, String>,
    /// The kernels that suites use.
    pub tuned: &'a TunedKernels,
    /// Seed and number of random sets.
    pub draw: RandomDraw,
    /// Whether suites of one source take all GPUs as sources.
    pub all_pairs: bool,
    /// Sizes and windows of suites of messages.
    pub messages: MessageGrid,
    /// The processes of the run; empty in a run of one process.
    pub ranks: &'a [RankMember],
    /// The file stores of the run, by number.
    pub stores: &'a [StoreFacts],
}

static NO_SWITCHES: BTreeMap<String, String> = BTreeMap::new();
static PLAIN: TunedKernels = TunedKernels::plain();

impl<'a> PlanScope<'a> {
    /// One process on a real machine: plain kernels, no variables set, no stores, and a usable GPU
    /// runtime.
    pub fn new(topology: &'a Topology, memory: Bytes) -> Self {
        Self {
            topology,
            simulated: false,
            without_runtime: None,
            memory,
            env: &NO_SWITCHES,
            tuned: &PLAIN,
            draw: RandomDraw::default(),
            all_pairs: false,
            messages: MessageGrid::default(),
            ranks: &[],
            stores: &[],
        }
    }
}

/// Seed and number of suites' random sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RandomDraw {
    /// The same seed gives the same sets.
    pub seed: u64,
    /// Number of sets.
    pub sets: u32,
}

impl Default for RandomDraw {
    /// 240 sets: with 20 of them beyond the 90th percentile of their errors, it can still be
    /// estimated.
    fn default() -> Self {
        Self { seed: 1, sets: 240 }
    }
}
