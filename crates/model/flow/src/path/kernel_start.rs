//! Start of a kernel: its launch, less what of its transfer the launch hides.

use pathline_schema::{Flow, Unit};

use super::builder::PathBuilder;
use crate::graph::NodeGraph;
use crate::model::GpuCacheLevel;

/// What a kernel at `at` does with the two ends of its flow.
pub(crate) struct KernelTraffic {
    /// Bytes read for a byte of payload.
    pub reads: f64,
    /// Bytes written for a byte of payload.
    pub writes: f64,
    pub at: Unit,
}

impl KernelTraffic {
    /// Share of the GPU memory's peak that the kernel reaches; none for the share of kernels that load.
    pub(crate) fn memory_share(&self, net: &NodeGraph, flow: &Flow) -> Option<f64> {
        let model = &net.model.gpu_memory;
        if self.stores_locally(flow) {
            return model.store_efficiency;
        }
        if flow.src.unit != self.at || flow.dst.unit != self.at || model.turnaround == 0.0 {
            return None;
        }
        let turned = 2.0 * self.reads.min(self.writes) / (self.reads + self.writes);
        Some(model.kernel_efficiency / (1.0 + model.turnaround * turned))
    }

    fn stores_locally(&self, flow: &Flow) -> bool {
        self.writes > 0.0 && self.reads == 0.0 && flow.dst.unit == self.at
    }

    /// The unit at the other end of the links; none of a kernel in its own GPU's memory.
    fn far_end(&self, flow: &Flow) -> Option<Unit> {
        let ends = [(self.reads, flow.src.unit), (self.writes, flow.dst.unit)];
        let far = ends.into_iter().find(|&(bytes, unit)| bytes > 0.0 && unit != self.at);
        far.map(|(_, unit)| unit)
    }

    /// Device time of the kernel besides its bytes over the narrowest stage of the path, us.
    pub(crate) fn start_us(&self, net: &NodeGraph, flow: &Flow, path: &PathBuilder<'_>) -> f64 {
        let time = &net.model.time;
        let starts = &time.kernel_start;
        let bytes = flow.bytes.as_f64();
        let moving_us = |bytes: f64| bytes / path.cap / 1e3;
        let (base, overlap) = match self.far_end(flow) {
            None => (time.kernel_us, self.absorbed_us(net, flow, path)),
            Some(far) => {
                let reads_far = self.reads > 0.0 && flow.src.unit == far;
                let of_gpu = far.gpu().is_some();
                let (us, hidden) = match of_gpu {
                    true => {
                        let links = f64::from(path.passed + 1);
                        let us = starts.peer_us.unwrap_or(time.kernel_us);
                        (us + starts.link_us * links, starts.peer_hidden_us)
                    }
                    false => (starts.host_us.unwrap_or(time.kernel_us), starts.host_hidden_us),
                };
                let moving = moving_us(bytes);
                let overlap = match reads_far {
                    // A launch hides a short transfer whole, and of a long one no more than itself.
                    true if hidden > 0.0 => hidden * moving / (hidden + moving),
                    true => 0.0,
                    false => {
                        let posted = starts.posted_bytes.unwrap_or(0).min(flow.bytes.0) as f64;
                        moving_us(posted)
                            + if of_gpu { self.whole_lines_us(net, flow, path) } else { 0.0 }
                    }
                };
                (us, overlap)
            }
        };
        (base - overlap).max(0.0)
    }

    /// Time that stores gain which the L2 takes at its rate and still holds at the end, us.
    fn absorbed_us(&self, net: &NodeGraph, flow: &Flow, path: &PathBuilder<'_>) -> f64 {
        let cache = shared_cache(net).filter(|_| self.stores_locally(flow));
        let Some((cache, rate)) = cache.and_then(|c| Some((c, c.store_gbs?))) else { return 0.0 };
        let held = flow.bytes.0.min(cache.bytes) as f64;
        (held * (1.0 / path.cap - 1.0 / rate) / 1e3).max(0.0)
    }

    /// Time that the last stores to another GPU gain, which the L2 writes back in whole lines.
    fn whole_lines_us(&self, net: &NodeGraph, flow: &Flow, path: &PathBuilder<'_>) -> f64 {
        let fabric = &net.model.fabric;
        let Some((cache, header)) = shared_cache(net).zip(fabric.write_back_header_bytes) else {
            return 0.0;
        };
        let extra = if path.passed > 0 { fabric.forwarded_bytes } else { 0.0 };
        let packet = |header: f64| fabric.payload_bytes + header + extra;
        let share = packet(header) / packet(fabric.write.header_bytes);
        let held = flow.bytes.0.min(cache.bytes) as f64;
        (held / path.cap * (1.0 - share) / 1e3).max(0.0)
    }
}

/// The largest cache that all compute units of a GPU share.
fn shared_cache(net: &NodeGraph) -> Option<&GpuCacheLevel> {
    net.model.kernel.cache.iter().rev().find(|cache| cache.level > 1)
}
