//! Tests of plans.

use super::*;

use pathline_flow::MachineDesc;
use pathline_schema::{Gpu, HostInfo, Link, LinkEnd, LinkKind, NumaDomain};

use crate::suites::PROBE_BUDGET;

/// Two GPUs joined by a link, one domain of four CPUs of which two may be used.
fn topology() -> Topology {
    let gpu = |index| Gpu { index, numa: Some(0), memory: Bytes::gib(1), ..Gpu::default() };
    Topology {
        source: "live".to_owned(),
        host: HostInfo {
            arch: "x86_64".to_owned(),
            features: vec!["avx2".to_owned(), "erms".to_owned()],
            allowed_cpus: "0-1".parse().unwrap(),
            ..HostInfo::default()
        },
        numa: vec![NumaDomain { id: 0, cpus: "0-3".parse().unwrap(), ..NumaDomain::default() }],
        gpus: vec![gpu(0), gpu(1)],
        links: vec![Link {
            a: LinkEnd::Gpu(0),
            b: LinkEnd::Gpu(1),
            kind: LinkKind::Xgmi,
            width: 1,
            peak: None,
        }],
        ..Topology::default()
    }
}

fn plan(topology: &Topology, suites: &[&str], patterns: &[&str]) -> Result<RunPlan, String> {
    plan_with(topology, &[], suites, patterns)
}

fn plan_with(
    topology: &Topology,
    stores: &[StoreFacts],
    suites: &[&str],
    patterns: &[&str],
) -> Result<RunPlan, String> {
    let scope = PlanScope { stores, ..PlanScope::new(topology, Bytes::mib(600)) };
    let suites: Vec<String> = suites.iter().map(|&s| s.to_owned()).collect();
    let patterns: Vec<CasePattern> = patterns.iter().map(|p| p.parse().unwrap()).collect();
    RunPlan::new(&scope, &suites, &patterns)
}

fn skip(topology: &Topology, case: &str) -> String {
    let plan = plan(topology, &[], &[case]).unwrap();
    assert_eq!(plan.entries.len(), 1, "a pasted case is exactly one case");
    plan.entries[0].skip.clone().unwrap_or_default()
}

#[test]
fn every_case_is_listed_once_and_parses() {
    let plan = plan(&topology(), &[], &[]).unwrap();
    let texts: BTreeSet<String> = plan.entries.iter().map(|e| e.case.to_string()).collect();
    assert_eq!(texts.len(), plan.entries.len());
    for entry in &plan.entries {
        assert_eq!(entry.case.to_string().parse::<Case>().unwrap(), entry.case);
    }
}

#[test]
fn a_suite_lists_a_case_once_even_where_one_thread_is_all() {
    let mut topology = topology();
    topology.host.allowed_cpus = "0".parse().unwrap();
    let memory_only = NumaDomain { id: 1, ..NumaDomain::default() };
    topology.numa.push(memory_only);
    let plan = plan(&topology, &["host"], &[]).unwrap();
    assert!(plan.entries.iter().all(|e| e.suites == ["host"]));
}

#[test]
fn pairs_count() {
    // 2 ordered pairs x 4 movers in one direction, 1 unordered pair x 4 movers in both, 1 class
    // staged.
    assert_eq!(plan(&topology(), &["pairs"], &[]).unwrap().entries.len(), 2 * 4 + 4 + 1);
}

