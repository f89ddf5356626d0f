//! Several equal nodes and the network between them: `[cluster]` of a machine description.
//!
//! A switch's links of one kind are one bundle. The fabric spreads traffic over a bundle and over
//! equally short routes, as adaptive routing does, so collisions of single messages are not modelled.

use serde::Deserialize;
use toml::Spanned;

use crate::model::{count, gbs, time};
use crate::switches::{SwitchBundle, SwitchGraph, WiringError};

/// The most nodes, and adapters of all of them.
pub(crate) const MAX_NODES: u32 = 1 << 16;
const MAX_ADAPTERS: u64 = 1 << 18;

/// `[cluster]`: the nodes and their network.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterDesc {
    /// Number of equal nodes.
    pub nodes: u32,
    /// Switches and links; none is a network that never limits.
    pub network: Option<SwitchGraph>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawCluster {
    nodes: Spanned<u64>,
    /// Another machine description; resolved before this file is read.
    #[serde(default)]
    pub(crate) node: Option<Spanned<String>>,
    network: Option<Spanned<RawNetwork>>,
}

/// The wiring of the switches.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum NetworkShape {
    /// Switches in levels; each level joins those below it.
    FatTree,
    /// A fat tree for each adapter of a node.
    Rails,
    /// Groups of routers, all joined within a group and all groups joined.
    Dragonfly,
    /// As `link` lists them.
    Links,
}

