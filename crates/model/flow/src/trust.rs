//! The constants that decide a prediction, and how well they are known by their origin.

use pathline_schema::{Bytes, ConstantOrigin, Ns};

use crate::duration::{SetDurations, TimeRange};
use crate::sensitivity::{DescVariants, FigureValues, find_effects};

/// Constants change by this factor, up and down: by so little that another hop becomes the narrowest only
/// where the two are almost equal.
const FACTOR: f64 = 1.02;
/// A constant decides a figure if d ln figure / d ln constant is more than this.
const DECIDES: f64 = 0.01;

/// Where a model lacks a mechanism, no constant shows it. From this size on it reproduces rows that were not
/// seen within [`FORM`]; below it, caches of GPUs and CPUs that the model does not have change a copy by up to
/// [`CACHED_FORM`].
const CACHED: Bytes = Bytes::mib(32);
/// 95th percentile of OSU bandwidths by blit kernels, which were not seen: 3.3 %.
const FORM: f64 = 1.04;
/// Pinned and zero-copy transfers of 16 MiB on a Frontier node: 12 and 13 % slower than without caches.
const CACHED_FORM: f64 = 1.13;
/// 95th percentile of collectives that were not seen: 79 %.
const EXCHANGE_FORM: f64 = 1.79;

/// The factor within which a constant is known, by its origin and by what it is.
///
/// Rates that were fitted hold on rows that were not seen within 3 %. Starts belong to an API, a timer and a
/// tool: 16 B latencies carried as data predict other versions of the software within 44 % (95th percentile)
/// and one of Frontier's within 47 %, and a fitted start of copies by kernels was 56 % off there. Assumed
/// constants were 34 to 389 % off: a factor of up to 4.9. Bytes that a protocol adds to a packet and shares
/// of a peak have little room. Data sheets are exact: what is lost of a peak is another constant.
fn known_within(constant: &DecidingConstant) -> f64 {
    let name = constant.key.trim_end_matches("_matrix");
    let is_time = ["us", "ns", "us_per_mib"].iter().any(|unit| name.ends_with(unit));
    let is_rate = ["gbs", "iops"].iter().any(|unit| name.ends_with(unit));
    match constant.origin {
        // A description without origins claims nothing.
        Some(ConstantOrigin::Datasheet) | None => 1.0,
        Some(ConstantOrigin::Fitted | ConstantOrigin::Data) if is_time => 1.6,
        Some(ConstantOrigin::Fitted) => 1.03,
        Some(ConstantOrigin::Data) => 1.44,
        Some(ConstantOrigin::Assumed) if is_time || is_rate => 5.0,
        Some(ConstantOrigin::Assumed) => 2.0,
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

/// The constants that decide a figure, and how well they determine it.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictionTrust {
    /// Constants with an elasticity above 1 %, the greatest first.
    pub constants: Vec<DecidingConstant>,
    /// The time may be longer by this factor, 1 or more.
    pub slower: f64,
    /// The time may be shorter by this factor, above 0 and at most 1.
    pub faster: f64,
}

/// What a figure is of: how well the form of the model determines it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FigureForm {
    /// Flows, by the bytes of the smallest.
    Flows(Bytes),
    /// A collective or another exchange of messages.
    Exchange,
}

impl FigureForm {
    /// The factor within which the form of the model holds.
    pub fn within(self) -> f64 {
        match self {
            Self::Flows(smallest) if smallest >= CACHED => FORM,
            Self::Flows(_) => CACHED_FORM,
            Self::Exchange => EXCHANGE_FORM,
        }
    }
}

impl PredictionTrust {
    /// Of constants in any order. The time is a sum of parts: a constant with elasticity e decides the part e
    /// of it, which is f times as long, or as short, where the constant is wrong by f. Errors of constants
    /// and of the form are independent of each other.
    pub fn new(mut constants: Vec<DecidingConstant>, form: FigureForm) -> Self {
        constants.retain(|c| c.elasticity.abs() > DECIDES);
        constants.sort_by(|a, b| b.elasticity.abs().total_cmp(&a.elasticity.abs()));
        let sum = |of: &dyn Fn(f64, f64) -> f64| {
            let part = |c: &DecidingConstant| of(c.elasticity.abs().min(1.0), known_within(c)).ln();
            let squares: f64 = constants.iter().map(|c| part(c).powi(2)).sum();
            (squares + form.within().ln().powi(2)).sqrt()
        };
        let slower = sum(&|part, f| 1.0 + part * (f - 1.0)).exp();
        let faster = (-sum(&|part, f| 1.0 - part * (1.0 - 1.0 / f))).exp();
        Self { constants, slower, faster }
    }

    /// How well the time of this figure is known as a multiple of that of `other`: a constant that decides both counts
    /// by the difference, and the form once, which is that of the part in which they differ.
    #[must_use]
    pub fn over(&self, other: &Self, form: FigureForm) -> Self {
        let elasticity = |of: &Self, key: &str| {
            of.constants.iter().find(|c| c.key == key).map_or(0.0, |c| c.elasticity)
        };
        let is_own = |key: &str| self.constants.iter().any(|own| own.key == key);
        let others = other.constants.iter().filter(|c| !is_own(&c.key));
        let all = self.constants.iter().chain(others).map(|c| DecidingConstant {
            elasticity: elasticity(self, &c.key) - elasticity(other, &c.key),
            ..c.clone()
        });
        Self::new(all.collect(), form)
    }
}

