//! Jobs of metadata operations: a tree of folders, and the workers that use it.

use std::sync::Arc;

use pathline_hal::{CallError, CallResult, MetaJob};
use pathline_host::clock::ClockOrigin;
use pathline_schema::{MetaOp, MetaSpec, Severity, VerifyResult};
use rustix::fs::Mode;

use super::io_error;
use super::meta_worker::{ItemName, MetaRecipe, TreeLayout};
use super::store_place::{PathKind, StorePlace};
use super::worker_pool::{RoundKind, WorkerFactory, WorkerPool, WorkerThreads};

/// Items of each worker that a check compares.
const CHECKED: u64 = 64;

/// An open job. Threads end before the tree is removed.
pub(super) struct LiveMeta {
    pub(super) threads: WorkerThreads,
    pub(super) tree: TreeLayout,
    pub(super) store: u32,
}

/// Why a place has no metadata operations; none if it has.
pub(super) fn unfit(place: &StorePlace, meta: &MetaSpec) -> Option<String> {
    if let Some(why) = &place.facts.without {
        return Some(format!("{}: {why}", place.facts.path));
    }
    if place.what == PathKind::Bucket {
        return match meta.op {
            MetaOp::Mkdir | MetaOp::Rmdir => Some("an object store has no folders: use create"),
            MetaOp::CreateSync => Some("an object is durable when its request ends: use create"),
            _ => None,
        }
        .map(str::to_owned);
    }
    (place.what != PathKind::Folder).then(|| {
        format!("{}: files and folders are created in a folder: name one", place.facts.path)
    })
}

impl LiveMeta {
    /// Makes the folders and starts the workers. What fails leaves nothing behind.
    pub(super) fn new(
        place: &StorePlace,
        job: &MetaJob,
        seed: u64,
        cpus: &[u32],
        origin: ClockOrigin,
    ) -> CallResult<Self> {
        let &MetaJob { meta, store, .. } = job;
        if let Some(why) = unfit(place, &meta) {
            return Err(CallError::unsupported("open", meta.to_string(), why));
        }
        let content = job.content();
        let (path, root) = place.tree(meta.inodes(), content)?;
        let tree = TreeLayout { meta, content, seed, root: Arc::new(root), path };
        let opened = Self::start(&tree, store, cpus, origin);
        opened.inspect_err(|_| place.drop_tree(&tree.path))
    }

    fn start(tree: &TreeLayout, store: u32, cpus: &[u32], origin: ClockOrigin) -> CallResult<Self> {
        for name in tree.parents() {
            let made = rustix::fs::mkdirat(&*tree.root, name.as_str(), Mode::RWXU);
            made.map_err(|error| io_error::on("mkdirat", &tree.path.join(&name), &error.into()))?;
        }
        let recipe = |index: usize| -> Box<dyn WorkerFactory> {
            Box::new(MetaRecipe { index, tree: tree.clone() })
        };
        let recipes = (0..tree.meta.threads as usize).map(recipe).collect();
        let threads = WorkerThreads::new(recipes, cpus, origin)?;
        // Files to be read or asked for exist from here on.
        if !tree.meta.op.is_once() {
            threads.run(RoundKind::Arrange(tree.meta.items()), None)?;
        }
        Ok(Self { threads, tree: tree.clone(), store })
    }

    /// Brings the tree into the state that `ops` operations need, and readies them.
    pub(super) fn submit(
        &self,
        ops: u64,
        hold: impl FnOnce(&Arc<WorkerPool>) -> CallResult<()>,
    ) -> CallResult<()> {
        let meta = &self.tree.meta;
        if meta.op.is_once() && ops > meta.items() {
            let reason = format!("a sample has at most {} operations", meta.items());
            return Err(CallError::unsupported("submit", meta.to_string(), reason));
        }
        self.threads.run(RoundKind::Arrange(ops), None)?;
        self.threads.submit(RoundKind::Sample(ops), None)?;
        hold(&self.threads.pool).inspect_err(|_| self.threads.pool.withdraw())
    }

    /// Does some operations of each worker, which checks their results.
    pub(super) fn land(&self) -> CallResult<()> {
        let each = self.tree.meta.items_each().min(CHECKED);
        let ops = each * u64::from(self.tree.meta.threads);
        self.threads.run(RoundKind::Arrange(ops), None)?;
        self.threads.run(RoundKind::Landing, None).map(drop)
    }

    /// Whether the files and folders of the last operations are as they must be.
    pub(super) fn check(&self) -> CallResult<VerifyResult> {
        let tree = &self.tree;
        let each = tree.meta.items_each().min(CHECKED);
        let removes = matches!(tree.meta.op, MetaOp::Delete | MetaOp::Rmdir);
        let (mut name, mut a, mut b) = (ItemName::default(), Vec::new(), Vec::new());
        for worker in 0..tree.meta.threads as usize {
            // Workers have looked for what they removed: what is left over has other numbers.
            for item in (0..each).filter(|_| !removes) {
                let found = tree.find_wrong(&mut name, (worker, item), (&mut a, &mut b));
                let wrong = match found {
                    Ok(None) => continue,
                    Ok(Some(wrong)) => wrong,
                    Err(error) => io_error::on("fstatat", &tree.path, &error).reason,
                };
                let at = tree.name(&mut name, worker, item).to_string_lossy();
                let thing = tree.path.join(&*at).display().to_string();
                return Err(CallError::new(Severity::Corrupt, "verify", thing, wrong)
                    .or_try("rerun this case alone; if it repeats, suspect the file system"));
            }
        }
        let names = tree.parents().map(|parent| entries(tree, &parent)).sum::<CallResult<u64>>()?;
        let made = match tree.meta.op {
            MetaOp::Create | MetaOp::CreateSync | MetaOp::Mkdir => {
                each * u64::from(tree.meta.threads)
            }
            _ => tree.meta.items(),
        };
        if names > made || (names < made && !removes) {
            let thing = tree.path.display().to_string();
            let reason = format!("its folders list {names} entries, and {made} were made");
            return Err(CallError::new(Severity::Corrupt, "verify", thing, reason)
                .or_try("another process writes into this folder: use another --store"));
        }
        Ok(VerifyResult::Verified)
    }
}

/// Entries of a folder of the tree.
fn entries(tree: &TreeLayout, parent: &str) -> CallResult<u64> {
    let failed =
        |error: rustix::io::Errno| io_error::on("readdir", &tree.path.join(parent), &error.into());
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
    let folder = rustix::fs::openat(&*tree.root, parent, flags, Mode::empty()).map_err(failed)?;
    let all = rustix::fs::Dir::read_from(&folder).map_err(failed)?;
    let mut count = 0;
    for entry in all {
        let entry = entry.map_err(failed)?;
        count += u64::from(!matches!(entry.file_name().to_bytes(), b"." | b".."));
    }
    Ok(count)
}