/// Cases of each suite on the node of 8 H200s, whose default run must end within 180 s.
#[test]
fn suites_of_eight_gpus_behind_switches() {
    let topology = MachineDesc::preset("hgx-h200").unwrap().topology();
    let count = |suite: &str| plan(&topology, &[suite], &[]).unwrap().entries.len();
    // Dma, copy, read, write, triad, chase; chases of 4 KiB x 2^0..2^14 on the first GPU.
    assert_eq!(count("local"), 8 * 6 + 15);
    // 14 a GPU; registered and write-combined in, out, read and written, once; pinned read again.
    assert_eq!(count("host-link"), 8 * 14 + 2 * 4 + 1);
    // Engine at the source and at the destination, kernel read, kernel write; one class.
    assert_eq!(count("pairs"), 56 * 4 + 28 * 4 + 1);
    // 16 B: all to all, to and from the host; chases: peers, host.
    assert_eq!(count("latency"), 64 + 2 * 8 + 56 + 8);
    // 14 sizes of 3 paths within device memory; 12 to 1 GiB and 32 MiB of 5 host paths.
    assert_eq!(count("sweep"), 14 * 3 + (12 + 1) * 5);
    // In, out, both, STREAM on 1, 2, 4, 8 GPUs.
    assert_eq!(count("fan"), 4 * 4);
    assert_eq!(count("patterns"), 6 * 2);
    // 7 methods of 4 sizes.
    assert_eq!(count("managed"), 7 * 4);
    // 5 calls without memory; 4 kinds x 3 sizes allocated and freed; pages in 3 sizes and huge
    // pages in 2 locked and unlocked; 2 batches, each next to the same copies one by one.
    assert_eq!(count("overhead"), 5 + 4 * 3 * 2 + (3 + 2) * 2 + 2 * 2);
    // 5 copies and 2 kernels alone, and 2 cases of each pair of them.
    assert_eq!(count("overlap"), 5 + 2 + 5 * 2 * 2);
    // 2 domains x 8 GPUs, registered memory for the first GPU, and memory that the runtime places for
    // each; in and out.
    assert_eq!(count("numa-gpu"), 2 * 8 * 2 + 2 * 2 + 8 * 2);
    assert_eq!(plan(&topology, &["routes"], &[]).unwrap().entries.len(), 0);
}

/// Of the 14 kinds of paths of all 8 GPUs two fill a group of 16: 5 kinds of one flow are 3 groups, 2 of
/// two flows one, and 7 of one flow with 9 paths of the first GPU alone 5 (7 x 8 + 9 = 65 = 4 x 16 + 1).
/// Page-locking again for each case would take longer than the cases.
#[test]
fn host_links_of_all_gpus_are_compared_in_one_group() {
    let topology = MachineDesc::preset("hgx-h200").unwrap().topology();
    let plan = plan(&topology, &["host-link"], &[]).unwrap();
    let groups: BTreeSet<usize> = plan.entries.iter().map(|e| e.group).collect();
    assert_eq!(groups.len(), 3 + 1 + 5);
}

#[test]
fn a_ring_follows_the_links() {
    let topology = MachineDesc::preset("mi250x").unwrap().topology();
    let plan = plan(&topology, &["patterns"], &[]).unwrap();
    let ring = &plan.entries.iter().find(|e| e.case.timed.len() == 8).unwrap().case;
    let linked = |f: &Flow| {
        let ends = [LinkEnd::from(f.src.unit), LinkEnd::from(f.dst.unit)];
        topology.links.iter().any(|l| ends.contains(&l.a) && ends.contains(&l.b))
    };
    assert!(ring.timed.iter().all(linked), "{ring}");
}

#[test]
fn a_pattern_chooses_from_every_suite() {
    let plan = plan(&topology(), &[], &["gpu0.* > gpu*.vram by dma"]).unwrap();
    assert!(!plan.entries.is_empty());
    let wanted =
        |f: &Flow| f.src.unit == Unit::Gpu(0) && f.dst.mem == MemKind::Vram && f.by.kind() == "dma";
    assert!(plan.entries.iter().all(|e| e.case.timed.iter().any(wanted)));
}

/// Every probe of 8 GPUs would match such a pattern.
#[test]
fn probes_are_selected_by_name_and_have_their_own_budget() {
    let pattern = ["gpu0.* > gpu*.vram by dma"];
    let probes = ["contention", "concurrent"].map(str::to_owned);
    let probe = |e: &&PlannedCase| e.suites.iter().any(|s| probes.contains(s));
    let among_all = plan(&topology(), &[], &pattern).unwrap();
    assert_eq!(among_all.entries.iter().filter(probe).count(), 0);
    assert!(plan(&topology(), &[], &[]).unwrap().entries.iter().all(|e| e.budget.is_none()));
    let named = plan(&topology(), &["contention"], &pattern).unwrap();
    assert!(named.entries.iter().all(|e| e.budget == Some(PROBE_BUDGET)));
    let other = named.with_probe_budget(Ns::ms(80.0));
    assert!(other.entries.iter().all(|e| e.budget == Some(Ns::ms(80.0))));
    // The start-up of a pair is a case of both suites: it has the budget of the other one.
    let both = plan(&topology(), &["contention", "latency"], &[]).unwrap();
    let shared: Vec<&PlannedCase> = both.entries.iter().filter(|e| e.suites.len() == 2).collect();
    assert_eq!(shared.len(), 2 + 2 + 2);
    assert!(shared.iter().all(|e| e.budget.is_none()));
}

