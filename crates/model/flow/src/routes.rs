//! Routes between the units of a node: shortest, widest, and the one that the fabric uses.
//!
//! A route passes NVLink and PCIe switches, and GPUs where both links are xGMI: AMD's fabric
//! forwards, an NVIDIA GPU does not. Only where no such route exists is one through the host's
//! NUMA domains considered.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use pathline_schema::{LinkEnd, LinkKind, Rate, Topology};

/// The most equal routes that are listed for a pair; a fabric has a handful.
const MAX_ROUTES: usize = 64;
/// The most steps of a search for routes of a stated length; a node of 16 GPUs needs a few
/// thousand. It bounds time and memory on files that make no sense.
const MAX_STEPS: usize = 200_000;
/// The longest stated route that is looked for.
const MAX_HOPS: u32 = 16;

/// All links between two units taken together, one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkBundle {
    /// Kind of the links; of the widest, if they differ.
    pub kind: LinkKind,
    /// Number of physical links.
    pub width: u32,
    /// Theoretical peak per direction, where it is known for all of them.
    pub peak: Option<Rate>,
}

/// One path from a unit to another.
#[derive(Debug, Clone, PartialEq)]
pub struct RoutePath {
    /// Units passed, ends included.
    pub nodes: Vec<LinkEnd>,
    /// Number of physical links of its narrowest bundle.
    pub width: u32,
    /// Theoretical peak per direction of its slowest bundle, where all are known.
    pub peak: Option<Rate>,
}

impl RoutePath {
    /// Number of links passed.
    pub fn hops(&self) -> u32 {
        self.nodes.len().saturating_sub(1) as u32
    }
}

/// The routes that the fabric uses for an ordered pair.
#[derive(Debug, Clone, PartialEq)]
pub struct InUse {
    /// The route, or all equal ones where no source says which is taken.
    pub paths: Vec<RoutePath>,
    /// Number of links passed.
    pub hops: u32,
    /// Physical links in parallel at the narrowest point.
    pub width: u32,
    /// Theoretical peak per direction, where it is known.
    pub peak: Option<Rate>,
    /// Whether all of `paths` carry a part of each transfer, as switches of one tier do.
    pub striped: bool,
    /// Whether it passes a NUMA domain because no GPU fabric joins the pair.
    pub through_host: bool,
    /// Whether a source stated the route or its length; else it is derived.
    pub stated: bool,
}

/// The links of a node, ready to be searched.
#[derive(Debug, Clone, Default)]
pub struct RouteTable {
    links: BTreeMap<LinkEnd, BTreeMap<LinkEnd, LinkBundle>>,
    stated: BTreeMap<(LinkEnd, LinkEnd), StatedRoute>,
    gpus: Vec<LinkEnd>,
}

/// A route as a source states it: its length, and the units between where it names them.
#[derive(Debug, Clone)]
struct StatedRoute {
    hops: u32,
    via: Vec<Vec<LinkEnd>>,
}

#[derive(Clone, Copy)]
struct SearchRules {
    src: LinkEnd,
    dst: LinkEnd,
    through_host: bool,
    min_width: u32,
}

impl SearchRules {
    /// Whether a route may pass from `u` to `v` over `bundle`.
    fn admits(&self, u: LinkEnd, v: LinkEnd, bundle: &LinkBundle) -> bool {
        let passes = |n| self.passes(n, bundle);
        // The ends may be entered only at the end: a route never comes back to its source.
        bundle.width >= self.min_width && v != self.src && u != self.dst && passes(u) && passes(v)
    }

    /// Whether `bundle` may be taken at `n`, which is an end or lets through what comes over it.
    fn passes(&self, n: LinkEnd, bundle: &LinkBundle) -> bool {
        match n {
            _ if n == self.src || n == self.dst => true,
            LinkEnd::Switch(_) => true,
            LinkEnd::Numa(_) => self.through_host,
            LinkEnd::Store(_) => false,
            LinkEnd::Gpu(_) => !self.through_host && bundle.kind == LinkKind::Xgmi,
        }
    }
}

