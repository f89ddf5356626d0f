//! The state of the library in a process: communicators, log, injected faults.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use super::collective::{Operation, size_of};
use super::communicator::{CommAct, CommTask, Communicator};
use crate::spec::{StubFault, StubSpec};
use crate::streams::StubHandle;

#[derive(Debug)]
pub(super) struct NcclState {
    spec: StubSpec,
    calls: BTreeMap<&'static str, u64>,
    communicators: BTreeMap<StubHandle, Arc<Communicator>>,
    made: StubHandle,
    pub(super) log: Option<File>,
}

static STATE: Mutex<Option<NcclState>> = Mutex::new(None);

/// Runs a function with the state, under its lock.
pub(super) fn with<T>(body: impl FnOnce(&mut NcclState) -> T) -> T {
    let mut guard = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    body(guard.get_or_insert_with(|| NcclState {
        spec: StubSpec::from_env().unwrap_or_default(),
        calls: BTreeMap::new(),
        communicators: BTreeMap::new(),
        made: 0x0cc1_0000,
        log: None,
    }))
}

/// The communicator of a handle.
pub(super) fn communicator(handle: StubHandle) -> Option<Arc<Communicator>> {
    with(|state| state.communicators.get(&handle).cloned())
}

impl NcclState {
    pub(super) fn handle(&mut self) -> StubHandle {
        self.made += 16;
        self.made
    }

    pub(super) fn add(&mut self, communicator: Communicator) -> StubHandle {
        let handle = self.handle();
        self.communicators.insert(handle, Arc::new(communicator));
        handle
    }

    pub(super) fn remove(&mut self, handle: StubHandle) -> Option<Arc<Communicator>> {
        self.communicators.remove(&handle)
    }

    /// Counts an operation of a rank with this number of bytes; returns its injected fault.
    pub(super) fn strike_operation(
        &mut self,
        call: &'static str,
        rank: Option<i32>,
        bytes: usize,
    ) -> Option<StubFault> {
        if self.spec.bytes.is_some_and(|wanted| wanted != bytes) {
            return None;
        }
        self.strike(call, rank)
    }

    /// Counts a call of a rank; returns its injected fault.
    pub(super) fn strike(&mut self, call: &'static str, rank: Option<i32>) -> Option<StubFault> {
        if self.spec.rank.is_some() && self.spec.rank != rank {
            return None;
        }
        self.spec.strike(&mut self.calls, call)
    }

    /// Writes the lines of rank 0, as the library does.
    pub(super) fn log(&mut self, task: &CommTask) {
        let Some(communicator) = self.communicators.get(&task.communicator) else { return };
        let (rank, size) = (communicator.rank, communicator.size);
        let Some(log) = self.log.as_mut().filter(|_| rank == 0) else { return };
        // A log that cannot be written is not needed.
        let _ = writeln!(log, "stub [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/stub");
        for act in &task.acts {
            if let CommAct::Collective { call, .. } = act {
                let parts = if call.operation == Operation::AllGather { size } else { 1 };
                let bytes = call.count * size_of(call.kind) * usize::try_from(parts).unwrap_or(1);
                let name = call.operation.name();
                // Of the settings, the one of algorithms acts.
                let algorithm = std::env::var("NCCL_ALGO").unwrap_or_else(|_| "RING".to_owned());
                let _ = writeln!(
                    log,
                    "stub [0] NCCL INFO {name}: {bytes} Bytes -> Algo {} proto SIMPLE channel{{Lo..Hi}}={{0..3}}",
                    algorithm.to_ascii_uppercase()
                );
            }
        }
    }
}