impl NetworkShape {
    const fn word(self) -> &'static str {
        match self {
            Self::FatTree => "fat-tree",
            Self::Rails => "rails",
            Self::Dragonfly => "dragonfly",
            Self::Links => "links",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNetwork {
    shape: NetworkShape,
    /// Payload rate of a link between switches, one direction.
    #[serde(deserialize_with = "gbs")]
    link_gbs: f64,
    /// Latency of each link between switches that a message takes.
    #[serde(default, deserialize_with = "time")]
    hop_ns: f64,
    levels: Option<u32>,
    radix: Option<u32>,
    taper: Option<f64>,
    spine_links: Option<u32>,
    groups: Option<u32>,
    routers: Option<u32>,
    router_adapters: Option<u32>,
    local_links: Option<u32>,
    global_links: Option<u32>,
    switches: Option<u32>,
    attach: Option<Vec<u32>>,
    #[serde(default)]
    link: Vec<Spanned<RawBundle>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBundle {
    a: u32,
    b: u32,
    #[serde(default = "single", deserialize_with = "count")]
    width: u32,
}

const fn single() -> u32 {
    1
}

/// An error of `[cluster]`, and its place in the text.
pub(crate) struct ClusterError {
    pub span: std::ops::Range<usize>,
    pub reason: String,
}

/// The cluster of nodes with `adapters` network adapters each.
pub(crate) fn read(raw: RawCluster, adapters: u32) -> Result<ClusterDesc, ClusterError> {
    let fail = |span, reason: String| Err(ClusterError { span, reason });
    let span = raw.nodes.span();
    let nodes = u32::try_from(*raw.nodes.get_ref()).unwrap_or(u32::MAX);
    if !(1..=MAX_NODES).contains(&nodes) {
        let reason = format!("nodes = {}; expected 1 to {MAX_NODES}", raw.nodes.get_ref());
        return fail(span, reason);
    }
    if u64::from(nodes) * u64::from(adapters) > MAX_ADAPTERS {
        let reason =
            format!("{nodes} nodes of {adapters} adapters; expected at most {MAX_ADAPTERS} in all");
        return fail(span, reason);
    }
    let Some(network) = raw.network else { return Ok(ClusterDesc { nodes, network: None }) };
    let span = network.span();
    if adapters == 0 {
        let reason = "a network needs network adapters of the node; add [[nics]]".to_owned();
        return fail(span, reason);
    }
    let raw = network.into_inner();
    let graph = Wiring { nodes, adapters, raw: &raw }.graph().map_err(|(at, reason)| {
        ClusterError { span: at.unwrap_or_else(|| span.clone()), reason }
    })?;
    if let Err(reason) = graph.check_joined(raw.shape == NetworkShape::Rails) {
        return fail(span, reason);
    }
    Ok(ClusterDesc { nodes, network: Some(graph) })
}

/// What a graph of switches is made of.
struct Wiring<'a> {
    nodes: u32,
    adapters: u32,
    raw: &'a RawNetwork,
}

impl Wiring<'_> {
    fn graph(&self) -> Result<SwitchGraph, WiringError> {
        self.check_keys()?;
        match self.raw.shape {
            NetworkShape::FatTree => self.fat_tree(1),
            NetworkShape::Rails => self.fat_tree(self.adapters),
            NetworkShape::Dragonfly => self.dragonfly(),
            NetworkShape::Links => self.links(),
        }
    }

    /// Keys of other shapes would have no effect.
    fn check_keys(&self) -> Result<(), WiringError> {
        use NetworkShape::{Dragonfly, FatTree, Links, Rails};
        let raw = self.raw;
        let keys: [(&str, bool, &[NetworkShape]); 10] = [
            ("levels", raw.levels.is_some(), &[FatTree, Rails]),
            ("radix", raw.radix.is_some(), &[FatTree, Rails]),
            ("taper", raw.taper.is_some(), &[FatTree, Rails]),
            ("spine_links", raw.spine_links.is_some(), &[Rails]),
            ("groups", raw.groups.is_some(), &[Dragonfly]),
            ("routers", raw.routers.is_some(), &[Dragonfly]),
            ("router_adapters", raw.router_adapters.is_some(), &[Dragonfly]),
            ("local_links", raw.local_links.is_some(), &[Dragonfly]),
            ("global_links", raw.global_links.is_some(), &[Dragonfly]),
            ("link", !raw.link.is_empty(), &[Links]),
        ];
        for (key, stated, shapes) in keys {
            if stated && !shapes.contains(&raw.shape) {
                let reason = format!("{key} has no meaning for shape = \"{}\"", raw.shape.word());
                return Err((None, reason));
            }
        }
        Ok(())
    }

    fn number(
        &self,
        key: &str,
        value: Option<u32>,
        (least, most): (u32, u32),
    ) -> Result<u32, WiringError> {
        let shape = self.raw.shape.word();
        let value = value.ok_or_else(|| {
            (None, format!("shape = \"{shape}\" needs {key}, a number from {least} to {most}"))
        })?;
        if !(least..=most).contains(&value) {
            return Err((None, format!("{key} = {value}; expected {least} to {most}")));
        }
        Ok(value)
    }

    /// Fat trees of edge switches, pods and a core. Of several trees, tree `i` has adapter `i` of each
    /// node, and a spine may join their tops.
    fn fat_tree(&self, trees: u32) -> Result<SwitchGraph, WiringError> {
        let raw = self.raw;
        let levels = self.number("levels", raw.levels, (1, 3))?;
        let radix = self.number("radix", raw.radix, (2, 4096))?;
        let taper = raw.taper.unwrap_or(1.0);
        if !(0.1..=64.0).contains(&taper) {
            let reason = format!(
                "taper = {taper}; expected 0.1 to 64, links down of an edge switch for each link up"
            );
            return Err((None, reason));
        }
        // Adapters of one node that share a tree hang on one edge switch where they fit.
        let of_node = self.adapters / trees;
        let down = match levels {
            1 => radix,
            _ => ((f64::from(radix) * taper / (1.0 + taper)).round() as u32).clamp(1, radix - 1),
        };
        let up = radix - down;
        let nodes_of_edge = down / of_node;
        if nodes_of_edge == 0 {
            let reason = format!(
                "an edge switch has {down} ports for adapters and a node {of_node}; a larger radix is needed"
            );
            return Err((None, reason));
        }
        let edges = self.nodes.div_ceil(nodes_of_edge);
        let half = (radix / 2).max(1);
        let most = match levels {
            1 => 1,
            2 => radix,
            _ => radix.saturating_mul(half),
        };
        if edges > most {
            let reason = format!(
                "{levels} levels of radix {radix} join {} nodes and the cluster has {}: more levels or a \
                 larger radix are needed",
                u64::from(most) * u64::from(nodes_of_edge),
                self.nodes
            );
            return Err((None, reason));
        }
        let mut graph = SwitchGraph::new(raw.link_gbs, raw.hop_ns);
        let mut attach = vec![0; self.nodes as usize * self.adapters as usize];
        let mut tops = Vec::new();
        for tree in 0..trees {
            let name = |what: String| if trees > 1 { format!("rail{tree} {what}") } else { what };
            let first = graph.add_switches(edges, |e| name(format!("edge{e}")))?;
            let mut top = first;
            if levels > 1 {
                let pods = if levels == 2 { 1 } else { edges.div_ceil(half) };
                let core = graph.add_switches(1, |_| name("core".to_owned()))?;
                top = core;
                let pod = match levels {
                    2 => core,
                    _ => graph.add_switches(pods, |p| name(format!("pod{p}")))?,
                };
                for e in 0..edges {
                    let above = if levels == 2 { core } else { pod + e / half };
                    graph.add_bundle(SwitchBundle::new(first + e, above, up, "edge"))?;
                }
                if levels == 3 {
                    for p in 0..pods {
                        let width = up.saturating_mul(half);
                        graph.add_bundle(SwitchBundle::new(pod + p, core, width, "core"))?;
                    }
                }
            }
            tops.push(top);
            for node in 0..self.nodes {
                for nic in 0..of_node {
                    let adapter = if trees > 1 { tree } else { nic };
                    let at = node as usize * self.adapters as usize + adapter as usize;
                    if let Some(slot) = attach.get_mut(at) {
                        *slot = first + node / nodes_of_edge;
                    }
                }
            }
        }
        if let Some(links) = raw.spine_links {
            let links = self.number("spine_links", Some(links), (1, 1 << 16))?;
            let spine = graph.add_switches(1, |_| "spine".to_owned())?;
            for top in tops {
                graph.add_bundle(SwitchBundle::new(top, spine, links, "spine"))?;
            }
        }
        graph.attach(attach, self.adapters);
        Ok(graph)
    }

    fn dragonfly(&self) -> Result<SwitchGraph, WiringError> {
        let raw = self.raw;
        let groups = self.number("groups", raw.groups, (1, 1024))?;
        let routers = self.number("routers", raw.routers, (1, 1024))?;
        let each = self.number("router_adapters", raw.router_adapters, (1, 4096))?;
        let local = self.number("local_links", Some(raw.local_links.unwrap_or(1)), (1, 1024))?;
        let global = self.number("global_links", Some(raw.global_links.unwrap_or(1)), (1, 1024))?;
        let nodes_of_router = each / self.adapters;
        if nodes_of_router == 0 {
            let reason = format!(
                "router_adapters = {each}, and a node has {} adapters; expected room for a whole node",
                self.adapters
            );
            return Err((None, reason));
        }
        let room = u64::from(groups) * u64::from(routers) * u64::from(nodes_of_router);
        if u64::from(self.nodes) > room {
            let reason = format!(
                "{groups} groups of {routers} routers join {room} nodes and the cluster has {}",
                self.nodes
            );
            return Err((None, reason));
        }
        let mut graph = SwitchGraph::new(raw.link_gbs, raw.hop_ns);
        graph.add_switches(groups * routers, |r| {
            format!("group{} router{}", r / routers, r % routers)
        })?;
        for group in 0..groups {
            for a in 0..routers {
                for b in a + 1..routers {
                    let (a, b) = (group * routers + a, group * routers + b);
                    graph.add_bundle(SwitchBundle::new(a, b, local, "local"))?;
                }
            }
        }
        // A group's global links are dealt to its routers in turn.
        let mut next = vec![0u32; groups as usize];
        for a in 0..groups {
            for b in a + 1..groups {
                for _ in 0..global {
                    let mut router = |group: u32| {
                        let dealt = next.get_mut(group as usize);
                        let nth = dealt.map_or(0, |n| std::mem::replace(n, *n + 1));
                        group * routers + nth % routers
                    };
                    let (from, to) = (router(a), router(b));
                    graph.add_bundle(SwitchBundle::new(from, to, 1, "global"))?;
                }
            }
        }
        // Nodes fill a group before the next.
        let all = 0..self.nodes as usize * self.adapters as usize;
        let of_node = |at: usize| (at / self.adapters as usize) as u32 / nodes_of_router;
        graph.attach(all.map(of_node).collect(), self.adapters);
        Ok(graph)
    }

    fn links(&self) -> Result<SwitchGraph, WiringError> {
        let raw = self.raw;
        let switches = self.number("switches", raw.switches, (1, crate::switches::MAX_SWITCHES))?;
        let mut graph = SwitchGraph::new(raw.link_gbs, raw.hop_ns);
        graph.add_switches(switches, |s| format!("switch{s}"))?;
        for link in &raw.link {
            let RawBundle { a, b, width } = *link.get_ref();
            let at = || Some(link.span());
            if a >= switches || b >= switches {
                let reason =
                    format!("switch {} of a link; expected 0 to {}", a.max(b), switches - 1);
                return Err((at(), reason));
            }
            if a == b {
                return Err((at(), format!("a link from switch {a} to itself")));
            }
            graph
                .add_bundle(SwitchBundle::new(a, b, width, "link"))
                .map_err(|(_, reason)| (at(), reason))?;
        }
        let attach = raw.attach.as_ref().ok_or_else(|| {
            (
                None,
                "shape = \"links\" needs attach, the switch of each adapter, node by node"
                    .to_owned(),
            )
        })?;
        let expected = self.nodes as usize * self.adapters as usize;
        if attach.len() != expected {
            let reason = format!(
                "attach has {} entries; expected {expected}, one for each of {} adapters of {} nodes",
                attach.len(),
                self.adapters,
                self.nodes
            );
            return Err((None, reason));
        }
        if let Some(bad) = attach.iter().find(|&&s| s >= switches) {
            let reason = format!("attach: switch {bad}; expected 0 to {}", switches - 1);
            return Err((None, reason));
        }
        graph.attach(attach.clone(), self.adapters);
        Ok(graph)
    }
}
