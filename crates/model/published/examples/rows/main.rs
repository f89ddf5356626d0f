//! Converts a table in its sources' own terms (tool, interface, ends, size and direction in columns) into one with
//! cases, which `pathline model check --against` reads.
//!
//!     cargo run -p pathline-published --example rows -- mi250x theirs.csv > rows.csv
//!
//! A row becomes the case that its tool runs. What the columns leave open is not guessed: the reason goes into
//! the column `left_out`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::error::Error;
use std::io::Write;

use pathline_flow::{GpuNumbering, MachineDesc};
use pathline_schema::{LinkEnd, Topology};

/// Columns that are read: the first ten are needed.
const COLUMNS: [&str; 14] = [
    "system",
    "tool",
    "interface",
    "src",
    "dst",
    "size_bytes",
    "direction",
    "metric",
    "value",
    "unit",
    "kind",
    "source",
    "figure",
    "note",
];
/// Columns that are written.
const CASE_COLUMNS: [&str; 13] = [
    "system",
    "case",
    "metric",
    "value",
    "unit",
    "statistic",
    "left_out",
    "tool",
    "what",
    "kind",
    "source",
    "figure",
    "note",
];

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [machine, file] = args.as_slice() else {
        return Err("rows MACHINE FILE: a preset or a machine file, and the table".into());
    };
    let preset = MachineDesc::presets().iter().find(|(name, _)| name == machine);
    let own = |_| std::fs::read_to_string(machine);
    let text = preset.map_or_else(|| own(()), |(_, text)| Ok((*text).to_owned()))?;
    let desc = MachineDesc::parse(machine, &text)?;
    let table = convert(&desc, &std::fs::read_to_string(file)?)?;
    Ok(std::io::stdout().write_all(table.as_bytes())?)
}

/// The table with cases.
fn convert(desc: &MachineDesc, text: &str) -> Result<String, Box<dyn Error>> {
    let topology = desc.topology();
    let node = SourceNode { topology: &topology, numberings: desc.numberings() };
    let mut out = csv::Writer::from_writer(Vec::new());
    out.write_record(CASE_COLUMNS)?;
    for row in read(text)? {
        let what = row.what();
        let mapped = node.translate(&row);
        let (case, metric, statistic) = mapped.clone().unwrap_or_default();
        let left_out = mapped.err().unwrap_or_default();
        let metric = if metric.is_empty() { row.metric.clone() } else { metric };
        let SourceRow { system, tool, value, unit, kind, source, figure, note, .. } = row;
        out.write_record([
            system, case, metric, value, unit, statistic, left_out, tool, what, kind, source,
            figure, note,
        ])?;
    }
    Ok(String::from_utf8(out.into_inner()?)?)
}

/// A row of such a table.
#[derive(Debug, Clone, Default)]
struct SourceRow {
    system: String,
    /// Program and interface.
    tool: String,
    /// The program: `Comm|Scope 0.12`.
    program: String,
    /// What moves the bytes, in the source's terms: `SDMA hipMemcpyAsync`.
    interface: String,
    /// Where they come from: `GCD0`, `NUMA0`, `host`, `8 ranks`.
    src: String,
    dst: String,
    /// Bytes of an operation; empty or `max` for what the tool has by default.
    size: String,
    /// `uni`, `bi_sum`, `local`, `local_2N`, `coll`.
    direction: String,
    metric: String,
    value: String,
    unit: String,
    kind: String,
    source: String,
    figure: String,
    note: String,
}

impl SourceRow {
    /// Ends, size and direction, as a label.
    fn what(&self) -> String {
        let bytes = if self.size.is_empty() { String::new() } else { format!(" {} B", self.size) };
        let direction = if self.direction == "uni" { "" } else { self.direction.as_str() };
        format!("{} > {}{bytes} {direction}", self.src, self.dst).trim().to_owned()
    }
}

