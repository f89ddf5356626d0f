//! Turns pasted bytes into lines that the parsers of single tools understand.

use std::collections::{BTreeMap, BTreeSet};

use pathline_topo::without_colours;

use crate::failures::states_failure;

/// The largest paste that is read; the rest is reported as not read.
pub(crate) const MAX_BYTES: usize = 8 << 20;
/// The longest line that is read. A line of NCCL's log has some hundred characters, a row for 64 GPUs
/// 700.
const MAX_LINE: usize = 8192;
/// First words of lines that are counted, and how often one stands that may be a name before each line.
const MAX_NAMES: usize = 4096;
const MIN_REPEATED: u32 = 3;

/// Of syslog.
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A line of the paste.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PasteLine {
    /// Its number in the paste, from 1.
    pub(crate) number: u32,
    /// Its text without prefixes, colours and trailing blanks. Tabs are blanks.
    pub(crate) text: String,
    /// Whether a tool states by it that it failed.
    pub(crate) is_failure: bool,
}

/// Rows from a line on, up to `most` lines, and the line after the last one. `read` has one, none in a line that may
/// stand between, or ends them.
pub(crate) fn rows_of<T>(
    lines: &[PasteLine],
    from: usize,
    most: usize,
    mut read: impl FnMut(&str) -> Option<Option<T>>,
) -> (Vec<T>, usize) {
    let (mut rows, mut next) = (Vec::new(), from);
    for (index, line) in lines.iter().enumerate().skip(from).take(most) {
        let Some(row) = read(line.text.trim()) else { break };
        if let Some(row) = row {
            rows.push(row);
            next = index + 1;
        }
    }
    (rows, next)
}
impl AsRef<str> for PasteLine {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

/// Lines of a paste, and whether it was cut.
pub(crate) fn clean_lines(bytes: &[u8]) -> (Vec<PasteLine>, bool) {
    let is_cut = bytes.len() > MAX_BYTES;
    let bytes = bytes.get(..MAX_BYTES).unwrap_or(bytes);
    let text = decode(bytes);
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.split_terminator('\n')) {
        // A progress display redraws its line after a carriage return: the last state counts.
        let line = line.trim_end_matches('\r').rsplit('\r').next().unwrap_or(line);
        let end = line.char_indices().nth(MAX_LINE).map_or(line.len(), |(at, _)| at);
        let plain = without_colours(line.get(..end).unwrap_or(line));
        let text = without_prefix(&plain).trim_end().to_owned();
        lines.push(PasteLine { number, text, is_failure: states_failure(plain.trim()) });
    }
    (lines, is_cut)
}

/// Takes off the first word of each line that begins so three times, as collectors of logs write the name of a
/// pod, host or unit. The lines that lost one; whether more is read then decides if it was a name.
pub(crate) fn strip_repeated_words(lines: &mut [PasteLine]) -> usize {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    // The log of NCCL names process and thread, and is read by itself.
    let is_log = |line: &PasteLine| line.text.contains(" NCCL ");
    for line in lines.iter().filter(|line| !is_log(line)) {
        let word = first_word(&line.text);
        let is_known = counts.contains_key(word);
        if word.contains(|c: char| c.is_ascii_alphabetic())
            && (is_known || counts.len() < MAX_NAMES)
        {
            *counts.entry(word).or_default() += 1;
        }
    }
    let repeated: BTreeSet<String> =
        counts.into_iter().filter(|(_, n)| *n >= MIN_REPEATED).map(|(w, _)| w.to_owned()).collect();
    let mut stripped = 0;
    for line in lines {
        let word = first_word(&line.text);
        if repeated.contains(word) {
            let start = line.text.len() - line.text.trim_start().len() + word.len();
            let rest = line.text.get(start..).unwrap_or_default();
            line.text = without_prefix(without_level(rest)).to_owned();
            stripped += 1;
        }
    }
    stripped
}

