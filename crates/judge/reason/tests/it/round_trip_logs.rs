//! Round trip of `NCCL_DEBUG=INFO`: a node writes the log of its library, with the rings of its model, and one
//! setting of it changed, and `explain` must name that.

use std::fmt::Write as _;

use pathline_flow::MachineDesc;
use pathline_message::MessageLayer;
use pathline_paste::read_paste;
use pathline_reason::{RowPredictor, explain_on_node};

/// What a log shows.
#[derive(Clone)]
struct LogWorld {
    name: &'static str,
    ids: &'static [&'static str],
    /// Ranks are on this many nodes.
    nodes: u32,
    channels: u32,
    /// Behind `via` between GPUs of a node, and between nodes.
    peer: &'static str,
    net: &'static str,
    adapters: u32,
    network: &'static str,
    nvls: bool,
}

const SOUND: &[&str] = &["peer", "protocol-overhead", "nothing"];

fn worlds(nodes: u32, channels: u32, adapters: u32, nvls: bool) -> Vec<LogWorld> {
    let sound = LogWorld {
        name: "sound",
        ids: SOUND,
        nodes,
        channels,
        peer: "P2P/CUMEM/read",
        net: "NET/IB/0/GDRDMA",
        adapters,
        network: "IB",
        nvls,
    };
    let mut all = vec![
        sound.clone(),
        LogWorld {
            name: "half the channels",
            ids: &["few-channels"],
            channels: channels / 2,
            ..sound.clone()
        },
        LogWorld { name: "one channel", ids: &["few-channels"], channels: 1, ..sound.clone() },
        LogWorld {
            name: "SHM",
            ids: &["through-host-memory"],
            peer: "SHM/direct/direct",
            ..sound.clone()
        },
    ];
    if nvls {
        all.push(LogWorld { name: "NVLS off", ids: &["nvls-off"], nvls: false, ..sound.clone() });
    }
    if nodes > 1 {
        let socket = LogWorld {
            name: "sockets",
            ids: &["tcp"],
            net: "NET/Socket/0",
            network: "Socket",
            adapters: 0,
            ..sound.clone()
        };
        all.extend([
            LogWorld {
                name: "no GPUDirect",
                ids: &["no-gpu-direct"],
                net: "NET/IB/0",
                ..sound.clone()
            },
            LogWorld { name: "plugin failed", ids: &["tcp", "plugin-missing"], ..socket.clone() },
            socket,
        ]);
        if adapters > 1 {
            all.push(LogWorld {
                name: "one adapter",
                ids: &["fewer-adapters"],
                adapters: 1,
                ..sound
            });
        }
    }
    all
}

