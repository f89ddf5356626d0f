//! What a setting does to all transfers of a job, by the sum of their times.

use pathline_schema::Ns;

use crate::advice::{Advice, AdviceVerdict, WITHIN_MODEL, untried_setting};
use crate::arm::AdviceChoice;
use crate::gain_text::gain_text;
use crate::proof::GainInterval;

/// A transfer of a job, by a model.
#[derive(Debug, Clone, PartialEq)]
pub struct JobTransfer {
    /// What is moved.
    pub subject: String,
    /// How often.
    pub count: u64,
    /// Time of one without the setting.
    pub time: Ns,
    /// What the setting gains of it, with the range of the model.
    pub gain: GainInterval,
}

/// What the subject of an answer about a whole job begins with.
const JOB_SUM: &str = "the job in sum";

impl Advice {
    /// Whether it is about a whole job.
    pub(crate) fn is_job_sum(&self) -> bool {
        self.subject.starts_with(JOB_SUM)
    }

    /// The answer for a setting that acts on all transfers of a job. Bounds of the sum are those at which the gains of
    /// all transfers have theirs.
    pub fn of_job(choice: AdviceChoice, transfers: &[JobTransfer], min_gain: f64) -> Self {
        let sum = |gain_of: &dyn Fn(&GainInterval) -> f64| -> f64 {
            let times =
                transfers.iter().map(|of| of.count as f64 * of.time.0 / (1.0 + gain_of(&of.gain)));
            times.sum()
        };
        let default = sum(&|_| 0.0);
        let with = sum(&|gain| gain.gain);
        let [low, high] = [sum(&|gain| gain.low), sum(&|gain| gain.high)];
        let [gain, low, high] = [with, low, high].map(|time| default / time - 1.0);
        let verdict = match () {
            () if low > min_gain => AdviceVerdict::Predicted,
            () if gain < min_gain => AdviceVerdict::Keep,
            () => AdviceVerdict::Unclear,
        };
        let each = transfers
            .iter()
            .map(|of| format!("{} x {}: {}", of.count, of.subject, gain_text(of.gain.gain)));
        let each = each.collect::<Vec<_>>().join("; ");
        let (name, value) = choice.settings.first_key_value().unzip();
        let [name, value] = [name, value].map(|text| text.map_or("", String::as_str));
        let answer = untried_setting(name, value, verdict, WITHIN_MODEL.to_owned());
        let subject = format!("{JOB_SUM} ({each}), {} instead of {}", Ns(with), Ns(default));
        let gain = Some(GainInterval { gain, low, high, blocks: 0 });
        Self { subject, choice: Some(choice), gain, ..answer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(small: u64, large: u64) -> Advice {
        let of = |subject: &str, count, us: f64, gain: f64, low, high| JobTransfer {
            subject: subject.to_owned(),
            count,
            time: Ns(us * 1e3),
            gain: GainInterval { gain, low, high, blocks: 0 },
        };
        let all =
            [of("4KiB", small, 6.0, -0.4, -0.5, -0.25), of("64MiB", large, 1200.0, 2.0, 1.0, 3.0)];
        Advice::of_job(AdviceChoice::of_setting("Set X=0".to_owned(), "X", "0"), &all, 0.01)
    }

    /// 1000 of 6 us and 10 of 1.2 ms take 18 ms. With the setting 6 / 0.6 and 1.2 / 3: 10 + 4 = 14 ms, at the bounds 12 +
    /// 6 = 18 and 8 + 3 = 11 ms. Ten times as many large ones: 126 ms; 10 + 40 = 50, and 12 + 60 = 72. Of small ones
    /// alone each takes longer.
    #[test]
    fn a_job_is_judged_by_the_sum_of_its_times() {
        let even = job(1000, 10);
        assert_eq!(even.verdict, AdviceVerdict::Unclear);
        let gain = even.gain.unwrap();
        let all = [gain.gain - 4.0 / 14.0, gain.low, gain.high - 7.0 / 11.0];
        assert!(all.iter().all(|off| off.abs() < 1e-9), "{gain:?}");
        let each =
            "the job in sum (1000 x 4KiB: -40 %; 10 x 64MiB: 3.0x), 14.0 ms instead of 18.0 ms";
        assert_eq!(even.subject, each);
        let large = job(1000, 100);
        assert!(large.verdict == AdviceVerdict::Predicted && large.variables()["X"] == "0");
        assert!((large.gain.unwrap().low - 0.75).abs() < 1e-9, "126 / 72 - 1");
        assert_eq!(job(1000, 0).verdict, AdviceVerdict::Keep);
    }
}
