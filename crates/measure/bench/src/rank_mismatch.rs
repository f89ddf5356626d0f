//! Warns before the measurement if the GPUs of ranks differ, or if ranks share one.

use std::collections::BTreeMap;

use pathline_schema::{CpuSet, RankMember, RunNote};

/// Names the ranks of each kind of GPU, if there are several kinds or some ranks have none.
pub(crate) fn unlike_gpus(members: &[RankMember]) -> Option<RunNote> {
    // In the order of their first ranks.
    let mut kinds: Vec<String> = Vec::new();
    let mut ranks: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for member in members {
        let kind = match (&member.gpu, member.gpus.is_empty()) {
            (_, true) => "no GPU".to_owned(),
            (Some(gpu), _) => gpu.clone(),
            (None, _) => "a GPU".to_owned(),
        };
        let at = kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
            kinds.push(kind);
            kinds.len() - 1
        });
        ranks.entry(at).or_default().push(member.rank.0);
    }
    if kinds.len() < 2 {
        return None;
    }
    let part = |(at, kind): (usize, &String)| {
        let ranks = ranks.get(&at).map_or(&[][..], Vec::as_slice);
        // In the format of CPU lists: 0-3,8.
        let list = CpuSet::new(ranks.iter().copied());
        let (noun, verb) = if ranks.len() == 1 { ("rank", "has") } else { ("ranks", "have") };
        format!("{noun} {list} {verb} {kind}")
    };
    let parts: Vec<String> = kinds.iter().enumerate().map(part).collect();
    let some_without = members.iter().any(|member| member.gpus.is_empty());
    let cost = if some_without {
        "messages of device memory are left out, since not every rank has a GPU"
    } else {
        "a figure between unlike GPUs is of both, and a collective is as slow as the slowest"
    };
    Some(RunNote {
        code: "unlike-ranks".to_owned(),
        subject: "ranks".to_owned(),
        text: format!("{}: {cost}", parts.join("; ")),
    })
}

/// Names the ranks that use the same GPU of a host, by its PCI address.
pub(crate) fn shared_gpus(members: &[RankMember]) -> Option<RunNote> {
    let mut users: BTreeMap<(u32, &str), Vec<u32>> = BTreeMap::new();
    for member in members {
        // Cases use the first.
        if let Some(first) = member.gpu_identities.first() {
            users.entry((member.node, &first.pci)).or_default().push(member.rank.0);
        }
    }
    let shared = users.iter().filter(|(_, ranks)| ranks.len() > 1);
    let parts: Vec<String> = shared
        .map(|((_, pci), ranks)| {
            let list = CpuSet::new(ranks.iter().copied());
            format!("ranks {list} use the GPU at {pci}")
        })
        .collect();
    (!parts.is_empty()).then(|| RunNote {
        code: "shared-gpu".to_owned(),
        subject: "ranks".to_owned(),
        text: format!(
            "{}: their messages stay inside it, and NCCL and RCCL refuse it; start one rank for each \
             GPU and show each another one: the script of `pathline place`, or a wrapper that sets \
             CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES, under srun with --gpus-per-node and \
             --gpu-bind=none",
            parts.join("; ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use pathline_schema::{GpuIdentity, Rank};

    use super::*;

    fn member(rank: u32, gpu: Option<&str>) -> RankMember {
        RankMember {
            rank: Rank(rank),
            host: "here".to_owned(),
            node: 0,
            pid: 0,
            gpus: gpu.map(|_| rank).into_iter().collect(),
            gpu: gpu.map(str::to_owned),
            gpu_identities: Vec::new(),
            numa: 0,
            cpus: String::new(),
            ways: [].into(),
            without: [].into(),
            host_only: [].into(),
            device_memory: [].into(),
        }
    }

    #[test]
    fn ranks_of_other_gpus_are_named() {
        let (a, b) = (Some("H200 of 140GiB, 2 on its host"), Some("H100 of 80GiB, 2 on its host"));
        let all = [member(0, a), member(1, a), member(2, b)];
        assert_eq!(unlike_gpus(&all[..2]), None);
        let text = unlike_gpus(&all).unwrap().text;
        assert_eq!(
            text,
            "ranks 0-1 have H200 of 140GiB, 2 on its host; rank 2 has H100 of 80GiB, 2 on its host: a \
             figure between unlike GPUs is of both, and a collective is as slow as the slowest"
        );
        // Fewer of the same GPUs per host also count as another kind.
        let fewer = Some("H200 of 140GiB, 1 on its host");
        assert!(unlike_gpus(&[member(0, a), member(1, fewer)]).is_some());
    }

    #[test]
    fn ranks_on_one_gpu_are_named() {
        let at = |rank, pci: &str| {
            let identity = GpuIdentity { pci: pci.parse().unwrap(), host_index: 0 };
            RankMember { gpu_identities: vec![identity], ..member(rank, Some("H200")) }
        };
        let all = [at(0, "0000:19:00.0"), at(1, "0000:3b:00.0"), at(2, "0000:19:00.0")];
        let text = shared_gpus(&all).unwrap().text;
        assert!(text.starts_with("ranks 0,2 use the GPU at 0000:19:00.0: their"), "{text}");
        assert_eq!(shared_gpus(&all[..2]), None);
        // The same address on another host is another GPU.
        let far = RankMember { node: 1, ..at(2, "0000:19:00.0") };
        assert_eq!(shared_gpus(&[at(0, "0000:19:00.0"), far]), None);
    }

    #[test]
    fn a_rank_without_a_gpu_is_named_with_the_effect() {
        let gpu = Some("H200 of 140GiB, 1 on its host");
        let note = unlike_gpus(&[member(0, gpu), member(1, None)]).unwrap();
        assert_eq!((note.code.as_str(), note.subject.as_str()), ("unlike-ranks", "ranks"));
        assert!(note.text.contains("; rank 1 has no GPU: messages of device"), "{}", note.text);
        let none = [member(0, None), member(1, None)];
        assert_eq!(unlike_gpus(&none), None);
    }
}
