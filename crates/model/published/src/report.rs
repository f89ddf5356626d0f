//! A whole table: its queries, the score of each row, contradictions between rows.

use std::collections::{BTreeMap, BTreeSet};

use pathline_flow::{DescError, MachineDesc};
use pathline_schema::{Bytes, Case};

use crate::class::{BANDWIDTH, FACTS, MESSAGES, RowClass, SWEEPS};
use crate::mapper::{RowMapper, WantedRow};
use crate::number::{MachineAnswer, MachineQuery};
use crate::row::{RowUsage, UnmappedRow};
use crate::score::{ClassErrors, ComparedRow, ErrorTarget, JudgedTarget, by_class, judge};
use crate::table::PublishedRow;

/// Rows that differ in nothing but their size are a series from this many on.
const SERIES: usize = 3;
/// Published values that a model between them would miss by less than this do not contradict each
/// other.
const ALIKE: f64 = 0.01;

/// A table, mapped.
pub struct ValidationPlan {
    rows: Vec<(PublishedRow, Result<WantedRow, UnmappedRow>)>,
    series: BTreeSet<usize>,
    systems: Vec<String>,
    stack: Option<String>,
    /// Rows whose figures the description carries, by their place.
    pub(crate) carried: BTreeSet<usize>,
}

/// A row without a score.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOutRow {
    /// Line of the table.
    pub line: u64,
    /// Its subject.
    pub label: String,
    /// Why.
    pub reason: String,
    /// Whether the row itself cannot be read.
    pub unreadable: bool,
}

/// A published value, the bytes of its operation, and what published it.
pub type LatencyPoint = (f64, u64, String);

/// Published values that no model can meet together.
#[derive(Debug, Clone, PartialEq)]
pub struct RowContradiction {
    /// Engine, path and direction: `copy engine gpu0 > gpu1`.
    pub what: String,
    /// Each value with its size and what published it, in ascending order.
    pub values: Vec<LatencyPoint>,
    /// The least of them that cannot be met together with the greatest.
    pub low: f64,
    /// The greatest.
    pub high: f64,
    /// The smallest worst error that any one model can have, relative.
    pub least_error: f64,
}

/// The scores of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidationReport {
    /// Name of the machine.
    pub machine: String,
    /// Rows with a prediction, in the order of the table.
    pub compared: Vec<ComparedRow>,
    /// Rows without one.
    pub left_out: Vec<LeftOutRow>,
    /// Contradictions between rows; the worst first.
    pub contradictions: Vec<RowContradiction>,
    /// Errors by class.
    pub classes: Vec<ClassErrors>,
    /// Targets, and how they are met.
    pub judged: Vec<JudgedTarget>,
}

impl ValidationReport {
    /// Whether every target is met.
    pub fn met(&self) -> bool {
        self.judged.iter().all(JudgedTarget::met)
    }
}

impl ValidationPlan {
    /// Maps all rows onto a machine but those for reports alone.
    ///
    /// # Errors
    /// A description that makes no network.
    pub fn new(
        rows: Vec<PublishedRow>,
        desc: &MachineDesc,
        systems: &[String],
    ) -> Result<Self, DescError> {
        Self::of_stack(rows, desc, systems, None)
    }

    /// The same, with every row measured with `stack`, if one is named.
    ///
    /// # Errors
    /// As [`Self::new`]; or the machine describes no such stack.
    pub fn of_stack(
        rows: Vec<PublishedRow>,
        desc: &MachineDesc,
        systems: &[String],
        stack: Option<&str>,
    ) -> Result<Self, DescError> {
        if let Some(stack) = stack {
            desc.with_stack(stack)?;
        }
        let mapper = RowMapper::new(desc, systems)?.with_stack(stack);
        let rows: Vec<_> = rows
            .into_iter()
            .filter(|row| RowUsage::parse(&row.usage) != Some(RowUsage::Report))
            .map(|row| {
                let wanted = mapper.map(&row);
                (row, wanted)
            })
            .collect();
        let series = series(&rows);
        let (systems, stack) = (systems.to_vec(), stack.map(str::to_owned));
        Ok(Self { rows, series, systems, stack, carried: BTreeSet::new() })
    }

    /// Some of the rows on another description.
    ///
    /// # Errors
    /// A description that makes no network.
    pub(crate) fn again(&self, desc: &MachineDesc, wanted: &[usize]) -> Result<Self, DescError> {
        let rows = wanted.iter().filter_map(|&at| self.rows.get(at)).map(|(row, _)| row.clone());
        Self::of_stack(rows.collect(), desc, &self.systems, self.stack.as_deref())
    }

