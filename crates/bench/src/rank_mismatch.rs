//! Warns before the measurement if the GPUs of ranks differ.

use std::collections::BTreeMap;

use pathline_schema::{CpuSet, RankMember, RunNote};

/// Names the ranks of each kind of GPU, if there are several kinds or some ranks have none.
pub(crate) fn note(members: &[RankMember]) -> Option<RunNote> {
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

#[cfg(test)]
mod tests {
    use pathline_schema::Rank;

    use super::*;

    fn member(rank: u32, gpu: Option<&str>) -> RankMember {
        RankMember {
            rank: Rank(rank),
            host: "here".to_owned(),
            node: 0,
            pid: 0,
            gpus: gpu.map(|_| rank).into_iter().collect(),
            gpu: gpu.map(str::to_owned),
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
        assert_eq!(note(&all[..2]), None);
        let text = note(&all).unwrap().text;
        assert_eq!(
            text,
            "ranks 0-1 have H200 of 140GiB, 2 on its host; rank 2 has H100 of 80GiB, 2 on its host: a \
             figure between unlike GPUs is of both, and a collective is as slow as the slowest"
        );
        // Fewer of the same GPUs per host also count as another kind.
        let fewer = Some("H200 of 140GiB, 1 on its host");
        assert!(note(&[member(0, a), member(1, fewer)]).is_some());
    }

    #[test]
    fn a_rank_without_a_gpu_is_named_with_the_effect() {
        let gpu = Some("H200 of 140GiB, 1 on its host");
        let note = note(&[member(0, gpu), member(1, None)]).unwrap();
        assert_eq!((note.code.as_str(), note.subject.as_str()), ("unlike-ranks", "ranks"));
        assert!(note.text.contains("; rank 1 has no GPU: messages of device"), "{}", note.text);
        let none = [member(0, None), member(1, None)];
        assert_eq!(super::note(&none), None);
    }
}
