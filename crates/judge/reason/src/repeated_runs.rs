//! Runs of one paste that measured the same: one that is slower than the fastest of them needs no limit.

use pathline_paste::{FileIoResult, PasteContent, PasteContext, PasteReading};

use crate::outlier::{Outlier, RUN_SHARE};

/// Runs that are compared with each other.
const MAX_RUNS: usize = 64;

/// What a run measured: a name of it, which runs are peers, and its rates by size, GB/s.
struct MeasuredRun {
    name: String,
    key: String,
    rates: Vec<(u64, f64)>,
    /// What makes a slow run so, where its own output says it.
    because: &'static str,
    check: &'static str,
}

/// The run of a content; none of times, of matrices and of links.
fn measured(content: &PasteContent, context: &PasteContext) -> Option<MeasuredRun> {
    let run = |name: &str, key: String, rates: Vec<(u64, f64)>| {
        let (because, check) = ("", "the commands and settings of both runs, side by side");
        Some(MeasuredRun { name: name.to_owned(), key, rates, because, check })
    };
    match content {
        PasteContent::Collective(table) => {
            let key = format!("{:?} {:?} {}", table.ranks, table.op, table.is_sendrecv);
            let average = || table.average_busbw.map(|busbw| (0, busbw));
            let rows = table.rows.iter().map(|row| (row.bytes, row.busbw));
            run(
                "this run",
                key,
                if table.rows.is_empty() {
                    average().into_iter().collect()
                } else {
                    rows.collect()
                },
            )
        }
        PasteContent::Messages(table) if !table.is_time() => {
            // `osu_bw D H`: memories that the command names.
            let words = table.command.split(' ');
            let places: Vec<&str> =
                words.filter(|word| ["D", "H", "MD", "MH"].contains(word)).collect();
            let key = format!("{} {:?} {:?} {places:?}", table.tool, table.test, table.on_gpu);
            run("this run", key, table.rows.clone())
        }
        PasteContent::Network(table) if !table.is_latency && !table.is_short() => {
            let key = format!("{} {}", table.device, table.both_ways);
            let by = if table.device.is_empty() { "" } else { " by " };
            let name = format!("{}{by}{}", table.test, table.device);
            let mut one = run(&name, key, table.rows.clone())?;
            one.check = "the same with the options of the other test; ib_read_bw -o 16";
            if table.outstanding_reads == Some(1) {
                one.because = "; one read in flight at once (-o 1): each waits for the one before";
            }
            Some(one)
        }
        PasteContent::FileIo(result) => run(
            &format!("this {}", result.operation),
            file_key(result, context)?,
            vec![(0, result.gbs)],
        ),
        _ => None,
    }
}

/// Results of files are peers where their options are the same, or one command is theirs.
fn file_key(result: &FileIoResult, context: &PasteContext) -> Option<String> {
    let mut commands: Vec<&String> =
        context.commands.iter().filter(|command| command.contains(result.tool)).collect();
    commands.dedup();
    let is_known = commands.len() == 1 || commands.is_empty() && result.block.is_some();
    let is_alone = result.together <= 1 && !["elbencho", "dd"].contains(&result.tool);
    let options = match commands.is_empty() {
        true => format!(
            "{:?} {:?} {:?} {} {}",
            result.block, result.depth, result.workers, result.engine, result.path
        ),
        false => String::new(),
    };
    (is_known && is_alone).then(|| format!("{} {} {options}", result.tool, result.operation))
}

/// Another run of the same that is faster at the largest size of both.
pub(crate) fn faster_run(reading: &PasteReading, content: &PasteContent) -> Option<Outlier> {
    let context = &reading.context;
    let own = measured(content, context)?;
    let is_peer = |other: &MeasuredRun| {
        // An operation without a name may be any.
        let is_open = |run: &MeasuredRun| run.key.contains(" None false");
        let ranks = |run: &MeasuredRun| run.key.split(" ").next().map(str::to_owned);
        own.key == other.key || (is_open(&own) || is_open(other)) && ranks(&own) == ranks(other)
    };
    let others = reading
        .documents
        .iter()
        .filter_map(|document| Some((document.span, measured(&document.content, context)?)));
    let each =
        others.take(MAX_RUNS).filter(|(_, other)| is_peer(other)).filter_map(|(span, other)| {
            let (bytes, rate, faster) = own.rates.iter().rev().find_map(|&(bytes, rate)| {
                let same = other.rates.iter().find(|same| same.0 == bytes)?;
                Some((bytes, rate, same.1))
            })?;
            let scale = if faster < 0.1 { (1e3, "MB/s") } else { (1.0, "GB/s") };
            let at = if bytes > 0 { format!(" at {bytes} B") } else { String::new() };
            let peer = format!(
                "the {} of lines {} to {}",
                other.name.trim_start_matches("this "),
                span.first,
                span.last
            );
            let part = format!("{}{at}", own.name);
            let one = Outlier::new(part, rate * scale.0, faster * scale.0, scale.1, &peer).of_row();
            (rate > 0.0 && rate < faster * RUN_SHARE).then_some(one)
        });
    let mut slowest = each.min_by(|a, b| a.share.total_cmp(&b.share))?;
    slowest.text.push_str(own.because);
    Some(slowest.checked_by(own.check))
}
