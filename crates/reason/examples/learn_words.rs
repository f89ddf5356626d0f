//! Writes the weights of words (`data/word-weights.txt`) from folders of threads: a paste `NNN.txt` and its
//! `NNN.json` with `causes` each.
//!
//! `cargo run --release -p pathline-reason --example learn_words FOLDER... > crates/reason/data/word-weights.txt`

use std::error::Error;
use std::fs;

use pathline_paste::read_paste;
use pathline_reason::word_model::learn;

fn main() -> Result<(), Box<dyn Error>> {
    let mut threads = Vec::new();
    for folder in std::env::args().skip(1) {
        let mut pastes = Vec::new();
        for entry in fs::read_dir(&folder).map_err(|error| format!("{folder}: {error}"))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "txt") {
                pastes.push(path);
            }
        }
        pastes.sort();
        for path in pastes {
            let labels = path.with_extension("json");
            let labels =
                fs::read(&labels).map_err(|error| format!("{}: {error}", labels.display()))?;
            let labels: serde_json::Value = serde_json::from_slice(&labels)?;
            let causes = labels["causes"].as_array().into_iter().flatten();
            let causes = causes.filter_map(|cause| Some(cause.as_str()?.to_owned())).collect();
            threads.push((pathline_reason::paste_terms(&read_paste(&fs::read(&path)?)), causes));
        }
    }
    print!("{}", learn(&threads));
    Ok(())
}
