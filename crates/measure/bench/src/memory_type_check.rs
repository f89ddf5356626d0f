//! Compares the memory type that a library detects with the actual one.

use std::collections::BTreeSet;

use pathline_schema::{Flow, FlowSeries, MemKind, Transport, WireOp};

/// Kinds of memory that libraries distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum MemoryClass {
    Host,
    Device,
    Managed,
}

impl MemoryClass {
    /// The class of a place's memory. The CPU copies pinned memory like any host memory.
    fn of(mem: MemKind) -> Self {
        match mem {
            MemKind::Vram | MemKind::VramFine => Self::Device,
            MemKind::Managed => Self::Managed,
            _ => Self::Host,
        }
    }

    /// The class of UCX's name; `None` for a name without information.
    fn named(name: &str) -> Option<Self> {
        match name {
            "host" => Some(Self::Host),
            "" | "unknown" => None,
            _ if name.starts_with("memory type") => None,
            _ if name.ends_with("-managed") => Some(Self::Managed),
            _ => Some(Self::Device),
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Host => "host memory",
            Self::Device => "device memory",
            Self::Managed => "managed memory",
        }
    }
}

/// The effect on a message if a library mistakes its memory for another kind.
fn follows(is: MemoryClass, taken: MemoryClass) -> &'static str {
    match (is, taken) {
        (MemoryClass::Managed, MemoryClass::Host) => {
            "the processor or the kernel copies it, which brings its pages to the host, and no path \
             between GPUs is used"
        }
        (MemoryClass::Device, MemoryClass::Host) => {
            "the processor loads and stores it over the host link if it can address it at all, and \
             dies of it otherwise; UCX_TLS may leave out the transports of this GPU, or this UCX is \
             built without them"
        }
        (MemoryClass::Managed, MemoryClass::Device) => {
            "GPUs and copy engines address it where it lies, which may be the host"
        }
        (MemoryClass::Device, MemoryClass::Managed) => {
            "it goes through buffers as if its pages could be elsewhere, and not from GPU to GPU"
        }
        (MemoryClass::Host, _) => "GPUs or copy engines fetch what the processor could copy",
        (MemoryClass::Device, MemoryClass::Device)
        | (MemoryClass::Managed, MemoryClass::Managed) => "nothing is wrong",
    }
}

/// Why a figure is not of the memory that its case names: UCX detects another type.
pub(crate) fn wrong_types(series: &FlowSeries) -> Vec<String> {
    let Some(wire) = series.flow.by.wire().filter(|wire| wire.via == Transport::Ucx) else {
        return Vec::new();
    };
    let mut texts = Vec::new();
    for (end, word) in [(true, "from"), (false, "to")] {
        let truth = kinds(&series.flow, wire.op, end);
        let named = detected(&series.engine, word);
        let seen: BTreeSet<MemoryClass> =
            named.iter().filter_map(|name| MemoryClass::named(name)).collect();
        // Where both ends report the same, the text does not name the processes.
        let [is] = *Vec::from_iter(&truth) else { continue };
        for taken in seen.into_iter().filter(|taken| taken != is) {
            let names: Vec<&str> =
                named.iter().copied().filter(|n| MemoryClass::named(n) == Some(taken)).collect();
            texts.push(format!(
                "UCX takes the {} that messages go {word} for {} ({}): {}",
                is.describe(),
                taken.describe(),
                names.join(", "),
                follows(*is, taken)
            ));
        }
    }
    texts
}

/// Memory classes of one end: in a round trip each process has both ends.
fn kinds(flow: &Flow, op: WireOp, source: bool) -> BTreeSet<MemoryClass> {
    let both = [flow.src.mem, flow.dst.mem];
    let own = if source { [flow.src.mem; 2] } else { [flow.dst.mem; 2] };
    let mems = if op.is_ping() { both } else { own };
    mems.into_iter().map(MemoryClass::of).collect()
}

