//! The exchange that a case between processes is.

use pathline_schema::{Case, Flow, MemKind, Place, Rank, RankMember, Transport, Unit, WireOp};

use crate::exchange::{
    BufferPair, BufferPlace, ExchangeMember, ExchangeOp, ExchangeSpec, ExchangeStart,
    MessageLibrary,
};

/// The exchange that all timed flows of a case are, and the ranks of each flow in the order of the
/// exchange's members. In place and unregistered cases count as plain ones, and so do those of an MPI by
/// a graph: the exchange has no such options.
///
/// # Errors
/// The flows are no exchange: of several libraries, sizes or pairs of memories, one-sided, or of a process or
/// GPU that `members` do not have. The message fits a table cell.
pub fn exchange_of(
    case: &Case,
    members: &[RankMember],
    by: MessageLibrary,
) -> Result<(ExchangeSpec, Vec<Vec<Rank>>), String> {
    let first = case.timed.first().ok_or("a case without flows")?;
    let wire = first.by.wire().ok_or("a flow that is not between processes")?;
    let alike = |f: &Flow| {
        let ends = |f: &Flow| (f.src.mem, f.dst.mem);
        f.by.wire() == Some(wire) && f.bytes == first.bytes && ends(f) == ends(first)
    };
    if !case.timed.iter().all(alike) {
        return Err("the model has messages at once of one library, size and memory".into());
    }
    let staged = wire.via == Transport::MpiStaged;
    let buffer = |mem: MemKind| match mem {
        MemKind::Vram if staged => Ok(BufferPlace::Staged),
        _ if staged => Err("staged messages go from device memory to device memory".to_owned()),
        MemKind::Vram => Ok(BufferPlace::Vram),
        // A core copies pinned memory as it copies any.
        MemKind::Paged | MemKind::Huge | MemKind::Pinned | MemKind::Registered | MemKind::Reg => {
            Ok(BufferPlace::Host)
        }
        MemKind::Managed => Ok(BufferPlace::Managed),
        mem => Err(format!("messages of {mem} memory are not modelled")),
    };
    let buffers = BufferPair { from: buffer(first.src.mem)?, to: buffer(first.dst.mem)? };
    let not_here = || "a process or GPU of it is not in this run".to_owned();
    let pairs = || -> Result<Vec<(ExchangeMember, ExchangeMember)>, String> {
        let pair = |f: &Flow| Some((member_at(members, f.src)?, member_at(members, f.dst)?));
        case.timed.iter().map(|f| pair(f).ok_or_else(not_here)).collect()
    };
    let mut ranks: Vec<Vec<Rank>> =
        case.timed.iter().map(|f| vec![f.src.rank, f.dst.rank]).collect();
    let what = match wire.op {
        WireOp::Ping => ExchangeOp::Ping { pairs: pairs()? },
        WireOp::Send { window } => ExchangeOp::Send { pairs: pairs()?, window },
        WireOp::Group { op, .. } => {
            if case.timed.len() > 1 {
                return Err("several collectives at once are not modelled".into());
            }
            let group = group(members, first).ok_or_else(not_here)?;
            ranks = vec![group.iter().map(|(rank, _)| *rank).collect()];
            ExchangeOp::Collective { op, over: group.into_iter().map(|(_, at)| at).collect() }
        }
        WireOp::Put { .. } | WireOp::Get { .. } | WireOp::Atomic(_) => {
            return Err("one-sided operations are not modelled".into());
        }
        WireOp::Overlapped { .. } => {
            return Err(
                "what a processor computes while a collective is in flight is not modelled".into(),
            );
        }
        WireOp::PersistentPing | WireOp::PersistentSend { .. } | WireOp::PersistentGroup { .. } => {
            return Err("what a library saves by messages set up in advance is not modelled".into());
        }
        WireOp::Consume => {
            return Err("what a receiver pays to load its message is not modelled".into());
        }
    };
    let one_process = case.timed.iter().all(|f| f.src.rank == f.dst.rank);
    let start = match by.is_mpi() {
        true => ExchangeStart::default(),
        false => ExchangeStart { cadence: case.cadence, one_process },
    };
    Ok((ExchangeSpec { what, by, bytes: first.bytes, buffers, start }, ranks))
}

/// A process with one of its GPUs. Nodes are numbered as in the run.
fn seat(member: &RankMember, gpu: u32) -> ExchangeMember {
    ExchangeMember { node: member.node, gpu }
}

/// The process of a place: at its GPU, with host buffers near it.
fn member_at(members: &[RankMember], place: Place) -> Option<ExchangeMember> {
    let member = members.iter().find(|m| m.rank == place.rank)?;
    match place.unit {
        Unit::Gpu(gpu) => member.gpus.contains(&gpu).then(|| seat(member, gpu)),
        Unit::Numa(_) => member.gpus.first().map(|&gpu| seat(member, gpu)),
        Unit::Store(_) => None,
    }
}