/// The first word of a line, or what stands in brackets there, with the sign that ends it: `[default0]:`.
fn first_word(line: &str) -> &str {
    let line = line.trim_start();
    let end = line.find(' ').unwrap_or(line.len());
    let word = line.get(..end).unwrap_or_default();
    let bracket = word.starts_with('[').then(|| word.find(']')).flatten();
    let Some(close) = bracket else { return word };
    let tail = word.get(close + 1..).unwrap_or_default();
    let sign = usize::from(tail.starts_with(':'));
    word.get(..close + 1 + sign).unwrap_or(word)
}

/// A paste as the readers see it, without escape sequences, control characters and prefixes of launchers.
pub fn clean_text(bytes: &[u8]) -> String {
    let lines: Vec<String> = clean_lines(bytes).0.into_iter().map(|line| line.text).collect();
    lines.join("\n")
}

/// UTF-16 with a byte order mark, as Windows shells write it, or UTF-8 with what is invalid replaced.
fn decode(bytes: &[u8]) -> String {
    let wide = |of: fn([u8; 2]) -> u16| {
        let units: Vec<u16> =
            bytes.as_chunks::<2>().0.iter().skip(1).map(|pair| of(*pair)).collect();
        String::from_utf16_lossy(&units)
    };
    match bytes {
        [0xff, 0xfe, ..] => wide(u16::from_le_bytes),
        [0xfe, 0xff, ..] => wide(u16::from_be_bytes),
        _ => {
            let text = String::from_utf8_lossy(bytes);
            text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned()
        }
    }
}

/// Without what launchers, loggers and mail programs write before a line.
fn without_prefix(line: &str) -> &str {
    let mut rest = line;
    // A few layers at most: a quotation of a log of a launcher.
    for _ in 0..6 {
        let start = rest.trim_start();
        let next = quoted(start)
            .or_else(|| wrapped(start))
            .or_else(|| numbered(start))
            .or_else(|| stream_tag(start))
            .or_else(|| time_stamp(start).map(without_level))
            .or_else(|| host_label(start));
        match next {
            Some(shorter) => rest = shorter,
            None => break,
        }
    }
    rest
}

/// The text in a record of docker, `{"log":"text\\n","stream":"stdout"}`, or of logfmt, `level=info msg="text"`.
fn wrapped(line: &str) -> Option<&str> {
    if let Some(rest) = line.strip_prefix("{\"log\":\"") {
        return rest.split("\\n\"").next()?.split("\",\"").next();
    }
    let is_record = ["time=", "level=", "ts="].iter().any(|key| line.starts_with(key));
    let (_, text) = line.split_once("msg=\"").filter(|_| is_record)?;
    Some(text.trim_end_matches('"'))
}

/// `[   12.345] ` of the kernel, `1714557600.123 `, `I0501 10:00:00.1 77 file.cc:12] ` of glog, `INFO:name:` of Python.
fn numbered(line: &str) -> Option<&str> {
    let is_time = |text: &str| {
        let (whole, part) = text.trim().split_once('.').unwrap_or_default();
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
        digits(whole) && digits(part) && part.len() > 1
    };
    if let Some((time, rest)) = line.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
        return is_time(time).then_some(rest);
    }
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    if word.find('.') == Some(10) && is_time(word) {
        return Some(rest);
    }
    let is_glog = word.len() == 5
        && word.starts_with(['I', 'W', 'E', 'F'])
        && word.bytes().skip(1).all(|c| c.is_ascii_digit());
    if is_glog {
        return rest.split_once("] ").map(|(_, rest)| rest);
    }
    let mut parts = line.splitn(3, ':');
    let is_level = LEVELS.contains(&parts.next()?);
    parts.next().filter(|name| is_level && !name.contains(' ')).and_then(|_| parts.next())
}

/// Names of levels.
const LEVELS: [&str; 6] = ["INFO", "WARNING", "WARN", "DEBUG", "ERROR", "info"];

