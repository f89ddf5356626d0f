//! What drivers wrote into the kernel's log, by the table `kernel-events.tsv`.

use std::collections::BTreeMap;

use pathline_schema::{NodeVerdict, Topology};
use pathline_topo::{EVENTS, HostSnapshot, keep_events};

use super::SettingCheck;

/// Mark, state, what it means, what to do, document: a line each. A mark `Xid N` is that code of NVIDIA's driver, any
/// other a part of the line. The first that fits counts.
const TABLE: &str = include_str!("kernel-events.tsv");
const XID: &str = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html";

/// Ends a line of Xid 154, which names what a GPU needs: nothing.
const NOTHING_LEFT: &str = "to 0x0 (None)";

/// A line of the table.
struct EventRow {
    mark: &'static str,
    state: NodeVerdict,
    meaning: &'static str,
    remedy: &'static str,
    source: &'static str,
}

/// A code of NVIDIA's driver that the table lacks.
const UNKNOWN: EventRow = EventRow {
    mark: "",
    state: NodeVerdict::Undecided,
    meaning: "not in the table of known codes",
    remedy: "look the code up",
    source: XID,
};

fn rows() -> impl Iterator<Item = EventRow> {
    TABLE.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut fields = line.split('\t');
        let mut next = || fields.next();
        let (mark, state) = (next()?, next()?);
        let state = NodeVerdict::ALL.into_iter().find(|known| known.word() == state)?;
        Some(EventRow { mark, state, meaning: next()?, remedy: next()?, source: next()? })
    })
}

/// One row for each event and part, with how often it is in the log.
pub(super) fn check(snapshot: &HostSnapshot, topology: &Topology) -> Vec<SettingCheck> {
    let check = |value: &str| SettingCheck::new("GPUs", "kernel log", value);
    let Some(text) = snapshot.get(EVENTS) else {
        let has_driver = topology.gpus.iter().any(|gpu| matches!(&*gpu.vendor, "nvidia" | "amd"));
        let unread = || {
            check("not readable").unread(
                "run `pathline doctor` as root on the host (kernel.dmesg_restrict; a container has no log)",
            )
        };
        return has_driver.then(unread).into_iter().collect();
    };
    // The first line says where it was read.
    let events = judge_kernel_log(text.lines().skip(1), topology);
    if events.is_empty() {
        return vec![check("no fault since the start")];
    }
    events.into_iter().map(KernelEvent::into_check).collect()
}

/// An event of the kernel log that the table has, or an Xid that it has not.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelEvent {
    /// `Xid 79`, or the part of the line that names the event.
    pub mark: String,
    /// The GPU, adapter, drive, module of memory, or the address of another part; empty where the line names none.
    pub part: String,
    /// Lines of this event and part.
    pub count: usize,
    /// OK for what is corrected or the error of a program; UNDECIDED for an unknown code.
    pub state: NodeVerdict,
    /// What it means, a clause.
    pub meaning: &'static str,
    /// What to do.
    pub remedy: &'static str,
    /// The document that says so.
    pub source: &'static str,
    /// The first of its lines.
    pub line: String,
}

/// The events in lines of a kernel log, by event and part.
pub fn judge_kernel_log<'a>(
    lines: impl Iterator<Item = &'a str>,
    topology: &Topology,
) -> Vec<KernelEvent> {
    let kept = keep_events(&lines.collect::<Vec<_>>().join("\n"));
    let table: Vec<EventRow> = rows().collect();
    let mut events: BTreeMap<(String, String), KernelEvent> = BTreeMap::new();
    for line in kept.lines().filter(|line| !line.contains(NOTHING_LEFT)) {
        let code = previous_xid(line).or_else(|| xid(line));
        let fits = |row: &&EventRow| match (row.mark.strip_prefix("Xid "), code) {
            (Some(known), Some(code)) => known.parse() == Ok(code),
            (None, None) => line.contains(row.mark),
            _ => false,
        };
        let row = table.iter().find(fits);
        let mark = match (code, row) {
            (Some(code), _) => format!("Xid {code}"),
            (None, Some(row)) => row.mark.trim().to_owned(),
            (None, None) => continue,
        };
        let row = row.unwrap_or(&UNKNOWN);
        let part = part(line, topology).unwrap_or_default();
        let event = || KernelEvent {
            mark: mark.clone(),
            part: part.clone(),
            count: 0,
            state: row.state,
            meaning: row.meaning,
            remedy: row.remedy,
            source: row.source,
            line: line.to_owned(),
        };
        events.entry((mark.clone(), part.clone())).or_insert_with(event).count += 1;
    }
    events.into_values().collect()
}

