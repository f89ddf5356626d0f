//! Whether a copy is given to the worker: its ends, and whether several paths may help.

use pathline_multipath::CopyMode;
use pathline_schema::{GpuSet, Unit};

use crate::copy_error::CopyError;
use crate::ends::PlainReason;
use crate::node::CopyNode;
use crate::orders::OrderedCopy;
use crate::ranges::check_ranges;

impl CopyNode {
    /// The copy to several GPUs; none if plain copies are as good.
    pub(crate) fn plan_to_all(
        &self,
        dst: &[(i32, u64)],
        src: u64,
        bytes: usize,
        is_enqueued: bool,
    ) -> Result<Option<OrderedCopy>, CopyError> {
        if dst.len() < 2 || bytes < self.shared.threshold {
            return Ok(None);
        }
        let calls = &*self.calls;
        let Ok(src) = self.finder.find(calls, src, bytes as u64)? else { return Ok(None) };
        let mut copy = OrderedCopy { src, dst: Vec::new(), bytes: bytes as u64, chosen: None };
        let mut gpus = GpuSet::EMPTY;
        for (nth, &(device, address)) in dst.iter().enumerate() {
            let Ok(end) = self.finder.find(calls, address, bytes as u64)? else { return Ok(None) };
            let gpu = end.end.unit.gpu().filter(|&gpu| self.finder.gpu(device) == Some(gpu));
            let Some(gpu) = gpu else {
                let text =
                    format!("destination {nth} at {address:#x} is no memory of GPU {device}");
                return Err(CopyError::invalid(text));
            };
            if gpus.contains(gpu) || gpu >= GpuSet::CAPACITY || src.end.unit == Unit::Gpu(gpu) {
                return Ok(None);
            }
            gpus = gpus.with(gpu);
            copy.dst.push(end);
        }
        let mode = if is_enqueued { CopyMode::Enqueued } else { CopyMode::Driven };
        Ok(self.is_worth(&copy, mode).then_some(copy))
    }

    /// The ends of a copy that several paths may help.
    ///
    /// # Errors
    /// Outer: no copy has such ends. Inner: why the copy is plain.
    pub(crate) fn plan_copy(
        &self,
        dst: u64,
        src: u64,
        bytes: usize,
        mode: CopyMode,
    ) -> Result<Result<OrderedCopy, PlainReason>, CopyError> {
        check_ranges(dst, src, bytes)?;
        if bytes == 0 {
            return Ok(Err("no bytes"));
        }
        let find = |address| self.finder.find(&*self.calls, address, bytes as u64);
        let (dst, src) = match (find(dst)?, find(src)?) {
            (Ok(dst), Ok(src)) => (dst, src),
            (Err(reason), _) | (_, Err(reason)) => return Ok(Err(reason)),
        };
        if dst.end.unit == src.end.unit || (dst.end.unit.gpu(), src.end.unit.gpu()) == (None, None)
        {
            return Ok(Err("both ends are in the same memory"));
        }
        let copy = OrderedCopy { src, dst: vec![dst], bytes: bytes as u64, chosen: None };
        Ok(if self.is_worth(&copy, mode) { Ok(copy) } else { Err("several paths are no faster") })
    }

    /// Whether a plan over several paths exists, or may exist once its ends are probed.
    fn is_worth(&self, copy: &OrderedCopy, mode: CopyMode) -> bool {
        let Some(plan) = self.shared.plans.get(&copy.key()) else { return true };
        self.shared.choose(&plan, copy, mode).is_some()
    }
}
