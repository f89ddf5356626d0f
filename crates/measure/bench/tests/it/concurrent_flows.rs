//! Threads that are timed while processes copy: the order of calls, and the record.

// Helpers of tests may unwrap as tests do; the lint exempts only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::cell::RefCell;
use std::rc::Rc;

use pathline_bench::{
    JournalSession, LocalExecutor, MachineInfo, PlanScope, RunPlan, TimerScope, default_settings,
};
use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::{CallError, CallResult, ExchangeId, FlowTime, Machine, RankGroup};
use pathline_schema::{
    Bytes, Case, CaseOutcome, CpuSet, Journal, Ns, Rank, RankMember, Transport, VerifyResult,
};

const CASE: &str = "numa0.huge > numa0.reg by cpu@numa0[chase-plain-t1] x 1MiB while \
                    r0.numa0.huge > r1.numa0.huge by shm@numa0[send-w1,memcpy+memcpy] x 1MiB";

/// Two processes that record the calls they get.
struct CallRecorder {
    members: Vec<RankMember>,
    asked: Rc<RefCell<Vec<String>>>,
    /// Whether `begin` fails.
    refuses: bool,
}

impl CallRecorder {
    fn note(&self, call: impl Into<String>) {
        self.asked.borrow_mut().push(call.into());
    }
}

impl RankGroup for CallRecorder {
    fn members(&self) -> &[RankMember] {
        &self.members
    }
    fn bind(&self, _: &Case, _: &CpuSet) -> CallResult<ExchangeId> {
        self.note("bind");
        Ok(ExchangeId(1))
    }
    fn run(&self, _: ExchangeId, _: u64) -> CallResult<Vec<FlowTime>> {
        self.note("run");
        Ok(Vec::new())
    }
    fn begin(&self, _: ExchangeId, _: u64) -> CallResult<()> {
        self.note("begin");
        if self.refuses { Err(CallError::unsupported("begin", "all", "no")) } else { Ok(()) }
    }
    /// 2 ms an operation, for any request.
    fn end(&self, _: ExchangeId) -> CallResult<Vec<FlowTime>> {
        self.note("end");
        Ok(vec![FlowTime { elapsed: Ns::ms(2.0), ..FlowTime::default() }])
    }
    fn spoil(&self, _: ExchangeId) -> CallResult<()> {
        Ok(())
    }
    fn check(&self, _: ExchangeId) -> CallResult<VerifyResult> {
        self.note("check");
        Ok(VerifyResult::Verified)
    }
    fn engine(&self, _: ExchangeId) -> String {
        "recorder".to_owned()
    }
    fn release(&self, _: ExchangeId) -> CallResult<()> {
        self.note("release");
        Ok(())
    }
}

fn member(rank: u32) -> RankMember {
    RankMember {
        rank: Rank(rank),
        host: "here".to_owned(),
        ways: [(Transport::Shm, String::new())].into(),
        ..RankMember::default()
    }
}

/// The outcome of the case, and the calls of the processes.
fn measured(refuses: bool) -> (CaseOutcome, Vec<String>) {
    let desc = MachineDesc::preset("mi250x").unwrap();
    let members = vec![member(0), member(1)];
    let asked = Rc::new(RefCell::new(Vec::new()));
    let recorder = CallRecorder { members: members.clone(), asked: Rc::clone(&asked), refuses };
    let machine = Machine {
        ranks: Some(Box::new(recorder)),
        ..pathline_sim::machine(&desc, RuntimeEnv::default(), 1).unwrap()
    };
    let scope = PlanScope {
        simulated: true,
        ranks: &members,
        ..PlanScope::new(&machine.topology, Bytes::gib(64))
    };
    let plan = RunPlan::new(&scope, &[], &[CASE.parse().unwrap()]).unwrap();
    assert_eq!((plan.entries.len(), plan.entries[0].skip.as_deref()), (1, None));
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("run.jsonl");
    let header = pathline_bench::RunHeader {
        host: "test".to_owned(),
        settings: default_settings(Bytes::gib(64)),
        ..Default::default()
    };
    let about = MachineInfo::of(&machine, None, TimerScope::All);
    let mut executor = LocalExecutor::new(&machine, about, header.settings);
    let now = || "2026-01-01T00:00:00Z".to_owned();
    let session = JournalSession::create(&path).unwrap();
    session.run(&mut executor, &plan, header, &now, &|| None, &mut |_| {}).unwrap();
    let file = std::io::BufReader::new(std::fs::File::open(&path).unwrap());
    let outcome = Journal::read(file).unwrap().outcomes.remove(0);
    let asked = asked.borrow().clone();
    (outcome, asked)
}

#[test]
fn processes_run_while_threads_are_timed() {
    let (outcome, asked) = measured(false);
    let CaseOutcome::Measured(measured) = outcome else { panic!("{outcome:?}") };
    // Only the bystander is timed.
    assert_eq!(measured.series.len(), 1);
    assert!(measured.series[0].flow.to_string().contains("chase-plain"));
    // Each sample calls begin and end; no sample calls run.
    assert_eq!((asked[0].as_str(), asked[asked.len() - 1].as_str()), ("bind", "release"));
    let samples = &asked[1..asked.len() - 1];
    assert!(samples.len() >= 2 * measured.series[0].samples_ns.len());
    assert!(samples.chunks(2).all(|pair| pair == ["begin", "end"]), "{samples:?}");
    // The shortest sample next to messages is 10 ms.
    assert!(measured.series[0].samples_ns.iter().all(|&ns| ns > 9e6), "{:?}", measured.series);
}

#[test]
fn processes_that_cannot_begin_cost_the_case() {
    let (outcome, asked) = measured(true);
    let CaseOutcome::Skipped(skip) = outcome else { panic!("{outcome:?}") };
    assert!(skip.why.contains("begin"), "{}", skip.why);
    assert_eq!(asked, ["bind", "begin", "release"]);
}
