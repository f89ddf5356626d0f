//! What is known of a variable or of one of its values, for a reader who asks by name.

use crate::script_review::meant_setting;
use crate::setting_table::{reader_of, setting_row, stated_values};

/// Labels and texts of what is known: of the variable, and of `value` if it is given.
///
/// # Errors
/// No library is known to read it; with the name that was meant.
pub fn setting_facts(
    name: &str,
    value: Option<&str>,
) -> Result<Vec<(&'static str, String)>, String> {
    let stated = stated_values().iter().filter(|row| row.name() == name);
    let stated = stated.filter(|row| value.is_none_or(|value| row.is_of(value)));
    let (row, reader) = (setting_row(name), reader_of(name));
    let mut facts: Vec<(&str, String)> = Vec::new();
    facts.extend(reader.map(|reader| ("read by", reader.to_owned())));
    if let Some(row) = row {
        facts.push(("what", row.effect.to_owned()));
        let values = row.values.replace(['|', ','], ", ");
        facts.push(("values", values.replacen(':', ": ", 1)));
        facts.push(("default", row.default.replacen('~', "mostly ", 1)));
        facts.push(("helps", row.helps.to_owned()));
        facts.push(("costs", row.costs().to_owned()));
        facts.push(("versions", row.versions.to_owned()));
        facts.push(("source", row.source.to_owned()));
        let misfit = value.and_then(|value| Some((value, row.misfit(value)?)));
        facts.extend(
            misfit.map(|(value, why)| ("wrong", format!("'{value}' is none of its values: {why}"))),
        );
    }
    for stated in stated {
        facts.push(("set", format!("{}: {} ({})", stated.pattern, stated.meaning, stated.source)));
        facts.push(("do", stated.action.to_owned()));
    }
    facts.retain(|(_, text)| !text.is_empty());
    match facts.len() {
        0 => Err(format!("no library that pathline knows reads {name}{}", meant_setting(name))),
        _ => Ok(facts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_explained_from_its_row_and_a_slip_named() {
        let of = |name, value| {
            let facts = setting_facts(name, value).unwrap_or_default();
            facts.into_iter().map(|(label, text)| format!("{label}: {text}")).collect::<Vec<_>>()
        };
        let sdma = of("HSA_ENABLE_SDMA", Some("0"));
        assert!(sdma.contains(&"what: SDMA engines for copies".to_owned()), "{sdma:?}");
        assert!(sdma.iter().any(|line| line.starts_with("set: HSA_ENABLE_SDMA=0: ")), "{sdma:?}");
        assert!(!of("HSA_ENABLE_SDMA", Some("1")).iter().any(|line| line.starts_with("set")));
        let wrong = of("HSA_ENABLE_SDMA", Some("maybe"));
        assert!(
            wrong.contains(&"wrong: 'maybe' is none of its values: it takes 0, 1".to_owned()),
            "{wrong:?}"
        );
        assert_eq!(of("HSA_SCRATCH_MEM", None), ["read by: ROCr"]);
        let error = setting_facts("HSA_ENABLE_SMDA", Some("0")).unwrap_err();
        let meant =
            "no library that pathline knows reads HSA_ENABLE_SMDA; did you mean HSA_ENABLE_SDMA?";
        assert_eq!(error, meant);
    }
}
