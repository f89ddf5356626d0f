//! The time of a trace on a machine: its messages share the fabric by the model of an MPI.

use std::collections::HashMap;
use std::sync::Arc;

use pathline_flow::{MpiModel, NoPath};
use pathline_schema::Ns;

use crate::exchange::{BufferPair, ExchangeMember};
use crate::exchange_time::LinkLoad;
use crate::goal::{GoalMessage, GoalTrace, GoalWork};
use crate::mpi::{MessageRoute, MpiLibrary};
use crate::scene::{ExchangeScene, NodeParts};
use crate::symmetric::ends;
use crate::transfer::{ScheduledTransfer, TransferRoute};

/// How long a trace takes.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceTime {
    /// Until the last operation ends.
    pub time: Ns,
    /// Until the last operation of each rank ends.
    pub each: Vec<Ns>,
    /// Payload of all messages.
    pub bytes: f64,
    /// What the bytes pass, the busiest first.
    pub links: Vec<LinkLoad>,
}

/// Transfers under construction.
struct TraceBuilder<'a> {
    library: &'a MpiLibrary<'a>,
    trace: &'a GoalTrace,
    members: &'a [ExchangeMember],
    routes: HashMap<(ExchangeMember, ExchangeMember, u64), MessageRoute>,
    nothing: Arc<TransferRoute>,
}

/// The transfers by which an operation is done, and that of a message.
#[derive(Clone, Copy, Default)]
struct OperationEnd(usize);

/// The member of each rank: ranks fill nodes in order, each with the GPU of its place.
fn members(
    machine: &NodeParts,
    ranks: u32,
    ranks_per_node: Option<u32>,
) -> Result<Vec<ExchangeMember>, NoPath> {
    let gpus: Vec<u32> = machine.topology.gpus.iter().map(|gpu| gpu.index).collect();
    let each = ranks_per_node.unwrap_or(gpus.len() as u32);
    if each == 0 || each as usize > gpus.len() {
        let (name, gpus) = (&machine.name, gpus.len());
        return Err(NoPath(format!(
            "{each} ranks on a node: {name} has {gpus} GPUs, and the model has one rank on each"
        )));
    }
    let member = |rank: u32| {
        let gpu = gpus.get((rank % each) as usize).copied().unwrap_or(0);
        ExchangeMember { node: rank / each, gpu }
    };
    Ok((0..ranks).map(member).collect())
}

