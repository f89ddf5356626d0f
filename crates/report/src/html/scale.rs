//! Axes: bounds, ticks and pixels of values.

/// Meaning of equal distances on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScaleKind {
    /// Equal differences.
    Linear,
    /// Equal ratios.
    Log,
}

/// An axis: its range of values and of pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AxisScale {
    /// Linear or logarithmic.
    pub(super) kind: ScaleKind,
    /// Lowest and highest value.
    pub(super) domain: (f64, f64),
    /// Pixels of the two bounds; the first may be greater.
    pub(super) range: (f64, f64),
}

impl AxisScale {
    /// The pixel of a value; `None` for values that the axis cannot show: not finite, or not
    /// positive on a logarithmic axis. Values beyond the bounds are clamped.
    pub(super) fn at(&self, v: f64) -> Option<f64> {
        let (lo, hi) = self.domain;
        let share = match self.kind {
            _ if !v.is_finite() => return None,
            ScaleKind::Linear => (v - lo) / (hi - lo),
            ScaleKind::Log if v <= 0.0 => return None,
            ScaleKind::Log => (v / lo).ln() / (hi / lo).ln(),
        };
        let (from, to) = self.range;
        share.is_finite().then(|| from + share.clamp(0.0, 1.0) * (to - from))
    }
}

/// Logarithmic if positive values span a decade or more.
pub(super) fn kind_for(values: &[f64]) -> ScaleKind {
    let mut positive = values.iter().copied().filter(|v| v.is_finite() && *v > 0.0);
    let Some(first) = positive.next() else { return ScaleKind::Linear };
    let (lo, hi) = positive.fold((first, first), |(lo, hi), v| (lo.min(v), hi.max(v)));
    if hi / lo >= 10.0 { ScaleKind::Log } else { ScaleKind::Linear }
}

/// Bounds of a linear axis that includes zero and ends at a tick.
pub(super) fn linear_bounds(values: &[f64], ticks: usize) -> (f64, f64) {
    let finite = || values.iter().copied().filter(|v| v.is_finite() && v.abs() < 1e300);
    let lo = finite().fold(0.0, f64::min);
    let hi = finite().fold(0.0, f64::max);
    if lo == hi {
        return (0.0, 1.0);
    }
    let step = nice_step(hi - lo, ticks);
    ((lo / step).floor() * step, (hi / step).ceil() * step)
}

/// Bounds that just include the values; a single value is in the middle.
pub(super) fn tight_bounds(values: &[f64], kind: ScaleKind) -> Option<(f64, f64)> {
    let usable = |v: &f64| v.is_finite() && (kind == ScaleKind::Linear || *v > 0.0);
    let mut values = values.iter().copied().filter(usable);
    let first = values.next()?;
    let (lo, hi) = values.fold((first, first), |(lo, hi), v| (lo.min(v), hi.max(v)));
    match kind {
        _ if lo < hi => Some((lo, hi)),
        ScaleKind::Linear => Some((lo - 1.0, hi + 1.0)),
        ScaleKind::Log => Some((lo / 2.0, hi * 2.0)),
    }
}

/// Bounds of a logarithmic axis, widened to the next 1, 2 or 5 of a decade.
pub(super) fn log_bounds(values: &[f64]) -> Option<(f64, f64)> {
    let (lo, hi) = tight_bounds(values, ScaleKind::Log)?;
    let below = mantissas(lo).rev().find(|t| *t <= lo * (1.0 + 1e-9));
    let above = mantissas(hi).find(|t| *t >= hi * (1.0 - 1e-9));
    Some((below.unwrap_or(lo), above.unwrap_or(hi)))
}

/// The 1-2-5 numbers of the decades around `v`.
fn mantissas(v: f64) -> impl DoubleEndedIterator<Item = f64> {
    let decade = v.log10().floor() as i32;
    (decade - 1..=decade + 1).flat_map(|d| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(d)))
}

/// A step of 1, 2 or 5 times a power of ten that divides a positive `span` into at most `ticks` parts.
fn nice_step(span: f64, ticks: usize) -> f64 {
    let rough = span / ticks.max(1) as f64;
    mantissas(rough).find(|step| *step >= rough * (1.0 - 1e-9)).unwrap_or(rough)
}

