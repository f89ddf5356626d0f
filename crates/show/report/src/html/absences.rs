//! Cases without figures, grouped by reason.

use super::build::HtmlBuilder;
use pathline_explain::figure::MissingCase;
use pathline_explain::fmt;

/// Failed or skipped cases with the same reason.
#[derive(Debug, PartialEq)]
struct AbsenceGroup<'a> {
    faulted: bool,
    /// The reason of the first case.
    why: &'a str,
    /// Whether all reasons are identical, numbers included.
    same: bool,
    members: Vec<&'a MissingCase>,
}

/// Faults first, then the largest groups; equal ones keep the order of the run.
fn groups(absences: &[MissingCase]) -> Vec<AbsenceGroup<'_>> {
    let mut index = std::collections::BTreeMap::new();
    let mut groups: Vec<AbsenceGroup<'_>> = Vec::new();
    for absence in absences {
        let at = *index.entry((absence.faulted, fmt::cause(&absence.why))).or_insert(groups.len());
        match groups.get_mut(at) {
            Some(group) => {
                group.same &= group.why == absence.why;
                group.members.push(absence);
            }
            None => groups.push(AbsenceGroup {
                faulted: absence.faulted,
                why: &absence.why,
                same: true,
                members: vec![absence],
            }),
        }
    }
    groups.sort_by_key(|g| (!g.faulted, std::cmp::Reverse(g.members.len())));
    groups
}

/// Writes the section.
pub(super) fn write(h: &mut HtmlBuilder, absences: &[MissingCase]) {
    if absences.is_empty() {
        h.leaf("p", &[], "Every case that was planned has a figure.");
        return;
    }
    let faults = absences.iter().filter(|a| a.faulted).count();
    let groups = groups(absences);
    let summary = format!(
        "{} failed and {} could not be tried, for {}. A skip is a result with a reason; \
         a fault is a result with an error.",
        fmt::count(faults, "case"),
        fmt::count(absences.len() - faults, "case"),
        fmt::count(groups.len(), "reason"),
    );
    h.leaf("p", &[], summary);
    h.el("div", &[("class", &"absences")], |h| {
        for group in &groups {
            write_group(h, group);
        }
    });
}

fn write_group(h: &mut HtmlBuilder, group: &AbsenceGroup<'_>) {
    let (class, label) = if group.faulted { ("fault", "fault") } else { ("skip", "skip") };
    h.el("details", &[("class", &"group")], |h| {
        h.el("summary", &[], |h| {
            h.leaf("span", &[("class", &format!("chip {class}"))], label).text(" ");
            h.leaf("b", &[("class", &"n")], group.members.len()).text(" ");
            h.leaf("span", &[], group.why);
            if !group.same {
                h.text(" ").leaf("i", &[], "(and alike, with other numbers)");
            }
        });
        // Equal reasons stand in the summary.
        let columns = [("case", "case"), ("reason", "words")];
        let shown = if group.same { 1 } else { 2 };
        let row = |a: &&MissingCase| vec![a.case.to_string(), a.why.clone()];
        h.table("rows", &columns[..shown], group.members.iter().map(row));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absence(gpu: u32, faulted: bool, why: &str) -> MissingCase {
        let case = format!("gpu{gpu}.vram > gpu{gpu}.vram by dma@gpu{gpu} x 1MiB");
        MissingCase { case: case.parse().unwrap(), suites: vec![], faulted, why: why.into() }
    }

    #[test]
    fn faults_come_first_and_numbers_do_not_divide_a_reason() {
        let all = [
            absence(0, false, "no GPU 0 here"),
            absence(1, false, "no GPU 17 here"),
            absence(2, false, "no IPC"),
            absence(3, true, "hipMemcpyAsync: error 700"),
        ];
        let found: Vec<(bool, &str, bool, usize)> =
            groups(&all).iter().map(|g| (g.faulted, g.why, g.same, g.members.len())).collect();
        assert_eq!(
            found,
            [
                (true, "hipMemcpyAsync: error 700", true, 1),
                (false, "no GPU 0 here", false, 2),
                (false, "no IPC", true, 1),
            ]
        );
    }

    #[test]
    fn a_run_without_skips_says_so() {
        let mut h = HtmlBuilder::default();
        write(&mut h, &[]);
        assert!(h.finish().contains("Every case that was planned has a figure"));
    }
}