/// Without the level and the signs that loggers write behind a time: `- INFO - `, `| INFO | `, `[INFO]: `.
fn without_level(line: &str) -> &str {
    let mut rest = line;
    for _ in 0..4 {
        let start = rest.trim_start();
        let sign = ["- ", "| ", ": "].iter().find_map(|sign| start.strip_prefix(sign));
        let level = || {
            let inner = start.trim_start_matches('[');
            let after = LEVELS.iter().find_map(|level| inner.strip_prefix(level))?;
            let after = after.trim_start_matches([']', ':']);
            after.starts_with(' ').then_some(after)
        };
        match sign.or_else(level) {
            Some(shorter) => rest = shorter,
            None => break,
        }
    }
    rest
}

fn quoted(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("> ").or_else(|| line.strip_prefix("| "));
    rest.or_else(|| (line == ">").then_some(""))
}

/// `[1,0]<stdout>:` of Open MPI, `[0]` of Intel MPI and MPICH, `0: ` of `srun -l`.
fn stream_tag(line: &str) -> Option<&str> {
    if let Some((tag, rest)) = line.strip_prefix('[').and_then(|l| l.split_once(']')) {
        let is_rank = !tag.is_empty()
            && tag.len() < 12
            && tag.chars().all(|c| c.is_ascii_digit() || c == ',')
            && !rest.trim_start().starts_with("NCCL");
        if is_rank && !rest.is_empty() {
            let rest = ["<stdout>:", "<stderr>:", "<stdout>", "<stderr>"]
                .iter()
                .find_map(|end| rest.strip_prefix(end))
                .unwrap_or(rest);
            return Some(rest);
        }
    }
    let (tag, rest) = line.split_once(": ")?;
    let is_task = !tag.is_empty() && tag.len() < 6 && tag.chars().all(|c| c.is_ascii_digit());
    is_task.then_some(rest)
}

/// `2024-05-06T07:08:09.123Z`, `[2024-05-06 07:08:09]`, `[07:08:09]`, `May  6 07:08:09` of syslog, each with what
/// ends it.
fn time_stamp(line: &str) -> Option<&str> {
    let inner = line.strip_prefix('[').unwrap_or(line);
    let is_date = inner.get(..10).is_some_and(|date| {
        date.chars().enumerate().all(|(at, c)| match at {
            4 | 7 => c == '-' || c == '/',
            _ => c.is_ascii_digit(),
        })
    });
    let is_dated = is_date && inner.get(10..11).is_some_and(|c| c == "T" || c == " ");
    let is_syslog = inner.get(..7).is_some_and(|head| {
        let month = head.get(..3).is_some_and(|name| MONTHS.contains(&name));
        month && head.get(3..).is_some_and(|day| day.trim().parse::<u8>().is_ok())
    });
    let time = match (is_dated, is_syslog) {
        (true, _) => inner.get(11..)?,
        (_, true) => inner.get(7..)?,
        _ => inner,
    };
    let is_clock = time.get(..8).is_some_and(|clock| {
        clock.chars().enumerate().all(|(at, c)| match at {
            2 | 5 => c == ':',
            _ => c.is_ascii_digit(),
        })
    });
    if !is_clock {
        return None;
    }
    let end = |c: char| !(c.is_ascii_digit() || ".,+-:Z".contains(c));
    let rest = time.get(8..)?;
    let (stamp, rest) = rest.split_at(rest.find(end)?);
    // A comma behind it separates the values of a CSV file, whose first one the date is.
    if stamp.ends_with(',') {
        return None;
    }
    Some(rest.strip_prefix(']').unwrap_or(rest))
}

