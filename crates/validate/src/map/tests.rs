//! What each kind of row becomes.

use super::*;
use crate::row::read;

const HEAD: &str =
    "system,tool,interface,src,dst,size_bytes,direction,metric,value,unit,peak,peak_unit";
const NODE: &str = "MI250X node";
const SERVER: &str = "MI250 dual-socket (reference enumeration)";

fn row(cells: &str) -> PublishedRow {
    let rows = read(&format!("{HEAD}\n{cells}\n")).expect("the head is complete");
    rows.into_iter().next().expect("one row")
}

fn mi250x() -> MachineDesc {
    MachineDesc::preset("mi250x").expect("the preset")
}

fn map(cells: &str) -> Result<WantedRow, UnmappedRow> {
    let desc = mi250x();
    RowMapper::new(&desc, &[]).expect("a network").map(&row(cells))
}

/// How the number of a row of the node is formed.
fn formed(cells: &str) -> String {
    match map(&format!("{NODE},{cells}")) {
        Ok(wanted) => wanted.number.to_string(),
        Err(why) => panic!("{cells}: {why:?}"),
    }
}

fn why(cells: &str) -> (bool, String) {
    match map(cells) {
        Ok(wanted) => panic!("{cells}: {wanted:?}"),
        Err(UnmappedRow { unreadable, reason }) => (unreadable, reason),
    }
}

const COPY: &str = "copy-w16-u4-b256-g2sm";
const READ: &str = "read-w16-u4-b256-g2sm";
const WRITE: &str = "write-w16-u4-b256-g2sm";

#[test]
fn copies_between_gpus() {
    let there = "r0.gpu0.vram > r0.gpu6.vram by";
    let back = "r0.gpu6.vram > r0.gpu0.vram by";
    for (cells, number) in [
        // 160e6 B are 156250 KiB.
        (
            "p2pBandwidthLatencyTest,SDMA hipMemcpyPeerAsync,GCD0,GCD6,,uni,bandwidth,50,GB/s",
            format!("rate({there} dma@gpu0 x 156250KiB)"),
        ),
        (
            "p2pBandwidthLatencyTest,SDMA hipMemcpyPeerAsync,GCD0,GCD6,160e6,bi_sum,bandwidth,99,GB/s",
            format!("rate({there} dma@gpu0 x 156250KiB & {back} dma@gpu6 x 156250KiB)"),
        ),
        (
            "p2pBandwidthLatencyTest,SDMA hipMemcpyPeerAsync,GCD0,GCD6,16,uni,latency,10,us",
            format!("time({there} dma@gpu0 x 16B isolated)"),
        ),
        (
            "Comm|Scope,SDMA hipMemcpyPeer,GCD0,GCD6,4096,uni,bandwidth,1,GB/s",
            format!("rate({there} dma@gpu0 x 4KiB isolated)"),
        ),
        // The runtime's own copy kernel pulls, rocm-bandwidth-test's pushes.
        (
            "Comm|Scope,blit hipMemcpyPeerAsync (HSA_ENABLE_SDMA=0),GCD0,dual,1GiB,uni,bandwidth,88,GB/s",
            format!("rate({there} blit@gpu6 x 1GiB isolated)"),
        ),
        (
            "rocm-bandwidth-test,blit,GCD0,GCD6,,uni,bandwidth,78,GB/s",
            format!("rate({there} blit@gpu0 x 64MiB isolated)"),
        ),
        (
            "rocm-bandwidth-test,blit,GCD0,GCD6,,bi_sum,bandwidth,145,GB/s",
            format!("rate({there} blit@gpu0 x 64MiB & {back} blit@gpu6 x 64MiB isolated)"),
        ),
        // 37.5 of the 50 that the row names; without it, of the route's 100 in one direction.
        (
            "Comm|Scope,SDMA hipMemcpyPeer,GCD0,GCD6,1GiB,uni,fraction of unidirectional peak,0.5,ratio,50,GB/s",
            format!("rate({there} dma@gpu0 x 1GiB isolated) / 50"),
        ),
        (
            "Comm|Scope,SDMA hipMemcpyPeer,GCD0,GCD6,1GiB,uni,fraction of unidirectional peak,50,%",
            format!("rate({there} dma@gpu0 x 1GiB isolated) / 100"),
        ),
        // The engine's limit shows on the widest link.
        (
            "-,SDMA engine,GCD0,,1GiB,uni,engine limit,49,GB/s",
            "rate(r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 1GiB isolated)".to_owned(),
        ),
    ] {
        assert_eq!(formed(cells), number, "{cells}");
    }
    // Powers of two from 256 B to 4 KiB are 5.
    let best = formed("Comm|Scope,SDMA hipMemcpyPeer,GCD0,GCD6,256..4096,uni,max bandwidth,1,GB/s");
    assert!(best.starts_with("most of 5: ") && best.ends_with("x 4KiB isolated)"), "{best}");
    let each = formed("rocm-bandwidth-test,SDMA,GCD0,each,,uni,bandwidth,40,GB/s");
    assert!(each.starts_with("median of 7: "), "{each}");
}

