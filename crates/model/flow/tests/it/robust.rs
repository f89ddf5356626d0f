//! Properties of any machine and any case: no panic, nothing above its peak, background
//! never helps, and a changed description is either read or refused with a line.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use pathline_flow::{MachineDesc, Network, RuntimeEnv};
use pathline_schema::ConstantOrigin;
use pathline_schema::{Case, LinkEnd, Topology};
use proptest::prelude::*;

fn networks() -> Vec<Network> {
    let mut all = Vec::new();
    for (name, _) in MachineDesc::presets() {
        let desc = MachineDesc::preset(name).unwrap();
        for sdma in [None, Some(false)] {
            for xnack in [None, Some(false), Some(true)] {
                let switches = RuntimeEnv { sdma, xnack, ..RuntimeEnv::default() };
                all.push(Network::new(&desc, switches).unwrap());
            }
        }
        all.push(Network::from_topology(&desc.topology()));
    }
    all.push(Network::from_topology(&Topology::default()));
    all
}

const PLACES: [&str; 16] = [
    "gpu0.vram",
    "gpu1.vram",
    "gpu7.vram",
    "gpu0.vram-fine",
    "gpu0.managed",
    "gpu0.reg",
    "gpu9.vram",
    "numa0.paged",
    "numa0.huge",
    "numa1.pinned",
    "numa0.pinned-wc",
    "numa0.registered",
    "numa1.managed",
    "numa0.reg",
    "numa9.paged",
    "gpu5.reg",
];

const MOVERS: [&str; 24] = [
    "dma@gpu0",
    "dma@gpu1",
    "dma@gpu9",
    "blit@gpu0",
    "blit@gpu7",
    "kernel@gpu0[copy-w16-u4-b256-g2sm]",
    "kernel@gpu0[read-w4-u1-b64-g1]",
    "kernel@gpu0[write-w16-u4-nt-b256-g2sm]",
    "kernel@gpu5[triad-w8-u64-b1024-g1048576]",
    "kernel@gpu0[chase-w8-u1-b1-g1]",
    "cpu@numa0[copy-plain-t1]",
    "cpu@numa1[copy-avx512-nt-t48]",
    "cpu@numa0[read-avx2-t4294967295]",
    "cpu@numa0[write-memcpy-t2]",
    "cpu@numa0[chase-plain-t1]",
    "cpu@numa0[touch-plain-t1]",
    "migrate@gpu0[fault]",
    "migrate@numa1[prefetch]",
    "migrate@gpu0[prefetch]",
    "threads@gpu0[8]",
    "threads@gpu0[4294967295]",
    "blocks@gpu0[64-g8]",
    "blocks@gpu0[64-batch]",
    "blocks@gpu0[64-each]",
];

const SIZES: [&str; 5] = ["1B", "16B", "4KiB", "1GiB", "18446744073709551615B"];

