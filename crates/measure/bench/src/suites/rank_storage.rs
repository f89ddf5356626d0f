//! Suite storage-ranks: all ranks of a run do I/O together, in one file or in files of each.

use pathline_schema::{
    Bytes, Case, Flow, IoCache, IoEngine, IoFiles, IoOp, IoOrder, IoSpec, MemKind, MetaOp,
    MetaSpec, Mover, Place, Rank, RankMember, Unit,
};

use crate::scope::PlanScope;

/// Blocks of I/O in order, and at random.
const BLOCK: Bytes = Bytes::mib(1);
const PAGE: Bytes = Bytes::kib(4);
const STREAMED: u32 = 8;
const RANDOM_DEPTH: u32 = 32;
const RANDOM_BATCH: u32 = 8;
/// Folders and files in each, of a rank.
const FOLDERS: u32 = 4;
const FILES: u32 = 512;

/// A place of a rank.
fn place(rank: Rank, unit: Unit, mem: MemKind) -> Place {
    Place { rank, unit, mem }
}

/// A case of all ranks: each uses its own file, or that of rank 0.
fn together(scope: &PlanScope<'_>, store: u32, io: IoSpec, block: Bytes, one_file: bool) -> Case {
    let flow = |member: &RankMember| {
        let numa = Unit::Numa(member.numa);
        let owner = if one_file { Rank(0) } else { member.rank };
        let file = place(owner, Unit::Store(store), MemKind::File);
        let memory = place(member.rank, numa, MemKind::Huge);
        let (src, dst) = if io.op == IoOp::Write { (memory, file) } else { (file, memory) };
        Flow { src, dst, by: Mover::Io { at: numa, io }, bytes: block }
    };
    Case::together(scope.ranks.iter().map(flow).collect())
}

/// Metadata operations of all ranks, each in separate folders.
fn names(scope: &PlanScope<'_>, store: u32, op: MetaOp) -> Case {
    let meta = MetaSpec { op, folders: IoFiles::Own, dirs: FOLDERS, files: FILES, threads: 1 };
    let flow = |member: &RankMember| {
        let numa = Unit::Numa(member.numa);
        let file = place(member.rank, Unit::Store(store), MemKind::File);
        let memory = place(member.rank, numa, MemKind::Reg);
        let (src, dst) = if op == MetaOp::Create { (memory, file) } else { (file, memory) };
        Flow { src, dst, by: Mover::Meta { at: numa, meta }, bytes: Bytes(1) }
    };
    Case::together(scope.ranks.iter().map(flow).collect())
}

pub(super) fn storage_ranks(scope: &PlanScope<'_>) -> Vec<Case> {
    let mut cases = Vec::new();
    if scope.ranks.len() < 2 {
        return cases;
    }
    for (store, facts) in (0..).zip(scope.stores) {
        for (order, op, block) in [
            (IoOrder::Seq, IoOp::Read, BLOCK),
            (IoOrder::Seq, IoOp::Write, BLOCK),
            (IoOrder::Rand, IoOp::Read, PAGE),
        ] {
            let random = order == IoOrder::Rand;
            let io = IoSpec {
                engine: IoEngine::Uring,
                op,
                order,
                cache: IoCache::Direct,
                files: IoFiles::Shared,
                span: facts.span,
                depth: if random { RANDOM_DEPTH } else { STREAMED },
                batch: if random { RANDOM_BATCH } else { 1 },
                threads: 1,
                rate: None,
                stage: None,
            };
            cases.extend([false, true].map(|one| together(scope, store, io, block, one)));
        }
        cases.extend(
            [MetaOp::Create, MetaOp::Stat, MetaOp::Delete].map(|op| names(scope, store, op)),
        );
    }
    cases
}
