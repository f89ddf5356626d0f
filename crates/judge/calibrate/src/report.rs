//! The terminal report of a twin.

use std::collections::BTreeMap;
use std::fmt;

use crate::data::PathEnds;
use crate::judge::{ErrorStats, SetClass, by_kind};
use crate::peers::UnlikePart;
use crate::twin::NodeTwin;

impl fmt::Display for NodeTwin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_basis(f)?;
        self.write_paths(f)?;
        self.write_shared(f)?;
        self.write_queues(f)?;
        self.write_errors(f)?;
        self.write_undecided(f)
    }
}

/// Display name of a class of paths.
pub(crate) fn class(ends: PathEnds) -> &'static str {
    match ends {
        PathEnds::In { .. } => "host to GPU",
        PathEnds::Out { .. } => "GPU to host",
        PathEnds::Peer { .. } => "GPU to GPU",
        PathEnds::Within => "within a unit",
    }
}

/// Maximum number of unlike parts in the verdict.
const MAX_UNLIKE: usize = 4;

/// Maximum number of capacities and paths that are listed of an unlike part.
const MAX_SHOWN: usize = 3;

/// The first of some names, and the number of the others.
fn listed(names: &[String]) -> String {
    let some: Vec<&str> = names.iter().take(MAX_SHOWN).map(String::as_str).collect();
    let more = names.len().saturating_sub(MAX_SHOWN);
    some.join("; ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

impl fmt::Display for UnlikePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { part, peers, at_least, .. } = self;
        let whose = match peers {
            1 => "its only peer".to_owned(),
            n => format!("its {n} peers"),
        };
        let most = if *at_least { "at most " } else { "" };
        write!(f, "{part} runs at {most}{:.0} % of {whose}", self.share() * 100.0)
    }
}

impl NodeTwin {
    /// Whether a part of the node carries less than its peers, in one sentence.
    pub fn verdict(&self) -> String {
        let peers = &self.peers;
        if peers.unlike.is_empty() {
            if peers.capacities + peers.paths == 0 {
                return "UNDECIDED: no capacity and no path of this node has a peer".to_owned();
            }
            return format!(
                "OK: {} capacities and {} paths are within {:.1} % of their peers",
                peers.capacities,
                peers.paths,
                peers.widest * 100.0
            );
        }
        let (word, why) = match peers.unlike.iter().any(UnlikePart::is_decided) {
            true => ("SUSPECT", ""),
            false => ("UNDECIDED", "; of two parts that differ none is known to be the right one"),
        };
        // What enough peers show comes first.
        let decided = peers.unlike.iter().filter(|unlike| unlike.is_decided());
        let pairs = peers.unlike.iter().filter(|unlike| !unlike.is_decided());
        let mut parts: Vec<String> =
            decided.chain(pairs).take(MAX_UNLIKE).map(|unlike| unlike.to_string()).collect();
        if peers.unlike.len() > MAX_UNLIKE {
            parts.push(format!("and {} more", peers.unlike.len() - MAX_UNLIKE));
        }
        format!("{word}: {}{why}", parts.join("; "))
    }

    /// What the verdict rests on, and what limits its accuracy.
    fn write_basis(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for unlike in &self.peers.unlike {
            writeln!(f, "  {} shows in {}", unlike.part, listed(&unlike.shown_by))?;
        }
        if self.peers.without > 0 {
            writeln!(
                f,
                "  {} capacities and paths have no peer: only another node or a preset judges them",
                self.peers.without
            )?;
        }
        match self.floor {
            Some(ErrorStats { n, p50, p95, worst }) => writeln!(
                f,
                "Repeatability of the node: sets measured twice ({n}) differ by {:.2} % (median), \
                 {:.2} % (95th), {:.2} % (worst); an error below that is no error of the twin\n",
                p50 * 100.0,
                p95 * 100.0,
                worst * 100.0
            ),
            None => writeln!(
                f,
                "Repeatability of the node is not known: no set was measured twice; suite contention \
                 of this version does so, and so do two runs\n"
            ),
        }
    }

