//! An example of every journal message. A new field breaks this file, then the rule that every
//! field is explained in docs/understand/records.md.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use pathline_schema::*;
use serde_json::Value;

/// Columns of a line in a document.
const WIDTH: usize = 110;

/// Prints the example journal as docs/understand/records.md shows it.
pub(crate) fn run(_root: &Path, _args: &[String]) -> Result<()> {
    for line in lines()? {
        println!("{}", fold(&line));
    }
    Ok(())
}

/// A message broken after commas between fields into lines of at most [`WIDTH`] columns, if no field is longer.
pub(crate) fn fold(line: &str) -> String {
    let (mut quoted, mut escaped, mut start) = (false, false, 0);
    let (mut text, mut width) = (String::new(), 0);
    let mut add = |field: &str| {
        let columns = field.chars().count();
        if width > 0 && width + columns > WIDTH {
            text.push_str("\n  ");
            width = 2;
        }
        text.push_str(field);
        width += columns;
    };
    for (at, letter) in line.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ',' if !quoted => add(&line[std::mem::replace(&mut start, at + 1)..=at]),
            _ => {}
        }
    }
    add(&line[start..]);
    text
}

/// A document with its folded messages on one line each.
pub(crate) fn unfold(document: &str) -> String {
    document.replace(",\n  ", ",")
}

/// The example journal, line by line.
pub(crate) fn lines() -> Result<Vec<String>> {
    examples()?.iter().map(|message| Ok(serde_json::to_string(message)?)).collect()
}

/// Names of all fields of all messages, in alphabetical order. Keys of maps are data and left out.
pub(crate) fn fields() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for message in examples().unwrap_or_default() {
        if let Ok(value) = serde_json::to_value(&message) {
            collect(&value, &mut names);
        }
    }
    names
}

const MAPS: [&str; 6] = ["env", "overhead_ns", "before", "after", "calls", "setup"];

fn collect(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                names.insert(name.clone());
                if let ("gpus", Value::Object(units)) = (name.as_str(), value) {
                    units.values().for_each(|of| collect_unit(of, names));
                } else if !MAPS.contains(&name.as_str()) {
                    collect(value, names);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, names)),
        _ => {}
    }
}

/// Of one GPU: its facts, or its readings, whose `before` and `after` are no maps.
fn collect_unit(of: &Value, names: &mut BTreeSet<String>) {
    for (name, value) in of.as_object().into_iter().flatten() {
        names.insert(name.clone());
        collect(value, names);
    }
}

/// One message of each kind, as a run on a small node would write them.
fn examples() -> Result<Vec<JournalRecord>> {
    let case: Case = "gpu0.vram > gpu1.vram by dma@gpu0 x 256MiB".parse()?;
    let suites = vec!["pairs".to_owned()];
    let series: Vec<FlowSeries> = case
        .timed
        .iter()
        .map(|&flow| FlowSeries {
            engine: "copy engine".to_owned(),
            reps: 4,
            steps: 4,
            moved_bytes: Bytes::gib(1),
            samples_ns: vec![21_521_000.0, 21_530_500.0],
            ..FlowSeries::new(flow, TimerKind::DeviceEvents)
        })
        .collect();
    let sampled =
        SampledCase { case: case.clone(), suites: suites.clone(), series: series.clone() };
    let stop = StopInfo {
        reason: StopReason::Precise,
        warmup: 4,
        half_width: 0.0004,
        elapsed: Ns::ms(310.0),
        load: Ns::ms(52.0),
    };
    let measured = MeasuredCase {
        case: case.clone(),
        suites: suites.clone(),
        series,
        stop,
        verdict: VerifyResult::Verified,
        compared: Some(ComparedBlocks { bytes: Bytes::kib(384), seed: 1 }),
        before: Conditions(BTreeMap::from([("cpu_mhz".to_owned(), 3000.0)])),
        after: Conditions(BTreeMap::from([("cpu_mhz".to_owned(), 2990.0)])),
        env: BTreeMap::new(),
        gpus: BTreeMap::from([(Unit::Gpu(0), readings())]),
        origin: Some(ConstantOrigin::Fitted),
    };
    let why = "peer_access on gpu0, gpu1: unsupported: no link joins them".to_owned();
    let error = "check on 256MiB at r0.gpu1.vram: byte 4096 is not what was sent".to_owned();
    Ok(vec![
        JournalRecord::Begin(Box::new(begin())),
        JournalRecord::Topology(Box::new(topology()?)),
        JournalRecord::Sampled(sampled),
        JournalRecord::Measured(Box::new(measured)),
        JournalRecord::Measured(Box::new(of_files()?)),
        JournalRecord::Skipped(SkippedCase { case: case.clone(), suites: suites.clone(), why }),
        JournalRecord::Faulted(FaultedCase {
            case: case.clone(),
            suites,
            error,
            severity: Severity::Corrupt,
            ranks: vec![Rank(1)],
        }),
        JournalRecord::Note(RunNote {
            code: "bimodal".to_owned(),
            subject: case.to_string(),
            text: "two modes, 21.5 ms (80 %) and 36.6 ms (20 %); the median is of the first"
                .to_owned(),
        }),
        JournalRecord::End(RunEnd {
            ended: "2026-11-21T00:01:00Z".to_owned(),
            elapsed: Ns::secs(60.0),
            complete: false,
            why: Some("interrupted".to_owned()),
            missing: std::collections::BTreeMap::new(),
        }),
    ])
}

