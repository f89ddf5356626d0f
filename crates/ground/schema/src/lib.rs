//! The nouns of pathline. Everything here is data: no clock, no device, no file.
//!
//! The text of a [`Case`] is its identity: it selects, it keys records and baselines, and
//! `Display` and `FromStr` are inverse of each other.

mod busy_limit;
mod case;
mod case_defaults;
mod case_times;
mod checked_names;
mod clean_samples;
mod collective;
mod copy_chunk;
mod gpu;
mod gpu_caps;
mod hidden_gpus;
mod io;
mod journal;
mod journal_limits;
mod member;
mod meta;
mod mover;
mod mover_facts;
mod mpi_controls;
mod multipath;
mod nearest;
mod node_verdict;
mod origin;
mod place;
mod plain_text;
mod quoting;
mod record;
mod repeats;
mod sample_check;
mod select;
mod size_effects;
mod stripes;
mod suite;
mod switch;
mod topology;
mod traffic;
mod units;
mod url_mask;
mod variant;
mod wire;
mod wire_words;

pub use busy_limit::{ForeignLoad, busy_cpus};
pub use case::{Cadence, Case, Flow};
pub use case_times::CaseTimes;
pub use checked_names::{HostName, PciAddress};
pub use clean_samples::CleanSamples;
pub use collective::{Collective, ElementReduction, ElementType, ReduceOp};
pub use copy_chunk::{COPY_BUFFER, COPY_BUFFERS, copy_chunk};
pub use gpu::{BoardIdentity, GpuFacts, GpuReadings, GpuState, part_text};
pub use gpu_caps::GpuCaps;
pub use hidden_gpus::{GpuIdentity, HiddenGpus};
pub use io::{
    CallTally, IoCache, IoEngine, IoFiles, IoHistogram, IoOp, IoOrder, IoReading, IoSpec, IoStage,
    PageFaults, StoreFacts,
};
pub use journal::{BrokenLine, Journal, JournalError, RejectedRecord};
pub use member::RankMember;
pub use meta::{MAX_META_BYTES, MAX_META_ITEMS, MetaOp, MetaSpec};
pub use mover::{
    COPY_UNITS, CpuHow, CpuOp, CpuWork, MAX_BLOCKS, MigrateHow, Mover, RuntimeCall, STAGED_CHUNK,
    STAGED_CHUNKS, ScatterMethod,
};
pub use mover_facts::{CopyAgent, FaultHandling, IssueCall, MemoryUse, MoverFacts};
pub use mpi_controls::{MpiBrand, MpiControls, MpiVariable, READ_BACK};
pub use multipath::{GpuSet, MultipathSpec, PathShares};
pub use nearest::{did_you_mean, misspelt_name, nearest_name};
pub use node_verdict::NodeVerdict;
pub use origin::ConstantOrigin;
pub use place::{MemKind, Place, Rank, Unit};
pub use plain_text::{is_steering, line_words, plain_line, plain_text};
pub use quoting::{
    COMPUTED, UnwritableText, comment_line, is_variable_name, label_text, markup_text, shell_line,
    shell_setting, shell_word, shell_words, toml_text,
};
pub use record::{
    CaseOutcome, ComparedBlocks, Conditions, FaultedCase, FlowSeries, JournalRecord, MeasuredCase,
    RunBegin, RunEnd, RunNote, RunSettings, SCHEMA_VERSION, SampledCase, Severity, SkippedCase,
    StopInfo, StopReason, TimerKind, VerifyResult, WorldKind,
};
pub use repeats::RunRepeat;
pub use select::CasePattern;
pub use size_effects::{EffectBasis, SizeEffect, SizeEffects, SizedTransfer};
pub use stripes::StripeLayout;
pub use suite::SuiteId;
pub use switch::UcxSetting;
pub use topology::{
    BlockDevice, CacheGroup, CpuSet, Gpu, GpuCache, GpuRoute, HostInfo, Link, LinkEnd, LinkKind,
    Nic, NumaDomain, PciDevice, PcieLink, Topology, TopologyWarning,
};
pub use traffic::{
    NoRate, TrafficCounter, TrafficMoved, TrafficPath, TrafficReading, TrafficWay, UncountedPath,
};
pub use units::{Bytes, Ns, Rate, decimal_text};
pub use url_mask::mask_urls;
pub use variant::{
    AccessWidth, CHASE_STEPS, CacheHint, FMA_PER_BYTE, GridSize, KernelEffect, KernelOp,
    KernelVariant, SHARED_KIB, TileOrder,
};

pub use wire::{CoreDistance, MessageOp, ShmCopies, Transport, WireOp};
pub use wire_words::{AtomicOp, OverlapWork, WindowKind, WindowSync};

/// An error in a text, with the expected form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is no {what}: {expected}")]
pub struct ParseError {
    /// The kind of thing that was expected, such as `case` or `size`.
    pub what: &'static str,
    /// The offending text, cut to a readable length.
    pub text: String,
    /// The expected form.
    pub expected: String,
}

impl ParseError {
    pub(crate) fn new(what: &'static str, text: &str, expected: impl Into<String>) -> Self {
        let mut cut: String = text.chars().take(80).collect();
        if cut.len() < text.len() {
            cut.push('…');
        }
        Self { what, text: cut, expected: expected.into() }
    }
    /// Of a name that is none of a vocabulary's.
    pub(crate) fn unknown(what: &'static str, text: &str, names: &[&str]) -> Self {
        let near = did_you_mean(text, names.iter().copied());
        Self::new(what, text, format!("one of {}{near}", names.join(" ")))
    }
}

/// Serialises a type as its canonical text.
macro_rules! serde_as_text {
    ($($t:ty),+) => {$(
        impl serde::Serialize for $t {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $t {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}
pub(crate) use serde_as_text;

/// Gives a field-less enum its word table: `Display`, `FromStr` and `ALL`.
macro_rules! words {
    ($t:ident, $what:literal, { $($v:ident => $w:literal),+ $(,)? }) => {
        impl $t {
            /// Every value, in display order.
            pub const ALL: &[$t] = &[$($t::$v),+];
            /// The word that stands for this value in case texts and records.
            pub const fn word(self) -> &'static str {
                match self { $($t::$v => $w),+ }
            }
        }
        impl std::fmt::Display for $t {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }
        impl std::str::FromStr for $t {
            type Err = $crate::ParseError;
            fn from_str(s: &str) -> Result<Self, Self::Err> {
                match s {
                    $($w => Ok($t::$v),)+
                    _ => Err($crate::ParseError::unknown($what, s, &[$($w),+])),
                }
            }
        }
    };
}
pub(crate) use words;