#[test]
fn a_kernel_runs_on_the_first_gpu_whichever_way_bytes_go() {
    let commscope = |interface: &str| {
        formed(&format!("Comm|Scope,{interface},GCD0,GCD1,1GiB,uni,bandwidth,1,GB/s"))
    };
    assert_eq!(
        commscope("kernel_write managed fine-grained"),
        format!("rate(r0.gpu0.reg > r0.gpu1.vram-fine by kernel@gpu0[{WRITE}] x 1GiB isolated)")
    );
    assert_eq!(
        commscope("kernel_read"),
        format!("rate(r0.gpu1.vram > r0.gpu0.reg by kernel@gpu0[{READ}] x 1GiB isolated)")
    );
}

/// Bytes over us are MB/s: 8e9 B / 1e3 over a time in us is GB/s.
#[test]
fn stream_is_timed_by_the_host() {
    let around = |gpu: u32| {
        format!(
            "(time(r0.gpu{gpu}.reg > r0.gpu{gpu}.reg by call@gpu{gpu}[launch-sync] x 1B) - \
             time(r0.gpu{gpu}.reg > r0.gpu{gpu}.vram by kernel@gpu{gpu}[write-w8-u1-b1-g1] x 8B \
             isolated))"
        )
    };
    let time = |flow: &str| {
        format!("(time({flow} by kernel@gpu0[{COPY}] x 7812500KiB isolated) + {})", around(0))
    };
    for (cells, number) in [
        (
            "STREAM copy,kernel local,GCD0,GCD0,,local_2N,bandwidth,1400,GB/s",
            // 2 x 8e9 / 1e3
            format!("16000000 / {}", time("r0.gpu0.vram > r0.gpu0.vram")),
        ),
        (
            "STREAM copy,\"kernel on GCD0, peer arrays\",GCD0,GCD1,8e9,bi_as_reported,fraction of bidirectional peak,0.43-0.44,ratio,400,GB/s",
            format!("8000000 / {} / 400", time("r0.gpu1.vram > r0.gpu0.vram")),
        ),
        (
            "STREAM copy,\"kernel zero-copy, both arrays in host memory\",GCD0,host,8e9,bi_2N,bandwidth,45,GB/s",
            format!("16000000 / {}", time("r0.numa3.managed > r0.numa3.managed")),
        ),
    ] {
        assert_eq!(formed(cells), number, "{cells}");
    }
    // Read over the link and written at home: payload one way is N, read + written 2N.
    let read = |direction: &str| {
        formed(&format!(
            "STREAM copy,\"kernel on GCD0, peer arrays\",GCD0,GCD1,1e9,{direction},bandwidth,1,GB/s"
        ))
    };
    assert!(read("uni").starts_with("1000000 / (time(r0.gpu1.vram > r0.gpu0.vram by"));
    assert!(read("bi_2N").starts_with("2000000 / (time(r0.gpu1.vram > r0.gpu0.vram by"));
    let both =
        "STREAM copy,\"kernel, both arrays in the peer\",GCD0,GCD1,1e9,bi_2N,bandwidth,1,GB/s";
    assert!(formed(both).starts_with("2000000 / (time(r0.gpu1.vram > r0.gpu1.vram by"));
    let triad = formed("STREAM triad,kernel local,GCD0,GCD0,1e9,local_2N,bandwidth,1,GB/s");
    assert!(triad.starts_with("3000000 / (time(") && triad.contains("triad-"), "{triad}");
}