#[test]
fn a_case_that_is_pasted_twice_is_planned_once() {
    let pasted = "gpu0.vram > gpu1.vram by dma@gpu0 x 3MiB";
    assert_eq!(plan(&topology(), &[], &[pasted, pasted]).unwrap().entries.len(), 1);
}

#[test]
fn slips_are_named() {
    assert!(plan(&topology(), &["pears"], &[]).unwrap_err().contains("pairs"));
    assert!(plan(&topology(), &[], &["gpu7.*"]).unwrap_err().contains("gpu7.*"));
    let elsewhere = plan(&topology(), &["pairs", "local"], &["numa0.huge"]).unwrap_err();
    assert!(elsewhere.contains("no case of pairs, local matches"), "{elsewhere}");
}

#[test]
fn skips_have_reasons() {
    let t = topology();
    let cpu = |w: &str| format!("numa0.huge > numa0.huge by cpu@numa0[{w}] x 1MiB");
    assert_eq!(skip(&t, &cpu("copy-memcpy-t2")), "");
    assert!(skip(&t, &cpu("copy-avx512-t1")).contains("no avx512f"));
    assert!(skip(&t, &cpu("copy-memcpy-t3")).contains("may use 2"));
    let none = plan(&t, &[], &["gpu0.vram > gpu5.vram by dma@gpu0 x 1MiB"]).unwrap_err();
    assert!(none.contains("there is no gpu5; this machine has 2 GPUs"), "{none}");
    let relayed = "gpu0.vram > gpu1.vram by relay@gpu1[gpu6,1MiB] x 1MiB";
    assert!(skip(&t, relayed).contains("no gpu6"));
    let device = "gpu0.vram > numa0.huge by cpu@numa0[copy-memcpy-t1] x 1MiB";
    let of_vendor = |vendor: &str| {
        let mut node = topology();
        node.gpus.iter_mut().for_each(|gpu| gpu.vendor = vendor.to_owned());
        skip(&node, device)
    };
    let unmapped = of_vendor("nvidia");
    assert!(unmapped.contains("CPU threads do not reach r0.gpu0.vram"), "{unmapped}");
    assert!(unmapped.contains("dma@gpu0, or name gpu0.managed"), "{unmapped}");
    assert_eq!(of_vendor("amd"), "");
    // Source and destination of 512 MiB each make 1 GiB, over the 600 MiB of this run.
    let big = "numa0.huge > numa0.huge by cpu@numa0[copy-memcpy-t1] x 512MiB";
    assert!(skip(&t, big).contains("needs 1GiB of host memory"));
    assert!(skip(&t, "gpu0.vram > gpu1.vram by dma@gpu0 x 2GiB").contains("which has 1GiB"));
    let both =
        "numa0.paged > gpu0.vram by dma@gpu0 x 1MiB & gpu0.vram > numa0.paged by dma@gpu0 x 1MiB";
    assert!(skip(&t, both).starts_with("a pageable copy blocks the calling thread"));
    let mixed = "r0.numa0.paged > r1.numa0.paged by mpi@numa0[ping] x 8B & gpu0.vram > gpu1.vram by dma@gpu0 x 1B";
    assert!(skip(&t, mixed).starts_with("messages between processes are measured without other"));
    let calls =
        "gpu0.reg > gpu0.reg by call@gpu0[launch] x 1B & gpu0.vram > gpu1.vram by dma@gpu0 x 1B";
    assert!(skip(&t, calls).starts_with("a runtime call blocks the calling thread"));
}

