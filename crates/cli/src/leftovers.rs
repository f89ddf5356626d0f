//! Folders of files that processes left behind which were killed.

use std::collections::BTreeSet;
use std::path::PathBuf;

use pathline_storage::{SweepResult, sweep};

use crate::args::StoreArgs;
use crate::say::errln;

/// The places of a run, cleaned when it begins and when it has ended.
pub(crate) struct StoreCleanup {
    places: BTreeSet<PathBuf>,
    quiet: bool,
    /// Folders that could not be removed before the run, and places that could not be looked through.
    known: BTreeSet<PathBuf>,
}

impl StoreCleanup {
    /// Removes what earlier runs left, and says so.
    pub(crate) fn of_earlier(stores: &StoreArgs, quiet: bool) -> Self {
        // A place that is named twice is one.
        let places = stores.store.iter().cloned().collect();
        let mut leftovers = Self { places, quiet, known: BTreeSet::new() };
        for place in leftovers.places.clone() {
            let SweepResult { removed, left, unseen } = sweep(&place);
            for folder in removed {
                leftovers
                    .say(&format!("removed {}, which a killed process had left", folder.display()));
            }
            for (folder, why) in left {
                errln!("pathline: {} of an earlier run stays there: {why}", folder.display());
                leftovers.known.insert(folder);
            }
            if unseen.is_some() {
                // Its cases say why nothing is measured there.
                leftovers.known.insert(place);
            }
        }
        leftovers
    }

    /// Removes what this run's processes left which ended early; the last one must be gone.
    pub(crate) fn of_this(self) {
        let next = "the next run with this --store removes it, or do it by hand";
        for place in &self.places {
            let SweepResult { removed, left, unseen } = sweep(place);
            for folder in removed {
                self.say(&format!("removed {}, which a killed process had left", folder.display()));
            }
            for (folder, why) in left.iter().filter(|(folder, _)| !self.known.contains(folder)) {
                errln!("pathline: {} could not be removed: {why}; {next}", folder.display());
            }
            if let Some(why) = unseen.filter(|_| !self.known.contains(place)) {
                errln!(
                    "pathline: {}: whether files of this run are left cannot be told: {why}; {next}",
                    place.display()
                );
            }
        }
    }

    fn say(&self, text: &str) {
        if !self.quiet {
            errln!("pathline: {text}");
        }
    }
}
