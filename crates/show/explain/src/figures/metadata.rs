//! Metadata: files and folders a second, and the latency of each operation.

use pathline_schema::{Flow, IoFiles, MetaOp, MetaSpec, SuiteId};

use super::storage::{IoQuantity, io_cell, neutral_columns};
use super::{Figure, SuiteFindings, frame};
use crate::fmt;
use crate::run::{RunEntry, RunView};

const SUITE: SuiteId = SuiteId::Metadata;

pub(super) fn find(run: &RunView) -> SuiteFindings {
    let jobs: Vec<MetaEntry<'_, '_>> = run
        .entries
        .iter()
        .filter_map(|entry| {
            let flow = entry.lone()?;
            Some(MetaEntry { entry, flow, meta: flow.by.meta()? })
        })
        .collect();
    SuiteFindings::new(sheet(run, &jobs), [])
}

/// A case with a single flow of metadata operations.
#[derive(Clone, Copy)]
struct MetaEntry<'b, 'a> {
    entry: &'b RunEntry<'a>,
    flow: &'a Flow,
    meta: &'a MetaSpec,
}

impl MetaEntry<'_, '_> {
    fn rate(&self) -> Option<f64> {
        io_cell(self.entry, IoQuantity::Iops).value
    }

    /// `create, 4KiB each, 8 threads, shared folders`.
    fn label(&self, several_stores: bool) -> String {
        let MetaSpec { op, folders, threads, .. } = *self.meta;
        let mut parts = vec![op.word().to_owned()];
        if several_stores {
            let store = self.flow.io_ends().0.unit;
            parts.push(store.to_string());
        }
        if self.flow.bytes.0 > 1 {
            parts.push(format!("{} each", self.flow.bytes));
        }
        parts.push(fmt::threads(threads));
        if threads > 1 && folders == IoFiles::Shared {
            parts.push("shared folders".to_owned());
        }
        parts.join(", ")
    }
}

fn sheet(run: &RunView, jobs: &[MetaEntry<'_, '_>]) -> Option<Figure> {
    // Different operations have no common best.
    let columns = [
        (IoQuantity::Iops, "last done", "/s"),
        (IoQuantity::FirstIops, "first done", "/s"),
        (IoQuantity::Quantile(0.5), "p50", "us"),
        (IoQuantity::Quantile(0.99), "p99", "us"),
        (IoQuantity::Max, "max", "us"),
        (IoQuantity::Cpu, "CPU each", "us"),
    ];
    let store = |job: &MetaEntry| job.flow.io_ends().0.unit;
    let several = jobs.iter().any(|job| jobs.iter().any(|other| store(other) != store(job)));
    let row = |job: &MetaEntry| {
        (job.label(several), columns.map(|(asked, ..)| io_cell(job.entry, asked)).to_vec())
    };
    frame(run, (SUITE, ""), SUITE.word(), "Files and folders a second")
        .finding(finding(jobs))
        .draw_rows("operation", neutral_columns(columns), jobs.iter().map(row))
}

/// What more workers gain, and what it costs them to share folders.
fn finding(jobs: &[MetaEntry<'_, '_>]) -> String {
    let alike = |a: &MetaEntry, b: &MetaEntry| {
        a.meta.op == b.meta.op
            && a.flow.bytes == b.flow.bytes
            && a.flow.io_ends().0 == b.flow.io_ends().0
    };
    let find = |job: &MetaEntry, threads: u32, folders: IoFiles| {
        let same = |o: &&MetaEntry| {
            alike(o, job) && o.meta.threads == threads && o.meta.folders == folders
        };
        jobs.iter().find(same).and_then(MetaEntry::rate)
    };
    let mut texts = Vec::new();
    let creates = jobs.iter().find(|job| {
        job.meta.op == MetaOp::Create && job.meta.threads > 1 && job.meta.folders == IoFiles::Own
    });
    if let Some(job) = creates {
        let threads = job.meta.threads;
        let (one, all) = (find(job, 1, IoFiles::Own), job.rate());
        if let (Some(one), Some(all)) = (one, all) {
            let times = fmt::number(all / one);
            texts.push(format!("{} create {times} times the files of one", fmt::threads(threads)));
        }
        let shared = find(job, threads, IoFiles::Shared);
        if let (Some(own), Some(shared)) = (job.rate(), shared) {
            let share = fmt::percent(shared / own);
            texts.push(format!("in folders that they share they create {share} of that"));
        }
    }
    let ends = "Last done: all operations over the time until the last worker ended. Names are looked \
                up in warm caches of the kernel";
    texts.push(ends.to_owned());
    let texts: Vec<String> = texts.iter().map(|text| fmt::sentence(text)).collect();
    format!("{}.", texts.join(". "))
}
