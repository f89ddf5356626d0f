//! Sessions about settings of an MPI on drawn worlds: questions as a library's list of variables raises them.

use std::collections::BTreeMap;

use pathline_advise::{
    Advice, AdviceLimits, AdviceScope, AdviceVerdict, ArmEnv, ArmTask, MpiReport, TrialArm,
    TrialCost, TrialRunner, advise, questions, usual_mpi_messages,
};
use pathline_schema::{
    Bytes, MpiBrand, MpiControls, MpiVariable, Rank, RankMember, Topology, Transport,
};

const EAGER: &str = "OMPI_MCA_btl_sm_eager_limit";
const ALGORITHM: &str = "OMPI_MCA_coll_tuned_allreduce_algorithm";

fn library() -> MpiControls {
    let of = |(name, value, choices): (&str, &str, &[&str])| MpiVariable {
        name: name.to_owned(),
        value: value.to_owned(),
        choices: choices.iter().map(|&choice| choice.to_owned()).collect(),
        numbers: (0..choices.len() as i64).collect(),
    };
    let algorithms = ["ignore", "linear", "recursive_doubling", "ring", "rabenseifner"];
    let variables = [
        ("btl_sm_eager_limit", "4096", &[][..]),
        ("btl_sm_max_send_size", "32768", &[]),
        ("smsc", "", &[]),
        ("smsc_cma_priority", "37", &[]),
        ("coll_tuned_use_dynamic_rules", "0", &["false", "true"]),
        ("coll_tuned_allreduce_algorithm", "0", &algorithms),
    ];
    MpiControls {
        version: "Open MPI v5.0.11".to_owned(),
        path: "/lib/libmpi.so.40".to_owned(),
        brand: MpiBrand::OpenMpi,
        device: None,
        refused: None,
        has_xpmem: false,
        variables: variables.map(of).to_vec(),
    }
}

fn scopes() -> Vec<AdviceScope> {
    let member = |rank: u32| RankMember {
        rank: Rank(rank),
        ways: [(Transport::Mpi, "Open MPI v5.0.11".to_owned())].into(),
        ..RankMember::default()
    };
    let subjects = usual_mpi_messages(&[member(0), member(1)]);
    questions(&Topology::default(), &subjects, 1, Some(&library()))
}

/// New processes of 0.4 s, one in ten 15 % slower. A setting gains what `gain` says for its variables and a size.
struct MpiWorld {
    gain: fn(&ArmEnv, Bytes) -> f64,
    /// Variables that its ranks do not have, though they were set.
    lost: &'static [&'static str],
    random: fastrand::Rng,
    time: f64,
}

impl MpiWorld {
    fn answers(
        gain: fn(&ArmEnv, Bytes) -> f64,
        lost: &'static [&'static str],
        seed: u64,
    ) -> Vec<Advice> {
        let mut world = Self { gain, lost, random: fastrand::Rng::with_seed(seed), time: 0.0 };
        let limits = AdviceLimits { seed, budget: 240.0, ..AdviceLimits::default() };
        advise(&scopes(), &mut world, &limits, &mut |_| ())
    }

    /// The engine of an arm's series, with all that its ranks have read.
    fn report(&self, arm: &TrialArm) -> MpiReport {
        let number = |value: &str| if value == "ring" { "3".to_owned() } else { value.to_owned() };
        let read: BTreeMap<&String, String> = arm
            .env
            .iter()
            .filter(|(name, _)| !self.lost.contains(&name.as_str()))
            .map(|(name, value)| (name, number(value)))
            .collect();
        let read: Vec<String> = read.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let copies = match arm.env.get("OMPI_MCA_smsc") {
            Some(_) => "",
            None => ", single copies by cma",
        };
        MpiReport::read(&format!(
            "Open MPI v5.0.11: calls; pml ob1 over one of btl sm{copies}; coll tuned (30); MPI_T reads {}",
            read.join(" ")
        ))
    }
}

