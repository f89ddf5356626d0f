//! The mapping of each kind of row.

use super::*;
use crate::table::read;

const HEAD: &str = "system,case,metric,value,unit,statistic,base,clock,left_out,use";

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

fn mapped(cells: &str) -> WantedRow {
    map(&format!("mi250x,{cells}")).unwrap_or_else(|why| panic!("{cells}: {why:?}"))
}

/// How the number of a row of the node is formed.
fn formed(cells: &str) -> String {
    mapped(cells).number.to_string()
}

fn why(cells: &str) -> (bool, String) {
    match map(cells) {
        Ok(wanted) => panic!("{cells}: {wanted:?}"),
        Err(UnmappedRow { unreadable, reason }) => (unreadable, reason),
    }
}

const COPY: &str = "copy-w16-u4-b256-g2sm";

#[test]
fn a_metric_selects_the_quantity_of_a_case() {
    let copy = "r0.gpu0.vram > r0.gpu6.vram by dma@gpu0 x 1GiB";
    let local = "r0.gpu0.vram > r0.gpu0.vram by blit@gpu0 x 64MiB isolated";
    let collective = "all_gather over gpu0-gpu3 by cray-mpich x 4KiB";
    for (cells, number) in [
        (format!("{copy},bandwidth,50,GB/s"), format!("rate({copy})")),
        (format!("{copy} isolated,latency,10,us"), format!("time({copy} isolated)")),
        // Read and written: twice the payload.
        (format!("{local},traffic,1050,GB/s"), format!("2 x rate({local})")),
        (format!("{copy},fraction,0.5,ratio,,50 GB/s"), format!("rate({copy}) / 50")),
        (format!("{copy},ratio,2,x,,{local}"), format!("rate({copy}) / rate({local})")),
        (format!("{copy},deficit,10,%,,{local}"), format!("(1 - rate({copy}) / rate({local}))")),
        (format!("{collective},mean-latency,5,us"), format!("mean time({collective})")),
        (format!("{collective},latency,5,us"), format!("time({collective})")),
        (format!("{collective},busbw,30,GB/s"), format!("busbw({collective})")),
    ] {
        assert_eq!(formed(&cells), number, "{cells}");
    }
}

#[test]
fn a_statistic_makes_one_number_of_several() {
    let send = |to: u32| format!("send over gpu0>gpu{to} by cray-mpich x 1GiB window 64");
    let three = [1, 6, 7].map(send).join("; ").replace(',', "");
    let below = formed(&format!("{three},bandwidth,<50,GB/s,most"));
    assert!(below.starts_with("most of 3: rate(send over gpu0>gpu1"), "{below}");
    let median = formed(&format!("{three},bandwidth,50,GB/s"));
    assert!(median.starts_with("median of 3: "), "{median}");
    // Powers of two from 256 B to 4 KiB are 5.
    let copy = "gpu0.vram > gpu6.vram by dma@gpu0 x 4KiB isolated";
    let best = formed(&format!("{copy},bandwidth,1,GB/s,best from 256B"));
    assert!(best.starts_with("most of 5: ") && best.ends_with("x 4KiB isolated)"), "{best}");
    let least = formed(&format!("{copy},latency,1,us,best from 256B"));
    assert!(least.starts_with("least of 5: "), "{least}");
    // A kernel works on words of 16 B.
    let kernel = format!("gpu6.vram > gpu0.vram by kernel@gpu0[{COPY}] x 64B");
    let best = formed(&format!("{kernel},bandwidth,1,GB/s,best from 8B"));
    assert!(best.starts_with("most of 4: ") && best.contains("x 16B)"), "{best}");
}

