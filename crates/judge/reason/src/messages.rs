//! OSU's benchmarks, Intel's and ucx_perftest: rates and times of messages.

use pathline_paste::{MessageTable, MessageTest, PasteContext};

use crate::cause_table::CauseFacts;
use crate::checks::CheckPath;
use crate::draft::{ASK_PRODUCT, DraftAnswer, ProbeSubject};
use crate::figures::{figure, rate};
use crate::fitting_links::{fitting_text, standard_links};
use crate::node_facts::{AnswerBasis, NodeLimits};
use crate::outlier::{Outlier, falls_off, long_tails, moving_rows, slow_rows, unsteady};
use crate::score::ObservedFeature;

/// Share of its neighbours below which a size is slow: a protocol that begins there costs less.
const MESSAGE_DIP: f64 = 0.5;

/// Messages below this size take about as long as an empty one: 1 us is 4 KiB at 4 GB/s.
const SHORT: u64 = 4096;

/// A fall from one size to the next: the rate after over the rate before, with both sizes and rates.
#[derive(Clone, Copy)]
struct RateFall {
    ratio: f64,
    from: (u64, f64),
    to: (u64, f64),
}

/// The deepest fall from 1 KiB on.
fn deepest_fall(rows: &[(u64, f64)]) -> Option<RateFall> {
    let falls = rows.windows(2).filter_map(|pair| {
        let [from, to] = *pair else { return None };
        (from.0 >= 1024 && from.1 > 0.0).then_some(RateFall { ratio: to.1 / from.1, from, to })
    });
    falls.min_by(|a, b| a.ratio.total_cmp(&b.ratio))
}

/// A size that takes this many times as long as a larger one, or as the one before and all after it, is slow: another
/// protocol costs less.
const LONG_TIME: f64 = 3.0;

/// Sizes whose times lie far above those around them. The first may hold the start of the connection.
fn long_times(rows: &[(u64, f64)]) -> Vec<Outlier> {
    let outlier =
        |bytes: u64, share: f64, text| Outlier::of_text(format!("{bytes} B"), share, text);
    let mut found = Vec::new();
    // The fastest of the larger sizes.
    let larger = |at: usize| {
        let rest = rows.get(at + 1..).unwrap_or_default().iter();
        rest.filter(|row| row.1 > 0.0).min_by(|a, b| a.1.total_cmp(&b.1)).copied()
    };
    let slow = rows.iter().enumerate().skip(1).filter_map(|(at, &(bytes, time))| {
        let (size, least) = larger(at).filter(|(_, least)| least * LONG_TIME < time)?;
        Some((bytes, time, size, least))
    });
    let slow: Vec<_> = slow.collect();
    let worst = slow.iter().max_by(|a, b| (a.1 / a.3).total_cmp(&(b.1 / b.3)));
    if let (Some(&(bytes, time, size, least)), Some(first), Some(last)) =
        (worst, slow.first(), slow.last())
    {
        let (shown, less) = (figure(time), figure(least));
        let sizes = match first.0 == last.0 {
            true => format!("{bytes} B: {shown} us"),
            false => format!("{} to {} B: up to {shown} us ({bytes} B)", first.0, last.0),
        };
        let text =
            format!("{sizes}, while {size} B take {less} us: the larger messages go another way");
        found.push(outlier(bytes, least / time, text));
    }
    let steps = rows.windows(2).filter_map(|pair| {
        let &[(size, before), (bytes, time)] = pair else { return None };
        let grown = (bytes as f64 / size.max(1) as f64).max(1.0);
        let is_step = before > 0.0
            && time >= before * LONG_TIME
            && time >= before * grown * LONG_TIME / 2.0
            && slow.iter().all(|row| row.0 != bytes);
        let (more, before_us, us) = (figure(time - before), figure(before), figure(time));
        let text = format!(
            "from {bytes} B on {more} us more: {before_us} us at {size} B, {us} us at {bytes} B; another protocol or \
             transport begins there"
        );
        is_step.then(|| outlier(bytes, before / time, text))
    });
    let steps: Vec<Outlier> = steps.collect();
    // Many steps are how this library works.
    if steps.len() <= 2 {
        found.extend(steps);
    }
    found
}

