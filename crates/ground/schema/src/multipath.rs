//! Copies over several paths at once: which GPUs take part, and in which pieces.

use std::fmt;
use std::str::FromStr;

use crate::{Bytes, CopyAgent, Flow, MemKind, ParseError, Unit};

/// GPUs by number, 0 to 63: `gpu1+gpu2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GpuSet(u64);

impl GpuSet {
    /// GPUs that a set can hold: numbers 0 to 63.
    pub const CAPACITY: u32 = 64;

    /// A set without members.
    pub const EMPTY: Self = Self(0);

    /// The set with one more GPU; unchanged if its number is not below [`Self::CAPACITY`].
    #[must_use]
    pub const fn with(self, gpu: u32) -> Self {
        if gpu < Self::CAPACITY { Self(self.0 | 1 << gpu) } else { self }
    }
    /// The set without a GPU.
    #[must_use]
    pub const fn without(self, gpu: u32) -> Self {
        if gpu < Self::CAPACITY { Self(self.0 & !(1 << gpu)) } else { self }
    }
    /// Whether a GPU is a member.
    pub const fn contains(self, gpu: u32) -> bool {
        gpu < Self::CAPACITY && self.0 >> gpu & 1 == 1
    }
    /// Number of members.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }
    /// Whether it has no member.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
    /// The members, in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u32> + Clone {
        (0..Self::CAPACITY).filter(move |&gpu| self.contains(gpu))
    }
}

impl FromIterator<u32> for GpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(gpus: I) -> Self {
        gpus.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl fmt::Display for GpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, gpu) in self.iter().enumerate() {
            write!(f, "{}gpu{gpu}", if nth == 0 { "" } else { "+" })?;
        }
        Ok(())
    }
}

impl FromStr for GpuSet {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bad = || ParseError::new("set of GPUs", s, "gpuN+gpuM, ascending, each below gpu64");
        let mut gpus = Self::EMPTY;
        for text in s.split('+') {
            let gpu = text.parse::<Unit>()?.gpu().filter(|&gpu| gpu < Self::CAPACITY);
            let gpu = gpu.ok_or_else(bad)?;
            // One text for one set: ascending, no member twice.
            if gpus.0 >> gpu != 0 {
                return Err(bad());
            }
            gpus = gpus.with(gpu);
        }
        Ok(gpus)
    }
}

/// Parts of a copy in percent: of the direct path, then of each relay in ascending order. They add up to
/// 100, and none is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathShares([u8; Self::MAX_PATHS]);

impl PathShares {
    /// Paths that can have shares: the direct one and seven relays.
    pub const MAX_PATHS: usize = 8;

    /// Shares in percent, the direct path first; none unless they are 2 to 8, none is 0 and they add up to 100.
    pub fn new(percent: &[u8]) -> Option<Self> {
        let sum: u32 = percent.iter().map(|&share| u32::from(share)).sum();
        if percent.len() < 2
            || percent.len() > Self::MAX_PATHS
            || percent.contains(&0)
            || sum != 100
        {
            return None;
        }
        let mut shares = [0; Self::MAX_PATHS];
        shares.iter_mut().zip(percent).for_each(|(share, &percent)| *share = percent);
        Some(Self(shares))
    }
    /// The shares in percent, the direct path's first.
    pub fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        self.0.iter().copied().take_while(|&share| share > 0)
    }
}

impl fmt::Display for PathShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, share) in self.iter().enumerate() {
            write!(f, "{}{share}", if nth == 0 { "" } else { "+" })?;
        }
        Ok(())
    }
}

impl FromStr for PathShares {
    type Err = ParseError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let bad = || {
            let expected = "percent of the direct path and of each relay, such as 40+30+30";
            ParseError::new("shares", s, expected)
        };
        let percent = s.split('+').map(|share| {
            let is_plain = share.bytes().all(|b| b.is_ascii_digit()) && !share.starts_with('0');
            share.parse::<u8>().ok().filter(|_| is_plain).ok_or_else(bad)
        });
        Self::new(&percent.collect::<Result<Vec<u8>, _>>()?).ok_or_else(bad)
    }
}

/// What takes part in a copy over several paths: `gpu1+gpu2,4MiB`, with copy kernels `gpu1+gpu2,4MiB,blit`,
/// with shares `gpu1+gpu2,4MiB,40+30+30`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MultipathSpec {
    /// Relays that pass bytes on (`relay`), or further destinations (`copy-to-all`). Never empty.
    pub gpus: GpuSet,
    /// Bytes that a path takes at a time, [`Self::MIN_CHUNK`] to [`Self::MAX_CHUNK`].
    pub chunk: Bytes,
    /// What carries each leg.
    pub agent: CopyAgent,
    /// The part of each path. Without, each takes the next chunk when it has room, so that parts follow from
    /// speed; where paths share links that is not the best.
    pub shares: Option<PathShares>,
}

