//! JSON objects and XML elements in a paste.

use serde_json::{Value, json};

use crate::clean::PasteLine;
use crate::document::{PasteContent, PasteContext};
use crate::{context, copy_tools, file_io, fio_json, iperf, nccl_tests, plain_matrix, plain_table};

/// Depth of objects in which the output of a tool is sought, and values of one that are tried.
const MAX_DEPTH: u32 = 5;
const MAX_VALUES: usize = 256;

/// The documents of a JSON object; the context takes its devices.
pub(crate) fn json(text: &str, around: &mut PasteContext) -> Vec<PasteContent> {
    // A first object, whatever follows it.
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let Some(Ok(root)) = stream.next() else { return Vec::new() };
    let known = of_tools(&root, around, 0);
    match known.is_empty() {
        true => plain_table::from_json(&root).map_or_else(Vec::new, plain_matrix::contents),
        false => known,
    }
}

/// Objects of one line each, one after another, as one list; the line after them.
pub(crate) fn json_lines(lines: &[PasteLine], at: usize) -> Option<(Vec<PasteContent>, usize)> {
    let parsed = lines.iter().skip(at).take(4096);
    let all: Vec<Value> = parsed
        .map_while(|line| serde_json::from_str(&line.text).ok().filter(Value::is_object))
        .collect();
    let next = at + all.len();
    let table = plain_table::from_json(&Value::Array(all))?;
    Some((plain_matrix::contents(table), next))
}

/// The outputs of known tools: the value itself, else those in it, as scripts collect them by host or run.
fn of_tools(value: &Value, around: &mut PasteContext, depth: u32) -> Vec<PasteContent> {
    let own = of_tool(value, around);
    if !own.is_empty() || depth >= MAX_DEPTH {
        return own;
    }
    let inner = plain_table::children(value).take(MAX_VALUES);
    inner.flat_map(|(_, value)| of_tools(value, around, depth + 1)).collect()
}

fn of_tool(value: &Value, around: &mut PasteContext) -> Vec<PasteContent> {
    if let Some(table) = nccl_tests::from_json(value) {
        for device in &table.devices {
            context::take(around, &device.name);
        }
        return vec![PasteContent::Collective(table)];
    }
    // Parts of an output stand for the whole.
    let has = |key: &str| value.get(key).is_some();
    let whole = match () {
        () if has("testcases") => json!({ "nvbandwidth": value }),
        () if has("bandwidth_matrix") => json!({ "nvbandwidth": { "testcases": [value] } }),
        () if has("jobname") => json!({ "jobs": [value] }),
        () => Value::Null,
    };
    let root = if whole.is_null() { value } else { &whole };
    let matrices = copy_tools::nvbandwidth_json(root);
    if !matrices.is_empty() {
        let devices = root.get("nvbandwidth").and_then(|b| b.get("GPU Device list")?.as_array());
        for device in devices.into_iter().flatten().filter_map(Value::as_str) {
            context::take_device(around, device);
        }
        return matrices.into_iter().map(PasteContent::Matrix).collect();
    }
    let mut files = fio_json::read(root);
    files.extend(file_io::elbencho_json(root));
    let streams = iperf::from_json(root).map(PasteContent::Plain);
    files.into_iter().map(PasteContent::FileIo).chain(streams).collect()
}

/// The topology of an XML element.
pub(crate) fn xml(text: &str) -> Vec<PasteContent> {
    let topology = pathline_topo::from_text("paste", text).ok();
    topology.map(|topology| PasteContent::Topology(Box::new(topology))).into_iter().collect()
}

/// Follows braces and brackets outside strings.
#[derive(Default)]
pub(crate) struct JsonDepth {
    depth: u32,
    in_string: bool,
}

impl JsonDepth {
    /// Whether the object ends on this line.
    pub(crate) fn ends(&mut self, line: &str) -> bool {
        let mut escaped = false;
        for c in line.chars() {
            match c {
                _ if escaped => escaped = false,
                '\\' if self.in_string => escaped = true,
                '"' => self.in_string = !self.in_string,
                '{' | '[' if !self.in_string => self.depth += 1,
                '}' | ']' if !self.in_string => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return true;
                    }
                }
                _ => {}
            }
        }
        // A string does not go on in the next line.
        self.in_string = false;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clean::clean_lines;

    fn figures(text: &str) -> Vec<usize> {
        let found = json(text, &mut PasteContext::default());
        found.iter().map(PasteContent::figures).collect()
    }

    #[test]
    fn outputs_are_found_inside_of_others_and_in_parts() {
        let test = r#"{"name": "host_to_device_memcpy_ce", "bandwidth_description":
            "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)", "bandwidth_matrix": [["55", "54"]]}"#;
        let job = r#"{"jobname": "a", "read": {"bw_bytes": 5000000000}}"#;
        for (text, count) in [
            (format!(r#"{{"nvbandwidth": {{"testcases": [{test}]}}}}"#), vec![2]),
            (format!(r#"{{"node1": {{"testcases": [{test}]}}}}"#), vec![2]),
            (format!("[{test}]"), vec![2]),
            (format!(r#"{{"a": {{"jobs": [{job}]}}, "b": {{"jobs": [{job}]}}}}"#), vec![1, 1]),
            (job.to_owned(), vec![1]),
            (r#"{"a": {"b": [1, 2]}}"#.to_owned(), vec![]),
        ] {
            assert_eq!(figures(&text), count, "{text}");
        }
        let lines = clean_lines(b"{\"gpu\": 0, \"gb_s\": 5}\n{\"gpu\": 1, \"gb_s\": 4}\nend").0;
        assert_eq!(json_lines(&lines, 0).map(|found| found.1), Some(2));
    }
}
