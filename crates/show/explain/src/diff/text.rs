//! A comparison as text.

use std::collections::BTreeSet;
use std::fmt::{self as std_fmt, Write as _};

use pathline_schema::{Case, Flow};

use super::groups;
use super::{CaseChange, ClassNoise, DiffRow, RepeatAdvice, RunDiff, TopologyChange};
use crate::fmt;

/// Maximum rows without `--full`; the counts cover all rows.
const MAX_ROWS: usize = 12;
/// The same where one part explains what is slower.
const MAX_ROWS_OF_PART: usize = 3;

/// Differences between the nodes without `--full`.
const MAX_TOPOLOGY: usize = 8;

/// A blank at which no line ends.
const NO_BREAK: &str = "\u{a0}";

/// Columns of the text where nothing is known of the reader's, and least and most of them.
const COLUMNS: usize = 80;
const LEAST_AND_MOST: (usize, usize) = (40, 100);

impl DiffRow {
    /// Whether the other row is the same copy of another size, changed alike.
    fn is_size_of(&self, other: &Self) -> bool {
        let [flow] = self.case.timed.as_slice() else { return false };
        let [of_other] = other.case.timed.as_slice() else { return false };
        let resized = Flow { bytes: flow.bytes, ..*of_other };
        let others_alike = self.case.cadence == other.case.cadence
            && self.case.background.is_empty()
            && other.case.background.is_empty();
        others_alike && resized == *flow && self.change == other.change && self.why == other.why
    }

    /// `+10.2 % [+9.8, +10.6]`. If the noise is unknown, a note instead of the interval.
    pub fn effect_text(&self) -> String {
        let Some((effect, low, high)) = self.effect else { return String::new() };
        let effect = percent_of(effect);
        if low > 0.0 && high.is_finite() {
            format!("{effect:+.1} % [{:+.1}, {:+.1}]", percent_of(low), percent_of(high))
        } else {
            format!("{effect:+.1} % [one sample: no interval]")
        }
    }
}

