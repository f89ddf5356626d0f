//! Positions of GPUs in the picture: two facing columns, ordered so that links cross as little as
//! possible and wide links are short.

use std::collections::BTreeMap;

use pathline_schema::{LinkEnd, Topology};

/// Maximum number of GPUs to reorder.
const MAX_ORDERED: usize = 16;

/// Maximum number of link pairs to examine over all orders of the domains, about a tenth of a
/// second; beyond it the domains keep their order.
const MAX_PAIRS: usize = 20_000_000;

/// Adjacent GPUs of one NUMA domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DomainGroup {
    /// The domain; `None` if unknown.
    pub(super) domain: Option<u32>,
    /// Top to bottom.
    pub(super) gpus: Vec<u32>,
}

/// Groups of the left and right columns, top to bottom.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct GroupColumns {
    pub(super) left: Vec<DomainGroup>,
    pub(super) right: Vec<DomainGroup>,
    /// Whether all groups belong to one domain, which then encloses both columns.
    pub(super) one_domain: bool,
}

struct LayoutSearch {
    /// Width of the links of each pair, in both orders.
    widths: BTreeMap<(u32, u32), u32>,
    packages: BTreeMap<u32, u32>,
}

impl GroupColumns {
    pub(super) fn new(topology: &Topology) -> Self {
        let mut domains: BTreeMap<Option<u32>, Vec<u32>> = BTreeMap::new();
        for domain in &topology.numa {
            domains.entry(Some(domain.id)).or_default();
        }
        for gpu in &topology.gpus {
            let known = gpu.numa.filter(|id| topology.numa.iter().any(|d| d.id == *id));
            domains.entry(known).or_default().push(gpu.index);
        }
        let with: Vec<DomainGroup> = domains
            .iter()
            .filter(|(_, gpus)| !gpus.is_empty())
            .map(|(&domain, gpus)| DomainGroup { domain, gpus: gpus.clone() })
            .collect();
        let without = domains
            .iter()
            .filter(|(domain, gpus)| gpus.is_empty() && domain.is_some())
            .map(|(&domain, _)| DomainGroup { domain, gpus: Vec::new() });
        let search = LayoutSearch::new(topology);
        let mut columns = match with.as_slice() {
            [only] => search.split(only),
            groups => search.arrange(groups),
        };
        columns.one_domain = with.len() == 1 && topology.numa.len() < 2;
        columns.turn();
        for group in without {
            let (left, right) = (columns.left.len(), columns.right.len());
            if left <= right { columns.left.push(group) } else { columns.right.push(group) }
        }
        columns
    }
}

impl GroupColumns {
    /// Mirrors the picture so that the lowest number is at the upper left.
    fn turn(&mut self) {
        let lowest =
            |groups: &[DomainGroup]| groups.iter().flat_map(|g| g.gpus.iter().copied()).min();
        if lowest(&self.right) < lowest(&self.left) && lowest(&self.right).is_some() {
            std::mem::swap(&mut self.left, &mut self.right);
        }
        let order: Vec<u32> = self.left.iter().flat_map(|g| g.gpus.iter().copied()).collect();
        let at = order.iter().enumerate().min_by_key(|(_, gpu)| **gpu).map_or(0, |(at, _)| at);
        if 2 * at >= order.len().max(1) {
            for column in [&mut self.left, &mut self.right] {
                column.reverse();
                for group in column {
                    group.gpus.reverse();
                }
            }
        }
    }

    /// Whether a link connects two GPUs of one column that are not adjacent.
    pub(super) fn skips(&self, topology: &Topology) -> bool {
        let row = |column: &[DomainGroup], gpu: u32| {
            column.iter().flat_map(|g| &g.gpus).position(|&other| other == gpu)
        };
        topology.links.iter().any(|link| {
            let (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) = (link.a, link.b) else { return false };
            [&self.left, &self.right].iter().any(|column| {
                let rows = row(column, a).zip(row(column, b));
                rows.is_some_and(|(a, b)| a.abs_diff(b) > 1)
            })
        })
    }
}

