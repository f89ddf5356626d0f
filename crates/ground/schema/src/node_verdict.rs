//! The verdict on a node, in the four words that every command has for it.

use serde::{Deserialize, Serialize};

/// The verdict on a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeVerdict {
    /// Everything that was asked for was looked at, and nothing is wrong.
    #[serde(alias = "pass", alias = "no-fault")]
    Ok,
    /// A path is slower than its peers or comes and goes; measuring again decides.
    #[serde(alias = "unstable")]
    Suspect,
    /// A part is faulty.
    #[serde(alias = "faulty")]
    Fail,
    /// Too little could be looked at, or it was disturbed.
    #[default]
    #[serde(alias = "inconclusive", alias = "unusable", alias = "unknown", alias = "incomplete")]
    Undecided,
}

impl NodeVerdict {
    /// All of them, the best first.
    pub const ALL: [Self; 4] = [Self::Ok, Self::Suspect, Self::Fail, Self::Undecided];

    /// As reports print it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Suspect => "SUSPECT",
            Self::Fail => "FAIL",
            Self::Undecided => "UNDECIDED",
        }
    }

    /// Exit code of a command that was asked for a verdict.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Suspect | Self::Fail => 1,
            Self::Undecided => 3,
        }
    }

    /// Exit code of a Nagios plugin: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.
    pub const fn nagios_code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Suspect => 1,
            Self::Fail => 2,
            Self::Undecided => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_earlier_versions_are_read() {
        for (old, verdict) in [
            ("pass", NodeVerdict::Ok),
            ("no-fault", NodeVerdict::Ok),
            ("unstable", NodeVerdict::Suspect),
            ("faulty", NodeVerdict::Fail),
            ("inconclusive", NodeVerdict::Undecided),
        ] {
            assert_eq!(
                serde_json::from_str::<NodeVerdict>(&format!("\"{old}\"")).ok(),
                Some(verdict)
            );
        }
        for verdict in NodeVerdict::ALL {
            let text = serde_json::to_string(&verdict).unwrap();
            assert_eq!(text, format!("\"{}\"", verdict.word().to_lowercase()));
        }
    }
}