fn read(text: &str) -> Result<Vec<SourceRow>, Box<dyn Error>> {
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .comment(Some(b'#'))
        .from_reader(text.trim_start_matches('\u{feff}').as_bytes());
    let head = reader.headers()?.clone();
    let at = COLUMNS.map(|name| head.iter().position(|column| column.trim() == name));
    if let Some((name, _)) = COLUMNS.iter().zip(at).take(10).find(|(_, at)| at.is_none()) {
        return Err(format!("no column '{name}'; expected {}", COLUMNS.join(",")).into());
    }
    let row = |record: csv::Result<csv::StringRecord>| -> Result<SourceRow, Box<dyn Error>> {
        let record = record?;
        let [
            system,
            program,
            interface,
            src,
            dst,
            size,
            direction,
            metric,
            value,
            unit,
            kind,
            source,
            figure,
            note,
        ] = at.map(|at| at.and_then(|at| record.get(at)).unwrap_or_default().trim().to_owned());
        let tool = format!("{program} {interface}").trim().to_owned();
        Ok(SourceRow {
            system,
            tool,
            program,
            interface,
            src,
            dst,
            size,
            direction,
            metric,
            value,
            unit,
            kind,
            source,
            figure,
            note,
        })
    };
    reader.records().map(row).collect()
}

/// Case, metric and statistic of a row.
type MappedRow = (String, String, String);

/// The node whose parts such rows name.
struct SourceNode<'a> {
    topology: &'a Topology,
    numberings: &'a [GpuNumbering],
}

/// A row with what decides its case, program and interface in lower case.
struct SourceTerms<'a> {
    row: &'a SourceRow,
    program: String,
    interface: String,
    metric: &'a str,
}

/// An end of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransferEnd {
    Gpu(u32),
    /// Host memory, of a domain if one is named.
    Host(Option<u32>),
}

const FAR_SOCKET: &str = "the host memory is of another socket, and this machine has one";
/// Threads of a CPU that executes a transfer of TransferBench's p2p preset (`NUM_CPU_SE`, 4 if unset).
const CPU_EXECUTOR_THREADS: u32 = 4;

