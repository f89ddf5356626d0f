//! The traffic of a node, for a terminal and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use pathline_diagnose::{CapacitySource, NodeTraffic, PathCapacity, TrafficLimit, WayTraffic};
use pathline_explain::fmt;
use pathline_schema::{Rate, TrafficCounter, TrafficPath, TrafficWay, UncountedPath, decimal_text};
use serde_json::{Value, json};

use crate::health::TextPage;

/// Paths that a sentence names.
const NAMED: usize = 3;
/// Width of the name of a path.
const NAME: usize = 20;

/// A screen: what limits, each path with its rate each way and the share of its capacity, and what is not counted.
/// Paths that nothing passed are a number, unless `full`.
pub fn page(traffic: &NodeTraffic, title: &str, full: bool, width: usize) -> String {
    let mut page = TextPage::new(width);
    page.lines("", title);
    page.lines("", &limit(traffic));
    let is_shown = |ways: &[WayTraffic]| full || ways.iter().any(WayTraffic::is_busy);
    let mut shown: Vec<_> = traffic.paths.iter().filter(|(_, ways)| is_shown(ways)).collect();
    let fullest =
        |ways: &[WayTraffic]| ways.iter().filter_map(WayTraffic::share).fold(-1.0, f64::max);
    shown.sort_by(|(_, a), (_, b)| fullest(b).total_cmp(&fullest(a)));
    if !shown.is_empty() {
        // Writing to a string does not fail.
        let _ = writeln!(
            page.text,
            "\n{:NAME$}{:>10}{:>6}{:>11}{:>6}  capacity, each way",
            "path", "out", "share", "in", "share"
        );
    }
    for (path, ways) in shown {
        let row = row(path, ways);
        let _ = writeln!(page.text, "{}", row.trim_end());
    }
    page.text.push('\n');
    for (path, way) in traffic.ways() {
        if let Err(why) = &way.moved {
            page.paragraph("no rate", &format!("{path} {}: {why}", way.way.word()));
        }
    }
    let is_idle =
        |(_, ways): &&(TrafficPath, Vec<WayTraffic>)| ways.iter().all(WayTraffic::is_idle);
    let idle = traffic.paths.iter().filter(is_idle).count();
    if idle > 0 && !full {
        let of = fmt::of_all(idle, traffic.paths.len(), "counted path");
        page.paragraph("idle", &format!("{of}; --full shows each"));
    }
    for (why, paths) in by_reason(&traffic.uncounted) {
        page.paragraph("uncounted", &format!("{}: {why}", named(&paths)));
    }
    if traffic.ways().any(|(_, way)| way.is_busy() && source(way) == Some(CapacitySource::Peak)) {
        let text = "peak is width times speed, which nothing reaches; --against RUN or TWIN gives what was \
                    measured";
        page.paragraph("capacity", text);
    }
    // A peak includes headers, what copies reach does not.
    let exceeds = |way: &WayTraffic| {
        way.is_busy()
            && way.source == TrafficCounter::GPM
            && source(way).is_some_and(|from| from != CapacitySource::Peak)
    };
    if traffic.ways().any(|(_, way)| exceeds(way)) {
        let text = "NVML GPM counts packet headers too, 6 to 8 % of the payload of large copies: PCIe is less full \
                    than shown";
        page.paragraph("headers", text);
    }
    page.text
}

fn source(way: &WayTraffic) -> Option<CapacitySource> {
    way.capacity.map(|capacity| capacity.source)
}

fn row(path: &TrafficPath, ways: &[WayTraffic]) -> String {
    let of = |asked: TrafficWay| ways.iter().find(|way| way.way == asked);
    let cells = |asked| {
        let way = of(asked);
        let rate =
            way.and_then(|way| way.moved.as_ref().ok()).map(|moved| short_rate(moved.rate()));
        let share = way.and_then(WayTraffic::share).map(fmt::percent);
        (rate.unwrap_or_else(|| "?".into()), share.unwrap_or_else(|| "-".into()))
    };
    let ((out, out_share), (back, back_share)) = (cells(TrafficWay::Out), cells(TrafficWay::In));
    let capacity = |asked| of(asked).and_then(|way| way.capacity);
    let capacity = match (capacity(TrafficWay::Out), capacity(TrafficWay::In)) {
        (Some(a), Some(b)) if a.rate.to_string() != b.rate.to_string() => {
            let rate = |rate: Rate| rate.to_string().replace(" GB/s", "");
            format!("{}, {} {}", rate(a.rate), b.rate, b.source.word())
        }
        (Some(one), _) | (None, Some(one)) => capacity_text(one),
        (None, None) => "unknown".to_owned(),
    };
    let name = path.to_string();
    format!("{name:NAME$}{out:>10}{out_share:>6}{back:>11}{back_share:>6}  {capacity}")
}

