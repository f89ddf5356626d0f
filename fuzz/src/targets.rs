//! The parsers, one visible table.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use pathline_diagnose::check_settings;
use pathline_flow::{MachineDesc, Network, RuntimeEnv, join_node};
use pathline_message::{ExchangeSpec, MessageLayer};
use pathline_schema::{
    Bytes, Case, CasePattern, CpuSet, Journal, LinkEnd, Mover, NodeVerdict, Place, StripeLayout,
    Topology, Unit,
};
use pathline_storage::{ReplyHead, error_texts, join_chunks, xml_texts};
use pathline_topo::HostSnapshot;

use crate::words::TEXT;
use crate::{c_calls, c_seeds, files, jobs, metrics, pastes, root};

/// One parser.
pub struct Target {
    /// Name on the command line, and of the folder of kept inputs.
    pub name: &'static str,
    /// Inputs to begin with; valid ones reach deepest.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Words of the language.
    pub words: &'static [&'static str],
    /// Parses, checks what must hold, and gives the answer as a text. Must not panic.
    pub run: fn(&[u8]) -> String,
}

const XML: &[&str] = &[
    "<",
    ">",
    "</",
    "/>",
    "=\"",
    "\"",
    "<!--",
    "-->",
    "<![CDATA[",
    "]]>",
    "&lt;",
    "&#0;",
    "&#x41;",
    "<!DOCTYPE a [<!ENTITY b \"c\">]>",
    "&b;",
    "<?xml version=\"1.0\"?>",
    "<system version=\"1\">",
    "</system>",
    "<cpu numaid=\"0\" affinity=\"ff\">",
    "<pci busid=\"0000:c1:00.0\">",
    "<gpu dev=\"0\">",
    "<xgmi target=\"0000:c5:00.0\" count=\"1\"/>",
    "<nvlink target=\"0000:c5:00.0\" count=\"18\"/>",
    "<nic>",
    "<net name=\"mlx5_0\" speed=\"200000\"/>",
    "link_speed=\"32.0 GT/s PCIe\"",
    "link_width=\"16\"",
    "<topology version=\"2.0\">",
    "<object type=\"NUMANode\" os_index=\"0\"",
    "<object type=\"PCIDev\"",
    "cpuset=\"0x00000003\"",
    "0xf...f",
    "<distances2 ",
    "<info name=\"CoProcType\" value=\"CUDA\"/>",
];
const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "null",
    "true",
    "\\u0000",
    "\\ud800",
    "{\"a\":",
    "[[[[",
    "\"type\":\"measured\"",
    "\"type\":\"begin\"",
    "\"schema\":2",
    "\"gpu0\"",
    "\"0-65535\"",
    "\n",
    "\"links\":[]",
    "\"cpus\":\"0-65535,0-65535\"",
    "\"pathline_snapshot\":1",
    "\"files\":{",
    "\"sys/devices/system/node/node0/cpulist\":\"0-3\"",
    ".target",
];
const TOML: &[&str] = &[
    "[",
    "]",
    "[[",
    "]]",
    "=",
    "\"",
    "'",
    "#",
    "{",
    "}",
    "\n",
    "true",
    "1979-05-27",
    "\"\"\"",
    ".",
    "[[link]]",
    "[kernel]",
    "ends = [0, 1]",
    "width = 4",
    "numa = 0",
    "gpus = 8",
    "nan",
    "-inf",
];
const CSV: &[&str] = &[
    ",",
    "\n",
    "\r\n",
    "\"",
    "type,node_from,node_to,weight,min_bandwidth,max_bandwidth",
    "11,",
    "2,",
    "4,0,1,15,50000,50000\n",
];

const EXCHANGE: &[&str] = &[
    "send",
    "ping",
    "all_reduce",
    "all_to_all",
    " over ",
    "gpu0-gpu7",
    "n1.gpu0",
    "gpu0>gpu1",
    ",",
    "-",
    " by ",
    "rccl",
    "cray-mpich[blit]",
    "ucx",
    " x ",
    "1MiB",
    " window 64",
    " from host",
    "65535",
];