impl KernelEvent {
    fn into_check(self) -> SettingCheck {
        let times =
            if self.count == 1 { "once".to_owned() } else { format!("{} times", self.count) };
        let part = if self.part.is_empty() { String::new() } else { format!(" of {}", self.part) };
        let what = format!("{}{part} in the kernel log", self.mark);
        let is_gpu = what.contains("Xid") || what.contains(" of gpu") || what.contains("GPU");
        let group = if is_gpu { "GPUs" } else { "kernel" };
        let check = SettingCheck::new(group, what, format!("{times}: {}", self.meaning));
        match self.state {
            NodeVerdict::Ok => check,
            NodeVerdict::Undecided if self.mark.starts_with("Xid") => {
                SettingCheck { source: self.source, ..check.unread(self.remedy) }
            }
            state => {
                let slows = "everything that needs this part: measure it after the remedy";
                SettingCheck { state, ..check.suspect(slows, self.remedy, self.source) }
            }
        }
    }
}

/// The code of `NVRM: Xid (PCI:0000:06:00): 79, pid=...`.
fn xid(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once("NVRM: Xid (")?;
    let digits = rest.split_once("): ")?.1;
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The code of `45, pid=1, name=python, Ch 00000003 caused by previous Xid 145`: the line is about that one.
fn previous_xid(line: &str) -> Option<u32> {
    let digits = line.split_once("previous Xid ")?.1;
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The GPU, adapter, drive, module of memory, or the address of another part, that a line names.
fn part(line: &str, topology: &Topology) -> Option<String> {
    if line.contains("EDAC") {
        let (_, place) = line.split_once(" on ")?;
        return Some(place.split([' ', '(']).next()?.to_owned());
    }
    let is_drive = |word: &&str| {
        word.strip_prefix("nvme").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let words = || line.split([' ', ',', '(', ')']).map(|word| word.trim_end_matches(':'));
    if let Some(drive) = words().find(is_drive) {
        return Some(drive.to_owned());
    }
    let is_address = |word: &&str| {
        word.len() >= 10
            && word.len() <= 16
            && word.as_bytes().get(4) == Some(&b':')
            && word.chars().all(|c| c.is_ascii_hexdigit() || c == ':' || c == '.')
    };
    let address = line.split([' ', '(', ')', ',']).find_map(|word| {
        let word = word.trim_start_matches("PCI:").trim_end_matches(':');
        Some(word).filter(is_address)
    })?;
    // NVIDIA's driver leaves the function out.
    let gpu = topology.gpus.iter().find(|gpu| gpu.pci.starts_with(address));
    let nic = || topology.nics.iter().find(|nic| *nic.pci == *address);
    let other = || nic().map_or_else(|| address.to_owned(), |nic| nic.name.clone());
    Some(gpu.map_or_else(other, |gpu| format!("gpu{}", gpu.index)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_of_the_table_is_whole_and_has_a_source() {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#')).count();
        let all: Vec<EventRow> = rows().collect();
        assert_eq!(all.len(), lines);
        for EventRow { mark, meaning, remedy, source, state } in all {
            let has_remedy = state == NodeVerdict::Ok || !remedy.is_empty();
            assert!(has_remedy && !meaning.is_empty() && source.starts_with("https://"), "{mark}");
        }
    }

    #[test]
    fn a_line_names_its_code_and_its_part() {
        let line = "[9.1] NVRM: Xid (PCI:0000:06:00): 79, pid='<unknown>', GPU has fallen";
        assert_eq!(xid(line), Some(79));
        assert_eq!(part(line, &Topology::default()).as_deref(), Some("0000:06:00"));
        assert_eq!(xid("NVRM: Xid (0000:01:00): 13, 0005"), Some(13));
        let later = "NVRM: Xid (PCI:0000:97:00): 45, Ch 3 caused by previous Xid 145";
        let events = judge_kernel_log(std::iter::once(later), &Topology::default());
        assert_eq!((&*events[0].mark, events[0].state), ("Xid 145", NodeVerdict::Suspect));
        let amd = "amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!";
        assert_eq!(part(amd, &Topology::default()).as_deref(), Some("0000:c1:00.0"));
        for broken in ["", "NVRM: Xid (", "NVRM: Xid (x): ", "NVRM: Xid (x): 99999999999,"] {
            assert_eq!((xid(broken), part(broken, &Topology::default())), (None, None));
        }
    }
}
