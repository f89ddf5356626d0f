//! Speed of one collective on a node of eight GPUs.

use divan::Bencher;
use pathline_flow::MachineDesc;
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