/// Where the buffers are: the header's line, the command's `D H` or `-d cuda`, or the title's runtime.
fn memory_of(table: &MessageTable, context: &PasteContext) -> Option<(bool, bool)> {
    let mut named = None;
    let own = std::slice::from_ref(&table.command);
    for command in if table.command.is_empty() { &context.commands } else { own } {
        let words: Vec<&str> = command.split_whitespace().collect();
        for pair in words.windows(2) {
            let [first, second] = *pair else { continue };
            let place = |word: &str| match word {
                "D" | "MD" => Some(true),
                "H" | "MH" => Some(false),
                _ => None,
            };
            let runtime = ["rocm", "cuda", "managed"].contains(&second);
            if let Some(both) = place(first).zip(place(second)) {
                named = Some(both);
            } else if runtime && ["-d", "-m", "--accelerator"].contains(&first) {
                named = named.or(Some((true, true)));
            }
        }
    }
    // A build for GPUs also takes host memory, if the command says so.
    match (table.on_gpu, named) {
        (Some((true, true)), Some(named)) => Some(named),
        (stated, named) => stated.or(named),
    }
}

/// Whether the text around a table speaks of memory of GPUs.
fn names_gpu(context: &PasteContext) -> bool {
    let names = ["device to device", "device buffer", "gpu to gpu", "gpu buffer", "gpu memory"];
    names.iter().any(|name| context.prose.contains(name))
}

/// Rates and times of messages.
pub(crate) fn explain(table: &MessageTable, basis: AnswerBasis<'_>) -> DraftAnswer {
    let AnswerBasis { limits: node, context, .. } = basis;
    let memory = memory_of(table, context);
    let where_ = match memory {
        Some((true, true)) => "GPU to GPU memory",
        Some((false, true)) => "host to GPU memory",
        Some((true, false)) => "GPU to host memory",
        None if table.tool == "ucx_perftest" || names_gpu(context) => "memory not stated",
        _ => "host memory",
    };
    let on_gpu = memory.is_some_and(|(a, b)| a || b);
    let nodes = context.nodes.filter(|nodes| *nodes > 1);
    let between = nodes.map_or_else(String::new, |nodes| format!(" on {nodes} nodes"));
    let path = if on_gpu { CheckPath::GpuMessage } else { CheckPath::HostMessage };
    let mut draft = DraftAnswer::new(path, String::new(), None);
    if on_gpu && nodes.is_none() {
        draft.subject = ProbeSubject::GpuPairs;
    }
    if matches!(table.test, MessageTest::Latency | MessageTest::Group(_)) {
        explain_times(&mut draft, table, where_, &between, on_gpu);
        draft.outliers = long_tails(&table.rows, &table.longest);
        draft.outliers.extend(long_times(&table.rows));
        return draft;
    }
    let ways = if table.test == MessageTest::BothWays { 2.0 } else { 1.0 };
    let unsteady = unsteady(&table.intervals);
    // The mean of a run that goes up and down is no peak.
    let peaks = table.intervals.iter().filter(|_| unsteady.is_some());
    let best = table.rows.iter().map(|r| &r.1).chain(peaks).copied().fold(0.0, f64::max);
    let at = table.rows.iter().find(|r| r.1 >= best * 0.999).map_or(0, |r| r.0);
    let at = if at > 0 { format!(", at {at} B") } else { String::new() };
    let counted = match table.test {
        MessageTest::BothWays => "both directions, summed",
        MessageTest::MultiPair => "all pairs, summed",
        _ => "one direction",
    };
    let peak = rate(best);
    draft.meaning = format!(
        "bandwidth of messages, {where_}{between}: peak {peak} (1 GB = 1e9 B){at}; {counted}"
    );
    // A table that was cut there has no rate of a link.
    let largest = table.rows.iter().map(|row| row.0).max().unwrap_or(0);
    if (1..SHORT).contains(&largest) && table.rows.len() > 1 {
        draft.limit = format!("none: up to {largest} B the time of a message counts, not its link");
        draft.note = format!("the rows end at {largest} B");
        draft.ask = "the rows of larger sizes?".to_owned();
        return draft;
    }
    (draft.value, draft.ways) = (Some(best / ways), ways);
    draft.features.push(ObservedFeature::new("best", best.max(1e-4) / ways));
    draft.outliers = slow_rows(&moving_rows(&table.rows), MESSAGE_DIP);
    draft.outliers.extend(falls_off(&table.rows));
    draft.outliers.extend(unsteady);
    let fall = deepest_fall(&table.rows);
    let ratio = fall.map(|fall| fall.ratio.clamp(1e-3, 1.0));
    draft.features.extend(ratio.map(|ratio| ObservedFeature::new("fall", ratio)));
    // One end on the host is a copy over its PCIe.
    let to_host = memory.is_some_and(|(a, b)| a != b) && nodes.is_none();
    if let Some(node) = node.filter(|node| to_host && node.pcie_gbs > 0.0) {
        let text = node.pcie_source.each_way(node.pcie_gbs, "PCIe");
        draft.set_limit(node.pcie_gbs, "host.pcie", text);
        return draft;
    }
    let rails = match table.tool {
        // UCX uses two rails by default.
        "ucx_perftest" => context.adapters.unwrap_or(context.ports).clamp(1, 2),
        _ => 1,
    };
    set_limit(&mut draft, node, on_gpu, nodes.is_some() || rails > 1, rails, context);
    let node = node.filter(|_| nodes.is_none());
    bandwidth_edits(&mut draft, node, on_gpu, fall, context);
    draft
}

