//! `NCCL_DEBUG=INFO` of NCCL and RCCL: `host:pid:tid [device] NCCL INFO text` (`src/debug.cc`).

use std::collections::{BTreeMap, BTreeSet};

use crate::clean::PasteLine;
use crate::document::{LineSpan, NcclLog};
use crate::number::number;

/// Warnings and reasons that are kept.
const MAX_KEPT: usize = 32;
/// Settings, transports and hosts that are kept.
const MAX_NAMES: usize = 256;

/// Parts of lines that say why something is off.
const SAYS_WHY: &str = concat!(
    "isabled|Could not enable P2P|not supported|falling back|ailed|error|timed out|",
    "No device found|ismatch|nable to|missing|ignor|not found|refused|port_err",
);

/// Takes the lines of the log out of a paste: they stand between the rows of benchmarks.
pub(crate) fn take(lines: &mut Vec<PasteLine>) -> Option<(NcclLog, LineSpan)> {
    let mut log = NcclLog::default();
    let mut span: Option<LineSpan> = None;
    let mut hosts = BTreeSet::new();
    let mut networks: BTreeSet<(String, String)> = BTreeSet::new();
    lines.retain(|line| {
        let Some((before, text, is_warning)) = message(&line.text) else { return true };
        let first = span.map_or(line.number, |s| s.first);
        span = Some(LineSpan { first, last: line.number });
        if let Some((host, _)) = before.split_once(':')
            && hosts.len() < MAX_NAMES
            && !host.trim().is_empty()
        {
            hosts.insert(host.trim().to_owned());
        }
        if is_warning && let Some(source) = source_of(before) {
            keep(&mut log.reasons, &format!("source {source}"));
        }
        if let Some((_, network)) = text.split_once("Using network ")
            && networks.len() < MAX_NAMES
        {
            networks.insert((before.trim().to_owned(), network.trim().to_owned()));
        }
        take_message(&mut log, text, is_warning);
        // A sentence that quotes a line of the log is text too.
        before.split_whitespace().count() > 6
    });
    log.hosts = hosts.into_iter().collect();
    log.mixed_networks = ranks_by_network(&networks);
    span.map(|span| (log, span))
}

fn message(line: &str) -> Option<(&str, &str, bool)> {
    for (tag, is_warning) in [("NCCL INFO ", false), ("NCCL WARN ", true)] {
        if let Some((before, text)) = line.split_once(tag) {
            return Some((before, text, is_warning));
        }
    }
    // NCCL before 2.5: `host:1:1 [0] include/socket.h:311 WARN text`, `host:1:1 [0] INFO text`.
    for (tag, is_warning) in [(" INFO ", false), (" WARN ", true)] {
        let Some((before, text)) = line.split_once(tag) else { continue };
        let last = before.split_whitespace().next_back().unwrap_or_default();
        let is_source = [".h:", ".cc:", ".cu:", ".c:"].iter().any(|file| last.contains(file));
        let is_device = last.starts_with('[') && last.ends_with(']') && before.contains(':');
        if is_source || is_device && before.split_whitespace().count() <= 3 {
            return Some((before, text, is_warning));
        }
    }
    // People cut the prefix off: `9[1a000] -> 2[6b000] [send] via NET/IB/0/GDRDMA`.
    let (ends, via) = line.split_once(" via ")?;
    let is_transport = ["NET/", "P2P", "SHM", "direct"].iter().any(|name| via.starts_with(name));
    (is_transport && ends.contains("->") && ends.contains('[')).then_some(("", line, false))
}

/// `transport/nvls` of `h:1:2 [2] transport/nvls.cc:244`: a part of the library that warns.
fn source_of(before: &str) -> Option<&str> {
    let last = before.split_whitespace().next_back()?;
    let (file, _) = last.split_once(':')?;
    let name = file.rsplit_once('.')?.0;
    (name.contains('/') && name.len() < 64).then_some(name)
}

