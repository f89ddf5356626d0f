//! Runs of one paste that measured the same: one that is slower than the fastest of them needs no limit.

use std::collections::BTreeMap;

use pathline_paste::{FileIoResult, LineSpan, PasteContent, PasteContext, PasteReading, RunTitle};

use crate::figures::figure;
use crate::outlier::{DIP, Outlier, RUN_SHARE, slow_values};

/// A time is long from this share of the shortest on: short ones differ from run to run.
const TIME_SHARE: f64 = 0.67;
/// Runs that are compared with each other.
const MAX_RUNS: usize = 64;

/// What a run measured: a name of it, which runs are peers, and its rates by size, GB/s.
#[derive(Default)]
struct MeasuredRun {
    name: String,
    key: String,
    title: RunTitle,
    /// The adapter or drive that it measured; empty where the output names none.
    part: String,
    rates: Vec<(u64, f64)>,
    /// Whether the rates are the inverse of times in us.
    is_time: bool,
    /// What makes a slow run so, where its own output says it.
    because: &'static str,
    check: &'static str,
}

/// The run of a content; none of times, of matrices and of links.
fn measured(content: &PasteContent, context: &PasteContext) -> Option<MeasuredRun> {
    let run = |name: &str, key: String, rates: Vec<(u64, f64)>| MeasuredRun {
        name: name.to_owned(),
        key,
        rates,
        check: "the commands and settings of both runs, side by side",
        ..MeasuredRun::default()
    };
    Some(match content {
        PasteContent::Collective(table) => {
            let key = format!("{:?} {:?} {}", table.ranks, table.op, table.is_sendrecv);
            let average = table.average_busbw.filter(|_| table.rows.is_empty());
            let rows = table.rows.iter().map(|row| (row.bytes, row.busbw));
            let rates = rows.chain(average.map(|busbw| (0, busbw))).collect();
            MeasuredRun { title: table.title.clone(), ..run("this run", key, rates) }
        }
        PasteContent::Messages(table) => {
            // `osu_bw D H`: memories that the command names.
            let words = table.command.split(' ');
            let places: Vec<&str> =
                words.filter(|word| ["D", "H", "MD", "MH"].contains(word)).collect();
            let (tool, pair) = (table.tool, &table.title.subject);
            let key = format!("{tool} {:?} {:?} {places:?} {pair}", table.test, table.on_gpu);
            let is_time = table.is_time();
            let rate =
                |&(bytes, value): &(u64, f64)| (bytes, if is_time { 1.0 / value } else { value });
            let one = run("this run", key, table.rows.iter().map(rate).collect());
            let mut title = table.title.clone();
            title.conditions.extend(table.command.split_whitespace().map(str::to_owned));
            MeasuredRun { title, is_time, ..one }
        }
        PasteContent::Network(table) if !table.is_latency && !table.is_short() => {
            let family = table.device.trim_end_matches(|c: char| c.is_ascii_digit());
            let key = format!("{family} {}", table.both_ways);
            let by = if table.device.is_empty() { "" } else { " by " };
            let name = format!("{}{by}{}", table.test, table.device);
            let because = "; one read in flight at once (-o 1): each waits for the one before";
            MeasuredRun {
                part: table.device.clone(),
                because: if table.outstanding_reads == Some(1) { because } else { "" },
                check: "the same with the options of the other test; ib_read_bw -o 16",
                ..run(&name, key, table.rows.clone())
            }
        }
        PasteContent::FileIo(result) => {
            let (key, rates) = (file_key(result, context)?, vec![(0, result.gbs)]);
            let one = run(&format!("this {}", result.operation), key, rates);
            MeasuredRun { part: result.path.clone(), ..one }
        }
        PasteContent::Plain(table) if table.tool == "iperf" => {
            run("this run", "iperf".to_owned(), vec![(0, table.total?)])
        }
        _ => return None,
    })
}

/// Results of files are peers where their options are the same, or one command is theirs.
fn file_key(result: &FileIoResult, context: &PasteContext) -> Option<String> {
    let tool = result.tool.to_lowercase();
    let is_own = |command: &&String| command.to_lowercase().contains(&tool);
    let mut commands: Vec<&String> = context.commands.iter().filter(is_own).collect();
    commands.dedup();
    let is_known = commands.len() == 1 || commands.is_empty() && result.block.is_some();
    let is_alone = result.together <= 1 && !["elbencho", "dd"].contains(&result.tool);
    let options = match commands.is_empty() {
        true => {
            format!("{:?} {:?} {:?} {}", result.block, result.depth, result.workers, result.engine)
        }
        false => String::new(),
    };
    (is_known && is_alone).then(|| format!("{} {} {options}", result.tool, result.operation))
}

