//! The rates of links, ports and drives as tools of the system state them: lspci, the kernel, nvidia-smi, ethtool,
//! ibstat, lsblk, smartctl. One reader for every judge.

use crate::document::PasteContext;
use crate::number::{number, rate_unit};

/// Line rates of adapters, Gbit/s: a measured rate is seldom one of them.
const LINE_RATES: [f64; 12] =
    [1.0, 2.5, 10.0, 20.0, 25.0, 40.0, 50.0, 56.0, 100.0, 200.0, 400.0, 800.0];
/// InfiniBand's names of line rates at four lanes; digits behind one are the rate itself.
const RATE_NAMES: [(&str, f64); 7] = [
    ("SDR", 10.0),
    ("QDR", 40.0),
    ("FDR", 56.0),
    ("EDR", 100.0),
    ("HDR", 200.0),
    ("NDR", 400.0),
    ("XDR", 800.0),
];
/// Rates of SATA and SAS, Gbit/s, of which 8 of 10 bits are data.
const DRIVE_RATES: [f64; 4] = [1.5, 3.0, 6.0, 12.0];
/// Classes of devices whose lanes are not those of a GPU or drive.
const ADAPTERS: [&str; 3] = ["Infiniband", "Ethernet", "Network"];

/// Takes what a line states.
pub(crate) fn take(context: &mut PasteContext, text: &str) {
    if text.len() > 4096 {
        return;
    }
    pcie(context, text);
    pcie_of_smi(context, text);
    port(context, text);
    drive(context, text);
    memory(context, text);
}

/// deviceQuery: `Memory Clock rate: 1215 Mhz`, `Memory Bus Width: 5120-bit`; both edges of the clock carry data.
fn memory(context: &mut PasteContext, text: &str) {
    let lower = text.to_lowercase();
    let value =
        |name: &str| leading_digits(lower.split_once(name)?.1.trim_start_matches([':', ' ']));
    let (clock, bits) = (value("memory clock rate"), value("memory bus width"));
    context.memory_mhz = context.memory_mhz.or(clock.filter(|_| lower.contains("mhz")));
    let peak = |(mhz, bits): (u32, u32)| 2e-3 * f64::from(mhz) * f64::from(bits) / 8.0;
    let peak = context.memory_mhz.zip(bits).map(peak);
    context.memory_gbs = context.memory_gbs.or(peak);
}

/// One lane of PCIe each way, GB/s.
pub(crate) fn lane_gbs(generation: u32) -> f64 {
    match generation {
        1 => 0.25,
        2 => 0.5,
        _ => 0.9846 * f64::from(1_u32 << (generation - 3)),
    }
}

/// GT/s of a generation.
pub(crate) fn lane_gts(generation: u32) -> f64 {
    match generation {
        1 | 2 => 2.5 * f64::from(generation),
        _ => f64::from(1_u32 << generation),
    }
}

/// `Gen4`, `4`, `4.0`, `gen5`.
pub(crate) fn generation(word: &str) -> Option<u32> {
    let lower = word.to_lowercase();
    let digits = lower.trim_start_matches("pcie").trim_start_matches("gen");
    digits.trim_end_matches(".0").parse().ok().filter(|generation| (1..=7).contains(generation))
}

/// Gbit/s of `HDR`, `HDR200`, `NDR400`.
pub(crate) fn rate_name(word: &str) -> Option<f64> {
    RATE_NAMES.iter().find_map(|(name, usual)| match word.strip_prefix(name)? {
        "" => Some(*usual),
        digits => number(digits).filter(|rate| LINE_RATES.contains(rate)),
    })
}

/// Gbit/s of `200Gbps`, `100GbE`, `400G`, `100000Mbps`: `40 GB/s` is no line rate, since those are in bits.
pub(crate) fn line_rate(word: &str) -> Option<f64> {
    let end = word.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (digits, unit) = word.split_at(end);
    let is_bytes = ["GB", "MB"].iter().any(|bytes| unit.starts_with(bytes)) && unit != "GBE";
    let lower = unit.to_lowercase();
    let scale = match lower.trim_end_matches("sec").trim_end_matches('s').trim_end_matches('p') {
        "g" | "gb" | "gbe" | "gbit" | "gigabit" => 1.0,
        "mb" | "mbit" => 1e-3,
        _ => return None,
    };
    let rate = number(digits).map(|rate| rate * scale);
    rate.filter(|rate| !is_bytes && LINE_RATES.contains(rate))
}

