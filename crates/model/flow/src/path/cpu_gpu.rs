//! The path of CPU threads that load from the memory of a GPU, or store to it, through the mapping that its
//! driver gives them.

use pathline_schema::{CpuOp, Flow, LinkEnd, MemKind, Unit};

use super::builder::{LegSide, PathBuilder, no};
use super::cpu::CpuTeam;
use crate::model::GpuMapping;
use crate::operation::{BuiltPath, NoPath};

/// A line of a core's caches, and of its write-combining buffers.
const LINE: f64 = 64.0;

impl CpuTeam<'_> {
    /// Threads that reach over the link of a GPU; `reads` and `writes` are bytes for a byte of payload.
    pub(super) fn over_link(
        &self,
        flow: &Flow,
        reads: f64,
        writes: f64,
    ) -> Result<BuiltPath, NoPath> {
        let managed = |unit: Unit, mem| unit.gpu().is_some() && mem == MemKind::Managed;
        let moves = managed(flow.src.unit, flow.src.mem) || managed(flow.dst.unit, flow.dst.mem);
        if moves && self.net.described {
            return no(
                "managed pages move to the CPU that touches them; what that costs is not modelled",
            );
        }
        let Some(mapping) = &self.net.model.cpu.gpu_memory else {
            return no(
                "how CPU threads reach the memory of a GPU is not described: [cpu.gpu_memory]",
            );
        };
        if self.work.op == CpuOp::Touch {
            return no("memory of a GPU has no first touch: its driver backs it");
        }
        let chases = self.work.op == CpuOp::Chase;
        // Each thread copies one part, and the C library chooses by its size.
        let part = flow.bytes.as_f64() / self.threads;
        let stored_around = writes > 0.0 && self.streams(part);
        let held = self.cache(flow.bytes.as_f64() * (reads + writes)).is_some();
        if mapping.cached && held && !stored_around {
            if !self.net.described {
                return no("not known: whether the CPUs cache memory of a GPU");
            }
            return if chases { self.chase(flow) } else { self.stream(flow, reads, writes) };
        }
        let mut path = PathBuilder::new(self.net, flow);
        let mut step_ns = 0.0;
        match flow.src.unit {
            Unit::Gpu(g) if reads > 0.0 => {
                if chases {
                    if !self.net.described {
                        return no("the load latency of this machine is not known");
                    }
                    step_ns = mapping.load_ns;
                    let chain = self.work.effect(flow.bytes).chain.max(1) as f64;
                    let rate = flow.bytes.as_f64() / (chain * step_ns);
                    path.cap(self.threads * rate, "load latency");
                } else {
                    let rate = self.threads * self.load_gbs(mapping) / reads;
                    path.cap(rate, &format!("loads of GPU memory by {}", self.size()));
                }
                let packet = if mapping.cached { LINE } else { self.width() };
                path.cpu_port(
                    g,
                    self.at,
                    LegSide::Out,
                    (packet, mapping.load_header_bytes),
                    reads,
                )?;
            }
            _ if reads > 0.0 => self.host_end(&mut path, flow, reads, true),
            _ => {}
        }
        match flow.dst.unit {
            Unit::Gpu(g) if writes > 0.0 => {
                let packet = (LINE, mapping.store_header_bytes);
                path.cpu_port(g, self.at, LegSide::In, packet, writes)?;
                let loads_first = mapping.cached && !self.streams(part);
                let each = if loads_first {
                    let packet = (LINE, mapping.load_header_bytes);
                    path.cpu_port(g, self.at, LegSide::Out, packet, writes)?;
                    self.load_gbs(mapping)
                } else {
                    mapping.store_gbs
                };
                let rate = self.threads * each / writes;
                path.cap(rate, &format!("stores to GPU memory by {}", self.size()));
            }
            _ if writes > 0.0 => self.host_end(&mut path, flow, writes, false),
            _ => {}
        }
        self.finish(path, flow, step_ns)
    }

    /// Loads that one thread keeps going, GB/s.
    fn load_gbs(&self, mapping: &GpuMapping) -> f64 {
        let bytes =
            if mapping.cached { LINE * f64::from(mapping.lines_in_flight) } else { self.width() };
        bytes / mapping.load_ns
    }

    /// The end in host memory of a copy whose other end is a GPU's.
    fn host_end(&self, path: &mut PathBuilder<'_>, flow: &Flow, ratio: f64, loads: bool) {
        let bytes = flow.bytes.as_f64();
        let around = self.streams(bytes / self.threads);
        let (place, traffic) = match (loads, around) {
            (true, _) => (flow.src, ratio),
            (false, true) => (flow.dst, ratio),
            // A store that misses loads its line first.
            (false, false) => (flow.dst, 2.0 * ratio),
        };
        let held = self.cache(bytes * ratio).is_some();
        if held && (loads || !around) {
            return;
        }
        let each = self.net.model.cpu.core_gbs / (traffic * self.slowdown(place.unit));
        path.cap(self.threads * each, &format!("memory traffic of {}", self.size()));
        self.memory(path, place, traffic, loads);
    }
}

impl PathBuilder<'_> {
    /// Between the cores of a domain and a GPU: `packet` is its payload and the bytes besides, `ratio` the bytes
    /// for a byte of the flow's payload.
    fn cpu_port(
        &mut self,
        g: u32,
        cores: u32,
        side: LegSide,
        packet: (f64, f64),
        ratio: f64,
    ) -> Result<(), NoPath> {
        self.demand(LinkEnd::Gpu(g), ratio);
        let (verb, what) = match side {
            LegSide::In => ("stores", "CPU threads that store to the GPU"),
            LegSide::Out => ("loads", "CPU threads that load from the GPU"),
        };
        let Some(home) = self.port(g, side, packet, what, ratio) else {
            return no(format!("the path of CPU {verb} to gpu{g} is not known"));
        };
        if let Some(home) = home.filter(|home| *home != cores) {
            let (home, cores) = (LinkEnd::Numa(home), LinkEnd::Numa(cores));
            let (a, b) = if side == LegSide::In { (cores, home) } else { (home, cores) };
            self.cpu_link(a, b, ratio);
        }
        Ok(())
    }
}
