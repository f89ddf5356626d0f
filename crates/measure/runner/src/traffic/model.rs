//! The counters of a simulated machine that plays cases in virtual time.

use anyhow::{Result, anyhow, bail};
use pathline_flow::{Network, RuntimeEnv};
use pathline_hal::{
    CopyChoice, GpuKernel, GpuStream, KernelLaunch, Machine, MachineBuffer, StartGate, TrafficMeter,
};
use pathline_schema::{
    Bytes, Case, Flow, KernelOp, KernelVariant, LinkEnd, MemKind, Mover, Ns, Place, Rank, Topology,
    TrafficCounter, TrafficReading, UncountedPath, Unit,
};
use pathline_sim::SimOptions;

use crate::machine::MachineModel;

/// Virtual time from the start of a step to the first reading: starts are over.
const LEAD: Ns = Ns(1e6);
/// The most copies of a flow in a step.
const MAX_COPIES: f64 = 262_144.0;
/// Bytes of each copy of the steps that a machine plays by itself.
const STEP_BYTES: Bytes = Bytes::gib(1);

/// A simulated machine whose traffic is watched.
pub struct ModelTraffic {
    machine: Machine,
    network: Network,
}

/// A flow that copies again and again.
struct PlayedFlow<'m> {
    _buffers: [MachineBuffer<'m>; 2],
    _stream: GpuStream<'m>,
    _kernel: Option<GpuKernel<'m>>,
}

impl ModelTraffic {
    /// Opens the machine.
    ///
    /// # Errors
    /// It makes no network.
    pub fn open(model: &MachineModel) -> Result<Self> {
        let env = RuntimeEnv::default();
        let machine = pathline_sim::machine_with(model.desc(), env, &SimOptions::default())?;
        Ok(Self { machine, network: Network::new(model.desc(), env)? })
    }

    /// Its counters.
    pub fn counters(&self) -> &[TrafficCounter] {
        self.meter().map_or(&[], |meter| meter.counters())
    }

    /// Its paths that nothing counts.
    pub fn uncounted(&self) -> &[UncountedPath] {
        self.meter().map_or(&[], |meter| meter.uncounted())
    }

    fn meter(&self) -> Option<&dyn TrafficMeter> {
        self.machine.traffic.as_deref()
    }

    fn read(&self) -> Vec<TrafficReading> {
        self.meter().map_or_else(Vec::new, |meter| meter.read())
    }

    /// The readings at the start and at the end of `interval` of virtual time, in which a case runs; nothing
    /// does without one.
    ///
    /// # Errors
    /// The machine cannot play the case.
    pub fn play(&self, case: Option<&Case>, interval: Ns) -> Result<[Vec<TrafficReading>; 2]> {
        let flows = case.into_iter().flat_map(Case::flows);
        let gate = self.machine.gate()?;
        let played: Vec<PlayedFlow<'_>> =
            flows.map(|flow| self.start(flow, interval, &gate)).collect::<Result<_>>()?;
        gate.release()?;
        self.machine.clock.sleep(LEAD);
        let before = self.read();
        self.machine.clock.sleep(interval);
        let after = self.read();
        drop(played);
        Ok([before, after])
    }

