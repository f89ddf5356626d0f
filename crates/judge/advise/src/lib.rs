//! Advice with proof: what to do instead of the default, what it gains, and how surely.
//!
//! Pure: whatever runs trials is a [`TrialRunner`].

mod advice;
mod arm;
mod by_size;
mod collective_settings;
mod command_log;
mod emit;
mod gain_bound;
mod gain_text;
mod guard_figure;
mod harm_sizes;
mod job_script;
mod job_sum;
mod kept_trials;
mod known;
mod mpi_command_log;
mod mpi_names;
mod mpi_report;
mod mpi_settings;
mod proof;
mod questions;
mod relays;
mod review;
mod script_review;
mod search;
mod session;
mod setting_facts;
mod setting_names;
mod setting_table;
mod text;
mod trial_record;
mod tuner_choice;

pub use advice::{Advice, AdviceVerdict, ScreenedChoice};
pub use arm::{AdviceChoice, AdviceScope, ArmEnv, ArmTask, TrialArm};
pub use collective_settings::{is_shown_by_choice, usual_collectives};
pub use command_log::CommandLog;
pub use pathline_tuner::ROWS_FILE;

pub use emit::{ADVICE_FORMAT, AdviceFile, AdviceFileError, AdviceOrigin, CommandTask, GuardTask};
pub use gain_bound::GainBound;
pub use guard_figure::{GuardFigure, GuardOutcome, TrialCost};
pub use job_script::{JobScript, ScriptVendor};
pub use job_sum::JobTransfer;
pub use kept_trials::{KeepRecord, KeptTrials, arm_keys};
pub use known::{SettingScope, known_settings};
pub use mpi_command_log::MpiCommandLog;
pub use mpi_names::{MpiSettingReading, is_mpi_setting, judge_mpi_setting, missing_mpi_setting};
pub use mpi_report::MpiReport;
pub use mpi_settings::usual_mpi_messages;
pub use proof::{
    GainInterval, GainProof, HarmCheck, MIN_BLOCKS, ProofState, ProofTarget, TrialBlock,
};
pub use questions::{PIN_TIME, questions, usual_file_subjects, usual_subjects};
pub use review::{is_setting, not_reviewed, review};
pub use script_review::{meant_setting, script_findings, stated_settings, unset_setting};
pub use search::advise;
pub use session::{AdviceLimits, AdviceStep, TrialRunner};
pub use setting_facts::setting_facts;
pub use setting_names::{NamingLibrary, has_naming_library, judge_setting_name};
pub use setting_table::{StatedValue, stated_values};
pub use text::answers_text;
pub use trial_record::TrialRecord;