impl SourceNode<'_> {
    /// The row with its case, metric and statistic.
    ///
    /// # Errors
    /// Why the row has no case.
    fn translate(&self, row: &SourceRow) -> Result<MappedRow, String> {
        let program = row.program.to_lowercase();
        let interface = row.interface.to_lowercase();
        let is_message = program.contains("osu")
            || interface.starts_with("mpi")
            || is_collective(row)
            || ["rccl", "nccl"].iter().any(|ccl| interface.contains(ccl) || program.contains(ccl));
        if let fact @ ("links" | "hops") = row.metric.as_str() {
            let part = |cell: &str| match self.end(row, cell)? {
                TransferEnd::Gpu(g) => Ok::<_, String>(format!("gpu{g}")),
                TransferEnd::Host(Some(n)) => Ok(format!("numa{n}")),
                TransferEnd::Host(None) => Err(format!("'{cell}' has no number")),
            };
            let case = format!("{} > {}", part(&row.src)?, part(&row.dst)?);
            return Ok((case, fact.to_owned(), String::new()));
        }
        let metric = metric_word(&row.metric)?;
        let terms = SourceTerms { row, program, interface, metric };
        let (case, metric) =
            if is_message { self.message(&terms)? } else { self.transfer(&terms)? };
        let statistic = match row.size.split_once("..") {
            Some((least, _)) => format!("best from {}B", bytes(least)?),
            None if row.size.starts_with("up to ") => "best from 256B".to_owned(),
            None => String::new(),
        };
        Ok((case, metric.to_owned(), statistic))
    }

    /// The case of a transfer within the node.
    fn transfer<'m>(&self, terms: &SourceTerms<'m>) -> Result<(String, &'m str), String> {
        let SourceTerms { row, ref program, ref interface, metric } = *terms;
        let transfer_bench = program.contains("transferbench");
        // In TransferBench's p2p preset the source executes, so that CPU threads push what comes from the host.
        let pushed = transfer_bench && (row.figure.contains("p2p") || program.contains("p2p"));
        let by_cpu = |from: TransferEnd| {
            let named = transfer_bench && interface.contains("cpu");
            named || (pushed && matches!(from, TransferEnd::Host(_)))
        };
        let size = match (row.size.as_str(), program.as_str()) {
            ("" | "-" | "max", p) if p.contains("comm|scope") => "1GiB".to_owned(),
            ("" | "-" | "max", p) if p.contains("nvbandwidth") => "512MiB".to_owned(),
            ("" | "-" | "max", p) if p.contains("p2pbandwidth") => "160000000B".to_owned(),
            ("" | "-" | "max", p) if p.contains("stream") => "8000000000B".to_owned(),
            ("" | "-" | "max", p) if transfer_bench || p.contains("bandwidth-test") => {
                "64MiB".to_owned()
            }
            ("" | "-" | "max", _) => return Err("its size is not stated".to_owned()),
            (size, _) => {
                let largest = size.rsplit("..").next().unwrap_or(size);
                format!("{}B", bytes(largest.strip_prefix("up to ").unwrap_or(largest))?)
            }
        };
        let (from, to) = (self.ends(row, &row.src)?, self.ends(row, &row.dst)?);
        if from.len() != to.len() {
            return Err(format!("'{}' and '{}' are no pairs", row.src, row.dst));
        }
        let mut flows = Vec::new();
        for (&from, &to) in from.iter().zip(&to) {
            let pair = self.near(row, from, to)?;
            let one_way = |from: TransferEnd, to: TransferEnd| {
                if by_cpu(from) {
                    return cpu_copy(from, to, &size);
                }
                self.flow(program, interface, (from, to), &size)
            };
            flows.push(one_way(pair.0, pair.1)?);
            if is_two_way(row)? {
                flows.push(one_way(pair.1, pair.0)?);
            }
        }
        let metric = if row.direction == "local_2N" { "traffic" } else { metric };
        let back_to_back = program.contains("p2pbandwidth") && metric != "latency"
            || program.contains("nvbandwidth");
        let cadence = if back_to_back { "" } else { " isolated" };
        Ok((format!("{}{cadence}", flows.join(" & ")), metric))
    }

    /// One flow of a transfer.
    fn flow(
        &self,
        program: &str,
        interface: &str,
        (from, to): (TransferEnd, TransferEnd),
        size: &str,
    ) -> Result<String, String> {
        let mentions = |parts: &[&str]| parts.iter().any(|part| interface.contains(part));
        let word =
            |wanted: &str| interface.split(|c: char| !c.is_alphanumeric()).any(|w| w == wanted);
        let host_memory = match () {
            () if mentions(&["pageable"]) => "paged",
            () if mentions(&["managed", "page-fault", "page migration", "prefetch"]) => "managed",
            () => "pinned",
        };
        let pages = mentions(&["page-fault", "page migration", "prefetch"]);
        let memory = |end: TransferEnd| match end {
            TransferEnd::Gpu(g) if pages => format!("gpu{g}.managed"),
            TransferEnd::Gpu(g) => format!("gpu{g}.vram"),
            TransferEnd::Host(n) => format!("numa{}.{host_memory}", n.unwrap_or(0)),
        };
        let gpu = |first: TransferEnd, second: TransferEnd| match (first, second) {
            (TransferEnd::Gpu(g), _) | (_, TransferEnd::Gpu(g)) => Ok(g),
            _ => Err("no GPU takes part in it".to_owned()),
        };
        let (src, dst) = (memory(from), memory(to));
        let local = from == to;
        let kernel = |op: &str, at: u32| kernel_text(op, at, grid(program, interface), size);
        if mentions(&["p2p=disabled", "p2p disabled", "without p2p", "no p2p"]) {
            return Err(
                "without P2P the copy is staged in host memory, and no case says how".to_owned()
            );
        }
        if pages {
            let how = if mentions(&["prefetch"]) { "prefetch" } else { "fault" };
            return Ok(format!("{src} > {dst} by migrate@gpu{}[{how}] x {size}", gpu(to, from)?));
        }
        if mentions(&["blit"]) && mentions(&["memcpypeer"]) {
            // hipMemcpyPeer's kernel runs at the destination, whoever calls it.
            return Ok(format!("{src} > {dst} by blit@gpu{} x {size}", gpu(to, from)?));
        }
        if mentions(&["blit"]) || local && program.contains("bandwidth-test") {
            return Ok(format!("{src} > {dst} by blit@gpu{} x {size}", gpu(from, to)?));
        }
        let by_kernel = mentions(&["kernel", "gfx", "zero-copy"]) || word("sm") || word("shader");
        let reads = mentions(&["kernel_read", "read", "load"]);
        if program.contains("nvbandwidth") && (word("sm") || word("ce")) {
            // The GPU that its `read` cases copy to has the work, of other cases that which they copy from.
            // Its kernels copy in either case.
            let at = if word("read") { gpu(to, from)? } else { gpu(from, to)? };
            let by = match word("sm") {
                true => kernel("copy", at),
                false => format!("dma@gpu{at} x {size}"),
            };
            return Ok(format!("{src} > {dst} by {by}"));
        }
        if by_kernel && program.contains("stream") {
            // Its first GPU runs the kernel, and reads from the other.
            let at = gpu(from, to)?;
            return Ok(match reads {
                true => format!("{dst} > {src} by {}", kernel("copy", at)),
                false => format!("{src} > {dst} by {}", kernel("copy", at)),
            });
        }
        if by_kernel
            && (program.contains("transferbench") || local && !mentions(&["write", "read"]))
        {
            return Ok(format!("{src} > {dst} by {}", kernel("copy", gpu(from, to)?)));
        }
        if by_kernel && !reads && mentions(&["write", "store"]) {
            let at = gpu(from, to)?;
            return Ok(format!("gpu{at}.reg > {dst} by {}", kernel("write", at)));
        }
        if by_kernel && (reads || mentions(&["zero-copy"])) {
            let at = gpu(to, from)?;
            return Ok(format!("{src} > gpu{at}.reg by {}", kernel("read", at)));
        }
        let engine = [
            "sdma",
            "memcpy",
            "copy engine",
            "local copy",
            "h2d",
            "d2h",
            "d2d",
            "dma",
            "htod",
            "dtoh",
            "dtod",
            "async_copy",
            "hsa copy",
        ];
        // p2pBandwidthLatencyTest has copies of the runtime between GPUs, and no other mover.
        if mentions(&engine) || word("ce") || program.contains("p2pbandwidth") {
            return Ok(format!("{src} > {dst} by dma@gpu{} x {size}", gpu(from, to)?));
        }
        Err(format!("'{interface}' does not say what moves the bytes"))
    }

    /// The exchange of a message or collective.
    fn message<'m>(&self, terms: &SourceTerms<'m>) -> Result<(String, &'m str), String> {
        let SourceTerms { row, ref program, ref interface, metric } = *terms;
        let text = format!("{program} {interface} {} {}", row.figure, row.note).to_lowercase();
        let library = ["rccl", "nccl", "ucx", "cray-mpich"]
            .into_iter()
            .find(|library| program.contains(library) || interface.contains(library));
        if is_collective(row) {
            return self.collective(terms, &text, library);
        }
        let far = ["node", "remote"].iter().any(|part| row.dst.contains(part));
        let (a, b) = match far {
            true => ("gpu0".to_owned(), "n1.gpu0".to_owned()),
            false => {
                match (self.ends(row, &row.src)?.as_slice(), self.ends(row, &row.dst)?.as_slice()) {
                    ([TransferEnd::Gpu(a)], [TransferEnd::Gpu(b)]) => {
                        (format!("gpu{a}"), format!("gpu{b}"))
                    }
                    _ => return Err(format!("'{}' and '{}' are not two GPUs", row.src, row.dst)),
                }
            }
        };
        let size = match row.size.as_str() {
            "" | "-" | "max" => 16 << 20,
            size => bytes(size)?,
        };
        let library = library.unwrap_or("cray-mpich");
        // Below this size no library of the node copies on GPUs.
        let small = size < 1024;
        let by = match () {
            () if ["blit", "kernel"].iter().any(|word| interface.contains(word)) => {
                format!("{library}[blit]")
            }
            () if interface.contains("sdma") || far || small || library.contains("ccl") => {
                library.to_owned()
            }
            () => {
                return Err(format!(
                    "'{}' does not say whether an engine or a kernel copies",
                    row.interface
                ));
            }
        };
        if metric == "latency" {
            return Ok((format!("ping over {a}>{b} by {by} x {size}B"), metric));
        }
        let pairs = match is_two_way(row)? {
            true => format!("{a}>{b},{b}>{a}"),
            false => format!("{a}>{b}"),
        };
        Ok((format!("send over {pairs} by {by} x {size}B window 64"), metric))
    }

    fn collective<'m>(
        &self,
        terms: &SourceTerms<'m>,
        text: &str,
        library: Option<&str>,
    ) -> Result<(String, &'m str), String> {
        let SourceTerms { row, metric, .. } = *terms;
        const KNOWN: [(&str, &str); 10] = [
            ("allreduce", "all_reduce"),
            ("all_reduce", "all_reduce"),
            ("allgather", "all_gather"),
            ("all_gather", "all_gather"),
            ("reduce_scatter", "reduce_scatter"),
            ("alltoall", "all_to_all"),
            ("all_to_all", "all_to_all"),
            ("bcast", "broadcast"),
            ("broadcast", "broadcast"),
            ("reduce", "reduce"),
        ];
        let Some((_, op)) = KNOWN.iter().find(|(word, _)| text.contains(word)) else {
            return Err("the collective is not named".to_owned());
        };
        let Some(library) = library else {
            return Err(format!("'{}' does not say which library", row.interface));
        };
        let first = |text: &str| {
            let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u32>().ok().filter(|n| *n > 0)
        };
        // Without a number of nodes it is one.
        let on = match row.dst.trim() {
            "" | "-" => Some(1),
            nodes => first(nodes),
        };
        let (Some(ranks), Some(nodes)) = (first(&row.src), on) else {
            return Err(format!("'{}' on '{}' is no number of ranks", row.src, row.dst));
        };
        // `16 GCD` on `2 nodes`: both are totals.
        let nodes = if row.dst.contains("node") { nodes } else { 1 };
        let each = ranks / nodes;
        if each == 0 || each as usize > self.topology.gpus.len() || nodes > 64 {
            return Err(format!("{ranks} ranks on {nodes} nodes are not one a GPU"));
        }
        let members: Vec<String> = (0..nodes)
            .map(|node| match node {
                0 => format!("gpu0-gpu{}", each - 1),
                node => format!("n{node}.gpu0-gpu{}", each - 1),
            })
            .collect();
        let size = match row.size.as_str() {
            "small" => 8,
            size => bytes(size)?,
        };
        let osu = row.tool.to_lowercase().contains("osu");
        // OSU prints of these what one rank has for each; the exchange has the larger of a rank's buffers.
        let parts =
            if osu && matches!(*op, "all_gather" | "all_to_all") { u64::from(ranks) } else { 1 };
        let size = size.saturating_mul(parts);
        let metric = if osu && metric == "latency" { "mean-latency" } else { metric };
        let rings = ["nvls off", "nvls_enable=0", "algo=ring", "nccl ring"];
        let by = match library {
            "nccl" if rings.iter().any(|words| text.contains(words)) => "nccl[ring]",
            library => library,
        };
        // OSU awaits the stream in each timed iteration (osu_nccl_allreduce.c); rccl-tests and nccl-tests do
        // not.
        let cadence = match () {
            () if osu && library.ends_with("ccl") => " isolated",
            () if row.figure.contains("-G 1") => " graph",
            () => "",
        };
        Ok((format!("{op} over {} by {by} x {size}B{cadence}", members.join(",")), metric))
    }

    /// Ends in a cell, `GCD0` or `GCD0,GCD2`, in the numbers of this node.
    fn ends(&self, row: &SourceRow, cell: &str) -> Result<Vec<TransferEnd>, String> {
        cell.split(',').map(|text| self.end(row, text)).collect()
    }

    /// One end. `quad`, `dual` and `single` are the first GPU that four, two or one links join with GPU 0. A
    /// GPU without a number is GPU 0; if both ends are such GPUs, the source is GPU 1.
    fn end(&self, row: &SourceRow, cell: &str) -> Result<TransferEnd, String> {
        let text = cell.trim().to_lowercase();
        let name = text.trim_end_matches(|c: char| c.is_ascii_digit());
        let number = text.get(name.len()..).and_then(|digits| digits.parse::<u32>().ok());
        let both = row.src == row.dst;
        let is_source = std::ptr::eq(&*row.src, cell);
        match (name.trim(), number) {
            ("gcd" | "gpu" | "apu" | "device" | "dev", Some(n)) => {
                self.ours(row, n).map(TransferEnd::Gpu)
            }
            ("gcd" | "gpu" | "apu" | "device" | "dev", None) => {
                self.ours(row, u32::from(both && is_source)).map(TransferEnd::Gpu)
            }
            ("numa" | "numa node" | "cpu" | "host", n) => Ok(TransferEnd::Host(n)),
            ("quad", None) => self.joined(4),
            ("dual", None) => self.joined(2),
            ("single", None) => self.joined(1),
            _ => Err(format!("'{cell}' is no GPU and no host memory")),
        }
    }

    /// The first GPU that `width` links join with GPU 0.
    fn joined(&self, width: u32) -> Result<TransferEnd, String> {
        let links = self.topology.links.iter().filter(|link| link.width == width);
        let mut others = links.filter_map(|link| match (link.a, link.b) {
            (LinkEnd::Gpu(0), LinkEnd::Gpu(other)) | (LinkEnd::Gpu(other), LinkEnd::Gpu(0)) => {
                Some(other)
            }
            _ => None,
        });
        let first = others.next().map(|first| others.fold(first, u32::min));
        first.map(TransferEnd::Gpu).ok_or_else(|| format!("no {width} links join a GPU with GPU 0"))
    }

    /// Our number of a source's GPU.
    fn ours(&self, row: &SourceRow, theirs: u32) -> Result<u32, String> {
        let named = self.numberings.iter().find(|n| row.system.contains(&n.name));
        let ours = named.map_or(Some(theirs), |numbering| numbering.ours(theirs));
        let there = ours.filter(|n| self.topology.gpus.iter().any(|gpu| gpu.index == *n));
        there.ok_or_else(|| format!("this machine has no GPU {theirs}"))
    }

    /// The ends with host memory next to the GPU: sources mean that, whatever they number. Of a server of
    /// two sockets each has half of the GPUs, and memory of the other is not next to one.
    fn near(
        &self,
        row: &SourceRow,
        from: TransferEnd,
        to: TransferEnd,
    ) -> Result<(TransferEnd, TransferEnd), String> {
        let system = row.system.to_lowercase();
        let sockets = ["2 cpu", "2 socket", "dual-socket", "dual socket", "two socket"];
        let two = sockets.iter().any(|sockets| system.contains(sockets));
        let place = |gpu: u32, named: Option<u32>| {
            let at = self.topology.gpus.iter().position(|known| known.index == gpu);
            let half = at.map(|at| u32::from(at >= self.topology.gpus.len() / 2));
            if two && self.topology.host.sockets < 2 && named.is_some() && named != half {
                return Err(FAR_SOCKET.to_owned());
            }
            let home = at.and_then(|at| self.topology.gpus.get(at)).and_then(|gpu| gpu.numa);
            Ok(TransferEnd::Host(home))
        };
        Ok(match (from, to) {
            (TransferEnd::Host(n), TransferEnd::Gpu(g)) => (place(g, n)?, to),
            (TransferEnd::Gpu(g), TransferEnd::Host(n)) => (from, place(g, n)?),
            same => same,
        })
    }
}