    /// Enqueues copies behind a gate for as long as a step lasts.
    fn start(&self, flow: &Flow, interval: Ns, gate: &StartGate<'_>) -> Result<PlayedFlow<'_>> {
        let machine = &self.machine;
        let refused = |why: &str| anyhow!("{flow}: {why}");
        let (at, variant) = match flow.by {
            Mover::Dma { at } | Mover::Blit { at } => (at, None),
            Mover::Kernel { at, variant } if variant.op == KernelOp::Copy => (at, Some(variant)),
            _ => bail!(refused(
                "watch plays copies by dma, blit and kernel; `pathline run` plays all"
            )),
        };
        let gpu = machine.gpu(at.gpu().ok_or_else(|| refused("expected a GPU as its mover"))?)?;
        for peer in [flow.src.unit, flow.dst.unit].iter().filter_map(|unit| unit.gpu()) {
            if peer != gpu.index() {
                machine.driver()?.enable_peer(gpu.index(), peer)?;
            }
        }
        let alone =
            self.network.predict(&Case::together(vec![*flow])).map_err(|no| refused(&no.0))?;
        let time = alone.first().map_or(interval, |predicted| predicted.time);
        let copies = ((interval + LEAD).0 / time.0).ceil() + 1.0;
        if copies > MAX_COPIES {
            bail!(refused("too many copies in an interval: larger copies or a shorter --interval"));
        }
        let [src, dst] = [flow.src, flow.dst].map(|place| machine.buffer(place, flow.bytes));
        let (src, dst, stream) = (src?, dst?, gpu.stream()?);
        let kernel = variant.map(|variant| gpu.kernel(&variant)).transpose()?;
        let launch = KernelLaunch { src: src.address(), dst: dst.address(), bytes: flow.bytes };
        stream.hold(gate)?;
        for _ in 0..copies as u64 {
            match (&kernel, flow.by) {
                (Some(kernel), _) => stream.launch(kernel, &launch)?,
                (None, Mover::Blit { .. }) => {
                    stream.copy(launch.dst, launch.src, launch.bytes, CopyChoice::Blit)?;
                }
                _ => stream.copy(launch.dst, launch.src, launch.bytes, CopyChoice::Auto)?,
            }
        }
        Ok(PlayedFlow { _buffers: [src, dst], _stream: stream, _kernel: kernel })
    }
}

/// What a simulated machine plays by itself: a copy over its widest link between GPUs, copies from the host to all
/// GPUs at once, nothing.
pub fn model_steps(topology: &Topology) -> Vec<Option<Case>> {
    let vram = |gpu| Place { rank: Rank(0), unit: Unit::Gpu(gpu), mem: MemKind::Vram };
    let links = topology.links.iter().filter_map(|link| match (link.a, link.b) {
        (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) => Some((a, b, link.peak.map_or(0.0, |peak| peak.0))),
        _ => None,
    });
    // The first of the widest; of GPUs behind switches the first two.
    let widest = links.reduce(|best, link| if link.2 > best.2 { link } else { best });
    let behind = || Some((topology.gpus.first()?.index, topology.gpus.get(1)?.index, 0.0));
    let peers = widest.or_else(behind).map(|(a, b, _)| {
        let by =
            Mover::Kernel { at: Unit::Gpu(a), variant: KernelVariant::standard(KernelOp::Copy) };
        Case::single(vram(a), vram(b), by, STEP_BYTES)
    });
    let from_host = topology.gpus.iter().map(|gpu| {
        let unit = Unit::Numa(gpu.numa.unwrap_or_default());
        let src = Place { rank: Rank(0), unit, mem: MemKind::Pinned };
        let by = Mover::Dma { at: Unit::Gpu(gpu.index) };
        Flow { src, dst: vram(gpu.index), by, bytes: STEP_BYTES }
    });
    let from_host: Vec<Flow> = from_host.collect();
    let host = (!from_host.is_empty()).then(|| Case::together(from_host));
    peers.map(Some).into_iter().chain(host.map(Some)).chain([None]).collect()
}

#[cfg(test)]
mod tests {
    use pathline_schema::TrafficWay;

    use super::*;

    /// What passed is what the case moves, on its path alone.
    #[test]
    fn a_played_case_moves_what_it_says_and_rest_is_rest() {
        let model = MachineModel::read("mi250x").unwrap();
        let traffic = ModelTraffic::open(&model).unwrap();
        let case = "r0.numa3.pinned > r0.gpu0.vram by dma@gpu0 x 64MiB".parse().unwrap();
        let moved = |case: Option<&Case>| {
            let [before, after] = traffic.play(case, Ns(1e8)).unwrap();
            let counters = traffic.counters();
            let rows = counters.iter().zip(before.iter().zip(&after));
            let rates = rows.map(|(counter, (before, after))| {
                (counter.path.clone(), counter.way, counter.moved(before, after).unwrap().rate().0)
            });
            rates.filter(|(.., rate)| *rate > 0.0).collect::<Vec<_>>()
        };
        let rates = moved(Some(&case));
        let [(path, TrafficWay::In, rate)] = rates.as_slice() else { panic!("{rates:?}") };
        assert_eq!(path.to_string(), "gpu0-numa3 xGMI");
        assert!((20.0..36.0).contains(rate), "{rate}");
        assert_eq!(moved(None), []);
    }

    #[test]
    fn a_case_that_cannot_be_played_says_why() {
        let traffic = ModelTraffic::open(&MachineModel::read("mi250x").unwrap()).unwrap();
        let why = |case: &str| {
            let case = case.parse().unwrap();
            traffic.play(Some(&case), Ns(1e10)).unwrap_err().to_string()
        };
        let tiny = why("r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 64B");
        assert!(tiny.contains("too many copies"), "{tiny}");
        let cpu = why("r0.numa0.huge > r0.numa0.huge by cpu@numa0[copy-memcpy-t1] x 1MiB");
        assert!(cpu.contains("watch plays copies"), "{cpu}");
    }

    #[test]
    fn every_machine_with_gpus_plays_its_own_steps() {
        for name in ["mi250x", "hgx-h200"] {
            let model = MachineModel::read(name).unwrap();
            let traffic = ModelTraffic::open(&model).unwrap();
            let steps = model_steps(&model.desc().topology());
            assert_eq!(steps.len(), 3);
            for step in &steps {
                traffic.play(step.as_ref(), Ns(1e8)).unwrap();
            }
        }
    }
}
