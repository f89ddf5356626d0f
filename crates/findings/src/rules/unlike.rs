//! Paths that are slower than the paths that should equal them.

use pathline_explain::fmt;
use pathline_health::unlike_paths;

use crate::evidence::Evidence;
use crate::{Finding, FindingArm, FindingSeverity};

pub(super) const ID: &str = "path-slower-than-equals";

pub(super) fn find(evidence: &Evidence) -> Vec<Finding> {
    let unlike = unlike_paths(evidence.run.journal);
    let all = unlike.len();
    let finding = |path: pathline_health::UnlikePath| {
        let entry = evidence.run.entry(&path.case)?;
        let rate = evidence.rate(entry).or_else(|| evidence.time(entry))?;
        let arms: Vec<FindingArm> = vec![rate.arm(path.path.clone())];
        let observation = format!(
            "{} reaches {}, {} below the median of its {} equals.",
            path.path,
            rate.text(),
            fmt::percent(1.0 - path.ratio),
            path.peers,
        );
        Some(Finding {
            action: format!(
                "Measure again in new processes (pathline health); if it stays, check this link and its \
                 ends. {}",
                if all > 1 { "Other unlike paths may share the cause." } else { "" }
            )
            .trim_end()
            .to_owned(),
            places: vec![path.path],
            arms,
            weight: rate.value * (1.0 / path.ratio.max(1e-3) - 1.0),
            ..Finding::new(ID, FindingSeverity::Fault, observation)
        })
    };
    unlike.into_iter().filter_map(finding).collect()
}