/// A copy by the CPU executor of TransferBench, next to its end in host memory.
fn cpu_copy(from: TransferEnd, to: TransferEnd, size: &str) -> Result<String, String> {
    let ((TransferEnd::Host(Some(n)), _) | (_, TransferEnd::Host(Some(n)))) = (from, to) else {
        return Err("no CPU takes part in it".to_owned());
    };
    let memory = |end: TransferEnd| match end {
        TransferEnd::Gpu(g) => format!("gpu{g}.vram"),
        TransferEnd::Host(own) => format!("numa{}.pinned", own.unwrap_or(n)),
    };
    let threads = CPU_EXECUTOR_THREADS;
    let (src, dst) = (memory(from), memory(to));
    Ok(format!("{src} > {dst} by cpu@numa{n}[copy-memcpy-t{threads}] x {size}"))
}

/// The metric that a source's word means. Which of several runs a tool reports (the best, the mean) is no
/// property of the machine.
fn metric_word(text: &str) -> Result<&'static str, String> {
    let lower = text.trim().to_lowercase();
    let statistics = ["max ", "mean ", "median ", "average ", "avg ", "sustained ", "achieved "];
    let plain = statistics.iter().find_map(|of| lower.strip_prefix(of)).unwrap_or(&lower);
    match plain {
        "bandwidth" | "throughput" | "algbw" | "algorithm bandwidth" => Ok("bandwidth"),
        "busbw" | "bus bandwidth" => Ok("busbw"),
        "latency" | "time" => Ok("latency"),
        fact if fact.starts_with("peak:") => {
            Err("a peak of a data sheet is no measurement; a row with a case can have it formed"
                .to_owned())
        }
        _ if ["bound", "limit"].iter().any(|word| plain.contains(word)) => {
            Err(format!("'{text}' is a bound that its source derives, no measurement"))
        }
        _ => {
            Err(format!("'{text}' is no plain rate or time; a row with a case can have it formed"))
        }
    }
}