/// `node01: ` of pdsh and `(RayWorker pid=12) ` before a row of a table or a comment.
fn host_label(line: &str) -> Option<&str> {
    if let Some((tag, rest)) = line.strip_prefix('(').and_then(|l| l.split_once(") ")) {
        return tag.contains("pid=").then_some(rest);
    }
    let (tag, rest) = line.split_once(": ")?;
    let is_name = tag.len() < 64
        && tag.chars().any(|c| c.is_ascii_digit())
        && tag.chars().any(|c| c.is_ascii_alphabetic())
        && tag.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let starts_row = rest.trim_start().starts_with(|c: char| c == '#' || c.is_ascii_digit());
    // `NUMA0: 12` of a topology has a single number; a row of a table has several.
    (is_name && starts_row && rest.split_whitespace().count() > 3).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(text: &str) -> Vec<String> {
        clean_lines(text.as_bytes()).0.into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn prefixes_of_launchers_and_loggers_go() {
        for line in [
            "[1,0]<stdout>:# nThread 1 nGpus 8",
            "[0] # nThread 1 nGpus 8",
            "0: # nThread 1 nGpus 8",
            "gpu-node-17.cluster: # nThread 1 nGpus 8",
            "2024-05-06T07:08:09.123Z # nThread 1 nGpus 8",
            "[2024-05-06 07:08:09] # nThread 1 nGpus 8",
            "2024-05-06T07:08:09-0500 # nThread 1 nGpus 8",
            "May  6 07:08:09 # nThread 1 nGpus 8",
            "[07:08:09.5] # nThread 1 nGpus 8",
            "> # nThread 1 nGpus 8",
            "> [1,0]<stdout>: # nThread 1 nGpus 8",
            "\u{1b}[32m# nThread 1 nGpus 8\u{1b}[0m\r",
            "(Worker pid=77) # nThread 1 nGpus 8",
            "2024-05-06 07:08:09,123 - INFO - # nThread 1 nGpus 8",
            "2024-05-06 07:08:09.123 | INFO     | # nThread 1 nGpus 8",
            "[2024-05-06 07:08:09,123] [INFO] # nThread 1 nGpus 8",
            "[   12.345] # nThread 1 nGpus 8",
            "1714557600.123 # nThread 1 nGpus 8",
            "I0506 07:08:09.123456 777 bench.cc:12] # nThread 1 nGpus 8",
            "INFO:bench.run:# nThread 1 nGpus 8",
            "{\"log\":\"# nThread 1 nGpus 8\\n\",\"stream\":\"stdout\",\"time\":\"x\"}",
            "time=\"2024-05-06T07:08:09Z\" level=info msg=\"# nThread 1 nGpus 8\"",
        ] {
            assert_eq!(cleaned(line)[0].trim(), "# nThread 1 nGpus 8", "{line:?}");
        }
    }

    #[test]
    fn dates_of_csv_files_stay() {
        let row = "2026-05-06T07:08:09+0200,,file,8\n";
        assert_eq!(cleaned(row)[0], row.trim());
        assert_eq!(cleaned("2026-05-06 07:08:09,123 READ\n")[0].trim(), "READ");
    }

    #[test]
    fn what_looks_like_a_prefix_stays() {
        for line in ["GPU0: NVIDIA H100", "Device: 0, NVIDIA A100", "NUMA0: 12", "Rank 0: x"] {
            assert_eq!(cleaned(line), [line]);
        }
    }

    #[test]
    fn any_encoding_gives_lines() {
        let wide: Vec<u8> = [0xff, 0xfe]
            .into_iter()
            .chain("a 1\nb".encode_utf16().flat_map(u16::to_le_bytes))
            .collect();
        let lines = clean_lines(&wide).0;
        assert_eq!(lines.iter().map(|l| l.text.as_str()).collect::<Vec<_>>(), ["a 1", "b"]);
        let (lines, cut) = clean_lines(b"caf\xe9 12,5\r\nprogress 1%\rprogress 99%\n");
        assert_eq!(
            (lines[0].text.as_str(), lines[1].text.as_str(), cut),
            ("caf\u{fffd} 12,5", "progress 99%", false)
        );
        assert!(clean_lines(&vec![b'x'; MAX_BYTES + 1]).1);
    }
}
