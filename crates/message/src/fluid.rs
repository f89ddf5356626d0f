//! Transfers that wait for each other and share the machine: when each ends.

use pathline_flow::{Demand, Solver, Use};

/// The way of a transfer: what it shares, and what it gets alone.
#[derive(Debug, Clone)]
pub(crate) struct Way {
    pub uses: Vec<Use>,
    /// GB/s, which is bytes per ns.
    pub cap: f64,
    /// Start of an idle engine, as the machine states it, ns.
    pub alpha: f64,
    /// Its weight where rates are shared out.
    pub share: f64,
}

impl Way {
    pub(crate) fn demand(&self) -> Demand<'_> {
        Demand { uses: &self.uses, cap: self.cap, share: self.share }
    }
}

/// One transfer of a schedule.
#[derive(Debug, Clone)]
pub(crate) struct Transfer {
    pub way: std::sync::Arc<Way>,
    pub bytes: f64,
    /// From the end of what it waits for to its first byte, ns.
    pub start: f64,
    /// From its last byte to its end, ns: what the receiver computes.
    pub tail: f64,
    /// Transfers that end before it starts; all stand before it.
    pub after: Vec<usize>,
}

/// Events that differ by less than this share of the time are one.
const SAME: f64 = 1e-12;

/// When each transfer ends, in ns from the start. Those under way share what they pass by max-min
/// fairness, computed anew whenever one begins or ends.
pub(crate) fn ends(capacities: &[f64], transfers: &[Transfer]) -> Vec<f64> {
    let mut ends = vec![f64::INFINITY; transfers.len()];
    let mut waits: Vec<usize> = transfers.iter().map(|t| t.after.len()).collect();
    let mut wanted_by: Vec<Vec<usize>> = vec![Vec::new(); transfers.len()];
    for (i, t) in transfers.iter().enumerate() {
        for &before in &t.after {
            if let Some(list) = wanted_by.get_mut(before) {
                list.push(i);
            }
        }
    }
    let mut ready_at = vec![0.0f64; transfers.len()];
    // Those that will begin, with their time; and those under way, with the bytes they have left.
    let mut begins: Vec<(f64, usize)> = transfers
        .iter()
        .enumerate()
        .filter(|(_, t)| t.after.is_empty())
        .map(|(i, t)| (t.start, i))
        .collect();
    let mut under_way: Vec<(usize, f64)> = Vec::new();
    let (mut solver, mut rates, mut now) = (Solver::default(), Vec::new(), 0.0f64);
    while !begins.is_empty() || !under_way.is_empty() {
        let flows: Vec<Demand<'_>> = under_way
            .iter()
            .filter_map(|&(i, _)| transfers.get(i))
            .map(|t| t.way.demand())
            .collect();
        solver.rates(capacities, &flows, &mut rates);
        let left = |(&(_, bytes), &rate): (&(usize, f64), &f64)| now + bytes / rate.max(1e-12);
        let first_end = under_way.iter().zip(&rates).map(left).fold(f64::INFINITY, f64::min);
        let first_begin = begins.iter().map(|b| b.0).fold(f64::INFINITY, f64::min);
        let next = first_end.min(first_begin).max(now);
        let near = next * (1.0 + SAME);
        let mut ended = Vec::new();
        let mut at = 0;
        under_way.retain_mut(|(i, bytes)| {
            let rate = rates.get(at).copied().unwrap_or(0.0).max(1e-12);
            at += 1;
            let over = now + *bytes / rate <= near;
            *bytes = (*bytes - rate * (next - now)).max(0.0);
            if over {
                ended.push(*i);
            }
            !over
        });
        now = next;
        begins.retain(|&(time, i)| {
            let begun = time <= near;
            if begun {
                under_way.push((i, transfers.get(i).map_or(0.0, |t| t.bytes)));
            }
            !begun
        });
        for i in ended {
            let end = now + transfers.get(i).map_or(0.0, |t| t.tail);
            if let Some(slot) = ends.get_mut(i) {
                *slot = end;
            }
            for &then in wanted_by.get(i).map(Vec::as_slice).unwrap_or_default() {
                let (Some(wait), Some(ready)) = (waits.get_mut(then), ready_at.get_mut(then))
                else {
                    continue;
                };
                *wait -= 1;
                *ready = ready.max(end);
                if *wait == 0 {
                    let start = transfers.get(then).map_or(0.0, |t| t.start);
                    begins.push((*ready + start, then));
                }
            }
        }
    }
    ends
}

/// Rates of flows that run at once, GB/s.
pub(crate) fn rates(capacities: &[f64], flows: &[Demand<'_>]) -> Vec<f64> {
    let mut rates = Vec::new();
    Solver::default().rates(capacities, flows, &mut rates);
    rates
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn over(resource: u32) -> Arc<Way> {
        let uses = vec![Use { resource, weight: 1.0 }];
        Arc::new(Way { uses, cap: 100.0, alpha: 0.0, share: 1.0 })
    }

    fn transfer(way: &Arc<Way>, bytes: f64, start: f64, after: Vec<usize>) -> Transfer {
        Transfer { way: way.clone(), bytes, start, tail: 0.0, after }
    }

    #[test]
    fn sharers_slow_down_and_speed_up() {
        // Two of 100 B and 300 B on 10 B/ns: 5 each until 100 B are over at 20 ns, then the other
        // has 200 B left at 10: 40 ns.
        let way = over(0);
        let both = [transfer(&way, 100.0, 0.0, vec![]), transfer(&way, 300.0, 0.0, vec![])];
        let ends = ends(&[10.0], &both);
        assert!((ends[0] - 20.0).abs() < 1e-6 && (ends[1] - 40.0).abs() < 1e-6, "{ends:?}");
    }

    #[test]
    fn what_waits_starts_after_the_last_and_its_own_start() {
        // 100 B at 10 end at 10 ns; 100 B at 20, started at 3, end at 8. The third waits for both,
        // starts 7 ns later and takes 5 ns: 22; with 4 ns of computing, 26.
        let (a, b) = (over(0), over(1));
        let mut three = [
            transfer(&a, 100.0, 0.0, vec![]),
            transfer(&b, 100.0, 3.0, vec![]),
            transfer(&b, 100.0, 7.0, vec![0, 1]),
        ];
        three[2].tail = 4.0;
        let ends = ends(&[10.0, 20.0], &three);
        assert!((ends[1] - 8.0).abs() < 1e-6 && (ends[2] - 26.0).abs() < 1e-6, "{ends:?}");
    }

    #[test]
    fn nothing_to_do_takes_no_time() {
        assert!(ends(&[], &[]).is_empty());
        let none = transfer(&over(0), 0.0, 2.0, vec![]);
        assert_eq!(ends(&[1.0], &[none]), [2.0]);
    }
}
