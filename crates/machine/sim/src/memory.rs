//! The one address space of a simulated node: its buffers, their owners and contents.
//!
//! No byte is stored. A buffer is a list of stretches, each with the pattern that it holds.

use std::collections::{BTreeMap, BTreeSet};

use pathline_hal::pattern;
use pathline_schema::{MemKind, Place, Unit};

use crate::ranges::Ranges;

/// Content of a stretch of a buffer. `base` is the offset in the buffer where the pattern's byte 0
/// would lie; it wraps, as the part of a pattern that was copied may not hold its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeContent {
    /// Pages that were never written: they read as zeros and take no memory.
    Zero,
    /// Zeros that were written.
    Blank,
    /// A pattern, or garbage: a pattern that no caller expects.
    Pattern { seed: u64, base: u64 },
    /// A cycle of dependent pointers.
    Chain { seed: u64, base: u64 },
}

impl RangeContent {
    /// The byte at an offset of the buffer. A chain reads as garbage unlike the other contents.
    fn byte(self, offset: u64) -> u8 {
        match self {
            Self::Zero | Self::Blank => 0,
            Self::Pattern { seed, base } => pattern::byte(seed, offset.wrapping_sub(base)),
            Self::Chain { seed, base } => pattern::byte(!seed, offset.wrapping_sub(base)),
        }
    }
    /// The same bytes as a pattern that begins in the first word of the buffer.
    fn rebased(self) -> Self {
        match self {
            Self::Pattern { seed, base } => {
                let words = base.cast_signed() >> 3;
                Self::Pattern { seed: pattern::seed_at(seed, -words), base: base & 7 }
            }
            other => other,
        }
    }
    /// The same, `by` bytes further on. A chain that was copied points into its old buffer.
    fn shifted(self, by: u64) -> Self {
        match self {
            Self::Zero | Self::Blank => Self::Blank,
            Self::Pattern { seed, base } => Self::Pattern { seed, base: base.wrapping_add(by) },
            Self::Chain { seed, base } => {
                Self::Pattern { seed: !seed, base: base.wrapping_add(by) }
            }
        }
    }
}

/// What a kernel or a loop stores that does not copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredForm {
    /// A constant, in words of this size in bytes.
    Constant { word: u64 },
    /// `b + 3 c` of two arrays, one behind the other.
    Triad { word: u64 },
}

/// The allocator of a buffer, which alone may free it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BufferOwner {
    Host,
    Driver,
    Storage,
}

/// A buffer.
#[derive(Debug)]
pub(crate) struct SimBuffer {
    pub(crate) place: Place,
    pub(crate) bytes: u64,
    pub(crate) owner: BufferOwner,
    /// Whether pageable memory is page-locked now.
    pub(crate) registered: bool,
    /// Operations that wait or run and touch this buffer.
    pub(crate) pending: u32,
    /// GPUs that reach managed memory in place.
    pub(crate) zero_copy: BTreeSet<u32>,
    contents: Ranges<RangeContent>,
    /// Residency of the pages of managed memory.
    residency: Option<Ranges<Unit>>,
}

impl SimBuffer {
    /// The place of the byte at `offset`, as a copy or kernel sees it.
    pub(crate) fn place_at(&self, offset: u64) -> Place {
        let resident = self.residency.as_ref().and_then(|r| r.at(offset));
        let unit = resident.copied().unwrap_or(self.place.unit);
        let mem = if self.registered { MemKind::Registered } else { self.place.mem };
        Place { unit, mem, ..self.place }
    }
    /// Whether the whole of `offset..offset + bytes` is a pointer chain.
    pub(crate) fn is_chain(&self, offset: u64, bytes: u64) -> bool {
        let mut stretches = self.contents.iter(offset, offset.saturating_add(bytes));
        stretches.all(|(_, _, content)| matches!(content, RangeContent::Chain { .. }))
    }
    /// Bytes of a stretch that were not written since it was allocated or discarded.
    pub(crate) fn unbacked(&self, offset: u64, bytes: u64) -> u64 {
        let stretches = self.contents.iter(offset, offset.saturating_add(bytes));
        stretches.filter(|(_, _, c)| **c == RangeContent::Zero).map(|(from, to, _)| to - from).sum()
    }
    /// Bytes of a stretch that are not at `unit`, and the unit of the first of them.
    pub(crate) fn away_from(&self, unit: Unit, offset: u64, bytes: u64) -> Option<(u64, Unit)> {
        let stretches =
            self.residency.iter().flat_map(|r| r.iter(offset, offset.saturating_add(bytes)));
        let mut away = stretches.filter(|(_, _, at)| **at != unit);
        let (from, to, &first) = away.next()?;
        let rest: u64 = away.map(|(from, to, _)| to - from).sum();
        Some((to - from + rest, first))
    }
}