impl RunDiff {
    /// The answer in one line: `SLOWER: 62 of 1158 cases by 25 to 50 %, over xGMI gpu2-gpu4`.
    pub fn verdict(&self) -> String {
        let by = |change: CaseChange| {
            let losses = self.rows.iter().filter(|row| row.change == change);
            let losses = losses.filter_map(|row| Some((row.effect?.0 - 1.0).abs() * 100.0));
            let (low, high) = crate::figure::extremes(&losses.collect::<Vec<_>>());
            let (low, high) = (format!("{low:.0}"), format!("{high:.0}"));
            let size = if low == high { high } else { format!("{low} to {high}") };
            format!("{} of {} by {size} %", self.count(change), fmt::count(self.compared(), "case"))
        };
        let (slower, faster) = (self.count(CaseChange::Slower), self.count(CaseChange::Faster));
        let group = |change: CaseChange, all: usize| {
            let one = self.groups.iter().find(|group| group.change == change);
            let place = one.filter(|group| group.changed == all && !group.place.is_empty());
            place.map_or(String::new(), |group| format!(", all {}", group.place))
        };
        let others: Vec<String> =
            [CaseChange::Lost, CaseChange::Unverified, CaseChange::BeyondCeiling]
                .into_iter()
                .filter(|change| self.count(*change) > 0)
                .map(|change| format!("{} {}", self.count(change), change.word()))
                .collect();
        if let Some(failure) = &self.failure {
            let slower = match slower {
                0 => String::new(),
                _ => format!("; of the others {} slower", by(CaseChange::Slower)),
            };
            return format!("FAIL: {failure}{slower}");
        }
        match (self.is_worse(), slower, self.undecided()) {
            (true, 1.., _) => {
                let of_part = self.part.as_ref().map(|part| match self.stated_loss() {
                    Some(lost) => format!(", over {part} ({})", lost.state),
                    None if part.starts_with("pages of ") => format!(": {part}"),
                    None => format!(", over {part}"),
                });
                // A link that the node lacks is a fault, whatever the copies lose.
                let lost = self.main_loss().filter(|_| self.stated_loss().is_none());
                let lost = lost.map(TopologyChange::text);
                let place = of_part.unwrap_or_else(|| group(CaseChange::Slower, slower));
                let parts = [format!("{}{place}", by(CaseChange::Slower))];
                let parts = lost.into_iter().chain(parts).chain(others);
                format!("SLOWER: {}", parts.collect::<Vec<_>>().join("; "))
            }
            (true, _, _) if others.is_empty() => {
                let lost = self.topology.iter().filter(|change| change.is_loss);
                let lost: Vec<String> = lost.map(TopologyChange::text).collect();
                match lost.as_slice() {
                    [] => "WORSE: GPUs or records are missing after".to_owned(),
                    [first, rest @ ..] => {
                        let more = match rest.len() {
                            0 => String::new(),
                            n => format!(", and {n} more"),
                        };
                        let all = fmt::count(self.compared(), "case");
                        format!("WORSE: {first}{more}; none of {all} is slower for it")
                    }
                }
            }
            (true, _, _) => format!("WORSE: {}", others.join(", ")),
            (false, _, Some(why)) if faster > 0 => {
                format!("UNDECIDED: {why}; {} faster", by(CaseChange::Faster))
            }
            (false, _, Some(why)) => format!("UNDECIDED: {why}"),
            (false, ..) if self.missing() > 0 => {
                format!(
                    "UNDECIDED: none of {} in both is slower; {} without an outcome after",
                    fmt::count(self.compared(), "case"),
                    fmt::count(self.missing(), "case")
                )
            }
            _ if faster > 0 => {
                let place = group(CaseChange::Faster, faster);
                format!("FASTER: {}{place}; none is slower", by(CaseChange::Faster))
            }
            _ => {
                let (word, undecided) = match self.count(CaseChange::Unclear) {
                    0 => ("UNCHANGED", String::new()),
                    n => {
                        let place = groups::common_place(&self.rows, CaseChange::Unclear);
                        let place = place.map_or(String::new(), |place| format!(", all {place}"));
                        ("NO CHANGE SHOWN", format!(", {n} undecided{place}"))
                    }
                };
                let (same, all) = (self.count(CaseChange::Same), self.compared());
                let (all, tolerance) = (fmt::count(all, "case"), fmt::percent(self.tolerance));
                let seen = format!("{word}: {same} of {all} within {tolerance}{undecided}");
                if self.unseen.is_empty() { seen } else { format!("{seen}; {}", self.unseen) }
            }
        }
    }

    /// The number of cases with each kind of change.
    pub fn counts(&self) -> String {
        let counted = |change: CaseChange| (change, self.count(change));
        let counts: Vec<String> = CaseChange::ALL
            .into_iter()
            .filter(|c| !matches!(c, CaseChange::OnlyFirst | CaseChange::OnlySecond))
            .map(counted)
            .filter(|(_, n)| *n > 0)
            .map(|(c, n)| format!("{n} {}", c.word()))
            .collect();
        let both = fmt::count(self.compared(), "case");
        format!("{both} in both, tolerance {}: {}", fmt::percent(self.tolerance), counts.join(", "))
    }

    /// Number of changes that may be false.
    pub fn false_changes(&self) -> String {
        let rate = fmt::percent(self.judged.rate);
        match self.judged.found {
            0 => format!("no change is significant at a false discovery rate of {rate}"),
            found => format!(
                "expected false changes: at most {:.1} of {found} (false discovery rate {rate})",
                self.judged.expected_false()
            ),
        }
    }

    /// Cases of one side only, in one line; `None` if both have the same cases.
    pub fn one_sided(&self) -> Option<String> {
        let counts = [(CaseChange::OnlyFirst, "before"), (CaseChange::OnlySecond, "after")];
        let parts: Vec<String> = counts
            .into_iter()
            .map(|(change, side)| (self.count(change), side))
            .filter(|(n, _)| *n > 0)
            .map(|(n, side)| format!("{} only {side}", fmt::count(n, "case")))
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }

    /// Rows to show first: changes outside groups, and the largest of each group; all rows with
    /// `all`.
    pub fn shown(&self, all: bool) -> Vec<&DiffRow> {
        if all {
            return self.rows.iter().filter(|r| r.change != CaseChange::Same).collect();
        }
        let covered: BTreeSet<usize> =
            self.groups.iter().flat_map(|g| g.rows.iter().copied().skip(1)).collect();
        let quiet =
            [CaseChange::Same, CaseChange::Unclear, CaseChange::OnlyFirst, CaseChange::OnlySecond];
        let rows = self.rows.iter().enumerate();
        let is_quiet = |change: CaseChange| {
            quiet.contains(&change) || (change == CaseChange::Lost && self.failure.is_some())
        };
        rows.filter(|(at, row)| !covered.contains(at) && !is_quiet(row.change))
            .map(|(_, row)| row)
            .collect()
    }

    /// The comparison as text of at most `columns`, conclusions first; with `all` every case that changed.
    pub fn text(&self, all: bool, columns: usize) -> String {
        let columns = columns.clamp(LEAST_AND_MOST.0, LEAST_AND_MOST.1);
        let mut text = String::new();
        // Writing to a string does not fail.
        let _infallible = self.write(&mut text, all);
        text.lines().map(|line| wrap_line(line, columns)).collect()
    }

    fn write(&self, f: &mut String, all: bool) -> std_fmt::Result {
        let [before, after] = &self.sides;
        let verdict = self.verdict();
        writeln!(f, "{verdict}\n")?;
        writeln!(f, "before: {}", before.text())?;
        writeln!(f, "after:  {}", after.text())?;
        for (name, a, b) in &self.conditions {
            writeln!(f, "  {name} differs: '{a}' and '{b}'")?;
        }
        let most = if all { usize::MAX } else { MAX_TOPOLOGY };
        // What the verdict says stands once.
        let is_new = |change: &&TopologyChange| {
            ![&change.part.0, &change.state].iter().all(|text| verdict.contains(*text))
        };
        let changes: Vec<&TopologyChange> = self.topology.iter().filter(is_new).collect();
        for change in changes.iter().take(most) {
            writeln!(f, "  {}", change.text())?;
        }
        match changes.len().saturating_sub(most) {
            0 => (),
            more => {
                writeln!(f, "  and {more} more differences between the nodes (--full lists them)")?
            }
        }
        for records in &self.rejected {
            writeln!(f, "  {records}")?;
        }
        writeln!(f, "\n{}", self.counts())?;
        if all {
            writeln!(f, "{}", self.false_changes())?;
        }
        // Where one part explains what is slower, its paths are no further answer.
        let is_explained = |change| change == CaseChange::Slower && self.part.is_some() && !all;
        for group in self.groups.iter().filter(|group| !is_explained(group.change)) {
            writeln!(f, "  {}: {}", group.change.word(), group.text())?;
        }
        let lost = self.count(CaseChange::Lost);
        if self.failure.is_some() && lost > 0 && !all {
            let cases = fmt::count(lost, "case");
            writeln!(f, "{cases} without a result after, all by that (--full lists them)")?;
        }
        self.write_rows(f, all)?;
        if all {
            self.write_noise(f)?;
        }
        let unclear = self.count(CaseChange::Unclear);
        if unclear > 0 && !all {
            let cases = fmt::count(unclear, "case");
            writeln!(
                f,
                "\n{cases} undecided: noise hides changes above {}; more runs on each side narrow this \
                 (--full lists them, and the noise)",
                fmt::percent(self.tolerance)
            )?;
        }
        let is_busy = |row: &&DiffRow| row.disturbed && row.change == CaseChange::Unclear;
        let busy = self.rows.iter().filter(is_busy).count();
        if busy > 0 {
            writeln!(
                f,
                "{} of the undecided cases: other programs used the machine while they were measured; \
                 end those, or take the whole node, and run again",
                busy
            )?;
        }
        // Said below, with what to do.
        let is_said = self.missing() == self.count(CaseChange::OnlyFirst)
            && self.count(CaseChange::OnlySecond) == 0;
        match self.one_sided() {
            Some(cases) if !all && !is_said => writeln!(f, "{cases} (--full lists them)")?,
            _ => (),
        }
        if let Some(why) = self.undecided().filter(|why| !verdict.contains(why)) {
            writeln!(f, "not judged: {why}")?;
        }
        if self.missing() > 0 {
            let cases = fmt::count(self.missing(), "case");
            let why = match (after.cut, self.topology.is_empty()) {
                (0, true) => "the run after ended without them: give both the same selection",
                (0, false) => "the run after ended without them: its node differs (see above)",
                _ => "complete that run (--resume) or give both the same selection",
            };
            let list = if all { "" } else { " (--full lists them)" };
            writeln!(f, "not judged: {cases} without an outcome after{list}; {why}")?;
        }
        if !verdict.contains(&self.unseen) {
            writeln!(f, "not seen: {}", self.unseen)?;
        }
        match self.action.as_str() {
            "" => Ok(()),
            action => writeln!(f, "\n→ {action}"),
        }
    }