/// Another run of the same that is faster at the largest size of both: an outlier, or where title or settings differ
/// what that does, as a sentence.
pub(crate) fn faster_run(
    reading: &PasteReading,
    content: &PasteContent,
) -> Option<Result<Outlier, String>> {
    let context = &reading.context;
    let own = measured(content, context)?;
    // Jobs of fio are runs of whatever they share.
    let are_jobs =
        |other: &MeasuredRun| [&own, other].iter().all(|run| run.part.starts_with("job "));
    let is_peer = |other: &MeasuredRun| {
        // An operation without a name may be any.
        let is_open = |run: &MeasuredRun| run.key.contains(" None false");
        let ranks = |run: &MeasuredRun| run.key.split(" ").next().map(str::to_owned);
        own.key == other.key && (own.part == other.part || are_jobs(other))
            || (is_open(&own) || is_open(other)) && ranks(&own) == ranks(other)
    };
    let others = reading
        .documents
        .iter()
        .filter_map(|document| Some((document.span, measured(&document.content, context)?)));
    let others: Vec<(LineSpan, MeasuredRun)> = others.take(MAX_RUNS).collect();
    if let Some(slow) = slow_part(&own, &others) {
        return Some(Ok(slow));
    }
    let each = others.iter().filter(|(_, other)| is_peer(other)).filter_map(|(span, other)| {
        let (bytes, rate, faster) = own.rates.iter().rev().find_map(|&(bytes, rate)| {
            let same = other.rates.iter().find(|same| same.0 == bytes)?;
            Some((bytes, rate, same.1))
        })?;
        let (kind, LineSpan { first, last }) = (other.name.trim_start_matches("this "), span);
        let scale = if faster < 0.1 { (1e3, "MB/s") } else { (1.0, "GB/s") };
        let at = if bytes > 0 { format!(" at {bytes} B") } else { String::new() };
        let peer = format!("the {kind} of lines {first} to {last}");
        let part = format!("{}{at}", own.name);
        let mut one = Outlier::new(part, rate * scale.0, faster * scale.0, scale.1, &peer).of_row();
        if own.is_time {
            let (own_us, us) = (figure(1.0 / rate), figure(1.0 / faster));
            one.text = format!("{}: {own_us} us, {us} us in {peer}", one.part);
        }
        let share = if own.is_time { TIME_SHARE } else { RUN_SHARE };
        let (here, there) = (own.title.unlike(&other.title), other.title.unlike(&own.title));
        let is_alike = here.is_empty() && there.is_empty();
        (rate > 0.0 && rate.is_finite() && rate < faster * share)
            .then_some((is_alike, one, here, there))
    });
    // Among runs under the same conditions one is slow; under others it is what these make of it.
    let (is_alike, mut slowest, here, there) =
        each.min_by(|a, b| (!a.0).cmp(&!b.0).then(a.1.share.total_cmp(&b.1.share)))?;
    if !is_alike {
        let name = |list: Vec<&str>| match list.is_empty() {
            true => "none of it".to_owned(),
            false => list.join(", "),
        };
        return Some(Err(format!("{}: {} here, {} there", slowest.text, name(here), name(there))));
    }
    slowest.text.push_str(own.because);
    Some(Ok(slowest.checked_by(own.check)))
}

/// The adapter or drive of a run, where three or more of one kind were measured alike and it is below the others.
fn slow_part(own: &MeasuredRun, all: &[(LineSpan, MeasuredRun)]) -> Option<Outlier> {
    let at_largest = |run: &MeasuredRun| run.rates.iter().max_by_key(|row| row.0).copied();
    let (bytes, rate) = at_largest(own)?;
    let is_peer = |other: &&MeasuredRun| {
        (&other.key, &other.name) == (&own.key, &own.name) || {
            let test = |run: &MeasuredRun| run.name.replace(&run.part, "");
            !own.part.is_empty() && other.key == own.key && test(other) == test(own)
        }
    };
    let mut best: BTreeMap<&str, f64> = BTreeMap::new();
    for other in all.iter().map(|(_, other)| other).filter(is_peer) {
        let (_, rate) = at_largest(other).filter(|row| row.0 == bytes)?;
        let known = best.entry(&other.part).or_default();
        *known = known.max(rate);
    }
    let values: Vec<f64> = best.values().copied().collect();
    let (slow, usual) = slow_values(&values, 0.34)?;
    let is_own = slow.iter().any(|at| best.keys().nth(*at) == Some(&own.part.as_str()));
    let one = Outlier::new(own.part.clone(), rate, usual, "GB/s", "its peers in this paste");
    let check = "lspci -vv: LnkCap and LnkSta; ibstat or smartctl: rate, errors; the same from another node";
    (is_own && rate < usual * DIP).then(|| one.checked_by(check))
}
