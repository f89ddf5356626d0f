//! Lines that a tool prints whatever it measures: headers, legends, set-up, notes. They say nothing of the node
//! but, in some of them, its product.

/// What such lines begin with, a beginning a line; `#:` names the tool.
const BEGINNINGS: &str = include_str!("../data/fixed_lines.txt");

/// Whether a line, trimmed, only parts others.
pub(crate) fn is_rule(text: &str) -> bool {
    text.len() > 2 && text.chars().all(|c| "-=+*_|#: ".contains(c))
}

/// Whether a line, trimmed, says nothing: a rule, or what a tool always prints.
pub(crate) fn is_fixed(text: &str) -> bool {
    // `Process 3 (host): device 1: NVIDIA GB200 (...)` of nvbandwidth over several nodes.
    let is_process = text.starts_with("Process ") && text.contains("): device ");
    let is_adapter = text.strip_prefix("NIC").and_then(|rest| rest.split_once(": "));
    is_rule(text)
        || is_process
        || text.starts_with("====")
        // Boxes of ucx_perftest.
        || text.ends_with(" |") && text.contains(": ")
        || text.contains("| # iterations |")
        || text.ends_with("message rate (msg/s) |")
        || is_adapter.is_some_and(|(number, _)| number.parse::<u32>().is_ok())
        || BEGINNINGS.lines().any(|start| !start.starts_with("#:") && text.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_fixed_and_rows_are_not() {
        for line in [
            "Process 3 (n7): device 1: NVIDIA GB200 (00000009:01:00)",
            "Stage     | # iterations | 50.0%ile | average | overall |",
            "NOTE: This tool reports current measured bandwidth on your system.",
            "+------+-----+",
        ] {
            assert!(is_fixed(line), "{line}");
        }
        for line in ["0  55.1  27.4", "Process killed", "| 8 GPUs | 450 GB/s |"] {
            assert!(!is_fixed(line), "{line}");
        }
    }
}
