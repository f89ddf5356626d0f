//! Speed of one collective on a node of eight GPUs, and on clusters of them.

use divan::Bencher;
use pathline_flow::{MachineDesc, join_node};
use pathline_message::{ExchangeSpec, MessageLayer};

fn main() {
    divan::main();
}

#[divan::bench(args = [
    "all_reduce over gpu0-gpu7 by rccl x 1MiB",
    "all_to_all over gpu0-gpu7 by rccl x 1MiB",
    "broadcast over gpu0-gpu7 by cray-mpich x 1MiB",
    "all_reduce over gpu0-gpu7 by cray-mpich x 1MiB",
    "all_to_all over gpu0-gpu7 by cray-mpich x 64KiB",
    "send over gpu0>gpu1 by cray-mpich x 16MiB",
])]
fn exchange(bencher: Bencher<'_, '_>, text: &str) {
    let desc = MachineDesc::preset("mi250x").expect("a preset");
    let layer = MessageLayer::new(&desc).expect("a machine");
    let exchange: ExchangeSpec = text.parse().expect("an exchange");
    bencher.bench(|| layer.time(&exchange));
}

#[divan::bench(args = [2, 5, 8])]
fn rings(bencher: Bencher<'_, '_>, gpus: u32) {
    let topology = MachineDesc::preset("mi250x").expect("a preset").topology();
    let routes = pathline_flow::routes::RouteTable::of(&topology);
    let gpus: Vec<u32> = (0..gpus).collect();
    bencher.bench(|| pathline_message::rings(&routes, &gpus, 32));
}

/// 1,280 nodes of 8 GPUs and 4 adapters behind a fat tree of 64 ports, 2 adapters for a link up.
fn cluster() -> MessageLayer {
    let text = "[cluster]\nnodes = 1280\nnode = \"mi250x\"\n[cluster.network]\nshape = \"fat-tree\"\n\
                link_gbs = 25\nhop_ns = 350\nlevels = 3\nradix = 64\ntaper = 2\n";
    let node = MachineDesc::presets().first().expect("a preset").1.to_owned();
    let text = join_node("cluster.toml", text, |_| Ok(node)).expect("a cluster").expect("a node");
    let desc = MachineDesc::parse("cluster.toml", &text).expect("a cluster");
    MessageLayer::new(&desc).expect("a machine")
}

#[divan::bench(sample_count = 3, sample_size = 1, args = [
    "all_to_all over n0-n1279.gpu0-gpu7 by rccl x 1GiB",
    "all_reduce over n0-n1279.gpu0-gpu7 by rccl x 1GiB",
    "all_to_all over n0-n127.gpu0-gpu7 by rccl x 64MiB",
    "all_reduce over n0-n127.gpu0-gpu7 by cray-mpich x 64MiB",
    "all_gather over n0-n127.gpu0-gpu7 by cray-mpich x 64MiB",
    "all_to_all over n0-n127.gpu0-gpu7 by cray-mpich x 64MiB",
])]
fn exchange_of_a_cluster(bencher: Bencher<'_, '_>, text: &str) {
    let exchange: ExchangeSpec = text.parse().expect("an exchange");
    // A new layer: nothing is known of routes, as where a command begins.
    bencher.with_inputs(cluster).bench_values(|layer| layer.time_and_links(&exchange));
}
