//! The ledger: measured, best measured setting, model and bound of each operation and size.

use std::collections::BTreeMap;

use pathline_flow::{MachineDesc, Network, NoPath, RuntimeEnv};
use pathline_message::{
    ExchangeOp, ExchangeSpec, MachinePeaks, MessageLayer, MessageLibrary, NodeCut, exchange_of,
};
use pathline_schema::{Case, CaseOutcome, FlowSeries, Journal, Ns, Transport};
use pathline_stats::{ascending, interpolated};

use crate::collectives::paired_choice::PairedChoice;

/// Prefixes of variables by which a library of collectives is set.
const SETTINGS: [&str; 2] = ["NCCL_", "RCCL_"];

/// Variables with such a prefix that change no choice of the library: its log, and the version that images of
/// containers state.
const NO_CHOICES: [&str; 2] = ["NCCL_DEBUG", "NCCL_VERSION"];

/// One operation of one size.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerRow {
    /// The operation.
    pub exchange: ExchangeSpec,
    /// Measured without settings of a run's own; the median of several runs.
    pub measured: Option<Ns>,
    /// The settings that runs have, in pairs with the default.
    pub choices: Vec<PairedChoice>,
    /// What the model says of the library's algorithm, and which one it takes; `None` where the machine does
    /// not describe the library, as twins do not.
    pub model: Option<(Ns, String)>,
    /// The least time of any library, and by what; `None` where no link's peak is known.
    pub bound: Option<(Ns, String)>,
    /// The cut that takes longest; `None` where no link's peak is known.
    pub cut: Option<NodeCut>,
}

/// What a run measured of collectives.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CollectiveRun {
    /// When it began, RFC 3339 in UTC; empty where that is not known.
    pub started: String,
    /// Operations with their times.
    pub times: Vec<(ExchangeSpec, Ns)>,
    /// Operations without a time, with the reason.
    pub untimed: Vec<(ExchangeSpec, String)>,
    /// The library's settings that were set, separated by blanks: `NCCL_ALGO=Tree`.
    pub settings: String,
}

impl CollectiveRun {
    fn time(&self, exchange: &ExchangeSpec) -> Option<Ns> {
        self.times.iter().find(|(known, _)| known == exchange).map(|(_, time)| *time)
    }
}

/// The collectives of device memory that a journal measured. In place and unregistered cases are left out.
pub fn measured_exchanges(journal: &Journal, by: MessageLibrary) -> CollectiveRun {
    let begin = &journal.begin;
    let is_setting = |name: &str| {
        SETTINGS.iter().any(|prefix| name.starts_with(prefix))
            && !NO_CHOICES.iter().any(|prefix| name.starts_with(prefix))
    };
    let settings: Vec<String> = begin
        .env
        .iter()
        .filter(|(name, _)| is_setting(name))
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    // Those of an MPI in the same run are another library's.
    let is_own = |case: &Case| {
        case.flows().all(|flow| flow.by.wire().is_some_and(|wire| wire.via == Transport::Ccl))
    };
    let plain = |case: &Case| {
        let text = case.to_string();
        is_own(case)
            && !["inplace", "unregistered", "graph", "isolated"]
                .iter()
                .any(|word| text.contains(word))
    };
    let started = begin.started.clone();
    let mut run =
        CollectiveRun { started, settings: settings.join(" "), ..CollectiveRun::default() };
    for outcome in journal.outcomes.iter().filter(|outcome| plain(outcome.case())) {
        let Ok((exchange, _)) = exchange_of(outcome.case(), &begin.ranks, by) else { continue };
        if !matches!(exchange.what, ExchangeOp::Collective { .. }) {
            continue;
        }
        let time = match outcome {
            CaseOutcome::Measured(m) => {
                let time = m.series.iter().filter_map(median).reduce(f64::max);
                time.ok_or_else(|| "it has no sample".to_owned())
            }
            CaseOutcome::Skipped(skip) => Err(skip.why.clone()),
            CaseOutcome::Faulted(fault) => Err(fault.error.clone()),
        };
        match time {
            Ok(time) => run.times.push((exchange, Ns(time))),
            Err(why) => run.untimed.push((exchange, why)),
        }
    }
    run
}

/// Median time of a repetition, ns.
fn median(series: &FlowSeries) -> Option<f64> {
    let median = interpolated(&ascending(series.samples_ns.iter().copied()), 0.5)?;
    (series.reps > 0).then(|| median / series.reps as f64)
}

