//! What the plugin answers.

use std::ffi::c_int;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::ptr::null_mut;
use std::time::Instant;

use tempfile::TempDir;

use crate::plugin::{Choice, Communicator, CostTable, logged, plugin_file};

const ALL_REDUCE: c_int = 4;
const WARNING: c_int = 2;
/// All but PAT, NVLS with LL and the two of the network, as NCCL offers an all_reduce on one node.
const OFFERED: CostTable = [
    [10.0, 11.0, 12.0],
    [20.0, 21.0, 22.0],
    [-1.0, -1.0, -1.0],
    [-1.0, -1.0, -1.0],
    [-1.0, -1.0, 42.0],
    [-1.0, -1.0, -1.0],
    [-1.0, -1.0, -1.0],
];
const ROWS: &str = "allreduce,0,1024,ring,ll,0,1,8\n\
                    allreduce,1025,4096,nvls,simple,24,1,8\n\
                    allreduce,4097,8192,tree,ll128,3,1,8\n\
                    allreduce,8193,9999,nvls_tree,simple,5,1,8\n\
                    allreduce,0,99999,pat,simple,6,1,8\n\
                    broadcast,0,99999,ring,simple,7,2,16\n";

/// A copy of the plugin, so that each test has its own folder, with rows next to it.
fn copy_with(rows: Option<&str>) -> (TempDir, std::path::PathBuf) {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("libpathline_tuner.so");
    fs::copy(plugin_file(), &file).expect("a copy");
    if let Some(rows) = rows {
        fs::write(folder.path().join("libpathline_tuner.rows"), rows).expect("rows");
    }
    (folder, file)
}

fn lowered(algorithm: usize, protocol: usize) -> CostTable {
    let mut costs = OFFERED;
    costs[algorithm][protocol] = 0.0;
    costs
}

#[test]
fn rows_are_followed_where_the_library_offers_them() {
    let (_folder, file) = copy_with(Some(ROWS));
    for version in 2..=5 {
        let all = Communicator::open(&file, version, 8, 1);
        assert_eq!(all.name(), "pathline");
        let untouched = Choice { algorithm: -1, protocol: -1, channels: 0, costs: OFFERED };
        let of = |algorithm: usize, protocol: usize, channels: c_int| match version {
            2 => {
                let (algorithm, protocol) = (algorithm as c_int, protocol as c_int);
                Choice { algorithm, protocol, channels, costs: OFFERED }
            }
            _ => Choice { channels, costs: lowered(algorithm, protocol), ..untouched },
        };
        let ask = |bytes: usize| all.ask(ALL_REDUCE, bytes, OFFERED);
        // 0 channels of the row: the library's number.
        assert_eq!(ask(8), of(1, 0, 0), "version {version}");
        assert_eq!(ask(1024), of(1, 0, 0));
        assert_eq!(ask(1025), of(4, 2, 24));
        // LL128 is followed only where the table shows that the library allows it.
        assert_eq!(ask(8192), if version == 2 { untouched } else { of(0, 1, 3) });
        // Excluded in the table; no later row is asked, and channels stay.
        assert_eq!(ask(8193), untouched);
        assert_eq!(ask(10_000), untouched, "PAT is not offered");
        assert_eq!(ask(100_000), untouched, "no row");
        for collective in [0, 3, 5, 8, -1, c_int::MAX] {
            let asked = all.ask(collective, 8, OFFERED);
            assert_eq!(asked, untouched, "version {version}, collective {collective}");
        }
        assert!(logged()[0].1.contains("6 rows, 5 ranges for 8 ranks on 1 nodes"));
        all.end();
        // 13 calls: 4 as a row says, of which version 2 refuses the one with LL128; 2 or 3 excluded.
        let (followed, excluded) = if version == 2 { (3, 3) } else { (4, 2) };
        let summary = logged().remove(0).1;
        let expected = format!("13 collectives: {followed} as a row says, {excluded} where");
        assert!(summary.contains(&expected), "{summary}");
    }
}

#[test]
fn rows_are_of_their_ranks_and_nodes() {
    let (_folder, file) = copy_with(Some(ROWS));
    for (ranks, nodes, broadcast, all_reduce) in
        [(16, 2, 7, 0), (8, 1, 0, 24), (4, 1, 0, 0), (8, 2, 0, 0)]
    {
        let all = Communicator::open(&file, 5, ranks, nodes);
        let channels = [0, ALL_REDUCE].map(|which| all.ask(which, 2048, OFFERED).channels);
        assert_eq!(channels, [broadcast, all_reduce], "{ranks} ranks, {nodes} nodes");
        all.end();
    }
}