fn begin() -> RunBegin {
    let command = ["pathline", "run", "--machine", "mi250x", "--suite", "pairs"].map(str::to_owned);
    RunBegin {
        version: "0.1.0".to_owned(),
        host: "node1".to_owned(),
        pid: Some(4242),
        repeat: 1,
        started: "2026-11-21T00:00:00Z".to_owned(),
        command: command.into(),
        machine_sha256: Some(
            "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".to_owned(),
        ),
        env: BTreeMap::from([("HSA_XNACK".to_owned(), "1".to_owned())]),
        settings: RunSettings {
            memory: Bytes::gib(4),
            noise: Some(0.01),
            repeats: 3,
            ..RunSettings::default()
        },
        overhead_ns: BTreeMap::from([("device-events".to_owned(), 900.0)]),
        gpus: BTreeMap::from([(Unit::Gpu(0), facts())]),
        ranks: Vec::from([RankMember {
            rank: Rank(0),
            host: "node1".to_owned(),
            node: 0,
            pid: 4242,
            gpus: vec![0],
            gpu_identities: vec![GpuIdentity {
                pci: PciAddress::new(0, 0xc1, 0, 0),
                host_index: 4,
            }],
            gpu: Some(String::new()),
            numa: 0,
            cpus: "0-7".to_owned(),
            ways: BTreeMap::from([(Transport::Mpi, "MPICH 5.0.2".to_owned())]),
            without: BTreeMap::from([(Transport::Xpmem, "no /dev/xpmem".to_owned())]),
            host_only: BTreeMap::from([(
                Transport::Mpi,
                "a child that sent device memory died of SIGSEGV".to_owned(),
            )]),
            device_memory: BTreeMap::from([(
                Transport::Ucx,
                "it recognises GPU pointers".to_owned(),
            )]),
        }]),
        stores: vec![store()],
        ..RunBegin::new(WorldKind::Simulated("mi250x".to_owned()))
    }
}

fn store() -> StoreFacts {
    StoreFacts {
        path: "/data".to_owned(),
        file_system: "ext4".to_owned(),
        options: "rw,relatime".to_owned(),
        device: "nvme0n1".to_owned(),
        model: "Disk 9000".to_owned(),
        numa: Some(0),
        scheduler: "none".to_owned(),
        queues: 16,
        logical_block: Bytes(512),
        max_request: Bytes::kib(1280),
        max_hardware_request: Bytes::mib(2),
        max_segments: 127,
        queue_depth: 1023,
        write_cache: "write back".to_owned(),
        fs_block: Bytes::kib(4),
        size: Bytes::gib(1000),
        stripes: vec![StripeLayout {
            size: Bytes::mib(1),
            count: 2,
            pool: "flash".to_owned(),
            targets: vec![3, 11],
            ..StripeLayout::default()
        }],
        free: Bytes::gib(900),
        span: Bytes::gib(1),
        without: Some("read-only file system".to_owned()),
        ..StoreFacts::default()
    }
}

/// Two blocks from a file to a GPU, in one sample.
fn of_files() -> Result<MeasuredCase> {
    let case: Case = "store0.file > gpu0.vram by \
                      uring@numa0[seq-read,direct,shared,1GiB,q8,n1,t1,pipelined-pinned] x 1MiB"
        .parse()?;
    let tally = |name: &str, count, ns| (name.to_owned(), CallTally { count, ns });
    let reading = IoReading {
        first_done_ns: 800_000.0,
        first_done_ops: 2,
        worker_ns: vec![800_000],
        cpu_user_ns: 9_000.0,
        cpu_system_ns: 61_000.0,
        latency: IoHistogram::of([360_000, 390_000]),
        device: IoHistogram::of([340_000, 369_000]),
        copy: IoHistogram::of([20_000, 21_000]),
        calls: BTreeMap::from([tally("io_uring_enter", 2, 31_000.0)]),
        faults: None,
        requests: Some(2),
    };
    let series = case
        .timed
        .iter()
        .map(|&flow| FlowSeries {
            engine: "io_uring, registered buffers and files".to_owned(),
            reps: 2,
            steps: 2,
            moved_bytes: Bytes::mib(2),
            samples_ns: vec![800_000.0],
            io: vec![reading.clone()],
            setup: BTreeMap::from([tally("io_uring_register", 1, 410_000.0)]),
            ..FlowSeries::new(flow, TimerKind::Threads)
        })
        .collect();
    Ok(MeasuredCase {
        suites: vec!["storage".to_owned()],
        stop: StopInfo {
            reason: StopReason::Budget,
            warmup: 1,
            half_width: 1.0,
            elapsed: Ns::secs(4.0),
            load: Ns::ZERO,
        },
        ..MeasuredCase::of_series(case, series)
    })
}

