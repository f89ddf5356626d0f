//! Memory that a library fills, followed by a guard: a write past the end is detected and damages
//! no other data.
//!
//! `nvmlDeviceGetFieldValues` of driver 580.159.04 reads the element behind its array argument, and
//! fills it as well if it resembles a request for an NVLink error counter. Neither the return code
//! nor a sanitizer shows that, since the library is closed-source and the heap block behind the
//! array is often free: glibc aborts many calls later.

use std::iter;

/// Guard bytes behind a value.
const GUARD_BYTES: usize = 64;
/// Their content. Not zero, so that a written zero is detected.
const GUARD_BYTE: u8 = 0xa5;
/// Guard elements behind an array.
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

    /// The address for the call to store to.
    pub(super) fn as_mut_ptr(&mut self) -> *mut T {
        // Derived from the whole structure, so the compiler cannot assume the guard unchanged.
        (&raw mut *self).cast()
    }

    /// The value; `None` if the guard was overwritten.
    pub(super) fn take(self) -> Option<T> {
        (self.guard == [GUARD_BYTE; GUARD_BYTES]).then_some(self.value)
    }
}

/// An array that a call reads and fills, and its guard. The guard's elements are defaults, which
/// request nothing: a library that reads them does not change them.
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

    /// The address of the elements for the call.
    pub(super) fn as_mut_ptr(&mut self) -> *mut T {
        self.elements.as_mut_ptr()
    }

    /// The elements; `None` if the guard was overwritten.
    pub(super) fn take(mut self) -> Option<Vec<T>> {
        let guard = self.elements.split_off(self.count.min(self.elements.len()));
        guard.iter().all(|element| *element == T::default()).then_some(self.elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_returned_only_with_an_intact_guard() {
        let mut good = GuardedValue::<u32>::new();
        // SAFETY: the room of one number.
        unsafe { good.as_mut_ptr().write(7) };
        assert_eq!(good.take(), Some(7));
        // A write of 8 bytes to a value of 4: zeros in its upper half are detected as well.
        let mut wide = GuardedValue::<u32>::new();
        // SAFETY: the number ends inside the guard.
        unsafe { wide.as_mut_ptr().cast::<u64>().write_unaligned(7) };
        assert_eq!(wide.take(), None);
    }

    #[test]
    fn an_array_is_returned_only_with_an_intact_guard() {
        for (nth, whole) in [(2, true), (3, false), (4, false)] {
            let mut array = GuardedArray::new([1u64, 2, 3].into_iter());
            // SAFETY: three elements, and two of the guard.
            unsafe { array.as_mut_ptr().add(nth).write(9) };
            assert_eq!(array.take(), whole.then(|| vec![1, 2, 9]), "element {nth}");
        }
    }
}
