//! Journals of real runs.

use std::io::{BufReader, Read};
use std::path::Path;

use flate2::read::GzDecoder;
use pathline_schema::Journal;

/// A journal of `fixtures/`.
pub(crate) fn fixture(name: &str) -> Journal {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fixtures").join(name);
    let mut text = Vec::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut text).unwrap();
    Journal::read(BufReader::new(text.as_slice())).unwrap()
}
