//! Round trip of OSU's benchmarks: the model of MPI on a node with one thing wrong gives the rows, written as
//! OSU 7 prints them, and the model of the sound node must find it again.

use std::fmt::Write as _;

use pathline_flow::{FaultEffect, FaultElement, MachineDesc, MachineFault};
use pathline_message::{ExchangeOp, ExchangeSpec, MessageLayer};
use pathline_paste::read_paste;
use pathline_reason::{LikelyCause, RowPredictor, explain_on_node};
use pathline_schema::{Bytes, LinkEnd};

use crate::round_trip::is_sampled;
use crate::worlds::Jitter;

/// A benchmark of OSU.
struct OsuTest {
    name: &'static str,
    /// `MPI-ROCM Bandwidth Test`, with the line of buffers, if it prints one.
    title: &'static str,
    buffers: &'static str,
    command: &'static str,
    /// The exchange without library and size, and the suffix of its buffers.
    exchange: &'static str,
    from: &'static str,
    /// Powers of two from and to.
    sizes: (u32, u32),
    kind: RowKind,
}

#[derive(Clone, Copy, PartialEq)]
enum RowKind {
    /// MB/s of 1e6.
    Rate,
    /// us.
    Time,
    /// us, mean over ranks, of a collective.
    Mean,
}

const DEVICES: &str = "# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)\n";
const HOSTS: &str = "# Send Buffer on HOST (H) and Receive Buffer on HOST (H)\n";

const fn pair(
    (name, title): (&'static str, &'static str),
    (buffers, from): (&'static str, &'static str),
    command: &'static str,
    exchange: &'static str,
    kind: RowKind,
) -> OsuTest {
    OsuTest { name, title, buffers, command, exchange, from, sizes: (0, 22), kind }
}

const fn group(
    (name, title): (&'static str, &'static str),
    from: &'static str,
    command: &'static str,
    exchange: &'static str,
) -> OsuTest {
    let (buffers, kind) = ("", RowKind::Mean);
    OsuTest { name, title, buffers, command, exchange, from, sizes: (0, 20), kind }
}

const TESTS: [OsuTest; 11] = [
    pair(
        ("osu_bw D D", "MPI-ROCM Bandwidth Test"),
        (DEVICES, ""),
        "ROCR_VISIBLE_DEVICES=0,1 mpirun -np 2 ./osu_bw D D",
        "send over gpu0>gpu1",
        RowKind::Rate,
    ),
    pair(
        ("osu_bw D D, far", "MPI-ROCM Bandwidth Test"),
        (DEVICES, ""),
        "ROCR_VISIBLE_DEVICES=0,2 mpirun -np 2 ./osu_bw D D",
        "send over gpu0>gpu2",
        RowKind::Rate,
    ),
    pair(
        ("osu_bibw D D", "MPI-ROCM Bi-Directional Bandwidth Test"),
        (DEVICES, ""),
        "ROCR_VISIBLE_DEVICES=0,1 mpirun -np 2 ./osu_bibw D D",
        "send over gpu0>gpu1,gpu1>gpu0",
        RowKind::Rate,
    ),
    pair(
        ("osu_latency D D", "MPI-ROCM Latency Test"),
        (DEVICES, ""),
        "ROCR_VISIBLE_DEVICES=0,1 mpirun -np 2 ./osu_latency D D",
        "ping over gpu0>gpu1",
        RowKind::Time,
    ),
    pair(
        ("osu_bw H H", "MPI Bandwidth Test"),
        (HOSTS, " from host"),
        "mpirun -np 2 ./osu_bw H H",
        "send over gpu0>gpu1",
        RowKind::Rate,
    ),
    pair(
        ("osu_latency H H", "MPI Latency Test"),
        (HOSTS, " from host"),
        "mpirun -np 2 ./osu_latency H H",
        "ping over gpu0>gpu1",
        RowKind::Time,
    ),
    group(
        ("osu_allreduce device", "MPI-ROCM Allreduce Latency Test"),
        "",
        "mpirun -np 8 ./osu_allreduce -d rocm",
        "all_reduce over gpu0-gpu7",
    ),
    group(
        ("osu_alltoall device", "MPI-ROCM All-to-All Personalized Exchange Latency Test"),
        "",
        "mpirun -np 8 ./osu_alltoall -d rocm",
        "all_to_all over gpu0-gpu7",
    ),
    group(
        ("osu_allgather device", "MPI-ROCM Allgather Latency Test"),
        "",
        "mpirun -np 8 ./osu_allgather -d rocm",
        "all_gather over gpu0-gpu7",
    ),
    group(
        ("osu_allreduce host", "MPI Allreduce Latency Test"),
        " from host",
        "mpirun -np 8 ./osu_allreduce",
        "all_reduce over gpu0-gpu7",
    ),
    group(
        ("osu_bcast device", "MPI-ROCM Broadcast Latency Test"),
        "",
        "mpirun -np 8 ./osu_bcast -d rocm",
        "broadcast over gpu0-gpu7",
    ),
];

