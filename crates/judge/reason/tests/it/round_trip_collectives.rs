//! Round trip of collectives and messages: the model of messages on a node with one fault, or of a library
//! with one thing wrong, gives the figures of nccl-tests and OSU, and the sound model must find it again.

use std::fmt::Write as _;

use pathline_flow::{FaultEffect, FaultElement, MachineDesc, MachineFault};
use pathline_message::{ExchangeSpec, ExchangeTime, MessageLayer};
use pathline_paste::read_paste;
use pathline_reason::{RowPredictor, explain_on_node};
use pathline_schema::{Bytes, Link, LinkEnd};

/// What is wrong, and the cause that names it.
struct CollectiveEdit {
    name: String,
    id: &'static str,
    layer: MessageLayer,
}

/// Time, algbw and busbw of a size.
type ResultRow = (u64, f64, f64, f64);

/// Writes rows as a tool prints them, for a number of GPUs of a product.
type ResultWriter = fn(&[ResultRow], u32, &str) -> String;

fn rows(layer: &MessageLayer, over: &str, by: &str) -> Vec<ResultRow> {
    (20..=32)
        .step_by(2)
        .map(|shift| row(layer, &format!("all_reduce over {over} by {by}"), 1 << shift))
        .collect()
}

fn row(layer: &MessageLayer, exchange: &str, bytes: u64) -> ResultRow {
    let spec: ExchangeSpec = format!("{exchange} x 1B").parse().expect("an exchange");
    let spec = ExchangeSpec { bytes: Bytes(bytes), ..spec };
    let time: ExchangeTime = layer.time(&spec).expect("a time");
    (bytes, time.time.0 / 1e3, time.algbw.gbs(), time.busbw.gbs())
}

fn nccl_text(rows: &[ResultRow], gpus: u32, product: &str) -> String {
    let mut text = "# nThread 1 nGpus 8 minBytes 1048576 maxBytes 4294967296 step: 4(factor)\n# Using devices\n".to_owned();
    for rank in 0..gpus {
        writeln!(text, "#  Rank {rank:2} Group  0 Pid  4242 on node1 device {rank:2} [0000:1{rank}:00] {product}")
            .expect("it is there");
    }
    text.push_str("#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n");
    for (bytes, us, alg, bus) in rows {
        let once = format!("{us:9.2} {alg:7.2} {bus:7.2} 0");
        writeln!(text, "{bytes:12} {:13} float sum -1 {once} {once}", bytes / 4)
            .expect("it is there");
    }
    text
}

fn nccl_json(rows: &[ResultRow], gpus: u32, product: &str) -> String {
    let device = |rank: u32| {
        format!(
            "{{\"rank\":{rank},\"hostname\":\"node1\",\"device\":{rank},\"device_info\":\"{product}\"}}"
        )
    };
    let result = |(bytes, us, alg, bus): &ResultRow| {
        let once = format!("{{\"time\":{us},\"alg_bw\":{alg},\"bus_bw\":{bus},\"nwrong\":0}}");
        format!(
            "{{\"size\":{bytes},\"count\":{},\"type\":\"float\",\"redop\":\"sum\",\"out_of_place\":{once},\"in_place\":{once}}}",
            bytes / 4
        )
    };
    let devices: Vec<String> = (0..gpus).map(device).collect();
    let results: Vec<String> = rows.iter().map(result).collect();
    format!(
        "{{\"args\":[\"all_reduce_perf\",\"-g\",\"{gpus}\"],\"config\":{{\"ngpus\":{gpus}}},\"devices\":[{}],\"results\":[{}]}}\n",
        devices.join(","),
        results.join(",")
    )
}

/// Of each kind of bundle between GPUs, or to switches, one link lost, half, and all but one; silent, so that
/// the library keeps its rings.
fn broken_links(desc: &MachineDesc, healthy: &MessageLayer) -> Vec<CollectiveEdit> {
    let mut edits = Vec::new();
    // Where all pairs of GPUs or all links to switches are alike, the first two stand for all.
    let links = &desc.healthy_topology().links;
    let most = if links.iter().any(|link| link.width == 2) { usize::MAX } else { 2 };
    let is_host = |link: &&Link| [link.a, link.b].iter().any(|end| matches!(end, LinkEnd::Numa(_)));
    for link in links.iter().filter(|link| !is_host(link)).take(most) {
        let element = FaultElement::Bundle { from: link.a, to: link.b, one_way: false };
        let mut effects = vec![FaultEffect::Speed { share: 0.5 }];
        if link.width > 1 {
            effects.push(FaultEffect::Width { lost: link.width - 1 });
        }
        for effect in effects {
            let fault = MachineFault { element, effect, silent: true, probability: 1.0 };
            let layer = healthy.damaged(desc, &[fault]).expect("a network");
            edits.push(CollectiveEdit {
                name: format!("{element} {effect:?}"),
                id: "links-lost",
                layer,
            });
        }
    }
    edits
}

