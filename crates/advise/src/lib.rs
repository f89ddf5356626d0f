//! Advice with proof: what to do instead of the default, what it gains, and how surely.
//!
//! Pure: whatever runs trials is a [`TrialRunner`].

mod advice;
mod arm;
mod proof;
mod search;

pub use advice::{Advice, AdviceVerdict, ScreenedChoice, percent};
pub use arm::{AdviceChoice, AdviceScope, ArmEnv, ArmTask, TrialArm};
pub use proof::{
    GainInterval, GainProof, HarmCheck, MIN_BLOCKS, ProofState, ProofTarget, TrialBlock,
};
pub use search::{AdviceLimits, AdviceStep, TrialRunner, advise};