/// Ranks by network, where they take several in one run: a device of a host that takes two is of two runs.
fn ranks_by_network(networks: &BTreeSet<(String, String)>) -> BTreeMap<String, u32> {
    let device = |before: &str| {
        let host = before.split(':').next().unwrap_or_default();
        let device = before.rsplit_once('[').map_or("", |(_, device)| device);
        (host.to_owned(), device.to_owned())
    };
    let mut ranks: BTreeMap<String, u32> = BTreeMap::new();
    let mut devices = BTreeSet::new();
    for (before, network) in networks {
        let is_new = devices.insert(device(before));
        if !is_new || !before.contains('[') {
            return BTreeMap::new();
        }
        *ranks.entry(network.clone()).or_default() += 1;
    }
    if ranks.len() > 1 { ranks } else { BTreeMap::new() }
}

/// The word after a name, where it is a number.
fn after(text: &str, name: &str) -> Option<u32> {
    let rest = text.split_once(name)?.1.trim_start_matches([' ', ':', '=']);
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

fn take_message(log: &mut NcclLog, text: &str, is_warning: bool) {
    if is_warning {
        keep(&mut log.warnings, text);
    }
    if let Some(version) = version(text) {
        log.is_rccl |= text.contains("RCCL");
        log.version = version.to_owned();
    }
    // `Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read`, older `Channel 00 : 0[1b000] -> 1[1c000] via SHM`.
    if let Some((channel, via)) = text.split_once(" via ")
        && channel.contains("->")
    {
        let via = via.split_whitespace().next().unwrap_or_default();
        if log.transports.contains_key(via) || log.transports.len() < MAX_NAMES {
            *log.transports.entry(via.to_owned()).or_default() += 1;
        }
        return;
    }
    // `[send]` and `[receive] via NET/IB/0/GDRDMA` have their number of ranks in front.
    log.channels = channels_before(text, " coll channels").or(log.channels);
    if let Some((_, list)) = text.split_once("NET/IB : Using ") {
        let adapters = list.split_whitespace().filter(|word| word.starts_with('[')).count();
        // `[RO]` behind them is relaxed ordering.
        let adapters = adapters - usize::from(list.contains("[RO]")).min(adapters);
        log.adapters = log.adapters.max(u32::try_from(adapters).ok().filter(|n| *n > 0));
    }
    // `NET/IB: [0] mlx5_0:uverbs0:1/IB provider=Mlx5 speed=400000 context=...`, Mbit/s.
    let gbits = after(text, " speed=").filter(|mbits| *mbits >= 1000);
    log.adapter_gbits = log.adapter_gbits.or(gbits.map(|mbits| f64::from(mbits) / 1e3));
    // `NET/OFI Selected provider is cxi, fabric is cxi (found 4 nics)`: HPE's Slingshot adapters have 200 Gbit/s.
    if let Some((_, provider)) = text.split_once("Selected provider is ") {
        log.adapters = log.adapters.max(after(text, "(found").filter(|n| *n > 0));
        let gbits = provider.to_lowercase().starts_with("cxi").then_some(200.0);
        log.adapter_gbits = log.adapter_gbits.or(gbits);
    }
    log.nodes = log.nodes.max(after(text, " nNodes"));
    log.ranks = log.ranks.max(after(text, " nranks").or_else(|| after(text, " nRanks")));
    let domain = after(text, "cliqueSize").filter(|_| text.contains("MNNVL 1 "));
    log.nvlink_domain = log.nvlink_domain.max(domain);
    if let Some(channels) = channels_before(text, " nvls channels") {
        log.nvls = log.nvls.or((channels == 0).then_some(false));
    }
    if text.contains("NVLS multicast support is") {
        log.nvls = Some(!text.contains("not available"));
    }
    let plugin = ["Socket", "IB"].iter().find(|of| text.starts_with(&format!("NET/{of} : Using")));
    if let Some((_, network)) = text.split_once("Using network ") {
        network.trim().clone_into(&mut log.network);
    } else if let Some(plugin) = plugin.filter(|_| log.network.is_empty()) {
        log.network = (*plugin).to_owned();
    }
    if let Some((name, value)) = setting(text)
        && log.settings.len() < MAX_NAMES
    {
        log.settings.insert(name.to_owned(), value.to_owned());
    }
    link_rate(log, text);
    if SAYS_WHY.split('|').any(|part| text.contains(part)) && text.len() < 300 {
        keep(&mut log.reasons, text);
    }
}

fn keep(kept: &mut Vec<String>, text: &str) {
    let text = text.trim().to_owned();
    if kept.len() < MAX_KEPT && !kept.contains(&text) {
        kept.push(text);
    }
}

/// `NCCL version 2.21.5+cuda12.4`, `RCCL version 2.20.5+hip6.2 HEAD:...`, also without `INFO`.
fn version(text: &str) -> Option<&str> {
    let rest = text.split_once("CCL version ").map(|(_, rest)| rest);
    let rest = rest.or_else(|| text.split_once("RCCL version : ").map(|(_, rest)| rest));
    let version = rest?.split_whitespace().next()?;
    let (number, build) = version.split_once(['+', '-']).unwrap_or((version, ""));
    let is_number = |part: &str| part.parse::<u32>().is_ok();
    let is_build = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".:-".contains(c);
    let is_version = number.contains('.') && number.split('.').all(is_number);
    Some(version).filter(|_| is_version && build.chars().all(is_build))
}

/// `16 coll channels, 16 collnet channels, 0 nvls channels, 32 p2p channels`.
fn channels_before(text: &str, name: &str) -> Option<u32> {
    let before = text.split_once(name)?.0;
    before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// `NCCL_P2P_LEVEL set by environment to LOC.`
fn setting(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once(" set by environment to ")?;
    let name = name.split_whitespace().next_back()?;
    let value = value.trim().trim_end_matches('.');
    (name.contains('_') && name.len() < 64).then_some((name, value))
}

/// `+ NET[50.0] - NET/7 (7/0/50.000000)`: adapters are numbered from 0.
fn link_rate(log: &mut NcclLog, text: &str) {
    let Some((_, rest)) = text.split_once("NET[") else { return };
    let rate = rest.split(']').next().and_then(number).filter(|rate| *rate > 0.0);
    let number = after(rest, "NET/").filter(|number| *number < 64 && rate.is_some());
    log.adapters = log.adapters.max(number.map(|number| number + 1));
    log.adapter_gbits = log.adapter_gbits.or(rate.map(|rate| rate * 8.0));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::clean_lines;

    #[test]
    fn old_warnings_are_read() {
        let text = "e6:31:31 [0] include/socket.h:311 WARN Socket creation failed\n\
                    include/socket.h:344 WARN no family\n2024-01-01 [main] WARN of another program\n";
        let (log, _) = take(&mut clean_lines(text.as_bytes()).0).unwrap();
        assert_eq!(log.warnings, ["Socket creation failed", "no family"]);
    }

    #[test]
    fn a_version_is_numbers_and_a_build() {
        for text in ["2.21.5", "2.20.5+hip6.2", "2.18.3+cuda12.2", "2.26.6-develop"] {
            assert_eq!(version(&format!("NCCL version {text} HEAD")), Some(text));
        }
        for text in ["2.NaN", "1N.aN", "2", "2.", "x", ""] {
            assert_eq!(version(&format!("NCCL version {text}")), None, "{text}");
        }
    }

    #[test]
    fn a_log_is_taken_out_of_a_table() {
        let text = "h1:10:11 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1.\n\
                    # nThread 1 nGpus 2\n\
                    h1:10:11 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct\n\
                    h1:10:11 [0] NCCL INFO 2 coll channels, 0 collnet channels, 0 nvls channels, 2 p2p channels\n\
                    h1:10:11 [0] NCCL INFO comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2\n\
                    h1:10:11 [0] NCCL INFO NVLS multicast support is not available on dev 0\n\
                    h1:10:11 [0] NCCL INFO Using network Socket\n\
                    h1:10:11 [0] NCCL INFO + XGMI[48.0] - GPU/1\n\
                    h1:10:11 [0] NCCL WARN Cuda failure\n";
        let mut lines = clean_lines(text.as_bytes()).0;
        let (log, span) = take(&mut lines).unwrap();
        assert_eq!(lines.iter().filter(|l| !l.text.is_empty()).count(), 1);
        assert_eq!((span.first, span.last), (1, 9));
        assert_eq!(log.transports["SHM/direct/direct"], 1);
        assert_eq!(log.settings["NCCL_P2P_DISABLE"], "1");
        assert_eq!(
            (log.channels, log.ranks, log.nodes, log.nvls),
            (Some(2), Some(2), Some(1), Some(false))
        );
        assert_eq!(log.network, "Socket");
        assert_eq!((log.warnings.len(), log.hosts.as_slice()), (1, &["h1".to_owned()][..]));
    }
}