impl MultipathSpec {
    /// Least chunk. Below it the calls take longer than the bytes: 64 KiB pass a link of 55 GB/s in 1.2 us.
    pub const MIN_CHUNK: Bytes = Bytes::kib(64);
    /// Largest chunk; four of them are the staging memory of a relay.
    pub const MAX_CHUNK: Bytes = Bytes::mib(64);

    /// Chunks of staging memory on each relay: one fills while another is drained, and two cover the time
    /// that the host takes to see that.
    pub const SLOTS: u64 = 4;

    /// Parses what stands in the brackets of a mover's text.
    pub(crate) fn parse(text: &str) -> Result<Self, ParseError> {
        let bad = || {
            let expected = "GPUS,CHUNK[,blit][,SHARES], such as gpu1+gpu2,4MiB; a chunk has 64KiB to \
                            64MiB, and there is a share for the direct path and each relay";
            ParseError::new("paths", text, expected)
        };
        let (gpus, rest) = text.split_once(',').ok_or_else(bad)?;
        let mut words = rest.split(',').peekable();
        let chunk = words.next().unwrap_or_default();
        let agent = match words.next_if_eq(&"blit") {
            Some(_) => CopyAgent::Kernel,
            None => CopyAgent::Engine,
        };
        let shares = words.next().map(str::parse::<PathShares>).transpose()?;
        let gpus: GpuSet = gpus.parse()?;
        let has_all = |shares: PathShares| shares.iter().count() == gpus.len() as usize + 1;
        if words.next().is_some() || !shares.is_none_or(has_all) {
            return Err(bad());
        }
        let chunk: Bytes = chunk.parse()?;
        if chunk < Self::MIN_CHUNK || chunk > Self::MAX_CHUNK {
            return Err(bad());
        }
        Ok(Self { gpus, chunk, agent, shares })
    }

    /// Why a copy over relays cannot be that flow on any machine; none if it can.
    pub(crate) fn relay_misfit(&self, flow: &Flow, at: Unit) -> Option<&'static str> {
        if !self.has_usable_ends(flow) {
            return Some(
                "paths over relays go between pinned or registered host memory and a GPU, or between GPUs",
            );
        }
        let target = if flow.dst.unit.gpu().is_some() { flow.dst.unit } else { flow.src.unit };
        if target != at {
            return Some(
                "a relayed copy names the GPU that it goes to, or comes from if it goes to the host",
            );
        }
        let is_end = |unit: Unit| unit.gpu().is_some_and(|gpu| self.gpus.contains(gpu));
        (is_end(flow.src.unit) || is_end(flow.dst.unit))
            .then_some("a relay is neither the source nor the destination")
    }

    /// Why the same bytes to several GPUs cannot be that flow on any machine; none if they can.
    pub(crate) fn copy_to_all_misfit(&self, flow: &Flow, at: Unit) -> Option<&'static str> {
        if self.shares.is_some() {
            return Some("copy-to-all has no shares: each GPU takes as much as it can");
        }
        if !self.has_usable_ends(flow) || flow.dst.unit != at {
            return Some(
                "copy-to-all goes from pinned or registered host memory, or a GPU, to the GPU that it names and to all in brackets",
            );
        }
        let is_listed = |unit: Unit| unit.gpu().is_some_and(|gpu| self.gpus.contains(gpu));
        (is_listed(flow.src.unit) || is_listed(flow.dst.unit)).then_some(
            "the GPUs in brackets are further destinations: leave out source and destination",
        )
    }

    /// Whether copies of the runtime between these ends do not block their caller, and at least one end is a GPU.
    fn has_usable_ends(&self, flow: &Flow) -> bool {
        let usable = |unit: Unit, mem: MemKind| match unit {
            Unit::Gpu(_) => matches!(mem, MemKind::Vram | MemKind::VramFine),
            Unit::Numa(_) => {
                mem.is_registered()
                    || matches!(
                        mem,
                        MemKind::Pinned
                            | MemKind::PinnedWc
                            | MemKind::PinnedDefault
                            | MemKind::PinnedNonCoherent
                    )
            }
            Unit::Store(_) => false,
        };
        let ends = [flow.src, flow.dst];
        ends.iter().all(|end| usable(end.unit, end.mem))
            && ends.iter().any(|end| end.unit.gpu().is_some())
            && flow.src.rank == flow.dst.rank
            && flow.src.unit != flow.dst.unit
    }
}

