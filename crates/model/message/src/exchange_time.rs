//! The predicted time of an exchange, its algorithm and its bounds.

use pathline_schema::{Bytes, Ns, Rate};

use crate::TimeBounds;
use crate::link_load::LinkLoad;
use crate::rings::GpuRing;
use crate::scene::ExchangeScene;

/// The algorithm of a reduction by NVLS.
pub(crate) const IN_SWITCHES: &str = "reduced in the switches, NVLS";

/// How long an exchange takes, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct ExchangeTime {
    /// Until the last rank is done. Of a window of messages the time of each message; of a ping
    /// half of the round trip.
    pub time: Ns,
    /// The mean over the ranks, which is what OSU's collectives print.
    pub mean: Ns,
    /// What the first such exchange takes longer, because processes map the buffers of each other's GPUs;
    /// 0 where nothing is mapped or the time of that is not described.
    pub first_more: Ns,
    /// Of each pair, or until each rank of a collective is done, in order.
    pub each: Vec<Ns>,
    /// Payload of all pairs over the time, as osu_bw and osu_mbw_mr count; for collectives bytes
    /// over time (nccl-tests' algbw).
    pub algbw: Rate,
    /// algbw times nccl-tests' factor of the operation.
    pub busbw: Rate,
    /// Algorithm and protocol: `ring, Simple`.
    pub algorithm: String,
    /// The steps of the algorithm, with times.
    pub steps: Vec<String>,
    /// The rings that carry it, if any do.
    pub rings: Vec<GpuRing>,
    /// Links and engines that are full while most bytes move; empty if starts decide.
    pub bound_by: Vec<String>,
    /// Lower bounds for any library.
    pub bounds: TimeBounds,
    /// What the bytes pass, the busiest first; empty unless asked for.
    pub links: Vec<LinkLoad>,
}

impl ExchangeTime {
    /// Whether the switches reduce.
    pub fn is_in_switches(&self) -> bool {
        self.algorithm == IN_SWITCHES
    }
}

/// The outcome of an algorithm; the layer adds rates and bounds.
#[derive(Debug, Default)]
pub(crate) struct AlgorithmTime {
    /// ns.
    pub time: f64,
    pub mean: f64,
    /// By pair, or by rank.
    pub each: Vec<f64>,
    /// Number of senders whose payload counts.
    pub pairs: usize,
    pub algorithm: String,
    pub steps: Vec<String>,
    pub rings: Vec<GpuRing>,
    pub bound_by: Vec<String>,
    /// Bytes through each resource of the scene.
    pub loads: Vec<f64>,
    /// The most buffers of others that one process maps before its first message.
    pub maps: u32,
}

impl AlgorithmTime {
    pub(crate) fn into_time(
        self,
        bytes: Bytes,
        bus_factor: f64,
        bounds: TimeBounds,
        scene: &ExchangeScene<'_>,
        map_us: f64,
    ) -> ExchangeTime {
        let links = scene.link_loads(&self.loads, self.time);
        let first_more = f64::from(self.maps) * map_us * 1e3;
        let mut steps = self.steps;
        if first_more > 0.0 {
            let plural = if self.maps == 1 { "" } else { "s" };
            steps.push(format!(
                "the first time {} more: a process maps {} buffer{plural} of other processes",
                us(first_more),
                self.maps
            ));
        }
        let algbw = Rate(bytes.as_f64() * self.pairs.max(1) as f64 / self.time);
        ExchangeTime {
            time: Ns(self.time),
            mean: Ns(self.mean),
            first_more: Ns(first_more),
            each: self.each.into_iter().map(Ns).collect(),
            algbw,
            busbw: algbw * bus_factor,
            algorithm: self.algorithm,
            steps,
            rings: self.rings,
            bound_by: self.bound_by,
            bounds,
            links,
        }
    }
}

/// Renders a time in ns with its unit.
pub(crate) fn us(ns: f64) -> String {
    Ns(ns).to_string()
}