/// `Rate: 400` of ibstat, `rate: 400 Gb/sec (4X NDR)` of ibstatus, `Speed: 200000Mb/s` of ethtool, also behind
/// other words of its line.
fn port(context: &mut PasteContext, text: &str) {
    // ibdev2netdev: `mlx5_0 port 1 ==> ib0 (Up)`.
    context.ports_up += u32::from(text.contains(" ==> ") && text.ends_with("(Up)"));
    context.ports = context.ports.max(context.ports_up);
    // `/sys/class/net/NAME/speed` prints Mbit/s.
    let speed = number(text).filter(|_| context.prose.trim_end().ends_with("/speed"));
    let of_file = speed.map(|mbits| mbits / 1e3).filter(|gbits| LINE_RATES.contains(gbits));
    context.network_gbits = context.network_gbits.or(of_file);
    let keys = ["active_width", "active_speed", "Speed", "speed", "Rate", "rate"];
    let found = keys.iter().find_map(|key| {
        let (before, value) = text.rsplit_once(key)?;
        let value = value.trim_start();
        let value = value.strip_prefix(':').or(value.strip_prefix('=')).map(str::trim)?;
        let starts = before.is_empty() || before.ends_with([' ', '#', '\'', '>', ',', '(']);
        starts.then_some((*key, value))
    });
    let Some((key, value)) = found else { return };
    let mut words = value.split([' ', '(', ')', ',']).filter(|word| !word.is_empty());
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let gbits = match key {
        "active_width" => {
            let lanes = first.trim_end_matches(['X', 'x']).parse::<f64>().ok();
            context.port_lanes = lanes.filter(|lanes| (1.0..=12.0).contains(lanes));
            None
        }
        // ibv_devinfo: `active_width: 4X (2)`, then `active_speed: 25.0 Gbps (32)` of a lane.
        "active_speed" => number(first)
            .zip(context.port_lanes)
            .map(|(speed, lanes)| ((speed * lanes) / 5.0).round() * 5.0),
        _ => line_rate(&first.replace('/', "p"))
            .or_else(|| line_rate(&format!("{first}{}", second.replace('/', "p"))))
            .or_else(|| number(first).filter(|_| second.is_empty()))
            // mlxlink: `Speed : IB-NDR`.
            .or_else(|| rate_name(first.strip_prefix("IB-")?)),
    };
    let gbits = gbits.filter(|gbits| LINE_RATES.contains(gbits));
    // Two tools list the same ports.
    context.ports_with_rate += u32::from(gbits.is_some());
    context.ports = context.ports.max(context.ports_with_rate);
    context.network_gbits = context.network_gbits.or(gbits);
}

