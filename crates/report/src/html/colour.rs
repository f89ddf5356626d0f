//! The heat scale: viridis, which increases uniformly in lightness and reads the same with any
//! colour vision (Stefan van der Walt and Nathaniel Smith for matplotlib, 2015, CC0).

use std::fmt::Write;

/// Steps of the scale: one class per 5 %.
pub(super) const STEPS: usize = 21;

type RgbColour = [f64; 3];

/// Viridis in steps of a tenth.
const VIRIDIS: [RgbColour; 11] = [
    [68.0, 1.0, 84.0],
    [72.0, 36.0, 117.0],
    [65.0, 68.0, 135.0],
    [53.0, 95.0, 141.0],
    [42.0, 120.0, 142.0],
    [33.0, 145.0, 140.0],
    [34.0, 168.0, 132.0],
    [68.0, 191.0, 112.0],
    [122.0, 209.0, 81.0],
    [189.0, 223.0, 38.0],
    [253.0, 231.0, 37.0],
];

/// The step of a share, clamped to 0..1.
pub(super) fn step(share: f64) -> usize {
    (share.clamp(0.0, 1.0) * (STEPS - 1) as f64).round() as usize
}

/// The colour of a step.
fn rgb(step: usize) -> RgbColour {
    between(&VIRIDIS, step)
}

/// The colour of a step, interpolated between colours in steps of a tenth.
fn between(tenths: &[RgbColour; 11], step: usize) -> RgbColour {
    let place = step.min(STEPS - 1) as f64 / (STEPS - 1) as f64 * 10.0;
    let below = (place.floor() as usize).min(9);
    let t = place - below as f64;
    std::array::from_fn(|i| tenths[below][i] * (1.0 - t) + tenths[below + 1][i] * t)
}

/// Relative luminance (WCAG 2.2).
fn luminance(rgb: RgbColour) -> f64 {
    let [r, g, b] = rgb.map(|c| {
        let c = c.round() / 255.0;
        if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
    });
    0.2126 * r + 0.7152 * g + 0.0722 * b
}

/// Contrast of two luminances (WCAG 2.2).
fn contrast(a: f64, b: f64) -> f64 {
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

/// Black or white, whichever has more contrast with a colour.
fn ink(rgb: RgbColour) -> &'static str {
    let y = luminance(rgb);
    if contrast(y, 0.0) > contrast(y, 1.0) { "#000" } else { "#fff" }
}

fn hex(rgb: RgbColour) -> String {
    let [r, g, b] = rgb.map(|c| c.round() as u8);
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// From far below zero to far above in steps of a tenth, with a light middle: blue and red of equal
/// lightness, which also differ for the colour-blind (after ColorBrewer's RdBu, Cynthia Brewer,
/// Apache-2.0).
const DIVERGING: [RgbColour; 11] = [
    [5.0, 48.0, 97.0],
    [33.0, 102.0, 172.0],
    [67.0, 147.0, 195.0],
    [146.0, 197.0, 222.0],
    [209.0, 229.0, 240.0],
    [247.0, 247.0, 247.0],
    [253.0, 219.0, 199.0],
    [244.0, 165.0, 130.0],
    [214.0, 96.0, 77.0],
    [178.0, 24.0, 43.0],
    [103.0, 0.0, 31.0],
];

/// The step of a difference, clamped to -1..1.
pub(super) fn signed_step(share: f64) -> usize {
    step((share + 1.0) / 2.0)
}

/// The colour of a step of a difference.
fn signed_rgb(step: usize) -> RgbColour {
    between(&DIVERGING, step)
}

/// Style rules of all steps, and of the legends' gradients. A matrix cell has a step in each view:
/// `q` for its value, shown first, `p` for its share of the peak, `v` for its difference from its
/// peers.
pub(super) fn rules() -> String {
    let mut css = String::new();
    // Writing to a string does not fail.
    for i in 0..STEPS {
        let (paper, ink) = (hex(signed_rgb(i)), ink(signed_rgb(i)));
        let _ = writeln!(
            css,
            ".gaps .v{i},.views:has(.to-peers:checked) .heat .v{i}\
             {{--q:{paper};background-color:{paper};color:{ink}}}"
        );
    }
    for i in 0..STEPS {
        let (paper, ink) = (hex(rgb(i)), ink(rgb(i)));
        let _ = writeln!(
            css,
            ".heat .q{i},.views:has(.to-peak:checked) .heat .p{i}\
             {{background-color:{paper};color:{ink}}}"
        );
    }
    let gradient = |stops: Vec<String>| format!("linear-gradient(90deg,{})", stops.join(","));
    let signed = gradient((0..STEPS).map(|i| hex(signed_rgb(i))).collect());
    // Slower than its peers is red and on the left, like all lower values.
    let slower = gradient((0..STEPS).rev().map(|i| hex(signed_rgb(i))).collect());
    let _ = writeln!(css, ".signed{{--signed:{signed}}}.of-peers .signed{{--signed:{slower}}}");
    let _ = writeln!(
        css,
        ".ramp{{background:{}}}",
        gradient((0..STEPS).map(|i| hex(rgb(i))).collect())
    );
    css
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lightness_rises_at_every_step() {
        let y: Vec<f64> = (0..STEPS).map(|i| luminance(rgb(i))).collect();
        assert!(y.windows(2).all(|w| w[0] < w[1]), "{y:?}");
    }

    #[test]
    fn every_number_is_legible_on_its_cell() {
        for i in 0..STEPS {
            let paper = rgb(i);
            let ink = if ink(paper) == "#000" { 0.0 } else { 1.0 };
            // WCAG 2.2, 1.4.3 (AA): 4.5 to 1.
            assert!(contrast(luminance(paper), ink) >= 4.5, "step {i}");
        }
    }

    #[test]
    fn differences_are_legible_and_darker_the_farther_from_zero() {
        for i in 0..STEPS {
            let paper = signed_rgb(i);
            let ink = if ink(paper) == "#000" { 0.0 } else { 1.0 };
            assert!(contrast(luminance(paper), ink) >= 4.5, "step {i}");
        }
        let y: Vec<f64> = (0..STEPS).map(|i| luminance(signed_rgb(i))).collect();
        assert!(y[..11].windows(2).all(|w| w[0] < w[1]) && y[10..].windows(2).all(|w| w[0] > w[1]));
        // Zero is the middle; a quarter of the upper half is step 10 + 10 / 4.
        assert_eq!([signed_step(-1.0), signed_step(0.0), signed_step(0.25)], [0, 10, 13]);
    }

    #[test]
    fn shares_beyond_the_scale_take_its_ends() {
        assert_eq!([step(-0.5), step(0.0), step(0.5), step(1.0), step(7.0)], [0, 0, 10, 20, 20]);
        assert_eq!(step(f64::NAN), 0);
    }
}
