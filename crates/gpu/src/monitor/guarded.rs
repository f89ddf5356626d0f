//! Memory that a library fills, with a guard behind it: a write past the end is seen, and it hits
//! nothing of anybody else's.
//!
//! `nvmlDeviceGetFieldValues` of driver 580.159.04 looks at the element behind the array that it is
//! given, and fills it as well if it looks like a request for an NVLink error counter. Neither the
//! return code nor a sanitizer shows that, since the library is closed and the heap block behind the
//! array is often free: glibc aborts many calls later.

use std::iter;

/// Bytes behind a value.
const GUARD_BYTES: usize = 64;
/// What they hold. Not zero, so that a zero that is written there is seen.
const GUARD_BYTE: u8 = 0xa5;
/// Elements behind an array.
const GUARD_ELEMENTS: usize = 2;

/// A value that a call stores, and its guard.
#[repr(C)]
pub(super) struct GuardedValue<T> {
    value: T,
    guard: [u8; GUARD_BYTES],
}

impl<T: Default> GuardedValue<T> {
    pub(super) fn new() -> Self {
        Self { value: T::default(), guard: [GUARD_BYTE; GUARD_BYTES] }
    }

    /// Where a call stores the value.
    pub(super) fn as_mut_ptr(&mut self) -> *mut T {
        // Of the whole, so that what a call writes into the guard is not assumed away.
        (&raw mut *self).cast()
    }

    /// The value; none if the guard was written to.
    pub(super) fn take(self) -> Option<T> {
        (self.guard == [GUARD_BYTE; GUARD_BYTES]).then_some(self.value)
    }
}

/// An array that a call reads and fills, and its guard. The guard's elements are defaults, and so
/// no request for anything: a library that looks at them leaves them alone.
pub(super) struct GuardedArray<T> {
    elements: Vec<T>,
    count: usize,
}

impl<T: Clone + Default + PartialEq> GuardedArray<T> {
    pub(super) fn new(elements: impl ExactSizeIterator<Item = T>) -> Self {
        let count = elements.len();
        let guard = iter::repeat_n(T::default(), GUARD_ELEMENTS);
        Self { elements: elements.chain(guard).collect(), count }
    }

    /// Where the call finds the elements.
    pub(super) fn as_mut_ptr(&mut self) -> *mut T {
        self.elements.as_mut_ptr()
    }

    /// The elements; none if the guard was written to.
    pub(super) fn take(mut self) -> Option<Vec<T>> {
        let guard = self.elements.split_off(self.count.min(self.elements.len()));
        guard.iter().all(|element| *element == T::default()).then_some(self.elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_only_if_nothing_is_behind_it() {
        let mut good = GuardedValue::<u32>::new();
        // SAFETY: the room of one number.
        unsafe { good.as_mut_ptr().write(7) };
        assert_eq!(good.take(), Some(7));
        // A number of 8 bytes where 4 are asked for: zeros in its upper half are seen as well.
        let mut wide = GuardedValue::<u32>::new();
        // SAFETY: the number ends inside the guard.
        unsafe { wide.as_mut_ptr().cast::<u64>().write_unaligned(7) };
        assert_eq!(wide.take(), None);
    }

    #[test]
    fn an_array_comes_back_only_if_nothing_is_behind_it() {
        for (nth, whole) in [(2, true), (3, false), (4, false)] {
            let mut array = GuardedArray::new([1u64, 2, 3].into_iter());
            // SAFETY: three elements, and two of the guard.
            unsafe { array.as_mut_ptr().add(nth).write(9) };
            assert_eq!(array.take(), whole.then(|| vec![1, 2, 9]), "element {nth}");
        }
    }
}