/// Settings that all runs have, such as `NCCL_SOCKET_IFNAME` of a site: they are the node's environment and no
/// choice of one run.
pub fn common_settings(runs: &[CollectiveRun]) -> Vec<&str> {
    let Some((first, others)) = runs.split_first() else { return Vec::new() };
    let in_all = |setting: &&str| {
        others.iter().all(|run| run.settings.split(' ').any(|other| other == *setting))
    };
    first.settings.split(' ').filter(|setting| !setting.is_empty()).filter(in_all).collect()
}

/// Whether the machine describes this library of collectives.
pub fn describes(desc: &MachineDesc, by: MessageLibrary) -> bool {
    match by {
        MessageLibrary::Rccl => desc.software.rccl.is_some(),
        MessageLibrary::Nccl { .. } => desc.software.nccl.is_some(),
        _ => true,
    }
}

/// The rows of operations, with what runs measured. A run that has only settings
/// [that all have](common_settings) is the library's own choice. The nth run of a setting, by the time at
/// which it began, makes a pair with the nth run of the default.
///
/// # Errors
/// The machine describes the library, and its model has no such exchange.
pub fn audit_rows(
    desc: &MachineDesc,
    exchanges: &[ExchangeSpec],
    runs: &[CollectiveRun],
) -> Result<Vec<LedgerRow>, NoPath> {
    let layer = MessageLayer::new(desc).map_err(|error| NoPath(error.to_string()))?;
    let topology = desc.topology();
    let network = Network::new(desc, RuntimeEnv::default());
    let network = network.map_err(|error| NoPath(error.to_string()))?;
    let peaks = MachinePeaks::new(&topology, &network);
    let mut rows = Vec::new();
    let arms = arms(runs);
    for exchange in exchanges {
        let model = match describes(desc, exchange.by) {
            true => Some(layer.time(exchange)?).map(|time| (time.time, time.algorithm)),
            false => None,
        };
        let times = |setting: &str| -> Vec<f64> {
            let runs = arms.get(setting).into_iter().flatten();
            runs.filter_map(|run| run.time(exchange)).map(|time| time.0).collect()
        };
        let plain = times("");
        let of = |setting: &String| {
            PairedChoice::new(setting, plain.iter().copied().zip(times(setting)))
        };
        let settings = arms.keys().filter(|setting| !setting.is_empty());
        let choices = settings.map(of).filter(|choice| choice.pairs() > 0).collect();
        let measured = interpolated(&ascending(plain), 0.5).map(Ns);
        let cut = peaks.find_cut(exchange);
        let bounds = cut.is_some().then(|| peaks.bounds(exchange));
        let bound = bounds.filter(|bounds| bounds.flow.0 > 0.0).map(|b| (b.flow, b.flow_by));
        let exchange = exchange.clone();
        rows.push(LedgerRow { exchange, measured, choices, model, bound, cut });
    }
    Ok(rows)
}