    /// The same, with rows whose figures the description carries, by their place in the table; see
    /// [`crate::find_carried`].
    pub fn with_carried(self, carried: BTreeSet<usize>) -> Self {
        Self { carried, ..self }
    }

    /// The queries of all rows, each once.
    pub fn queries(&self) -> BTreeSet<&MachineQuery> {
        let wanted = self.rows.iter().filter_map(|(_, wanted)| wanted.as_ref().ok());
        wanted.flat_map(|w| w.number.queries()).collect()
    }

    /// The rows of the plan.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &PublishedRow> {
        self.rows.iter().map(|(row, _)| row)
    }

    /// Each row compared with the answers that `of` gives for its stack, in the order of the rows; `None` of a row without
    /// a prediction.
    pub(crate) fn compare_each(
        &self,
        of: &dyn Fn(&str, &MachineQuery) -> Result<MachineAnswer, String>,
    ) -> Vec<Option<ComparedRow>> {
        let rows = self.rows.iter().enumerate();
        rows.map(|(at, (row, wanted))| {
            let wanted = wanted.as_ref().ok()?;
            let answer = |query: &MachineQuery| of(&wanted.stack, query);
            let value = wanted.number.value(&answer).ok().filter(|value| value.is_finite())?;
            Some(self.compare(at, row, wanted, value))
        })
        .collect()
    }

    /// The stacks that its rows were measured with.
    pub fn stacks(&self) -> BTreeSet<&str> {
        self.wanted().map(|(_, wanted)| wanted.stack.as_str()).collect()
    }

    /// The queries of the rows of one stack, each once.
    pub fn queries_of(&self, stack: &str) -> BTreeSet<&MachineQuery> {
        let of_stack = self.wanted().filter(|(_, wanted)| wanted.stack == stack);
        of_stack.flat_map(|(_, wanted)| wanted.number.queries()).collect()
    }

    /// The rows that have a prediction.
    pub(crate) fn wanted(&self) -> impl Iterator<Item = (&PublishedRow, &WantedRow)> {
        self.rows.iter().filter_map(|(row, wanted)| Some((row, wanted.as_ref().ok()?)))
    }

    /// The rows that have a prediction which the description does not carry.
    pub(crate) fn predicted(&self) -> impl Iterator<Item = (&PublishedRow, &WantedRow)> {
        let predicted = self.rows.iter().enumerate().filter(|(at, _)| !self.carried.contains(at));
        predicted.filter_map(|(_, (row, wanted))| Some((row, wanted.as_ref().ok()?)))
    }

    /// Scores all rows with the answers that `of` gives, whatever their stack.
    pub fn score(
        &self,
        machine: &str,
        targets: &[ErrorTarget],
        of: &dyn Fn(&MachineQuery) -> Result<MachineAnswer, String>,
    ) -> ValidationReport {
        self.score_by_stack(machine, targets, &|_, query| of(query))
    }

    /// Scores all rows with the answers that `of` gives for a stack.
    pub fn score_by_stack(
        &self,
        machine: &str,
        targets: &[ErrorTarget],
        of: &dyn Fn(&str, &MachineQuery) -> Result<MachineAnswer, String>,
    ) -> ValidationReport {
        let (mut compared, mut left_out) = (Vec::new(), Vec::new());
        for (at, (row, wanted)) in self.rows.iter().enumerate() {
            let out = |reason: String, unreadable: bool| LeftOutRow {
                line: row.line,
                label: row.label(),
                reason,
                unreadable,
            };
            let wanted = match wanted {
                Ok(wanted) => wanted,
                Err(why) => {
                    left_out.push(out(why.reason.clone(), why.unreadable));
                    continue;
                }
            };
            match wanted.number.value(&|query| of(&wanted.stack, query)) {
                Ok(value) if value.is_finite() => {
                    compared.push(self.compare(at, row, wanted, value));
                }
                Ok(_) => left_out.push(out("its number has no finite value".into(), false)),
                Err(why) => left_out.push(out(why, false)),
            }
        }
        ValidationReport {
            machine: machine.to_owned(),
            classes: by_class(&compared),
            judged: judge(&compared, targets),
            contradictions: contradictions(&self.rows),
            compared,
            left_out,
        }
    }

    fn compare(
        &self,
        at: usize,
        row: &PublishedRow,
        wanted: &WantedRow,
        predicted: f64,
    ) -> ComparedRow {
        let series = self.series.contains(&at);
        let bandwidth = matches!(wanted.class, RowClass::GpuBandwidth | RowClass::HostBandwidth);
        let class = if bandwidth && series { RowClass::Sweep } else { wanted.class };
        let mut targets = Vec::new();
        targets.extend(bandwidth.then_some(BANDWIDTH));
        targets.extend((class == RowClass::Sweep).then_some(SWEEPS));
        let message = matches!(class, RowClass::Message | RowClass::Collective);
        targets.extend(message.then_some(MESSAGES));
        targets.extend((class == RowClass::Fact).then_some(FACTS));
        ComparedRow {
            label: row.label(),
            class: class.name().to_owned(),
            predicted,
            measured: wanted.published,
            unit: wanted.unit.to_owned(),
            source: row.origin(),
            how: match wanted.stack.as_str() {
                "" => wanted.number.to_string(),
                stack => format!("{} with stack {stack}", wanted.number),
            },
            targets,
            data: self.carried.contains(&at)
                || (wanted.stated && wanted.published.error(predicted) == 0.0),
            held_out: RowUsage::parse(&row.usage) == Some(RowUsage::HeldOut),
        }
    }
}