/// An address inside a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BufferSpot {
    /// Address of the buffer.
    pub(crate) base: u64,
    pub(crate) offset: u64,
}

/// How full a unit's memory is.
#[derive(Debug, Clone, Copy, Default)]
struct MemoryRoom {
    used: u64,
    capacity: u64,
}

/// All buffers.
#[derive(Debug)]
pub(crate) struct SimMemory {
    buffers: BTreeMap<u64, SimBuffer>,
    rooms: BTreeMap<Unit, MemoryRoom>,
    next: u64,
    garbage: u64,
}

/// Buffers start at multiples of this, with at least as much between two of them.
const SPACING: u64 = 2 << 20;
/// A damaged stretch is one line of a cache.
const LINE: u64 = 64;

impl SimMemory {
    /// Empty memory with units of these capacities in bytes. `seed` makes the garbage.
    pub(crate) fn new(capacities: impl IntoIterator<Item = (Unit, u64)>, seed: u64) -> Self {
        let room = |(unit, capacity)| (unit, MemoryRoom { used: 0, capacity });
        let rooms = capacities.into_iter().map(room).collect();
        Self { buffers: BTreeMap::new(), rooms, next: 1 << 40, garbage: seed }
    }

    /// Bytes free and bytes in all of a unit; none if there is no such unit.
    pub(crate) fn room(&self, unit: Unit) -> Option<(u64, u64)> {
        let room = self.rooms.get(&unit)?;
        Some((room.capacity.saturating_sub(room.used), room.capacity))
    }

    /// A new buffer: its address. None if it does not fit.
    pub(crate) fn alloc(&mut self, place: Place, bytes: u64, owner: BufferOwner) -> Option<u64> {
        let (free, _) = self.room(place.unit)?;
        let next = self.next.checked_add(bytes)?.checked_add(2 * SPACING)?;
        if bytes > free {
            return None;
        }
        let address = std::mem::replace(&mut self.next, next / SPACING * SPACING);
        let contents = match place.mem {
            MemKind::Paged | MemKind::Huge => RangeContent::Zero,
            _ => self.garbage(),
        };
        let managed = place.mem == MemKind::Managed;
        let buffer = SimBuffer {
            place,
            bytes,
            owner,
            registered: false,
            pending: 0,
            zero_copy: BTreeSet::new(),
            contents: Ranges::new(bytes, contents),
            residency: managed.then(|| Ranges::new(bytes, place.unit)),
        };
        self.take(place.unit, bytes);
        self.buffers.insert(address, buffer);
        Some(address)
    }

    /// Takes a buffer back.
    pub(crate) fn free(&mut self, address: u64) {
        let Some(buffer) = self.buffers.remove(&address) else { return };
        match &buffer.residency {
            None => self.give(buffer.place.unit, buffer.bytes),
            Some(residency) => {
                for (from, to, &unit) in residency.iter(0, buffer.bytes) {
                    self.give(unit, to - from);
                }
            }
        }
    }

    fn take(&mut self, unit: Unit, bytes: u64) {
        if let Some(room) = self.rooms.get_mut(&unit) {
            room.used += bytes;
        }
    }
    fn give(&mut self, unit: Unit, bytes: u64) {
        if let Some(room) = self.rooms.get_mut(&unit) {
            room.used = room.used.saturating_sub(bytes);
        }
    }

    /// The buffer that starts at `address`.
    pub(crate) fn buffer(&self, address: u64) -> Option<&SimBuffer> {
        self.buffers.get(&address)
    }
    /// The same, to change it.
    pub(crate) fn buffer_mut(&mut self, address: u64) -> Option<&mut SimBuffer> {
        self.buffers.get_mut(&address)
    }
    /// The buffer of `address`, if all of `bytes` from there are in one.
    pub(crate) fn find(&self, address: u64, bytes: u64) -> Option<(BufferSpot, &SimBuffer)> {
        let (&base, buffer) = self.buffers.range(..=address).next_back()?;
        let offset = address - base;
        let end = offset.checked_add(bytes)?;
        (end <= buffer.bytes && offset < buffer.bytes)
            .then_some((BufferSpot { base, offset }, buffer))
    }