/// The lines of NCCL 2.21 and RCCL 2.20 that the reader uses, between others.
fn write(world: &LogWorld, gpus: u32, is_amd: bool) -> String {
    let mut text = String::new();
    let mut line = |gpu: u32, message: &str| {
        writeln!(text, "node1:{}:{} [{gpu}] NCCL INFO {message}", 4200 + gpu, 4300 + gpu)
            .expect("text");
    };
    line(0, "Bootstrap : Using eth0:10.0.0.1<0>");
    line(
        0,
        if is_amd {
            "RCCL version 2.20.5+hip6.2 HEAD:d380693"
        } else {
            "NCCL version 2.21.5+cuda12.4"
        },
    );
    if world.name == "plugin failed" {
        line(
            0,
            "NET/Plugin: Failed to load net plugin libnccl-net.so, using internal network plugin.",
        );
    }
    for gpu in 0..gpus {
        if world.adapters > 0 {
            let list: Vec<String> =
                (0..world.adapters).map(|nth| format!("[{nth}]mlx5_{nth}:1/IB")).collect();
            line(gpu, &format!("NET/IB : Using {} [RO]; OOB eth0:10.0.0.1<0>", list.join(" ")));
        } else {
            line(gpu, "NET/Socket : Using [0]eth0:10.0.0.1<0>");
        }
        line(gpu, &format!("Using network {}", world.network));
        if !is_amd {
            let not = if world.nvls { "" } else { "not " };
            line(gpu, &format!("NVLS multicast support is {not}available on dev {gpu}"));
        }
        line(
            gpu,
            &format!(
                "comm 0x5639e9f0 rank {gpu} nRanks {} nNodes {} localRanks {gpus} localRank {gpu} MNNVL 0",
                gpus * world.nodes,
                world.nodes
            ),
        );
    }
    let ranks: Vec<String> = (0..gpus * world.nodes).map(|rank| format!("{rank:3}")).collect();
    for channel in 0..world.channels {
        line(0, &format!("Channel {channel:02}/{:02} : {}", world.channels, ranks.join(" ")));
    }
    for channel in 0..world.channels {
        for gpu in 0..gpus {
            let next = gpu + 1;
            let (ends, via) = match next == gpus && world.nodes > 1 {
                true => (format!("{gpu}[{gpu}] -> {next}[0] [send]"), world.net),
                false => (format!("{gpu}[{gpu}] -> {}[{}]", next % gpus, next % gpus), world.peer),
            };
            line(gpu, &format!("Channel {channel:02}/0 : {ends} via {via}"));
        }
    }
    line(0, "Connected all rings");
    let (channels, nvls) = (world.channels, if world.nvls { 16 } else { 0 });
    line(
        0,
        &format!(
            "{channels} coll channels, 0 collnet channels, {nvls} nvls channels, {channels} p2p channels, {channels} p2p channels per peer"
        ),
    );
    text
}

#[test]
fn causes_of_logs_are_found() {
    let (mut tried, mut wrong, mut sure_wrong) = (0, Vec::new(), 0);
    for preset in ["hgx-h100", "hgx-h200", "v100", "mi250x", "mi300x"] {
        let desc = MachineDesc::preset(preset).expect("a preset");
        let node = RowPredictor::from_desc(&desc).expect("a network");
        let topology = desc.healthy_topology();
        let is_amd = desc.software.rccl.is_some();
        let gpus = topology.gpus.len() as u32;
        let by = if is_amd { "rccl" } else { "nccl[ring]" };
        let layer = MessageLayer::new(&desc).expect("a network");
        let spec = format!("all_reduce over gpu0-gpu{} by {by} x 1GiB", gpus - 1);
        let rings = layer.time(&spec.parse().expect("an exchange")).expect("a time").rings.len();
        let nvls = desc.software.nccl.as_ref().is_some_and(|nccl| nccl.nvls.is_some());
        // The adapters that a description has; else as many as such nodes have.
        let adapters = match topology.nics.len() as u32 {
            0 => 8,
            described => described,
        };
        for nodes in [1, 2] {
            for world in worlds(nodes, rings.min(16) as u32, adapters, nvls) {
                let is_known = world.ids != ["fewer-adapters"] || !topology.nics.is_empty();
                if !is_known || world.channels == 0 || rings < 2 && world.ids == ["few-channels"] {
                    continue;
                }
                tried += 1;
                let text = write(&world, gpus, is_amd);
                let found = explain_on_node(&read_paste(text.as_bytes()), &node, None);
                let first = found.answers.first().and_then(|answer| answer.causes.first());
                let is_right = match first {
                    Some(first) => world.ids.contains(&first.id),
                    None => world.ids == SOUND,
                };
                if !is_right {
                    sure_wrong += usize::from(first.is_some_and(|c| c.share > 20.0 / 21.0));
                    let first = first.map(|cause| (cause.id, cause.share));
                    wrong.push(format!("{preset}, {nodes} nodes, {}: {first:?}", world.name));
                }
            }
        }
    }
    println!("logs: {} of {tried} attributed", tried - wrong.len());
    let text = wrong.join("\n");
    assert_eq!(sure_wrong, 0, "{text}");
    assert!(tried > 40 && wrong.len() * 100 <= tried * 3, "{} wrong:\n{text}", wrong.len());
}