    fn write_rows(&self, f: &mut String, all: bool) -> std_fmt::Result {
        let rows = self.shown(all);
        if rows.is_empty() {
            return Ok(());
        }
        writeln!(f, "\n{:<12} {:>9} {:>9} {:<4}  speed [95 %]", "", "before", "after", "")?;
        let mut folded: Vec<Vec<&DiffRow>> = Vec::new();
        for row in rows {
            match folded.iter_mut().find(|rows| !all && rows.iter().all(|r| r.is_size_of(row))) {
                Some(rows) => rows.push(row),
                None => folded.push(vec![row]),
            }
        }
        // Where one part explains all of them, a few show it.
        let shown = if self.part.is_some() { MAX_ROWS_OF_PART } else { MAX_ROWS };
        let most = if all { usize::MAX } else { shown };
        let mut said = BTreeSet::new();
        for rows in folded.iter().take(most) {
            let [row, others @ ..] = rows.as_slice() else { continue };
            let value = |v: Option<f64>| v.map_or("-".into(), fmt::number);
            let (word, effect, case) = (row.change.word(), row.effect_text(), short_case(row));
            let (a, b, unit) = (value(row.a), value(row.b), row.unit);
            write!(f, "{word:<12} {a:>9} {b:>9} {unit:<4}  {effect}\n    {case}")?;
            let cause = end_cause(&row.why);
            match (row.why.is_empty(), said.insert(cause)) {
                (true, _) => {}
                (false, true) => write!(f, ": {}", row.why)?,
                (false, false) => write!(f, ": likewise")?,
            }
            writeln!(f, "{}", other_sizes(others))?;
        }
        let more: usize = folded.iter().skip(most).map(Vec::len).sum();
        match more {
            0 => Ok(()),
            more => writeln!(f, "... and {more} more (--full lists them)"),
        }
    }

    fn write_noise(&self, f: &mut String) -> std_fmt::Result {
        if self.noise.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\n{:<38} {:>5} {:>9} {:>9}  origin",
            "noise between runs, by class", "cases", "deviation", "visible"
        )?;
        for noise in &self.noise {
            writeln!(
                f,
                "{:<38} {:>5} {:>9} {:>9}  {}",
                noise.class,
                noise.cases,
                format!("{:.2} %", noise.deviation * 100.0),
                noise.visible_text(),
                noise.origin
            )?;
        }
        writeln!(f, "visible: the smallest slowdown that is found here 19 times in 20")?;
        self.repeats.as_ref().map_or(Ok(()), |repeats| writeln!(f, "{}", repeats.text()))
    }
}

impl RepeatAdvice {
    /// `to find a slowdown of 10 %: ...`, in two lines.
    pub fn text(&self) -> String {
        let choices = self
            .choices
            .iter()
            .map(|(runs, deviation)| format!("{runs} by up to {:.1} %", deviation * 100.0));
        let classes = self.classes.iter().map(|(class, runs)| match runs {
            Some(runs) => format!("{runs} ({class})"),
            None => format!("more than 1000 ({class})"),
        });
        format!(
            "to find a slowdown of 10 %: `pathline run --repeat N --out DIR` before and after, then \
             `pathline diff BEFORE AFTER`\n  N where repeats differ by no more: {}; at the deviations \
             above: {}",
            choices.collect::<Vec<_>>().join(", "),
            classes.collect::<Vec<_>>().join(", ")
        )
    }
}

