//! A value for each offset of a buffer, kept as stretches of equal value.

/// Stretches that cover `0..len` without gaps. Memory is one entry a stretch, whatever `len` is.
#[derive(Debug, Clone)]
pub(crate) struct Ranges<T> {
    /// Start of each stretch, ascending, and its value. The first starts at 0.
    cuts: Vec<(u64, T)>,
    len: u64,
}

impl<T: Clone + PartialEq> Ranges<T> {
    /// One stretch.
    pub(crate) fn new(len: u64, value: T) -> Self {
        Self { cuts: vec![(0, value)], len }
    }

    /// The stretches that meet `start..end`, cut to it: start, end, value.
    pub(crate) fn iter(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64, &T)> {
        let end = end.min(self.len);
        let first = self.cuts.partition_point(|cut| cut.0 <= start).saturating_sub(1);
        let cuts = self.cuts.get(first..).unwrap_or_default();
        cuts.iter().enumerate().take_while(move |(_, cut)| start < end && cut.0 < end).map(
            move |(i, (from, value))| {
                let to = cuts.get(i + 1).map_or(self.len, |next| next.0);
                (*from.max(&start), to.min(end), value)
            },
        )
    }

    /// The value at an offset inside.
    pub(crate) fn at(&self, offset: u64) -> Option<&T> {
        self.iter(offset, offset.saturating_add(1)).next().map(|(_, _, value)| value)
    }

    /// Gives all offsets of `start..end` the same value.
    pub(crate) fn set(&mut self, start: u64, end: u64, value: T) {
        let end = end.min(self.len);
        if start >= end {
            return;
        }
        let mut now = self.iter(start, end);
        if let (Some((_, _, only)), None) = (now.next(), now.next())
            && *only == value
        {
            return;
        }
        drop(now);
        let before = start.checked_sub(1).and_then(|o| self.at(o)).is_some_and(|v| *v == value);
        let after = self.at(end).filter(|v| **v != value).map(|v| (end, v.clone()));
        let from = self.cuts.partition_point(|cut| cut.0 < start);
        let to = self.cuts.partition_point(|cut| cut.0 <= end);
        let here = (!before).then_some((start, value));
        self.cuts.splice(from..to, here.into_iter().chain(after));
    }

    /// Number of stretches.
    #[cfg(test)]
    fn stretches(&self) -> usize {
        self.cuts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the plain array that it stands for, and never more stretches than needed.
        #[test]
        fn behaves_like_an_array(sets in prop::collection::vec((0u64..20, 0u64..24, 0u8..3), 0..40)) {
            let mut ranges = Ranges::new(20, 0u8);
            let mut array = [0u8; 20];
            for (start, end, value) in sets {
                ranges.set(start, end, value);
                for (offset, slot) in array.iter_mut().enumerate() {
                    if (start..end).contains(&(offset as u64)) {
                        *slot = value;
                    }
                }
                for (offset, slot) in array.iter().enumerate() {
                    prop_assert_eq!(ranges.at(offset as u64), Some(slot));
                }
                let changes = array.windows(2).filter(|pair| pair[0] != pair[1]).count();
                prop_assert_eq!(ranges.stretches(), changes + 1);
                let covered: u64 = ranges.iter(3, 17).map(|(from, to, _)| to - from).sum();
                prop_assert_eq!(covered, 14);
            }
            prop_assert_eq!(ranges.at(20), None);
        }
    }
}
