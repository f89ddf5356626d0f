//! What a library chose for a collective, and the row of a tuner that makes it choose that again.

use pathline_schema::{Case, Collective};
use pathline_tuner::{TunedAlgorithm, TunedCollective, TunedProtocol, TunerRow};

use crate::arm::{AdviceChoice, ArmTask};
use crate::collective_settings::member_count;

/// The row for what a library chose, as `ring ll128 on 16 channels`, under the setting of a choice. It holds
/// from 3/4 to 3/2 of the size that was measured, which covers it among powers of two and nothing more. Channels
/// are part of the row only where the setting is about them. None if no tuner is asked about it.
pub(crate) fn tuner_row(choice: &AdviceChoice, chosen: &str) -> Option<TunerRow> {
    let ArmTask::Case(case) = &choice.arm.task else { return None };
    let (collective, ranks) = collective_of(case)?;
    let mut words = chosen.split(' ');
    let algorithm = TunedAlgorithm::from_word(words.next()?)?;
    let protocol = TunedProtocol::from_word(words.next()?)?;
    let rest: Vec<&str> = words.collect();
    let channels = match rest.as_slice() {
        [] => None,
        ["on", count, "channels"] => Some(count.parse::<u8>().ok()?),
        _ => return None,
    };
    let is_about_channels = choice.settings.keys().any(|name| name.ends_with("_NCHANNELS"));
    let channels = if is_about_channels { channels?.min(TunerRow::MAX_CHANNELS) } else { 0 };
    let bytes = case.timed.first()?.bytes.0;
    Some(TunerRow {
        collective,
        least_bytes: bytes - bytes / 4,
        most_bytes: bytes.saturating_add(bytes.div_ceil(2) - 1),
        algorithm,
        protocol,
        channels,
        nodes: Some(choice.nodes),
        ranks: Some(ranks),
    })
}

/// The collective of a case and its ranks, if a tuner is asked about it.
fn collective_of(case: &Case) -> Option<(TunedCollective, u32)> {
    let [flow] = case.timed.as_slice() else { return None };
    let collective = match flow.by.wire()?.op.collective()? {
        Collective::Broadcast => TunedCollective::Broadcast,
        Collective::Reduce => TunedCollective::Reduce,
        Collective::AllGather => TunedCollective::AllGather,
        Collective::ReduceScatter => TunedCollective::ReduceScatter,
        Collective::AllReduce => TunedCollective::AllReduce,
        _ => return None,
    };
    Some((collective, member_count(flow)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::{ArmEnv, TrialArm};

    fn row(case: &str, name: &str, chosen: &str) -> Option<String> {
        let arm = TrialArm::of_case("x", case.parse().unwrap());
        let settings = ArmEnv::from([(name.to_owned(), "1".to_owned())]);
        let choice = AdviceChoice {
            arm,
            action: String::new(),
            cost: String::new(),
            settings,
            guards: Vec::new(),
            ignored: None,
            nodes: 1,
        };
        tuner_row(&choice, chosen).map(|row| row.to_string())
    }

    #[test]
    fn what_was_chosen_is_a_row_of_its_size() {
        let sum = "r0.gpu0.vram > r7.gpu7.vram by ccl@gpu0[all_reduce] x 1MiB";
        let found = row(sum, "NCCL_PROTO", "ring ll128 on 16 channels");
        // 0.75 MiB to 1.5 MiB less a byte.
        assert_eq!(found.as_deref(), Some("allreduce,786432,1572863,ring,ll128,0,1,8"));
        let found = row(sum, "NCCL_MIN_NCHANNELS", "nvls_tree simple on 24 channels");
        assert_eq!(found.as_deref(), Some("allreduce,786432,1572863,nvls_tree,simple,24,1,8"));
        let found = row(&sum.replace("1MiB", "8B"), "NCCL_ALGO", "tree ll");
        assert_eq!(found.as_deref(), Some("allreduce,6,11,tree,ll,0,1,8"));
        for other in ["Kernel AllReduce_AGxLL_R nchannels 1", "ring", "", "ring simple and tree ll"]
        {
            assert_eq!(row(sum, "NCCL_ALGO", other), None, "{other}");
        }
        assert_eq!(row(&sum.replace("all_reduce", "all_to_all"), "NCCL_ALGO", "ring ll"), None);
    }
}
