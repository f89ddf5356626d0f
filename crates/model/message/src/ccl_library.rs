//! A library of collectives by kernels: the start of its operations, and its protocols.

use std::collections::BTreeSet;

use pathline_flow::{CclModel, NoPath, NvlsCost};
use pathline_schema::Cadence;

use crate::exchange::{ExchangeMember, ExchangeStart};

/// The protocol whose lines of 128 B carry a flag each.
pub(crate) const LL128: &str = "LL128";
/// The protocol of whole chunks with one flag behind each.
pub(crate) const SIMPLE: &str = "Simple";
/// A library with the start of its operations.
pub(crate) struct CclLibrary<'a> {
    pub(crate) ccl: &'a CclModel,
    pub(crate) cadence: Cadence,
    /// What a process adds for the GPUs that it drives besides the first, ns.
    pub(crate) launches: f64,
    pub(crate) nvls: Option<NvlsCost>,
}

impl<'a> CclLibrary<'a> {
    pub(crate) fn new(
        ccl: &'a CclModel,
        start: ExchangeStart,
        members: &[ExchangeMember],
    ) -> Result<Self, NoPath> {
        if start.cadence == Cadence::Graph && ccl.kernel_us.is_none() {
            let why = "the model of this library does not know what a graph saves of a launch: no \
                       kernel_us";
            return Err(NoPath(why.into()));
        }
        let first = members.first().map_or(0, |m| m.node);
        let gpus: BTreeSet<u32> =
            members.iter().filter(|m| m.node == first).map(|m| m.gpu).collect();
        let further = if start.one_process { gpus.len().saturating_sub(1) } else { 0 };
        let launches = further as f64 * ccl.gpu_launch_us * 1e3;
        Ok(Self { ccl, cadence: start.cadence, launches, nvls: ccl.nvls })
    }

    /// The same without reductions inside switches.
    pub(crate) const fn without_nvls(self) -> Self {
        Self { nvls: None, ..self }
    }

    /// What an operation takes besides its steps and bytes at the least, ns.
    pub(crate) fn base(&self) -> f64 {
        let kernel = self.ccl.kernel_us.unwrap_or(self.ccl.base_us) * 1e3;
        match (self.cadence, self.ccl.kernel_us) {
            (Cadence::Graph | Cadence::Streaming, Some(_)) => kernel,
            _ => kernel + self.launches + self.waits(),
        }
    }

    pub(crate) fn waits(&self) -> f64 {
        if self.cadence == Cadence::Isolated { self.ccl.isolated_us * 1e3 } else { 0.0 }
    }

    /// The time of an operation whose steps and bytes take `moving` ns. The GPU works on one operation
    /// while the process launches the next.
    pub(crate) fn whole(&self, moving: f64) -> f64 {
        let time = self.base() + moving;
        match (self.cadence, self.ccl.kernel_us) {
            (Cadence::Streaming, Some(_)) => time.max(self.ccl.base_us * 1e3 + self.launches),
            _ => time,
        }
    }

    /// Whether the root of an operation begins the next before its bytes have arrived everywhere.
    pub(crate) fn overlaps(&self) -> bool {
        self.ccl.kernel_us.is_some() && self.cadence != Cadence::Isolated
    }
}

/// A protocol: how chunks and the flags of their arrival travel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkProtocol {
    pub(crate) name: &'static str,
    pub(crate) step: f64,
    pub(crate) net_step: f64,
    /// What a step to another node takes besides, ns: the threads of both processes that post it and see it
    /// arrive. The library's table has it not.
    pub(crate) proxy: f64,
    /// Share of the edges' rate.
    pub(crate) share: f64,
    /// The most on all rings together, GB/s.
    pub(crate) gbs: f64,
    pub(crate) chunk: f64,
    /// Before its first step, ns.
    pub(crate) start: f64,
    /// Time of the last part's copy over that of the part on an edge.
    pub(crate) drain: f64,
    /// Channels of a large operation, where small ones have fewer.
    pub(crate) channels: Option<f64>,
    /// Its start in the library's own table, ns.
    pub(crate) table: Option<f64>,
}

impl ChunkProtocol {
    /// The payload's share of a message over a path of `cap` GB/s: LL moves more, flags and waiting.
    pub(crate) fn share_of(&self, cap: f64, ccl: &CclModel) -> f64 {
        self.share.min(self.gbs / cap) * ccl.message_share
    }
}

/// The protocols that a library has.
pub(crate) fn protocols(ccl: &CclModel) -> Vec<ChunkProtocol> {
    let proxy = ccl.net_proxy_us * 1e3;
    let ll128 = ccl.ll128.map(|ll128| ChunkProtocol {
        name: LL128,
        step: ll128.step_us * 1e3,
        net_step: ll128.net_step_us * 1e3,
        proxy,
        share: ll128.share,
        gbs: f64::INFINITY,
        chunk: ccl.chunk_bytes as f64,
        start: ll128.start_us * 1e3,
        drain: ccl.drain_share,
        channels: None,
        table: ccl.choice.map(|table| table.ll128_us * 1e3),
    });
    let others = [
        ChunkProtocol {
            name: "LL",
            step: ccl.ll_step_us * 1e3,
            net_step: ccl.net_ll_step_us * 1e3,
            proxy,
            share: ccl.ll_share,
            gbs: ccl.ll_gbs.unwrap_or(f64::INFINITY),
            chunk: ccl.ll_chunk_bytes as f64,
            start: 0.0,
            drain: 0.0,
            channels: ccl.channels.map(f64::from),
            table: ccl.choice.map(|table| table.ll_us * 1e3),
        },
        ChunkProtocol {
            name: SIMPLE,
            step: ccl.step_us * 1e3,
            net_step: ccl.net_step_us * 1e3,
            proxy,
            share: 1.0,
            gbs: f64::INFINITY,
            chunk: ccl.chunk_bytes as f64,
            start: ccl.simple_us * 1e3,
            drain: ccl.drain_share,
            channels: None,
            table: ccl.choice.map(|table| table.simple_us * 1e3),
        },
    ];
    others.into_iter().chain(ll128).collect()
}