/// Ticks of a linear axis: at most `ticks` + 1.
pub(super) fn linear_ticks((lo, hi): (f64, f64), ticks: usize) -> Vec<f64> {
    if !(lo < hi && (hi - lo).is_finite()) {
        return Vec::new();
    }
    let step = nice_step(hi - lo, ticks);
    let first = (lo / step).ceil() as i64;
    let last = (hi / step * (1.0 + 1e-12)).floor() as i64;
    let last = last.min(first.saturating_add(ticks as i64 + 1));
    (first..=last).map(|i| i as f64 * step).collect()
}

/// Ticks of a decimal logarithmic axis: 1-2-5 if there is room, else decades, else every nth
/// decade.
pub(super) fn decimal_ticks((lo, hi): (f64, f64), most: usize) -> Vec<f64> {
    let (first, last) = (lo.log10().floor() as i32, hi.log10().ceil() as i32);
    let inside = |v: &f64| *v >= lo * (1.0 - 1e-9) && *v <= hi * (1.0 + 1e-9);
    let fine: Vec<f64> = (first..=last)
        .flat_map(|d| [1.0, 2.0, 5.0].map(|m| m * 10f64.powi(d)))
        .filter(inside)
        .collect();
    if fine.len() <= most {
        return fine;
    }
    let decades: Vec<f64> = (first..=last).map(|d| 10f64.powi(d)).filter(inside).collect();
    every_nth(decades, most)
}

/// Ticks at powers of two: all if there is room, else every second, third...
pub(super) fn binary_ticks((lo, hi): (f64, f64), most: usize) -> Vec<f64> {
    let (first, last) = (lo.log2().ceil() as i32, hi.log2().floor() as i32);
    every_nth((first..=last).map(|p| 2f64.powi(p)).collect(), most)
}

/// Reduces ticks to at most `most`, keeping the first.
fn every_nth(ticks: Vec<f64>, most: usize) -> Vec<f64> {
    let n = ticks.len().div_ceil(most.max(1)).max(1);
    ticks.into_iter().step_by(n).collect()
}

/// Separates labels: positions in the given order, at least `gap` apart, within bounds if possible,
/// and near the wanted ones.
pub(super) fn spread(wanted: &[f64], gap: f64, (lo, hi): (f64, f64)) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]).then(a.cmp(&b)));
    let mut places = wanted.to_vec();
    let mut floor = lo;
    for &i in &order {
        places[i] = places[i].max(floor);
        floor = places[i] + gap;
    }
    let mut roof = hi;
    for &i in order.iter().rev() {
        places[i] = places[i].min(roof);
        roof = places[i] - gap;
    }
    places
}