#[test]
fn several_gpus_against_the_host_are_one_case() {
    let fan = |src: &str, metric: &str| {
        formed(&format!(
            "STREAM copy,\"kernel zero-copy, both arrays in host memory\",{src},host,8e9,bi_2N,{metric},1,x"
        ))
    };
    // Packages of the node: 0 1 hang on NUMA domain 3, 2 3 on 1, 4 5 on 0, 6 7 on 2.
    let domains = |number: &str| -> Vec<String> {
        let first = number.split(" isolated").next().unwrap_or_default();
        let flows = first.split(" & ").map(|flow| {
            let numa = flow.split("numa").nth(1).and_then(|t| t.split('.').next());
            let gpu = flow.split("kernel@gpu").nth(1).and_then(|t| t.split('[').next());
            format!("{}@{}", numa.unwrap_or("?"), gpu.unwrap_or("?"))
        });
        flows.collect()
    };
    assert_eq!(domains(&fan("2 GCDs of one GPU", "ratio to one GCD")), ["3@0", "3@1"]);
    assert_eq!(domains(&fan("2 GCDs spread", "ratio to one GCD")), ["3@0", "1@2"]);
    assert_eq!(domains(&fan("8 GCDs", "ratio to 4 GCDs")).len(), 8);
    // 8 GCDs read + write 8 x 2 x 8e9 B, 4 of them half of it.
    let eight = fan("8 GCDs", "ratio to 4 GCDs");
    assert!(eight.starts_with("128000000 / ") && eight.contains(" / (64000000 / "), "{eight}");
}

#[test]
fn copies_with_the_host() {
    let of = |interface: &str, src: &str, dst: &str, direction: &str| {
        formed(&format!("Comm|Scope,{interface},{src},{dst},1MiB,{direction},bandwidth,1,GB/s"))
    };
    let rate = |flow: &str| format!("rate({flow} x 1MiB isolated)");
    let cases = [
        ("hipMemcpy pinned", "host", "GCD0", rate("r0.numa3.pinned > r0.gpu0.vram by dma@gpu0")),
        ("hipMemcpy pinned", "GCD2", "host", rate("r0.gpu2.vram > r0.numa1.pinned by dma@gpu2")),
        ("hipMemcpy pinned", "NUMA0", "GCD0", rate("r0.numa0.pinned > r0.gpu0.vram by dma@gpu0")),
        ("hipMemcpy pageable", "host", "GCD", rate("r0.numa3.paged > r0.gpu0.vram by dma@gpu0")),
        (
            "zero-copy managed (HSA_XNACK=0)",
            "host",
            "GCD0",
            rate(&format!("r0.numa3.managed > r0.gpu0.reg by kernel@gpu0[{READ}]")),
        ),
        (
            "zero-copy managed (HSA_XNACK=0)",
            "GCD0",
            "host",
            rate(&format!("r0.gpu0.reg > r0.numa3.managed by kernel@gpu0[{WRITE}]")),
        ),
        (
            "page migration managed (HSA_XNACK=1)",
            "host",
            "GCD0",
            "rate(r0.numa3.managed > r0.gpu0.managed by migrate@gpu0[fault] x 1MiB)".to_owned(),
        ),
        (
            "page migration managed (HSA_XNACK=1)",
            "GCD0",
            "host",
            "rate(r0.gpu0.managed > r0.numa3.managed by migrate@numa3[fault] x 1MiB)".to_owned(),
        ),
    ];
    for (interface, src, dst, number) in cases {
        assert_eq!(of(interface, src, dst, "uni"), number, "{interface}");
    }
    assert!(of("hipMemcpy pinned", "host", "each", "uni").starts_with("median of 8: "));
    assert_eq!(
        of("hipMemcpy pinned", "host", "GCD0", "bi_sum"),
        "rate(r0.numa3.pinned > r0.gpu0.vram by dma@gpu0 x 1MiB & \
         r0.gpu0.vram > r0.numa3.pinned by dma@gpu0 x 1MiB isolated)"
    );
}

