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

/// A share in percent: `75 %`.
pub(super) fn percent(share: f64) -> String {
    let p = share * 100.0;
    let decimals = usize::from(p.abs() < 9.95 && p != 0.0);
    format!("{p:.decimals$} %")
}

/// A relative difference with its sign: `+0.3 %`.
pub(super) fn signed_percent(share: f64) -> String {
    let p = (share * 1000.0).round() / 10.0;
    if p == 0.0 { "0.0 %".to_owned() } else { format!("{p:+.1} %") }
}

/// `1 case`, `12 cases`.
pub(super) fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
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

    #[test]
    fn percentages_keep_their_sign_and_no_negative_zero() {
        assert_eq!(percent(0.7561), "76 %");
        assert_eq!(percent(0.0112), "1.1 %");
        assert_eq!(signed_percent(0.0031), "+0.3 %");
        assert_eq!(signed_percent(-0.0001), "0.0 %");
    }
}
