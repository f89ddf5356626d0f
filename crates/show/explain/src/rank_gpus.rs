//! Which GPU of its host each rank's GPU is, where visibility variables renumber them.

use pathline_schema::{GpuIdentity, Rank, RankMember};

use crate::fmt;

/// Ranks that are named; the others are counted.
const MAX_NAMED: usize = 8;

/// `r0.gpu0 = GPU 4 of its host (0000:c1:00.0), r1.gpu0 = GPU 5 (0000:c6:00.0)`. Empty where every
/// process numbers its GPUs as the host does, or where their addresses are unknown.
pub(crate) fn name_rank_gpus(members: &[RankMember]) -> String {
    let own = |member: &RankMember| {
        let pairs = member.gpus.iter().copied().zip(member.gpu_identities.iter().cloned());
        pairs.map(|(gpu, identity)| (member.rank, gpu, identity)).collect::<Vec<_>>()
    };
    let all: Vec<_> = members.iter().flat_map(own).collect();
    if all.iter().all(|(_, gpu, identity)| *gpu == identity.host_index) {
        return String::new();
    }
    let name = |(nth, (rank, gpu, identity)): (usize, &(Rank, u32, GpuIdentity))| {
        let of = if nth == 0 { " of its host" } else { "" };
        format!("r{}.gpu{gpu} = GPU {}{of} ({})", rank.0, identity.host_index, identity.pci)
    };
    let mut parts: Vec<String> = all.iter().enumerate().take(MAX_NAMED).map(name).collect();
    if all.len() > MAX_NAMED {
        parts.push(fmt::count(all.len() - MAX_NAMED, "other") + " in the journal");
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(rank: u32, gpu: u32, host_index: u32) -> RankMember {
        let pci = format!("0000:{host_index}0:00.0").parse().unwrap();
        RankMember {
            rank: Rank(rank),
            gpus: vec![gpu],
            gpu_identities: vec![GpuIdentity { pci, host_index }],
            ..RankMember::default()
        }
    }

    #[test]
    fn ranks_with_one_visible_gpu_each_are_distinguished() {
        let text = name_rank_gpus(&[member(0, 0, 4), member(1, 0, 5)]);
        assert_eq!(
            text,
            "r0.gpu0 = GPU 4 of its host (0000:40:00.0), r1.gpu0 = GPU 5 (0000:50:00.0)"
        );
        let many: Vec<RankMember> = (0..10).map(|rank| member(rank, 0, rank)).collect();
        assert!(name_rank_gpus(&many).ends_with("(0000:70:00.0), 2 others in the journal"));
    }

    #[test]
    fn numbers_of_the_host_need_no_line() {
        assert_eq!(name_rank_gpus(&[member(0, 0, 0), member(1, 1, 1)]), "");
        let unknown = RankMember { gpus: vec![0], ..RankMember::default() };
        assert_eq!(name_rank_gpus(&[unknown]), "");
    }
}