/// A kernel of 256 threads a block on a GPU.
fn kernel_text(op: &str, at: u32, grid: String, size: &str) -> String {
    format!("kernel@gpu{at}[{op}-w16-u4-b256-g{grid}] x {size}")
}

/// TransferBench's kernels have a block for each compute unit that the row states; others two.
fn grid(program: &str, interface: &str) -> String {
    match compute_units(interface) {
        Some(units) if program.contains("transferbench") => units.to_string(),
        _ => "2sm".to_owned(),
    }
}

/// `kernel_write (GFX), 4 CUs`: the number of compute units.
fn compute_units(interface: &str) -> Option<u32> {
    let before = interface.split(" cu").next().filter(|before| before.len() < interface.len())?;
    let number = before.rsplit(|c: char| !c.is_ascii_digit()).next()?;
    number.parse().ok().filter(|units| (1..=1024).contains(units))
}

/// Whether a row is of a collective of a message library.
fn is_collective(row: &SourceRow) -> bool {
    matches!(row.direction.to_lowercase().as_str(), "coll" | "collective")
}

/// Whether data goes both ways at once, and the value is the sum.
fn is_two_way(row: &SourceRow) -> Result<bool, String> {
    match row.direction.to_lowercase().as_str() {
        "uni" | "unidir" | "unidirectional" | "one-way" | "local" | "local_2n" | "h2d" | "d2h"
        | "d2d" | "" => Ok(false),
        "bi_sum" => Ok(true),
        "bi" | "bidir" | "bidirectional" => Err(format!(
            "direction '{}' does not say whether the value is the sum of both; 'bi_sum' says so",
            row.direction
        )),
        other => Err(format!("direction '{other}' has no case")),
    }
}

