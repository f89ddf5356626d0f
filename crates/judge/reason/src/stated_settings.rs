//! Settings and options whose effect a manual states: data.

use pathline_advise::{StatedValue, stated_values};
use pathline_paste::PasteContext;
use pathline_schema::SizeEffects;
use serde::Serialize;

use crate::row_predictor::RowPredictor;

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
    let known = stated_values().iter().filter_map(|row| {
        let StatedValue { meaning, action, source, explains, .. } = *row;
        let setting = find_setting(context, row)?;
        let by_size = model.and_then(|model| model.setting_by_size(&setting));
        Some(StatedSetting { setting, meaning, action, by_size, source, explains })
    });
    known.collect()
}

/// What taking copy engines away does to messages between GPUs, where the paste does not say that they are.
pub(crate) fn unset_engines(context: &PasteContext, model: &RowPredictor) -> Option<StatedSetting> {
    let name = model.topology().gpu_env(|caps| caps.copy_engine_env)?;
    if context.settings.contains_key(name) {
        return None;
    }
    let row = stated_values().iter().find(|row| row.name() == name && row.is_of("0"))?;
    let StatedValue { meaning, source, explains, .. } = *row;
    let by_size = Some(model.setting_by_size(&format!("{name}=0"))?);
    let setting = format!("{name}, which the paste does not set, is 1; with 0");
    Some(StatedSetting { setting, meaning, action: "", by_size, source, explains })
}

/// A variable of the environment, or an option of a command.
fn find_setting(context: &PasteContext, row: &StatedValue) -> Option<String> {
    let name = row.name();
    if !name.starts_with('-') {
        let value = context.settings.get(name).filter(|value| row.is_of(value))?;
        return Some(format!("{name}={value}"));
    }
    context.commands.iter().find_map(|command| {
        let mut words = command.split(['=', ' ']).filter(|word| !word.is_empty());
        let has_name = words.any(|word| word == name);
        // `verbose,` may stand before the kind of a binding.
        let value = words.next().unwrap_or_default().trim_start_matches("verbose,");
        match row.pattern == name {
            true => has_name.then(|| name.to_owned()),
            false => (has_name && row.is_of(value)).then(|| format!("{name}={value}")),
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
    }
}