/// The constants that decide each figure of a description, which are times of these forms. `base` has the
/// figures as they are; a figure without a value has no constants.
pub fn find_trust(
    variants: &DescVariants,
    forms: &[FigureForm],
    base: &[Option<f64>],
    values: &mut FigureValues<'_>,
) -> Vec<PredictionTrust> {
    let all = variants.constants();
    let quantities: Vec<usize> =
        (0..all.len()).filter(|&c| all.get(c).is_some_and(|c| c.is_quantity())).collect();
    let up = find_effects(variants, &quantities, FACTOR, base, values);
    let down = find_effects(variants, &quantities, 1.0 / FACTOR, base, values);
    let figure = |(figure, &form): (usize, &FigureForm)| {
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
        PredictionTrust::new(constants.collect(), form)
    };
    forms.iter().enumerate().map(figure).collect()
}

impl SetDurations {
    /// The same with every interval widened by what constants leave open.
    pub fn widened(mut self, trust: &PredictionTrust) -> Self {
        let wider = |time: TimeRange| TimeRange {
            low: Ns(time.low.0 * trust.faster),
            high: Ns(time.high.0 * trust.slower),
            ..time
        };
        self.set = wider(self.set);
        for flow in &mut self.flows {
            flow.time = wider(flow.time);
        }
        self.uncertainty.constants = Some((trust.faster, trust.slower));
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
        let form = FigureForm::Flows(case.timed[0].bytes);
        find_trust(&variants, &[form], &base, &mut values).remove(0)
    }

    /// 1 GiB at the engine's 50.4 GB/s: the time falls as the engine's rate rises, and the engine is fitted:
    /// sqrt(ln(1.03)^2 + ln(1.04)^2) = 0.0491, a factor of 1.050.
    #[test]
    fn a_fitted_rate_keeps_a_prediction_narrow() {
        let trust = trust("gpu0.vram > gpu1.vram by dma@gpu0 x 1GiB");
        assert_eq!(trust.constants[0].key, "copy_engine.gbs", "{trust:?}");
        assert!((-1.01..-0.97).contains(&trust.constants[0].elasticity), "{trust:?}");
        assert!((1.049..1.052).contains(&trust.slower), "{trust:?}");
        assert!((1.0 / trust.faster - trust.slower).abs() < 0.001, "{trust:?}");
    }

    /// A loop of one core is decided by an assumed rate alone: a fifth of the time to five times as long, and
    /// the form's 1.04 adds next to nothing.
    #[test]
    fn an_assumed_rate_makes_it_wide() {
        let trust = trust("numa3.huge > numa3.huge by cpu@numa3[copy-avx2-t1] x 256MiB");
        let first = &trust.constants[0];
        assert_eq!(first.origin, Some(ConstantOrigin::Assumed), "{trust:?}");
        assert!((4.99..5.02).contains(&trust.slower), "{trust:?}");
        assert!((0.199..0.201).contains(&trust.faster), "{trust:?}");
    }

    /// An assumed rate that decides half of the time: 1 + 0.5 x 4 = 3 times as long, or 1 - 0.5 x 0.8 = 0.6.
    /// With ln 1.03 and the form's ln 1.04: sqrt(1.0986^2 + 0.0296^2 + 0.0392^2) = 1.0997, a factor of 3.003;
    /// sqrt(0.5108^2 + 0.0296^2 + 0.0392^2) = 0.5132: 0.5986.
    #[test]
    fn errors_of_constants_add_as_independent_ones() {
        let of = |key: &str, origin, elasticity| DecidingConstant {
            key: key.to_owned(),
            origin: Some(origin),
            elasticity,
        };
        let constants = vec![
            of("a.gbs", ConstantOrigin::Assumed, -0.5),
            of("b.gbs", ConstantOrigin::Fitted, 1.0),
            of("c.us", ConstantOrigin::Assumed, 0.009),
        ];
        let trust = PredictionTrust::new(constants, FigureForm::Flows(Bytes::gib(1)));
        assert_eq!(trust.constants.len(), 2);
        assert_eq!(trust.constants[0].key, "b.gbs");
        // The assumed rate, which decides half of both, cancels: sqrt(0.0296^2 + 0.0392^2) = 0.0491 is left.
        let others = vec![of("a.gbs", ConstantOrigin::Assumed, -0.5)];
        let form = FigureForm::Flows(Bytes::gib(1));
        let ratio = trust.over(&PredictionTrust::new(others, form), form);
        assert!(ratio.constants.len() == 1 && (ratio.slower - 1.0504).abs() < 0.0005, "{ratio:?}");
        assert!((trust.slower - 3.003).abs() < 0.001, "{trust:?}");
        assert!((trust.faster - 0.5986).abs() < 0.0005, "{trust:?}");
    }
}