/// Bytes over us are MB/s: 8e9 B / 1e3 over a time in us is GB/s.
#[test]
fn the_hosts_clock_sees_launch_and_return() {
    let around = "(time(r0.gpu0.reg > r0.gpu0.reg by call@gpu0[launch-sync] x 1B) - \
                  time(r0.gpu0.reg > r0.gpu0.vram by kernel@gpu0[write-w8-u1-b1-g1] x 8B \
                  isolated))";
    let kernel = format!("r0.gpu1.vram > r0.gpu0.vram by kernel@gpu0[{COPY}] x 7812500KiB");
    let time = format!("(time({kernel} isolated) + {around})");
    for (cells, number) in [
        ("bandwidth,174,GB/s,,,host", format!("8000000 / {time}")),
        // Read + written: 2 x 8e9 / 1e3.
        ("traffic,348,GB/s,,,host", format!("16000000 / {time}")),
        ("fraction,0.43-0.44,ratio,,400 GB/s,host", format!("8000000 / {time} / 400")),
        ("latency,40,ms,,,host", time.clone()),
    ] {
        assert_eq!(formed(&format!("{kernel},{cells}")), number, "{cells}");
    }
    // b and c are read, a is written.
    let triad = kernel.replace("copy-", "triad-");
    assert!(formed(&format!("{triad},traffic,1,GB/s,,,host")).starts_with("24000000 / "));
}

#[test]
fn several_flows_count_together() {
    let flow = |numa: u32, gpu: u32| {
        format!("numa{numa}.managed > numa{numa}.managed by kernel@gpu{gpu}[{COPY}] x 7812500KiB")
    };
    let (one, two) = (flow(3, 0), format!("{} & {}", flow(3, 0), flow(3, 1)));
    // 2 x 8e9 B over 1 x 8e9 B, in MB.
    let ratio = formed(&format!("{two},ratio,1,x,,{one},host"));
    assert!(ratio.starts_with("16000000 / ") && ratio.contains(" / (8000000 / "), "{ratio}");
}

#[test]
fn facts_of_the_node() {
    for (cells, value) in [
        ("gpu0 > gpu6,links,2,links", 2.0),
        ("numa3 > gpu0,links,1,links", 1.0),
        ("gpu0 > gpu3,links,0,links", 0.0),
        ("gpu1 > gpu7,hops,3,hops", 3.0),
        ("gpu0 > gpu1,link-peak,200,GB/s", 200.0),
        ("gpu0 > gpu1,link-peak-both,400,GB/s", 400.0),
        ("gpu0,capacity,64,GB", 64.0),
        ("gpu0,memory-peak,1.6,TB/s", 1600.0),
        ("node,numa-domains,4,count", 4.0),
        // 4 x 51.2.
        ("node,memory-peak,204.8,GB/s", 204.8),
        // Six links of 50 cross the halves 0 1 6 7 and 2 3 4 5: 300 / (4 x 4) x 7.
        ("node,cut-bound,131.25,GB/s", 131.25),
        // Three flows on the fullest single link, equal routes half each: 50 / 3 x 7.
        ("node,route-bound,116.67,GB/s", 350.0 / 3.0),
    ] {
        let wanted = mapped(cells);
        let got = wanted.number.value(&|_| Err("no query".into())).unwrap();
        assert!((got - value).abs() < 1e-9, "{cells}: {got}");
        assert_eq!(wanted.class, RowClass::Fact);
    }
    assert_eq!(
        formed("numa0,memory-latency,96,ns"),
        "time(r0.numa0.huge > r0.numa0.reg by cpu@numa0[chase-plain-t1] x 1GiB)"
    );
}

#[test]
fn a_class_follows_from_the_case() {
    use RowClass as C;
    for (cells, class) in [
        ("gpu0.vram > gpu1.vram by dma@gpu0 x 16MiB,bandwidth,50,GB/s", C::GpuBandwidth),
        ("gpu0.vram > gpu1.vram by dma@gpu0 x 8MiB,bandwidth,50,GB/s", C::Sweep),
        ("gpu0.vram > gpu1.vram by dma@gpu0 x 8MiB,fraction,0.5,ratio,,100 GB/s", C::Sweep),
        ("gpu0.vram > gpu0.vram by dma@gpu0 x 8MiB,traffic,50,GB/s", C::Local),
        ("numa0.pinned > gpu0.vram by dma@gpu0 x 16MiB,bandwidth,28,GB/s", C::HostBandwidth),
        ("gpu0.vram > gpu1.vram by dma@gpu0 x 16B isolated,latency,10,us", C::LatencyMatrix),
        ("gpu0.vram > gpu1.vram by dma@gpu0 x 32B isolated,latency,10,us", C::Latency),
        ("send over gpu0>gpu1 by ucx x 16MiB,bandwidth,142,GB/s", C::Message),
        ("all_reduce over gpu0-gpu3 by rccl x 1MiB,latency,20,us", C::Collective),
    ] {
        let wanted = mapped(cells);
        assert_eq!(wanted.class, class, "{cells}");
    }
}