impl ClassNoise {
    /// `12 %`; `none` if even a case that takes 200 times as long would not be found.
    pub fn visible_text(&self) -> String {
        if self.visible < 0.995 { fmt::percent(self.visible) } else { "none".to_owned() }
    }
}

/// `16 flows at once: 8 H2D, 8 D2H of 8 GPUs x 256MiB`.
fn flows_at_once(case: &Case, first: &Flow) -> String {
    let ends = |flow: &Flow| [flow.src, flow.dst].map(|place| place.unit.gpu());
    let is_gpu = |flow: &Flow| ends(flow).map(|gpu| gpu.is_some());
    let words = [("H2D", [false, true]), ("D2H", [true, false]), ("between GPUs", [true, true])];
    let count = |(word, kind)| (case.timed.iter().filter(|f| is_gpu(f) == kind).count(), word);
    let kinds = words.map(count).into_iter().filter(|(n, _)| *n > 0);
    let kinds: Vec<String> = kinds.map(|(n, word)| format!("{n} {word}")).collect();
    let gpus: BTreeSet<u32> = case.timed.iter().flat_map(ends).flatten().collect();
    let (all, kinds, gpus) = (case.timed.len(), kinds.join(", "), gpus.len());
    format!("{all} flows at once: {kinds} of {gpus} GPUs x {}", first.bytes)
}

/// The case of a row; where all is in one rank, without it, so that it parses to the same case; of many flows what
/// they are.
fn short_case(row: &DiffRow) -> String {
    let has_gpu =
        row.case.flows().any(|flow| [flow.src, flow.dst].iter().any(|at| at.unit.gpu().is_some()));
    if let ([first, _, _, ..], true) = (row.case.timed.as_slice(), has_gpu) {
        return flows_at_once(&row.case, first);
    }
    let text = row.case.to_string();
    let one_rank = row.case.flows().all(|flow| flow.src.rank.0 == 0 && flow.dst.rank.0 == 0);
    match one_rank {
        true => text.replace("r0.", "").replace(".vram ", " "),
        false => text,
    }
}

/// `; 4 other sizes up to 16MiB: -34 to -50 %`.
fn other_sizes(rows: &[&DiffRow]) -> String {
    let sizes = rows.iter().filter_map(|row| row.case.timed.first()).map(|flow| flow.bytes);
    let Some((low, high)) = sizes.clone().min().zip(sizes.max()) else { return String::new() };
    let effects: Vec<f64> = rows.iter().filter_map(|row| Some(percent_of(row.effect?.0))).collect();
    let sizes = match rows.len() {
        1 => format!("; {low} too"),
        n => format!("; {n} other sizes of {low} to {high}"),
    };
    if effects.is_empty() {
        return sizes;
    }
    let (least, most) = crate::figure::extremes(&effects);
    match format!("{least:+.0}") == format!("{most:+.0}") {
        true => format!("{sizes}: {least:+.0} %"),
        false => format!("{sizes}: {least:+.0} to {most:+.0} %"),
    }
}

/// What ended a case, without the step and the process: `signal 9 (SIGKILL, ...`.
fn end_cause(why: &str) -> &str {
    why.split_once(" was ended by ").map_or(why, |(_, cause)| cause)
}

/// A line in lines of at most `columns`, broken between words and not within a command that a line can hold.
fn wrap_line(line: &str, columns: usize) -> String {
    let whole = |(nth, part): (usize, &str)| match nth % 2 == 1 && part.len() + 6 <= columns {
        true => part.replace(' ', NO_BREAK),
        false => part.to_owned(),
    };
    let line = line.split('`').enumerate().map(whole).collect::<Vec<_>>().join("`");
    let mut text = String::new();
    let mut width = 0;
    for word in line.split_inclusive(' ') {
        if width > 0 && width + word.trim_end().chars().count() > columns {
            text.truncate(text.trim_end().len());
            text.push_str("\n    ");
            width = 4;
        }
        text.push_str(word);
        width += word.chars().count();
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text.replace(NO_BREAK, " ")
}

impl std_fmt::Display for RunDiff {
    fn fmt(&self, f: &mut std_fmt::Formatter<'_>) -> std_fmt::Result {
        f.write_str(&self.text(false, COLUMNS))
    }
}

fn percent_of(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}
