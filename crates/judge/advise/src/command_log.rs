//! What a command's log shows of the settings that it was started with: NCCL and RCCL name each variable that they
//! read, and the algorithm, protocol and channels that they choose.

use std::collections::BTreeSet;
use std::fmt;

use crate::arm::ArmEnv;
use crate::collective_settings::is_shown_by_choice;

/// A variable with the value that it has without being set. Both libraries read it for each communicator, so its
/// line in a log shows that the log has such lines. Source: `NCCL_PARAM(IgnoreCpuAffinity, ..., 0)` and
/// `ncclLoadParam` of NCCL 2.8 to 2.30 and of RCCL.
const LOG_WITNESS: (&str, &str) = ("NCCL_IGNORE_CPU_AFFINITY", "0");
/// Beginnings of the names of variables whose reading the log names.
const LOGGED_FAMILIES: [&str; 2] = ["NCCL_", "RCCL_"];
/// Where the tuner plugin of this project finds its rows.
const TUNER_ROWS: &str = "PATHLINE_TUNER_ROWS";
/// Choices that an answer names one by one.
const MAX_CHOICES: usize = 3;

/// What the log of a command shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandLog {
    /// Names of variables in lines of the library.
    named: BTreeSet<String>,
    /// Of these, the ones whose value the library refuses.
    refused: BTreeSet<String>,
    /// Algorithm, protocol and channels of the collectives, as `ring ll on 2 channels`.
    chosen: BTreeSet<String>,
    /// Collectives that the tuner plugin was asked about, and how many a row decided; of all ranks.
    rows: Option<(u64, u64)>,
}

