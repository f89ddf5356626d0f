//! JSON objects and XML elements in a paste.

use serde_json::Value;

use crate::document::{PasteContent, PasteContext};
use crate::{context, copy_tools, file_io, fio_json, iperf, nccl_tests, plain_matrix, plain_table};

/// The documents of a JSON object; the context takes its devices.
pub(crate) fn json(text: &str, around: &mut PasteContext) -> Vec<PasteContent> {
    // A first object, whatever follows it.
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let Some(Ok(root)) = stream.next() else { return Vec::new() };
    if let Some(table) = nccl_tests::from_json(&root) {
        for device in &table.devices {
            context::take(around, &device.name);
        }
        return vec![PasteContent::Collective(table)];
    }
    let matrices = copy_tools::nvbandwidth_json(&root);
    if !matrices.is_empty() {
        let devices = root.get("nvbandwidth").and_then(|b| b.get("GPU Device list")?.as_array());
        for device in devices.into_iter().flatten().filter_map(Value::as_str) {
            context::take_device(around, device);
        }
        return matrices.into_iter().map(PasteContent::Matrix).collect();
    }
    let mut files = fio_json::read(&root);
    files.extend(file_io::elbencho_json(&root));
    let plain = iperf::from_json(&root).or_else(|| plain_table::from_json(&root));
    match plain.filter(|_| files.is_empty()) {
        Some(table) => plain_matrix::contents(table),
        None => files.into_iter().map(PasteContent::FileIo).collect(),
    }
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