#[test]
fn an_unmapped_row_has_a_reason() {
    let copy = "gpu0.vram > gpu1.vram by dma@gpu0 x 1GiB";
    let send = "send over gpu0>gpu1 by ucx x 1MiB";
    for (cells, unreadable, part) in [
        (format!("V100 node,{copy},bandwidth,1,GB/s"), false, "system 'V100 node'"),
        (format!("mi250x,{copy},bandwidth,1,furlongs"), true, "unit 'furlongs'"),
        (format!("mi250x,{copy},bandwidth,fast,GB/s"), true, "value 'fast'"),
        (format!("mi250x,{copy},bandwidth,1,us"), true, "not measured in us"),
        (format!("mi250x,{copy},latency,1,GB/s"), true, "not measured in GB/s"),
        (format!("mi250x,{copy},mood,1,GB/s"), true, "metric 'mood'"),
        ("mi250x,by pigeon,bandwidth,1,GB/s".to_owned(), true, "case: "),
        (format!("mi250x,{},bandwidth,1,GB/s", copy.replace('1', "9")), false, "no gpu9"),
        (format!("mi250x,{copy},bandwidth,1,GB/s,mean"), true, "statistic 'mean'"),
        (format!("mi250x,{copy},bandwidth,1,GB/s,best from big"), true, "statistic 'best"),
        (format!("mi250x,{copy},bandwidth,1,GB/s,,50 GB/s"), true, "base belongs"),
        (format!("mi250x,{copy},fraction,1,x"), true, "base ''"),
        (format!("mi250x,{copy},ratio,1,x,,{copy}; {copy}"), true, "base has neither"),
        (format!("mi250x,{copy},bandwidth,1,GB/s,,,sun"), true, "clock 'sun'"),
        (format!("mi250x,{copy},bandwidth,1,GB/s,,,host"), true, "is for kernels"),
        (format!("mi250x,{copy},busbw,1,GB/s"), true, "of collectives"),
        (format!("mi250x,{send},mean-latency,1,us"), true, "of collectives"),
        (format!("mi250x,{send},traffic,1,GB/s"), true, "of cases"),
        (format!("mi250x,{copy},bandwidth,1,GB/s,,,,nobody knows"), false, "nobody knows"),
        (format!("mi250x,{copy},bandwidth,1,GB/s,,,,,fun"), true, "use 'fun'"),
        ("mi250x,gpu0 > gpu3,link-peak,4,GB/s".to_owned(), false, "does not state"),
        ("mi250x,node,links,4,links".to_owned(), true, "no part of a node"),
        ("mi250x,gpu0 > nowhere,links,4,links".to_owned(), true, "no part of a node"),
        (
            "mi250x,r0.gpu0.vram > r1.gpu1.vram by ucx@gpu0[send-w64] x 1MiB,bandwidth,1,GB/s"
                .to_owned(),
            false,
            "as an exchange",
        ),
    ] {
        let (bad, reason) = why(&cells);
        assert!(reason.contains(part) && bad == unreadable, "{cells}: {bad} {reason}");
    }
}

#[test]
fn systems_can_be_declared_to_be_this_machine() {
    let desc = mi250x();
    let cells = row("Dardel,gpu0.vram > gpu1.vram by dma@gpu0 x 16B isolated,latency,1,us");
    assert!(RowMapper::new(&desc, &[]).unwrap().map(&cells).is_err());
    assert!(RowMapper::new(&desc, &["dardel".to_owned()]).unwrap().map(&cells).is_ok());
}