/// Rows of a series: cases of one size that differ in nothing else, three sizes or more.
fn series(rows: &[(PublishedRow, Result<WantedRow, UnmappedRow>)]) -> BTreeSet<usize> {
    let mut alike: BTreeMap<(String, [&str; 4]), Vec<_>> = BTreeMap::new();
    for (at, (row, _)) in rows.iter().enumerate() {
        let Ok(mut case) = row.case.parse::<Case>() else { continue };
        let Some(size) = case.timed.first().map(|flow| flow.bytes) else { continue };
        let is_one = row.statistic.is_empty() && case.flows().all(|flow| flow.bytes == size);
        if is_one {
            let flows = case.timed.iter_mut().chain(&mut case.background);
            flows.for_each(|flow| flow.bytes = Bytes(0));
            let words = [&row.system, &row.source, &row.tool, &row.metric].map(String::as_str);
            let key = (case.to_string(), words);
            alike.entry(key).or_default().push((at, size));
        }
    }
    let long = |rows: &Vec<(usize, Bytes)>| {
        rows.iter().map(|(_, size)| size).collect::<BTreeSet<_>>().len() >= SERIES
    };
    alike.into_values().filter(long).flatten().map(|(at, _)| at).collect()
}

/// The smallest worst relative error of one prediction `p` for two values `a <= b`. It lies
/// between: its errors are (p - a) / a and (b - p) / b, which grow and fall with p and are equal at
/// p = 2 a b / (a + b), where both are (b - a) / (a + b).
pub(crate) fn least_error(a: f64, b: f64) -> f64 {
    if a + b == 0.0 { 0.0 } else { (b - a) / (a + b) }
}