const CLUSTER: &[&str] = &[
    "\n",
    "=",
    "nodes = 1",
    "nodes = 65536",
    "\"fat-tree\"",
    "\"dragonfly\"",
    "\"rails\"",
    "\"links\"",
    "levels = 3",
    "radix = 4096",
    "taper = 0.1",
    "groups = 1024",
    "routers = 1024",
    "{ a = 0, b = 1 },",
    "-1",
    "0",
    "nan",
];
const LINKS: &[&str] = &[
    "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n",
    "GPU0\tX\tNV6\t0-7\t0\n",
    "GPU511",
    "GPU4294967295",
    "NV1023",
    "PIX",
    "PXB",
    "SYS",
    "XGMI",
    "PCIE",
    "GNS",
    " | ",
    "\u{1b}[1m",
    "NIC0: mlx5_0\n",
    "Weight between two GPUs\n",
    "Link Type between two GPUs\n",
    "LINK TYPE TABLE:\n",
    "0000:c1:00.0",
    "GPU[0] : (Topology) Numa Node: 4294967295\n",
    "GPU 0: NVIDIA H100 80GB HBM3 (UUID: a)\n",
];
/// Every parser, in display order.
pub const TARGETS: &[Target] = &[
    Target { name: "case", seeds: texts, words: TEXT, run: case },
    Target { name: "exchange", seeds: exchanges, words: EXCHANGE, run: exchange },
    Target { name: "pattern", seeds: texts, words: TEXT, run: pattern },
    Target { name: "words", seeds: texts, words: TEXT, run: words },
    Target { name: "journal", seeds: journals, words: JSON, run: journal },
    Target { name: "machine", seeds: machines, words: TOML, run: machine },
    Target { name: "cluster", seeds: clusters, words: CLUSTER, run: cluster },
    Target { name: "nccl", seeds: nccl, words: XML, run: topology },
    Target { name: "hwloc", seeds: hwloc, words: XML, run: topology },
    Target { name: "kfd", seeds: kfd, words: CSV, run: topology },
    Target { name: "link-matrix", seeds: link_matrices, words: LINKS, run: topology },
    Target { name: "topology", seeds: topologies, words: JSON, run: topology },
    Target { name: "published", seeds: published, words: PUBLISHED, run: validate },
    Target { name: "plan", seeds: jobs::plans, words: jobs::PLAN, run: jobs::plan },
    Target { name: "matrix", seeds: jobs::matrices, words: jobs::MATRIX, run: jobs::matrix },
    Target { name: "matrix-nccl", seeds: jobs::nccl_sends, words: jobs::SENDS, run: jobs::matrix },
    Target {
        name: "matrix-trace",
        seeds: jobs::nccl_traces,
        words: jobs::TRACE,
        run: jobs::matrix,
    },
    Target { name: "stripes", seeds: layouts, words: &["flash", "\0\0\0\0"], run: stripes },
    Target {
        name: "gpu-metrics",
        seeds: metrics::gpu_metrics,
        words: &["\x20\x01\x01\x04"],
        run: metrics::xgmi,
    },
    Target { name: "s3", seeds: replies, words: REPLY, run: reply },
    Target { name: "snapshot", seeds: snapshots, words: JSON, run: snapshot },
    Target {
        name: "command-log",
        seeds: jobs::command_logs,
        words: jobs::COMMAND_LOG,
        run: jobs::command_log,
    },
    Target { name: "advice", seeds: jobs::advice_files, words: JSON, run: jobs::advice },
    Target { name: "job-script", seeds: jobs::scripts, words: jobs::SCRIPT, run: jobs::script },
    Target {
        name: "tuner-rows",
        seeds: jobs::tuner_row_files,
        words: jobs::TUNER_ROWS,
        run: jobs::tuner_rows,
    },
    Target {
        name: "paste-collectives",
        seeds: pastes::collectives,
        words: pastes::WORDS,
        run: pastes::paste,
    },
    Target { name: "paste-logs", seeds: pastes::logs, words: pastes::WORDS, run: pastes::paste },
    Target {
        name: "paste-messages",
        seeds: pastes::messages,
        words: pastes::WORDS,
        run: pastes::paste,
    },
    Target {
        name: "paste-copies",
        seeds: pastes::copies,
        words: pastes::WORDS,
        run: pastes::paste,
    },
    Target { name: "paste-files", seeds: pastes::files, words: pastes::WORDS, run: pastes::paste },
    Target {
        name: "paste-sentences",
        seeds: pastes::sentences,
        words: pastes::WORDS,
        run: pastes::paste,
    },
    Target { name: "paste-links", seeds: pastes::links, words: pastes::WORDS, run: pastes::paste },
    Target {
        name: "c-calls",
        seeds: c_seeds::seeds,
        words: c_seeds::WORDS,
        run: c_calls::run_calls,
    },
];

