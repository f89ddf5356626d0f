//! A comparison as text.

use std::collections::BTreeSet;
use std::fmt::{self as std_fmt, Write as _};

use super::{CaseChange, ClassNoise, DiffRow, RepeatAdvice, RunDiff};
use crate::fmt;

/// Maximum rows without `--all`; the counts cover all rows.
const MAX_ROWS: usize = 40;

impl DiffRow {
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
    /// Counts in one line, with the number of changes that chance explains.
    pub fn verdict(&self) -> String {
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
            0 => format!(
                "no change is significant at a false discovery rate of {rate}; one below `visible` would not be"
            ),
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
        rows.filter(|(at, row)| !covered.contains(at) && !quiet.contains(&row.change))
            .map(|(_, row)| row)
            .collect()
    }

    /// The comparison as text, conclusions first; with `all` every case that changed.
    pub fn text(&self, all: bool) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _infallible = self.write(&mut text, all);
        text
    }

    fn write(&self, f: &mut String, all: bool) -> std_fmt::Result {
        let [before, after] = &self.sides;
        writeln!(f, "before: {}", before.text())?;
        writeln!(f, "after:  {}", after.text())?;
        for (name, a, b) in &self.conditions {
            writeln!(f, "  {name} differs: '{a}' and '{b}'")?;
        }
        for records in &self.rejected {
            writeln!(f, "  {records}")?;
        }
        writeln!(f, "\n{}\n{}", self.verdict(), self.false_changes())?;
        for group in &self.groups {
            writeln!(f, "  {}: {}", group.change.word(), group.text())?;
        }
        self.write_rows(f, all)?;
        self.write_noise(f)?;
        let unclear = self.count(CaseChange::Unclear);
        if unclear > 0 && !all {
            let cases = fmt::count(unclear, "case");
            writeln!(
                f,
                "\n{cases} unclear: a change above {} is neither shown nor excluded; more runs a side \
                 narrow this (--all lists them)",
                fmt::percent(self.tolerance)
            )?;
        }
        let is_busy = |row: &&DiffRow| row.disturbed && row.change == CaseChange::Unclear;
        let busy = self.rows.iter().filter(is_busy).count();
        if busy > 0 {
            writeln!(
                f,
                "{} of the unclear cases: other programs used the machine while they were measured; \
                 end those, or take the whole node, and run again",
                busy
            )?;
        }
        match self.one_sided() {
            Some(cases) if !all => writeln!(f, "{cases} (--all lists them)")?,
            _ => (),
        }
        if let Some(why) = self.undecided() {
            writeln!(f, "not judged: {why}")?;
        }
        match self.missing() {
            0 => Ok(()),
            missing => writeln!(
                f,
                "not judged: {} without an outcome after; complete that run (--resume) or give both the same \
                 selection",
                fmt::count(missing, "case")
            ),
        }
    }

    fn write_rows(&self, f: &mut String, all: bool) -> std_fmt::Result {
        let rows = self.shown(all);
        if rows.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\n{:<14} {:>9} {:>9} {:<4}  {:<24} case",
            "", "before", "after", "", "speed [95 %]"
        )?;
        let most = if all { usize::MAX } else { MAX_ROWS };
        for row in rows.iter().take(most) {
            let value = |v: Option<f64>| v.map_or("-".into(), fmt::number);
            let effect = row.effect_text();
            write!(
                f,
                "{:<14} {:>9} {:>9} {:<4}  {effect:<24} {}",
                row.change.word(),
                value(row.a),
                value(row.b),
                row.unit,
                row.case
            )?;
            if !row.why.is_empty() {
                write!(f, ": {}", row.why)?;
            }
            writeln!(f)?;
        }
        match rows.len().saturating_sub(most) {
            0 => Ok(()),
            more => writeln!(f, "... and {more} more (--all lists them)"),
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

impl std_fmt::Display for RunDiff {
    fn fmt(&self, f: &mut std_fmt::Formatter<'_>) -> std_fmt::Result {
        f.write_str(&self.text(false))
    }
}

fn percent_of(ratio: f64) -> f64 {
    (ratio - 1.0) * 100.0
}