impl CommandLog {
    /// Variables with which a command writes such a log to its output; an empty value removes one. A log file
    /// that a user has named is not written.
    pub fn variables() -> ArmEnv {
        let all = [
            ("NCCL_DEBUG", "INFO"),
            ("NCCL_DEBUG_SUBSYS", "INIT,ENV,TUNING"),
            ("NCCL_DEBUG_FILE", ""),
            LOG_WITNESS,
        ];
        all.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    /// Whether the log can show anything of these settings.
    pub fn shows(settings: &ArmEnv) -> bool {
        settings.iter().any(|(name, value)| is_logged(name, value) || name == TUNER_ROWS)
    }

    /// Reads what a command printed.
    pub fn read(text: &str) -> Self {
        let mut log = Self::default();
        for line in text.lines() {
            if let Some((_, from)) = line.split_once("TUNER/pathline: ") {
                log.add_rows(from);
            }
            let Some((_, line)) = line.split_once(" NCCL ") else { continue };
            if let Some((_, how)) = line.split_once(" Bytes -> ") {
                log.chosen.extend(choice_text(how));
                continue;
            }
            let is_refused = line.contains("Invalid value ");
            let words = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            for name in words.filter(|word| LOGGED_FAMILIES.iter().any(|f| word.starts_with(f))) {
                if is_refused {
                    log.refused.insert(name.to_owned());
                }
                log.named.insert(name.to_owned());
            }
        }
        log
    }

    /// `12 collectives: 9 as a row says, ...` of one rank.
    fn add_rows(&mut self, text: &str) {
        let mut words = text.split(' ');
        let mut number = || words.next()?.parse::<u64>().ok();
        let Some(calls) = number().filter(|_| text.contains(" as a row says")) else { return };
        let followed = words.nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let (all, by_row) = self.rows.unwrap_or_default();
        self.rows = Some((all.saturating_add(calls), by_row.saturating_add(followed)));
    }

    /// What settings changed against the log of the command without them, as text; or why they do not act.
    /// `None` if the logs show nothing about them.
    pub fn judge(&self, default: &Self, settings: &ArmEnv) -> Option<Result<String, String>> {
        let logged: Vec<&str> = settings
            .iter()
            .filter(|(name, value)| is_logged(name, value))
            .map(|(name, _)| name.as_str())
            .collect();
        if let Some(name) = logged.iter().find(|name| self.refused.contains(**name)) {
            return Some(Err(format!("the library refuses the value of {name}")));
        }
        let is_witnessed = self.named.contains(LOG_WITNESS.0);
        let read: Vec<&str> =
            logged.iter().copied().filter(|name| self.named.contains(*name)).collect();
        // All that differs must be variables of the library, or something else may act.
        if is_witnessed && read.is_empty() && logged.len() == settings.len() {
            return Some(Err(format!(
                "the library does not read {}: its log names other variables, and not this",
                logged.join(", ")
            )));
        }
        if settings.contains_key(TUNER_ROWS) || settings.contains_key("NCCL_TUNER_PLUGIN") {
            match self.rows {
                Some((calls, 0)) if calls > 0 => {
                    return Some(Err(format!("no collective of {calls} is as a row says")));
                }
                Some((calls, followed)) if calls > 0 => {
                    return Some(Ok(format!("{followed} of {calls} collectives as a row says")));
                }
                _ => {}
            }
        }
        let is_same = !self.chosen.is_empty() && self.chosen == default.chosen;
        if is_same && is_shown_by_choice(settings) {
            return Some(Err(format!("the library chooses {self} with and without it")));
        }
        if !self.chosen.is_empty() {
            return Some(Ok(self.to_string()));
        }
        (!read.is_empty()).then(|| Ok(format!("{} read", read.join(", "))))
    }
}

/// What the library chose.
impl fmt::Display for CommandLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<&str> = self.chosen.iter().take(MAX_CHOICES).map(String::as_str).collect();
        f.write_str(&shown.join(" and "))?;
        match self.chosen.len().saturating_sub(MAX_CHOICES) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

fn is_logged(name: &str, value: &str) -> bool {
    !value.is_empty() && LOGGED_FAMILIES.iter().any(|family| name.starts_with(family))
}

/// `Algo RING proto LL channel{Lo..Hi}={0..1}` as `ring ll on 2 channels`.
fn choice_text(how: &str) -> Option<String> {
    let words: Vec<&str> = how.split_whitespace().collect();
    let after = |key: &str| words.get(words.iter().position(|word| *word == key)? + 1).copied();
    let mut text = format!("{} {}", after("Algo")?, after("proto")?).to_ascii_lowercase();
    let channels = words.iter().find_map(|word| {
        let (low, high) = word.split_once("={")?.1.strip_suffix('}')?.split_once("..")?;
        let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
        high.checked_sub(low)?.checked_add(1)
    });
    if let Some(channels) = channels {
        text.push_str(&format!(" on {channels} channels"));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITNESS: &str = "n:1:2 [0] NCCL INFO NCCL_IGNORE_CPU_AFFINITY set by environment to 0.\n";

    fn settings(of: &[(&str, &str)]) -> ArmEnv {
        of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn chose(algorithm: &str, last: u32) -> String {
        format!(
            "{WITNESS}n:1:2 [0] NCCL INFO NCCL_ALGO set by environment to x\n\
             n:1:2 [0] NCCL INFO AllReduce: 4 Bytes -> Algo {algorithm} proto LL channel{{Lo..Hi}}={{0..{last}}}\n"
        )
    }

    fn judge(text: &str, default: &str, set: &[(&str, &str)]) -> Option<Result<String, String>> {
        CommandLog::read(text).judge(&CommandLog::read(default), &settings(set))
    }

    #[test]
    fn a_variable_that_is_not_read_does_not_act() {
        let why = judge(WITNESS, WITNESS, &[("NCCL_IB_QPS_PER_CONNECTION", "4")]);
        let why = why.unwrap().unwrap_err();
        assert!(why.starts_with("the library does not read NCCL_IB_QPS_PER_CONNECTION"), "{why}");
        // Without the witness the log may lack such lines, and other variables may act by other means.
        let set = [("NCCL_IB_QPS_PER_CONNECTION", "4")];
        assert_eq!(judge("n:1:2 [0] NCCL INFO Init COMPLETE\n", "", &set), None);
        assert_eq!(judge(WITNESS, WITNESS, &[("NCCL_X", "1"), ("OMP_NUM_THREADS", "2")]), None);
        let read =
            format!("{WITNESS}n:1:2 [0] NCCL INFO NCCL_NTHREADS set by environment to 256.\n");
        let read = judge(&read, WITNESS, &[("NCCL_NTHREADS", "256")]);
        assert_eq!(read, Some(Ok("NCCL_NTHREADS read".to_owned())));
        let bad = format!(
            "{WITNESS}n:1:2 [0] NCCL INFO Invalid value abc for NCCL_NTHREADS, using default -2.\n"
        );
        let bad = judge(&bad, WITNESS, &[("NCCL_NTHREADS", "abc")]);
        assert_eq!(bad, Some(Err("the library refuses the value of NCCL_NTHREADS".to_owned())));
    }

    #[test]
    fn the_same_choices_are_no_effect_of_a_setting_about_choices() {
        let set = [("NCCL_ALGO", "Ring")];
        let same = judge(&chose("RING", 1), &chose("RING", 1), &set).unwrap().unwrap_err();
        assert_eq!(same, "the library chooses ring ll on 2 channels with and without it");
        let other = judge(&chose("RING", 1), &chose("TREE", 1), &set);
        assert_eq!(other, Some(Ok("ring ll on 2 channels".to_owned())));
        // Threads do not show in choices.
        let threads = chose("RING", 1).replace("NCCL_ALGO", "NCCL_NTHREADS");
        let threads = judge(&threads, &threads, &[("NCCL_NTHREADS", "256")]);
        assert_eq!(threads, Some(Ok("ring ll on 2 channels".to_owned())));
    }

    /// Two ranks: 10 collectives each, of which a row decided 4 and 0.
    #[test]
    fn rows_of_the_tuner_are_counted_over_ranks() {
        let summary = |n: u64| {
            format!(
                "n:1:2 [0] NCCL INFO TUNER/pathline: 10 collectives: {n} as a row says, 0 where\n"
            )
        };
        let set = [("PATHLINE_TUNER_ROWS", "/x")];
        let found = judge(&(summary(4) + &summary(0)), "", &set);
        assert_eq!(found, Some(Ok("4 of 20 collectives as a row says".to_owned())));
        let none = judge(&summary(0), "", &set);
        assert_eq!(none, Some(Err("no collective of 10 is as a row says".to_owned())));
    }
}
