//! `nvidia-smi nvlink -s`.

use crate::clean::PasteLine;
use crate::number::{number, rate_unit};
use crate::plain_rows::{PlainColumn, PlainRows, PlainTable};

/// Lines of a list of links.
const MAX_STATES: usize = 4096;

/// Of `dcgmi nvlink -s`: `gpuId 0:` with a line of letters, U for a link that is up and D for one that is down.
pub(crate) fn dcgm_state(lines: &[PasteLine], at: usize) -> Option<(PlainTable, usize)> {
    let mut text = Vec::new();
    for pair in lines.get(at..)?.chunks(2).take(MAX_STATES) {
        let [gpu, links] = pair else { break };
        let Some(gpu) = gpu.text.trim().strip_prefix("gpuId ") else { break };
        let letters: Vec<&str> = links.text.split_whitespace().collect();
        if letters.is_empty() || letters.iter().any(|letter| !["U", "D", "X", "_"].contains(letter))
        {
            break;
        }
        let mut line = |line: String| text.push(PasteLine { text: line, ..links.clone() });
        line(format!("GPU {}: of dcgmi", gpu.trim_end_matches(':')));
        for (link, letter) in letters.iter().enumerate().filter(|(_, letter)| **letter != "_") {
            line(format!("Link {link}: {}", if *letter == "U" { "up" } else { "<inactive>" }));
        }
    }
    let gpus = text.iter().filter(|line| line.text.starts_with('G')).count();
    Some((nvlink_state(&text, 0)?.0, at + 2 * gpus))
}

/// `nvidia-smi nvlink -s`: each GPU with a line of each of its links, `Link 0: 26.562 GB/s` or `<inactive>`.
pub(crate) fn nvlink_state(lines: &[PasteLine], at: usize) -> Option<(PlainTable, usize)> {
    if !lines.get(at + 1)?.text.trim().starts_with("Link ") {
        return None;
    }
    // Name, active links, their rate, inactive links.
    let (mut gpus, mut next) = (Vec::<(String, f64, f64, Vec<&str>)>::new(), at);
    for (index, line) in lines.iter().enumerate().skip(at).take(MAX_STATES) {
        let text = line.text.trim();
        if let Some((gpu, _)) = text.split_once(": ").filter(|(gpu, _)| gpu.starts_with("GPU ")) {
            gpus.push((gpu.to_owned(), 0.0, 0.0, Vec::new()));
        } else if let Some((link, state)) =
            text.strip_prefix("Link ").and_then(|link| link.split_once(": "))
        {
            let gpu = gpus.last_mut()?;
            let rate = state
                .split_once(' ')
                .and_then(|(value, unit)| Some(number(value)? * rate_unit(unit)?));
            let is_up = rate.is_some() || state == "up";
            (gpu.1, gpu.2) = (gpu.1 + f64::from(u8::from(is_up)), gpu.2 + rate.unwrap_or(0.0));
            gpu.3.extend(state.contains("inactive").then_some(link));
            next = index + 1;
        }
        // One line may stand between GPUs.
        let begins = |at: usize, with: &[char]| {
            lines.get(at).is_some_and(|line| line.text.trim().starts_with(with))
        };
        if !begins(index + 1, &['G', 'L']) && !begins(index + 2, &['G']) {
            break;
        }
    }
    let label = |gpu: &(String, f64, f64, Vec<&str>)| match gpu.3.as_slice() {
        [] => gpu.0.clone(),
        links => format!("{} (link {} inactive)", gpu.0, links.join(", ")),
    };
    let [rate, active, listed] = [
        gpus.iter().map(|gpu| Some(gpu.2)).collect(),
        gpus.iter().map(|gpu| Some(gpu.1)).collect(),
        gpus.iter().map(|gpu| Some(gpu.1 + gpu.3.len() as f64)).collect(),
    ];
    let columns = vec![
        PlainColumn::new("rate", true, rate),
        PlainColumn::new("active links", false, active),
        PlainColumn::new("links", false, listed),
    ];
    let labels = gpus.iter().map(label).collect();
    let table = PlainTable::new("nvidia-smi nvlink", "NVLinks of each GPU", labels, columns);
    (next > at).then_some((PlainTable { rows: PlainRows::Parts, ..table }, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::clean_lines;

    #[test]
    fn links_that_are_down_are_counted() {
        let text = "GPU 0: NVIDIA H100 (UUID: GPU-a)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n\
                    GPU 1: NVIDIA H100 (UUID: GPU-b)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n";
        let (table, next) = nvlink_state(&clean_lines(text.as_bytes()).0, 0).unwrap();
        assert_eq!(
            (table.columns[1].values.as_slice(), next),
            ([Some(2.0), Some(1.0)].as_slice(), 6)
        );
        assert_eq!(table.labels, ["GPU 0", "GPU 1 (link 1 inactive)"]);
        let dcgm = "    gpuId 0:\n        U U U _\n    gpuId 1:\n        U D U _\nNvSwitches:\n";
        let (table, next) = dcgm_state(&clean_lines(dcgm.as_bytes()).0, 0).unwrap();
        assert_eq!((table.columns[1].values.as_slice(), next), (&[Some(3.0), Some(2.0)][..], 4));
        let apart = text.replace("GPU 1", "\nGPU 1");
        assert_eq!(nvlink_state(&clean_lines(apart.as_bytes()).0, 0).unwrap().0.labels.len(), 2);
        assert!(nvlink_state(&clean_lines(b"GPU 0: H100\nGPU 1: H100\n").0, 0).is_none());
    }
}
