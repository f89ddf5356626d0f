//! Text about the node next to its map, and the conditions during the run.

use pathline_schema::{Conditions, Topology};

use super::build::HtmlBuilder;
use super::number::{count, num, signed_percent};

/// Writes the map and the node's components.
pub(super) fn write(
    h: &mut HtmlBuilder,
    topology: &Topology,
    gpus: &[(String, String)],
    map_svg: &str,
) {
    // pathline draws the map and escapes its labels; any other text is rejected.
    if let Some(picture) = picture(map_svg) {
        h.el("div", &[("class", &"map scroll")], |h| {
            h.trusted(picture);
        });
    }
    super::folded(h, "Processor, memory, GPUs, links", |h| {
        let facts = facts(topology);
        let facts = facts.iter().map(|(name, text)| (*name, text.as_str()));
        write_facts(h, facts.chain(gpus.iter().map(|(name, text)| (name.as_str(), text.as_str()))));
    });
}

fn write_facts<'a>(h: &mut HtmlBuilder, facts: impl Iterator<Item = (&'a str, &'a str)>) {
    h.el("dl", &[("class", &"facts")], |h| {
        for (name, text) in facts {
            h.el("div", &[], |h| {
                h.leaf("dt", &[], name).leaf("dd", &[], text);
            });
        }
    });
}

/// The `<svg>` element of a drawing, without the XML declaration at the start of a file.
fn picture(drawing: &str) -> Option<&str> {
    let drawing = drawing.trim_start();
    let is_drawing = ["<svg", "<?xml"].iter().any(|start| drawing.starts_with(start));
    drawing.get(drawing.find("<svg").filter(|_| is_drawing)?..)
}

/// Facts of the topology, from the host outward.
fn facts(t: &Topology) -> Vec<(&'static str, String)> {
    let host = &t.host;
    let mut facts = Vec::new();
    let mut add = |name, text: String| {
        if !text.is_empty() {
            facts.push((name, text));
        }
    };
    add("Host", host.hostname.to_string());
    let sockets =
        if host.sockets > 0 { count(host.sockets as usize, "socket") } else { String::new() };
    let cpus =
        if host.cpus.is_empty() { String::new() } else { count(host.cpus.len(), "logical CPU") };
    add("Processor", joined([host.cpu_model.clone(), sockets, cpus, host.arch.clone()]));
    let memory = if host.memory.0 > 0 { host.memory.rounded() } else { String::new() };
    let numa = if t.numa.is_empty() { String::new() } else { count(t.numa.len(), "NUMA domain") };
    add("Memory", joined([memory, numa]));
    add("Caches", caches(t));
    add("GPUs", gpus(t));
    add("Links", links(t));
    add("Network", names(t.nics.iter().map(|n| n.name.as_str())));
    add("Storage", names(t.blocks.iter().map(|b| b.name.as_str())));
    let kernel =
        if host.kernel.is_empty() { String::new() } else { format!("Linux {}", host.kernel) };
    add("System", joined([kernel, host.virtualization.clone().unwrap_or_default()]));
    add("Topology from", t.source.clone());
    facts
}

fn joined<const N: usize>(parts: [String; N]) -> String {
    parts.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join(", ")
}

/// The first names, and the number of further ones.
fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const SHOWN: usize = 8;
    let all: Vec<&str> = names.collect();
    let mut text = all.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    if all.len() > SHOWN {
        text += &format!(" and {} more", all.len() - SHOWN);
    }
    text
}

/// Number of each kind, in order of first occurrence: `8 x AMD Instinct MI250X (gfx90a)`.
fn tally(kinds: impl Iterator<Item = String>) -> String {
    let mut counts: Vec<(String, usize)> = Vec::new();
    for kind in kinds {
        match counts.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, n)) => *n += 1,
            None => counts.push((kind, 1)),
        }
    }
    counts.iter().map(|(kind, n)| format!("{n} × {kind}")).collect::<Vec<_>>().join(", ")
}