    /// Contents that no pattern has.
    fn garbage(&mut self) -> RangeContent {
        self.garbage = self.garbage.wrapping_add(1);
        RangeContent::Pattern { seed: pattern::word(0x006a_756e_6b00, self.garbage), base: 0 }
    }

    /// Writes a pattern, or lays a chain.
    pub(crate) fn fill(&mut self, at: BufferSpot, bytes: u64, seed: u64, chain: bool) {
        let base = at.offset;
        let content = if chain {
            RangeContent::Chain { seed, base }
        } else {
            RangeContent::Pattern { seed, base }
        };
        self.set(at, bytes, content);
    }
    /// The seed of the pattern that stands for what a kernel or a loop stores: the same for the same
    /// form and sources, and another one otherwise. `bytes` are those of the destination.
    pub(crate) fn stored_seed(&self, src: Option<BufferSpot>, bytes: u64, form: StoredForm) -> u64 {
        let mix = |seed: u64, value: u64| pattern::word(seed ^ value, 0) | 1;
        let (op, word) = match form {
            StoredForm::Constant { word } => (1, word),
            StoredForm::Triad { word } => (2, word),
        };
        let start = mix(mix(0x0073_746f_7265, op), word);
        let read = src.filter(|_| op == 2);
        let Some((at, buffer)) = read.and_then(|at| Some((at, self.buffers.get(&at.base)?))) else {
            return start;
        };
        // The second array begins where the first one ends.
        let arrays = [0, bytes].map(|behind| at.offset.saturating_add(behind));
        let stretches = arrays.into_iter().flat_map(|from| {
            let inside = buffer.contents.iter(from, from.saturating_add(bytes));
            inside.map(move |(start, _, content)| {
                (start - from, content.shifted(from.wrapping_neg()).rebased())
            })
        });
        stretches.fold(start, |seed, (offset, content)| {
            let (kind, of, base) = match content {
                RangeContent::Zero | RangeContent::Blank => (0, 0, 0),
                RangeContent::Pattern { seed, base } => (1, seed, base),
                RangeContent::Chain { seed, base } => (2, seed, base),
            };
            [offset, kind, of, base].into_iter().fold(seed, mix)
        })
    }
    /// Writes what a kernel or a loop stores.
    pub(crate) fn store(
        &mut self,
        dst: BufferSpot,
        src: Option<BufferSpot>,
        bytes: u64,
        form: StoredForm,
    ) {
        let seed = self.stored_seed(src, bytes, form);
        self.fill(dst, bytes, seed, false);
    }
    /// Writes unknown content.
    pub(crate) fn scramble(&mut self, at: BufferSpot, bytes: u64) {
        let garbage = self.garbage();
        self.set(at, bytes, garbage);
    }
    /// Gives all pages of a buffer back.
    pub(crate) fn discard(&mut self, address: u64) {
        self.set(BufferSpot { base: address, offset: 0 }, u64::MAX, RangeContent::Zero);
    }
    fn set(&mut self, at: BufferSpot, bytes: u64, content: RangeContent) {
        if let Some(buffer) = self.buffers.get_mut(&at.base) {
            buffer.contents.set(at.offset, at.offset.saturating_add(bytes), content);
        }
    }

    /// Copies, also where the two overlap.
    pub(crate) fn copy(&mut self, dst: BufferSpot, src: BufferSpot, bytes: u64) {
        let Some(from) = self.buffers.get(&src.base) else { return };
        let by = dst.offset.wrapping_sub(src.offset);
        let mut stretches = from.contents.iter(src.offset, src.offset.saturating_add(bytes));
        let first = stretches.next().map(|(from, to, c)| (from, to, c.shifted(by)));
        let rest: Vec<_> = stretches.map(|(from, to, c)| (from, to, c.shifted(by))).collect();
        let Some(to) = self.buffers.get_mut(&dst.base) else { return };
        for (start, end, content) in first.into_iter().chain(rest) {
            to.contents.set(start.wrapping_add(by), end.wrapping_add(by), content);
        }
    }