impl RouteTable {
    /// Indexes the links and stated routes of a topology.
    pub fn of(topology: &Topology) -> Self {
        let mut routes = Self::default();
        let mut gpus: BTreeSet<LinkEnd> =
            topology.gpus.iter().map(|g| LinkEnd::Gpu(g.index)).collect();
        for link in topology.links.iter().filter(|l| l.a != l.b && l.width > 0) {
            for (a, b) in [(link.a, link.b), (link.b, link.a)] {
                if let LinkEnd::Gpu(_) = a {
                    gpus.insert(a);
                }
                let new = LinkBundle { kind: link.kind, width: link.width, peak: link.peak };
                routes
                    .links
                    .entry(a)
                    .or_default()
                    .entry(b)
                    .and_modify(|old| *old = merge(*old, new))
                    .or_insert(new);
            }
        }
        for route in &topology.routes {
            routes.stated.insert(
                (route.src, route.dst),
                StatedRoute { hops: route.hops, via: route.via.clone() },
            );
        }
        routes.gpus = gpus.into_iter().collect();
        routes
    }

    /// The GPUs, by number.
    pub fn gpus(&self) -> &[LinkEnd] {
        &self.gpus
    }

    /// The direct links from `a` to `b`, if there are any.
    pub fn direct(&self, a: LinkEnd, b: LinkEnd) -> Option<LinkBundle> {
        self.links.get(&a)?.get(&b).copied()
    }

    /// Number of direct physical links; 0 if the pair is not joined directly.
    pub fn link_count(&self, a: LinkEnd, b: LinkEnd) -> u32 {
        self.direct(a, b).map_or(0, |bundle| bundle.width)
    }

