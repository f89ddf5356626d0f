//! The library's calls on one communicator and one stream.

use pathline_gpu::CallStatus;
use pathline_gpu::function_table::{BoundCall, RuntimeHandle};
use pathline_schema::Collective;

use super::api::{BYTE, CclApi, data_type, reduce_op};
use super::plan::CclCall;

/// A communicator and the stream that its calls go to.
#[derive(Clone, Copy)]
pub(super) struct CommStream<'a> {
    pub(super) calls: &'a CclApi,
    pub(super) comm: RuntimeHandle,
    pub(super) size: u64,
    pub(super) stream: RuntimeHandle,
}

impl CommStream<'_> {
    fn call(&self, call: CclCall) -> CallStatus {
        let (ccl, comm, stream) = (&self.calls.ccl, self.comm, self.stream);
        // SAFETY: a live communicator and stream of this thread's GPU, and ranges whose sizes were
        // checked when they were bound; whoever bound them keeps them until they are released.
        unsafe {
            match call {
                CclCall::Send { to, at, bytes } => {
                    (ccl.send.name, (ccl.send.at)(at, bytes as usize, BYTE, to, comm, stream))
                }
                CclCall::Recv { from, at, bytes } => {
                    (ccl.recv.name, (ccl.recv.at)(at, bytes as usize, BYTE, from, comm, stream))
                }
                CclCall::Group { op, send, recv, bytes, reduced } => {
                    let count = (bytes / reduced.element.bytes()) as usize;
                    let (kind, by) = (data_type(reduced.element), reduce_op(reduced.by));
                    let bytes = bytes as usize;
                    let rooted = match op {
                        Collective::Gather => ccl.gather,
                        _ => ccl.scatter,
                    };
                    match (op, ccl.all_to_all, rooted) {
                        (Collective::AllReduce, ..) => {
                            let BoundCall { name, at } = ccl.all_reduce;
                            (name, at(send, recv, count, kind, by, comm, stream))
                        }
                        (Collective::Reduce, ..) => {
                            let BoundCall { name, at } = ccl.reduce;
                            (name, at(send, recv, count, kind, by, 0, comm, stream))
                        }
                        (Collective::ReduceScatter, ..) => {
                            let BoundCall { name, at } = ccl.reduce_scatter;
                            (name, at(send, recv, count, kind, by, comm, stream))
                        }
                        (Collective::Broadcast, ..) => {
                            let BoundCall { name, at } = ccl.broadcast;
                            (name, at(send, recv, bytes, BYTE, 0, comm, stream))
                        }
                        (Collective::AllGather, ..) => {
                            let BoundCall { name, at } = ccl.all_gather;
                            (name, at(send, recv, bytes, BYTE, comm, stream))
                        }
                        (Collective::AllToAll, Some(BoundCall { name, at }), _) => {
                            (name, at(send, recv, bytes, BYTE, comm, stream))
                        }
                        (
                            Collective::Gather | Collective::Scatter,
                            _,
                            Some(BoundCall { name, at }),
                        ) => (name, at(send, recv, bytes, BYTE, 0, comm, stream)),
                        _ => self.call_in_turn(self.messages_of(op, (send, recv), bytes as u64)),
                    }
                }
            }
        }
    }

    /// The messages of a collective that this library has no call for: all-to-all, gather or scatter.
    /// The root, rank 0, has the address of the whole buffer; elsewhere that is 0.
    fn messages_of(
        &self,
        op: Collective,
        (send, recv): (u64, u64),
        bytes: u64,
    ) -> impl Iterator<Item = CclCall> {
        let (scatters, gathers) = (op != Collective::Gather, op != Collective::Scatter);
        let (all_to_all, size) = (scatters && gathers, self.size);
        let whole = if op == Collective::Gather { recv } else { send };
        let peers = if whole == 0 { 0 } else { size };
        let of_peer = move |peer: u64| {
            let (rank, at) = (i32::try_from(peer).unwrap_or(i32::MAX), peer * bytes);
            let out = scatters.then_some(CclCall::Send { to: rank, at: send + at, bytes });
            let into = gathers.then_some(CclCall::Recv { from: rank, at: recv + at, bytes });
            [out, into].into_iter().flatten()
        };
        let own = match op {
            Collective::Gather => CclCall::Send { to: 0, at: send, bytes },
            _ => CclCall::Recv { from: 0, at: recv, bytes },
        };
        (0..peers).flat_map(of_peer).chain((!all_to_all).then_some(own))
    }

    /// Makes calls one after the other, up to the first that fails.
    fn call_in_turn(&self, calls: impl Iterator<Item = CclCall>) -> CallStatus {
        let mut calls = calls.map(|call| self.call(call));
        calls.find(|status| status.1 != 0).unwrap_or(("ncclSend", 0))
    }

    fn run_step(&self, calls: &[CclCall]) -> CallStatus {
        let ccl = &self.calls.ccl;
        let has_call = |call: &CclCall| match call {
            CclCall::Group { op: Collective::AllToAll, .. } => ccl.all_to_all.is_some(),
            CclCall::Group { op: Collective::Gather, .. } => ccl.gather.is_some(),
            CclCall::Group { op: Collective::Scatter, .. } => ccl.scatter.is_some(),
            _ => true,
        };
        if let [call] = calls
            && has_call(call)
        {
            return self.call(*call);
        }
        // SAFETY: no arguments; every start has its end.
        let begun = unsafe { (ccl.group_start.at)() };
        if begun != 0 {
            return (ccl.group_start.name, begun);
        }
        let failed = calls.iter().map(|call| self.call(*call)).find(|status| status.1 != 0);
        // SAFETY: as above.
        let ended = unsafe { (ccl.group_end.at)() };
        failed.unwrap_or((ccl.group_end.name, ended))
    }

    /// Makes all calls of a repetition, up to the first that fails.
    pub(super) fn run_steps(&self, steps: &[Vec<CclCall>]) -> CallStatus {
        let failed = steps.iter().map(|calls| self.run_step(calls)).find(|status| status.1 != 0);
        failed.unwrap_or(("ncclGroupEnd", 0))
    }
}
