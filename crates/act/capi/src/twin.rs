//! Plans from a machine file, such as a twin of this node, in place of a probe.

use std::path::Path;

use pathline_flow::{MachineDesc, Network, PlanRequest, RuntimeEnv, plan_paths};
use pathline_hal::DeviceInfo;
use pathline_multipath::{CopyTimeModel, LostRelay, PathOption, PathProbe, ProbeRequest};
use pathline_schema::{Bytes, Case, Flow, GpuSet, MemKind, Mover, MultipathSpec, Ns, Place, Unit};

use crate::copy_error::CopyError;

/// Largest machine file that is read.
const MAX_FILE: u64 = 4 << 20;
/// Sizes whose times are predicted.
const SIZES: [Bytes; 5] =
    [Bytes::mib(4), Bytes::mib(8), Bytes::mib(12), Bytes::mib(32), Bytes::mib(128)];
/// Sizes for which relays are chosen.
const PLANNED: [Bytes; 4] = [Bytes::mib(16), Bytes::mib(64), Bytes::mib(256), Bytes::gib(1)];

/// The model of this node that a machine file states.
#[derive(Debug)]
pub(crate) struct TwinModel {
    network: Network,
}

impl TwinModel {
    /// Reads a machine file and compares its GPUs with those of this process.
    ///
    /// # Errors
    /// The file cannot be read, is no machine file, or describes another node.
    pub(crate) fn read(path: &Path, devices: &[DeviceInfo]) -> Result<Self, CopyError> {
        let name = path.display().to_string();
        let refuse = |reason: String| CopyError::invalid(format!("twin {name}: {reason}"));
        let about = std::fs::metadata(path).map_err(|error| refuse(error.to_string()))?;
        if !about.is_file() || about.len() > MAX_FILE {
            return Err(refuse(format!("no file of at most {MAX_FILE} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
        let invalid = |error: String| CopyError::invalid(format!("twin {error}"));
        let desc = MachineDesc::parse(&name, &text).map_err(|error| invalid(error.to_string()))?;
        if let Some(other) = difference(&desc, devices) {
            let remedy = "calibrate one on this node with the same GPUs visible";
            return Err(refuse(format!("it is of another node: {other}; {remedy}")));
        }
        let settings = RuntimeEnv::from_env(&std::env::vars_os().filter_map(as_text).collect());
        let network = Network::new(&desc, settings).map_err(|error| invalid(error.to_string()))?;
        Ok(Self { network })
    }

    /// What a probe of these ends would find, without the GPUs that are known to fail: the relays that the planner
    /// chooses for some sizes, with predicted times.
    ///
    /// # Errors
    /// The file does not say how fast the plain copy is.
    pub(crate) fn predict(
        &self,
        request: &ProbeRequest,
        refused: Vec<LostRelay>,
    ) -> Result<PathProbe, String> {
        let (Some(&dst), src) = (request.dst.first(), request.src) else {
            return Err("no destination".into());
        };
        let others: GpuSet = request.dst.iter().skip(1).filter_map(|unit| unit.gpu()).collect();
        let fails = |gpu: u32| refused.iter().any(|lost| lost.gpu == gpu);
        let helpers = request.helpers.iter().copied().filter(|&gpu| !fails(gpu)).collect();
        let (src, dst) = (place(src), place(dst));
        let plan = |bytes| {
            let wanted = match others.is_empty() {
                true => PlanRequest::between(src, dst, bytes, helpers),
                false => PlanRequest::to_all(src, dst, bytes, others),
            };
            plan_paths(&self.network, &wanted).map_err(|error| format!("the twin: {error}"))
        };
        let mut plain = SIZES.map(|bytes| (bytes, Ns::ZERO));
        for (bytes, time) in &mut plain {
            *time = plan(*bytes)?.plain;
        }
        let mut sets: Vec<Mover> = Vec::new();
        for bytes in PLANNED {
            let mut by = plan(bytes)?.flow.by;
            let (Mover::Relay { paths, .. } | Mover::CopyToAll { paths, .. }) = &mut by else {
                continue;
            };
            // Staging memory has one size: replacing it would wait for streams behind gates.
            paths.chunk = request.chunk;
            if !sets.contains(&by) {
                sets.push(by);
            }
        }
        let mut options: Vec<PathOption> = Vec::new();
        for by in sets {
            let (Mover::Relay { paths, .. } | Mover::CopyToAll { paths, .. }) = by else {
                continue;
            };
            let mut times = SIZES.map(|bytes| (bytes, Ns::ZERO));
            for (bytes, time) in &mut times {
                let case = Case::together(vec![Flow { src, dst, by, bytes: *bytes }]);
                let predicted = self.network.predict(&case).map_err(|error| error.to_string())?;
                *time = predicted.first().map_or(Ns(f64::INFINITY), |flow| flow.time);
            }
            let time = CopyTimeModel::through(times);
            let ([.., alone], [.., together]) = (plain, times);
            let rates = path_rates(alone, together, &paths, !others.is_empty());
            options.push(PathOption { paths, driven: time, enqueued: time, rates });
        }
        options.sort_by_key(|option| option.paths.gpus.len());
        let plain = CopyTimeModel::through(plain);
        Ok(PathProbe { plain, options, refused })
    }
}

/// Rates of the paths of a copy, from its size and time and those of the plain one: the direct path's is the plain copy's, unless shares say otherwise, and
/// the relays carry the rest alike. Destinations of the same bytes load alike.
fn path_rates(
    plain: (Bytes, Ns),
    together: (Bytes, Ns),
    paths: &MultipathSpec,
    to_all: bool,
) -> Vec<f64> {
    let rate = |(bytes, time): (Bytes, Ns)| bytes.as_f64() / time.0.max(1.0);
    let relays = paths.gpus.len() as usize;
    if let Some(shares) = paths.shares {
        return shares.iter().map(|share| rate(together) * f64::from(share) / 100.0).collect();
    }
    if to_all {
        return vec![1.0; relays + 1];
    }
    let direct = rate(plain).min(rate(together));
    let relay = (rate(together) - direct) / relays.max(1) as f64;
    std::iter::once(direct).chain(std::iter::repeat_n(relay, relays)).collect()
}

fn place(unit: Unit) -> Place {
    Place::new(unit, if unit.gpu().is_some() { MemKind::Vram } else { MemKind::Pinned })
}

fn as_text((name, value): (std::ffi::OsString, std::ffi::OsString)) -> Option<(String, String)> {
    Some((name.into_string().ok()?, value.into_string().ok()?))
}

/// How the GPUs of a machine file differ from those of this process; none if they are the same.
fn difference(desc: &MachineDesc, devices: &[DeviceInfo]) -> Option<String> {
    let topology = desc.topology();
    if topology.gpus.len() != devices.len() {
        return Some(format!(
            "it has {} GPUs, this process sees {}",
            topology.gpus.len(),
            devices.len()
        ));
    }
    let differ = |a: &str, b: &str| !a.is_empty() && !b.is_empty() && !a.eq_ignore_ascii_case(b);
    topology.gpus.iter().zip(devices).find_map(|(gpu, device)| {
        let (what, its, here) = if differ(&gpu.name, &device.name) {
            ("", gpu.name.as_str(), device.name.as_str())
        } else if differ(&gpu.pci, &device.pci) {
            ("at ", gpu.pci.as_str(), device.pci.as_str())
        } else {
            return None;
        };
        Some(format!("its gpu{} is {what}{its}, that of this process is {what}{here}", gpu.index))
    })
}

#[cfg(test)]
mod tests {
    use pathline_multipath::CopyMode;

    use super::*;
    use pathline_hal::CallError;

    #[test]
    fn relays_come_from_the_model_without_those_that_fail() {
        let desc = MachineDesc::preset("hgx-h200").unwrap();
        let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
        let twin = TwinModel { network };
        let request = ProbeRequest {
            src: Unit::Numa(0),
            dst: vec![Unit::Gpu(0)],
            helpers: vec![0, 1, 2, 3],
            chunk: Bytes::mib(4),
            sizes: SIZES,
            budget: Ns::ZERO,
        };
        let rate = |refused: Vec<LostRelay>, gpus: &str| {
            let probe = twin.predict(&request, refused).unwrap();
            let chosen = probe
                .choose(Bytes::gib(1), (1.15, GpuSet::EMPTY), (CopyMode::Enqueued, Ns::ZERO))
                .unwrap();
            assert_eq!(chosen.paths.gpus.to_string(), gpus);
            let gbs = |time: &CopyTimeModel| time.rate(Bytes::gib(1), Ns::ZERO).gbs();
            (gbs(&chosen.enqueued), gbs(&probe.plain))
        };
        // As in docs/use/multipath.md: 3 relays 189 GB/s of 190.5 that the memory of the domain allows, plainly 55.6.
        let (several, plain) = rate(Vec::new(), "gpu1+gpu2+gpu3");
        assert!((183.0..190.5).contains(&several), "{several}");
        assert!((55.0..56.0).contains(&plain), "{plain}");
        let error = CallError::unsupported("alloc", "gpu2", "no memory");
        let (fewer, _) = rate(vec![LostRelay { gpu: 2, error }], "gpu1+gpu3");
        // 3 links of 55.6.
        assert!((155.0..167.0).contains(&fewer), "{fewer}");
        let none = ProbeRequest { dst: vec![Unit::Numa(1)], ..request };
        assert!(twin.predict(&none, Vec::new()).is_err());
    }
}