impl TraceBuilder<'_> {
    fn member(&self, rank: u32) -> ExchangeMember {
        self.members.get(rank as usize).copied().unwrap_or(ExchangeMember::here(0))
    }

    fn rank_of(&self, operation: u32) -> u32 {
        self.trace.operations.get(operation as usize).map_or(0, |operation| operation.rank)
    }

    /// How a message goes, and whether it waits for its receiver.
    fn route(&mut self, message: GoalMessage) -> Result<(MessageRoute, bool), NoPath> {
        let GoalMessage { bytes, send, recv } = message;
        let a = self.member(self.rank_of(send));
        let b = self.member(self.rank_of(recv));
        let mpi = self.library.mpi;
        let waits = match a.node == b.node {
            true => bytes > mpi.ipc_above_bytes,
            false => bytes >= mpi.single_copy_from_bytes,
        };
        if a == b {
            let path = self.nothing.clone();
            let by = "the rank itself";
            let own = MessageRoute {
                path,
                weight: 0.0,
                start: 0.0,
                queued: 0.0,
                by,
                by_cpu: true,
                mapped: false,
            };
            return Ok((own, waits));
        }
        let key = (a, b, bytes);
        if let Some(known) = self.routes.get(&key) {
            return Ok((known.clone(), waits));
        }
        let route = self.library.message(a, b, bytes.max(1) as f64, BufferPair::default())?;
        self.routes.insert(key, route.clone());
        Ok((route, waits))
    }

    /// The transfers of the trace, and that by which each operation is done.
    fn transfers(mut self) -> Result<(Vec<ScheduledTransfer>, Vec<OperationEnd>), NoPath> {
        let trace = self.trace;
        let mut transfers: Vec<ScheduledTransfer> = Vec::new();
        let mut done = vec![OperationEnd::default(); trace.operations.len()];
        // Operations that a transfer comes after, until the transfers of all are known.
        let mut waits: Vec<Vec<u32>> = Vec::new();
        let nothing = self.nothing.clone();
        let step = |start: f64| ScheduledTransfer {
            path: nothing.clone(),
            bytes: 0.0,
            start,
            tail: 0.0,
            after: Vec::new(),
        };
        let after = |at: u32| {
            trace.operations.get(at as usize).map_or(&[][..], |operation| &operation.after)
        };
        let mut set = |at: u32, transfer: usize| {
            if let Some(done) = done.get_mut(at as usize) {
                *done = OperationEnd(transfer);
            }
        };
        for (id, operation) in (0u32..).zip(&trace.operations) {
            if let GoalWork::Calc(ns) = operation.work {
                set(id, transfers.len());
                waits.push(after(id).to_vec());
                transfers.push(step(ns as f64));
            }
        }
        for &message in &trace.messages {
            let (route, rendezvous) = self.route(message)?;
            let GoalMessage { bytes, send, recv } = message;
            let first = transfers.len();
            transfers.push(ScheduledTransfer {
                path: route.path,
                bytes: bytes as f64 * route.weight,
                start: route.start,
                tail: 0.0,
                after: Vec::new(),
            });
            let mut before = after(send).to_vec();
            if rendezvous {
                before.extend(after(recv));
                waits.push(before);
                set(send, first);
                set(recv, first);
                continue;
            }
            // The sender goes on once the message has left it; the receiver needs message and turn.
            waits.extend([before.clone(), before, after(recv).to_vec()]);
            transfers.push(step(route.queued));
            transfers.push(ScheduledTransfer { after: vec![first], ..step(0.0) });
            set(send, first + 1);
            set(recv, first + 2);
        }
        for (transfer, waits) in transfers.iter_mut().zip(waits) {
            let ends = waits.into_iter().filter_map(|at| done.get(at as usize));
            transfer.after.extend(ends.map(|end| end.0));
            transfer.after.sort_unstable();
            transfer.after.dedup();
        }
        Ok((transfers, done))
    }
}

/// The time of a trace with the messages of an MPI between buffers of GPUs. Operations that the trace
/// does not order run at once.
pub(crate) fn trace_time(
    machine: &NodeParts,
    mpi: &MpiModel,
    sdma: bool,
    trace: &GoalTrace,
    ranks_per_node: Option<u32>,
) -> Result<TraceTime, NoPath> {
    let members = members(machine, trace.ranks(), ranks_per_node)?;
    let mut scene = ExchangeScene::new(machine, &members)?;
    scene.counts_loads = true;
    // A trace has single messages, which no library's own algorithm of a collective changes.
    let library = MpiLibrary { scene: &scene, mpi, sdma, open_mpi: false };
    let nothing =
        Arc::new(TransferRoute { uses: Vec::new(), cap: f64::INFINITY, alpha: 0.0, share: 1.0 });
    let (routes, members) = (HashMap::new(), members.as_slice());
    let builder = TraceBuilder { library: &library, trace, members, routes, nothing };
    let (transfers, done) = builder.transfers()?;
    let ends = ends(&scene.capacities, &transfers);
    let mut each = vec![0.0f64; trace.ranks() as usize];
    for (operation, end) in trace.operations.iter().zip(&done) {
        let end = ends.get(end.0).copied().unwrap_or(f64::INFINITY);
        if !end.is_finite() {
            return Err(NoPath(format!(
                "line {}: this operation of rank {} never ends: it waits for itself over others, or its \
                 path carries nothing",
                operation.line, operation.rank
            )));
        }
        if let Some(rank) = each.get_mut(operation.rank as usize) {
            *rank = rank.max(end);
        }
    }
    let time = each.iter().copied().fold(0.0, f64::max);
    let loads = scene.loads(transfers.iter().map(|t| (t.path.uses.as_slice(), t.bytes)));
    Ok(TraceTime {
        time: Ns(time),
        each: each.into_iter().map(Ns).collect(),
        bytes: trace.messages.iter().map(|message| u128::from(message.bytes)).sum::<u128>() as f64,
        links: scene.link_loads(&loads, time),
    })
}

