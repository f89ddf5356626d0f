//! Formats of monitoring and test systems.

use std::fmt::Write as _;

use pathline_diagnose::{SuspectPath, TrainedLink};
use pathline_schema::{NodeVerdict, label_text, markup_text, plain_line};

use super::document::{HealthClass, HealthDocument};

/// The document as JSON, with a newline.
pub fn json(document: &HealthDocument) -> String {
    match serde_json::to_string_pretty(document) {
        Ok(text) => text + "\n",
        // Serialisation fails only for maps whose keys are not text.
        Err(error) => format!("{{\"state\":\"undecided\",\"reason\":\"{error}\"}}\n"),
    }
}

/// Suspects of a class, by its label.
fn suspects_of<'d>(
    document: &'d HealthDocument,
    class: &str,
) -> impl Iterator<Item = &'d SuspectPath> {
    let suspects = document.report.iter().flat_map(|report| &report.suspects);
    suspects.filter(move |suspect| suspect.class == class)
}

/// JUnit: the node is a suite, each class of paths a case, and links and components another case.
pub fn junit(document: &HealthDocument) -> String {
    let mut cases = String::new();
    let (mut failures, mut skipped) = (0, 0);
    let undecided = !matches!(document.state, NodeVerdict::Ok | NodeVerdict::Fail);
    let name = |name: &str| format!("classname=\"pathline.health\" name=\"{}\"", markup_text(name));
    let culprits = document.report.iter().flat_map(|report| &report.culprits);
    let culprit = culprits
        .map(|c| format!("{}: {} (odds {:.0}:1)", c.name(), c.damage, c.odds))
        .next()
        .unwrap_or_else(|| "not determined".to_owned());
    for class in &document.classes {
        let lines: Vec<String> = suspects_of(document, &class.label)
            .map(|suspect| {
                let (low, high) = suspect.loss_range;
                format!(
                    "{}: measured {:.1} us, reference {:.1} us, {:.2} % slower ({:.2} to {:.2} %), \
                     {}; culprit {culprit}",
                    suspect.path,
                    suspect.measured_ns / 1e3,
                    suspect.reference_ns / 1e3,
                    suspect.loss * 100.0,
                    low * 100.0,
                    high * 100.0,
                    if suspect.confirmed { "in every process" } else { "in some processes" },
                )
            })
            .collect();
        let time = class.median_seconds.unwrap_or(0.0);
        let _ = write!(cases, "    <testcase {} time=\"{time:.6}\"", name(&class.label));
        if let Some(first) = lines.first() {
            failures += 1;
            let kind = document.state.word().to_lowercase();
            let _ = write!(
                cases,
                ">\n      <failure type=\"{kind}\" message=\"{}\">{}</failure>\n    </testcase>\n",
                markup_text(first),
                markup_text(&lines.join("\n"))
            );
        } else if undecided {
            skipped += 1;
            let why = markup_text(&document.reason);
            let _ = write!(cases, ">\n      <skipped message=\"{why}\"/>\n    </testcase>\n");
        } else {
            cases += "/>\n";
        }
    }
    let mut others: Vec<(&str, Option<String>)> = Vec::new();
    if let Some(against) = &document.against {
        let lines = against.slower.iter().map(|(path, loss)| {
            format!("\n{path}: {:.1} % slower than the reference", loss * 100.0)
        });
        let text = against.result.clone() + &lines.collect::<String>();
        let is_slower = against.state == NodeVerdict::Fail;
        others.push(("comparison with the reference", is_slower.then_some(text)));
    }
    let mut faults: Vec<&str> =
        document.report.iter().flat_map(|r| &r.faults).map(String::as_str).collect();
    let named = failures > 0 || others.iter().any(|(_, text)| text.is_some());
    if document.state == NodeVerdict::Fail && faults.is_empty() && !named {
        faults.push(&document.reason);
    }
    others.push(("links and parts of the node", (!faults.is_empty()).then(|| faults.join("\n"))));
    let errors = usize::from(document.is_unusable());
    for (case, text) in &others {
        let why = markup_text(&document.reason);
        let _ = write!(cases, "    <testcase {}", name(case));
        let _ = match text {
            Some(text) => {
                failures += 1;
                let first = markup_text(text.lines().next().unwrap_or_default());
                let text = markup_text(text);
                write!(
                    cases,
                    ">\n      <failure type=\"fail\" message=\"{first}\">{text}</failure>\n    </testcase>\n"
                )
            }
            None if errors > 0 => {
                write!(cases, ">\n      <error message=\"{why}\"/>\n    </testcase>\n")
            }
            None if undecided => {
                skipped += 1;
                write!(cases, ">\n      <skipped message=\"{why}\"/>\n    </testcase>\n")
            }
            None => writeln!(cases, "/>"),
        };
    }
    let tests = document.classes.len() + others.len();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"{}\" \
         tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\" \
         time=\"{:.3}\" timestamp=\"{}\" hostname=\"{}\">\n{cases}    <system-out>{}: {}</system-out>\n  \
         </testsuite>\n</testsuites>\n",
        markup_text(&document.host),
        document.seconds.total,
        markup_text(&document.started),
        markup_text(&document.host),
        document.state.word(),
        markup_text(&document.reason),
    )
}