fn facts() -> GpuFacts {
    GpuFacts {
        source: "NVML 550.54".to_owned(),
        max_sm_clock_mhz: Some(1980),
        max_memory_clock_mhz: Some(3201),
        power_limit_w: Some(700.0),
        ecc: Some(true),
        mig: Some(false),
        persistence: Some(true),
        compute_mode: Some("default".to_owned()),
        nvlinks: Some((18, 18)),
        busy_percent: Some(0),
        fabric: Some("completed".to_owned()),
        identity: BoardIdentity {
            uuid: "GPU-1b2c3d4e-0000-0000-0000-000000000000".to_owned(),
            serial: "1654321000000".to_owned(),
            vbios: "96.00.74.00.01".to_owned(),
            board_part: "900-21010-0000-000".to_owned(),
        },
    }
}

/// A GPU under load, which had one PCIe packet sent again.
fn readings() -> GpuReadings {
    let counters = |pcie_replays| GpuState {
        ecc_corrected: Some(0),
        ecc_uncorrected: Some(0),
        link_errors: Some(0),
        pcie_replays: Some(pcie_replays),
        ..GpuState::default()
    };
    let during = GpuState {
        sm_clock_mhz: Some(1980),
        memory_clock_mhz: Some(3201),
        power_w: Some(214.5),
        temperature_c: Some(41.0),
        throttle: Some(Vec::new()),
        pcie: Some(PcieLink { speed_gts: 32.0, width: 16, max_speed_gts: 32.0, max_width: 16 }),
        ..GpuState::default()
    };
    GpuReadings { before: counters(0), during: Some(during), after: counters(1) }
}

/// One of everything that a topology can hold.
fn topology() -> Result<Topology> {
    let pcie = PcieLink { speed_gts: 16.0, width: 16, max_speed_gts: 16.0, max_width: 16 };
    let cpus: CpuSet = "0-7".parse()?;
    let host = HostInfo {
        hostname: "node1".parse()?,
        arch: "x86_64".to_owned(),
        cpus: cpus.clone(),
        allowed_cpus: cpus.clone(),
        memory: Bytes::gib(64),
        available: Bytes::gib(60),
        page: Bytes::kib(4),
        ..HostInfo::default()
    };
    Ok(Topology {
        source: "machine mi250x".to_owned(),
        host,
        numa: vec![NumaDomain { id: 0, cpus: cpus.clone(), ..NumaDomain::default() }],
        caches: vec![CacheGroup {
            level: 3,
            kind: "Unified".to_owned(),
            size: Bytes::mib(32),
            line: 64,
            cpus,
        }],
        gpus: vec![Gpu { host_link: Some(pcie), ..Gpu::default() }],
        nics: vec![Nic { name: "hsn0".to_owned(), ..Nic::default() }],
        blocks: vec![BlockDevice { name: "nvme0n1".to_owned(), ..BlockDevice::default() }],
        pci: vec![PciDevice {
            address: "0000:c1:00.0".parse()?,
            link: Some(pcie),
            ..PciDevice::default()
        }],
        links: vec![Link {
            a: LinkEnd::Gpu(0),
            b: LinkEnd::Gpu(1),
            kind: LinkKind::Xgmi,
            width: 4,
            peak: Some(Rate(200.0)),
        }],
        routes: vec![GpuRoute {
            src: LinkEnd::Gpu(1),
            dst: LinkEnd::Gpu(7),
            hops: 3,
            via: vec![vec![LinkEnd::Gpu(0), LinkEnd::Gpu(6)]],
        }],
        hidden: HiddenGpus {
            gpus: vec![Gpu { index: 1, pci: "0000:c6:00.0".parse()?, ..Gpu::default() }],
            ..HiddenGpus::default()
        },
        warnings: vec![TopologyWarning {
            code: "pcie-degraded".to_owned(),
            subject: "gpu1".to_owned(),
            text: "trained at 8 GT/s, can do 16; reseat it".to_owned(),
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_a_journal() {
        let text = lines().unwrap().join("\n") + "\n";
        let journal = Journal::read(text.as_bytes()).unwrap();
        // Measured, skipped and faulted are outcomes of one case, of which the last counts; and there
        // is one of I/O.
        assert_eq!((journal.outcomes.len(), journal.notes.len()), (2, 1));
        assert!(journal.end.is_some_and(|end| !end.complete));
    }

    #[test]
    fn fields_are_those_of_the_records() {
        let fields = fields();
        for field in
            ["schema", "samples_ns", "half_width", "via", "peak", "max_speed_gts", "pcie_replays"]
        {
            assert!(fields.contains(field), "{field}");
        }
        assert!(!fields.contains("HSA_XNACK"), "keys of maps are data");
    }
}