/// The row of each label (start, end), such that labels in a row do not overlap.
pub(super) fn stack(labels: &[(f64, f64)]) -> Vec<usize> {
    let mut ends: Vec<f64> = Vec::new();
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by(|&a, &b| labels[a].0.total_cmp(&labels[b].0).then(a.cmp(&b)));
    let mut rows = vec![0; labels.len()];
    for i in order {
        let (start, end) = labels[i];
        let row = ends.iter().position(|&e| e < start).unwrap_or(ends.len());
        match ends.get_mut(row) {
            Some(e) => *e = end,
            None => ends.push(end),
        }
        rows[i] = row;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_axes_begin_at_zero_and_end_at_a_tick() {
        // 37.8 in 5 parts is 7.56 each; the next 1-2-5 step is 10, and 4 x 10 >= 37.8.
        assert_eq!(linear_bounds(&[12.0, 37.8], 5), (0.0, 40.0));
        assert_eq!(linear_ticks((0.0, 40.0), 5), [0.0, 10.0, 20.0, 30.0, 40.0]);
        assert_eq!(linear_bounds(&[-3.0, 7.0], 5), (-4.0, 8.0));
    }

    #[test]
    fn linear_axes_of_nothing_or_zero_still_have_a_span() {
        assert_eq!(linear_bounds(&[], 5), (0.0, 1.0));
        assert_eq!(linear_bounds(&[0.0, f64::NAN, f64::INFINITY], 5), (0.0, 1.0));
        assert_eq!(linear_ticks((0.0, 0.0), 5), Vec::<f64>::new());
    }

    #[test]
    fn equal_values_share_one_place_inside_the_axis() {
        let domain = linear_bounds(&[8.0, 8.0], 5);
        let axis = AxisScale { kind: ScaleKind::Linear, domain, range: (0.0, 100.0) };
        assert_eq!(domain, (0.0, 8.0));
        assert_eq!(axis.at(8.0), Some(100.0));
        assert_eq!(log_bounds(&[8.0, 8.0]), Some((2.0, 20.0))); // 4..16, widened to 1-2-5
    }

    #[test]
    fn log_bounds_widen_to_one_two_five_and_ignore_what_has_no_logarithm() {
        assert_eq!(log_bounds(&[0.3, 47.0]), Some((0.2, 50.0)));
        assert_eq!(log_bounds(&[1.0, 100.0]), Some((1.0, 100.0)));
        assert_eq!(log_bounds(&[0.0, -4.0, f64::NAN, 3.0, 30.0]), Some((2.0, 50.0)));
        assert_eq!(log_bounds(&[0.0, -1.0]), None);
        assert_eq!(log_bounds(&[]), None);
    }

    #[test]
    fn a_lone_point_stands_in_the_middle_of_its_axis() {
        let domain = tight_bounds(&[4096.0], ScaleKind::Log).unwrap();
        let axis = AxisScale { kind: ScaleKind::Log, domain, range: (0.0, 100.0) };
        assert_eq!(domain, (2048.0, 8192.0));
        assert!((axis.at(4096.0).unwrap() - 50.0).abs() < 1e-9);
    }

    #[test]
    fn equal_ratios_are_equal_distances() {
        // 4KiB..1GiB is 18 doublings over 360 px: 20 px each.
        let axis = AxisScale {
            kind: ScaleKind::Log,
            domain: (4096.0, 2f64.powi(30)),
            range: (40.0, 400.0),
        };
        assert!((axis.at(8192.0).unwrap() - 60.0).abs() < 1e-9);
        assert_eq!(axis.at(0.0), None);
        assert_eq!(axis.at(-1.0), None);
        assert_eq!(axis.at(f64::NAN), None);
        assert_eq!(axis.at(1.0), Some(40.0)); // below the axis: on its bound
    }

    #[test]
    fn axes_are_logarithmic_from_one_decade_on() {
        assert_eq!(kind_for(&[1.0, 9.9]), ScaleKind::Linear);
        assert_eq!(kind_for(&[1.0, 10.0]), ScaleKind::Log);
        assert_eq!(kind_for(&[0.0, -10.0, 3.0]), ScaleKind::Linear);
        assert_eq!(kind_for(&[]), ScaleKind::Linear);
    }

    #[test]
    fn binary_ticks_are_thinned_evenly() {
        let all = binary_ticks((4096.0, 2f64.powi(20)), 12);
        assert_eq!(all.len(), 9);
        // 4KiB..8GiB is 22 powers of two; every second one leaves 11.
        let thinned = binary_ticks((4096.0, 2f64.powi(33)), 12);
        assert_eq!(thinned.len(), 11);
        assert_eq!(thinned[1] / thinned[0], 4.0);
    }

    #[test]
    fn decimal_ticks_fall_back_to_decades() {
        assert_eq!(decimal_ticks((1.0, 100.0), 8), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(decimal_ticks((1.0, 1000.0), 8), [1.0, 10.0, 100.0, 1000.0]);
    }

    #[test]
    fn labels_move_apart_and_stay_inside() {
        assert_eq!(spread(&[50.0, 52.0], 12.0, (0.0, 100.0)), [50.0, 62.0]);
        assert_eq!(spread(&[99.0, 98.0], 12.0, (0.0, 100.0)), [100.0, 88.0]);
        assert_eq!(spread(&[], 12.0, (0.0, 100.0)), Vec::<f64>::new());
    }

    #[test]
    fn labels_that_touch_go_to_another_row() {
        assert_eq!(stack(&[(0.0, 30.0), (20.0, 50.0), (40.0, 60.0)]), [0, 1, 0]);
    }
}
