//! A rank's memory and the port that moves it.

use std::cell::RefCell;
use std::rc::Rc;

use pathline_bench::RankSide;
use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::{
    CallError, CallResult, ExchangeId, FlowPart, RankBarrier, RepeatMode, TransportPort,
};
use pathline_schema::{Bytes, CpuSet, Rank, RankMember, Severity, Transport};

/// A port that moves nothing, with the severity of its release error.
struct Idle {
    released: Severity,
    parts: Rc<RefCell<Vec<FlowPart>>>,
}

impl TransportPort for Idle {
    fn via(&self) -> Transport {
        Transport::Mpi
    }
    fn library(&self) -> String {
        String::new()
    }
    fn bind(&mut self, parts: &[FlowPart], _: RepeatMode) -> CallResult<(ExchangeId, Vec<u8>)> {
        self.parts.borrow_mut().extend_from_slice(parts);
        Ok((ExchangeId(0), Vec::new()))
    }
    fn join(&mut self, _: ExchangeId, _: &[Vec<u8>]) -> CallResult<()> {
        Ok(())
    }
    fn run(&mut self, _: ExchangeId, _: u64, _: &dyn RankBarrier) -> CallResult<Vec<Vec<f64>>> {
        Ok(Vec::new())
    }
    fn engine(&self, _: ExchangeId) -> String {
        String::new()
    }
    fn release(&mut self, _: ExchangeId) -> CallResult<()> {
        Err(CallError::new(self.released, "release", "a case", "messages are still in flight"))
    }
}

fn member(rank: u32) -> RankMember {
    RankMember { rank: Rank(rank), gpus: vec![rank], ..RankMember::default() }
}

/// Whether rank 0's memory of a case stays allocated after the case is released.
fn outlives_release(case: &str, released: Severity) -> bool {
    let desc = MachineDesc::preset("mi250x").unwrap();
    let machine = pathline_sim::machine(&desc, RuntimeEnv::default(), 1).unwrap();
    let parts = Rc::new(RefCell::new(Vec::new()));
    let port = Idle { released, parts: Rc::clone(&parts) };
    let mut side = RankSide::new(&machine, Rank(0), vec![Box::new(port)]);
    side.know(vec![member(0), member(1)]);
    side.bind(ExchangeId(1), &case.parse().unwrap(), &CpuSet::default()).unwrap();
    let error = side.release(ExchangeId(1)).unwrap_err();
    assert_eq!(error.severity, released);
    let span = parts.borrow()[0].send[0];
    machine.host.fill(span.address, Bytes(span.bytes), 1, false).is_ok()
}

#[test]
fn memory_that_a_library_may_still_reach_is_not_freed() {
    let case = "r0.numa0.paged > r1.numa0.paged by mpi@numa0[send-w4] x 64KiB";
    assert!(outlives_release(case, Severity::Sticky));
    assert!(!outlives_release(case, Severity::Transient));
}

#[test]
fn memory_of_the_host_that_stands_in_for_a_gpus_is_not_freed_either() {
    let case = "r0.gpu0.vram > r1.gpu1.vram by mpi-staged@gpu0[ping] x 64KiB";
    assert!(outlives_release(case, Severity::Sticky));
    assert!(!outlives_release(case, Severity::Transient));
}