#[test]
fn nulls_change_nothing() {
    let (_folder, file) = copy_with(Some("allreduce,0,99999,ring,ll,3,-1,-1\n"));
    for version in 2..=5 {
        let all = Communicator::open(&file, version, 2, 1);
        all.ask_with_nulls(null_mut());
        all.ask_with_nulls(all.context);
        all.end_of(null_mut());
        assert_eq!(all.ask(ALL_REDUCE, 8, OFFERED).channels, 3);
        all.end();
    }
}

/// The messages of a communicator that must choose as the library does.
fn refusal(file: &Path) -> (c_int, String) {
    logged();
    let all = Communicator::open(file, 4, 8, 1);
    let choice = all.ask(ALL_REDUCE, 8, OFFERED);
    assert_eq!((choice.costs, choice.channels), (OFFERED, 0));
    let mut lines = logged();
    assert_eq!(lines.len(), 1, "{lines:?}");
    all.end();
    lines.remove(0)
}

#[test]
fn unusable_rows_leave_the_librarys_defaults_and_one_warning() {
    let (folder, file) = copy_with(None);
    let rows = folder.path().join("libpathline_tuner.rows");
    let (level, text) = refusal(&file);
    assert!(level == WARNING && text.contains("No such file"), "{text}");
    let long = "#\n".repeat(200_000);
    for (bytes, why) in [
        (
            b"allreduce,0,9,ring,ll,0,1,8\nallreduce,0,x,ring,ll,0,1,8\n".as_slice(),
            "line 2: 'x' is no",
        ),
        (b"\xff\xfe", "it is no text"),
        (b"a\0b\n", "line 1: 1 fields"),
        (long.as_bytes(), "more than 262144 bytes"),
    ] {
        fs::write(&rows, bytes).unwrap();
        let (level, text) = refusal(&file);
        assert!(level == WARNING && text.contains(why), "{text}");
        assert!(text.ends_with("; the library's defaults are used"), "{text}");
    }
    fs::remove_file(&rows).unwrap();
    fs::create_dir(&rows).unwrap();
    assert!(refusal(&file).1.contains("it is no plain file"));
    // A FIFO without a writer would hold a reader forever.
    fs::remove_dir(&rows).unwrap();
    assert!(Command::new("mkfifo").arg(&rows).status().unwrap().success());
    assert!(refusal(&file).1.contains("it is no plain file"));
}

#[test]
fn ranks_with_different_rows_log_different_hashes() {
    let hash = |rows: &str| {
        let (_folder, file) = copy_with(Some(rows));
        logged();
        Communicator::open(&file, 5, 8, 1).end();
        let text = logged().remove(0).1;
        text.split_once("hash ").unwrap().1[..16].to_owned()
    };
    let one = hash(ROWS);
    assert_eq!(one, hash(ROWS));
    assert_ne!(one, hash(&ROWS.replace(",24,", ",16,")));
}

/// Median of 1,000 rounds of 1,000 calls, in a build that optimises little: 0.2 us is the goal.
#[test]
fn a_call_takes_less_than_a_fifth_of_a_microsecond() {
    // Ranges as small as a measurement of every power of two gives, for three collectives.
    let rows: String = ["allreduce", "allgather", "reducescatter"]
        .iter()
        .flat_map(|collective| {
            (0..34).map(move |power| {
                let least = 1_u64 << power;
                format!("{collective},{least},{},ring,simple,{},1,8\n", 2 * least - 1, power % 9)
            })
        })
        .collect();
    let (_folder, file) = copy_with(Some(&rows));
    for version in 2..=5 {
        let all = Communicator::open(&file, version, 8, 1);
        let mut times: Vec<f64> = (0..1000)
            .map(|round: usize| {
                let begun = Instant::now();
                for call in 0..1000_usize {
                    let bytes = 1 << ((round + call) % 34);
                    std::hint::black_box(all.ask(ALL_REDUCE, bytes, OFFERED));
                }
                begun.elapsed().as_secs_f64() / 1000.0
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let median = times[500];
        println!("version {version}: {:.1} ns a call", median * 1e9);
        assert!(median < 0.2e-6, "version {version}: {median} s");
        all.end();
    }
}