/// Words of the answers of an object store.
const REPLY: &[&str] = &[
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.0 206 x\r\n",
    "Content-Length: 4096\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Connection: close\r\n",
    "\r\n",
    "0\r\n\r\n",
    "ffffffff;a=b\r\n",
    "<Error><Code>",
    "</Code>",
    "&lt;",
    "&#x10ffff;",
    "<a>",
    "</a>",
];

/// A document, the same in chunks, and a head.
fn replies() -> Vec<Vec<u8>> {
    let list = "<?xml version=\"1.0\"?><L xmlns=\"a\"><Contents><Key>a&amp;b</Key></Contents>\
                <NextContinuationToken>x</NextContinuationToken></L>";
    [
        list.to_owned(),
        format!("{:x}\r\n{list}\r\n0\r\n\r\n", list.len()),
        "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\nServer: a\r\n\r\nabcde".to_owned(),
    ]
    .map(String::into_bytes)
    .into()
}

/// What an object store answers: a head, a body in chunks, a document.
fn reply(bytes: &[u8]) -> String {
    let head = match ReplyHead::parse(bytes) {
        Ok(Some((head, len))) => {
            assert!(len <= bytes.len(), "a head of {len} of {} bytes", bytes.len());
            format!("read {head:?}")
        }
        other => format!("{other:?}"),
    };
    let joined = join_chunks(bytes);
    if let Ok(Some(whole)) = &joined {
        assert!(whole.len() < bytes.len(), "chunks have a frame");
    }
    let (code, message) = error_texts(bytes);
    assert!(!format!("{code}{message}").contains(char::is_control), "{code:?} {message:?}");
    format!("{head} {joined:?} {:?}", xml_texts(&String::from_utf8_lossy(bytes)))
}

/// Words of a table of published values.
const PUBLISHED: &[&str] = &[
    ",",
    "; ",
    "\n",
    "\"",
    "mi250x,",
    "gpu0.vram > gpu1.vram by dma@gpu0 x 1GiB isolated,",
    "gpu9 > numa9",
    "node,",
    "all_reduce over gpu0-gpu7 by rccl x 1MiB,",
    "best from 256B,",
    "most",
    "host",
    "1e308",
    "0.43-0.44",
    "fraction,",
    "ratio,",
    "traffic,",
    "mean-latency,",
    "links,",
    "route-bound,",
    "50 GB/s",
    "GiB/s",
    "report",
];

/// The head and each tenth row of the shipped tables.
fn published() -> Vec<Vec<u8>> {
    let seeds = |table: &pathline_published::ShippedTable| -> Vec<Vec<u8>> {
        let lines: Vec<&str> = table.text.lines().collect();
        let head = lines.iter().take(2).copied().collect::<Vec<_>>().join("\n");
        let row = |row: &&str| format!("{head}\n{row}\n").into_bytes();
        lines.iter().skip(2).step_by(10).map(row).collect()
    };
    pathline_published::SHIPPED.iter().flat_map(seeds).collect()
}

