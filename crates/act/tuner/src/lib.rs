//! A tuner plugin of NCCL and RCCL: it replaces their choice of algorithm, protocol and channels for the
//! collectives and sizes that a file of rows names, and leaves every other choice to the library.
//!
//! `NCCL_TUNER_PLUGIN` names the shared object. The rows are in the file that `PATHLINE_TUNER_ROWS` names,
//! else in `libpathline_tuner.rows` in the folder of the shared object. All ranks of a job must read the same
//! rows: ranks that choose different algorithms wait for each other forever. Each rank therefore logs a hash of
//! the file.
#![allow(unsafe_code)]

mod abi;
mod plugin;
mod row_lookup;
mod rows;

pub use plugin::{ROWS_FILE, ROWS_VARIABLE};
pub use rows::{
    MAX_ROWS_BYTES, TunedAlgorithm, TunedCollective, TunedProtocol, TunerRow, TunerRows,
    TunerRowsError, tuner_rows_text,
};