/// The members of a collective, in order.
fn group(members: &[RankMember], flow: &Flow) -> Option<Vec<(Rank, ExchangeMember)>> {
    let (src, dst) = (flow.src, flow.dst);
    if src.rank == dst.rank {
        let member = members.iter().find(|m| m.rank == src.rank)?;
        let at = |unit: Unit| member.gpus.iter().position(|&gpu| Unit::Gpu(gpu) == unit);
        let between: Vec<u32> = match at(src.unit).zip(at(dst.unit)) {
            Some((first, last)) => member.gpus.get(first..=last)?.to_vec(),
            None => threads_over(members, member, flow)?,
        };
        return Some(between.iter().map(|&gpu| (src.rank, seat(member, gpu))).collect());
    }
    let of_rank = |rank: Rank| {
        let member = members.iter().find(|m| m.rank == rank)?;
        Some((rank, seat(member, *member.gpus.first()?)))
    };
    (src.rank.0..=dst.rank.0).map(|rank| of_rank(Rank(rank))).collect()
}

/// GPUs that threads of a process drive although other processes have them too, as those of a model's
/// first process do: all from the first to the last, each of a process of its node.
fn threads_over(members: &[RankMember], first: &RankMember, flow: &Flow) -> Option<Vec<u32>> {
    let (from, to) = (flow.src.unit.gpu()?, flow.dst.unit.gpu()?);
    let of_node = |gpu: &u32| members.iter().any(|m| m.node == first.node && m.gpus.contains(gpu));
    let gpus: Vec<u32> = (from..=to).take_while(of_node).collect();
    (gpus.last() == Some(&to)).then_some(gpus)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn members() -> Vec<RankMember> {
        let member = |rank| RankMember {
            gpu_identities: Vec::new(),
            rank: Rank(rank),
            host: "here".to_owned(),
            node: 0,
            pid: 0,
            gpus: vec![rank],
            gpu: None,
            numa: 0,
            cpus: String::new(),
            ways: BTreeMap::new(),
            without: BTreeMap::new(),
            host_only: BTreeMap::new(),
            device_memory: BTreeMap::new(),
        };
        (0..3).map(member).collect()
    }

    fn text(case: &str) -> Result<String, String> {
        let by = MessageLibrary::CrayMpich { sdma: false };
        exchange_of(&case.parse().unwrap(), &members(), by).map(|(spec, _)| spec.to_string())
    }

    #[test]
    fn a_case_of_messages_is_one_exchange() {
        for (case, exchange) in [
            (
                "r0.gpu0.vram > r2.gpu2.vram by mpi@gpu0[send-w64] x 16MiB",
                "send over gpu0>gpu2 by cray-mpich[blit] x 16MiB window 64",
            ),
            (
                "r0.numa0.paged > r1.numa0.paged by mpi@numa0[ping] x 8B",
                "ping over gpu0>gpu1 by cray-mpich[blit] x 8B from host",
            ),
            (
                "r0.gpu0.vram > r2.gpu2.vram by mpi@gpu0[all_reduce] x 1MiB",
                "all_reduce over gpu0-gpu2 by cray-mpich[blit] x 1MiB",
            ),
            (
                "r0.gpu0.vram > r1.numa3.paged by mpi@gpu0[send-w64] x 1MiB",
                "send over gpu0>gpu1 by cray-mpich[blit] x 1MiB window 64 from vram to host",
            ),
            (
                "r0.gpu0.managed > r1.gpu1.vram by mpi@gpu0[ping] x 8B",
                "ping over gpu0>gpu1 by cray-mpich[blit] x 8B from managed to vram",
            ),
            (
                "r0.gpu0.vram > r1.gpu1.vram by mpi-staged@gpu0[ping] x 8B",
                "ping over gpu0>gpu1 by cray-mpich[blit] x 8B from staged",
            ),
            (
                "r0.gpu0.vram > r0.gpu2.vram by ccl@gpu0[all_reduce] x 1MiB",
                "all_reduce over gpu0-gpu2 by cray-mpich[blit] x 1MiB",
            ),
        ] {
            assert_eq!(text(case).as_deref(), Ok(exchange));
        }
        let by_nccl = |case: &str| {
            let (spec, _) = exchange_of(
                &case.parse().unwrap(),
                &members(),
                MessageLibrary::Nccl { nvls: true },
            )?;
            Ok::<String, String>(spec.to_string())
        };
        for (case, exchange) in [
            (
                "r0.gpu0.vram > r0.gpu2.vram by ccl@gpu0[all_reduce] x 1MiB isolated",
                "all_reduce over gpu0-gpu2 by nccl x 1MiB in one process isolated",
            ),
            (
                "r0.gpu0.vram > r2.gpu2.vram by ccl@gpu0[all_reduce] x 1MiB graph",
                "all_reduce over gpu0-gpu2 by nccl x 1MiB graph",
            ),
        ] {
            assert_eq!(by_nccl(case).as_deref(), Ok(exchange));
        }
        let absent = text("r0.gpu0.vram > r7.gpu7.vram by mpi@gpu0[send-w64] x 16MiB");
        assert!(absent.is_err_and(|why| why.contains("not in this run")));
        // No process has GPU 3.
        let threads = text("r0.gpu0.vram > r0.gpu3.vram by ccl@gpu0[all_reduce] x 1MiB");
        assert!(threads.is_err_and(|why| why.contains("not in this run")));
        let one_sided = text("r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[put-w1] x 8B");
        assert!(one_sided.is_err_and(|why| why.contains("one-sided")));
    }
}
