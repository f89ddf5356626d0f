//! The constants that decide a prediction, and how well they are known by their origin.

use pathline_schema::{ConstantOrigin, Ns};

use crate::duration::{SetDurations, TimeRange};
use crate::sensitivity::{DescVariants, FigureValues, find_effects};

/// Constants change by this factor, up and down: by so little that another hop becomes the narrowest only
/// where the two are almost equal.
const FACTOR: f64 = 1.02;
/// A constant decides a figure if d ln figure / d ln constant is more than this.
const DECIDES: f64 = 0.01;

/// The factor within which a constant is known, by its origin: measurements that nobody fitted to lay
/// within it nine times of ten.
///
/// What was fitted holds on rows that were not seen within 3 % (95th percentile of OSU bandwidths by blit
/// kernels). One measurement carried as data predicts other versions of its software within 44 % (95th
/// percentile of latencies). Assumed start-ups were 34 to 389 % off, so that 1.34 to 4.9 is the factor: 3 is
/// where nine of ten lie. Data sheets are exact as far as a model can tell: what is lost of a peak is another
/// constant.
pub fn known_within(origin: Option<ConstantOrigin>) -> f64 {
    match origin {
        Some(ConstantOrigin::Datasheet) => 1.0,
        Some(ConstantOrigin::Fitted) => 1.03,
        Some(ConstantOrigin::Data) => 1.44,
        Some(ConstantOrigin::Assumed) => 3.0,
        // A description without origins claims nothing.
        None => 1.0,
    }
}

/// A constant that decides a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct DecidingConstant {
    /// Its key: `time.blit_us`.
    pub key: String,
    /// Its origin.
    pub origin: Option<ConstantOrigin>,
    /// d ln figure / d ln constant: 1 if the figure is proportional to it, -1 if inversely.
    pub elasticity: f64,
}

/// The constants that decide a figure, and the factor within which they determine it.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictionTrust {
    /// Constants with an elasticity above 1 %, the greatest first.
    pub constants: Vec<DecidingConstant>,
    /// The figure is known within this factor, 1 or more: errors of constants are independent of each other.
    pub within: f64,
}

impl PredictionTrust {
    /// Of constants in any order.
    pub fn new(mut constants: Vec<DecidingConstant>) -> Self {
        constants.retain(|c| c.elasticity.abs() > DECIDES);
        constants.sort_by(|a, b| b.elasticity.abs().total_cmp(&a.elasticity.abs()));
        let square = |c: &DecidingConstant| (c.elasticity * known_within(c.origin).ln()).powi(2);
        let within = constants.iter().map(square).sum::<f64>().sqrt().exp();
        Self { constants, within }
    }
}

/// The constants that decide each figure of a description. `base` has the figures as they are; a figure
/// without a value has no constants.
pub fn find_trust(
    variants: &DescVariants,
    base: &[Option<f64>],
    values: &mut FigureValues<'_>,
) -> Vec<PredictionTrust> {
    let all = variants.constants();
    let quantities: Vec<usize> =
        (0..all.len()).filter(|&c| all.get(c).is_some_and(|c| c.is_quantity())).collect();
    let up = find_effects(variants, &quantities, FACTOR, base, values);
    let down = find_effects(variants, &quantities, 1.0 / FACTOR, base, values);
    let figure = |figure: usize| {
        let effect = |of: &crate::ConstantEffect| {
            of.moved.iter().find(|(f, _)| *f == figure).map_or(0.0, |(_, change)| *change)
        };
        let constants = up.iter().zip(&down).filter_map(|(up, down)| {
            let constant = all.get(up.constant)?;
            // Where the two differ a limit begins to hold or ends to; the greater one is the honest one.
            let (up, down) = (effect(up) / FACTOR.ln(), -effect(down) / FACTOR.ln());
            let elasticity = if up.abs() >= down.abs() { up } else { down };
            Some(DecidingConstant {
                key: constant.key.clone(),
                origin: constant.origin,
                elasticity,
            })
        });
        PredictionTrust::new(constants.collect())
    };
    (0..base.len()).map(figure).collect()
}

impl SetDurations {
    /// The same with every interval widened by the factor within which constants determine the duration.
    pub fn widened(mut self, within: f64) -> Self {
        let wider = |time: TimeRange| TimeRange {
            low: Ns(time.low.0 / within),
            high: Ns(time.high.0 * within),
            ..time
        };
        self.set = wider(self.set);
        for flow in &mut self.flows {
            flow.time = wider(flow.time);
        }
        self.uncertainty.constants = (within > 1.0).then_some(within);
        self
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::{MachineDesc, Network, RuntimeEnv};
    use pathline_schema::Case;

    fn trust(case: &str) -> PredictionTrust {
        let (name, text) = MachineDesc::presets()[0];
        let desc = MachineDesc::parse(name, text).unwrap();
        let variants = DescVariants::new(&desc, text).unwrap();
        let case: Case = case.parse().unwrap();
        let mut values = |desc: &MachineDesc, figures: &[usize]| -> Vec<Option<f64>> {
            let network = Network::new(desc, RuntimeEnv::default()).unwrap();
            let time = network.durations(&case).unwrap().set.typical.0;
            figures.iter().map(|_| Some(time)).collect()
        };
        let base = values(&desc, &[0]);
        find_trust(&variants, &base, &mut values).remove(0)
    }

    /// 1 GiB at the engine's 50.4 GB/s: the time falls as the engine's rate rises, and the engine is fitted.
    /// exp(1.0 x ln 1.03) = 1.03, with what little the start adds.
    #[test]
    fn a_fitted_rate_keeps_a_prediction_narrow() {
        let trust = trust("gpu0.vram > gpu1.vram by dma@gpu0 x 1GiB");
        assert_eq!(trust.constants[0].key, "copy_engine.gbs", "{trust:?}");
        assert!((-1.01..-0.97).contains(&trust.constants[0].elasticity), "{trust:?}");
        assert!((1.028..1.035).contains(&trust.within), "{trust:?}");
    }

    /// Loops of a core rest on assumed rates: the interval is wide, up to the factor of 3 that one constant
    /// alone would have.
    #[test]
    fn an_assumed_rate_makes_it_wide() {
        let trust = trust("numa3.huge > numa3.huge by cpu@numa3[copy-avx2-t1] x 256MiB");
        let first = &trust.constants[0];
        assert_eq!(first.origin, Some(ConstantOrigin::Assumed), "{trust:?}");
        assert!((1.5..3.0).contains(&trust.within), "{trust:?}");
    }

    /// ln w = sqrt((1 ln 1.03)^2 + (0.5 ln 3)^2) = sqrt(0.0009 + 0.3017) = 0.550: a factor of 1.733.
    #[test]
    fn errors_of_constants_add_as_independent_ones() {
        let of = |key: &str, origin, elasticity| DecidingConstant {
            key: key.to_owned(),
            origin: Some(origin),
            elasticity,
        };
        let trust = PredictionTrust::new(vec![
            of("a", ConstantOrigin::Assumed, -0.5),
            of("b", ConstantOrigin::Fitted, 1.0),
            of("c", ConstantOrigin::Assumed, 0.009),
        ]);
        assert_eq!(trust.constants.len(), 2);
        assert_eq!(trust.constants[0].key, "b");
        assert!((trust.within - 1.733).abs() < 0.001, "{trust:?}");
    }
}