#[cfg(test)]
mod tests {
    use pathline_flow::MachineDesc;

    use crate::{GoalTrace, MessageLayer, MessageLibrary};

    const MPI: MessageLibrary = MessageLibrary::CrayMpich { sdma: true };

    fn layer() -> MessageLayer {
        MessageLayer::new(&MachineDesc::preset("mi250x").unwrap()).unwrap()
    }

    fn trace(text: &str) -> GoalTrace {
        GoalTrace::read(text.as_bytes()).unwrap()
    }

    /// 1 us of work, 64 MiB to a rank of another node at 25 x 0.953 GB/s after 4.4 us, 2 us of work.
    #[test]
    fn a_message_between_nodes() {
        let text = "num_ranks 9\nrank 0 {\na: calc 1000\nb: send 67108864b to 8\nb requires a\n}\n\
                    rank 8 {\nr: recv 67108864b from 0\nc: calc 2000\nc requires r\n}\n";
        let found = layer().time_trace(&trace(text), MPI, None).unwrap();
        let expected = 1000.0 + 4400.0 + 67_108_864.0 / (25.0 * 0.953) + 2000.0;
        assert!((found.time.0 / expected - 1.0).abs() < 1e-9, "{:?} {expected}", found.time);
        assert_eq!(found.each[8], found.time);
        assert!((found.each[0].0 - (expected - 2000.0)).abs() < 1e-3);
        assert_eq!(found.each[1].0, 0.0);
        assert_eq!(found.bytes, 67_108_864.0);
        let adapters = found.links.iter().filter(|link| link.level == "adapter");
        assert_eq!(adapters.count(), 2);
        // One rank on a node: rank 8 is on node 8, over the same adapter.
        let spread = layer().time_trace(&trace(text), MPI, Some(1)).unwrap();
        assert!((spread.time.0 / expected - 1.0).abs() < 1e-9);
        assert!(layer().time_trace(&trace(text), MPI, Some(9)).is_err());
        assert!(layer().time_trace(&trace(text), MessageLibrary::Rccl, None).is_err());
    }

    /// A small message leaves its sender at once: 0.415 us for the next, while the receiver computes for
    /// 50 us before it takes it. A large one waits for the receiver.
    #[test]
    fn small_messages_do_not_wait_for_their_receiver() {
        let ends = |bytes: u64| {
            let text = format!(
                "num_ranks 2\nrank 0 {{\nsend {bytes}b to 1\n}}\nrank 1 {{\nc: calc 50000\nr: recv \
                 {bytes}b from 0\nr requires c\n}}\n"
            );
            let found = layer().time_trace(&trace(&text), MPI, None).unwrap();
            (found.each[0].0, found.each[1].0)
        };
        let (sender, receiver) = ends(8);
        assert!(
            (sender - 415.0).abs() < 1e-6 && (receiver - 50_000.0).abs() < 1e-6,
            "{sender} {receiver}"
        );
        let (sender, receiver) = ends(1 << 20);
        assert!(sender > 50_000.0 && sender == receiver, "{sender} {receiver}");
    }

    /// Two ranks that both receive before they send.
    #[test]
    fn a_deadlock_is_refused() {
        let rank = |own: u32, other: u32| {
            format!(
                "rank {own} {{\nr: recv 1048576b from {other}\ns: send 1048576b to {other}\ns requires r\n}}\n"
            )
        };
        let text = format!("num_ranks 2\n{}{}", rank(0, 1), rank(1, 0));
        let error = layer().time_trace(&trace(&text), MPI, None).unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("never ends"), "{error}");
    }
}