    /// Units that are joined directly to `a`, and how.
    pub fn neighbours(&self, a: LinkEnd) -> impl Iterator<Item = (LinkEnd, LinkBundle)> + '_ {
        self.links.get(&a).into_iter().flatten().map(|(&b, &bundle)| (b, bundle))
    }

    /// All routes of the fewest links, in the order of the units passed. Empty if there is none.
    pub fn shortest(&self, src: LinkEnd, dst: LinkEnd) -> Vec<RoutePath> {
        self.shortest_within(self.rules(src, dst))
    }

    /// The routes whose narrowest bundle is as wide as can be had, and of those the ones with the
    /// fewest links.
    pub fn widest(&self, src: LinkEnd, dst: LinkEnd) -> Vec<RoutePath> {
        let rules = self.rules(src, dst);
        let shortest = self.shortest_within(rules);
        if shortest.is_empty() || is_striped(&shortest) {
            return shortest;
        }
        let widths = self.widths_from(src, rules.through_host);
        let min_width = widths.get(&dst).copied().unwrap_or(1);
        self.shortest_within(SearchRules { min_width, ..rules })
    }

    /// The width of the widest route of the GPU fabric from `src` to each unit that it reaches, which
    /// is cheaper for all at once than to ask for each pair.
    pub fn fabric_widths(&self, src: LinkEnd) -> BTreeMap<LinkEnd, u32> {
        self.widths_from(src, false)
    }

    /// The same, through the host only if `through_host`. Settles the reached unit of the widest
    /// route next (Dijkstra's order).
    fn widths_from(&self, src: LinkEnd, through_host: bool) -> BTreeMap<LinkEnd, u32> {
        let mut reached: BTreeMap<LinkEnd, u32> = BTreeMap::new();
        let mut passed: BTreeSet<LinkEnd> = BTreeSet::new();
        let mut open = BinaryHeap::from([(u32::MAX, src)]);
        while let Some((width, u)) = open.pop() {
            if !passed.insert(u) {
                continue;
            }
            for (v, bundle) in self.neighbours(u) {
                // To be reached, `v` is the end of a route; to be passed on from, it is none.
                let to = |dst| SearchRules { src, dst, through_host, min_width: 1 };
                if passed.contains(&v) || !to(v).admits(u, v, &bundle) {
                    continue;
                }
                let width = width.min(bundle.width);
                let best = reached.entry(v).or_default();
                *best = width.max(*best);
                // No unit is its own neighbour: a route to `u` is one on which `v` is passed.
                if to(u).passes(v, &bundle) {
                    open.push((width, v));
                }
            }
        }
        reached
    }

    /// The route that the fabric uses. As stated, if a source states it; with only its length
    /// stated, the widest of that length; else the widest of the shortest, which is what AMD's
    /// KFD weights and NVIDIA's switches come to.
    pub fn in_use(&self, src: LinkEnd, dst: LinkEnd) -> Option<InUse> {
        let rules = self.rules(src, dst);
        let stated = self.stated.get(&(src, dst));
        let mut paths = stated.map(|stated| self.stated_paths(rules, stated)).unwrap_or_default();
        let is_stated = !paths.is_empty();
        if !is_stated {
            paths = self.shortest_within(rules);
        }
        let striped = is_striped(&paths);
        let best = paths.iter().map(|p| p.width).max()?;
        if !striped {
            paths.retain(|p| p.width == best);
        }
        let peaks = paths.iter().map(|p| p.peak);
        let peak = if striped {
            peaks.sum::<Option<Rate>>()
        } else {
            peaks.reduce(|a, b| Some(a?.min(b?))).flatten()
        };
        Some(InUse {
            hops: paths.first()?.hops(),
            width: if striped { total_width(&paths) } else { best },
            peak,
            striped,
            through_host: rules.through_host,
            stated: is_stated,
            paths,
        })
    }

    /// Number of links of the route in use; none if there is no route.
    pub fn hops(&self, src: LinkEnd, dst: LinkEnd) -> Option<u32> {
        self.in_use(src, dst).map(|route| route.hops)
    }

    fn stated_paths(
        &self,
        rules: SearchRules,
        StatedRoute { hops, via }: &StatedRoute,
    ) -> Vec<RoutePath> {
        let given: Vec<RoutePath> = via
            .iter()
            .take(MAX_ROUTES)
            .filter_map(|between| {
                let ends = |n: &LinkEnd| *n == rules.src || *n == rules.dst;
                let mut nodes = vec![rules.src];
                nodes.extend(between.iter().filter(|n| !ends(n)));
                nodes.push(rules.dst);
                self.path(nodes)
            })
            .collect();
        let sane = (1..=MAX_HOPS).contains(hops);
        if given.is_empty() && sane { self.of_length(rules, *hops) } else { given }
    }

    /// Through the host only where the GPU fabric does not join the pair.
    fn rules(&self, src: LinkEnd, dst: LinkEnd) -> SearchRules {
        let fabric = SearchRules { src, dst, through_host: false, min_width: 1 };
        let joined = self.distances(fabric).contains_key(&src);
        SearchRules { through_host: !joined, ..fabric }
    }

    /// Number of links to the destination, for every unit that is nearer to it than the source, and
    /// for the source, if it can be reached from there.
    fn distances(&self, rules: SearchRules) -> BTreeMap<LinkEnd, u32> {
        let direct = self.direct(rules.dst, rules.src);
        if direct.is_some_and(|bundle| rules.admits(rules.src, rules.dst, &bundle)) {
            return BTreeMap::from([(rules.dst, 0), (rules.src, 1)]);
        }
        self.search(rules, u32::MAX, true)
    }

    /// The same for units of at most `most` links; where `to_source`, it ends at the source. A unit is
    /// found only after all that are nearer.
    fn search(&self, rules: SearchRules, most: u32, to_source: bool) -> BTreeMap<LinkEnd, u32> {
        let mut distance = BTreeMap::from([(rules.dst, 0)]);
        let mut queue = VecDeque::from([(rules.dst, 0)]);
        while let Some((v, d)) = queue.pop_front().filter(|(_, d)| *d < most) {
            for (u, bundle) in self.neighbours(v) {
                if rules.admits(u, v, &bundle) && !distance.contains_key(&u) {
                    distance.insert(u, d + 1);
                    queue.push_back((u, d + 1));
                    if to_source && u == rules.src {
                        return distance;
                    }
                }
            }
        }
        distance
    }

    fn shortest_within(&self, rules: SearchRules) -> Vec<RoutePath> {
        let distance = self.distances(rules);
        match distance.get(&rules.src) {
            Some(&hops) if hops > 0 => self.walk(rules, &distance, hops),
            _ => Vec::new(),
        }
    }

    fn of_length(&self, rules: SearchRules, hops: u32) -> Vec<RoutePath> {
        // Of the last unit before the source, `hops` - 1 links are left.
        self.walk(rules, &self.search(rules, hops.saturating_sub(1), false), hops)
    }

    /// Simple routes of exactly `hops` links, in the order of the units passed.
    fn walk(
        &self,
        rules: SearchRules,
        distance: &BTreeMap<LinkEnd, u32>,
        hops: u32,
    ) -> Vec<RoutePath> {
        let mut found = Vec::new();
        let mut stack = vec![vec![rules.src]];
        let mut steps = 0;
        while let Some(nodes) = stack.pop() {
            if steps > MAX_STEPS || found.len() >= MAX_ROUTES {
                break;
            }
            let Some(&at) = nodes.last() else { continue };
            let left = hops.saturating_sub(nodes.len() as u32 - 1);
            if left == 0 {
                found.extend((at == rules.dst).then(|| self.path(nodes)).flatten());
                continue;
            }
            let fits = |(v, bundle): &(LinkEnd, LinkBundle)| {
                rules.admits(at, *v, bundle)
                    && !nodes.contains(v)
                    && distance.get(v).is_some_and(|&d| d < left)
            };
            // Only the destination is nearer than one link.
            let last = (left == 1).then(|| self.direct(at, rules.dst));
            let next: Vec<(LinkEnd, LinkBundle)> = match last {
                Some(bundle) => bundle.map(|b| (rules.dst, b)).filter(fits).into_iter().collect(),
                None => self.neighbours(at).filter(fits).collect(),
            };
            // Pushed in reverse, so that lower numbers are taken up first.
            steps += next.len();
            for (v, _) in next.into_iter().rev() {
                let mut longer = nodes.clone();
                longer.push(v);
                stack.push(longer);
            }
        }
        found
    }

    fn path(&self, nodes: Vec<LinkEnd>) -> Option<RoutePath> {
        let bundles: Vec<LinkBundle> = nodes
            .windows(2)
            .map(|pair| self.direct(*pair.first()?, *pair.last()?))
            .collect::<Option<_>>()?;
        let width = bundles.iter().map(|b| b.width).min()?;
        let peak = bundles.iter().map(|b| b.peak).reduce(|a, b| Some(a?.min(b?))).flatten();
        Some(RoutePath { nodes, width, peak })
    }
}