/// A table is mapped onto a node, or says why not; every row has a case or a reason.
fn validate(input: &[u8]) -> String {
    let rows = match pathline_published::read(&utf8(input)) {
        Ok(rows) => rows,
        Err(error) => return error.to_string(),
    };
    let all = rows.len();
    assert!(pathline_published::PublishedTable::of_rows(&rows).len() <= all);
    let desc = match MachineDesc::preset("mi250x") {
        Ok(desc) => desc,
        Err(error) => return error.to_string(),
    };
    let plan = match pathline_published::ValidationPlan::new(rows, &desc, &[]) {
        Ok(plan) => plan,
        Err(error) => return error.to_string(),
    };
    let got = pathline_published::MachineAnswer::of_case(1.0, 1.0);
    let report = plan.score("mi250x", &pathline_published::TARGETS, &|_| Ok(got));
    assert!(report.compared.len() + report.left_out.len() <= all);
    let why = report.left_out.first().map_or("", |row| row.reason.as_str());
    format!("read {} {why}", report.compared.len())
}

fn utf8(input: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(input)
}

/// Reads a text; what was read must be written as a text that gives it back.
fn inverse<T>(text: &str) -> String
where
    T: FromStr + Display + PartialEq + Debug,
    T::Err: Display + Debug,
{
    match text.parse::<T>() {
        Err(error) => error.to_string(),
        Ok(value) => {
            let canonical = value.to_string();
            let back = canonical.parse::<T>();
            assert_eq!(back.ok().as_ref(), Some(&value), "{canonical}");
            "read".to_owned()
        }
    }
}

fn case(input: &[u8]) -> String {
    inverse::<Case>(&utf8(input))
}

fn pattern(input: &[u8]) -> String {
    inverse::<CasePattern>(&utf8(input))
}

fn words(input: &[u8]) -> String {
    let text = utf8(input);
    [
        inverse::<Bytes>(&text),
        inverse::<CpuSet>(&text),
        inverse::<LinkEnd>(&text),
        inverse::<Unit>(&text),
        inverse::<Place>(&text),
        inverse::<Mover>(&text),
    ]
    .join(" ")
}

/// A journal that is read keeps to its own counts; each of its lines is a message or torn.
fn journal(input: &[u8]) -> String {
    match Journal::read(input) {
        Err(error) => error.to_string(),
        Ok(journal) => {
            assert!(journal.whole_bytes <= input.len() as u64);
            for outcome in &journal.outcomes {
                assert!(!outcome.case().timed.is_empty());
            }
            format!("read, torn {}, {} outcomes", journal.torn, journal.outcomes.len().min(3))
        }
    }
}

/// A text that is read is written as one that gives it back, and the model of a node has a time for
/// it or a reason.
fn exchange(input: &[u8]) -> String {
    static LAYER: std::sync::OnceLock<MessageLayer> = std::sync::OnceLock::new();
    let layer = LAYER.get_or_init(|| {
        let desc = MachineDesc::preset("mi250x").unwrap_or_else(|error| panic!("{error}"));
        MessageLayer::new(&desc).unwrap_or_else(|error| panic!("{error}"))
    });
    let text = utf8(input);
    let read = match text.parse::<ExchangeSpec>() {
        Err(error) => return error.to_string(),
        Ok(read) => read,
    };
    let written = read.to_string();
    assert_eq!(written.parse::<ExchangeSpec>().ok().as_ref(), Some(&read), "{written}");
    // More ranks cost seconds.
    if read.members().len() > 64 {
        return "read, many ranks".to_owned();
    }
    match layer.time(&read) {
        Err(error) => error.to_string(),
        Ok(found) => {
            assert!(found.time.0.is_finite() && found.time.0 > 0.0, "{written}: {found:?}");
            assert!(found.time.0 >= found.bounds.flow.0 * (1.0 - 1e-9), "{written}: {found:?}");
            format!("read: {}, bound: {}", found.algorithm, !found.bound_by.is_empty())
        }
    }
}