fn capacity_text(PathCapacity { rate, source }: PathCapacity) -> String {
    format!("{rate} {}", source.word())
}

/// A rate in a unit in which it has a digit before the point.
fn short_rate(rate: Rate) -> String {
    let (value, unit) = match rate.0 {
        gbs if gbs >= 1.0 => (gbs, "GB/s"),
        gbs if gbs >= 1e-3 => (gbs * 1e3, "MB/s"),
        0.0 => return "0".to_owned(),
        gbs => (gbs * 1e6, "kB/s"),
    };
    format!("{} {unit}", decimal_text(value, usize::from(value < 99.95)))
}

/// The one line that says what limits.
pub fn limit(traffic: &NodeTraffic) -> String {
    let at = |path: &TrafficPath, way: &WayTraffic| {
        let share = fmt::percent(way.share().unwrap_or_default());
        let capacity = way.capacity.map(capacity_text).unwrap_or_default();
        format!("{path} {} at {share} of {capacity}", way.way.word())
    };
    let uncounted = match traffic.uncounted.len() {
        0 => String::new(),
        1 => " 1 path has no counter.".to_owned(),
        n => format!(" {n} paths have no counter."),
    };
    match traffic.limit() {
        TrafficLimit::Paths(full) => {
            let named: Vec<String> =
                full.iter().take(NAMED).map(|(path, way)| at(path, way)).collect();
            let more = match full.len() - named.len() {
                0 => String::new(),
                more => format!("; {more} more"),
            };
            let sure = full.first().is_some_and(|(_, way)| way.is_surely_full());
            let by = if sure { "LIMITED by" } else { "Likely limited by" };
            format!("{by} {}{more}.", fmt::list(&named))
        }
        TrafficLimit::NoneCounted(path, way) if way.is_busy() => {
            format!("Nothing counted is saturated; the fullest is {}.{uncounted}", at(path, way))
        }
        _ if !traffic.paths.is_empty() && traffic.ways().all(|(_, way)| way.is_idle()) => {
            format!("Nothing counted is saturated: nothing moves.{uncounted}")
        }
        TrafficLimit::NoneCounted(..) | TrafficLimit::Unknown => format!(
            "Not known what limits: no busy path has both a rate and a capacity.{uncounted}"
        ),
    }
}

/// Paths by the reason that they are not counted.
fn by_reason(uncounted: &[UncountedPath]) -> BTreeMap<&str, Vec<&TrafficPath>> {
    let mut reasons: BTreeMap<&str, Vec<&TrafficPath>> = BTreeMap::new();
    for UncountedPath { path, why } in uncounted {
        reasons.entry(why).or_default().push(path);
    }
    reasons
}