/// The memory types of that end that the processes report: `memory from cuda, to cuda`, the last
/// report of each.
fn detected<'a>(engine: &'a str, word: &str) -> BTreeSet<&'a str> {
    let of = |text: &'a str| text.rsplit_once("memory ").map(|(_, ends)| ends);
    let name = |end: &'a str| end.trim().strip_prefix(word)?.strip_prefix(' ');
    engine.split(" | ").filter_map(of).flat_map(|ends| ends.split(", ")).filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::{Bytes, TimerKind};

    fn series(flow: &str, engine: &str) -> FlowSeries {
        let flow = flow.parse().unwrap_or_else(|e| panic!("{flow}: {e}"));
        FlowSeries {
            engine: engine.to_owned(),
            moved_bytes: Bytes(8),
            samples_ns: vec![1e3; 3],
            ..FlowSeries::new(flow, TimerKind::Host)
        }
    }

    /// Report of two H200s and a UCX for ROCm: each process has a separate text.
    fn warnings_of(flow: &str, from: &str, to: &str) -> Vec<String> {
        let engine = format!(
            "UCX 1.22.0: memory to {to} | UCX 1.22.0 with UCX_RNDV_SCHEME=am: tag_send(multi) from \
             host memory length 65536 eager (expects 5.55 us); lanes sysv/memory; memory from {from}"
        );
        wrong_types(&series(flow, &engine))
    }

    #[test]
    fn a_correct_type_gives_no_warning() {
        for (mem, name) in [("vram", "cuda"), ("vram", "rocm"), ("managed", "cuda-managed")] {
            let flow = format!("r0.gpu0.{mem} > r1.gpu1.{mem} by ucx@gpu0[send-w64] x 64KiB");
            assert!(warnings_of(&flow, name, name).is_empty(), "{mem} {name}");
        }
        for mem in ["paged", "pinned", "huge", "registered"] {
            let flow = format!("r0.numa0.{mem} > r1.numa0.{mem} by ucx@numa0[send-w64] x 64KiB");
            assert!(warnings_of(&flow, "host", "host").is_empty(), "{mem}");
        }
        // A name without information is no mistake.
        let flow = "r0.gpu0.vram > r1.gpu1.vram by ucx@gpu0[send-w64] x 64KiB";
        assert!(warnings_of(flow, "memory type 7", "unknown").is_empty());
    }

    #[test]
    fn a_wrong_type_gives_a_warning_with_its_effect() {
        // As libucp with ROCm detects memory of hipMallocManaged.
        let flow = "r0.gpu0.managed > r1.gpu1.managed by ucx@gpu0[send-w64,rndv-am] x 64KiB";
        let texts = warnings_of(flow, "host", "host");
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(
            texts[0].starts_with("UCX takes the managed memory that messages go from for host")
        );
        assert!(texts[0].contains("pages to the host"), "{texts:?}");
        // One end only.
        let flow = "r0.gpu0.vram > r1.numa0.paged by ucx@gpu0[send-w64] x 64KiB";
        assert!(warnings_of(flow, "cuda", "host").is_empty());
        let texts = warnings_of(flow, "host", "host");
        assert_eq!(texts.len(), 1, "{texts:?}");
        assert!(texts[0].contains("device memory that messages go from for host memory (host)"));
    }

    #[test]
    fn ends_of_a_round_trip_are_judged_where_both_are_alike() {
        let engine = "UCX 1.22.0: tag_send from host memory; memory from host, to host";
        let alike = "r0.gpu0.vram > r1.gpu1.vram by ucx@gpu0[ping] x 8B";
        assert_eq!(wrong_types(&series(alike, engine)).len(), 2);
        let differ = "r0.gpu0.vram > r1.numa0.paged by ucx@gpu0[ping] x 8B";
        assert!(wrong_types(&series(differ, engine)).is_empty());
        let other = "r0.gpu0.vram > r1.gpu1.vram by mpi@gpu0[ping] x 8B";
        assert!(wrong_types(&series(other, engine)).is_empty());
    }
}