/// lsblk's columns `ROTA` and `TRAN`, smartctl's and hdparm's rotation and signalling, the kernel's `SATA link up`.
fn drive(context: &mut PasteContext, text: &str) {
    let lower = text.to_lowercase() + " ";
    if ["sata", "sas", "signaling"].iter().any(|name| lower.contains(name)) {
        let words: Vec<&str> = lower.split([' ', '(', ')', ',']).take(64).collect();
        let rate = |pair: &[&str]| {
            let &[word, next] = pair else { return None };
            let glued = word.strip_suffix("gb/s").or(word.strip_suffix("gbps"));
            let digits = glued.or(Some(word).filter(|_| ["gb/s", "gbps"].contains(&next)))?;
            number(digits).filter(|rate| DRIVE_RATES.contains(rate)).map(|rate| rate / 10.0)
        };
        let rates: Vec<f64> = words.windows(2).filter_map(rate).collect();
        // `SATA 3.2, 6.0 Gb/s (current: 3.0 Gb/s)`, `SATA link up 6.0 Gbps`; hdparm has a line of each rate that a
        // drive can.
        let is_now = lower.contains("current:") || lower.contains("link up");
        context.drive_now = rates.last().copied().filter(|_| is_now).or(context.drive_now);
        let most = rates.iter().filter(|_| !lower.contains("link up"));
        context.drive_gbs = most.copied().chain(context.drive_gbs).reduce(f64::max);
    }
    rating(context, text);
    let has = |word: &str| lower.split(|c: char| !c.is_alphanumeric()).any(|one| one == word);
    context.rotates |= (has("hdd") || has("hdds")) && !has("ssd") && !lower.contains("nvme");
    // `7200 rpm`, and not a package of that name.
    context.rotates |= lower
        .split_once("rpm")
        .is_some_and(|(before, _)| before.trim_end().ends_with("00") && !before.contains("fan"));
    let words: Vec<&str> = text.split_whitespace().take(64).collect();
    let column = |name: &str| words.iter().position(|word| *word == name);
    if words.first() == Some(&"NAME") {
        context.drive_columns = (column("ROTA"), column("TRAN"));
    }
    const DRIVES: [&str; 8] = ["sd", "nvme", "vd", "hd", "xvd", "md", "dm-", "/dev/"];
    let is_row = words.first().is_some_and(|name| {
        let name = name.trim_start_matches(|c: char| !c.is_ascii());
        DRIVES.iter().any(|start| name.starts_with(start))
    });
    let (rotation, transport) = context.drive_columns;
    let cell = |at: Option<usize>| at.and_then(|at| words.get(at)).filter(|_| is_row);
    context.rotates |= cell(rotation) == Some(&"1");
    if cell(transport) == Some(&"sata") {
        context.drive_gbs = context.drive_gbs.or(Some(0.6));
    }
}

/// `rated for 6800 MB/s read and 4000 MB/s write`: reads and writes; a rate without a direction is of both.
fn rating(context: &mut PasteContext, text: &str) {
    const RATED: [&str; 6] = ["rated", "spec", "advertise", "datasheet", "data sheet", "nominal"];
    let lower = text.to_lowercase();
    let Some(start) = RATED.iter().filter_map(|word| lower.find(word)).min() else { return };
    let rest = text.get(start..).unwrap_or_default().replace(',', "");
    let words: Vec<&str> = rest.split([' ', '(', ')', '~', ';']).take(64).collect();
    let is_read = |word: &str| match word.to_lowercase().trim_end_matches([':', '.', 's']) {
        "read" => Some(true),
        "write" => Some(false),
        _ => None,
    };
    let is_number = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    // `read 7 GB/s, write 5 GB/s` or `7 GB/s read, 5 GB/s write`: one order in a line.
    let before =
        words.iter().position(is_number) > words.iter().position(|word| is_read(word).is_some());
    let direction = |at: usize| {
        let part = if before { words.get(at.saturating_sub(2)..at) } else { words.get(at..at + 4) };
        let part = part.or(words.get(at..)).unwrap_or_default();
        let mut found = part.iter().filter_map(|word| is_read(word));
        if before { found.next_back() } else { found.next() }
    };
    for (at, word) in words.iter().enumerate() {
        let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
        let (digits, glued) = word.split_at(end);
        let next = words.get(at + 1).copied().unwrap_or_default();
        let unit = if glued.is_empty() { next } else { glued };
        // Bits are of links; no drive has 30 GB/s.
        let scale = rate_unit(unit).filter(|_| unit.contains('B'));
        let gbs = number(digits).zip(scale).map(|(rate, scale)| rate * scale);
        let Some(gbs) = gbs.filter(|gbs| (0.01..30.0).contains(gbs)) else { continue };
        let (read, write) = &mut context.rated_gbs;
        match direction(at) {
            Some(true) => *read = read.or(Some(gbs)),
            Some(false) => *write = write.or(Some(gbs)),
            None => (*read, *write) = (read.or(Some(gbs)), write.or(Some(gbs))),
        }
    }
}

