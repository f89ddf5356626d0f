//! The calendar of events in virtual time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Things at instants. The earliest comes first; of one instant, in the order in which they were put
/// down, so that every run of a model is the same.
#[derive(Debug)]
pub(crate) struct EventCalendar<T> {
    entries: BinaryHeap<CalendarEntry<T>>,
    orders: u64,
}

#[derive(Debug)]
struct CalendarEntry<T> {
    at: f64,
    order: u64,
    what: T,
}

impl<T> Default for EventCalendar<T> {
    fn default() -> Self {
        Self { entries: BinaryHeap::new(), orders: 0 }
    }
}

impl<T> EventCalendar<T> {
    /// Puts something down for an instant.
    pub(crate) fn put(&mut self, at: f64, what: T) {
        self.orders += 1;
        self.entries.push(CalendarEntry { at, order: self.orders, what });
    }
    /// The instant of what comes first.
    pub(crate) fn next_at(&self) -> Option<f64> {
        self.entries.peek().map(|entry| entry.at)
    }
    /// Takes what comes first, with its instant.
    pub(crate) fn pop(&mut self) -> Option<(f64, T)> {
        self.entries.pop().map(|entry| (entry.at, entry.what))
    }
}

impl<T> Ord for CalendarEntry<T> {
    /// The earliest is the greatest, as the heap gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.at.total_cmp(&self.at).then(other.order.cmp(&self.order))
    }
}
impl<T> PartialOrd for CalendarEntry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> PartialEq for CalendarEntry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<T> Eq for CalendarEntry<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_is_first_and_of_one_instant_the_first_put() {
        let mut calendar = EventCalendar::default();
        for (at, what) in [(2.0, 'c'), (1.0, 'a'), (2.0, 'd'), (1.0, 'b'), (0.5, 'z')] {
            calendar.put(at, what);
        }
        assert_eq!(calendar.next_at(), Some(0.5));
        let all: String = std::iter::from_fn(|| calendar.pop()).map(|(_, what)| what).collect();
        assert_eq!(all, "zabcd");
    }
}
