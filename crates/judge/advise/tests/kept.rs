//! Sessions that were interrupted and gone on with come to the answer of one that was not.

use pathline_advise::{
    Advice, AdviceChoice, AdviceLimits, AdviceScope, AdviceVerdict, ArmEnv, ArmTask, GuardFigure,
    KeptTrials, TrialArm, TrialCost, TrialRecord, TrialRunner, advise, arm_keys, review,
};

/// Gives drawn costs, or those of a list; ends after a number of repetitions.
struct CutWorld {
    /// Factor on the rate of each arm by its label.
    gains: Vec<(&'static str, f64)>,
    random: fastrand::Rng,
    script: Option<Vec<TrialRecord>>,
    /// Repetitions and looks at evidence until the session is interrupted.
    left: usize,
    done: usize,
    time: f64,
}

impl CutWorld {
    fn drawn(gains: &[(&'static str, f64)], seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        let gains = gains.to_vec();
        Self { gains, random, script: None, left: usize::MAX, done: 0, time: 0.0 }
    }

    /// The records of an earlier session again, as far as `left`.
    fn again(records: &[TrialRecord], left: usize) -> Self {
        Self { script: Some(records.to_vec()), left, ..Self::drawn(&[], 0) }
    }

    /// Whether there is a step more before the interrupt.
    fn step(&mut self) -> bool {
        self.done += 1;
        self.done <= self.left
    }
}

impl TrialRunner for CutWorld {
    fn block(&mut self, arms: &[&TrialArm]) -> Vec<Result<TrialCost, String>> {
        let cost = |arm: &&TrialArm| {
            if !self.step() {
                self.time += 0.25;
                return Err("it was ended".to_owned());
            }
            if let Some(script) = &self.script {
                let Some(TrialRecord::Trial { arm: of, seconds, cost }) = script.get(self.done - 1)
                else {
                    panic!("a trial of {} is asked for after {} steps", arm.key(), self.done);
                };
                assert_eq!(*of, arm.key());
                self.time += seconds;
                return cost.clone();
            }
            // Sixty-fourths add up without rounding, so a difference of two sums is exact.
            self.time += 0.5 + f64::from(self.random.u8(..64)) / 64.0;
            if arm.label == "broken" && self.random.u8(..4) == 0 {
                return Err("it ended with signal 11".to_owned());
            }
            let gain = self.gains.iter().find(|(label, _)| *label == arm.label);
            let slow = if self.random.u8(..10) == 0 { 1.15 } else { 1.0 };
            let cost =
                slow * (1.0 + 0.02 * self.random.f64()) / gain.map_or(1.0, |(_, gain)| *gain);
            // A guarded figure that a choice may harm decides too.
            let guarded = vec![if arm.label == "harm" { 1.2 } else { self.random.f64() + 1.0 }];
            Ok(TrialCost { cost, guarded })
        };
        arms.iter().map(cost).collect()
    }
    fn guard_figures(&self) -> Vec<GuardFigure> {
        vec![GuardFigure { label: "memory".to_owned(), allowed: 1.0, floor: 0.0 }]
    }
    fn elapsed(&self) -> f64 {
        self.time
    }
    fn interrupted(&self) -> Option<String> {
        (self.done > self.left).then(|| "interrupted".to_owned())
    }
    fn honoured(&mut self, _: &TrialArm, arm: &TrialArm) -> Option<Result<String, String>> {
        if !self.step() {
            return None;
        }
        if let Some(script) = &self.script {
            let Some(TrialRecord::Evidence { seconds, shown, .. }) = script.get(self.done - 1)
            else {
                panic!("the evidence of {} is asked for after {} steps", arm.key(), self.done);
            };
            self.time += seconds;
            return shown.clone();
        }
        self.time += 0.25;
        match arm.label.as_str() {
            "void" => Some(Err("it is not read".to_owned())),
            "unknown" => None,
            _ => Some(Ok("tree".to_owned())),
        }
    }
}

fn arm(label: &str) -> TrialArm {
    let env = match label {
        "default" => ArmEnv::new(),
        _ => ArmEnv::from([(label.to_uppercase(), "1".to_owned())]),
    };
    TrialArm { label: label.to_owned(), task: ArmTask::Command, env }
}

fn scope(labels: &[&str]) -> AdviceScope {
    let choice = |label: &&str| AdviceChoice {
        arm: arm(label),
        action: format!("Set {label}"),
        cost: String::new(),
        settings: ArmEnv::new(),
        guards: Vec::new(),
        ignored: None,
        nodes: 1,
    };
    AdviceScope {
        subject: "`app`".to_owned(),
        ends: "app".to_owned(),
        baseline: arm("default"),
        choices: labels.iter().map(choice).collect(),
    }
}

/// A session over `world` that begins with `past`: its answers, and all that is kept after it.
fn session(
    world: &mut CutWorld,
    past: &[TrialRecord],
    labels: &[&str],
    is_review: bool,
) -> (Vec<Advice>, Vec<TrialRecord>) {
    let mut kept = past.to_vec();
    let mut keep = |record: &TrialRecord| {
        // As a file keeps it.
        let line = serde_json::to_string(record).expect("JSON");
        kept.push(serde_json::from_str(&line).expect("the same"));
        Ok(())
    };
    let mut runner = KeptTrials::new(world, past.to_vec(), &mut keep);
    let limits = AdviceLimits { budget: 60.0, seed: 7, ..AdviceLimits::default() };
    let scopes = [scope(labels)];
    let answers = match is_review {
        false => advise(&scopes, &mut runner, &limits, &mut |_| ()),
        true => {
            let set = ["A", "B"].map(|name| (name.to_owned(), "1".to_owned()));
            review(&ArmEnv::from(set), &scopes, &mut runner, &limits, &mut |_| ())
        }
    };
    (answers, kept)
}

/// Factors on the rates of arms, the choices of the question, and whether variables are reviewed instead.
type PlantedWorld = (&'static [(&'static str, f64)], &'static [&'static str], bool);