/// `LnkSta: Speed 8GT/s (downgraded), Width x8`; `LnkCap: ... Speed 16GT/s, Width x16`.
fn pcie(context: &mut PasteContext, text: &str) {
    // The kernel: `limited by 2.5 GT/s PCIe x1 link at 0004:40:00.0 (capable of 15.752 Gb/s with 8.0 GT/s
    // PCIe x2 link)`.
    if let Some((_, limit)) = text.split_once("limited by ")
        && limit.contains("GT/s")
    {
        let (now, most) = limit.split_once("capable of").unwrap_or((limit, ""));
        context.pcie = context.pcie.or(pcie_of_kernel(now));
        context.pcie_most = context.pcie_most.or(pcie_of_kernel(most));
        return;
    }
    // `mlx5_core 0000:61:00.0: 252.048 Gb/s available PCIe bandwidth (16.0 GT/s PCIe x16 link)`.
    if let Some((before, link)) = text.split_once("available PCIe bandwidth") {
        let is_adapter = ["mlx5", "mlx4", "bnxt", "ice ", "i40e", "ixgbe", "ena "];
        let kept = match is_adapter.iter().any(|driver| before.contains(driver)) {
            true => &mut context.adapter_pcie,
            false => &mut context.pcie,
        };
        *kept = kept.or(pcie_of_kernel(link));
        return;
    }
    // `3b:00.0 Infiniband controller: Mellanox ...` is the device of the lines below.
    if let Some((address, rest)) = text.split_once(' ')
        && address.ends_with(|c: char| c.is_ascii_digit())
        && address.contains(':')
        && address.rsplit('.').next().is_some_and(|function| function.len() == 1)
        && let Some((class, _)) = rest.split_once(": ")
    {
        class.clone_into(&mut context.lspci_class);
        address.clone_into(&mut context.lspci_address);
    }
    // `LnkCap: ...; LnkSta: ...` in one line.
    if let Some((cap, state)) =
        text.split_once("LnkSta:").filter(|(cap, _)| cap.contains("LnkCap:"))
    {
        pcie(context, cap);
        return pcie(context, &format!("LnkSta:{state}"));
    }
    let is_state = text.contains("LnkSta:");
    context.pcie_downgraded |= is_state && text.contains("(downgraded)");
    let is_narrow = text.split_once("Width").is_some_and(|(_, rest)| rest.contains("(downgraded)"));
    context.width_downgraded |= is_state && is_narrow;
    if !is_state && !text.contains("LnkCap:") {
        // `16.0GT/s x8`, `PCIe 16.0 GT/s, x16`.
        let words: Vec<&str> = text.split([' ', ',', '(', ')', '@']).collect();
        let lanes = words.iter().find_map(|word| leading_digits(word.strip_prefix('x')?));
        let rate = text
            .split_once("GT/s")
            .and_then(|(before, _)| number(before.trim_end().split(' ').next_back()?));
        context.pcie = context.pcie.or(rate.zip(lanes).filter(is_link));
        return;
    }
    let speed = text.split_once("Speed ").and_then(|(_, rest)| number(rest.split_once("GT/s")?.0));
    let width = text.split_once("Width x").and_then(|(_, rest)| leading_digits(rest));
    if let Some(link) = speed.zip(width).filter(is_link) {
        const DEVICES: [&str; 5] = ["3D", "VGA", "Display", "accelerators", "Non-Volatile"];
        let is_device = DEVICES.iter().any(|name| context.lspci_class.contains(name));
        if is_state && is_device && !context.lspci_address.is_empty() {
            let part = format!("{} {}", context.lspci_class, context.lspci_address);
            let most = std::mem::take(&mut context.lspci_most);
            keep_width(context, part, link.1, most);
            context.lspci_address.clear();
        } else if !is_state {
            context.lspci_most = link.1;
        }
        let of = |names: &[&str]| names.iter().any(|name| context.lspci_class.contains(name));
        let kept = match is_state {
            true if of(&ADAPTERS) => &mut context.adapter_pcie,
            _ if of(&ADAPTERS) || of(&["memory controller", "bridge"]) => return,
            true => &mut context.pcie,
            false => &mut context.pcie_most,
        };
        *kept = kept.or(Some(link));
    }
}

/// Keeps the lanes of a device.
fn keep_width(context: &mut PasteContext, part: String, now: u32, most: u32) {
    if context.widths.len() < 512 && now > 0 {
        context.widths.push((part, now, most));
    }
}