/// Two rows of one stack about the same operation contradict each other if they are of one size and
/// differ, or if a rate of the smaller size is the greater one (a time: of the larger size the
/// smaller one), since a larger transfer is neither slower nor sooner done.
fn contradictions(
    rows: &[(PublishedRow, Result<WantedRow, UnmappedRow>)],
) -> Vec<RowContradiction> {
    let mut by_what: BTreeMap<(&str, bool, &str), Vec<LatencyPoint>> = BTreeMap::new();
    for (row, wanted) in rows {
        let Ok(WantedRow { hardware: Some(op), stack, .. }) = wanted else { continue };
        let who = format!("{} ({})", row.tool, row.source);
        let points = by_what.entry((&op.what, op.time, stack)).or_default();
        points.push((op.value, op.bytes, who));
    }
    let mut found = Vec::new();
    for ((what, ..), mut values) in by_what {
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut worst: Option<(f64, f64, f64)> = None;
        for (i, low) in values.iter().enumerate() {
            for high in &values[i + 1..] {
                let impossible = high.1 <= low.1;
                let least = least_error(low.0, high.0);
                if impossible && worst.is_none_or(|(least_so_far, ..)| least > least_so_far) {
                    worst = Some((least, low.0, high.0));
                }
            }
        }
        if let Some((least_error, low, high)) = worst.filter(|w| w.0 > ALIKE) {
            found.push(RowContradiction { what: what.to_owned(), values, low, high, least_error });
        }
    }
    found.sort_by(|a, b| b.least_error.total_cmp(&a.least_error));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shipped::SHIPPED;
    use crate::table::read;
    use proptest::prelude::*;

    const HEAD: &str = "system,case,metric,value,unit,tool,statistic,base,clock\n";

    fn plan(rows: &[&str]) -> ValidationPlan {
        let desc = MachineDesc::preset("mi250x").expect("the preset");
        let text = rows.iter().map(|row| format!("mi250x,{row}\n")).collect::<String>();
        let rows = read(&format!("{HEAD}{text}")).expect("a table");
        ValidationPlan::new(rows, &desc, &[]).expect("a network")
    }

    fn always(rate: f64) -> impl Fn(&MachineQuery) -> Result<MachineAnswer, String> {
        move |_| Ok(MachineAnswer::of_case(rate, rate))
    }

    fn copy(tool: &str, size: &str, value: f64) -> String {
        let case = format!("gpu0.vram > gpu2.vram by dma@gpu0 x {size} isolated");
        format!("{case},bandwidth,{value},GB/s,{tool}")
    }

    /// Of 36 and 42 the best is p = 2 x 36 x 42 / 78 = 38.77: 38.77 / 36 - 1 = 1 - 38.77 / 42 = 6 / 78.
    #[test]
    fn two_values_leave_no_model_nearer_than_their_difference_over_their_sum() {
        let least = least_error(36.0, 42.0);
        assert!((least - 6.0 / 78.0).abs() < 1e-12);
        let worst = |p: f64| (p / 36.0 - 1.0).abs().max((1.0 - p / 42.0).abs());
        let best = 2.0 * 36.0 * 42.0 / 78.0;
        assert!((worst(best) - least).abs() < 1e-12);
        for p in [36.0, 38.0, 38.7, 38.8, 39.0, 42.0] {
            assert!(worst(p) > least, "{p}");
        }
    }

    #[test]
    fn values_that_size_explains_do_not_contradict() {
        let found = |rows: &[String]| {
            let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
            plan(&rows).score("m", &[], &always(1.0)).contradictions
        };
        let (p2p, cs) = ("p2pBandwidthLatencyTest", "Comm|Scope");
        // More at a larger size: a start explains it.
        assert_eq!(found(&[copy(cs, "16MiB", 36.0), copy(p2p, "160000000B", 37.6)]), []);
        // More at a smaller one, and two values of one size: nothing does.
        let smaller = found(&[copy(cs, "16MiB", 42.0), copy(p2p, "160000000B", 37.6)]);
        assert_eq!(smaller[0].what, "copy engine gpu0 > gpu2");
        assert!((smaller[0].least_error - 4.4 / 79.6).abs() < 1e-12);
        let three = found(&[
            copy(cs, "1000000000B", 36.0),
            copy(p2p, "1000000000B", 37.0),
            copy(cs, "1000000000B", 42.0),
        ]);
        assert_eq!((three[0].low, three[0].high, three[0].values.len()), (36.0, 42.0, 3));
        // 0.5 % apart: a model between them misses both by 0.25 %.
        assert_eq!(found(&[copy(cs, "1000000000B", 36.0), copy(p2p, "1000000000B", 36.18)]), []);
    }

    #[test]
    fn three_sizes_of_a_path_are_a_sweep() {
        let rows: Vec<String> =
            ["4KiB", "1MiB", "1GiB"].iter().map(|s| copy("Comm|Scope", s, 2.0)).collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let report = plan(&rows).score("m", &crate::TARGETS, &always(2.0));
        assert!(report.compared.iter().all(|c| c.class == "sweep"));
        // The one of 1 GiB counts as a bandwidth, too.
        let counted: Vec<usize> =
            report.judged.iter().map(|j| j.got.as_ref().map_or(0, |g| g.n)).collect();
        assert_eq!(counted, [1, 3, 0, 0]);
        let two = plan(&rows[1..]).score("m", &[], &always(2.0));
        let classes: Vec<&str> = two.compared.iter().map(|c| c.class.as_str()).collect();
        assert_eq!(classes, ["sweep", "GPU-GPU bandwidth"]);
    }

    #[test]
    fn rows_without_an_answer_are_left_out_with_its_reason() {
        let row = copy("Comm|Scope", "4KiB", 2.0);
        let report = plan(&[&row]).score("m", &[], &|_| Err("no such path".into()));
        assert_eq!(report.left_out[0].reason, "no such path");
        let report = plan(&[&row]).score("m", &[], &always(f64::NAN));
        assert_eq!(report.left_out[0].reason, "its number has no finite value");
    }

    #[test]
    fn shipped_tables_are_mapped_except_for_other_nodes() {
        // (rows that are scored or left out, left out): of mi250x the host link of the reference server 1, a
        // far socket 1 (its tables have 344, 73 and 124 rows); of mi300a copies by one engine 1;
        // of mi100 copies of unknown size 1; of v100 blocking copies 2. Those of 2026 are the second of each.
        let expected = [
            (344 + 73 + 124, 1 + 1),
            (16 + 33, 0),
            (37 + 36, 0),
            (48 + 87, 0),
            (13 + 11, 1),
            (14, 1),
            (7, 2),
        ];
        for (table, expected) in SHIPPED.iter().zip(expected) {
            let desc = MachineDesc::preset(table.system).expect("a preset of that name");
            let plan = ValidationPlan::new(read(table.text).unwrap(), &desc, &[]).unwrap();
            let report = plan.score("m", &[], &always(1.0));
            let out = report.left_out.len();
            assert_eq!((report.compared.len() + out, out), expected, "{}", table.system);
            assert!(report.left_out.iter().all(|row| !row.unreadable));
            let contradictions = report.contradictions.iter();
            let of_copies = contradictions.filter(|c| c.what.starts_with("copy engine")).count();
            // SDMA over single links has 36, 37.6 and 42 GB/s, each in rows of another stack.
            assert_eq!(of_copies, 0, "{}", table.system);
        }
    }

    #[test]
    fn the_example_of_the_document_is_read() {
        let document = include_str!("../../../../docs/understand/validate.md");
        let mut blocks = document.split("```text\n").filter_map(|text| text.split("```").next());
        let example = blocks.find(|block| block.starts_with("system,case,"));
        let rows = read(example.expect("an example")).expect("a table");
        let desc = MachineDesc::preset("mi250x").unwrap();
        let report = ValidationPlan::new(rows, &desc, &[]).unwrap().score("m", &[], &always(1.0));
        assert_eq!((report.compared.len(), report.left_out), (4, vec![]));
    }

    /// Records and tables have the same keys: the canonical text.
    #[test]
    fn shipped_cases_are_canonical() {
        for table in &SHIPPED {
            for row in read(table.text).unwrap() {
                for text in row.case.split("; ").filter(|text| text.contains(" by ")) {
                    let canonical = match text.contains(" over ") {
                        true => text.parse().map(|e| MachineQuery::Exchange(e).to_string()),
                        false => text.parse::<Case>().map(|case| case.to_string()),
                    };
                    assert_eq!(canonical.as_deref(), Ok(text), "line {}", row.line);
                }
            }
        }
    }

    proptest! {
        /// Any text is a table or an error, any cell has a meaning or a reason; nothing panics.
        #[test]
        fn any_cells_are_mapped_or_say_why(
            case in "(node|(gpu|numa)[0-9]( > gpu[0-9])?|gpu0.vram > gpu[0-9].vram by (dma|blit)@gpu0 x [0-9]{1,12}B( isolated)?|send over gpu0>gpu[0-9] by ucx x [0-9]B|\\PC{0,9})",
            metric in "(bandwidth|traffic|latency|mean-latency|busbw|load|fraction|ratio|deficit|links|hops|link-peak|capacity|memory-latency|cut-bound|\\PC{0,6})",
            value in "(-?[0-9.]{0,4}[-/]?[0-9.]{0,3}|\\PC{0,6})",
            unit in "(GB/s|us|x|%|links|hops|GB|\\PC{0,3})",
            statistic in "(|median|most|best from [0-9]{1,4}B|\\PC{0,6})",
            base in "(|[0-9]{1,3} GB/s|gpu0.vram > gpu1.vram by dma@gpu0 x 1GiB|\\PC{0,6})",
            clock in "(|host|\\PC{0,3})",
        ) {
            let cells = [&case, &metric, &value, &unit, &String::new(), &statistic, &base, &clock];
            let quoted: Vec<String> =
                cells.iter().map(|c| format!("\"{}\"", c.replace('"', "\"\""))).collect();
            let text = format!("{HEAD}mi250x,{}\n", quoted.join(","));
            if let Ok(rows) = read(&text) {
                let desc = MachineDesc::preset("mi250x").expect("the preset");
                let lookup = crate::PublishedTable::of_rows(&rows);
                prop_assert!(lookup.len() <= rows.len());
                let plan = ValidationPlan::new(rows, &desc, &[]).expect("a network");
                let queries = plan.queries().len();
                let report = plan.score("m", &crate::TARGETS, &always(1.0));
                prop_assert!(report.compared.len() + report.left_out.len() <= 1);
                // A row without a case asks nothing.
                prop_assert!(
                    queries == 0 || report.left_out.iter().all(|l| l.reason.contains("finite"))
                );
            }
        }

        #[test]
        fn any_text_is_a_table_or_an_error(text in "\\PC{0,200}", head in any::<bool>()) {
            let text = if head { format!("{HEAD}{text}") } else { text };
            let _ = read(&text);
        }
    }
}
