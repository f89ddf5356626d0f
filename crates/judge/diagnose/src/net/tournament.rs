//! Who is measured with whom.

/// Rounds in which each of `n` meets each other once, by position: n - 1 rounds in each of which all take part, or n
/// with one left out in each if n is odd. The circle method.
pub fn tournament(n: usize) -> Vec<Vec<[usize; 2]>> {
    let even = n + n % 2;
    let rounds = even.saturating_sub(1);
    let round = |nth: usize| {
        let at = |seat: usize| if seat == 0 { 0 } else { (nth + seat - 1) % rounds + 1 };
        let pairs = (0..even / 2).map(|seat| [at(seat), at(even - 1 - seat)]);
        pairs.filter(|pair| pair.iter().all(|player| *player < n)).collect()
    };
    (0..rounds).map(round).collect()
}

/// The pairs of round `nth` among these nodes, with these pairs among them. Nodes stand in the circle in an order
/// that is random, since neighbours share leaves, and the same in every check.
pub(super) fn pairs_of_round(
    nodes: &[usize],
    nth: usize,
    wanted: &[[usize; 2]],
) -> Vec<[usize; 2]> {
    let mut order = nodes.to_vec();
    // Fisher-Yates by Knuth's MMIX generator.
    let mut state = 0x9e37_79b9_u64;
    for at in (1..order.len()).rev() {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(at, (state >> 33) as usize % (at + 1));
    }
    let rounds = tournament(order.len());
    let round = rounds.get(spread_round(nth, rounds.len())).cloned().unwrap_or_default();
    let node = |at: usize| order.get(at).copied().unwrap_or_default();
    let mut pairs: Vec<[usize; 2]> = round.iter().map(|pair| pair.map(node)).collect();
    for wanted in wanted.iter().filter(|pair| pair.iter().all(|node| nodes.contains(node))) {
        force_pair(&mut pairs, *wanted);
    }
    pairs
}

/// Number of the `nth` of `rounds` to measure. Rounds that follow each other in the circle join nodes into long chains,
/// in which one wrong pair parts many nodes; these are golden sections of the circle apart.
fn spread_round(nth: usize, rounds: usize) -> usize {
    let is_coprime = |step: &usize| {
        let (mut a, mut b) = (*step, rounds);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a == 1
    };
    let golden = (0.382 * rounds as f64) as usize;
    let step = (golden..rounds).find(is_coprime).unwrap_or(1);
    nth * step % rounds.max(1)
}

/// Puts a pair into a round; the two that lose their partners meet each other.
fn force_pair(pairs: &mut Vec<[usize; 2]>, wanted: [usize; 2]) {
    let meets = |pair: &[usize; 2]| pair.iter().any(|node| wanted.contains(node));
    let (met, kept): (Vec<_>, Vec<_>) = pairs.iter().copied().partition(meets);
    let left: Vec<usize> =
        met.into_iter().flatten().filter(|node| !wanted.contains(node)).collect();
    *pairs = kept;
    pairs.push(wanted);
    if let [a, b] = left[..] {
        pairs.push([a, b]);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_meets_each_other_once_and_all_take_part() {
        for n in 0..=33 {
            let rounds = tournament(n);
            assert_eq!(rounds.len(), if n < 2 { n } else { n - 1 + n % 2 }, "{n}");
            let mut met = BTreeSet::new();
            for round in &rounds {
                let players: BTreeSet<usize> = round.iter().flatten().copied().collect();
                assert_eq!((round.len(), players.len()), (n / 2, n / 2 * 2), "{n}: {round:?}");
                met.extend(round.iter().map(|[a, b]| (*a.min(b), *a.max(b))));
            }
            assert_eq!(met.len(), n * n.saturating_sub(1) / 2, "{n}");
        }
    }

    #[test]
    fn all_rounds_are_measured_before_one_comes_again() {
        for rounds in 1..=99 {
            let met: BTreeSet<usize> = (0..rounds).map(|nth| spread_round(nth, rounds)).collect();
            assert_eq!(met.len(), rounds);
        }
        // Golden sections of 63 rounds: 25, 50, 75 - 63, ...
        assert_eq!([1, 2, 3, 64].map(|nth| spread_round(nth, 63)), [25, 50, 12, 25]);
    }

    #[test]
    fn a_wanted_pair_joins_a_round_of_all() {
        let nodes: Vec<usize> = (0..9).collect();
        for nth in 0..20 {
            let pairs = pairs_of_round(&nodes, nth, &[[2, 7], [3, 12]]);
            let players: BTreeSet<usize> = pairs.iter().flatten().copied().collect();
            assert!(pairs.contains(&[2, 7]) && !players.contains(&12), "{pairs:?}");
            assert!(pairs.len() >= 3 && players.len() == 2 * pairs.len(), "{pairs:?}");
        }
    }
}
