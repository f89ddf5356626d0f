//! What distinguishes a run from others of the same paste: its title, as `pathline report --format osu` and
//! `--format nccl-tests` write it above each table, and the settings that are stated before it.

use std::collections::BTreeMap;

/// Conditions of a run that are kept.
const MAX_CONDITIONS: usize = 32;

/// The title of a run and its settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunTitle {
    /// `ranks 0 and 1`, `broadcast over 2 ranks`; empty without a title.
    pub subject: String,
    /// Memory, cadence and settings: `vram`, `graph`, `HSA_ENABLE_SDMA=1`.
    pub conditions: Vec<String>,
}

impl RunTitle {
    /// Of a line `# pathline: LIBRARY, SUBJECT, CONDITION, ...`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut fields = line.strip_prefix("# pathline: ")?.split(", ");
        let subject = fields.nth(1)?.to_owned();
        // Settings are read as those of any line are.
        let conditions = fields.filter(|field| !field.contains('=')).take(MAX_CONDITIONS);
        Some(Self { subject, conditions: conditions.map(str::to_owned).collect() })
    }

    /// The same with the settings of the text so far.
    pub(crate) fn with(mut self, settings: &BTreeMap<String, String>) -> Self {
        let each = settings.iter().take(MAX_CONDITIONS);
        self.conditions.extend(each.map(|(name, value)| format!("{name}={value}")));
        self
    }

    /// The two ranks that exchange messages, where it names two.
    pub fn pair(&self) -> Option<(u32, u32)> {
        let (from, to) = self.subject.strip_prefix("ranks ")?.split_once(" and ")?;
        Some((from.parse().ok()?, to.parse().ok()?))
    }

    /// Conditions that another run lacks.
    pub fn unlike(&self, other: &Self) -> Vec<&str> {
        let own = self.conditions.iter().filter(|own| !other.conditions.contains(own));
        own.map(String::as_str).collect()
    }
}