/// The link that carries the messages, where the paste says which.
fn set_limit(
    draft: &mut DraftAnswer,
    node: Option<&NodeLimits>,
    on_gpu: bool,
    crosses_nodes: bool,
    rails: u32,
    context: &PasteContext,
) {
    let of_network = context.network_gbits.map(|gbits| gbits / 8.0 * f64::from(rails));
    let adapters = match rails {
        1 => "an adapter (in the paste)".to_owned(),
        _ => format!("{rails} adapters (in the paste)"),
    };
    let package = node.and_then(|node| node.product).map_or(0.0, |product| product.package_gbs);
    let links = node.map_or(0.0, |node| node.pair_gbs);
    let pcie = node.map_or(0.0, |node| node.pcie_gbs);
    let source = node.map_or("", |node| node.links_source.label());
    let value = draft.value.unwrap_or(0.0);
    let found = match () {
        () if crosses_nodes
            || of_network.is_some_and(|gbs| context.nodes.is_none() && value <= gbs) =>
        {
            of_network.map(|gbs| (gbs, adapters))
        }
        // What a single link does not carry can only be that of one package.
        () if on_gpu && package > links && value > links => {
            Some((package, "between the two GPUs of a package (assumed of the product)".to_owned()))
        }
        () if on_gpu && links > 0.0 => Some((links, format!("between GPUs of a node ({source})"))),
        () if on_gpu && pcie > 0.0 => {
            Some((pcie, "PCIe between GPUs of a node (assumed of the product)".to_owned()))
        }
        () => of_network.filter(|_| context.nodes != Some(1)).map(|gbs| (gbs, adapters)),
    };
    match found {
        Some((gbs, what)) => {
            let text = format!("{} GB/s each way, {what}", figure(gbs));
            draft.set_limit(gbs, "message.link", text);
            if on_gpu && context.nodes.is_none() {
                let is_inner = what.contains("of a node");
                let place = if is_inner { "the ranks are on one node" } else { "they are on two" };
                draft.condition = if what.contains("package") { "" } else { place }.to_owned();
            }
        }
        None if context.nodes == Some(1) => {
            let missing =
                if on_gpu { "the paste names no GPU product" } else { "cores copy on one node" };
            draft.limit = format!("unknown: {missing}");
            draft.ask = if on_gpu { ASK_PRODUCT } else { "" }.to_owned();
        }
        None => {
            let ports = fitting_text(value, &standard_links("port"));
            let ports = ports.trim_start_matches("unknown; ").trim_start_matches("unknown: ");
            draft.limit = format!(
                "unknown: the paste does not say what joins the ranks; over one adapter {ports}"
            );
            draft.ask = match (on_gpu, crosses_nodes) {
                (true, false) => "which GPU product is it, and on how many nodes are the ranks?",
                (_, true) => "what is the rate of an adapter, and how many has a node?",
                _ => "on how many nodes are the ranks, and what is the rate of an adapter?",
            }
            .to_owned();
        }
    }
}