/// All places x places x movers x sizes on all machines: a path or a reason.
#[test]
fn every_case_has_a_path_or_a_reason() {
    let networks = networks();
    let (mut paths, mut reasons) = (0, 0);
    for src in PLACES {
        for dst in PLACES {
            for by in MOVERS {
                for size in SIZES {
                    let Ok(case) = format!("{src} > {dst} by {by} x {size}").parse::<Case>() else {
                        continue;
                    };
                    for network in &networks {
                        match network.predict(&case) {
                            Ok(predicted) => {
                                check_alone(network, &case, &predicted[0]);
                                paths += 1;
                            }
                            Err(reason) => {
                                assert!(!reason.0.is_empty());
                                assert!(network.explain(&case.timed[0]).is_err(), "{case}");
                                reasons += 1;
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(paths > 1000 && reasons > 1000, "{paths} paths, {reasons} reasons");
}

fn check_alone(network: &Network, case: &Case, predicted: &pathline_flow::FlowPrediction) {
    // Only where something is wrong: hundreds of thousands of paths are checked.
    let what = || format!("{case}: {predicted:?}");
    assert!(predicted.rate.0 > 0.0 && predicted.rate.0.is_finite(), "{}", what());
    assert!(predicted.time.0 >= 0.0 && predicted.time.0.is_finite(), "{}", what());
    assert!(!predicted.bound_by.is_empty(), "{}", what());
    let op = network.operation(&case.timed[0]).unwrap();
    assert!(predicted.rate.0 <= op.cap.0 * (1.0 + 1e-9), "{}", what());
    assert!(!op.route.is_empty(), "{}", what());
    for stage in &op.stages {
        assert!(stage.cap.0 <= stage.peak.0 * (1.0 + 1e-9), "{}: {stage:?}", what());
        assert!(predicted.rate.0 <= stage.cap.0 * (1.0 + 1e-9), "{}: {stage:?}", what());
    }
    let explained = network.explain(&case.timed[0]).unwrap();
    assert!(predicted.rate.0 <= explained.peak.0 * (1.0 + 1e-9), "{}: {explained:?}", what());
}

fn pair() -> impl Strategy<Value = String> {
    let mover = prop::sample::select(vec![
        "dma@gpu{}",
        "blit@gpu{}",
        "kernel@gpu{}[copy-w16-u4-b256-g2sm]",
    ]);
    (0u32..8, 0u32..8, mover, 0u32..3).prop_map(|(a, b, mover, host)| {
        let by = mover.replace("{}", &a.to_string());
        match host {
            0 => format!("gpu{a}.vram > gpu{b}.vram by {by} x 64MiB"),
            1 => format!("numa{}.pinned > gpu{a}.vram by {by} x 64MiB", b / 2),
            _ => format!("gpu{a}.vram > numa{}.pinned by {by} x 64MiB", b / 2),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// No resource carries more than its capacity, however many flows there are.
    #[test]
    fn resources_are_not_overbooked(flows in prop::collection::vec(pair(), 1..24)) {
        let network = Network::new(&MachineDesc::preset("mi250x").unwrap(), RuntimeEnv::default()).unwrap();
        let case: Case = flows.join(" & ").parse().unwrap();
        let predicted = network.predict(&case).unwrap();
        let mut used = vec![0.0; network.resources().len()];
        for (flow, p) in case.timed.iter().zip(&predicted) {
            for u in network.operation(flow).unwrap().uses {
                used[u.resource as usize] += u.weight * p.rate.0;
            }
        }
        for (resource, used) in network.resources().iter().zip(used) {
            prop_assert!(used <= resource.capacity.0 * (1.0 + 1e-9), "{resource:?} {used}");
        }
    }

    /// The slowest flow of a case is not made faster by one more flow. (Another flow may be: the
    /// new one can slow down a third that it shared with. Only the minimum is monotone under
    /// max-min fairness.)
    #[test]
    fn background_never_raises_the_slowest(
        flows in prop::collection::vec(pair(), 1..12),
        more in pair(),
    ) {
        let network = Network::new(&MachineDesc::preset("mi250x").unwrap(), RuntimeEnv::default()).unwrap();
        let slowest = |case: &str| {
            let case: Case = case.parse().unwrap();
            network.predict(&case).unwrap().iter().map(|p| p.rate.0).fold(f64::INFINITY, f64::min)
        };
        let text = flows.join(" & ");
        let all = slowest(&format!("{text} & {more}"));
        prop_assert!(all <= slowest(&text) * (1.0 + 1e-9));
    }

    /// One timed flow alone is at least as fast as with any background, and its time as short.
    #[test]
    fn background_never_helps_a_single_flow(flow in pair(), more in prop::collection::vec(pair(), 1..8)) {
        let network = Network::new(&MachineDesc::preset("hgx-h200").unwrap(), RuntimeEnv::default()).unwrap();
        // This machine has two domains: numa0 to numa3 of the pairs become numa0 and numa1.
        // It has no blit kernel either.
        let fold =
            |s: &str| s.replace("numa2", "numa0").replace("numa3", "numa1").replace("blit", "dma");
        let alone: Case = fold(&flow).parse().unwrap();
        let loaded: Case = fold(&format!("{flow} while {}", more.join(" & "))).parse().unwrap();
        let (alone, loaded) = (network.predict(&alone).unwrap(), network.predict(&loaded).unwrap());
        prop_assert_eq!(loaded.len(), 1);
        prop_assert!(loaded[0].rate.0 <= alone[0].rate.0 * (1.0 + 1e-9));
        prop_assert!(loaded[0].time.0 >= alone[0].time.0 * (1.0 - 1e-9));
    }

    /// Time rises with size within one regime: start + bytes / rate.
    #[test]
    fn more_bytes_take_longer(a in 0u32..8, b in 0u32..8, small in 1u64..1 << 30, more in 1u64..1 << 30) {
        let network = Network::new(&MachineDesc::preset("mi250x").unwrap(), RuntimeEnv::default()).unwrap();
        let time = |n: u64| {
            let case = format!("gpu{a}.vram > gpu{b}.vram by dma@gpu{a} x {n}B");
            network.predict(&case.parse::<Case>().unwrap()).unwrap()[0].time.0
        };
        prop_assert!(time(small) < time(small + more));
    }

    /// A preset with a piece cut out, repeated or replaced: read, or refused by name. Never a
    /// panic, and what is read predicts without one.
    #[test]
    fn a_changed_description_is_read_or_refused(
        which in 0..MachineDesc::presets().len(),
        at in 0.0f64..1.0,
        length in 0usize..200,
        put in prop::sample::select(vec![
            "", "nan", "inf", "-1", "1e400", "18446744073709551616", "\"", "[[gpu]]\n", "[", "{",
            "\u{0}", "é", "gpu4294967295", "numa7", "switch0", "0-65535", "99999999999", "\n\n", "= 3",
        ]),
    ) {
        let (name, text) = MachineDesc::presets()[which];
        let mut chars: Vec<char> = text.chars().collect();
        let start = (at * chars.len() as f64) as usize;
        let end = (start + length).min(chars.len());
        chars.splice(start..end, put.chars());
        let changed: String = chars.into_iter().collect();
        match MachineDesc::parse(name, &changed) {
            Err(error) => {
                prop_assert!(error.file.starts_with(name));
                prop_assert!(!error.reason.is_empty());
            }
            Ok(desc) => {
                if let Ok(network) = Network::new(&desc, RuntimeEnv::default()) {
                    let case: Case = "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB".parse().unwrap();
                    let _ = network.predict(&case);
                }
            }
        }
    }
}

/// Every number of the physics of a preset has one origin.
#[test]
fn constants_have_an_origin() {
    for (name, _) in MachineDesc::presets() {
        let desc = MachineDesc::preset(name).unwrap();
        for constant in desc.constants() {
            assert!(constant.origin.is_some(), "{name}: {constant:?}");
            assert!(!constant.values.is_empty(), "{name}: {constant:?}");
        }
        let key = |key: &str| desc.constants().iter().find(|c| c.key == key).unwrap();
        assert_eq!(key("time.local_copy_us").values.len(), 1);
        assert_eq!(key("cpu.cache.bytes").values.len(), 3);
    }
    // A number that is new and listed nowhere has none.
    let (_, text) = MachineDesc::presets()[0];
    let text = text.replacen("copy_call_us = 1.5", "copy_call_us = 1.5\nbatch_call_us = 2.5", 1);
    let desc = MachineDesc::parse("f", &text).unwrap();
    let new = desc.constants().iter().filter(|c| c.origin.is_none()).collect::<Vec<_>>();
    assert_eq!(new.iter().map(|c| c.key.as_str()).collect::<Vec<_>>(), ["time.batch_call_us"]);
}

/// Of 0.98 of the fitted constants, rates, times and packet overheads change; counts, sizes at which a
/// mechanism changes, and constants of other origins do not.
#[test]
fn constants_of_one_origin_can_be_changed() {
    for (name, text) in MachineDesc::presets() {
        let desc = MachineDesc::preset(name).unwrap();
        for origin in ConstantOrigin::ALL {
            let scaled = MachineDesc::parse_scaled("f", text, origin, 0.98).unwrap();
            assert_eq!(scaled.constants().len(), desc.constants().len());
            for (was, now) in desc.constants().iter().zip(scaled.constants()) {
                let changed = was.values != now.values;
                assert!(!changed || was.origin == Some(origin), "{name}: {was:?} {now:?}");
                let quantity = ["_us", "gbs", "efficiency", "_ns"].iter();
                let quantity = quantity.clone().any(|end| was.key.ends_with(end));
                let counted = was.values.iter().all(|v| *v == 0.0);
                assert!(
                    changed || counted || !quantity || was.origin != Some(origin),
                    "{name}: {was:?}"
                );
            }
        }
    }
    let (_, text) = MachineDesc::presets()[0];
    let scaled = MachineDesc::parse_scaled("f", text, ConstantOrigin::Fitted, 0.98).unwrap();
    let value = |key: &str| scaled.constants().iter().find(|c| c.key == key).unwrap().values[0];
    // 21 bytes x 0.98; a payload of 64 bytes is of a data sheet.
    assert!((value("fabric.engine.header_bytes") - 20.58).abs() < 1e-9);
    assert_eq!(value("fabric.payload_bytes"), 64.0);
}

/// The count in presets/mi250x.md is the preset's; that of message libraries is counted apart.
#[test]
fn the_count_of_constants_is_documented() {
    let desc = MachineDesc::preset("mi250x").unwrap();
    let count = |origin| {
        let of = desc.constants().iter().filter(|c| c.origin == Some(origin));
        let of = of.filter(|c| !c.is_software());
        of.map(|c| c.values.len()).sum::<usize>()
    };
    let [datasheet, fitted, data, assumed] = ConstantOrigin::ALL.map(count);
    let stated = format!(
        "**{fitted} free constants (fitted), {data} values carried as data, {assumed} assumed, {datasheet} from data sheets**"
    );
    let document = include_str!("../../presets/mi250x.md");
    assert!(document.contains(&stated), "mi250x.md: expected {stated}");
}

/// The reference enumeration: their dual pairs are 0-4 and 2-6, their three-hop pairs 1-5 and 3-7,
/// their single links 0-6 1-3 1-7 2-4 3-5 5-7 (AMD's listing).
#[test]
fn another_numbering_of_the_same_graph() {
    let desc = MachineDesc::preset("mi250x").unwrap();
    let [reference] = desc.numberings() else { panic!("expected one numbering") };
    assert_eq!(reference.name, "reference enumeration");
    let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
    let route = |a: u32, b: u32| {
        let ours = |n: u32| LinkEnd::Gpu(reference.ours(n).unwrap());
        let used = network.routes().in_use(ours(a), ours(b)).unwrap();
        (used.hops, used.width)
    };
    let class = |hops: u32, width: u32| {
        let pairs = (0..8).flat_map(|a| (a + 1..8).map(move |b| (a, b)));
        let of = pairs.filter(|&(a, b)| route(a, b) == (hops, width));
        of.map(|(a, b)| format!("{a}-{b}")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(class(1, 4), "0-1 2-3 4-5 6-7");
    assert_eq!(class(1, 2), "0-4 2-6");
    assert_eq!(class(1, 1), "0-6 1-3 1-7 2-4 3-5 5-7");
    assert_eq!(class(3, 2), "1-5 3-7");
    assert_eq!(class(2, 2), "0-5 1-4 2-7 3-6");
    assert_eq!(reference.ours(8), None);
}

#[test]
fn errors_name_the_line_and_what_was_expected() {
    let (_, text) = MachineDesc::presets()[0];
    let line = |needle: &str| 1 + text.lines().position(|l| l.contains(needle)).unwrap();
    for (from, to, at, expected) in [
        ("gbs = 50.4 ", "gbs = -1 ", "gbs = 50.4 ", "expected a rate in GB/s"),
        ("gbs = 50.4 ", "gbs = nan ", "gbs = 50.4 ", "expected a rate in GB/s"),
        ("per_hop = 0.988 ", "per_hop = 1.2 ", "per_hop = 0.988", "expected a share"),
        ("per_hop = 0.988 ", "per_hops = 0.988 ", "per_hop = 0.988", "unknown field"),
        ("compute_units = 110", "compute_units = 0", "compute_units", "from 1 to 65536"),
        ("fault_us = 1.318", "fault_us = \"x\"", "fault_us = 1.318", "expected"),
        (
            "a = \"gpu5\", b = \"gpu7\"",
            "a = \"gpu5\", b = \"gpu8\"",
            "a = \"gpu5\", b = \"gpu7\"",
            "gpu8 is no",
        ),
        (
            "via = [\"gpu0\", \"gpu6\"]",
            "via = [\"gpu4\"]",
            "via = [\"gpu0\", \"gpu6\"]",
            "no link joins",
        ),
        ("id = 7\nnuma = 2", "id = 7\nnuma = 5", "package = 3", "no [[numa]] has id 5"),
        (
            "distances = [10, 12, 12, 12]",
            "distances = [10]",
            "distances = [10, 12",
            "expected 4 numbers",
        ),
        ("each_gbs = 50 }", "each_gbs = 0 }", "each_gbs = 50 }", "expected a rate in GB/s"),
        ("width = 4,", "width = 0,", "width = 4,", "from 1 to 65536"),
        ("memory_gib = 64", "memory_gib = 0", "memory_gib = 64", "expected a size in GiB"),
        ("memory_gbs = 1600", "memory_gbs = 0", "memory_gbs = 1600", "expected a rate in GB/s"),
        ("memory_gib = 64\n", "", "[gpus]", "missing field `memory_gib`"),
        ("payload_bytes = 64 ", "payload_bytes = 0 ", "payload_bytes = 64 ", "bytes of payload"),
        ("forwarded_bytes = 7 ", "forwarded_bytes = -7 ", "forwarded_bytes = 7", "from 0 to 65536"),
        ("apart_bytes = 3.5 ", "apart_bytes = 20 ", "[fabric]", "16 bytes besides the payload"),
        ("gang = 1 ", "gang = 9 ", "[copy_engine]", "9 engines on one copy, but 3 to peers"),
        (
            "copy_us_matrix = [\n",
            "copy_us_matrix = [\n  [1.0],\n",
            "[stack.lumi-hip]",
            "8 rows of 8 times",
        ),
        (
            "default_stack = \"lumi-hip\"",
            "default_stack = \"lumi\"",
            "default_stack",
            "no stack 'lumi'",
        ),
        ("timer = \"events\"", "timer = \"sun\"", "[stack.lumi-hip]", "unknown variant"),
        ("timer = \"in-kernel\"", "clock = 1", "[stack.lumi-hip]", "unknown field `clock`"),
        (
            "gpus = [0, 1, 4, 5, 6, 7, 2, 3]",
            "gpus = [0, 1, 4, 5, 6, 7, 2, 2]",
            "gpus = [0, 1, 4",
            "each of the 8 GPUs of this file once",
        ),
        (
            "\"gpu_memory.kernel_efficiency\",",
            "\"gpu_memory.kernel_eficiency\",",
            "\"gpu_memory.kernel_efficiency\",",
            "no number of this file is called",
        ),
        (
            "\"host_link.cached_up_to_bytes\",",
            "\"host_link.cached_up_to_bytes\", \"fabric.read\",",
            "\"host_link.cached_up_to_bytes\",",
            "fabric.read.header_bytes is listed twice, as fitted",
        ),
    ] {
        assert!(text.contains(from), "{from}");
        let error = MachineDesc::parse("node.toml", &text.replacen(from, to, 1)).unwrap_err();
        assert!(error.reason.contains(expected), "{to}: {error}");
        let stated = error.file.strip_prefix("node.toml:").unwrap_or_else(|| panic!("{error}"));
        if at != "package = 3" {
            assert_eq!(stated, line(at).to_string(), "{to}: {error}");
        }
    }
    let twice = text.replacen("[[gpu]]\nid = 1", "[[gpu]]\nid = 0", 1);
    assert!(MachineDesc::parse("f", &twice).unwrap_err().reason.contains("twice"));
    let deep = format!("name = {}", "[".repeat(100_000));
    assert!(MachineDesc::parse("f", &deep).is_err());
    assert!(MachineDesc::parse("f", "").unwrap_err().reason.contains("missing field"));
    assert!(MachineDesc::preset("mi300").unwrap_err().reason.contains("mi250x, hgx-h200"));
}

/// `mi250x` with other links between its units, and without stated routes.
fn with_links(links: &str) -> String {
    let text = MachineDesc::presets().iter().find(|(name, _)| *name == "mi250x").unwrap().1;
    let cut = |text: &str, begin: &str| {
        let at = text.find(begin).unwrap();
        let end = at + text[at..].find("\n]\n").unwrap() + 3;
        (text[..at].to_owned(), text[end..].to_owned())
    };
    let (before, after) = cut(text, "links = [\n");
    let (between, after) = cut(&after, "routes = [\n");
    format!("{before}links = [\n{links}]\n{between}{after}")
}

fn link(a: &str, b: &str) -> String {
    format!("{{ a = \"{a}\", b = \"{b}\", kind = \"xgmi\", width = 1, each_gbs = 50 }},\n")
}

/// No link at all, and a GPU that nothing joins: the first such GPU with its line.
#[test]
fn a_gpu_without_link_is_named_with_its_line() {
    let line_of = |text: &str, id: &str| {
        let gpus = text.find("[[gpu]]").unwrap();
        let at = gpus + text[gpus..].find(&format!("id = {id}\n")).unwrap();
        1 + text[..at].matches('\n').count()
    };
    let none = with_links("");
    let error = MachineDesc::parse("node.toml", &none).unwrap_err().to_string();
    let expected = "gpu0 has no link; expected one to a NUMA domain or a GPU";
    assert_eq!(error, format!("node.toml:{}: {expected}", line_of(&none, "0")));
    let others: String = (0..7).map(|gpu| link(&format!("gpu{gpu}"), "numa0")).collect();
    let apart = with_links(&others);
    let error = MachineDesc::parse("node.toml", &apart).unwrap_err().to_string();
    assert_eq!(
        error,
        format!("node.toml:{}: {}", line_of(&apart, "7"), expected.replace('0', "7"))
    );
}

/// Two rings of four GPUs of which only the first reaches the host: copies around a ring take the shorter
/// side, and what leaves a ring without a path is refused.
#[test]
fn rings_and_islands_end() {
    let ring = |first: u32| -> String {
        let gpu = |n: u32| format!("gpu{}", first + n % 4);
        (0..4).map(|n| link(&gpu(n), &gpu(n + 1))).collect()
    };
    let text = with_links(&format!("{}{}{}", ring(0), ring(4), link("gpu0", "numa0")));
    let desc = MachineDesc::parse("node.toml", &text).unwrap();
    let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
    let hops =
        |a, b| network.routes().in_use(LinkEnd::Gpu(a), LinkEnd::Gpu(b)).map(|used| used.hops);
    assert_eq!([hops(0, 1), hops(0, 2), hops(3, 0), hops(4, 6)], [1, 2, 1, 2].map(Some));
    for case in
        ["gpu1.vram > gpu5.vram by dma@gpu1 x 1MiB", "numa0.pinned > gpu5.vram by dma@gpu5 x 1MiB"]
    {
        let error = network.predict(&case.parse::<Case>().unwrap()).unwrap_err().to_string();
        assert!(error.contains("gpu5") || error.contains("gpu1"), "{case}: {error}");
    }
}

/// 65,537 links in 3 MB, and a million in 56 MB: refused before any is looked at twice.
#[test]
fn a_million_links_are_refused() {
    for (count, expected) in [
        (65_537, "65537 entries of links; expected at most 65536"),
        (1_000_000, "bytes; expected at most"),
    ] {
        let links = "{a=\"gpu0\",b=\"gpu1\",kind=\"xgmi\",width=1,each_gbs=9},\n".repeat(count);
        let error = MachineDesc::parse("node.toml", &with_links(&links)).unwrap_err();
        assert!(error.reason.contains(expected), "{count}: {error}");
    }
}