/// A cluster that is accepted has a path from its first node to its last, and an exchange between them a
/// time.
fn cluster(input: &[u8]) -> String {
    let text = utf8(input);
    let presets = MachineDesc::presets();
    let node = |_: &str| Ok(presets.first().map_or("", |(_, text)| *text).to_owned());
    let joined = match join_node("fuzz.toml", &text, node) {
        Err(error) => return error.to_string(),
        Ok(joined) => joined.unwrap_or_else(|| text.into_owned()),
    };
    let desc = match MachineDesc::parse("fuzz.toml", &joined) {
        Err(error) => return error.to_string(),
        Ok(desc) => desc,
    };
    let last = desc.cluster.as_ref().map_or(1, |cluster| cluster.nodes) - 1;
    let layer = match MessageLayer::new(&desc) {
        Err(error) => return error.to_string(),
        Ok(layer) => layer,
    };
    let exchange = format!("send over gpu0>n{last}.gpu1 by cray-mpich x 1MiB");
    let Ok(exchange) = exchange.parse::<ExchangeSpec>() else {
        return "read, no exchange".to_owned();
    };
    match layer.time_and_links(&exchange) {
        Err(error) => format!("read: {error}"),
        Ok(found) => {
            assert!(found.time.0.is_finite() && found.time.0 > 0.0, "{found:?}");
            assert!(found.links.iter().all(|link| link.busy <= 1.0 + 1e-9), "{found:?}");
            "read".to_owned()
        }
    }
}

fn clusters() -> Vec<Vec<u8>> {
    let head =
        "name = \"c\"\n[cluster]\nnodes = 6\nnode = \"mi250x\"\n[cluster.network]\nlink_gbs = 25\n";
    let shapes = [
        "shape = \"fat-tree\"\nlevels = 2\nradix = 12\ntaper = 2\n",
        "shape = \"rails\"\nlevels = 1\nradix = 8\nspine_links = 2\n",
        "shape = \"dragonfly\"\ngroups = 3\nrouters = 2\nrouter_adapters = 4\nglobal_links = 2\n",
        "shape = \"links\"\nswitches = 2\nlink = [{ a = 0, b = 1, width = 3 }]\nattach = [0, 0, 0, 0, 1, 1, 1, \
         1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]\n",
    ];
    shapes.iter().map(|shape| format!("{head}hop_ns = 300\n{shape}").into_bytes()).collect()
}

/// A description that is accepted makes a node on which every pair can be asked about.
fn machine(input: &[u8]) -> String {
    let desc = match MachineDesc::parse("fuzz.toml", &utf8(input)) {
        Err(error) => return error.to_string(),
        Ok(desc) => desc,
    };
    let topology = desc.topology();
    let network = match Network::new(&desc, RuntimeEnv::default()) {
        Err(error) => return error.to_string(),
        Ok(network) => network,
    };
    for (a, b) in topology.gpus.iter().zip(topology.gpus.iter().skip(1)).take(8) {
        let text = format!("gpu{0}.vram > gpu{1}.vram by dma@gpu{0} x 1MiB", a.index, b.index);
        let case: Case = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        if let Ok(predicted) = network.predict(&case) {
            let time = predicted[0].time.0;
            assert!(time.is_finite() && time > 0.0, "{text}: {time} ns");
        }
    }
    "read".to_owned()
}

/// A topology that is accepted is valid; its JSON gives it back, and its XML is read again.
fn topology(input: &[u8]) -> String {
    let topology = match pathline_topo::from_text("fuzz", &utf8(input)) {
        Err(error) => return error.to_string(),
        Ok(topology) => topology,
    };
    assert!(pathline_topo::validate("fuzz", &topology).is_ok());
    let json = serde_json::to_string(&topology).unwrap_or_else(|error| panic!("{error}"));
    let back: Topology = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(back, topology);
    let xml = pathline_topo::write_nccl_xml(&topology);
    if let Err(error) = pathline_topo::from_text("written", &xml) {
        panic!("our own XML is refused: {error}");
    }
    let codes: Vec<&str> = topology.warnings.iter().take(3).map(|w| w.code.as_str()).collect();
    format!("read, {} {}", topology.links.len().min(2), codes.join(" "))
}

/// A snapshot that is accepted is written as a text that gives it back.
fn snapshot(input: &[u8]) -> String {
    let text = utf8(input);
    let snapshot = match HostSnapshot::from_text("fuzz", &text) {
        Err(error) => return error.to_string(),
        Ok(snapshot) => snapshot,
    };
    let back = HostSnapshot::from_text("fuzz", &snapshot.to_text());
    assert_eq!(back.ok().as_ref(), Some(&snapshot));
    let settings = check_settings(&snapshot, &pathline_topo::from_snapshot("fuzz", &snapshot));
    assert!(
        settings
            .iter()
            .all(|check| check.state != NodeVerdict::Suspect || !check.remedy.is_empty())
    );
    topology(input)
}

