//! All-to-alls by classes, by loads, and message by message.

use pathline_flow::{CclModel, MachineDesc, Network, RuntimeEnv, join_node};

use super::*;
use crate::exchange::ExchangeStart;
use crate::scene::NodeParts;

fn parts(nodes: u32, network: &str) -> (NodeParts, CclModel) {
    let preset = MachineDesc::presets().iter().find(|(name, _)| *name == "mi250x").unwrap().1;
    let text = format!("[cluster]\nnodes = {nodes}\nnode = \"mi250x\"\n{network}");
    let text = join_node("c.toml", &text, |_| Ok(preset.to_owned())).unwrap().unwrap();
    let desc = MachineDesc::parse("c.toml", &text).unwrap();
    let network = Network::new(&desc, RuntimeEnv::default()).unwrap();
    (NodeParts::new(&desc, network, &[]), desc.software.rccl.clone().unwrap())
}

fn members(nodes: u32, gpus: &[u32]) -> Vec<ExchangeMember> {
    let all = (0..nodes).flat_map(|node| gpus.iter().map(move |&gpu| (node, gpu)));
    all.map(|(node, gpu)| ExchangeMember { node, gpu }).collect()
}

const HEAD: &str = "[cluster.network]\nlink_gbs = 25\nhop_ns = 300\n";

/// Tapered trees with a last switch that is half empty, a dragonfly whose routers differ, rails with
/// and without a spine, and a chain of three unequal switches: by classes as one by one.
#[test]
fn classes_of_an_all_to_all_are_its_messages_one_by_one() {
    let attach: Vec<u32> = (0..16).map(|at| at / 6).collect();
    let chain = format!(
        "shape = \"links\"\nswitches = 3\nlink = [{{a=0,b=1,width=2}},{{a=1,b=2}}]\nattach = {attach:?}"
    );
    let all: Vec<u32> = (0..8).collect();
    for (nodes, gpus, network) in [
        (3, all.as_slice(), String::new()),
        (3, &all, format!("{HEAD}shape = \"fat-tree\"\nlevels = 2\nradix = 12\ntaper = 2")),
        (5, &[0, 1, 6], format!("{HEAD}shape = \"fat-tree\"\nlevels = 3\nradix = 12\ntaper = 2")),
        (
            5,
            &[0, 3, 4],
            format!("{HEAD}shape = \"dragonfly\"\ngroups = 3\nrouters = 2\nrouter_adapters = 4"),
        ),
        (4, &[0, 2, 5], format!("{HEAD}shape = \"rails\"\nlevels = 1\nradix = 8")),
        (4, &[0, 2, 5], format!("{HEAD}shape = \"rails\"\nlevels = 1\nradix = 8\nspine_links = 1")),
        (4, &[1, 2, 7], format!("{HEAD}{chain}")),
        (
            12,
            &[0, 5, 6],
            format!(
                "{HEAD}shape = \"dragonfly\"\ngroups = 4\nrouters = 3\nrouter_adapters = 4\n\
                 global_links = 2"
            ),
        ),
    ] {
        let (machine, ccl) = parts(nodes, &network);
        let over = members(nodes, gpus);
        let library = CclLibrary::new(&ccl, ExchangeStart::default(), &over).unwrap();
        let mut scene = ExchangeScene::new(&machine, &over).unwrap();
        scene.counts_loads = true;
        for bytes in [4096.0, 64e6] {
            let by = |solver| all_to_all(&scene, &library, &solver, over.len(), bytes);
            let flows = AllToAllFlows::new(&scene, &over).unwrap().unwrap();
            let classes = by(AllToAllSolver::Classes(flows)).unwrap();
            let messages = message_parts(Collective::AllToAll, &over, bytes);
            let listed = direct(&scene, &library, &messages).unwrap();
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * b.abs();
            assert!(near(classes.time, listed.time), "{network}: {} {}", classes.time, listed.time);
            assert_eq!(classes.algorithm, listed.algorithm);
            assert_eq!(classes.loads.len(), listed.loads.len());
            for (at, (a, b)) in classes.loads.iter().zip(&listed.loads).enumerate() {
                assert!(near(*a, *b), "{network}: {}: {a} {b}", scene.resource_name(at as u32));
            }
            assert_eq!(classes.bound_by.is_empty(), listed.bound_by.is_empty());
            for name in &classes.bound_by {
                let name = name.split(" and ").next().unwrap().to_owned();
                assert!(listed.bound_by.contains(&name), "{name}: {:?}", listed.bound_by);
            }
            if network.is_empty() {
                continue;
            }
            // Starts within a node and over most links differ by 11.5 us and hops of 300 ns.
            let loads = AllToAllLoads::new(&scene, &over).unwrap();
            let starts = |hops: Option<u32>| {
                hops.map_or(ccl.step_us, |hops| ccl.net_step_us + 0.3 * f64::from(hops)) * 1e3
            };
            let (from, until) = loads.interval(|_| bytes / over.len() as f64, starts);
            assert!(until - from <= 11.5e3 + 300.0 * 3.0, "{network}: {from} to {until}");
            assert!(bytes < 64e6 || (until - from) / from < 1e-2, "{network}: {from}, {until}");
            let flows = AllToAllFlows::new(&scene, &over).unwrap().unwrap();
            let ends = flows.ends(|_| bytes / over.len() as f64, starts);
            let exact = ends.iter().map(|(end, _)| *end).fold(0.0, f64::max);
            let within = from * (1.0 - 1e-9)..=until * (1.0 + 1e-9);
            assert!(within.contains(&exact), "{network}: {exact}, {from} to {until}");
            let (summed, listed) = (loads.loads(|_| 7.0), flows.loads(|_| 7.0));
            assert_eq!(summed.len(), listed.len());
            for (at, (a, b)) in summed.iter().zip(&listed).enumerate() {
                assert!(near(*a, *b), "{network}: {}: {a} {b}", scene.resource_name(at as u32));
            }
        }
    }
}

/// 8 nodes of 8 GPUs on edge switches of 8 ports down (2 nodes) and 4 up, 25 x 0.953 GB/s each. Of a
/// node's 8 x 56 messages to others 8 x 48 leave its switch: 16 ranks send 48 parts each over 4 links.
#[test]
fn a_tapered_tree_binds_an_all_to_all() {
    let tree = format!("{HEAD}shape = \"fat-tree\"\nlevels = 2\nradix = 12\ntaper = 2");
    let (machine, ccl) = parts(8, &tree);
    let over = members(8, &[0, 1, 2, 3, 4, 5, 6, 7]);
    let scene = ExchangeScene::new(&machine, &over).unwrap();
    let bytes = 64e9;
    let library = CclLibrary::new(&ccl, ExchangeStart::default(), &over).unwrap();
    let solver = AllToAllSolver::new(&scene, &over).unwrap();
    let found = all_to_all(&scene, &library, &solver, over.len(), bytes).unwrap();
    let by_uplinks = 16.0 * 48.0 * (bytes / 64.0) / (4.0 * 25.0 * 0.953);
    assert!((found.time / by_uplinks - 1.0).abs() < 1e-3, "{} {by_uplinks}", found.time);
    assert!(
        found.bound_by.iter().any(|name| name.contains("edge0 > core")),
        "{:?}",
        found.bound_by
    );
}