fn merge(old: LinkBundle, new: LinkBundle) -> LinkBundle {
    LinkBundle {
        kind: if new.width > old.width { new.kind } else { old.kind },
        width: old.width.saturating_add(new.width),
        peak: old.peak.zip(new.peak).map(|(a, b)| a + b),
    }
}

/// Several routes, each over nothing but switches: the ends spread every transfer over all.
fn is_striped(paths: &[RoutePath]) -> bool {
    let inner =
        |p: &RoutePath| p.nodes.len() > 2 && p.nodes[1..p.nodes.len() - 1].iter().all(is_switch);
    paths.len() > 1 && paths.iter().all(inner)
}

/// Width of routes that carry a part each.
pub(crate) fn total_width(paths: &[RoutePath]) -> u32 {
    paths.iter().fold(0, |sum, p| sum.saturating_add(p.width))
}

fn is_switch(node: &LinkEnd) -> bool {
    matches!(node, LinkEnd::Switch(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::{GpuRoute, Link};

    fn link(a: LinkEnd, b: LinkEnd, kind: LinkKind, width: u32, peak: f64) -> Link {
        Link { a, b, kind, width, peak: Some(Rate(peak)) }
    }

    /// The MI250X node: widths of LUMI, Frontier and arXiv:2410.00801, 50 GB/s a link.
    fn mi250x() -> Topology {
        let widths = [
            (0, 1, 4),
            (2, 3, 4),
            (4, 5, 4),
            (6, 7, 4),
            (0, 6, 2),
            (2, 4, 2),
            (0, 2, 1),
            (1, 3, 1),
            (1, 5, 1),
            (3, 7, 1),
            (4, 6, 1),
            (5, 7, 1),
        ];
        let gpu = LinkEnd::Gpu;
        let mut links: Vec<Link> = widths
            .map(|(a, b, w)| link(gpu(a), gpu(b), LinkKind::Xgmi, w, 50.0 * f64::from(w)))
            .to_vec();
        // Host links, which must not become short cuts: 0 and 1 share a NUMA domain.
        for (g, n) in [(0, 3), (1, 3), (2, 1), (3, 1), (4, 0), (5, 0), (6, 2), (7, 2)] {
            links.push(link(gpu(g), LinkEnd::Numa(n), LinkKind::Xgmi, 1, 36.0));
        }
        let three = |a, b| GpuRoute { src: gpu(a), dst: gpu(b), hops: 3, via: Vec::new() };
        let routes = vec![three(1, 7), three(7, 1), three(3, 5), three(5, 3)];
        Topology { links, routes, ..Topology::default() }
    }

    fn gpus(paths: &[RoutePath]) -> Vec<Vec<u32>> {
        let number = |n: &LinkEnd| if let LinkEnd::Gpu(n) = n { *n } else { u32::MAX };
        paths.iter().map(|p| p.nodes.iter().map(number).collect()).collect()
    }

    #[test]
    fn three_hop_pairs_take_the_widest_route() {
        let routes = RouteTable::of(&mi250x());
        for (a, b, path) in [
            (1, 7, vec![1, 0, 6, 7]),
            (7, 1, vec![7, 6, 0, 1]),
            (3, 5, vec![3, 2, 4, 5]),
            (5, 3, vec![5, 4, 2, 3]),
        ] {
            let used = routes.in_use(LinkEnd::Gpu(a), LinkEnd::Gpu(b)).unwrap();
            assert_eq!((used.hops, used.width, used.peak), (3, 2, Some(Rate(100.0))));
            assert!(used.stated);
            let paths = [path];
            assert_eq!(gpus(&used.paths), paths);
            assert_eq!(gpus(&routes.widest(LinkEnd::Gpu(a), LinkEnd::Gpu(b))), paths);
        }
        let short = routes.shortest(LinkEnd::Gpu(1), LinkEnd::Gpu(7));
        assert_eq!(gpus(&short), [[1, 3, 7], [1, 5, 7]]);
        assert_eq!(short[0].width, 1);
    }

    /// Classes of the published table: hops and width of the route in use, for all 28 pairs.
    #[test]
    fn every_pair_has_its_published_class() {
        let routes = RouteTable::of(&mi250x());
        type Pairs = &'static [(u32, u32)];
        let classes: [(u32, u32, Pairs); 6] = [
            (1, 4, &[(0, 1), (2, 3), (4, 5), (6, 7)]),
            (1, 2, &[(0, 6), (2, 4)]),
            (1, 1, &[(0, 2), (1, 3), (1, 5), (3, 7), (4, 6), (5, 7)]),
            (2, 2, &[(0, 7), (1, 6), (2, 5), (3, 4)]),
            (
                2,
                1,
                &[(0, 3), (0, 4), (1, 2), (2, 6), (4, 7), (5, 6), (0, 5), (1, 4), (2, 7), (3, 6)],
            ),
            (3, 2, &[(1, 7), (3, 5)]),
        ];
        assert_eq!(classes.iter().map(|c| c.2.len()).sum::<usize>(), 28);
        for (hops, width, pairs) in classes {
            for &(a, b) in pairs {
                for (a, b) in [(a, b), (b, a)] {
                    let used = routes.in_use(LinkEnd::Gpu(a), LinkEnd::Gpu(b)).unwrap();
                    assert_eq!((used.hops, used.width), (hops, width), "{a} to {b}");
                    assert!(!used.through_host);
                }
            }
        }
        for (a, b) in [(0, 3), (0, 4), (1, 2), (2, 6), (4, 7), (5, 6)] {
            assert_eq!(routes.in_use(LinkEnd::Gpu(a), LinkEnd::Gpu(b)).unwrap().paths.len(), 2);
        }
        assert_eq!(routes.link_count(LinkEnd::Gpu(0), LinkEnd::Gpu(1)), 4);
        assert_eq!(routes.link_count(LinkEnd::Gpu(0), LinkEnd::Gpu(7)), 0);
    }

    #[test]
    fn switches_of_one_tier_add_up() {
        // 5 + 4 + 4 + 5 = 18 NVLinks of 25 GB/s: 450 GB/s over four switches.
        let mut links = Vec::new();
        for g in 0..8 {
            for (s, w) in [(0, 5), (1, 4), (2, 4), (3, 5)] {
                let peak = 25.0 * f64::from(w);
                links.push(link(LinkEnd::Gpu(g), LinkEnd::Switch(s), LinkKind::Nvlink, w, peak));
            }
        }
        let routes = RouteTable::of(&Topology { links, ..Topology::default() });
        let used = routes.in_use(LinkEnd::Gpu(2), LinkEnd::Gpu(7)).unwrap();
        assert_eq!((used.hops, used.width, used.peak), (2, 18, Some(Rate(450.0))));
        assert!(used.striped);
        assert_eq!(routes.gpus().len(), 8);
    }

    /// Every pair of 300 GPUs joined, a stated length of 15, widths that overflow when added.
    #[test]
    fn absurd_topologies_are_bounded() {
        let mut links = Vec::new();
        for a in 0..300 {
            links.push(link(LinkEnd::Gpu(a), LinkEnd::Switch(0), LinkKind::Xgmi, u32::MAX, 1.0));
            links.push(link(LinkEnd::Gpu(a), LinkEnd::Switch(1), LinkKind::Xgmi, u32::MAX, 1.0));
            for b in 0..a {
                links.push(link(LinkEnd::Gpu(a), LinkEnd::Gpu(b), LinkKind::Xgmi, u32::MAX, 1.0));
            }
        }
        let long =
            |hops| GpuRoute { src: LinkEnd::Gpu(0), dst: LinkEnd::Gpu(1), hops, via: Vec::new() };
        for hops in [2, 15, u32::MAX] {
            let routes = vec![long(hops)];
            let links = links.clone();
            let routes = RouteTable::of(&Topology { links, routes, ..Topology::default() });
            let used = routes.in_use(LinkEnd::Gpu(0), LinkEnd::Gpu(1)).unwrap();
            assert!(used.paths.len() <= MAX_ROUTES && used.width == u32::MAX);
        }
    }

    #[test]
    fn nvlink_gpus_do_not_forward_and_the_host_joins_them() {
        let gpu = LinkEnd::Gpu;
        let links = vec![
            link(gpu(0), gpu(1), LinkKind::Nvlink, 1, 25.0),
            link(gpu(1), gpu(2), LinkKind::Nvlink, 1, 25.0),
            link(gpu(0), LinkEnd::Numa(0), LinkKind::Pcie, 1, 32.0),
            link(gpu(2), LinkEnd::Numa(1), LinkKind::Pcie, 1, 16.0),
            link(LinkEnd::Numa(0), LinkEnd::Numa(1), LinkKind::Cpu, 1, 40.0),
        ];
        let routes = RouteTable::of(&Topology { links, ..Topology::default() });
        let used = routes.in_use(gpu(0), gpu(2)).unwrap();
        assert!(used.through_host);
        assert_eq!((used.hops, used.peak), (3, Some(Rate(16.0))));
        assert_eq!(routes.in_use(gpu(1), gpu(2)).unwrap().hops, 1);
        assert_eq!(routes.in_use(gpu(0), gpu(9)), None);
        assert_eq!(routes.in_use(gpu(0), gpu(0)), None);
    }

    /// The search ends early where it may: what it finds is what a search of everything finds, each
    /// width tried, the greatest first.
    #[test]
    fn ending_early_loses_no_route() {
        let mut seed = 1u64;
        let mut draw = |n: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        let mut found = 0;
        for _ in 0..300 {
            let node =
                |n| if n < 6 { LinkEnd::Gpu(n as u32) } else { LinkEnd::Switch(n as u32 - 6) };
            let links = (0..12).map(|_| {
                let kind = if draw(5) == 0 { LinkKind::Nvlink } else { LinkKind::Xgmi };
                link(node(draw(8)), node(draw(8)), kind, draw(5) as u32, 1.0)
            });
            let routes =
                RouteTable::of(&Topology { links: links.collect(), ..Topology::default() });
            for (src, dst) in
                (0..6).flat_map(|a| (0..6).map(move |b| (LinkEnd::Gpu(a), LinkEnd::Gpu(b))))
            {
                let whole = |rules: SearchRules| {
                    let distance = routes.search(rules, u32::MAX, false);
                    match distance.get(&src) {
                        Some(&hops) if hops > 0 => routes.walk(rules, &distance, hops),
                        _ => Vec::new(),
                    }
                };
                let rules = routes.rules(src, dst);
                assert_eq!(routes.shortest(src, dst), whole(rules));
                let widest = routes.widest(src, dst);
                if is_striped(&widest) {
                    continue;
                }
                let of_width = |&width: &u32| whole(SearchRules { min_width: width, ..rules });
                let slow = [4, 3, 2, 1].iter().map(of_width).find(|paths| !paths.is_empty());
                assert_eq!(widest, slow.unwrap_or_default());
                found += widest.len();
            }
        }
        assert!(found > 1000, "{found}");
    }
}