/// What one core carries by TCP at most, GB/s.
const TCP_GBS: f64 = 5.0;

/// Whether a list of transports has TCP and none of RDMA. Others that a node has between its processes may be in it
/// where they carry nothing.
fn allows_tcp_alone(list: &str, has_others: bool) -> bool {
    const RDMA: &str = "rc ud dc ib srd gga ugni all openib uct ofi usnic";
    const INNER: &str = "sm shm vader posix sysv cma knem xpmem smcuda cuda_ipc rocm_ipc ze_ipc";
    let has = |names: &str| {
        let is_one = |item: &str, name: &str| {
            item.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        };
        list.split(',').any(|item| names.split(' ').any(|name| is_one(item.trim(), name)))
    };
    has("tcp") && !list.contains('^') && !has(RDMA) && (has_others || !has(INNER))
}

fn bandwidth_edits(
    draft: &mut DraftAnswer,
    node: Option<&NodeLimits>,
    on_gpu: bool,
    fall: Option<RateFall>,
    context: &PasteContext,
) {
    let (pcie, pair) = node.map_or((0.0, 0.0), |node| (node.pcie_gbs, node.pair_gbs));
    // Of a package's links the limit says more than the product's single link.
    let links = draft.limit_gbs.filter(|_| pair > 0.0).unwrap_or(pair);
    let facts = CauseFacts::new(&[
        ("value", draft.value.unwrap_or(1.0)),
        ("links", links),
        ("pcie", pcie),
        ("tolerance", if context.nodes == Some(1) { 0.6 } else { 0.0 }),
    ]);
    if let Some(fall) = fall.filter(|fall| fall.ratio < 0.8) {
        let is_rendezvous = (2048..=1 << 20).contains(&fall.to.0);
        let facts = facts
            .with("prior", if is_rendezvous { 0.5 } else { 0.15 })
            .with("before_bytes", fall.from.0 as f64)
            .with("before", fall.from.1)
            .with("after_bytes", fall.to.0 as f64)
            .with("after", fall.to.1);
        let edit = facts.cause("message.protocol-switch");
        // The rows themselves show the size at which it begins, and the fall says more than the size.
        let part = format!("{} B", fall.to.0);
        draft.outliers.retain(|one| one.part != part || !is_rendezvous);
        draft.note = edit.text.clone();
        draft.edits.push(if is_rendezvous { edit.stated() } else { edit });
    }
    let has_others = context.nodes != Some(1) && draft.value.is_some_and(|gbs| gbs < TCP_GBS);
    let set = ["OMPI_MCA_btl", "UCX_TLS"].iter().find_map(|name| {
        let list = context.settings.get(*name);
        Some(format!("{name}={}", list.filter(|list| allows_tcp_alone(list, has_others))?))
    });
    let is_full = draft.value.is_some_and(|value| draft.is_usual(value));
    draft.edits.push(match set.filter(|_| !is_full) {
        Some(set) => facts.word("set", set).cause("message.tcp#named"),
        None => facts.cause("message.tcp"),
    });
    if !on_gpu {
        draft.edits.push(facts.cause("message.shared-memory"));
        return;
    }
    let Some(node) = node else { return };
    if links > 0.0 {
        draft.edits.push(facts.cause("message.link-full"));
    }
    if node.product.is_some_and(|p| p.name.starts_with("MI2")) {
        draft.edits.push(facts.cause("message.sdma-cap"));
    }
    if pcie > 0.0 {
        draft.edits.push(match pair > 0.0 {
            true => facts.cause("message.pcie-peer#with-links"),
            false => facts.cause("message.pcie-peer"),
        });
        draft.edits.push(facts.cause("message.through-host-memory"));
    }
}

