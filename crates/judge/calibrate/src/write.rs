//! The twin as a machine file.

use std::fmt::Write as _;

use pathline_schema::{Link, LinkEnd, WorldKind, comment_line, toml_text as quoted};

use crate::twin::NodeTwin;

/// A rate with six digits: finer than any measurement.
fn rate(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0.0".to_owned();
    }
    let digits = (5 - value.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let text = format!("{value:.digits$}");
    let short = if text.contains('.') { text.trim_end_matches('0') } else { &text };
    if short.ends_with('.') { format!("{short}0") } else { short.to_owned() }
}

/// Three rates in order, as written to the file: rounding must not reverse them.
fn interval(low: f64, value: f64, high: f64) -> (String, String, String) {
    let shown = rate(value);
    let near = |end: f64| {
        let text = rate(end);
        let crossed = text.parse::<f64>().ok().zip(shown.parse::<f64>().ok());
        match crossed {
            Some((end, value)) if (end - value).abs() > 1e-6 * value => text,
            _ => shown.clone(),
        }
    };
    (near(low.min(value)), shown.clone(), near(high.max(value)))
}

/// A valid machine name.
fn name_of(twin: &NodeTwin) -> String {
    let base = match &twin.data.begin.world {
        WorldKind::Simulated(name) => name.clone(),
        WorldKind::Real => twin.data.begin.host.clone(),
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let plain: String = base.chars().map(|c| if is_plain(c) { c } else { '-' }).take(58).collect();
    let plain = plain.trim_start_matches('-');
    if plain.is_empty() { "twin".to_owned() } else { format!("{plain}-twin") }
}

impl NodeTwin {
    /// The machine file of the twin.
    pub fn toml(&self) -> String {
        let mut out = String::new();
        self.head(&mut out);
        self.node(&mut out);
        self.measured(&mut out);
        self.paths(&mut out);
        self.shared(&mut out);
        self.queues(&mut out);
        out
    }

    fn head(&self, out: &mut String) {
        let real = self.data.begin.world == WorldKind::Real;
        let what = if real { "measured" } else { "simulated" };
        let gpus = &self.data.topology.gpus;
        let which = gpus.first().map_or("no GPU".to_owned(), |g| {
            let name = if g.name.is_empty() { "GPU" } else { &g.name };
            format!("{} x {name}", gpus.len())
        });
        let made =
            format!("A twin, made by pathline model fit from runs of a {what} node: {which}.");
        *out += &comment_line(&made);
        let _ = writeln!(
            out,
            "# Rates are payload in GB/s (1e9 B/s); low and high are ends of 95 % intervals.\n\
             # Where a resource is named after what its flows have in common, that is all that is\n\
             # known of it: found = \"interference\" means that only their mutual slowdown shows it.\n\n\
             name = {}\n\
             about = {}\n",
            quoted(&name_of(self)),
            quoted(&format!("Twin of {which}, fitted from measurements")),
        );
    }

    fn node(&self, out: &mut String) {
        let topology = &self.data.topology;
        let links: Vec<String> = topology.links.iter().filter_map(link).collect();
        if !links.is_empty() {
            let _ = writeln!(out, "links = [\n{}]\n", links.concat());
        }
        let routes = topology.routes.iter().filter_map(|r| {
            let [via] = r.via.as_slice() else { return None };
            let via: Vec<String> = via.iter().map(|n| quoted(&n.to_string())).collect();
            let (src, dst) = (quoted(&r.src.to_string()), quoted(&r.dst.to_string()));
            Some(format!("  {{ src = {src}, dst = {dst}, via = [{}] }},\n", via.join(", ")))
        });
        let routes: Vec<String> = routes.collect();
        // A route needs its links, which are omitted if their peaks are unknown.
        if !routes.is_empty() && links.len() == topology.links.len() {
            let _ = writeln!(out, "routes = [\n{}]\n", routes.concat());
        }
        let host = &topology.host;
        let or = |text: &str| quoted(if text.is_empty() { "unknown" } else { text });
        let features: Vec<String> = host.features.iter().map(|f| quoted(f)).collect();
        let _ = writeln!(
            out,
            "[host]\ncpu_model = {}\narch = {}\nsockets = {}\nfeatures = [{}]\npage_bytes = {}\n\
             huge_page_bytes = {}\n",
            or(&host.cpu_model),
            or(&host.arch),
            host.sockets.max(1),
            features.join(", "),
            host.page.0.max(4096),
            host.huge_pages.first().map_or(2 << 20, |b| b.0),
        );
        for numa in &topology.numa {
            let _ = writeln!(out, "[[numa]]\nid = {}\ncpus = \"{}\"", numa.id, numa.cpus);
            let _ = writeln!(out, "memory_gib = {}", (numa.memory.0 >> 30).max(1));
            if let Some(peak) = numa.peak {
                let _ = writeln!(out, "memory_gbs = {}", rate(peak.gbs()));
            }
            if numa.distances.len() == topology.numa.len() {
                let _ = writeln!(out, "distances = {:?}", numa.distances);
            }
            out.push('\n');
        }
        self.gpus(out);
    }

    fn gpus(&self, out: &mut String) {
        let topology = &self.data.topology;
        let Some(first) = topology.gpus.first() else {
            let _ = writeln!(
                out,
                "[gpus]\nvendor = \"none\"\nname = \"none\"\narch = \"\"\ncompute_units = 1\n\
                 memory_gib = 1\n"
            );
            return;
        };
        let _ = writeln!(
            out,
            "[gpus]\nvendor = {}\nname = {}\narch = {}\ncompute_units = {}\nmemory_gib = {}",
            quoted(&first.vendor),
            quoted(&first.name),
            quoted(&first.arch),
            first.compute_units.max(1),
            (first.memory.0 >> 30).max(1),
        );
        if let Some(peak) = first.memory_peak {
            let _ = writeln!(out, "memory_gbs = {}", rate(peak.gbs()));
        }
        out.push('\n');
        let home = topology.numa.first().map_or(0, |n| n.id);
        for gpu in &topology.gpus {
            let numa = gpu.numa.filter(|n| topology.numa.iter().any(|d| d.id == *n));
            let _ = writeln!(out, "[[gpu]]\nid = {}\nnuma = {}", gpu.index, numa.unwrap_or(home));
            if let Some(package) = gpu.package {
                let _ = writeln!(out, "package = {package}");
            }
            if !gpu.pci.is_empty() {
                let _ = writeln!(out, "pci = {}", quoted(&gpu.pci));
            }
            out.push('\n');
        }
    }

    fn measured(&self, out: &mut String) {
        let alone = self.data.paths.iter().filter(|p| p.alone()).count();
        let from = format!(
            "{}: {alone} paths alone, {} sets of flows at once, begun {}",
            self.data.runs.join(", "),
            self.data.sets.len(),
            self.data.begin.started
        );
        let _ = writeln!(out, "[measured]\nfrom = {}", quoted(&from));
        if self.errors.n > 0 {
            let percent = |share: f64| (share * 1e5).round() / 1e3;
            let (half, most) = (percent(self.errors.p50), percent(self.errors.p95));
            let _ = writeln!(
                out,
                "# Of the durations of the {} sets that it was fitted to, percent.\n\
                 error_p50 = {half:?}\nerror_p95 = {:?}",
                self.errors.n,
                most.max(half)
            );
            if let Some(floor) = self.floor {
                let _ = writeln!(
                    out,
                    "# {} sets that were measured twice differ by: median {:.2} %, 95th percentile \
                     {:.2} %.",
                    floor.n,
                    floor.p50 * 100.0,
                    floor.p95 * 100.0
                );
            }
            if let Some(crossed) = self.crossed {
                let _ = writeln!(
                    out,
                    "# On sets kept from the fit (five parts in turn): median {:.2} %, 95th \
                     percentile {:.2} %.",
                    crossed.p50 * 100.0,
                    crossed.p95 * 100.0
                );
            }
        }
        let _ = writeln!(out, "# What the measurements do not decide.\nundecided = [");
        for sentence in &self.undecided {
            let _ = writeln!(out, "  {},", quoted(sentence));
        }
        out.push_str("]\n\n");
    }

    fn paths(&self, out: &mut String) {
        for (path, share) in self.data.paths.iter().zip(&self.fitted.model.shares) {
            if !path.alone() {
                out.push_str("# Not measured alone: its highest rate together with others.\n");
            }
            let (low, value, high) = interval(path.low, path.gbs, path.high);
            let _ = writeln!(
                out,
                "[[path]]\nflow = {}\ngbs = {value}\nlow = {low}\nhigh = {high}",
                quoted(&path.key.to_string())
            );
            if let Some(start) = path.start_ns.filter(|s| *s > 0.0) {
                let _ = writeln!(out, "start_us = {}", rate(start / 1e3));
            }
            if *share != 1.0 {
                let _ = writeln!(out, "share = {share:?}");
            }
            out.push('\n');
        }
    }

    fn shared(&self, out: &mut String) {
        let all = self.fitted.groups.iter().zip(&self.fitted.model.shared);
        for (group, shared) in all {
            let unlike =
                self.peers.unlike.iter().find(|unlike| unlike.shown_by.contains(&group.name));
            if let Some(unlike) = unlike {
                *out += &comment_line(&format!("SUSPECT: {unlike}."));
            }
            let members: Vec<usize> = shared.members().collect();
            let _ =
                writeln!(out, "# It slows {} of the measured sets by more than 1 %.", group.slows);
            if !group.rivals.is_empty() {
                *out +=
                    &comment_line(&format!("Explains as much: {}.", group.rivals.join(", or ")));
            }
            let (low, value, high) = interval(group.low, shared.capacity, group.high);
            let _ = writeln!(
                out,
                "[[shared]]\nname = {}\ngbs = {value}\nlow = {low}\nhigh = {high}\nfound = {}\nflows = [",
                quoted(&group.name),
                quoted(group.found.word())
            );
            for &p in &members {
                let _ = writeln!(out, "  {},", quoted(&self.data.paths[p].key.to_string()));
            }
            out.push_str("]\n");
            if members.iter().any(|&p| shared.takes[p] != 1.0) {
                let takes: Vec<String> = members.iter().map(|&p| rate(shared.takes[p])).collect();
                let _ = writeln!(out, "takes = [{}]", takes.join(", "));
            }
            out.push('\n');
        }
    }

    fn queues(&self, out: &mut String) {
        for queue in &self.fitted.queues {
            let _ = writeln!(
                out,
                "# {} pairs of its copies were seen one after the other, {} at once.\n\
                 [[queue]]\nname = {}\nflows = [",
                queue.pairs,
                queue.against,
                quoted(&queue.name)
            );
            for &p in &queue.paths {
                let _ = writeln!(out, "  {},", quoted(&self.data.paths[p].key.to_string()));
            }
            out.push_str("]\n\n");
        }
    }
}

/// A link in the machine file's format; `None` if its peak is unknown.
fn link(link: &Link) -> Option<String> {
    let peak = link.peak?.gbs();
    let name = |node: LinkEnd| quoted(&node.to_string());
    Some(format!(
        "  {{ a = {}, b = {}, kind = {}, width = {}, each_gbs = {} }},\n",
        name(link.a),
        name(link.b),
        quoted(&link.kind.to_string()),
        link.width,
        rate(peak / f64::from(link.width.max(1)))
    ))
}
