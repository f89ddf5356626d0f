//! Folders of files that processes left behind which were killed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use pathline_bench::InterruptCheck;
use pathline_storage::{SweepResult, WaitLimit, sweep};

use crate::choice::StorePlaces;

/// Time for the servers of buckets, and once a run is to end.
const SWEEP_TIMEOUT: Duration = Duration::from_secs(60);
const LAST_TIMEOUT: Duration = Duration::from_secs(5);

/// The places of a run, cleaned when it begins and when it has ended.
pub struct StoreCleanup {
    places: BTreeSet<PathBuf>,
    /// Folders that could not be removed before the run, and places that could not be looked through.
    known: BTreeSet<PathBuf>,
    /// The server of buckets.
    endpoint: Option<String>,
}

/// Report of a cleanup, for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CleanupNote {
    /// A folder is removed.
    Removed(String),
    /// Something stays there.
    Failed(String),
}

impl StoreCleanup {
    /// Removes what earlier runs left.
    pub fn of_earlier(
        stores: &StorePlaces,
        interrupt: InterruptCheck<'_>,
    ) -> (Self, Vec<CleanupNote>) {
        let limit = WaitLimit::total(SWEEP_TIMEOUT).stopped_by(interrupt);
        // A place that is named twice is one.
        let places: BTreeSet<PathBuf> = stores.paths.iter().cloned().collect();
        let endpoint = stores.endpoint.as_deref();
        let (mut known, mut notes) = (BTreeSet::new(), Vec::new());
        for place in &places {
            let SweepResult { removed, left, unseen } = sweep(place, endpoint, limit);
            notes.extend(removed.into_iter().map(removed_note));
            for (folder, why) in left {
                let text = format!("{} of an earlier run stays there: {why}", folder.display());
                notes.push(CleanupNote::Failed(text));
                known.insert(folder);
            }
            if unseen.is_some() {
                // Its cases report why nothing is measured there.
                known.insert(place.clone());
            }
        }
        (Self { places, known, endpoint: stores.endpoint.clone() }, notes)
    }

    /// Removes what this run's processes left which ended early; the last one must be gone.
    pub fn of_this(self, interrupt: InterruptCheck<'_>) -> Vec<CleanupNote> {
        let limit = match interrupt() {
            Some(_) => WaitLimit::total(LAST_TIMEOUT),
            None => WaitLimit::total(SWEEP_TIMEOUT).stopped_by(interrupt),
        };
        let next = "the next run with this --store removes it, or do it by hand";
        let mut notes = Vec::new();
        for place in &self.places {
            let SweepResult { removed, left, unseen } =
                sweep(place, self.endpoint.as_deref(), limit);
            notes.extend(removed.into_iter().map(removed_note));
            for (folder, why) in left.iter().filter(|(folder, _)| !self.known.contains(folder)) {
                let text = format!("{} could not be removed: {why}; {next}", folder.display());
                notes.push(CleanupNote::Failed(text));
            }
            if let Some(why) = unseen.filter(|_| !self.known.contains(place)) {
                let place = place.display();
                let text =
                    format!("{place}: cannot look for files that this run left: {why}; {next}");
                notes.push(CleanupNote::Failed(text));
            }
        }
        notes
    }
}

fn removed_note(folder: PathBuf) -> CleanupNote {
    CleanupNote::Removed(format!("removed {}, which a killed process had left", folder.display()))
}
