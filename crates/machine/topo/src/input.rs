//! Reads every supported file or directory that describes a node.

use std::path::Path;

use pathline_schema::Topology;

use crate::assemble::{finish, from_snapshot, validate};
use crate::collect::read_input;
use crate::error::{TopoError, excerpt};
use crate::snapshot::{HostSnapshot, MAX_TOTAL};
use crate::{hwloc, kfd, matrix_topology, nccl, xml};

/// Maximum total size of the CPU sets in a topology. Ten bytes of text can name thousands of CPUs,
/// so this bounds the memory that a hostile file uses.
const MAX_CPU_NUMBERS: u64 = 16 << 20;

const FORMS: &str = "a snapshot of pathline (directory or file), its topology as JSON, a topology \
                     file of NCCL or RCCL (<system>), hwloc XML (<topology>), a CSV of KFD \
                     io_links, or what nvidia-smi topo -m, rocm-smi --showtopo or amd-smi topology print";

/// Reads a topology from a path. A directory is a snapshot tree with `sys` and `proc` inside; for
/// files see [`from_text`].
pub fn from_path(path: &Path) -> Result<Topology, TopoError> {
    let name = path.display().to_string();
    if path.is_dir() {
        if !path.join("sys").is_dir() && !path.join("proc").is_dir() {
            let expected = "a directory with sys or proc inside, as pathline topo --save writes";
            return Err(TopoError::new(name, "neither sys nor proc in it", expected));
        }
        let topology = from_snapshot(&name, &HostSnapshot::collect(path));
        validate(&name, &topology)?;
        return Ok(topology);
    }
    from_text(&name, &read_input(path, MAX_TOTAL)?)
}

/// Reads a snapshot with its settings from a path: a tree with `sys` or `proc` inside, or the single file.
pub fn snapshot_from_path(path: &Path) -> Result<HostSnapshot, TopoError> {
    if path.is_dir() {
        let mut snapshot = HostSnapshot::collect(path);
        snapshot.add_settings(path);
        if !snapshot.is_empty() {
            return Ok(snapshot);
        }
        let expected = "a directory with sys or proc inside, as pathline topo --save writes";
        return Err(TopoError::new(
            path.display().to_string(),
            "neither sys nor proc in it",
            expected,
        ));
    }
    HostSnapshot::from_text(&path.display().to_string(), &read_input(path, MAX_TOTAL)?)
}

/// Reads a topology from the text of a file. `name` becomes its source and appears in errors. The
/// first characters determine the format: `<system` (NCCL, RCCL), `<topology` (hwloc), a CSV
/// header, or a JSON object (snapshot or topology). The result is valid in the sense of
/// [`validate`].
pub fn from_text(name: &str, text: &str) -> Result<Topology, TopoError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let start = text.trim_start();
    let mut topology = match start.chars().next() {
        Some('<') => from_xml(name, text)?,
        Some('{') => from_json(name, text)?,
        Some(_) if kfd::is_csv_header(start.lines().next().unwrap_or_default()) => {
            let mut topology = kfd::read_csv(name, text)?;
            finish(&mut topology);
            topology
        }
        Some(_) => matrix_topology::read(name, text)?.ok_or_else(|| {
            let first = excerpt(start.lines().next().unwrap_or_default());
            TopoError::at(name, 1, format!("{first} begins no known form"), FORMS)
        })?,
        None => return Err(TopoError::new(name, "an empty file", FORMS)),
    };
    topology.source = name.to_owned();
    validate(name, &topology)?;
    Ok(topology)
}

fn from_xml(name: &str, text: &str) -> Result<Topology, TopoError> {
    let root = xml::parse(name, text)?;
    match root.name.as_str() {
        "system" => nccl::read(name, &root),
        "topology" => hwloc::read(name, &root),
        "graphs" => {
            let what = "<graphs>, the rings and trees that NCCL chose, not the parts of a node";
            let expected = "the <system> that NCCL_TOPO_DUMP_FILE writes on that node";
            Err(TopoError::at(name, root.line, what, expected))
        }
        "algo" => {
            let what = "<algo>, an algorithm of MSCCL, not the parts of a node";
            Err(TopoError::at(name, root.line, what, "<system> (NCCL, RCCL) or <topology> (hwloc)"))
        }
        other => {
            let what = format!("root element <{}>", excerpt(other));
            Err(TopoError::at(name, root.line, what, "<system> (NCCL, RCCL) or <topology> (hwloc)"))
        }
    }
}

fn from_json(name: &str, text: &str) -> Result<Topology, TopoError> {
    let bad = |error: serde_json::Error, expected: &str| {
        TopoError::at(name, error.line(), error.to_string(), expected)
    };
    // Parsed to an untyped tree first, which determines the format: its size is bounded by the
    // text's, while CPU sets expand.
    let value: serde_json::Value =
        serde_json::from_str(text).map_err(|error| bad(error, "a snapshot or topology as JSON"))?;
    if value.get("pathline_snapshot").is_some() {
        drop(value);
        return Ok(from_snapshot(name, &HostSnapshot::from_text(name, text)?));
    }
    let numbers = cpu_numbers(&value);
    if numbers > MAX_CPU_NUMBERS {
        let what = format!("CPU sets of {numbers} numbers in all");
        return Err(TopoError::new(name, what, format!("at most {MAX_CPU_NUMBERS}")));
    }
    drop(value);
    serde_json::from_str(text)
        .map_err(|error| bad(error, "a topology saved by pathline topo --json"))
}

/// Number of CPUs in all CPU sets below a value, without expanding them.
fn cpu_numbers(value: &serde_json::Value) -> u64 {
    match value {
        serde_json::Value::Array(items) => items.iter().map(cpu_numbers).sum(),
        serde_json::Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| match value.as_str() {
                Some(text) if key == "cpus" || key == "allowed_cpus" => span(text),
                _ => cpu_numbers(value),
            })
            .sum(),
        _ => 0,
    }
}

fn span(text: &str) -> u64 {
    let count = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<u64>().unwrap_or(0);
        number(last).saturating_sub(number(first)).saturating_add(1)
    };
    text.split(',').map(count).fold(0, u64::saturating_add)
}
