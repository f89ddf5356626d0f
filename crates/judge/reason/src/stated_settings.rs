//! Settings and options whose effect a manual states: data.

use pathline_paste::PasteContext;
use pathline_schema::SizeEffects;
use serde::Serialize;

use crate::row_predictor::RowPredictor;

const TABLE: &str = include_str!("../data/settings.tsv");

/// A setting of the paste whose effect is known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StatedSetting {
    /// As the paste has it: `NCCL_P2P_DISABLE=1`, `--gpu-bind=closest`; an option without its value where any
    /// value has the effect.
    pub setting: String,
    /// What it does.
    pub meaning: &'static str,
    /// What to do; empty where the paste shows no reason to do it.
    pub action: &'static str,
    /// What it does by size on the machine, where it gains at some and loses at others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_size: Option<SizeEffects>,
    /// The manual.
    pub source: &'static str,
    /// The message that it explains; empty if none.
    #[serde(skip)]
    pub(crate) explains: &'static str,
}

impl StatedSetting {
    /// Takes the action back where it only undoes what costs speed.
    pub(crate) fn keep_if_only_slow(&mut self) {
        if self.explains.is_empty() && self.action.starts_with("unset it") {
            self.action = "";
        }
    }
}

/// The known settings of a paste, with what they do by size on the machine of `model`.
pub(crate) fn find_settings(
    context: &PasteContext,
    model: Option<&RowPredictor>,
) -> Vec<StatedSetting> {
    let known = TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut cells = line.split('\t');
        let (pattern, meaning) = (cells.next()?, cells.next()?);
        let (action, source) = (cells.next()?, cells.next()?);
        let explains = cells.next().unwrap_or_default();
        let setting = find_setting(context, pattern)?;
        let by_size = model.and_then(|model| model.setting_by_size(&setting));
        Some(StatedSetting { setting, meaning, action, by_size, source, explains })
    });
    known.collect()
}

/// `NAME=VALUE|OTHER` of the environment, `--option` of a command with any value, or `--option=VALUE|OTHER:`, of
/// which one with a colon stands for all values that begin so.
fn find_setting(context: &PasteContext, setting: &str) -> Option<String> {
    let (name, values) = setting.split_once('=').unwrap_or((setting, ""));
    let is_value = |value: &str| {
        values.split('|').any(|one| match one.ends_with(':') {
            true => value.starts_with(one),
            false => value.eq_ignore_ascii_case(one),
        })
    };
    if !setting.starts_with('-') {
        let value = context.settings.get(name).filter(|value| is_value(value))?;
        return Some(format!("{name}={value}"));
    }
    context.commands.iter().find_map(|command| {
        let mut words = command.split(['=', ' ']).filter(|word| !word.is_empty());
        let has_name = words.any(|word| word == name);
        // `verbose,` may stand before the kind of a binding.
        let value = words.next().unwrap_or_default().trim_start_matches("verbose,");
        match values.is_empty() {
            true => has_name.then(|| name.to_owned()),
            false => (has_name && is_value(value)).then(|| format!("{name}={value}")),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_paste::read_paste;

    fn found(text: &str) -> Vec<String> {
        let found = find_settings(&read_paste(text.as_bytes()).context, None);
        found.into_iter().map(|known| known.setting).collect()
    }

    #[test]
    fn values_and_options_are_exact() {
        assert_eq!(found("$ srun -n 4 --gpus-per-task=1 ./halo"), ["--gpus-per-task"]);
        assert_eq!(found("#SBATCH --gpu-bind=closest"), ["--gpu-bind=closest"]);
        assert_eq!(found("srun -n 8 --gpu-bind single:1 ./a"), ["--gpu-bind=single:1"]);
        assert_eq!(found("srun --gpu-bind=verbose,map_gpu:0,1 ./a"), ["--gpu-bind=map_gpu:0,1"]);
        assert_eq!(found("export NCCL_P2P_LEVEL=loc"), ["NCCL_P2P_LEVEL=loc"]);
        assert!(found("NCCL_P2P_DISABLE=0 --gpu-bind=none, gpus per task").is_empty());
        assert!(TABLE.lines().skip(1).all(|line| [4, 5].contains(&line.split('\t').count())));
    }
}
