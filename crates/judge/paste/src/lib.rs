//! Reads what other tools print: benchmarks, logs and topologies, as people paste them.
//!
//! Pure. A paste is any bytes: cut in the middle, with prefixes of launchers, colours, commas of another
//! locale, lost columns. It is split into documents, one for each output of a tool, and what is no
//! document is reported with its lines. All inputs count as hostile: sizes and counts are bounded.

mod amd_tools;
mod clean;
mod context;
mod copy_tools;
mod counts;
mod document;
mod elbencho_csv;
mod failures;
mod file_io;
mod fio;
mod fio_json;
mod fixed_lines;
mod iperf;
mod kernel_log;
mod matrix;
mod mdtest;
mod nccl_log;
mod nccl_tests;
mod number;
mod nvlink_state;
mod objects;
mod osu;
mod paste_context;
mod perftest;
mod plain_matrix;
mod plain_rows;
mod plain_table;
mod products;
mod profile;
mod profile_table;
mod profiler;
mod read;
mod sentence_rates;
mod stated_rates;
mod streams;

pub use clean::clean_text;
pub use counts::option_value;
pub use document::{
    CollectiveRow, CollectiveTable, CopyMeans, DeviceUse, FileIoResult, LineSpan, MatrixEnd,
    MatrixTool, MessageTable, MessageTest, NcclLog, NetworkTable, PasteContent, PasteContext,
    PasteDocument, PasteReading, ProfileRow, ProfileTable, RateCount, RateMatrix, StreamTable,
    TestDevice, TimedTransfer,
};
pub use failures::is_of_no_message;
pub use number::size;
pub use paste_context::RunTitle;
pub use pathline_topo::{LinkMatrix, PEER_STATUSES};
pub use plain_rows::{PlainColumn, PlainRows, PlainTable};
pub use products::{PRODUCT_TABLE, find_product, table_rows};
pub use read::read_paste;