/// No link is faster than 256 GT/s or wider than 32 lanes.
fn is_link((speed, width): &(f64, u32)) -> bool {
    (1.0..=256.0).contains(speed) && (1..=32).contains(width)
}

fn leading_digits(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.get(..end)?.parse().ok()
}

/// GT/s and lanes of `8.0 GT/s PCIe x2 link`.
fn pcie_of_kernel(text: &str) -> Option<(f64, u32)> {
    let (before, after) = text.split_once(" GT/s PCIe x")?;
    let speed = number(before.trim_start_matches('(').split([' ', '(']).next_back()?)?;
    Some((speed, leading_digits(after)?)).filter(is_link)
}

/// `PCIe Generation` and `Link Width` of `nvidia-smi -q`, with `Max : 4` and `Current : 16x` below them, and the
/// columns `pcie.link.gen.max, pcie.link.width.current` of `--query-gpu`. A GPU that is idle lowers its generation
/// and keeps its lanes: the greatest generation counts.
fn pcie_of_smi(context: &mut PasteContext, text: &str) {
    let columns: Vec<&str> = text.split(',').map(str::trim).collect();
    if text.contains("pcie.link.") && columns.len() > 1 && !text.contains("--") {
        text.clone_into(&mut context.lspci_class);
    } else if context.lspci_class.contains("pcie.link.")
        && context.lspci_class.split(',').count() == columns.len()
    {
        let header = context.lspci_class.clone();
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        let cell = |part: &str| {
            let at = names.iter().position(|name| name.starts_with(part));
            at.and_then(|at| columns.get(at)).copied()
        };
        let value = |part: &str| cell(part).and_then(leading_digits);
        let part = cell("index").map(|index| format!("GPU {index}"));
        let part = part.or(cell("pci.bus_id").or(cell("name")).map(str::to_owned));
        let (now, most) = (value("pcie.link.width.current"), value("pcie.link.width.max"));
        if let (Some(part), Some(now)) = (part, now) {
            keep_width(context, part, now, most.unwrap_or(0));
        }
        let speed = value("pcie.link.gen.max").or(value("pcie.link.gen")).map(lane_gts);
        let link = |width: Option<u32>| speed.zip(width).filter(is_link);
        (context.pcie, context.pcie_most) =
            (context.pcie.or(link(now)), context.pcie_most.or(link(most)));
    }
    if matches!(text, "PCIe Generation" | "Link Width") {
        text.clone_into(&mut context.lspci_class);
        return;
    }
    let Some((key, value)) = text.split_once(':') else { return };
    let Some(value) = leading_digits(value.trim()) else { return };
    let most = context.lspci_class.strip_prefix("Link Width ").and_then(leading_digits);
    if let Some(most) = most.filter(|_| key.trim() == "Current") {
        context.lspci_class.clear();
        keep_width(context, "the GPU".to_owned(), value, most);
    }
    match (context.lspci_class.as_str(), key.trim()) {
        ("PCIe Generation", "Max") if value <= 7 => {
            context.pcie_most = context.pcie_most.or(Some((lane_gts(value), 0)));
        }
        ("Link Width", "Max") => match &mut context.pcie_most {
            Some(most) if most.1 == 0 => most.1 = value,
            Some(_) => {}
            // An excerpt without the generation has two widths.
            None => context.lspci_class = format!("Link Width {value}"),
        },
        ("Link Width", "Current") => {
            let speed = context.pcie_most.map(|most| most.0);
            context.pcie = context.pcie.or(speed.map(|speed| (speed, value)).filter(is_link));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> PasteContext {
        let mut context = PasteContext::default();
        text.lines().for_each(|line| take(&mut context, line.trim()));
        context
    }

    #[test]
    fn ports_state_their_rate() {
        for (text, gbits) in [
            ("Speed: 200000Mb/s", Some(200.0)),
            ("# ethtool eth1 | grep Speed -> Speed: 25000Mb/s", Some(25.0)),
            ("Rate: 400", Some(400.0)),
            ("rate:            100 Gb/sec (4X EDR)", Some(100.0)),
            ("active_width: 4X (2)\nactive_speed: 25.0 Gbps (32)", Some(100.0)),
            ("Speed: 93000Mb/s", None),
            ("rate: 12 GB/s", None),
        ] {
            assert_eq!(found(text).network_gbits, gbits, "{text}");
        }
    }

    #[test]
    fn links_state_their_lanes() {
        let smi = "PCIe Generation\nMax : 4\nCurrent : 1\nLink Width\nMax : 16x\nCurrent : 8x\n";
        let of = |text: &str| (found(text).pcie, found(text).pcie_most);
        assert_eq!(of(smi), (Some((16.0, 8)), Some((16.0, 16))));
        let excerpt = found("Max : 3\nLink Width\nMax : 16x\nCurrent : 8x\n").widths;
        assert_eq!(excerpt, [("the GPU".to_owned(), 8, 16)]);
        let csv = "name, pcie.link.gen.max, pcie.link.width.current\nNVIDIA L4, 4, 8\n";
        assert_eq!(of(csv).0, Some((16.0, 8)));
        assert_eq!(of("LnkSta: Speed 16GT/s, Width x8").0, Some((16.0, 8)));
        let rows =
            "index, name, pcie.link.width.current, pcie.link.width.max\n0, A, 16, 16\n1, A, 8, 16";
        let one = |part: &str, now, most| (part.to_owned(), now, most);
        assert_eq!(found(rows).widths, [one("GPU 0", 16, 16), one("GPU 1", 8, 16)]);
        let list = "3b:00.0 3D controller: X\nLnkCap: Speed 16GT/s, Width x16\nLnkSta: Speed 16GT/s, Width x8\n\
                    d8:00.0 3D controller: X\nLnkSta: Speed 16GT/s, Width x16";
        let list = found(list).widths;
        assert_eq!(
            list,
            [one("3D controller 3b:00.0", 8, 16), one("3D controller d8:00.0", 16, 0)]
        );
        // 2 x 1215 MHz x 640 B.
        let query = found("Memory Clock rate: 1215 Mhz\nMemory Bus Width: 5120-bit");
        assert_eq!(query.memory_gbs, Some(1555.2));
        assert_eq!(of("GPU0: 16.0GT/s x8").0, Some((16.0, 8)));
        let kernel =
            "mlx5_core 0000:61:00.0: 63.008 Gb/s available PCIe bandwidth (8.0 GT/s PCIe x8 link)";
        assert_eq!(found(kernel).adapter_pcie, Some((8.0, 8)));
        assert_eq!(of("capable of 8 GT/s").0, None);
    }

    #[test]
    fn drives_state_their_kind() {
        let lsblk = "NAME ROTA MODEL\nsdb     1 ABC";
        assert!(found(lsblk).rotates && !found("NAME ROTA\nnvme0n1 0").rotates);
        // 8 of 10 bits of 6 Gbit/s are data: 0.6 GB/s.
        assert_eq!(found("ata1: SATA link up 6.0 Gbps (SStatus 133)").drive_now, Some(0.6));
        assert_eq!(found("* Gen3 signaling speed (6.0Gb/s)").drive_gbs, Some(0.6));
        let down = found("SATA Version is:  SATA 3.2, 6.0 Gb/s (current: 1.5 Gb/s)");
        assert_eq!((down.drive_now, down.drive_gbs), (Some(0.15), Some(0.6)));
        let rated = |text: &str| found(text).rated_gbs;
        assert_eq!(rated("rated 6800 MB/s read and 4000 MB/s write"), (Some(6.8), Some(4.0)));
        assert_eq!(rated("spec: read 7.0 GB/s, write 5.1 GB/s"), (Some(7.0), Some(5.1)));
        assert_eq!(rated("4 drives, each rated at 3,500 MB/s"), (Some(3.5), Some(3.5)));
        assert_eq!(rated("Specs: 512 GB RAM, SATA 6 Gb/s, HBM at 1555 GB/s"), (None, None));
        assert!(found("Rotation Rate: 7200 rpm").rotates && !found("sudo rpm -i a.rpm").rotates);
        assert!(!found("NAME ROTA\nnvme0n1 0\nStarting 1 process").rotates);
    }
}