#[test]
fn messages() {
    for (cells, number) in [
        (
            "OSU_bw 7.0,\"MPI blit (UCX, HSA_ENABLE_SDMA=0)\",GCD0,GCD1,16777216,uni,bandwidth,142,GB/s",
            "rate(send over gpu0>gpu1 by ucx[blit] x 16MiB window 64)",
        ),
        (
            "osu_bibw,MPI,GCD0,GCD1,1MiB,bi_sum,bandwidth,80,GB/s",
            "rate(send over gpu0>gpu1,gpu1>gpu0 by cray-mpich x 1MiB window 64)",
        ),
        (
            "osu_latency,MPI,GCD0,GCD1,8,uni,latency,2,us",
            "time(ping over gpu0>gpu1 by cray-mpich x 8B)",
        ),
        (
            "osu_mbw_mr,MPI,\"GCD0,2\",\"GCD1,3\",1MiB,uni,bandwidth,90,GB/s",
            "rate(send over gpu0>gpu1,gpu2>gpu3 by cray-mpich x 1MiB window 64)",
        ),
        (
            "osu_bw,MPI,GCD node A,GCD node B,4MiB,uni,bandwidth,24,GB/s",
            "rate(send over gpu0>n1.gpu0 by cray-mpich x 4MiB window 64)",
        ),
        (
            "OSU_allreduce 7.0,MPI cray-mpich,8 ranks,2 nodes x4,4,coll,latency,5,us",
            "mean time(all_reduce over gpu0-gpu3,n1.gpu0-gpu3 by cray-mpich x 4B)",
        ),
        // OSU's size of an all_gather is one rank's part: of 4 ranks 4 x 1 KiB.
        (
            "osu_allgather,MPI,4 ranks,1 node,1024,coll,latency,5,us",
            "mean time(all_gather over gpu0-gpu3 by cray-mpich x 4KiB)",
        ),
        (
            "rccl-tests,RCCL reduce,3 threads,3 GCDs,1048576,coll,latency,30,us",
            "time(reduce over gpu0-gpu2 by rccl x 1MiB)",
        ),
        (
            "rccl-tests,RCCL,8 threads,8 GCDs,1048576,coll,latency broadcast,30,us",
            "time(broadcast over gpu0-gpu7 by rccl x 1MiB)",
        ),
        (
            "all_reduce_perf,RCCL,GCD0-3,,1MiB,coll,busbw,30,GB/s",
            "busbw(all_reduce over gpu0-gpu3 by rccl x 1MiB)",
        ),
    ] {
        assert_eq!(formed(cells), number, "{cells}");
    }
    let below = formed("OSU_bw,MPI SDMA,GCD0,\"GCD1,6,7\",1GiB,uni,bandwidth upper bound,50,GB/s");
    assert!(below.starts_with("most of 3: "), "{below}");
}

#[test]
fn facts_of_the_node() {
    for (cells, value) in [
        ("-,xGMI links,GCD0,GCD6,,uni,links,2,links", 2.0),
        ("-,CPU-GCD link,GCD0,NUMA3,,uni,links,1,links", 1.0),
        ("KFD weight/15,route,GCD1,GCD7,,uni,hops,3,hops", 3.0),
        ("datasheet,peak,,,,,peak: quad bidirectional,400,GB/s", 400.0),
        ("datasheet,peak,,,,,peak: HBM2e capacity per GCD,64,GB", 64.0),
        ("datasheet,peak,,,,,peak: NUMA domains,4,count", 4.0),
        // 4 x 51.2.
        ("datasheet,peak,,,,,peak: CPU DDR4 bandwidth,204.8,GB/s", 204.8),
        // Six links of 50 cross the halves 0 1 6 7 and 2 3 4 5: 300 / (4 x 4) x 7.
        ("min cut,-,,,,uni,uniform all-to-all bound per GCD by cut,131.25,GB/s", 131.25),
        // Three flows on the fullest single link, equal routes half each: 50 / 3 x 7.
        (
            "edge load,-,,,,uni,\"uniform all-to-all bound per GCD, driver routing\",116.67,GB/s",
            350.0 / 3.0,
        ),
    ] {
        let wanted = map(&format!("{NODE},{cells}")).unwrap();
        let got = wanted.number.value(&|_| Err("asks nothing".into())).unwrap();
        assert!((got - value).abs() < 1e-9, "{cells}: {got}");
        assert_eq!(wanted.class, RowClass::Fact);
    }
}

