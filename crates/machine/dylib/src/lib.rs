//! Shared libraries of vendors, bound at run time: one search for all of them, checks of a file before
//! the dynamic linker maps it, and announcements of calls, so that a process that is lost in a library
//! leaves the name of the call.
//!
//! A library runs code as soon as it is opened. Therefore nothing is opened that everybody may replace,
//! and nothing that is known to end or to block the process: files that are cut off, FIFOs, devices.
#![allow(unsafe_code)]

mod announce;
mod elf;
mod environment;
mod library;
mod linker;
mod name_scan;
mod plain_file;
mod search;
mod trust;

pub use announce::{Announcement, AnnouncementHook, announce, announce_in, set_announcement_hook};
pub use environment::{environment_path, path_list};
pub use library::SharedLibrary;
pub use linker::resolve;
pub use name_scan::{names_with_needed, text_with_prefix};
pub use plain_file::open_plain;
pub use search::{
    BoundLibrary, LibraryNames, LibraryReport, LibrarySpec, MaxMajor, SearchPlace, TriedPlace,
    find, find_with, locate, locate_installed, starting_with,
};