impl LayoutSearch {
    fn new(topology: &Topology) -> Self {
        let mut widths = BTreeMap::new();
        for link in &topology.links {
            if let (LinkEnd::Gpu(a), LinkEnd::Gpu(b)) = (link.a, link.b) {
                widths.insert((a, b), link.width.clamp(1, 8));
                widths.insert((b, a), link.width.clamp(1, 8));
            }
        }
        let package = |gpu: &pathline_schema::Gpu| Some((gpu.index, gpu.package?));
        Self { widths, packages: topology.gpus.iter().filter_map(package).collect() }
    }

    /// One domain: its GPUs in two columns.
    fn split(&self, group: &DomainGroup) -> GroupColumns {
        let half = group.gpus.len().div_ceil(2);
        let part = |gpus: &[u32]| DomainGroup { domain: group.domain, gpus: gpus.to_vec() };
        let (left, right) = group.gpus.split_at(half.min(group.gpus.len()));
        let right = if right.is_empty() { Vec::new() } else { vec![part(right)] };
        let start = GroupColumns { left: vec![part(left)], right, one_domain: true };
        self.improve(start, true)
    }

    /// Several domains: half of them left, half right, in the best order.
    fn arrange(&self, groups: &[DomainGroup]) -> GroupColumns {
        let half = groups.len().div_ceil(2);
        let place = |order: &[usize]| {
            let pick = |at: &[usize]| -> Vec<DomainGroup> {
                at.iter().filter_map(|&i| groups.get(i).cloned()).collect()
            };
            let (left, right) = order.split_at(half.min(order.len()));
            GroupColumns { left: pick(left), right: pick(right), one_domain: false }
        };
        let orders = orders(groups.len());
        let links = self.widths.len() / 2;
        if links.saturating_mul(links).saturating_mul(orders.len()) > MAX_PAIRS {
            return orders.first().map(|order| place(order)).unwrap_or_default();
        }
        let mut best: Option<(u64, GroupColumns)> = None;
        for order in orders {
            let columns = self.improve(place(&order), false);
            let cost = self.cost(&columns);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, columns));
            }
        }
        best.map(|(_, columns)| columns).unwrap_or_default()
    }

    /// Swaps GPUs, within their group or anywhere, as long as that lowers the cost.
    fn improve(&self, mut columns: GroupColumns, anywhere: bool) -> GroupColumns {
        let places = |columns: &GroupColumns| -> Vec<(usize, usize)> {
            let groups = columns.left.iter().chain(&columns.right).enumerate();
            groups.flat_map(|(g, group)| (0..group.gpus.len()).map(move |i| (g, i))).collect()
        };
        let places = places(&columns);
        if places.len() > MAX_ORDERED || self.widths.is_empty() {
            return columns;
        }
        let mut cost = self.cost(&columns);
        loop {
            let mut best: Option<(u64, GroupColumns)> = None;
            for (at, &a) in places.iter().enumerate() {
                for &b in places.iter().skip(at + 1).filter(|b| anywhere || b.0 == a.0) {
                    // Reversing a range keeps packages together where a swap would separate them.
                    for changed in [swap(&columns, a, b), turn(&columns, a, b)] {
                        let new = self.cost(&changed);
                        if new < best.as_ref().map_or(cost, |(least, _)| *least) {
                            best = Some((new, changed));
                        }
                    }
                }
            }
            match best {
                Some((new, better)) => (cost, columns) = (new, better),
                None => return columns,
            }
        }
    }

    fn cost(&self, columns: &GroupColumns) -> u64 {
        let mut place: BTreeMap<u32, (usize, i64)> = BTreeMap::new();
        for (side, groups) in [&columns.left, &columns.right].into_iter().enumerate() {
            let gpus = groups.iter().flat_map(|group| &group.gpus);
            place.extend(gpus.zip(0..).map(|(&gpu, row)| (gpu, (side, row))));
        }
        let edges: Vec<(GridPlace, GridPlace, u32)> = self
            .widths
            .iter()
            .filter(|&(&(a, b), _)| a < b)
            .filter_map(|(&(a, b), &width)| Some((*place.get(&a)?, *place.get(&b)?, width)))
            .collect();
        let mut cost = 0;
        for (at, &(a, b, width)) in edges.iter().enumerate() {
            let rows = (a.1 - b.1).unsigned_abs();
            let detour = if a.0 == b.0 { (rows.max(1) - 1) * 6 } else { rows };
            cost += detour * u64::from(width);
            let others = edges.iter().skip(at + 1);
            cost += 8 * others.filter(|&&(c, d, _)| cross((a, b), (c, d))).count() as u64;
        }
        // The GPUs of a package are adjacent.
        for (&gpu, &package) in &self.packages {
            for (&other, &(side, row)) in &place {
                if other > gpu && self.packages.get(&other) == Some(&package) {
                    let near =
                        place.get(&gpu).is_some_and(|p| p.0 == side && (p.1 - row).abs() == 1);
                    cost += if near { 0 } else { 1000 };
                }
            }
        }
        cost
    }
}

