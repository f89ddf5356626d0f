//! Conclusions of runs whose answer is known.

use crate::common::{conclusions, fixture, simulated, text};

#[test]
fn findings_of_simulated_nodes() {
    for preset in ["mi250x", "hgx-h200"] {
        insta::assert_snapshot!(preset, text(&conclusions(&simulated(preset))));
    }
}

#[test]
fn findings_of_kept_runs() {
    for name in ["h200-x4", "h200-x2-nccl", "h200-x2-mpi-ucx", "h200-storage"] {
        insta::assert_snapshot!(name, text(&conclusions(&fixture(name))));
    }
}