/// A file for the textfile collector of Prometheus' node exporter. It uses base units; no label's
/// number of values grows with the square of the number of GPUs.
pub fn prometheus(document: &HealthDocument) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: Vec<(String, f64)>| {
        if samples.is_empty() {
            return;
        }
        let _ = write!(
            text,
            "# HELP pathline_health_{name} {help}\n# TYPE pathline_health_{name} {kind}\n"
        );
        for (labels, value) in samples {
            let _ = writeln!(text, "pathline_health_{name}{labels} {value}");
        }
    };
    let one = |value: f64| vec![(String::new(), value)];
    let states = NodeVerdict::ALL.map(|state| {
        let label = format!("{{state=\"{}\"}}", state.word().to_lowercase());
        (label, if state == document.state { 1.0 } else { 0.0 })
    });
    family("state", "gauge", "The verdict: 1 for the state that holds.", states.to_vec());
    family("duration_seconds", "gauge", "Time that the check took.", one(document.seconds.total));
    if let Some(report) = &document.report {
        let count = |n: usize| one(n as f64);
        family("paths", "gauge", "Paths that were to be measured.", count(report.power.paths));
        family(
            "paths_cleared",
            "gauge",
            "Paths that were shown to lose no more than allowed.",
            count(report.power.cleared),
        );
        let (slower, worst) = document.slower();
        family(
            "suspects",
            "gauge",
            "Paths slower than their peers or the reference.",
            count(slower),
        );
        family("worst_loss_ratio", "gauge", "Largest share of speed that a path lost.", one(worst));
        family("faults", "gauge", "Faults of links and parts.", count(report.faults.len()));
    }
    let of_class = |value: fn(&HealthClass) -> Option<f64>| -> Vec<(String, f64)> {
        let labelled = |class: &HealthClass| {
            Some((format!("{{class=\"{}\"}}", label_text(&class.label)), value(class)?))
        };
        document.classes.iter().filter_map(labelled).collect()
    };
    family(
        "class_operation_seconds",
        "gauge",
        "Median time of one operation of a class of equal paths.",
        of_class(|class| class.median_seconds),
    );
    family(
        "class_bytes_per_second",
        "gauge",
        "Median payload rate of a class of equal paths.",
        of_class(|class| class.bytes_per_second),
    );
    family(
        "class_ceiling_ratio",
        "gauge",
        "Median speed divided by the ceiling of the narrowest hop.",
        of_class(|class| class.of_ceiling),
    );
    let of_link = |value: fn(&TrainedLink) -> Option<f64>| -> Vec<(String, f64)> {
        let labelled = |link: &TrainedLink| {
            Some((format!("{{link=\"{}\"}}", label_text(&link.name)), value(link)?))
        };
        document.facts.links.iter().filter_map(labelled).collect()
    };
    family("link_width", "gauge", "Links or lanes in use.", of_link(|l| Some(f64::from(l.width))));
    family(
        "link_max_width",
        "gauge",
        "Links or lanes that both ends have.",
        of_link(|l| Some(f64::from(l.max_width))),
    );
    family(
        "link_errors_total",
        "counter",
        "Errors that the hardware has counted.",
        of_link(|l| l.errors.map(|(_, after)| after as f64)),
    );
    text
}