    /// Puts wrong bytes into one line in the middle of a stretch.
    pub(crate) fn damage(&mut self, at: BufferSpot, bytes: u64) {
        let start = at.offset + bytes / 2 / LINE * LINE;
        let end = (start + LINE).min(at.offset + bytes);
        let Some(old) = self.buffers.get(&at.base).and_then(|b| b.contents.at(start)).copied()
        else {
            return;
        };
        let mut wrong = self.garbage();
        while wrong.byte(start) == old.byte(start) {
            wrong = self.garbage();
        }
        self.set(BufferSpot { offset: start, ..at }, end - start, wrong);
    }

    /// Brings managed pages to a unit.
    pub(crate) fn migrate(&mut self, at: BufferSpot, bytes: u64, to: Unit) {
        let Some(buffer) = self.buffers.get_mut(&at.base) else { return };
        let Some(residency) = buffer.residency.as_mut() else { return };
        let end = at.offset.saturating_add(bytes);
        let left: Vec<_> =
            residency.iter(at.offset, end).map(|(start, end, &unit)| (unit, end - start)).collect();
        residency.set(at.offset, end, to);
        for (unit, bytes) in left {
            self.give(unit, bytes);
            self.take(to, bytes);
        }
    }

    /// The offset of the first byte that is not the pattern's.
    pub(crate) fn check(&self, at: BufferSpot, bytes: u64, seed: u64) -> Option<u64> {
        let buffer = self.buffers.get(&at.base)?;
        let right = RangeContent::Pattern { seed, base: at.offset };
        let end = at.offset.saturating_add(bytes);
        // Stretches with another pattern differ in their first byte or soon after.
        let wrong = |(from, to, &content): (u64, u64, &RangeContent)| {
            if content.rebased() == right.rebased() {
                return None;
            }
            (from..to).find(|&offset| content.byte(offset) != right.byte(offset))
        };
        buffer.contents.iter(at.offset, end).find_map(wrong).map(|offset| offset - at.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Unit = Unit::Numa(0);
    const GPU: Unit = Unit::Gpu(0);

    fn memory() -> SimMemory {
        SimMemory::new([(HOST, 1 << 30), (GPU, 1 << 20)], 1)
    }
    fn buffer(memory: &mut SimMemory, bytes: u64) -> u64 {
        memory.alloc(Place::new(HOST, MemKind::Pinned), bytes, BufferOwner::Driver).unwrap()
    }
    fn spot(base: u64, offset: u64) -> BufferSpot {
        BufferSpot { base, offset }
    }

    #[test]
    fn a_prefix_a_wrong_offset_and_stale_bytes_are_found() {
        let mut m = memory();
        let (a, b) = (buffer(&mut m, 1000), buffer(&mut m, 1000));
        m.fill(spot(a, 0), 1000, 7, false);
        m.fill(spot(b, 0), 1000, 8, false);
        assert_eq!(m.check(spot(b, 0), 1000, 8), None);
        assert_eq!(m.check(spot(b, 0), 1000, 7), Some(0), "stale");
        m.copy(spot(b, 0), spot(a, 0), 999);
        assert_eq!(m.check(spot(b, 0), 1000, 7), Some(999), "a prefix");
        m.copy(spot(b, 0), spot(a, 0), 1000);
        assert_eq!(m.check(spot(b, 0), 1000, 7), None);
        m.copy(spot(b, 8), spot(a, 0), 900);
        assert_eq!(m.check(spot(b, 0), 1000, 7), Some(8), "a wrong offset");
        assert_eq!(m.check(spot(b, 8), 900, 7), None, "it is right where it was put");
        // Byte 16 of the pattern lies at 24; a part that begins there is compared by its own seed.
        assert_eq!(m.check(spot(b, 24), 800, pattern::seed_at(7, 2)), None);
        assert_eq!(m.check(spot(b, 24), 800, pattern::seed_at(7, 3)), Some(0));
    }

    /// Bytes 0..600 go to 100..700 of the same buffer: its own start stays, the rest is shifted.
    #[test]
    fn overlap() {
        let mut m = memory();
        let a = buffer(&mut m, 1000);
        m.fill(spot(a, 0), 1000, 7, false);
        m.copy(spot(a, 100), spot(a, 0), 600);
        assert_eq!(m.check(spot(a, 0), 1000, 7), Some(100));
        assert_eq!(m.check(spot(a, 100), 600, 7), None);
        assert_eq!(m.check(spot(a, 0), 100, 7), None);
    }

    /// Compares the content byte by byte with an array: fills, copies and damage at random places.
    #[test]
    fn like_an_array() {
        let mut m = memory();
        let a = buffer(&mut m, 300);
        m.fill(spot(a, 0), 300, 1, false);
        let mut array: Vec<u8> = (0..300).map(|o| pattern::byte(1, o)).collect();
        for round in 0..200 {
            let draw = |i| pattern::word(9, 4 * round + i);
            let (from, to) = (draw(0) % 200, draw(1) % 200);
            let bytes = draw(2) % 100 + 1;
            if draw(3) % 2 == 0 {
                m.fill(spot(a, to), bytes, round, false);
                for i in 0..bytes {
                    array[(to + i) as usize] = pattern::byte(round, i);
                }
            } else {
                m.copy(spot(a, to), spot(a, from), bytes);
                array.copy_within(from as usize..(from + bytes) as usize, to as usize);
            }
            let contents = &m.buffer(a).unwrap().contents;
            for (offset, byte) in (0..).zip(&array) {
                assert_eq!(contents.at(offset).unwrap().byte(offset), *byte, "round {round}");
            }
        }
    }

    #[test]
    fn damage_changes_the_first_byte_of_a_line() {
        let mut m = memory();
        let a = buffer(&mut m, 1 << 20);
        for bytes in [1, 63, 64, 1 << 20] {
            m.fill(spot(a, 0), bytes, 7, false);
            m.damage(spot(a, 0), bytes);
            assert_eq!(m.check(spot(a, 0), bytes, 7), Some(bytes / 2 / 64 * 64));
        }
    }

    /// 1 MiB of GPU memory: a buffer of 768 KiB leaves no room for another, until it is freed.
    /// Managed memory of 512 KiB takes room where its pages are.
    #[test]
    fn room() {
        let mut m = memory();
        let vram = Place::new(GPU, MemKind::Vram);
        let a = m.alloc(vram, 768 << 10, BufferOwner::Driver).unwrap();
        assert_eq!(m.alloc(vram, 512 << 10, BufferOwner::Driver), None);
        assert_eq!(m.room(GPU), Some((256 << 10, 1 << 20)));
        m.free(a);
        let managed = Place::new(HOST, MemKind::Managed);
        let b = m.alloc(managed, 512 << 10, BufferOwner::Driver).unwrap();
        assert_eq!(m.room(GPU), Some((1 << 20, 1 << 20)));
        m.migrate(spot(b, 0), 128 << 10, GPU);
        assert_eq!(m.room(GPU), Some((896 << 10, 1 << 20)));
        let buffer = m.buffer(b).unwrap();
        assert_eq!(buffer.place_at(0).unit, GPU);
        assert_eq!(buffer.place_at(128 << 10).unit, HOST);
        assert_eq!(buffer.away_from(GPU, 0, 512 << 10), Some((384 << 10, HOST)));
        assert_eq!(buffer.away_from(GPU, 0, 128 << 10), None);
        m.free(b);
        assert_eq!(m.room(GPU), Some((1 << 20, 1 << 20)));
        assert_eq!(m.room(HOST), Some((1 << 30, 1 << 30)));
    }

    #[test]
    fn nothing_is_found_across_the_end() {
        let mut m = memory();
        let a = buffer(&mut m, 100);
        assert!(m.find(a + 99, 1).is_some());
        assert!(m.find(a + 99, 2).is_none());
        assert!(m.find(a + 100, 0).is_none());
        assert!(m.find(a, u64::MAX).is_none());
        assert!(m.find(a - 1, 1).is_none());
    }

    #[test]
    fn memory_is_one_entry_a_stretch() {
        let mut m = SimMemory::new([(HOST, 1 << 50)], 1);
        let a = buffer(&mut m, 1 << 45);
        m.fill(spot(a, 0), 1 << 45, 3, false);
        assert_eq!(m.check(spot(a, 0), 1 << 45, 3), None);
        m.damage(spot(a, 0), 1 << 45);
        assert_eq!(m.check(spot(a, 0), 1 << 45, 3), Some(1 << 44));
    }
}