#[test]
fn tools_do_not_matter_for_hardware_metrics() {
    let hardware = |cells: &str| mapped(cells).hardware.map(|h| (h.what, h.bytes, h.value));
    let path = |what: &str, bytes, value| Some((what.to_owned(), bytes, value));
    let copy = "gpu0.vram > gpu2.vram by dma@gpu0 x 1GiB isolated";
    let (engine, gib) = ("copy engine gpu0 > gpu2", 1 << 30);
    assert_eq!(hardware(&format!("{copy},bandwidth,37.6,GB/s")), path(engine, gib, 37.6));
    // 0.75 of 50 GB/s.
    assert_eq!(hardware(&format!("{copy},fraction,0.75,x,,50 GB/s")), path(engine, gib, 37.5));
    let send = "send over gpu0>gpu2 by cray-mpich x 16MiB,bandwidth,36,GB/s";
    assert_eq!(hardware(send), path(engine, 1 << 24, 36.0));
    let blit = "send over gpu0>gpu2 by cray-mpich[blit] x 16MiB,bandwidth,36,GB/s";
    assert_eq!(hardware(blit), path("kernel that pushes gpu0 > gpu2", 1 << 24, 36.0));
    let pulled = "gpu0.vram > gpu2.vram by blit@gpu2 x 1GiB,bandwidth,44,GB/s";
    assert_eq!(hardware(pulled), path("kernel that pulls gpu0 > gpu2", gib, 44.0));
    let both = "gpu0.vram > gpu2.vram by dma@gpu0 x 1GiB & gpu2.vram > gpu0.vram by dma@gpu2 x \
                1GiB,bandwidth,70,GB/s";
    assert_eq!(hardware(both), path("copy engine gpu0 > gpu2, both ways", gib, 70.0));
    // An engine's limit is no statement about a path; other nodes and NUMA domains are no GPUs.
    assert_eq!(hardware(&format!("{copy},bandwidth,49,GB/s,most")), None);
    assert_eq!(hardware("send over gpu0>n1.gpu0 by cray-mpich x 16MiB,bandwidth,24,GB/s"), None);
    assert_eq!(hardware("numa3.pinned > gpu0.vram by dma@gpu0 x 1GiB,bandwidth,28,GB/s"), None);
}

/// Of the preset's stacks, entries of `holds` occur in the tool, system or source of a row; the longest
/// counts, and a row that none fits is of the default stack.
#[test]
fn a_row_is_of_the_stack_that_its_tool_names() {
    let desc = mi250x();
    let mapper = RowMapper::new(&desc, &["Frontier node", "LUMI-G node (2026)"].map(str::to_owned))
        .expect("a network");
    let copy = "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 16B isolated,latency,10.74,us";
    let head = "system,case,metric,value,unit,tool,source";
    let stack = |mapper: &RowMapper<'_>, system: &str, tool: &str, source: &str| {
        let text = format!("{head}\n{system},{copy},{tool},{source}\n");
        let row = read(&text).expect("a table").remove(0);
        let wanted = mapper.map(&row).expect("a case");
        wanted.stack
    };
    for (system, tool, source, of) in [
        ("mi250x", "p2pBandwidthLatencyTest", "KTH-ScaLab", "lumi-hip"),
        ("mi250x", "some tool", "somewhere", "lumi-hip"),
        ("Frontier node", "Comm|Scope 0.12", "", "frontier-hip"),
        ("mi250x", "Comm|Scope", "KTH paper", "lumi-hip"),
        ("mi250x", "rocm-bandwidth-test 2.6.0", "", "hsa"),
        ("mi250x", "OSU_bw (UCX)", "", "hsa"),
        ("mi250x", "TransferBench 1.50", "", "in-kernel"),
        ("LUMI-G node (2026)", "OSU 7.5 MPI cray-mpich", "", "lumi-mpi-2026"),
        ("LUMI-G node (2026)", "OSU 7.5 xccl RCCL", "", "lumi-hip"),
    ] {
        assert_eq!(stack(&mapper, system, tool, source), of, "{tool}");
    }
    let forced = RowMapper::new(&desc, &[]).expect("a network").with_stack(Some("hsa"));
    assert_eq!(stack(&forced, "mi250x", "TransferBench", ""), "hsa");
}

/// 200 Gb/s are 25 GB/s.
#[test]
fn rates_may_be_in_bits() {
    let send = "send over gpu0>n1.gpu0 by cray-mpich x 16MiB window 64";
    let wanted = mapped(&format!("{send},bandwidth,200,Gb/s"));
    assert_eq!((wanted.published.low, wanted.unit), (25.0, "GB/s"));
}