#[test]
fn an_interrupted_session_comes_to_the_same_answer() {
    let worlds: [PlantedWorld; 7] = [
        (&[("broken", 1.3)], &["broken"], false),
        (&[("fast", 1.3)], &["fast"], false),
        (&[("fast", 1.3), ("unknown", 0.9)], &["void", "fast", "unknown"], false),
        (&[], &["none", "unknown"], false),
        (&[("broken", 1.3), ("fast", 1.1)], &["broken", "fast"], false),
        (&[], &["void"], false),
        (&[("without", 0.8)], &[], true),
    ];
    let mut verdicts = Vec::new();
    for (gains, labels, is_review) in worlds {
        for seed in 0..4 {
            let whole = session(&mut CutWorld::drawn(gains, seed), &[], labels, is_review);
            let (answers, records) = &whole;
            verdicts.extend(answers.iter().map(|answer| answer.verdict));
            assert!(records.len() > 2, "{labels:?}: {records:?}");
            for first in 0..=records.len() {
                // Cut once after `first` steps and once more half way to the end.
                let second = first + (records.len() - first) / 2;
                let (mut kept, mut begun) = (Vec::new(), 0);
                for end in [first, second] {
                    let mut world = CutWorld::again(&records[begun..], end - begun);
                    kept = session(&mut world, &kept, labels, is_review).1;
                    assert_eq!(kept, records[..end], "{labels:?}, cut after {end}");
                    begun = end;
                }
                let mut rest = CutWorld::again(&records[begun..], usize::MAX);
                let resumed = session(&mut rest, &kept, labels, is_review);
                assert_eq!(resumed, whole, "{labels:?}, seed {seed}, cut at {first}, {second}");
            }
        }
    }
    // The worlds reach each kind of end, or equal answers would show little.
    for verdict in [
        AdviceVerdict::Proven,
        AdviceVerdict::Keep,
        AdviceVerdict::Ignored,
        AdviceVerdict::Withdrawn,
        AdviceVerdict::Unclear,
    ] {
        assert!(verdicts.contains(&verdict), "{verdict:?}: {verdicts:?}");
    }
}

/// Trials of other arms are no trials of these, and a file that cannot be written ends the session.
#[test]
fn what_does_not_fit_ends_the_session() {
    let (_, records) = session(&mut CutWorld::drawn(&[], 1), &[], &["none", "unknown"], false);
    let (answers, kept) = session(&mut CutWorld::drawn(&[], 1), &records, &["fast", "x"], false);
    assert_eq!(answers[0].verdict, AdviceVerdict::Unclear, "{answers:?}");
    assert!(answers[0].reason.contains("start a new file"), "{}", answers[0].reason);
    assert_eq!(kept, records, "nothing is added to them");
    let mut world = CutWorld::drawn(&[], 1);
    let mut full = |_: &TrialRecord| Err("no space left".to_owned());
    let mut runner = KeptTrials::new(&mut world, Vec::new(), &mut full);
    let limits = AdviceLimits::default();
    let answers = advise(&[scope(&["none", "unknown"])], &mut runner, &limits, &mut |_| ());
    assert!(answers[0].reason.contains("no space left"), "{answers:?}");
    assert_eq!(world.done, 1);
}

#[test]
fn arms_have_distinct_keys() {
    let keys = arm_keys(&[scope(&["a", "b"])]);
    assert_eq!(keys, ["`app`: default", "a [A]", "b [B]"]);
}
