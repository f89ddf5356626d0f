//! Number formats.

/// Three significant digits: `1.42`, `37.8`, `1405`.
pub(super) fn num(v: f64) -> String {
    let decimals = match v.abs() {
        a if !a.is_finite() => return "not a number".to_owned(),
        0.0 => return "0".to_owned(),
        a if !(1e-3..1e7).contains(&a) => return format!("{v:.2e}"),
        a if a >= 99.95 => 0,
        a if a >= 9.995 => 1,
        a if a >= 0.9995 => 2,
        _ => 3,
    };
    format!("{v:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_figures() {
        let texts = [0.0, 0.0123, 1.4151, 9.996, 37.84, 99.96, 1405.3, 2e9, f64::NAN].map(num);
        let wanted =
            ["0", "0.012", "1.42", "10.0", "37.8", "100", "1405", "2.00e9", "not a number"];
        assert_eq!(texts, wanted);
    }
}