fn own(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn texts() -> Vec<Vec<u8>> {
    own(&[
        "r0.gpu0.vram > r0.gpu1.vram by dma@gpu0 x 256MiB",
        "gpu0.vram > gpu1.vram by dma@gpu0 x 16B isolated",
        "numa0.pinned > gpu0.vram by dma@gpu0 x 1GiB & gpu0.vram > numa0.pinned by dma@gpu0 x 1GiB",
        "gpu1.vram > gpu7.vram by blit@gpu1 x 1MiB while gpu0.vram > gpu6.vram by dma@gpu0 x 4GiB",
        "numa0.huge > numa0.huge by cpu@numa0[copy-avx512-nt-t2] x 64MiB",
        "gpu0.* > gpu*.vram by dma",
        "gpu0",
        "numa3",
        "switch2",
        "1536KiB",
        "0-7,16,64-127",
        "r2.gpu3.vram-fine",
        "kernel@gpu0[copy-w16-u4-nt-b256-g2sm]",
        "migrate@numa0[prefetch]",
        "staged@gpu0[numa3]",
        "threads@gpu0[16]",
        "batch@gpu0[256]",
        "blocks@gpu0[4096]",
        "blocks@gpu0[256-batch]",
        "relay@gpu2[gpu0+gpu63,64KiB,blit,40+30+30]",
        "call@gpu0[launch-sync]",
    ])
}

/// The example of docs/understand/records.md, whole, in halves and resumed.
fn journals() -> Vec<Vec<u8>> {
    // The document breaks a message into lines after commas.
    let text = include_str!("../../docs/understand/records.md").replace(",\n  ", ",");
    let whole: String = text
        .lines()
        .filter(|line| line.starts_with("{\"type\":"))
        .map(|line| format!("{line}\n"))
        .collect();
    let half = whole[..whole.len() / 2].to_owned();
    let resumed = format!("{whole}{whole}");
    vec![whole.into_bytes(), half.into_bytes(), resumed.into_bytes()]
}

fn exchanges() -> Vec<Vec<u8>> {
    own(&[
        "all_reduce over gpu0-gpu7 by rccl x 1MiB",
        "broadcast over gpu0,gpu3,gpu5 by cray-mpich[blit] x 64KiB",
        "all_to_all over gpu0-gpu3,n1.gpu0-gpu3 by ucx x 4KiB from host",
        "send over gpu0>gpu1,gpu2>n1.gpu3 by ucx[blit] x 16MiB window 64",
        "ping over gpu7>gpu0 by cray-mpich x 8B",
    ])
}

fn machines() -> Vec<Vec<u8>> {
    files(&root().join("crates/model/flow/presets"), ".toml")
}

/// Sample files of discovery whose text has a mark.
fn samples(end: &str, mark: &str) -> Vec<Vec<u8>> {
    let mut found = files(&root().join("crates/machine/topo/tests/data"), end);
    found.retain(|text| utf8(text).contains(mark));
    found
}

fn nccl() -> Vec<Vec<u8>> {
    let mut seeds = samples(".xml", "<system");
    seeds.extend(own(&["<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\" arch=\"x86_64\" \
        vendor=\"AuthenticAMD\" familyid=\"143\" modelid=\"48\"><pci busid=\"0000:c1:00.0\" \
        class=\"0x038000\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"0\" sm=\"90\" \
        rank=\"0\" gdr=\"1\"><nvlink target=\"0000:c2:00.0\" count=\"4\" tclass=\"0x068000\"/></gpu>\
        </pci></cpu></system>"]));
    seeds
}

fn hwloc() -> Vec<Vec<u8>> {
    let mut seeds = samples(".xml", "<topology");
    seeds.extend(own(&["<?xml version=\"1.0\"?><topology version=\"2.0\"><object type=\"Machine\" \
        os_index=\"0\" cpuset=\"0x0000000f\"><info name=\"HostName\" value=\"n1\"/><object \
        type=\"NUMANode\" os_index=\"0\" cpuset=\"0x0000000f\" local_memory=\"1073741824\"/><object \
        type=\"L3Cache\" cpuset=\"0x0000000f\" cache_size=\"33554432\" depth=\"3\" \
        cache_linesize=\"64\" cache_type=\"0\"/><object type=\"Bridge\" bridge_type=\"0-1\"><object \
        type=\"PCIDev\" pci_busid=\"0000:01:00.0\" pci_type=\"0302 [10de:2330] [10de:16c1] a1\" \
        pci_link_speed=\"63.0\"><object type=\"OSDev\" name=\"cuda0\" osdev_type=\"5\"/></object>\
        </object></object></topology>"]));
    seeds
}

fn kfd() -> Vec<Vec<u8>> {
    let mut seeds = samples(".csv", "node_from");
    seeds.extend(own(&["type,node_from,node_to,weight,min_bandwidth,max_bandwidth\n\
        2,0,1,20,0,32000\n11,1,2,15,50000,200000\n11,2,1,15,50000,200000\n"]));
    seeds
}

fn link_matrices() -> Vec<Vec<u8>> {
    own(&[
        "\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n\
         GPU0\t X \tNV18\tNV18\tPIX\t0-7\t0\t\tN/A\nGPU1\tNV18\t X \tNV18\tSYS\t8-15\t1\t\t9\n\
         GPU2\tNV18\tNV18\t X \tSYS\t8-15\t1\t\t17\nNIC0\tPIX\tSYS\tSYS\t X \n\nNIC Legend:\n  NIC0: mlx5_0\n",
        "GPU 0: NVIDIA A40 (UUID: x)\nGPU 1: NVIDIA A40 (UUID: y)\n[pod/a/b] \tGPU0\tGPU1\n\
         [pod/a/b] GPU0\tX\tPIX\n[pod/a/b] GPU1\tPIX\tX\n \tGPU0\tGPU1\n GPU0\tX\tGNS\n GPU1\tGNS\tX\n",
        "== Weight between two GPUs ==\n GPU0 GPU1\nGPU0 0 15\nGPU1 15 0\n== Hops between two GPUs ==\n GPU0 GPU1\n\
         GPU0 0 1\nGPU1 1 0\n== Link Type between two GPUs ==\n GPU0 GPU1\nGPU0 0 XGMI\nGPU1 XGMI 0\n\
         == Numa Nodes ==\nGPU[0] : (Topology) Numa Node: 0\nGPU[1] : (Topology) Numa Node: 1\n",
        "WEIGHT TABLE:\n 0000:c1:00.0 0000:c6:00.0\n0000:c1:00.0 0 30\n0000:c6:00.0 30 0\n\
         LINK TYPE TABLE:\n 0000:c1:00.0 0000:c6:00.0\n0000:c1:00.0 SELF XGMI\n0000:c6:00.0 XGMI SELF\n",
    ])
}

fn topologies() -> Vec<Vec<u8>> {
    let presets = machines();
    presets
        .iter()
        .filter_map(|text| MachineDesc::parse("preset", &utf8(text)).ok())
        .filter_map(|desc| serde_json::to_vec(&desc.topology()).ok())
        .collect()
}

/// Layouts of Lustre: plain with two targets, of a pool, and both as components.
fn layouts() -> Vec<Vec<u8>> {
    let plain = |magic: u32, pool: &[u8], targets: &[u32]| {
        let mut bytes = [magic.to_le_bytes(), 1u32.to_le_bytes()].concat();
        bytes.extend([0; 16]);
        bytes.extend((1u32 << 20).to_le_bytes());
        bytes.extend([2, 0, 0, 0]);
        bytes.extend(pool);
        for target in targets {
            bytes.extend([0; 20]);
            bytes.extend(target.to_le_bytes());
        }
        bytes
    };
    let file = plain(0x0bd1_0bd0, &[], &[3, 11]);
    let pooled = plain(0x0bd3_0bd0, b"flash\0\0\0\0\0\0\0\0\0\0\0", &[]);
    let mut both = 0x0bd6_0bd0u32.to_le_bytes().to_vec();
    both.resize(14, 0);
    both.extend(2u16.to_le_bytes());
    both.resize(32, 0);
    let (mut at, mut from) = (32 + 2 * 48u32, 0u64);
    for part in [&file, &pooled] {
        let size = part.len() as u32;
        let mut entry = vec![0; 8];
        entry.extend(from.to_le_bytes());
        entry.extend(u64::MAX.to_le_bytes());
        entry.extend(at.to_le_bytes());
        entry.extend(size.to_le_bytes());
        entry.resize(48, 0);
        both.extend(entry);
        (at, from) = (at + size, 1 << 30);
    }
    both.extend(&file);
    both.extend(&pooled);
    vec![file, pooled, both]
}

/// A layout that is read has no more targets than its bytes name.
fn stripes(input: &[u8]) -> String {
    match StripeLayout::parse(input) {
        Err(error) => error,
        Ok(all) => {
            assert!(!all.is_empty() && all.len() <= 1 + input.len() / 48);
            for layout in &all {
                assert!(layout.targets.len() <= input.len() / 24);
                assert!(!layout.to_string().is_empty());
            }
            format!("read {}", all.len().min(3))
        }
    }
}

fn snapshots() -> Vec<Vec<u8>> {
    let mut snapshot = HostSnapshot::default();
    let node = "sys/devices/system/node/node0";
    let gpu = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0";
    let kfd = "sys/class/kfd/kfd/topology/nodes/1";
    for (path, text) in [
        ("proc/cpuinfo", "processor\t: 0\nmodel name\t: A CPU\nflags\t\t: avx2 erms\n"),
        ("proc/meminfo", "MemTotal: 16384 kB\nMemAvailable: 8192 kB\nHugepagesize: 2048 kB\n"),
        ("proc/self/status", "Cpus_allowed_list:\t0-1\n"),
        ("proc/self/environ", "CUDA_VISIBLE_DEVICES=0,1\n"),
        ("proc/self/mounts", "shm /dev/shm tmpfs rw,size=65536k 0 0\n"),
        ("pathline/kernel-log", "from /dev/kmsg\nNVRM: Xid (PCI:0000:01:00): 79, pid=1\n"),
        ("nvml/0000:01:00.0/facts", "ecc=1\necc_pending=0\npeer=0000:02:00.0 0 4\n"),
        ("sys/devices/system/cpu/online", "0-1\n"),
        (&format!("{node}/cpulist"), "0-1\n"),
        (&format!("{node}/distance"), "10\n"),
        (&format!("{node}/meminfo"), "Node 0 MemTotal: 16384 kB\nNode 0 MemFree: 8192 kB\n"),
        ("sys/devices/system/cpu/cpu0/cache/index3/level", "3\n"),
        ("sys/devices/system/cpu/cpu0/cache/index3/size", "32768K\n"),
        ("sys/devices/system/cpu/cpu0/cache/index3/type", "Unified\n"),
        ("sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list", "0-1\n"),
        (&format!("{gpu}/class"), "0x030200\n"),
        (&format!("{gpu}/vendor"), "0x10de\n"),
        (&format!("{gpu}/device"), "0x2330\n"),
        (&format!("{gpu}/numa_node"), "-1\n"),
        (&format!("{gpu}/current_link_speed"), "16.0 GT/s PCIe\n"),
        (&format!("{gpu}/current_link_width"), "8\n"),
        (&format!("{gpu}/max_link_speed"), "32.0 GT/s PCIe\n"),
        (&format!("{gpu}/max_link_width"), "16\n"),
        (
            "sys/bus/pci/devices/0000:01:00.0.target",
            "../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0",
        ),
        (
            &format!("{kfd}/properties"),
            "simd_count 440\nlocation_id 256\ndomain 0\nvendor_id 4098\n",
        ),
        (&format!("{kfd}/io_links/0/properties"), "type 11\nnode_from 1\nnode_to 2\nweight 15\n"),
    ] {
        snapshot.insert(path, text);
    }
    vec![snapshot.to_text().into_bytes()]
}