/// A number of bytes: `4096`, `4e3`, `64MiB`; `64M` as OSU and nccl-tests have it, which is binary.
fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text.get(digits.len()..).unwrap_or_default() {
        "" | "B" => Some(0),
        "K" | "KiB" => Some(10),
        "M" | "MiB" => Some(20),
        "G" | "GiB" => Some(30),
        "KB" | "kB" | "MB" | "GB" => {
            return Err(format!(
                "size '{text}' does not say whether it is decimal; write bytes or MiB"
            ));
        }
        _ => None,
    };
    if let (Some(shift @ 1..), Ok(count)) = (shift, digits.trim().parse::<u64>()) {
        let size = count.checked_mul(1 << shift).filter(|n| (1..=1 << 50).contains(n));
        return size.ok_or_else(|| format!("size '{text}' is no number of bytes"));
    }
    let text = if shift == Some(0) { digits.trim() } else { text };
    let whole = text.parse::<u64>().ok();
    let scientific = || text.parse::<f64>().ok().filter(|n| n.fract() == 0.0).map(|n| n as u64);
    let size = whole.or_else(scientific).filter(|n| (1..=1 << 50).contains(n));
    size.ok_or_else(|| format!("size '{text}' is no number of bytes"))
}

#[cfg(test)]
mod tests;
