//! Suite metadata: creating, asking for, reading and removing many small files and folders.

use pathline_schema::{
    Bytes, Case, Flow, IoFiles, MemKind, MetaOp, MetaSpec, Mover, Place, StoreFacts, Unit,
};

use super::numa;
use super::storage::near_domain;
use crate::scope::PlanScope;

/// Folders and files in each, of a worker: 2048 files, which a local file system creates in some 40 ms.
const FOLDERS: u32 = 4;
const FILES: u32 = 512;
/// Folders that a worker creates.
const MADE: u32 = 1024;
/// Content of small files.
const CONTENT: Bytes = Bytes::kib(4);

/// A case of a store.
fn case(store: u32, domain: u32, meta: MetaSpec, content: Option<Bytes>) -> Case {
    let file = Place::new(Unit::Store(store), MemKind::File);
    let moves = meta.op.creates_files() || meta.op == MetaOp::Read;
    let mem = if content.is_some() && moves { MemKind::Paged } else { MemKind::Reg };
    let memory = numa(domain, mem);
    let creates = meta.op.creates_files() || meta.op == MetaOp::Mkdir;
    let (src, dst) = if creates { (memory, file) } else { (file, memory) };
    let by = Mover::Meta { at: Unit::Numa(domain), meta };
    Case::together(vec![Flow { src, dst, by, bytes: content.unwrap_or(Bytes(1)) }])
}

/// The operations in the order of their lives: by one worker and by all, in folders of their own and
/// shared; empty files and files of 4 KiB.
fn of_store(scope: &PlanScope<'_>, store: u32, facts: &StoreFacts, cases: &mut Vec<Case>) {
    let (domain, threads) = near_domain(scope, facts);
    let mut layouts = vec![(IoFiles::Own, 1)];
    if threads > 1 {
        layouts.extend([(IoFiles::Own, threads), (IoFiles::Shared, threads)]);
    }
    for (folders, threads) in layouts {
        for &op in MetaOp::ALL {
            // A bucket has no folders, and what is created there is durable.
            let folders_only = op.is_of_folders() || op == MetaOp::CreateSync;
            if (folders_only && facts.has_objects()) || (op == MetaOp::List && scope.simulated) {
                continue;
            }
            let (dirs, files) = if op.is_of_folders() { (MADE, 0) } else { (FOLDERS, FILES) };
            let meta = MetaSpec { op, folders, dirs, files, threads };
            cases.push(case(store, domain, meta, None));
            if op.creates_files() || matches!(op, MetaOp::Read | MetaOp::Delete) {
                cases.push(case(store, domain, meta, Some(CONTENT)));
            }
        }
    }
}

pub(super) fn metadata(scope: &PlanScope<'_>) -> Vec<Case> {
    let mut cases = Vec::new();
    for (store, facts) in (0..).zip(scope.stores) {
        of_store(scope, store, facts, &mut cases);
    }
    cases
}