/// Lines for a ReFrame test: `verdict: OK` for its sanity function, `perf NAME: VALUE UNIT` for its
/// performance functions.
pub fn reframe(document: &HealthDocument) -> String {
    let mut text =
        format!("verdict: {}\nreason: {}\n", document.state.word(), plain_line(&document.reason));
    for class in &document.classes {
        let name = slug(&class.label);
        match (class.bytes_per_second, class.median_seconds) {
            (Some(rate), _) => {
                let _ = writeln!(text, "perf {name}: {:.3} GB/s", rate / 1e9);
            }
            (None, Some(time)) => {
                let _ = writeln!(text, "perf {name}: {:.3} us", time * 1e6);
            }
            (None, None) => {}
        }
    }
    if let Some(report) = &document.report {
        let (slower, worst) = document.slower();
        let _ = writeln!(text, "perf worst_loss: {:.3} %", worst * 100.0);
        let _ = writeln!(text, "perf suspects: {slower} paths");
        let _ = writeln!(text, "perf cleared: {} paths", report.power.cleared);
    }
    let _ = writeln!(text, "perf duration: {:.3} s", document.seconds.total);
    text
}

/// Replaces everything but letters and digits by underscores.
fn slug(text: &str) -> String {
    let text = text.replace('→', " to ");
    let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_")
}

/// One line in the format of a Nagios plugin, with performance data.
pub fn nagios(document: &HealthDocument) -> String {
    let state = match document.state.nagios_code() {
        0 => "OK",
        1 => "WARNING",
        2 => "CRITICAL",
        _ => "UNKNOWN",
    };
    let mut text = format!("PATHLINE {state} - {}", plain_line(&document.reason).replace('|', "/"));
    let mut data = Vec::new();
    for class in &document.classes {
        if let Some(rate) = class.bytes_per_second {
            data.push(format!("'{}'={:.0}B", slug(&class.label), rate));
        }
    }
    data.push(format!("duration={:.3}s", document.seconds.total));
    let _ = writeln!(text, " | {}", data.join(" "));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::HealthReference;

    #[test]
    fn a_check_that_did_not_pass_is_green_in_no_format() {
        let mut document = HealthDocument::unusable("1", "n1", "", "the reason");
        let counts = |document: &HealthDocument| {
            let text = junit(document);
            let of = |tag: &str| text.matches(&format!("<{tag} ")).count();
            let all = ["failure", "error", "skipped"];
            for (tag, name) in all.into_iter().zip(["failures", "errors", "skipped"]) {
                assert!(text.contains(&format!("{name}=\"{}\"", of(tag))), "{tag} {text}");
            }
            all.map(of)
        };
        assert_eq!(counts(&document), [0, 1, 0]);
        for (state, expected) in [
            (NodeVerdict::Fail, [1, 0, 0]),
            (NodeVerdict::Suspect, [0, 0, 1]),
            (NodeVerdict::Undecided, [0, 0, 1]),
            (NodeVerdict::Ok, [0, 0, 0]),
        ] {
            document.set_state(state, false);
            assert_eq!(counts(&document), expected, "{state:?}");
        }
        // A class that is slower than the reference alone, by 14 %, which no path of the node shows.
        document.set_state(NodeVerdict::Fail, false);
        document.against = Some(HealthReference {
            name: "history".into(),
            state: NodeVerdict::Fail,
            result: "gpu→gpu: 14.0 % slower than history says".into(),
            slower: vec![("gpu→gpu".into(), 0.14)],
        });
        assert_eq!((counts(&document), document.slower()), ([1, 0, 0], (1, 0.14)));
        assert!(junit(&document).contains("gpu→gpu: 14.0 % slower than the reference"));
        // One that did not decide is no failure.
        document.against.as_mut().unwrap().state = NodeVerdict::Ok;
        assert_eq!((counts(&document), document.slower()), ([1, 0, 0], (0, 0.0)));
        assert!(junit(&document).contains("<failure type=\"fail\" message=\"the reason\">"));
    }
}