/// Column and row.
type GridPlace = (usize, i64);

/// Whether two links cross: straight ones between the columns, arcs within one.
fn cross((a, b): (GridPlace, GridPlace), (c, d): (GridPlace, GridPlace)) -> bool {
    let sorted = |p: GridPlace, q: GridPlace| if p <= q { (p, q) } else { (q, p) };
    let ((a, b), (c, d)) = (sorted(a, b), sorted(c, d));
    let between = |row: i64, low: i64, high: i64| low < row && row < high;
    match (a.0 == b.0, c.0 == d.0) {
        (false, false) => (a.1 - c.1) * (b.1 - d.1) < 0,
        (true, true) => {
            a.0 == c.0
                && (between(c.1, a.1, b.1) != between(d.1, a.1, b.1))
                && ![c.1, d.1].iter().any(|row| [a.1, b.1].contains(row))
        }
        (true, false) => between(if a.0 == 0 { c.1 } else { d.1 }, a.1, b.1),
        (false, true) => between(if c.0 == 0 { a.1 } else { b.1 }, c.1, d.1),
    }
}

fn swap(columns: &GroupColumns, a: (usize, usize), b: (usize, usize)) -> GroupColumns {
    let mut new = columns.clone();
    let mut groups: Vec<&mut DomainGroup> = new.left.iter_mut().chain(&mut new.right).collect();
    let at =
        |groups: &[&mut DomainGroup], p: (usize, usize)| groups.get(p.0)?.gpus.get(p.1).copied();
    if let (Some(x), Some(y)) = (at(&groups, a), at(&groups, b)) {
        for (place, gpu) in [(a, y), (b, x)] {
            if let Some(slot) = groups.get_mut(place.0).and_then(|g| g.gpus.get_mut(place.1)) {
                *slot = gpu;
            }
        }
    }
    new
}

/// Reverses the range from `a` to `b` of one group.
fn turn(columns: &GroupColumns, a: (usize, usize), b: (usize, usize)) -> GroupColumns {
    let mut new = columns.clone();
    let group = new.left.iter_mut().chain(&mut new.right).nth(a.0);
    let stretch = group.filter(|_| a.0 == b.0).and_then(|group| group.gpus.get_mut(a.1..=b.1));
    if let Some(stretch) = stretch {
        stretch.reverse();
    }
    new
}

/// All permutations of up to five items, the identity first; only the identity for more.
fn orders(n: usize) -> Vec<Vec<usize>> {
    let natural: Vec<usize> = (0..n).collect();
    if n > 5 {
        return vec![natural];
    }
    let mut all = vec![Vec::new()];
    for _ in 0..n {
        let longer = |order: &Vec<usize>| -> Vec<Vec<usize>> {
            let free = natural.iter().filter(|i| !order.contains(i));
            free.map(|&i| [order.as_slice(), &[i]].concat()).collect()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}