    fn write_paths(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "Paths alone")?;
        let mut classes: BTreeMap<(&str, &str), Vec<&crate::data::MeasuredPath>> = BTreeMap::new();
        for path in self.data.paths.iter().filter(|p| p.alone()) {
            classes.entry((class(path.ends), path.key.by.kind())).or_default().push(path);
        }
        for ((class, by), paths) in classes {
            let rates = paths.iter().map(|p| p.gbs);
            let (low, high) = rates.fold((f64::INFINITY, 0.0f64), |(l, h), r| (l.min(r), h.max(r)));
            let starts: Vec<f64> = paths.iter().filter_map(|p| p.start_ns).collect();
            let start = if starts.is_empty() {
                "start not known".to_owned()
            } else {
                format!("start {:.1} us", crate::data::median(&starts) / 1e3)
            };
            let rates = if high / low < 1.005 {
                format!("{high:.1}")
            } else {
                format!("{low:.1} to {high:.1}")
            };
            writeln!(f, "  {:>3} x {class} by {by:<7} {rates} GB/s, {start}", paths.len())?;
        }
        for (direction, which) in [("into", 0), ("out of", 1)] {
            let of = |e: &PathEnds| match e {
                PathEnds::In { .. } => which == 0,
                PathEnds::Out { .. } => which == 1,
                _ => false,
            };
            let mut paths = self.data.paths.iter().zip(&self.fitted.model.shares);
            let share = paths.find(|(p, share)| of(&p.ends) && **share != 1.0).map(|(_, s)| *s);
            if let Some(share) = share {
                writeln!(
                    f,
                    "  under contention, flows {direction} GPUs get {share:.2}x the share of others"
                )?;
            }
        }
        Ok(())
    }

    fn write_shared(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nShared, found from which flows slow each other")?;
        if self.fitted.groups.is_empty() {
            return writeln!(f, "  nothing");
        }
        writeln!(
            f,
            "  {:>8}  {:^17}  {:>8}  {:>5} {:>6}  what",
            "GB/s", "95 % interval", "of peers", "paths", "slows"
        )?;
        let shares = self.peers.shares.iter().copied().chain(std::iter::repeat(None));
        let groups = self.fitted.groups.iter().zip(&self.fitted.model.shared);
        let mut rows: Vec<_> = groups.zip(shares).collect();
        rows.sort_by_key(|((group, _), _)| std::cmp::Reverse(group.slows));
        for ((group, shared), share) in rows {
            let share = share.map_or("no peer".to_owned(), |s| format!("{:.1} %", s * 100.0));
            let takes: Vec<f64> = shared.takes.iter().copied().filter(|t| *t > 0.0).collect();
            let (low, high) =
                takes.iter().fold((f64::INFINITY, 0.0f64), |(l, h), t| (l.min(*t), h.max(*t)));
            let takes = if high > low {
                format!(", a byte of payload takes {low:.3} to {high:.3}")
            } else {
                String::new()
            };
            writeln!(
                f,
                "  {:>8.2}  {:>8.2}{:>9.2}  {share:>8}  {:>5} {:>6}  {} ({}){takes}",
                shared.capacity,
                group.low,
                group.high,
                shared.members().count(),
                group.slows,
                group.name,
                group.found.word()
            )?;
        }
        Ok(())
    }

    fn write_queues(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.fitted.queues.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nEngines that serve one stream of copies at a time")?;
        for queue in &self.fitted.queues {
            writeln!(f, "  {} ({} paths)", queue.name, queue.paths.len())?;
        }
        Ok(())
    }

    fn write_errors(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.judged.is_empty() {
            return Ok(());
        }
        let (all, kinds) = by_kind(&self.judged);
        writeln!(f, "\nError of predicted durations, %")?;
        writeln!(f, "  {:<28} {:>5} {:>8} {:>8} {:>8}", "sets", "n", "median", "95th", "worst")?;
        let mut row = |name: &str, e: &ErrorStats| {
            let (p50, p95, worst) = (e.p50 * 100.0, e.p95 * 100.0, e.worst * 100.0);
            writeln!(f, "  {name:<28} {:>5} {p50:>8.2} {p95:>8.2} {worst:>8.2}", e.n)
        };
        for (kind, errors) in &kinds {
            row(kind.label(), errors)?;
        }
        if all.n > 0 {
            row("all but the last kind", &all)?;
        }
        if let Some(crossed) = &self.crossed {
            row("the same, kept from the fit", crossed)?;
        }
        let order: Vec<_> = self.judged.iter().filter(|j| j.kind == SetClass::Order).collect();
        if !order.is_empty() {
            let within = order.iter().filter(|j| j.covered(self.errors.p95)).count();
            writeln!(
                f,
                "  the order in which an engine serves is not known: {within} of {} such sets lie \
                 within the predictions of all orders",
                order.len()
            )?;
        }
        Ok(())
    }

    fn write_undecided(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.data.left_out.is_empty() {
            let left: Vec<String> =
                self.data.left_out.iter().map(|(why, n)| format!("{n} {why}")).collect();
            writeln!(f, "\nCases left out: {}", left.join(", "))?;
        }
        if self.undecided.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nNot decided by these runs")?;
        for sentence in &self.undecided {
            writeln!(f, "  - {sentence}")?;
        }
        Ok(())
    }
}
