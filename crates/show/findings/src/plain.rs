//! Conclusions without anything that steers a terminal: their texts name machines, libraries and errors
//! of a journal that may come from anybody. A field that is added does not compile until it is listed.

use std::borrow::Cow;

use pathline_schema::plain_line;

use crate::{Finding, FindingArm, RunAnswer, RunConclusions, SummaryTile};

fn make_plain(texts: &mut [&mut String]) {
    for text in texts {
        if let Cow::Owned(plain) = plain_line(text) {
            **text = plain;
        }
    }
}

impl RunConclusions {
    /// Replaces in every text what steers a terminal; line ends become spaces.
    pub(crate) fn into_plain(mut self) -> Self {
        let Self {
            verdict: RunAnswer { state: _, reason, gpus: _, slow: _, covered: _ },
            findings,
            tiles,
        } = &mut self;
        make_plain(&mut [reason]);
        findings.iter_mut().for_each(plain_finding);
        for tile in tiles {
            let SummaryTile { name, detail, unit, figure, .. } = tile;
            make_plain(&mut [name, detail, unit, figure]);
        }
        self
    }
}

fn plain_finding(finding: &mut Finding) {
    let Finding {
        id: _,
        severity: _,
        observation,
        short,
        cause,
        action,
        gain: _,
        cost,
        by_size: _,
        places,
        arms,
        weight: _,
        simulated: _,
    } = finding;
    make_plain(&mut [observation, short, cause, action, cost]);
    for place in places {
        make_plain(&mut [place]);
    }
    for FindingArm { label, value: _, half_width: _, unit, case: _ } in arms {
        make_plain(&mut [label, unit]);
    }
}