pub(crate) fn disk() -> StoreFacts {
    StoreFacts {
        path: "/scratch".to_owned(),
        device: "sda".to_owned(),
        logical_block: Bytes(512),
        span: Bytes::gib(1),
        ..StoreFacts::default()
    }
}

#[test]
fn storage_of_two_cpus_and_two_gpus() {
    let count = |stores: &[StoreFacts]| {
        plan_with(&topology(), stores, &["storage"], &[]).unwrap().entries.len()
    };
    // 1 and 2 workers x 4 depths, to the host and by 3 stages to the first GPU.
    let random = 2 * 4 * (1 + 3);
    // Depth 128; 3 more engines x 3 depths; unbatched; 1 and 2 workers of pread; writes and a
    // mix at 2 depths; separate files; from the page cache.
    let others = 1 + 3 * 3 + 1 + 2 + 2 * 2 + 1 + 1;
    // Pages and huge pages by 2 engines, a call at a time, cached, 2 workers sharing or not;
    // and reads of a cold cache.
    let sequential = 2 * (2 * 2 + 1 + 1 + 2) + 1;
    // From pinned memory and by 4 stages to the GPU, in both directions; GPU direct by 1 and 2
    // workers; copies of 2 sizes alone.
    let streamed = 2 * (1 + 4) + 2 * 2 + 2 * 2;
    // All GPUs at once.
    let one = random + others + sequential + streamed + 1;
    assert_eq!(count(&[disk()]), one);
    // A second store has the same cases except for the copies; then both are read at once.
    assert_eq!(count(&[disk(), disk()]), 2 * one - 4 + 1);
    let unusable = StoreFacts { without: Some("it is read-only".to_owned()), ..disk() };
    let plan = plan_with(&topology(), &[unusable], &["storage"], &[]).unwrap();
    // Copies alone need no files.
    assert_eq!((plan.entries.len(), plan.runnable()), (one, 4));
    let whys: BTreeSet<_> = plan.entries.iter().filter_map(|e| e.skip.clone()).collect();
    assert_eq!(whys.into_iter().collect::<Vec<_>>(), ["/scratch: it is read-only"]);
}

/// Cases that a cell of the heat map compares are sampled in turn.
#[test]
fn host_and_gpu_are_read_in_one_group() {
    let plan = plan_with(&topology(), &[disk()], &["storage"], &[]).unwrap();
    for cell in plan.entries[..32].chunks(4) {
        assert!(cell.iter().all(|e| e.group == cell[0].group), "{}", cell[0].case);
        assert!(cell[0].case.timed[0].dst.unit.numa().is_some());
    }
}

#[test]
fn io_that_its_store_cannot_do_is_skipped() {
    let why = |stores: &[StoreFacts], case: &str| {
        let plan = plan_with(&topology(), stores, &[], &[case]).unwrap();
        plan.entries[0].skip.clone().unwrap_or_default()
    };
    let read = |engine: &str, cache: &str, block: &str| {
        format!(
            "store0.file > numa0.paged by {engine}@numa0[rand-read,{cache},shared,1GiB,q1,n1,t1] x {block}"
        )
    };
    let disks = [disk()];
    assert_eq!(why(&disks, &read("uring", "direct", "4KiB")), "");
    assert!(why(&[], &read("uring", "direct", "4KiB")).contains("--store"));
    assert!(why(&disks, &read("uring", "direct", "1000B")).contains("multiples of 512B"));
    assert_eq!(why(&disks, &read("sync", "cached", "1000B")), "");
    assert!(why(&disks, &read("uring-poll", "direct", "4KiB")).contains("poll_queues"));
    let polls = [StoreFacts { polls: true, ..disk() }];
    assert_eq!(why(&polls, &read("uring-poll", "direct", "4KiB")), "");
    let second = read("uring", "direct", "4KiB").replace("store0", "store1");
    assert!(why(&disks, &second).contains("no store1"));
}

