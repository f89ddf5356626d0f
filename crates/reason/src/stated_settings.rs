//! Settings and options whose effect a manual states: data.

use pathline_paste::PasteContext;
use serde::Serialize;

const TABLE: &str = include_str!("../data/settings.tsv");

/// A setting of the paste whose effect is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StatedSetting {
    /// `NCCL_P2P_DISABLE=1`, `--gpus-per-task`.
    pub setting: &'static str,
    /// What it does.
    pub meaning: &'static str,
    /// What to do.
    pub action: &'static str,
    /// The manual.
    pub source: &'static str,
}

/// The known settings of a paste.
pub(crate) fn find_settings(context: &PasteContext) -> Vec<StatedSetting> {
    let known = TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut cells = line.split('\t');
        let (setting, meaning) = (cells.next()?, cells.next()?);
        Some(StatedSetting { setting, meaning, action: cells.next()?, source: cells.next()? })
    });
    known.filter(|known| is_in(context, known.setting)).collect()
}

/// `NAME=VALUE|OTHER` of the environment, or an option of a command, with this value or any.
fn is_in(context: &PasteContext, setting: &str) -> bool {
    if let (false, Some((name, values))) = (setting.starts_with('-'), setting.split_once('=')) {
        let set = context.settings.get(name);
        return set.is_some_and(|set| values.split('|').any(|one| set.eq_ignore_ascii_case(one)));
    }
    let is_option = |word: &str| match setting.contains('=') {
        true => word == setting,
        false => word.split('=').next() == Some(setting),
    };
    context.commands.iter().any(|command| command.split_whitespace().any(is_option))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_paste::read_paste;

    fn found(text: &str) -> Vec<&'static str> {
        find_settings(&read_paste(text.as_bytes()).context).iter().map(|s| s.setting).collect()
    }

    #[test]
    fn values_and_options_are_exact() {
        assert_eq!(found("$ srun -n 4 --gpus-per-task=1 ./halo"), ["--gpus-per-task"]);
        assert_eq!(found("#SBATCH --gpu-bind=closest"), ["--gpu-bind=closest"]);
        assert_eq!(found("export NCCL_P2P_LEVEL=loc"), ["NCCL_P2P_LEVEL=LOC|0"]);
        assert!(found("NCCL_P2P_DISABLE=0 --gpu-bind=none, gpus per task").is_empty());
        assert!(TABLE.lines().skip(1).all(|line| line.split('\t').count() == 4));
    }
}
