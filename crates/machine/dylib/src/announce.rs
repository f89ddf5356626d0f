//! Searches for libraries and calls into them, announced before they are made. A process that calls a
//! library on behalf of another passes the announcements on: the last of them names the call that did not
//! return.

use std::path::Path;
use std::sync::OnceLock;

use crate::LibraryReport;

/// What is about to happen.
#[derive(Debug, Clone, Copy)]
pub enum Announcement<'a> {
    /// A library is looked for: the report as it is while nothing was found.
    Search(&'a LibraryReport),
    /// A function is called.
    Call {
        /// The file of its library; none for the library that was named last.
        library: Option<&'a Path>,
        /// Its name.
        name: &'a str,
    },
}

/// What takes announcements.
pub type AnnouncementHook = fn(Announcement<'_>);

static HOOK: OnceLock<AnnouncementHook> = OnceLock::new();

/// Has everything announced to `hook` from now on. The first hook of a process stays.
pub fn set_announcement_hook(hook: AnnouncementHook) {
    // A second one would be a second answer to one question.
    let _ = HOOK.set(hook);
}

/// Announces a call of a function, in the library that was named last. Without a hook this is one load
/// and one branch.
#[inline]
pub fn announce(name: &str) {
    if let Some(hook) = HOOK.get() {
        hook(Announcement::Call { library: None, name });
    }
}

/// Announces a call of a function in this library.
#[inline]
pub fn announce_in(library: &Path, name: &str) {
    if let Some(hook) = HOOK.get() {
        hook(Announcement::Call { library: Some(library), name });
    }
}

/// Announces a search.
pub(crate) fn announce_search(report: impl FnOnce() -> LibraryReport) {
    if let Some(hook) = HOOK.get() {
        hook(Announcement::Search(&report()));
    }
}