#[test]
fn switches_of_the_runtime_skip() {
    let why = |vendor: &str, value: &str, case: &str| {
        let mut topology = topology();
        topology.gpus.iter_mut().for_each(|g| g.vendor = vendor.to_owned());
        let env = BTreeMap::from([("HSA_XNACK".to_owned(), value.to_owned())]);
        let scope = PlanScope { env: &env, ..PlanScope::new(&topology, Bytes::gib(1)) };
        let plan = RunPlan::new(&scope, &[], &[case.parse().unwrap()]).unwrap();
        plan.entries[0].skip.is_some()
    };
    let migrate = "numa0.managed > gpu0.managed by migrate@gpu0[fault] x 1MiB";
    let zero_copy = "numa0.managed > gpu0.reg by kernel@gpu0[read-w16-u4-b256-g2sm] x 1MiB";
    assert!(why("amd", "0", migrate) && !why("amd", "1", migrate));
    assert!(why("amd", "1", zero_copy) && !why("amd", "0", zero_copy));
    assert!(!why("nvidia", "0", migrate) && !why("nvidia", "1", zero_copy));
}

/// The host's 27 cases of a size: 16 copies (8 variants by 1 and all CPUs), which fill a group, or less
/// on processors with fewer variants; reads, writes, triads and a chase share one with neighbours.
#[test]
fn comparable_cases_share_a_group_and_small_groups_are_filled() {
    let plan = plan(&topology(), &["host"], &[]).unwrap();
    let groups: Vec<&[PlannedCase]> = plan.entries.chunk_by(|a, b| a.group == b.group).collect();
    assert!(groups.iter().all(|group| group.len() <= GROUP));
    // Two neighbours that fit into one group would be one.
    assert!(groups.windows(2).all(|pair| {
        let first = pair[1].chunk_by(|a, b| comparable(a) == comparable(b)).next().unwrap();
        pair[0].len() + first.len() > GROUP
    }));
    let split =
        |pair: &[&[PlannedCase]]| comparable(pair[0].last().unwrap()) == comparable(&pair[1][0]);
    assert!(!groups.windows(2).any(split), "no set of more than 16 is in this suite");
}

/// 16 budgets over the groups of a run, at most 8 for one: a case alone, and 16 sizes in more than 2 groups.
#[test]
fn a_run_of_few_groups_watches_each_longer() {
    let alone = plan(&topology(), &[], &["gpu0.vram > gpu1.vram by dma@gpu0 x 1GiB"]).unwrap();
    assert_eq!(alone.entries[0].span, 8.0);
    let default = plan(&topology(), &[], &[]).unwrap();
    let possible = default.entries.iter().filter(|entry| entry.skip.is_none());
    let groups = possible.map(|entry| entry.group).collect::<BTreeSet<_>>().len();
    assert!(groups > 2, "{groups}");
    assert!(default.entries.iter().all(|entry| entry.span == 16.0 / groups as f64));
}

/// Files and messages keep groups of one kind, and so do probes.
#[test]
fn probes_and_files_are_not_mixed() {
    let storage = plan_with(&topology(), &[disk()], &["storage"], &[]).unwrap();
    let probes = plan(&topology(), &["contention"], &[]).unwrap();
    for plan in [storage, probes] {
        for pair in plan.entries.windows(2).filter(|p| p[0].group == p[1].group) {
            let calls = pair.iter().all(|e| e.budget.is_none() && mixes(e, e));
            assert!(calls || comparable(&pair[0]) == comparable(&pair[1]), "{}", pair[1].case);
        }
    }
}