impl TrialRunner for MpiWorld {
    fn block(&mut self, arms: &[&TrialArm]) -> Vec<Result<TrialCost, String>> {
        let cost = |arm: &&TrialArm| {
            self.time += 0.4;
            let ArmTask::Case(case) = &arm.task else { return Err("no case".to_owned()) };
            let slow = if self.random.f64() < 0.1 { 1.15 } else { 1.0 };
            let noise = 1.0 + 0.01 * (self.random.f64() - 0.5);
            Ok((slow * noise / (1.0 + (self.gain)(&arm.env, case.timed[0].bytes))).into())
        };
        arms.iter().map(cost).collect()
    }
    fn elapsed(&self) -> f64 {
        self.time
    }
    fn interrupted(&self) -> Option<String> {
        None
    }
    fn honoured(&mut self, baseline: &TrialArm, arm: &TrialArm) -> Option<Result<String, String>> {
        self.report(arm).judge(&self.report(baseline), &arm.env, &library())
    }
}

fn is_ring(env: &ArmEnv) -> bool {
    env.get(ALGORITHM).is_some_and(|value| value == "ring")
}

#[test]
fn the_library_raises_four_questions() {
    let tried = |scope: &AdviceScope| scope.choices.iter().filter(|c| c.ignored.is_none()).count();
    let all: Vec<(String, usize)> =
        scopes().into_iter().map(|scope| (scope.subject.clone(), tried(&scope))).collect();
    let messages = "messages from r0 numa0 to r1 numa0";
    let sums = "all_reduce of ranks 0 to 1, numa0 to numa0, by mpi";
    // The eager limit at 16 KiB, fragments and copies at 1 MiB, and four algorithms.
    let expected = [
        (format!("{messages}, 16KiB"), 1),
        (format!("{messages}, 1MiB"), 2),
        (format!("{sums}, 16KiB"), 4),
        (format!("{sums}, 1MiB"), 4),
    ];
    assert_eq!(all, expected);
    // Each variable is guarded at the other size.
    assert!(scopes().iter().flat_map(|s| &s.choices).all(|choice| choice.guards.len() == 1));
}

#[test]
fn settings_that_gain_nothing_are_not_recommended() {
    let wrong = (0..300).filter(|&seed| {
        let answers = MpiWorld::answers(|_, _| 0.0, &[], seed);
        answers.iter().any(Advice::is_change)
    });
    // 1 % of 300.
    assert!(wrong.count() <= 3);
}

#[test]
fn an_algorithm_that_gains_is_found() {
    let found = (0..50).filter(|&seed| {
        let gain = |env: &ArmEnv, bytes: Bytes| match is_ring(env) && bytes == Bytes::mib(1) {
            true => 0.08,
            false => 0.0,
        };
        let answers = MpiWorld::answers(gain, &[], seed);
        let large = &answers[3];
        let is_right = large.verdict == AdviceVerdict::Proven
            && large.choice.as_ref().is_some_and(|choice| is_ring(&choice.settings))
            && large
                .reason
                .contains("; MPI_T reads OMPI_MCA_coll_tuned_allreduce_algorithm as 3 (ring)");
        assert!(!answers[..3].iter().any(Advice::is_change), "seed {seed}");
        is_right
    });
    // 90 % of 50.
    assert!(found.count() >= 45);
}

#[test]
fn a_gain_that_slows_the_other_size_is_said_by_size() {
    let gain = |env: &ArmEnv, bytes: Bytes| match (env.contains_key(EAGER), bytes) {
        (false, _) => 0.0,
        (true, Bytes(16384)) => 0.2,
        (true, _) => -0.2,
    };
    let answers = MpiWorld::answers(gain, &[], 1);
    assert_eq!(answers[0].verdict, AdviceVerdict::Proven, "{}", answers[0].reason);
    assert_eq!(answers[0].only.as_deref(), Some("in processes that move 16KiB"));
    assert!(answers[0].variables().is_empty(), "a job that moves 1 MiB too would lose");
    let by_size = "faster at 16KiB for MPI messages (up to 20 %); elsewhere up to 20 % slower. ";
    assert!(answers[0].reason.contains(by_size), "{}", answers[0].reason);
}

#[test]
fn a_setting_that_the_ranks_do_not_have_is_ignored() {
    // It looks 50 % faster by chance, and no rank has read it.
    let gain = |env: &ArmEnv, _: Bytes| if env.contains_key(EAGER) { 0.5 } else { 0.0 };
    let answers = MpiWorld::answers(gain, &[EAGER], 1);
    assert_eq!(answers[0].verdict, AdviceVerdict::Ignored, "{}", answers[0].reason);
    assert!(answers[0].reason.contains(&format!("the ranks do not have {EAGER}")));
}
