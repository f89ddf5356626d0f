//! `pathline explain NAME=VALUE`.

use anyhow::{Result, anyhow};
use pathline_advise::setting_facts;
use pathline_reason::RowPredictor;
use pathline_runner::MachineModel;
use pathline_schema::{SizeEffects, is_variable_name};

use super::ExitKind;
use crate::say::{outln, show_labelled, width};

/// The simulated node whose figures are shown where no node is named.
const USUAL_NODE: &str = "mi250x";

/// The name and the value of a variable, if a text is one: `NAME=VALUE`, or a name in capitals.
pub(super) fn read_setting(text: &str) -> Option<(&str, Option<&str>)> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (text, None),
    };
    let is_name = value.is_some() || !name.contains(|c: char| c.is_ascii_lowercase());
    (is_name && name.contains('_') && is_variable_name(name)).then_some((name, value))
}

/// Prints what is known of a variable, and what it does by size where a model says that.
pub(super) fn run(
    name: &str,
    value: Option<&str>,
    node: Option<RowPredictor>,
    json: bool,
) -> Result<ExitKind> {
    let facts = setting_facts(name, value).map_err(|why| anyhow!("{why}"))?;
    // A model has what taking copy engines away does, whatever the value is.
    let setting = format!("{name}=0");
    let (of, by_size) = match &node {
        Some(node) => (String::new(), node.setting_by_size(&setting)),
        None => {
            let usual = RowPredictor::from_desc(MachineModel::read(USUAL_NODE)?.desc())?;
            let note = format!(" (on {USUAL_NODE}; -m NAME or --here for another node)");
            (note, usual.setting_by_size(&setting))
        }
    };
    if json {
        let facts =
            facts.iter().map(|(label, text)| serde_json::json!({"label": label, "text": text}));
        let found = serde_json::json!({
            "setting": name, "value": value, "facts": facts.collect::<Vec<_>>(), "by_size": by_size,
        });
        outln!("{}", serde_json::to_string_pretty(&found)?);
        return Ok(ExitKind::Fine);
    }
    let columns = width().clamp(60, 100);
    outln!("{name}{}", value.map(|value| format!("={value}")).unwrap_or_default());
    let answer = by_size.as_ref().and_then(SizeEffects::answer);
    for (label, text) in facts.iter().filter(|(label, _)| answer.is_none() || *label != "do") {
        show_labelled(label, text, columns);
    }
    if let Some((verdict, table)) = answer {
        show_labelled("do", &format!("{verdict}{of}."), columns);
        table.iter().for_each(|line| outln!("  {line}"));
    }
    Ok(ExitKind::Fine)
}