/// Suite, case, and whether a quick run has it: 16 B and the largest copies of main paths by copy engines.
#[test]
fn a_quick_run_has_the_main_paths_only() {
    let dma = "numa0.pinned > gpu0.vram by dma@gpu0 x 1MiB";
    let cpu = "numa0.huge > numa0.huge by cpu@numa0[copy-plain-t1] x";
    let cases = [
        ("host-link", dma, true),
        ("host-link", "gpu0.vram > numa0.pinned by dma@gpu0 x 1MiB", true),
        ("host-link", "numa0.paged > gpu0.vram by dma@gpu0 x 1MiB", false),
        ("host-link", "numa0.pinned > gpu0.vram by blit@gpu0 x 1MiB", false),
        (
            "host-link",
            "numa0.pinned > gpu0.vram by dma@gpu0 x 1MiB & gpu0.vram > numa0.pinned by dma@gpu0 x 1MiB",
            false,
        ),
        ("pairs", "gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB", true),
        ("pairs", "gpu0.vram > gpu1.vram by dma@gpu1 x 1MiB", false),
        ("pairs", "gpu0.vram > gpu1.vram by blit@gpu0 x 1MiB", false),
        ("latency", "gpu0.vram > gpu1.vram by dma@gpu1 x 16B", true),
        ("latency", "gpu0.vram > gpu1.vram by blit@gpu0 x 16B", false),
        ("contention", dma, false),
        ("host", &format!("{cpu} 2MiB"), true),
        ("host", &format!("{cpu} 1MiB"), false),
        ("host", "numa0.huge > numa0.reg by cpu@numa0[read-plain-t1] x 2MiB", true),
        ("host", "numa0.huge > numa0.reg by cpu@numa0[chase-plain-t1] x 4MiB", false),
        ("memory", &format!("{cpu} 2MiB"), false),
    ];
    let entries = cases.map(|(suite, case, _)| PlannedCase {
        suites: vec![suite.to_owned()],
        ..PlannedCase::new(case.parse().unwrap())
    });
    let quick = RunPlan { entries: entries.to_vec() }.quick();
    let expected: Vec<(&str, String)> = cases
        .iter()
        .filter(|(_, _, is_main)| *is_main)
        .map(|(suite, case, _)| (*suite, case.parse::<Case>().unwrap().to_string()))
        .collect();
    let found: Vec<(&str, String)> =
        quick.entries.iter().map(|e| (e.suites[0].as_str(), e.case.to_string())).collect();
    assert_eq!(found, expected);
    assert!(quick.entries.iter().all(|e| e.span > 0.0));
}

#[test]
fn a_plan_counts_its_suites_and_says_why_nothing_can_run() {
    let planned = |suites: &[&str], skip: Option<&str>| PlannedCase {
        suites: suites.iter().map(|&s| s.to_owned()).collect(),
        skip: skip.map(str::to_owned),
        ..PlannedCase::new("gpu0.vram > gpu1.vram by dma@gpu0 x 1MiB".parse().unwrap())
    };
    let mut plan = RunPlan {
        entries: vec![
            planned(&["pairs"], Some("b")),
            planned(&["pairs", "latency"], Some("a")),
            planned(&["pairs"], Some("b")),
        ],
    };
    assert_eq!((plan.runnable(), plan.why_nothing().as_deref()), (0, Some("a; b")));
    plan.entries.push(planned(&[], None));
    assert_eq!((plan.runnable(), plan.why_nothing()), (1, None));
    let suites: Vec<_> = plan.suites().into_iter().map(|(s, n)| (s.id.word(), n)).collect();
    let order = |word: &str| SUITES.iter().position(|s| s.id.word() == word);
    let mut expected = vec![("pairs", 3), ("latency", 1)];
    expected.sort_by_key(|(word, _)| order(word));
    assert_eq!(suites, expected);
}

/// Of named suites: what has a case is not missing, what shares a reason is one clause.
#[test]
fn suites_without_a_case_say_why() {
    let bare = Topology { gpus: Vec::new(), links: Vec::new(), ..topology() };
    let scope = PlanScope::new(&bare, Bytes::gib(1));
    let names = ["host", "latency", "storage", "metadata"].map(str::to_owned);
    let plan = RunPlan::new(&scope, &names, &[]).unwrap();
    let missing = plan.missing_suites(&scope, &names);
    let mut heads: Vec<&str> =
        missing.iter().filter_map(|m| m.split_once(": ").map(|(head, _)| head)).collect();
    heads.sort_unstable();
    assert_eq!(heads, ["latency", "storage, metadata"], "{missing:?}");
    assert_eq!(plan.missing_suites(&scope, &names[..1]), [] as [String; 0]);
    assert_eq!(RunPlan::default().missing_suites(&scope, &names[..1]).len(), 1);
}