/// Runs by what is set in them alone, those of each in the order in which they began; the default is empty.
fn arms(runs: &[CollectiveRun]) -> BTreeMap<String, Vec<&CollectiveRun>> {
    let common = common_settings(runs);
    let mut arms: BTreeMap<String, Vec<&CollectiveRun>> = BTreeMap::new();
    for run in runs {
        let own = run.settings.split(' ').filter(|s| !s.is_empty() && !common.contains(s));
        arms.entry(own.collect::<Vec<_>>().join(" ")).or_default().push(run);
    }
    arms.values_mut().for_each(|runs| runs.sort_by(|a, b| a.started.cmp(&b.started)));
    arms
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use pathline_flow::ProtocolTable;
    use pathline_schema::{Bytes, Collective};

    use super::*;

    /// Operations with even parts and bytes, for which there are bounds.
    pub(crate) const BOUNDED: [Collective; 8] = [
        Collective::AllReduce,
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::Broadcast,
        Collective::Reduce,
        Collective::AllToAll,
        Collective::Gather,
        Collective::Scatter,
    ];

    fn peaks(desc: &MachineDesc) -> MachinePeaks {
        let network = Network::new(desc, RuntimeEnv::default()).unwrap();
        MachinePeaks::new(&desc.topology(), &network)
    }

    /// No prediction is shorter than the bound of its cut: every preset with a library of collectives, every
    /// operation that it predicts, subsets of its GPUs, sizes from 256 B to 1 GiB.
    #[test]
    fn no_prediction_beats_its_bound() {
        let (mut seen, mut predicted) = (0, BTreeMap::new());
        for &(name, _) in MachineDesc::presets() {
            let desc = MachineDesc::preset(name).unwrap();
            let mut libraries = Vec::new();
            libraries.extend(desc.software.rccl.as_ref().map(|_| MessageLibrary::Rccl));
            if desc.software.nccl.is_some() {
                libraries.extend([false, true].map(|nvls| MessageLibrary::Nccl { nvls }));
            }
            let topology = desc.topology();
            let peaks = peaks(&desc);
            let layer = MessageLayer::new(&desc).unwrap();
            let all = (1u32 << topology.gpus.len()) - 1;
            for by in libraries {
                // All GPUs, two, and every 127th subset.
                let sets = [all, 0b11].into_iter().chain((5..all).step_by(127));
                for set in sets.filter(|set| set.count_ones() > 1) {
                    let gpus: Vec<u32> = (0..32).filter(|gpu| set >> gpu & 1 == 1).collect();
                    for (nth, op) in BOUNDED.into_iter().enumerate() {
                        let bytes = Bytes(1 << (8 + (set as usize + 5 * nth) % 23));
                        let exchange = ExchangeSpec::collective(op, gpus.clone(), by, bytes);
                        let Ok(time) = layer.time(&exchange) else { continue };
                        let cut = peaks.find_cut(&exchange).unwrap();
                        assert!(cut.time.0 <= time.time.0, "{name} {exchange}: {cut:?}");
                        *predicted.entry((name, op.to_string())).or_insert(0) += 1;
                        seen += 1;
                    }
                }
            }
        }
        let presets: BTreeSet<&str> = predicted.keys().map(|(name, _)| *name).collect();
        println!("{seen} predictions of {presets:?}: {predicted:?}");
        assert!(presets.len() >= 5, "{presets:?}");
        for name in presets {
            for op in &BOUNDED[..6] {
                assert!(predicted.contains_key(&(name, op.to_string())), "{name} {op}");
            }
        }
    }

    /// A preset with other links: each bundle between GPUs or to a switch has from one link to two more than it
    /// had, and one in eight is gone. `None` where routes that the description states need one that is gone.
    fn rewired(text: &str, random: &mut fastrand::Rng) -> Option<MachineDesc> {
        let is_link = |line: &str| line.starts_with("  { a = \"gpu") && !line.contains("numa");
        let mut lines = Vec::new();
        for line in text.lines() {
            let width = line.split_once("width = ").filter(|_| is_link(line));
            let Some((before, rest)) = width else {
                lines.push(line.to_owned());
                continue;
            };
            let (width, after) = rest.split_once(',').unwrap();
            let width: u32 = width.trim().parse().unwrap();
            if random.u32(..8) > 0 {
                lines.push(format!("{before}width = {},{after}", random.u32(1..=width + 2)));
            }
        }
        MachineDesc::parse("rewired.toml", &lines.join("\n")).ok()
    }

    /// The node with a library that takes one protocol at all sizes, or reduces in the switches wherever it can.
    fn forced(desc: &MachineDesc) -> Vec<(String, MachineDesc, MessageLibrary)> {
        let mut all = Vec::new();
        let names = ["LL", "LL128", "Simple", "NVLS"];
        for (nth, name) in names.into_iter().enumerate() {
            let mut edited = desc.clone();
            let preferred = |own: usize| if own == nth { 0.0 } else { 1e12 };
            let software = &mut edited.software;
            for ccl in [&mut software.rccl, &mut software.nccl].into_iter().flatten() {
                ccl.choice = Some(ProtocolTable {
                    ll_us: preferred(0),
                    ll128_us: preferred(1),
                    simple_us: preferred(2),
                });
                if let Some(nvls) = &mut ccl.nvls {
                    nvls.start_us = preferred(3);
                }
            }
            let software = &edited.software;
            let by_rccl = software.rccl.as_ref().map(|_| MessageLibrary::Rccl);
            let nvls = name == "NVLS";
            let by_nccl = software.nccl.as_ref().map(|_| MessageLibrary::Nccl { nvls });
            for by in [by_rccl, by_nccl].into_iter().flatten() {
                all.push((name.to_owned(), edited.clone(), by));
            }
        }
        all
    }

    /// No algorithm and protocol of any collective is predicted to beat the bound: random wirings of each preset,
    /// random members and sizes. `PATHLINE_TEST_WORLDS` sets the number of wirings of a preset.
    #[test]
    fn no_algorithm_beats_the_bound_on_any_wiring() {
        let worlds = std::env::var("PATHLINE_TEST_WORLDS").ok().and_then(|n| n.parse().ok());
        let worlds: u64 = worlds.unwrap_or(2);
        let mut seen: BTreeMap<String, u32> = BTreeMap::new();
        let mut tightest = f64::INFINITY;
        for (name, text) in MachineDesc::presets() {
            for seed in 0..worlds {
                let mut random = fastrand::Rng::with_seed(seed * 7919 + name.len() as u64);
                let Some(desc) = rewired(text, &mut random) else { continue };
                let peaks = peaks(&desc);
                let count = desc.topology().gpus.len() as u32;
                for (protocol, desc, by) in forced(&desc) {
                    let layer = MessageLayer::new(&desc).unwrap();
                    // Rings of one set of members are sought once.
                    let mut gpus: Vec<u32> = (0..count).collect();
                    random.shuffle(&mut gpus);
                    gpus.truncate(random.usize(2..=count as usize));
                    for op in BOUNDED {
                        let bytes = Bytes(1 << random.u32(8..34));
                        let exchange = ExchangeSpec::collective(op, gpus.clone(), by, bytes);
                        let Ok(time) = layer.time(&exchange) else { continue };
                        let Some(cut) = peaks.find_cut(&exchange) else { continue };
                        assert!(
                            cut.time.0 <= time.time.0,
                            "{name}, wiring {seed}, {protocol}, {exchange}: {:?} {} {cut:?}",
                            time.time,
                            time.algorithm
                        );
                        tightest = tightest.min(time.time.0 / cut.time.0);
                        *seen.entry(format!("{name} {op} {}", time.algorithm)).or_default() += 1;
                    }
                }
            }
        }
        let total: u32 = seen.values().sum();
        println!("{total} predictions, the closest {tightest:.3} of its bound; {seen:?}");
        for algorithm in ["ring, LL", "ring, LL128", "ring, Simple", "NVLS", "direct, LL"] {
            assert!(seen.keys().any(|key| key.ends_with(algorithm)), "{algorithm}");
        }
        assert!(total > 100, "{total}");
    }

    #[test]
    fn runs_fill_their_columns() {
        let desc = MachineDesc::preset("mi250x").unwrap();
        let (op, by) = (Collective::AllReduce, MessageLibrary::Rccl);
        let exchange = ExchangeSpec::collective(op, 0..8, by, Bytes::mib(64));
        let run = |second: u32, ns: f64, set: &str| CollectiveRun {
            started: format!("2026-01-01T00:00:{second:02}Z"),
            times: vec![(exchange.clone(), Ns(ns))],
            untimed: Vec::new(),
            settings: set.to_owned(),
        };
        let rows = |runs: &[CollectiveRun]| {
            audit_rows(&desc, std::slice::from_ref(&exchange), runs).unwrap()
        };
        let gain = |row: &LedgerRow, at: usize| {
            let choice = &row.choices[at];
            (choice.setting.clone(), choice.pairs(), choice.gain().unwrap())
        };
        // The second run of the default began after the first: 8e5 of it and 4e5 with the setting are a pair.
        let runs = [
            run(3, 8e5, ""),
            run(0, 9e5, ""),
            run(1, 9e5, "NCCL_ALGO=Tree"),
            run(4, 4e5, "NCCL_ALGO=Tree"),
            run(2, 6e5, "NCCL_PROTO=LL128"),
        ];
        let found = &rows(&runs)[0];
        assert_eq!(found.measured, Some(Ns(8.5e5)));
        let (setting, pairs, median) = gain(found, 0);
        // 9e5 / 9e5 = 1 and 8e5 / 4e5 = 2: sqrt(2) in the middle.
        assert_eq!((setting.as_str(), pairs), ("NCCL_ALGO=Tree", 2));
        assert!((median - (2f64.sqrt() - 1.0)).abs() < 1e-9, "{median}");
        let (setting, pairs, median) = gain(found, 1);
        assert_eq!(
            (setting.as_str(), pairs),
            ("NCCL_PROTO=LL128", 1),
            "one default run has no partner"
        );
        assert!((median - 0.5).abs() < 1e-9, "{median}");
        // A setting of all runs is the node's, not a choice.
        let site = "NCCL_SOCKET_IFNAME=hsn0";
        let runs = [run(0, 9e5, site), run(1, 8e5, &format!("NCCL_ALGO=Tree {site}"))];
        assert_eq!(common_settings(&runs), [site]);
        let found = &rows(&runs)[0];
        assert_eq!(found.measured, Some(Ns(9e5)));
        assert_eq!(gain(found, 0).0, "NCCL_ALGO=Tree");
    }

    /// A twin describes no library: bounds without a model.
    #[test]
    fn without_a_library_there_is_no_model() {
        let mut desc = MachineDesc::preset("hgx-h200").unwrap();
        desc.software.nccl = None;
        let by = MessageLibrary::Nccl { nvls: true };
        let exchange = ExchangeSpec::collective(Collective::AllReduce, 0..8, by, Bytes::gib(1));
        assert!(!describes(&desc, by));
        let rows = audit_rows(&desc, std::slice::from_ref(&exchange), &[]).unwrap();
        assert_eq!((&rows[0].model, rows[0].measured), (&None, None));
        assert!(rows[0].cut.is_some());
    }
}