fn named(paths: &[&TrafficPath]) -> String {
    let names: Vec<String> = paths.iter().take(NAMED).map(ToString::to_string).collect();
    match paths.len().saturating_sub(NAMED) {
        0 => fmt::list(&names),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// The same for programs: everything that is known.
pub fn json(traffic: &NodeTraffic, at: &str, title: &str) -> Value {
    let way = |way: &WayTraffic| {
        let mut value = json!({ "counter": way.source });
        match &way.moved {
            Ok(moved) => {
                value["bytes"] = json!(moved.bytes.0);
                value["seconds"] = json!(moved.over.as_secs());
                value["gbs"] = json!(moved.rate().0);
            }
            Err(why) => value["no_rate"] = json!(why.to_string()),
        }
        if let Some(capacity) = way.capacity {
            value["capacity_gbs"] = json!(capacity.rate.0);
            value["capacity_from"] = json!(capacity.source.word());
        }
        if let Some(share) = way.share() {
            value["share"] = json!(share);
        }
        value
    };
    let paths = traffic.paths.iter().map(|(path, ways)| {
        let mut value = json!({ "path": path.to_string() });
        for one in ways {
            value[one.way.word()] = way(one);
        }
        value
    });
    let uncounted = traffic.uncounted.iter();
    let uncounted = uncounted
        .map(|UncountedPath { path, why }| json!({ "path": path.to_string(), "why": why }));
    let limited: Vec<Value> = match traffic.limit() {
        TrafficLimit::Paths(full) => {
            let name = |(path, way): &(&TrafficPath, &WayTraffic)| json!({ "path": path.to_string(), "way": way.way.word(), "share": way.share() });
            full.iter().map(name).collect()
        }
        TrafficLimit::NoneCounted(..) | TrafficLimit::Unknown => Vec::new(),
    };
    json!({
        "at": at,
        "what": title,
        "limited_by": limited,
        "summary": limit(traffic),
        "paths": paths.collect::<Vec<_>>(),
        "uncounted": uncounted.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use pathline_diagnose::NodeCapacities;
    use pathline_schema::{Nic, Ns, Topology, TrafficReading, Unit};

    use super::*;

    /// Two adapters of 10 GB/s and a disk over a second.
    fn traffic(sent: [Result<u64, String>; 3]) -> NodeTraffic {
        let nic =
            |name: &str| Nic { name: name.into(), speed_mbits: Some(80_000), ..Nic::default() };
        let topology = Topology { nics: vec![nic("eth0"), nic("mlx5_0")], ..Topology::default() };
        let counter =
            |path, way| TrafficCounter { path, way, grain: 1, bits: 64, source: "sysfs".into() };
        let adapter = |name: &str| TrafficPath::Adapter(name.into());
        let counters = [
            counter(adapter("eth0"), TrafficWay::Out),
            counter(adapter("mlx5_0"), TrafficWay::Out),
            counter(TrafficPath::Disk("nvme0n1".into()), TrafficWay::In),
        ];
        let reading = |ns, count| TrafficReading { at: Ns(ns), count };
        let before: Vec<_> = counters.iter().map(|_| reading(0.0, Ok(0))).collect();
        let after: Vec<_> = sent.into_iter().map(|count| reading(1e9, count)).collect();
        let memory = TrafficPath::Memory(Unit::Numa(0));
        let uncounted = [UncountedPath { path: memory, why: "nothing reads it".into() }];
        let capacities = NodeCapacities::new(topology);
        NodeTraffic::between(&counters, (&before, &after), &uncounted, &capacities)
    }

    #[test]
    fn headers_in_a_counter_are_stated_next_to_payload_capacities() {
        let mut node = traffic([Ok(9), Ok(9), Ok(9)]);
        let way = &mut node.paths[0].1[0];
        way.source = TrafficCounter::GPM.to_owned();
        assert!(!page(&node, "node", false, 80).contains("headers"), "a peak includes them");
        let way = &mut node.paths[0].1[0];
        way.capacity = Some(PathCapacity { rate: Rate(9.0), source: CapacitySource::Measured });
        assert!(page(&node, "node", false, 80).contains("headers"));
    }

    #[test]
    fn a_screen_says_what_limits_and_what_was_not_seen() {
        let full = traffic([Ok(9_700_000_000), Err("gone".into()), Ok(2_500_000)]);
        let expected = "\
node
LIMITED by eth0 out at 97 % of 10.0 GB/s peak.

path                       out share         in share  capacity, each way
eth0                  9.7 GB/s  97 %          ?     -  10.0 GB/s peak
nvme0n1                      ?     -   2.5 MB/s     -  unknown

no rate   mlx5_0 out: gone
uncounted numa0 memory: nothing reads it
capacity  peak is width times speed, which nothing reaches; --against RUN or
          TWIN gives what was measured
";
        assert_eq!(page(&full, "node", false, 80), expected);
        let value = json(&full, "2026-01-01T00:00:00Z", "node");
        assert_eq!(value["limited_by"][0]["path"], "eth0");
        assert_eq!(value["paths"][1]["out"]["no_rate"], "gone");
        assert_eq!(value["paths"][0]["out"]["bytes"], 9_700_000_000_u64);
    }

    #[test]
    fn nothing_saturated_is_said_of_what_is_counted_alone() {
        let calm = limit(&traffic([Ok(100_000_000), Ok(0), Ok(0)]));
        let expected = "Nothing counted is saturated; the fullest is eth0 out at 1 % of 10.0 GB/s peak. \
                        1 path has no counter.";
        assert_eq!(calm, expected);
        let idle = limit(&traffic([Ok(0), Ok(0), Ok(0)]));
        let expected = "Nothing counted is saturated: nothing moves. 1 path has no counter.";
        assert_eq!(idle, expected);
        let lost = || Err("gone".to_owned());
        let unknown = limit(&traffic([lost(), lost(), Ok(5)]));
        assert!(unknown.starts_with("Not known what limits: "), "{unknown}");
    }
}