/// Half round trips, and means of collectives.
fn explain_times(
    draft: &mut DraftAnswer,
    table: &MessageTable,
    where_: &str,
    between: &str,
    on_gpu: bool,
) {
    // A message of 0 B touches no buffer.
    let smallest = table.rows.iter().find(|row| row.0 > 0).or(table.rows.first()).copied();
    let (bytes, small) = smallest.unwrap_or((0, 0.0));
    let largest = table.rows.last().copied().unwrap_or((0, 0.0));
    let rate = if largest.1 > 0.0 { largest.0 as f64 / largest.1 / 1e3 } else { 0.0 };
    let what = match table.test {
        MessageTest::Group(op) => format!("{op}, mean over ranks"),
        _ => "latency, half a round trip".to_owned(),
    };
    let [small_us, large_us, rate] = [small, largest.1, rate].map(figure);
    draft.meaning = format!(
        "{what}, {where_}{between}: {small_us} us at {bytes} B, {large_us} us at {} B ({rate} GB/s)",
        largest.0
    );
    draft.limit = "a message of host memory takes 0.2 to 0.5 us on a node and 1 to 2 us over RDMA; one of GPU memory a few us".to_owned();
    draft.features.push(ObservedFeature::new("start", small.max(1e-3)));
    let is_group = matches!(table.test, MessageTest::Group(_));
    // A collective is several messages: how many, the table does not say.
    let tolerance = |sigma: f64| if is_group { 1.2 } else { sigma };
    let facts = CauseFacts::new(&[
        ("gpu", tolerance(0.6)),
        ("slow", tolerance(0.5)),
        ("host", tolerance(0.7)),
    ]);
    draft.edits.extend(match on_gpu {
        true => [facts.cause("message.gpu-message"), facts.cause("message.staged-message")],
        false => [facts.cause("message.host-message"), facts.cause("message.tcp#time")],
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_paste::{PasteContent, read_paste};

    #[test]
    fn lists_without_rdma_allow_tcp_alone() {
        let lists =
            ["tcp", "tcp,self", "cuda_copy,tcp", "tcp,rc_x", "^rc,tcp", "tcp,ud_mlx5", "sm"];
        assert_eq!(
            lists.map(|list| allows_tcp_alone(list, false)),
            [true, true, true, false, false, false, false]
        );
        assert!(allows_tcp_alone("tcp,sm,cuda_ipc", true) && !allows_tcp_alone("tcp,sm", false));
    }

    #[test]
    fn the_command_says_where_buffers_are() {
        let place = |command: &str, title: &str| {
            let text = format!(
                "$ {command}\n# OSU {title} Bandwidth Test v7.3\n# Size  Bandwidth (MB/s)\n4096 900.0\n8192 1800.5\n"
            );
            let reading = read_paste(text.as_bytes());
            let table = reading.documents.iter().find_map(|document| match &document.content {
                PasteContent::Messages(table) => Some(memory_of(table, &reading.context)),
                _ => None,
            });
            table.expect("a table")
        };
        let both = Some((true, true));
        assert_eq!(place("srun -n 2 ./osu_bw", "MPI"), None);
        assert_eq!(place("srun -n 2 ./osu_bw", "MPI-ROCM"), both);
        assert_eq!(place("srun -N 2 -n 2 ./osu_bw -m 4096:8192 -d rocm", "MPI"), both);
        assert_eq!(place("mpirun -np 2 ./osu_bw -d cuda D H", "MPI-CUDA"), Some((true, false)));
        assert_eq!(place("mpirun -np 2 ./osu_bw H H", "MPI-CUDA"), Some((false, false)));
    }
}