fn caches(t: &Topology) -> String {
    let data = t.caches.iter().filter(|c| c.kind != "Instruction");
    tally(data.map(|c| format!("L{} {}", c.level, c.size.rounded())))
}

fn gpus(t: &Topology) -> String {
    tally(t.gpus.iter().map(|g| {
        let name = if g.name.is_empty() { &g.vendor } else { &g.name };
        let memory = if g.memory.0 > 0 { g.memory.rounded() } else { String::new() };
        joined([name.clone(), g.arch.clone(), memory])
    }))
}

fn links(t: &Topology) -> String {
    tally(t.links.iter().map(|l| {
        let peak = l.peak.map(|p| format!(" of {p} per direction")).unwrap_or_default();
        let width = if l.width > 1 { format!(" ({} wide)", l.width) } else { String::new() };
        format!("{}{width}{peak}", l.kind)
    }))
}

/// Writes the settings of the run, and changes of the machine's state.
pub(super) fn write_conditions(
    h: &mut HtmlBuilder,
    conditions: &[(String, String)],
    state: Option<&(Conditions, Conditions)>,
) {
    write_facts(h, conditions.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    let Some((first, last)) = state else { return };
    if first.0.is_empty() && last.0.is_empty() {
        return;
    }
    h.leaf("h3", &[], "State of the machine over the run");
    let mut names: Vec<&String> = first.0.keys().chain(last.0.keys()).collect();
    names.sort();
    names.dedup();
    let row = |name: &String| {
        let (a, b) = (first.0.get(name).copied(), last.0.get(name).copied());
        let change = a.zip(b).filter(|(a, _)| *a != 0.0).map(|(a, b)| (b - a) / a.abs());
        let show = |v: Option<f64>| v.map(num).unwrap_or_default();
        vec![name.clone(), show(a), show(b), change.map(signed_percent).unwrap_or_default()]
    };
    let columns = [("reading", ""), ("first", "n"), ("last", "n"), ("change", "n")];
    h.el("div", &[("class", &"scroll")], |h| {
        h.table("rows", &columns, names.into_iter().map(row));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::{Bytes, Gpu};

    #[test]
    fn equal_things_are_counted() {
        let gpu = |index| Gpu {
            index,
            name: "MI250X".into(),
            arch: "gfx90a".into(),
            memory: Bytes::gib(64),
            ..Gpu::default()
        };
        let t = Topology { gpus: (0..8).map(gpu).collect(), ..Topology::default() };
        assert_eq!(facts(&t), [("GPUs", "8 × MI250X, gfx90a, 64GiB".to_owned())]);
    }

    #[test]
    fn an_unknown_node_has_no_facts() {
        assert_eq!(facts(&Topology::default()), []);
    }

    #[test]
    fn what_is_no_picture_is_not_let_in() {
        assert_eq!(picture(" <?xml version=\"1.0\"?>\n<svg></svg>"), Some("<svg></svg>"));
        assert_eq!(picture("<script></script><svg></svg>"), None);
        let mut h = HtmlBuilder::default();
        write(&mut h, &Topology::default(), &[], "<script>alert(1)</script>");
        assert!(!h.finish().contains("script"));
    }

    #[test]
    fn a_reading_that_appears_late_has_no_change() {
        let map = |pairs: &[(&str, f64)]| {
            Conditions(pairs.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect())
        };
        let state = (map(&[("cpu_mhz", 2000.0)]), map(&[("cpu_mhz", 1900.0), ("late_c", 40.0)]));
        let mut h = HtmlBuilder::default();
        write_conditions(&mut h, &[], Some(&state));
        let page = h.finish();
        assert!(page.contains("-5.0 %"), "{page}");
        assert!(page.contains(
            "late_c</th><td class=\"n\"></td><td class=\"n\">40.0</td><td class=\"n\"></td>"
        ));
    }
}
