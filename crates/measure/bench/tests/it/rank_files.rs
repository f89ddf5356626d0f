//! Files that several ranks read or write together, each in its part.

use pathline_bench::RankSide;
use pathline_flow::{MachineDesc, RuntimeEnv};
use pathline_hal::{ExchangeId, NoBarrier, RankBarrier};
use pathline_schema::{Case, CpuSet, Rank, VerifyResult};

const ID: ExchangeId = ExchangeId(3);

struct Fails;

impl RankBarrier for Fails {
    fn wait(&self) -> pathline_hal::CallResult<()> {
        Err(pathline_hal::CallError::unsupported("wait", "a barrier", "a rank is gone"))
    }
}

/// Two ranks with a file each, for two kinds of I/O and one of names; each does its own.
#[test]
fn a_rank_does_its_own_files() {
    let by = |op: &str| format!("uring@numa0[{op},direct,own,1GiB,q4,n1,t2] x 1MiB");
    let names = "meta@numa0[create,own,d1,f9,t1] x 1B";
    for flows in [
        ["r0.store0.file > r0.numa0.huge by", "r1.store0.file > r1.numa0.pinned by"]
            .map(|f| format!("{f} {}", by("seq-read"))),
        ["r0.numa0.huge > r0.store0.file by", "r1.numa0.huge > r1.store0.file by"]
            .map(|f| format!("{f} {}", by("rand-write"))),
        ["r0.numa0.reg > r0.store0.file by", "r1.numa0.reg > r1.store0.file by"]
            .map(|f| format!("{f} {names}")),
    ] {
        let text = flows.join(" & ");
        let case: Case = text.parse().expect(&text);
        let desc = MachineDesc::preset("mi250x").unwrap();
        let machine = pathline_sim::machine(&desc, RuntimeEnv::default(), 1).unwrap();
        for me in [0, 1] {
            let mut side = RankSide::new(&machine, Rank(me), Vec::new());
            let offer = side.bind(ID, &case, &CpuSet::default()).expect(&text);
            let names: Vec<Option<String>> = serde_json::from_slice(&offer).unwrap();
            let own = |nth: usize| nth == me as usize;
            let named: Vec<bool> = names.iter().map(Option::is_some).collect();
            assert_eq!(named, [0, 1].map(|nth| own(nth) && text.contains("uring")), "{names:?}");
            side.join(ID, &[offer.clone(), offer]).expect(&text);
            assert!(side.run(ID, 8, &Fails).is_err());
            let sample = side.run(ID, 8, &NoBarrier).expect(&text);
            assert_eq!(
                sample.times.iter().map(Vec::len).collect::<Vec<_>>(),
                [0, 1].map(|n| usize::from(own(n)))
            );
            assert_eq!(
                sample.io.iter().map(Option::is_some).collect::<Vec<_>>(),
                [0, 1].map(own),
                "{text}"
            );
            assert!(sample.times.iter().flatten().all(|&ns| ns > 1e3), "{sample:?}");
            side.spoil(ID).expect(&text);
            let verdict = side.check(ID).expect(&text);
            assert_eq!(verdict == VerifyResult::Verified, text.contains("uring"), "{text}");
            let engine = side.engine(ID);
            assert_eq!(engine.contains("io_uring"), text.contains("uring"), "{engine}");
            assert!(!engine.is_empty());
            side.release(ID).expect(&text);
            assert!(side.check(ID).is_err() && side.engine(ID).is_empty());
        }
    }
}

/// Rank 1 reads the file of rank 0 in its part, once that has offered a name. A model shares no files.
#[test]
fn a_file_of_another_rank_is_opened_by_its_name() {
    let by = "uring@numa0[seq-read,direct,shared,1GiB,q4,n1,t2] x 1MiB";
    let text =
        format!("r0.store0.file > r0.numa0.huge by {by} & r0.store0.file > r1.numa0.huge by {by}");
    let case: Case = text.parse().expect(&text);
    let desc = MachineDesc::preset("mi250x").unwrap();
    let machine = pathline_sim::machine(&desc, RuntimeEnv::default(), 1).unwrap();
    for (offer, reason) in [
        (r#"["a name",null]"#, "its files are not shared"),
        (r#"[null,"a name"]"#, "its files are not shared"),
        ("[null,null]", "rank 0 has not opened this file"),
        ("", "rank 0 has not opened this file"),
    ] {
        let mut side = RankSide::new(&machine, Rank(1), Vec::new());
        let own = side.bind(ID, &case, &CpuSet::default()).expect(&text);
        assert_eq!(own, b"[null,null]");
        let refused = side.join(ID, &[offer.as_bytes().to_vec(), own]).unwrap_err().to_string();
        assert!(refused.contains(reason), "{refused}");
    }
}
