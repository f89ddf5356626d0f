//! A NUMA domain as a panel: its CPUs, memory, caches, adapters and disks.

use pathline_schema::Topology;

use super::draw::{SvgDocument, TextAnchor, fit};
use super::parts::{NearParts, block_label, cache_labels, count, nic_label};

/// Width of a panel next to a column of GPUs.
pub(super) const PANEL: f64 = 250.0;
const PAD: f64 = 14.0;
/// Size of a CPU's square, and the distance to the next.
const CPU: f64 = 9.0;
const STEP: f64 = 11.0;
/// Maximum number of CPUs drawn as squares.
const MAX_CPUS: usize = 256;
const CHIP: f64 = 24.0;
const MAX_CHIPS: usize = 8;

/// The texts of a panel, laid out for its width.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DomainPanel {
    name: String,
    memory: String,
    lines: Vec<String>,
    /// For each CPU whether this process may use it.
    cpus: Vec<bool>,
    chips: Vec<(&'static str, String)>,
    width: f64,
}

impl DomainPanel {
    pub(super) fn new(topology: &Topology, domain: Option<u32>, width: f64) -> Self {
        let near = NearParts::new(topology, domain);
        let nics = near.nics.iter().map(|nic| {
            let gpu = nic.near_gpu.map(|gpu| format!(", at gpu{gpu}")).unwrap_or_default();
            ("dot-net", format!("{}{gpu}", nic_label(nic)))
        });
        let disks = near.blocks.iter().map(|block| ("dot-disk", block_label(block)));
        let mut chips: Vec<_> = nics.chain(disks).collect();
        if chips.len() > MAX_CHIPS {
            let more = chips.len() - (MAX_CHIPS - 1);
            chips.truncate(MAX_CHIPS - 1);
            chips.push(("", format!("and {more} more")));
        }
        let found = topology.numa.iter().find(|d| Some(d.id) == domain);
        let Some(found) = found else {
            let name = "no known domain".to_owned();
            let (memory, lines, cpus) = (String::new(), Vec::new(), Vec::new());
            return Self { name, memory, lines, cpus, chips, width };
        };
        let allowed = &topology.host.allowed_cpus;
        let may_use = |cpu: &u32| allowed.is_empty() || allowed.contains(*cpu);
        let mut lines = Vec::new();
        if !found.cpus.is_empty() {
            lines.push(format!("{}: {}", count(found.cpus.len(), "CPU"), found.cpus));
        }
        lines.extend(cache_labels(topology, &found.cpus).pop());
        lines.extend(found.peak.map(|peak| format!("memory {peak}")));
        let shown = found.cpus.len() <= MAX_CPUS;
        Self {
            name: format!("numa{}", found.id),
            memory: if found.memory.0 > 0 { found.memory.rounded() } else { String::new() },
            lines,
            cpus: found.cpus.as_slice().iter().map(may_use).filter(|_| shown).collect(),
            chips,
            width,
        }
    }

    fn cpus_a_row(&self) -> usize {
        let room = ((self.width - 2.0 * PAD) / STEP) as usize;
        // Rows with a power of two are easier to count.
        let row = [64, 32, 16, 8].into_iter().find(|row| *row <= room).unwrap_or(8);
        row.min(self.cpus.len().max(1))
    }

    fn chips_a_row(&self) -> usize {
        ((self.width - 2.0 * PAD) / 222.0).floor().max(1.0) as usize
    }

    /// Required height.
    pub(super) fn height(&self) -> f64 {
        let cpu_rows = self.cpus.len().div_ceil(self.cpus_a_row());
        let chip_rows = self.chips.len().div_ceil(self.chips_a_row());
        let cpus = if cpu_rows > 0 { cpu_rows as f64 * STEP + 8.0 } else { 0.0 };
        let chips = if chip_rows > 0 { chip_rows as f64 * (CHIP + 5.0) + 4.0 } else { 0.0 };
        34.0 + cpus + self.lines.len() as f64 * 17.0 + chips + 12.0
    }

    /// Draws the contents; the caller draws the frame.
    pub(super) fn draw(&self, svg: &mut SvgDocument, (x, top): (f64, f64)) {
        let room = self.width - 2.0 * PAD;
        svg.text("name", (x + PAD, top + 24.0), TextAnchor::Start, &self.name);
        let memory = fit(&self.memory, 12.0, room - 60.0);
        svg.text("soft", (x + self.width - PAD, top + 24.0), TextAnchor::End, &memory);
        let mut y = top + 34.0;
        let row = self.cpus_a_row();
        for (at, &may_use) in self.cpus.iter().enumerate() {
            let place = (x + PAD + (at % row) as f64 * STEP, y + (at / row) as f64 * STEP);
            let class = if may_use { "cpu" } else { "idle" };
            svg.rect(class, (place.0, place.1, CPU, CPU), 2.0);
        }
        if !self.cpus.is_empty() {
            y += self.cpus.len().div_ceil(row) as f64 * STEP + 8.0;
        }
        for line in &self.lines {
            svg.text("soft", (x + PAD, y + 11.0), TextAnchor::Start, &fit(line, 12.0, room));
            y += 17.0;
        }
        y += 4.0;
        let a_row = self.chips_a_row();
        let width = ((room + 6.0) / a_row as f64 - 6.0).min(300.0);
        for (at, (dot, text)) in self.chips.iter().enumerate() {
            let left = x + PAD + (at % a_row) as f64 * (width + 6.0);
            let y = y + (at / a_row) as f64 * (CHIP + 5.0);
            svg.rect("chip", (left, y, width, CHIP), 12.0);
            if !dot.is_empty() {
                svg.circle(dot, (left + 13.0, y + CHIP / 2.0), 4.0);
            }
            let text = fit(text, 12.0, width - 34.0);
            svg.text("soft", (left + 24.0, y + 16.0), TextAnchor::Start, &text);
        }
    }
}
