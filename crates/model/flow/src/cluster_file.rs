//! A cluster file that names the description of its node: both become one description.

use serde::Deserialize;
use toml::{Table, Value};

use crate::cluster::{self, RawCluster};
use crate::desc::{LineIndex, MAX_TEXT};
use crate::{DescError, MachineDesc};

/// The keys of a file whose node is another file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawClusterFile {
    #[serde(default, rename = "name")]
    _name: Option<String>,
    #[serde(default, rename = "about")]
    _about: Option<String>,
    cluster: RawCluster,
}

/// The whole description of a cluster whose file names its node by `cluster.node`; none of a file that
/// describes its node, or of no cluster. `read_node` returns the text of a preset or file by its name.
///
/// # Errors
/// The file has more than name, about and cluster; the node cannot be read, is no description or a
/// cluster; the network is impossible. With the line.
pub fn join_node(
    file: &str,
    text: &str,
    read_node: impl FnOnce(&str) -> Result<String, DescError>,
) -> Result<Option<String>, DescError> {
    // What is no TOML is refused with its line where the description is read.
    let Ok(mut own) = text.parse::<Table>() else { return Ok(None) };
    let node = own.get("cluster").and_then(|cluster| cluster.get("node"));
    let Some(name) = node.and_then(Value::as_str).map(str::to_owned) else { return Ok(None) };
    let source = LineIndex { file, text };
    let raw: RawClusterFile = toml::from_str(text)
        .map_err(|e| source.error(e.span(), e.message().trim().replace('\n', ", ")))?;
    let span = raw.cluster.node.as_ref().map(toml::Spanned::span);
    let at_node = |reason: String| source.error(span.clone(), reason);
    let node_text = read_node(&name).map_err(|e| at_node(format!("node = '{name}': {e}")))?;
    let mut joined: Table =
        node_text.parse().map_err(|e: toml::de::Error| at_node(e.message().to_owned()))?;
    // Before it is read as a node: a cluster file that names its own node has no node to read.
    if joined.contains_key("cluster") {
        return Err(at_node(format!(
            "node = '{name}' is a cluster; expected the description of one node"
        )));
    }
    let node = MachineDesc::parse(&name, &node_text).map_err(|e| at_node(e.to_string()))?;
    let adapters = u32::try_from(node.topology.nics.len()).unwrap_or(u32::MAX);
    cluster::read(raw.cluster, adapters).map_err(|e| source.error(Some(e.span), e.reason))?;
    if let Some(Value::Table(cluster)) = own.get_mut("cluster") {
        cluster.remove("node");
    }
    joined.extend(own);
    let joined = toml::to_string(&joined).map_err(|e| source.error(None, e.to_string()))?;
    // Each link becomes a table with a line for each key, so that the whole may be longer than both files.
    if joined.len() > MAX_TEXT {
        let reason = format!(
            "the node and its network have {} bytes when written as one description, at most {MAX_TEXT} \
             are read; state fewer links, parallel ones as one by 'width'",
            joined.len()
        );
        return Err(source.error(span, reason));
    }
    Ok(Some(joined))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preset(name: &str) -> Result<String, DescError> {
        let presets = MachineDesc::presets().iter();
        let known = presets.clone().find(|(known, _)| *known == name);
        known
            .map(|(_, text)| (*text).to_owned())
            .ok_or_else(|| DescError { file: name.to_owned(), reason: "no such preset".to_owned() })
    }

    const CLUSTER: &str =
        "name = \"small\"\n[cluster]\nnodes = 40\nnode = \"mi250x\"\n[cluster.network]\n";

    fn parse(network: &str) -> Result<MachineDesc, String> {
        let text = format!("{CLUSTER}{network}");
        let joined = join_node("c.toml", &text, preset).map_err(|e| e.to_string())?;
        MachineDesc::parse("c.toml", &joined.unwrap()).map_err(|e| e.to_string())
    }

    /// Radix 32 with taper 1: 16 adapters, which are 4 nodes, on an edge switch; 40 nodes take 10.
    /// Two levels: 10 bundles of 16 links of 25 GB/s to the core.
    #[test]
    fn a_file_names_its_node() {
        let desc = parse("shape = \"fat-tree\"\nlink_gbs = 25\nlevels = 2\nradix = 32").unwrap();
        assert_eq!((desc.name.as_str(), desc.topology().gpus.len()), ("small", 8));
        let cluster = desc.cluster.unwrap();
        let graph = cluster.network.unwrap();
        assert_eq!((cluster.nodes, graph.bundles().len(), graph.switches()), (40, 10, 11));
        assert_eq!(graph.capacity(0), 400.0);
        assert_eq!(
            [(0, 0), (3, 3), (4, 0), (39, 3)].map(|(n, a)| graph.switch_of(n, a)),
            [0, 0, 1, 9].map(Some)
        );
        let to = graph.distances_to(9);
        let route = graph.route(0, 9, &to).unwrap();
        let names: Vec<String> =
            route.uses.iter().map(|u| graph.resource_name(u.resource)).collect();
        assert_eq!(
            (route.hops, names),
            (2, vec!["edge0 > core".to_owned(), "core > edge9".to_owned()])
        );
    }

    /// 4 groups of 3 routers of 16 adapters: 4 nodes each. Group pairs have one global link each, dealt
    /// in turn: group 0 has its links to groups 1, 2, 3 on routers 0, 1, 2.
    #[test]
    fn a_dragonfly_takes_local_global_local() {
        let desc = parse(
            "shape = \"dragonfly\"\nlink_gbs = 25\ngroups = 4\nrouters = 3\nrouter_adapters = 16",
        );
        let graph = desc.unwrap().cluster.unwrap().network.unwrap();
        // 3 local bundles in each of 4 groups, 6 pairs of groups.
        assert_eq!(graph.bundles().len(), 4 * 3 + 6);
        // From group 0 router 0 to group 2: the link leaves at router 1.
        let to = graph.distances_to(2 * 3 + 2);
        let route = graph.route(0, 2 * 3 + 2, &to).unwrap();
        let names: Vec<String> =
            route.uses.iter().map(|u| graph.resource_name(u.resource)).collect();
        assert_eq!(names[0], "group0 router0 > group0 router1", "{names:?}");
        assert!(names[1].starts_with("group0 router1 > group2"), "{names:?}");
    }

    #[test]
    fn two_shortest_routes_share_by_capacity() {
        let net = "shape = \"links\"\nlink_gbs = 10\nswitches = 4\nlink = [\n {a=0,b=1,width=3},\n {a=0,b=2},\n {a=1,b=3},\n {a=2,b=3}]\n";
        let attach: Vec<u32> = (0..160).map(|i| if i < 80 { 0 } else { 3 }).collect();
        let graph = parse(&format!("{net}attach = {attach:?}")).unwrap();
        let graph = graph.cluster.unwrap().network.unwrap();
        let route = graph.route(0, 3, &graph.distances_to(3)).unwrap();
        let shares: Vec<f64> = route.uses.iter().map(|u| u.weight).collect();
        // 3 links of 4 towards switch 1, one towards switch 2.
        assert_eq!((route.hops, shares), (2, vec![0.75, 0.25, 0.75, 0.25]));
    }

    /// A ring of four switches: from one to the opposite one both sides are as long, and each carries half.
    #[test]
    fn a_ring_of_switches_has_two_routes() {
        let net = "shape = \"links\"\nlink_gbs = 10\nswitches = 4\nlink = [{a=0,b=1},{a=1,b=2},{a=2,b=3},{a=3,b=0}]\n";
        let attach: Vec<u32> = (0..160).map(|i| i % 4).collect();
        let graph = parse(&format!("{net}attach = {attach:?}")).unwrap();
        let graph = graph.cluster.unwrap().network.unwrap();
        let route = graph.route(0, 2, &graph.distances_to(2)).unwrap();
        assert_eq!((route.hops, route.uses.iter().map(|u| u.weight).collect()), (2, vec![0.5; 4]));
    }

    /// 262,145 bundles: the last has the line.
    #[test]
    fn too_many_links_of_a_network_are_refused_with_their_line() {
        let many = "{a=0,b=1},\n".repeat(262_145);
        let error = parse(&format!(
            "shape = \"links\"\nlink_gbs = 10\nswitches = 2\nlink = [\n{many}]\nattach = []"
        ))
        .unwrap_err();
        assert_eq!(error, "c.toml:262154: more than 262144 bundles of links between switches");
    }

    #[test]
    fn errors_have_lines_and_name_the_limit() {
        let links = |more: &str| format!("shape = \"links\"\nlink_gbs = 10\nswitches = 3\n{more}");
        let attach: Vec<u32> = (0..160).map(|i| u32::from(i >= 80)).collect();
        let many: String = (0..1000).map(|_| "{a=0,b=1},").collect();
        for (network, line, expected) in [
            ("shape = \"ring\"\nlink_gbs = 1", 6, "unknown variant `ring`"),
            ("shape = \"fat-tree\"\nlink_gbs = 0\nlevels = 1\nradix = 4", 7, "a rate in GB/s"),
            ("shape = \"fat-tree\"\nlink_gbs = 1\nradix = 4", 5, "needs levels"),
            (
                "shape = \"fat-tree\"\nlink_gbs = 1\nlevels = 1\nradix = 4",
                5,
                "join 1 nodes and the cluster has 40",
            ),
            (
                "shape = \"fat-tree\"\nlink_gbs = 1\nlevels = 2\nradix = 4",
                5,
                "2 ports for adapters and a node 4",
            ),
            (
                "shape = \"dragonfly\"\nlink_gbs = 1\ngroups = 2\nrouters = 2\nrouter_adapters = 8",
                5,
                "join 8 nodes",
            ),
            (
                "shape = \"rails\"\nlink_gbs = 1\nlevels = 1\nradix = 64\ngroups = 2",
                5,
                "groups has no meaning",
            ),
            (
                &links(&format!("attach = {attach:?}")),
                5,
                "no path from node 0 (switch0) to node 20 (switch1)",
            ),
            (&links("link = [\n {a=0,b=7}]\nattach=[]"), 10, "switch 7 of a link"),
            (&links("link = [\n {a=1,b=1}]\nattach=[]"), 10, "to itself"),
            (&links("link = [{a=0,b=1,width=0}]\nattach=[]"), 9, "expected a number from 1"),
            (
                &links(&format!("link = []\nattach = {attach:?}")),
                5,
                "no path from node 0 (switch0) to node 20 (switch1)",
            ),
            (&links("link = [{a=0,b=1}]\nattach=[1]"), 5, "expected 160"),
            (&links(&format!("link = [{many}]")), 5, "needs attach"),
            (
                "shape = \"dragonfly\"\nlink_gbs = 1\ngroups = 1000\nrouters = 1000\nrouter_adapters = 8",
                5,
                "1000000 switches; expected at most 8192",
            ),
            (
                "shape = \"dragonfly\"\nlink_gbs = 1\ngroups = 1000\nrouters = 2\nrouter_adapters = \
                 8\nglobal_links = 1000",
                5,
                "more than 262144 bundles",
            ),
        ] {
            let error = parse(network).unwrap_err();
            assert!(error.contains(expected), "{network}: {error}");
            assert!(error.starts_with(&format!("c.toml:{line}:")), "{network}: {error}");
        }
    }

    #[test]
    fn a_node_is_no_cluster_and_exists() {
        let text = "[cluster]\nnodes = 2\nnode = \"self\"\n";
        let error = |read: &dyn Fn(&str) -> Result<String, DescError>| {
            join_node("c.toml", text, read).unwrap_err().to_string()
        };
        let cycle = error(&|_| Ok(text.to_owned()));
        assert!(cycle.starts_with("c.toml:3:") && cycle.contains("is a cluster"), "{cycle}");
        // 112,000 links: 1.1 MB as stated, 38 B each with a line for each key, 4.26 MB.
        let links = "{a=0,b=1},".repeat(112_000);
        let many = format!(
            "{CLUSTER}shape = \"links\"\nlink_gbs = 25\nswitches = 2\nlink = [{links}]\nattach = {:?}",
            vec![0; 160]
        );
        assert!(many.len() < MAX_TEXT);
        let many = join_node("c.toml", &many, preset).unwrap_err().to_string();
        assert!(many.starts_with("c.toml:4:") && many.contains("state fewer links"), "{many}");
        let whole = || preset("mi250x").map(|node| node + "\n[cluster]\nnodes = 2\n");
        let cluster = error(&|_| whole());
        assert!(cluster.contains("is a cluster; expected"), "{cluster}");
        assert!(error(&preset).contains("no such preset"));
        let more = "[cluster]\nnodes = 2\nnode = \"mi250x\"\n[host]\nsockets = 1\n";
        let error = join_node("c.toml", more, preset).unwrap_err().to_string();
        assert!(error.contains("c.toml:4") && error.contains("host"), "{error}");
        // A file without cluster.node is read as it is.
        assert_eq!(join_node("c.toml", &whole().unwrap(), preset), Ok(None));
        let nodes = MachineDesc::parse("n", &whole().unwrap()).unwrap().cluster.unwrap();
        assert_eq!((nodes.nodes, nodes.network), (2, None));
        for (nodes, expected) in [("0", "expected 1 to 65536"), ("1000000", "expected 1 to 65536")]
        {
            let text = text.replace('2', nodes).replace("self", "mi250x");
            let error = join_node("c.toml", &text, preset).unwrap_err().to_string();
            assert!(error.starts_with("c.toml:2:") && error.contains(expected), "{error}");
        }
    }
}