impl fmt::Display for MultipathSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.gpus, self.chunk)?;
        if self.agent == CopyAgent::Kernel {
            f.write_str(",blit")?;
        }
        self.shares.map_or(Ok(()), |shares| write!(f, ",{shares}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mover;

    #[test]
    fn a_set_has_one_text() {
        let set: GpuSet = "gpu0+gpu3+gpu63".parse().unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 63]);
        assert_eq!((set.len(), set.to_string().as_str()), (3, "gpu0+gpu3+gpu63"));
        for wrong in ["", "gpu1+", "gpu1+gpu1", "gpu2+gpu1", "gpu64", "numa0", "gpu1,gpu2"] {
            assert!(wrong.parse::<GpuSet>().is_err(), "{wrong}");
        }
        assert_eq!(GpuSet::EMPTY.with(64), GpuSet::EMPTY);
        assert_eq!(set.without(3).without(64), GpuSet::EMPTY.with(0).with(63));
    }

    #[test]
    fn paths_fit_their_ends() {
        for fits in [
            "r0.numa0.pinned > r0.gpu0.vram by relay@gpu0[gpu1+gpu2,4MiB] x 1GiB",
            "r0.gpu0.vram > r0.numa0.registered by relay@gpu0[gpu1,2MiB] x 64MiB",
            "r0.gpu0.vram > r0.gpu2.vram by relay@gpu2[gpu1+gpu3,2MiB,blit] x 64MiB",
            "r0.gpu0.vram > r0.gpu2.vram by relay@gpu2[gpu1+gpu3,2MiB,blit,20+50+30] x 64MiB",
            "r0.gpu0.vram > r0.gpu2.vram by relay@gpu2[gpu1+gpu3,2MiB,20+50+30] x 64MiB",
            "r0.numa0.pinned > r0.gpu0.vram by copy-to-all@gpu0[gpu1+gpu2,8MiB] x 1GiB",
            "r0.gpu3.vram > r0.gpu0.vram by copy-to-all@gpu0[gpu1,8MiB] x 1GiB",
        ] {
            let flow: Flow = fits.parse().unwrap();
            assert_eq!((flow.misfit(), flow.to_string().as_str()), (None, fits));
        }
        for misfit in [
            // Pageable memory blocks the caller, a file is none, the host alone has no paths.
            "numa0.paged > gpu0.vram by relay@gpu0[gpu1,4MiB] x 1GiB",
            "numa0.pinned > numa1.pinned by relay@gpu0[gpu1,4MiB] x 1GiB",
            // The unit is not the end, or the relay is.
            "numa0.pinned > gpu0.vram by relay@gpu1[gpu2,4MiB] x 1GiB",
            "gpu0.vram > gpu1.vram by relay@gpu0[gpu2,4MiB] x 1GiB",
            "gpu0.vram > gpu1.vram by relay@gpu1[gpu0,4MiB] x 1GiB",
            "gpu0.vram > gpu0.vram by relay@gpu0[gpu1,4MiB] x 1GiB",
            "gpu0.vram > numa0.pinned by copy-to-all@gpu0[gpu1,4MiB] x 1GiB",
            "numa0.pinned > gpu0.vram by copy-to-all@gpu0[gpu0+gpu1,4MiB] x 1GiB",
        ] {
            assert!(misfit.parse::<Flow>().unwrap().misfit().is_some(), "{misfit}");
        }
        for no in [
            "relay@gpu0",
            "relay@gpu0[gpu1]",
            "relay@gpu0[,4MiB]",
            "relay@gpu0[gpu1,32KiB]",
            "relay@gpu0[gpu1,128MiB]",
            "relay@gpu0[gpu1,4MiB,dma]",
            "relay@numa0[gpu1,4MiB]",
            "copy-to-all@gpu0[gpu1,0B]",
            "relay@gpu0[gpu1,4MiB,100]",
            "relay@gpu0[gpu1,4MiB,60+50]",
            "relay@gpu0[gpu1,4MiB,100+0]",
            "relay@gpu0[gpu1,4MiB,050+50]",
            "relay@gpu0[gpu1+gpu2,4MiB,50+50]",
            "relay@gpu0[gpu1,4MiB,50+50,blit]",
        ] {
            assert!(no.parse::<Mover>().is_err(), "{no}");
        }
    }
}