impl OsuTest {
    /// Rows of size and value; none if the library has no such exchange.
    fn rows(&self, layer: &MessageLayer, by: &str, from: &str) -> Option<Vec<(u64, f64)>> {
        let row = |shift: u32| {
            let text = format!("{} by {by} x 1B{from}", self.exchange);
            let spec: ExchangeSpec = text.parse().expect("an exchange");
            let size = Bytes(1 << shift);
            let bytes = match &spec.what {
                ExchangeOp::Collective { op, over } => op.of_osu_size(size, over.len()),
                _ => size,
            };
            let time = layer.time(&ExchangeSpec { bytes, ..spec }).ok()?;
            let value = match self.kind {
                RowKind::Rate => time.algbw.gbs() * 1e3,
                RowKind::Time => time.time.0 / 1e3,
                RowKind::Mean => time.mean.0 / 1e3,
            };
            Some((size.0, value))
        };
        (self.sizes.0..=self.sizes.1).map(row).collect()
    }

    /// OSU 7's text, each value off by up to 2 %.
    fn write(&self, rows: &[(u64, f64)], noise: &mut Jitter) -> String {
        let column = match self.kind {
            RowKind::Rate => "# Size      Bandwidth (MB/s)",
            RowKind::Time => "# Size          Latency (us)",
            RowKind::Mean => "# Size       Avg Latency(us)",
        };
        let mut text = format!(
            "$ {}\n\n# OSU {} v7.4\n{}# Datatype: MPI_CHAR.\n{column}\n",
            self.command, self.title, self.buffers
        );
        for &(bytes, value) in rows {
            writeln!(text, "{bytes:<10}{:>18.2}", noise.near(value)).expect("text");
        }
        text + "\n"
    }
}

/// What is wrong, the causes that name it, and the rows.
struct MessageEdit {
    name: String,
    ids: &'static [&'static str],
    rows: Vec<(u64, f64)>,
}

/// Settings of the library, units, and the broken parts that this format is tried with.
fn edits(
    (at, test): (usize, &OsuTest),
    desc: &MachineDesc,
    sound: &MessageLayer,
    (by, other): (&str, &str),
) -> Vec<MessageEdit> {
    let mut edits = Vec::new();
    let mut add = |name: String, ids: &'static [&'static str], rows: Option<Vec<(u64, f64)>>| {
        edits.extend(rows.map(|rows| MessageEdit { name, ids, rows }));
    };
    let is_host = !test.from.is_empty();
    if is_host {
        let mut edited = desc.clone();
        for mpi in [&mut edited.software.cray_mpich, &mut edited.software.ucx] {
            mpi.iter_mut().for_each(|mpi| mpi.single_copy_from_bytes = u64::MAX);
        }
        let layer = MessageLayer::new(&edited).expect("a network");
        add("no single copy".to_owned(), &["no-single-copy"], test.rows(&layer, by, test.from));
    } else {
        add("copy kernel".to_owned(), &["copy-kernel"], test.rows(sound, other, ""));
        let ids = &["through-host-memory", "staged-message"];
        add("staged".to_owned(), ids, test.rows(sound, by, " from staged"));
        add("host buffers".to_owned(), &["host-memory-only"], test.rows(sound, by, " from host"));
        let links = desc.healthy_topology().links.iter().enumerate();
        // The first joins the GPUs of a pair.
        for (_, link) in links.filter(|(nth, _)| *nth < 2 || is_sampled(at, *nth)) {
            let of_host = [link.a, link.b].iter().any(|end| matches!(end, LinkEnd::Numa(_)));
            let element = FaultElement::Bundle { from: link.a, to: link.b, one_way: false };
            let mut effects = vec![FaultEffect::Speed { share: 0.5 }];
            if link.width > 1 {
                effects.push(FaultEffect::Width { lost: link.width - 1 });
            }
            for effect in effects.into_iter().filter(|_| !of_host) {
                let fault = MachineFault { element, effect, silent: true, probability: 1.0 };
                let layer = sound.damaged(desc, &[fault]).expect("a network");
                let rows = test.rows(&layer, by, "");
                add(format!("{element} {effect:?}"), &["links-lost"], rows);
            }
        }
        for gpu in 0..2 {
            let (element, effect) = (FaultElement::Gpu(gpu), FaultEffect::Engine { share: 0.5 });
            let fault = MachineFault { element, effect, silent: true, probability: 1.0 };
            let layer = sound.damaged(desc, &[fault]).expect("a network");
            let rows = test.rows(&layer, by, "");
            add(format!("engines of gpu{gpu}"), &["engine-slow"], rows);
        }
    }
    let scaled = |factor: f64| {
        let rows = test.rows(sound, by, test.from)?;
        Some(rows.into_iter().map(|(bytes, value)| (bytes, value * factor)).collect())
    };
    add("values times 1000".to_owned(), &["wrong-unit"], scaled(1e3));
    if test.exchange == "send over gpu0>gpu1" || test.exchange == "send over gpu0>gpu2" {
        add("both directions summed".to_owned(), &["two-ways-counted"], scaled(2.0));
    }
    edits
}