/// The library with half of its channels, and with a ring less.
fn fewer_channels(desc: &MachineDesc, rings: u32) -> Vec<CollectiveEdit> {
    let mut edits = Vec::new();
    for (id, channels) in [("few-channels", rings / 2), ("ring-missing", rings - 1)] {
        // Of two rings half are one less.
        if channels == 0
            || edits.iter().any(|edit: &CollectiveEdit| edit.name == channels.to_string())
        {
            continue;
        }
        let mut edited = desc.clone();
        for ccl in [&mut edited.software.rccl, &mut edited.software.nccl].into_iter().flatten() {
            ccl.max_channels = channels;
        }
        let layer = MessageLayer::new(&edited).expect("a network");
        edits.push(CollectiveEdit { name: channels.to_string(), id, layer });
    }
    edits
}

#[test]
fn causes_of_slow_collectives_are_found() {
    let (mut tried, mut wrong, mut hidden, mut sound, mut tied) = (0, Vec::new(), 0, 0, 0);
    let formats: [(&str, ResultWriter); 2] = [("text", nccl_text), ("JSON", nccl_json)];
    for (name, by, product) in [
        ("mi250x", "rccl", "AMD Instinct MI250X"),
        ("mi300x", "rccl", "AMD Instinct MI300X"),
        ("hgx-h100", "nccl[ring]", "NVIDIA H100 80GB HBM3"),
    ] {
        let desc = MachineDesc::preset(name).expect("a preset");
        let model = RowPredictor::from_desc(&desc).expect("a network");
        let healthy = MessageLayer::new(&desc).expect("a network");
        let spec =
            format!("all_reduce over gpu0-gpu7 by {by} x 1GiB").parse().expect("an exchange");
        let rings = healthy.time(&spec).expect("a time").rings.len() as u32;
        let clean = rows(&healthy, "gpu0-gpu7", by);
        let setting =
            if by == "nccl[ring]" { "NCCL_ALGO=Ring ./all_reduce_perf -g 8\n" } else { "" };
        let mut edits = broken_links(&desc, &healthy);
        edits.extend(fewer_channels(&desc, rings));
        for (format, write) in formats {
            let first = |rows: &[ResultRow]| {
                let text = format!("{setting}{}", write(rows, 8, product));
                let found = explain_on_node(&read_paste(text.as_bytes()), &model, None);
                found.answers.first().map(|answer| answer.causes.clone()).unwrap_or_default()
            };
            sound += 1;
            let causes = first(&clean);
            if causes.first().is_none_or(|cause| {
                ["links-lost", "few-channels", "ring-missing"].contains(&cause.id)
            }) {
                wrong.push(format!("{name}, {format}, sound: {:?}", causes.first()));
            }
            for edit in &edits {
                let slow = rows(&edit.layer, "gpu0-gpu7", by);
                let is_shown = slow.iter().zip(&clean).any(|(a, b)| (a.1 / b.1 - 1.0).abs() > 0.03);
                if !is_shown {
                    hidden += 1;
                    continue;
                }
                tried += 1;
                let causes = first(&slow);
                // Half of the channels and half of a link's rate have one curve: both have to be named.
                let share = |id| causes.iter().find(|c| c.id == id).map_or(0.0, |c| c.share);
                let is_tied = ["links-lost", "few-channels", "ring-missing"]
                    .iter()
                    .any(|other| causes.first().is_some_and(|first| first.id == *other))
                    && causes.first().is_some_and(|first| share(edit.id) > 0.25 * first.share);
                tied += u32::from(is_tied && causes[0].id != edit.id);
                if !is_tied {
                    let all: Vec<_> = causes.iter().map(|cause| (cause.id, cause.share)).collect();
                    wrong.push(format!("{name}, {format}, {} {}: {all:?}", edit.id, edit.name));
                }
            }
        }
    }
    let all = tried + sound;
    println!(
        "{} of {all} attributed, {tied} of them as the second of two that give the same curve; {hidden} show \
         in no figure",
        all - wrong.len()
    );
    assert!(wrong.len() * 100 <= all * 3, "{} of {all}:\n{}", wrong.len(), wrong.join("\n"));
}