/// Their GPU 4 is our 6, and their dual 0-4 our 0-6.
#[test]
fn another_numbering_of_the_same_links_is_renumbered() {
    let cells = format!("{SERVER},rocm-bandwidth-test,blit,GCD0,GCD4,,uni,bandwidth,78,GB/s");
    let number = map(&cells).unwrap().number.to_string();
    assert_eq!(number, "rate(r0.gpu0.vram > r0.gpu6.vram by blit@gpu0 x 64MiB isolated)");
    let host = format!("{SERVER},rocm-bandwidth-test,-,host,GCD,,uni,bandwidth,14,GB/s");
    assert!(why(&host).1.contains("host link"));
    // Every link of the server is one of the description's, of the same width.
    let desc = mi250x();
    let mapper = RowMapper::new(&desc, &[]).unwrap();
    let numbering = &desc.numberings()[0];
    let theirs = [(0, 1, 4), (2, 3, 4), (4, 5, 4), (6, 7, 4), (0, 4, 2), (2, 6, 2)];
    let singles = [(0, 6, 1), (1, 3, 1), (1, 7, 1), (2, 4, 1), (3, 5, 1), (5, 7, 1)];
    for (a, b, width) in theirs.into_iter().chain(singles) {
        let ours = (numbering.gpus[a], numbering.gpus[b]);
        let route = &mapper.routes[&ours];
        assert_eq!((route.hops, route.width), (1, width), "{a}-{b} is {ours:?}");
    }
}

#[test]
fn what_cannot_be_mapped_says_why() {
    let copy = "p2pBandwidthLatencyTest,SDMA,GCD0,GCD1,16,uni";
    for (cells, unreadable, part) in [
        (format!("V100 node,{copy},bandwidth,1,GB/s"), false, "system 'V100 node'"),
        (format!("{NODE},{copy},bandwidth,1,furlongs"), true, "unit 'furlongs'"),
        (format!("{NODE},{copy},bandwidth,fast,GB/s"), true, "value 'fast'"),
        (format!("{NODE},{copy},bandwidth,1,us"), true, "not measured in us"),
        (format!("{NODE},{copy},latency,1,GB/s"), true, "not measured in GB/s"),
        (format!("{NODE},{copy},mood,1,GB/s"), false, "metric 'mood'"),
        (format!("{NODE},abacus,SDMA,GCD0,GCD1,16,uni,bandwidth,1,GB/s"), false, "tool 'abacus'"),
        (format!("{NODE},Comm|Scope,pigeon,GCD0,GCD1,16,uni,bandwidth,1,GB/s"), false, "'pigeon'"),
        (format!("{NODE},Comm|Scope,SDMA,GCD0,GCD9,16,uni,bandwidth,1,GB/s"), false, "no GPU 9"),
        (format!("{NODE},Comm|Scope,SDMA,GCD0,GCD0,16,uni,bandwidth,1,GB/s"), false, "to itself"),
        (format!("{NODE},Comm|Scope,SDMA,GCD0,GCD1,big,uni,bandwidth,1,GB/s"), true, "size 'big'"),
        (format!("{NODE},Comm|Scope,SDMA,GCD0,GCD1,16,up,bandwidth,1,GB/s"), false, "'up'"),
        (format!("{NODE},rccl-tests,RCCL,2 threads,2 GCDs,16,coll,latency,1,us"), false, "no cell"),
        (format!("{NODE},datasheet,-,,,,,peak: NUMA domains,4,GB/s"), true, "not measured in"),
        (format!("{NODE},datasheet,-,,,,,peak: colour,4,GB/s"), false, "'colour'"),
    ] {
        let (bad, reason) = why(&cells);
        assert!(reason.contains(part) && bad == unreadable, "{cells}: {bad} {reason}");
    }
}

#[test]
fn another_system_is_this_machine_if_it_is_said() {
    let desc = mi250x();
    let cells = row("Dardel,p2pBandwidthLatencyTest,SDMA,GCD0,GCD1,16,uni,latency,1,us");
    assert!(RowMapper::new(&desc, &[]).unwrap().map(&cells).is_err());
    assert!(RowMapper::new(&desc, &["dardel".to_owned()]).unwrap().map(&cells).is_ok());
}

#[test]
fn what_the_hardware_is_asked_leaves_out_the_tool() {
    let asked = |cells: &str| map(&format!("{NODE},{cells}")).unwrap().asked;
    let copy = asked("p2pBandwidthLatencyTest,SDMA,GCD0,GCD2,160e6,uni,bandwidth,37.6,GB/s");
    let mpi = asked("OSU_bw,MPI SDMA,GCD0,GCD2,16777216,uni,bandwidth,36,GB/s");
    let what = |h: Option<HardwareOp>| h.map(|h| (h.what, h.bytes));
    let path = "copy engine gpu0 > gpu2".to_owned();
    assert_eq!(what(copy), Some((path.clone(), 160_000_000)));
    assert_eq!(what(mpi), Some((path, 1 << 24)));
}
