//! The buffers of a driver, by address.

use std::collections::BTreeMap;

use pathline_hal::{CallError, CallResult};
use pathline_schema::{Bytes, Place};

/// Chains of at least this size must not hit the caches of their GPU.
pub(crate) const PAST_CACHES: Bytes = Bytes::mib(64);

/// A buffer that this driver allocated or registered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GpuBlock {
    pub(crate) bytes: u64,
    pub(crate) place: Place,
    /// Start and bytes of the pointer chain in it.
    pub(crate) chain: Option<(u64, u64)>,
}

/// All buffers by address.
#[derive(Debug, Default)]
pub(crate) struct GpuBlocks(pub(crate) BTreeMap<u64, GpuBlock>);

impl GpuBlocks {
    /// The buffer that contains an address, with its start.
    pub(crate) fn holding(&self, address: u64) -> Option<(u64, &GpuBlock)> {
        let (&start, block) = self.0.range(..=address).next_back()?;
        (address - start < block.bytes).then_some((start, block))
    }
    /// The same, mutable.
    pub(crate) fn holding_mut(&mut self, address: u64) -> Option<&mut GpuBlock> {
        let (&start, block) = self.0.range_mut(..=address).next_back()?;
        (address - start < block.bytes).then_some(block)
    }
    pub(crate) fn any(&self, is: impl Fn(&GpuBlock) -> bool) -> bool {
        self.0.values().any(is)
    }
    /// Address ranges of GPU memory.
    pub(crate) fn on_gpus(&self) -> Vec<std::ops::Range<u64>> {
        let of_gpu = self.0.iter().filter(|(_, block)| block.place.unit.gpu().is_some());
        of_gpu.map(|(&start, block)| start..start.saturating_add(block.bytes)).collect()
    }
    pub(crate) fn starts(&self) -> Vec<u64> {
        self.0.keys().copied().collect()
    }
    /// The buffer that contains a whole range; `None` if no buffer contains its start.
    pub(crate) fn range(
        &self,
        call: &str,
        address: u64,
        bytes: u64,
    ) -> CallResult<Option<GpuBlock>> {
        let Some((start, block)) = self.holding(address) else { return Ok(None) };
        let left = block.bytes - (address - start);
        if bytes <= left {
            return Ok(Some(*block));
        }
        let thing = format!("{} at {address:#x}", Bytes(bytes));
        Err(CallError::unsupported(
            call,
            thing,
            format!("the buffer there ends {} after that", Bytes(left)),
        ))
    }
}

#[cfg(test)]
mod tests {
    use pathline_schema::{MemKind, Unit};

    use super::*;

    #[test]
    fn an_address_finds_its_buffer() {
        let mut blocks = GpuBlocks::default();
        let place = Place::new(Unit::Gpu(0), MemKind::Vram);
        blocks.0.insert(1000, GpuBlock { bytes: 100, place, chain: None });
        blocks.0.insert(2000, GpuBlock { bytes: 1, place, chain: None });
        assert_eq!(blocks.holding(1099).map(|(s, _)| s), Some(1000));
        assert!(blocks.holding(999).is_none() && blocks.holding(1100).is_none());
        assert!(blocks.holding_mut(1099).is_some() && blocks.holding_mut(1100).is_none());
        assert!(blocks.range("x", 1000, 100).unwrap().is_some());
        assert!(blocks.range("x", 1500, 1).unwrap().is_none());
        let error = blocks.range("x", 1050, 51).unwrap_err();
        assert!(error.reason.contains("ends 50B after"), "{error}");
        assert!(blocks.range("x", 1050, u64::MAX).is_err());
    }
}