/// Counts of one format.
#[derive(Default)]
struct FormatCount {
    tried: usize,
    right: usize,
    tied: usize,
    hidden: usize,
}

#[test]
fn causes_of_slow_messages_are_found() {
    let (mut wrong, mut all, mut sure_wrong) = (Vec::new(), FormatCount::default(), 0);
    let mut noise = Jitter(3);
    for (at, test) in TESTS.iter().enumerate() {
        let mut count = FormatCount::default();
        for (name, by, other) in [
            ("mi250x", "cray-mpich", "cray-mpich[blit]"),
            ("mi300x", "ucx", "ucx[blit]"),
            ("mi300a", "cray-mpich", "cray-mpich[blit]"),
        ] {
            let desc = MachineDesc::preset(name).expect("a preset");
            if test.exchange.contains("gpu0-gpu7") && desc.healthy_topology().gpus.len() < 8 {
                continue;
            }
            let model = RowPredictor::from_desc(&desc).expect("a network");
            let sound = MessageLayer::new(&desc).expect("a network");
            let Some(clean) = test.rows(&sound, by, test.from) else { continue };
            let mut causes = |rows: &[(u64, f64)]| -> Vec<LikelyCause> {
                let text = test.write(rows, &mut noise);
                let found = explain_on_node(&read_paste(text.as_bytes()), &model, None);
                found.answers.first().map(|answer| answer.causes.clone()).unwrap_or_default()
            };
            let first = causes(&clean);
            count.tried += 1;
            let sound_ids = ["as-modelled", "link-full", "gpu-message", "host-message", "sdma-cap"];
            let sound_ids = [&sound_ids[..], &["shared-memory", "link-widths-differ"]].concat();
            if first.first().is_some_and(|cause| sound_ids.contains(&cause.id)) {
                count.right += 1;
            } else {
                wrong.push(format!("{name}, {}, sound: {:?}", test.name, shares(&first)));
            }
            for edit in edits((at, test), &desc, &sound, (by, other)) {
                let off = |(a, b): (&(u64, f64), &(u64, f64))| (a.1 / b.1).ln().abs();
                let most = edit.rows.iter().zip(&clean).map(off).fold(0.0, f64::max);
                // Less than the model's own error shows in no row.
                if most < 0.15 {
                    count.hidden += 1;
                    continue;
                }
                count.tried += 1;
                let found = causes(&edit.rows);
                let share =
                    found.iter().find(|c| edit.ids.contains(&c.id)).map_or(0.0, |c| c.share);
                let best = found.first();
                let is_first = best.is_some_and(|cause| edit.ids.contains(&cause.id));
                let is_tied = best.is_some_and(|cause| share > 0.25 * cause.share);
                count.right += usize::from(is_first || is_tied);
                count.tied += usize::from(is_tied && !is_first);
                if !is_first && best.is_some_and(|cause| cause.share > 20.0 / 21.0) {
                    sure_wrong += 1;
                }
                if !is_first && !is_tied {
                    let (edit, ids) = (&edit.name, edit.ids);
                    let found = shares(&found);
                    wrong.push(format!("{name}, {}, {ids:?} {edit}: {found:?}", test.name));
                }
            }
        }
        let FormatCount { tried, right, tied, hidden } = count;
        println!("{}: {right} of {tried}, {tied} as the second of two, {hidden} hidden", test.name);
        all.tried += tried;
        all.right += right;
    }
    println!("{} of {} attributed", all.right, all.tried);
    let text = wrong.join("\n");
    assert_eq!(sure_wrong, 0, "{text}");
    assert!(all.tried > 60 && wrong.len() * 100 <= all.tried * 3, "{} wrong:\n{text}", wrong.len());
}

fn shares(causes: &[LikelyCause]) -> Vec<(&'static str, String)> {
    causes.iter().take(4).map(|cause| (cause.id, format!("{:.2}", cause.share))).collect()
}
