//! Device memory that pathline copies through pinned memory for a library that takes host memory
//! only: a copy out of the GPU, a message of host memory, a copy into the other GPU.

use pathline_flow::{NoPath, RateDemand};
use pathline_schema::Collective;

use crate::exchange::{BufferPair, BufferPlace, ExchangeMember};
use crate::exchange_time::{AlgorithmTime, us};
use crate::mpi::MpiLibrary;
use crate::schedule;
use crate::transfer::{TransferRoute, rates};

const HOST: BufferPair = BufferPair::both(BufferPlace::Host);

/// The copies of one process in a repetition: start of the first, of each queued one, and of all
/// its bytes, ns.
struct StagingTime {
    first: f64,
    queued: f64,
    moving: f64,
}

impl StagingTime {
    /// The time of `count` copies, one after the other; 0 without bytes.
    fn of(&self, count: u32) -> f64 {
        let count = f64::from(count);
        if self.moving > 0.0 {
            self.first + (count - 1.0) * self.queued + count * self.moving
        } else {
            0.0
        }
    }
}

impl MpiLibrary<'_> {
    /// The copies of `bytes` of each member at once, out of its GPU or back.
    fn staging(
        &self,
        members: &[(ExchangeMember, f64)],
        out: bool,
    ) -> Result<Vec<StagingTime>, NoPath> {
        let paths: Vec<std::sync::Arc<TransferRoute>> = members
            .iter()
            .map(|&(member, bytes)| self.scene.staging(self.copier(), member, out, bytes as u64))
            .collect::<Result<_, _>>()?;
        let flows: Vec<RateDemand<'_>> = paths.iter().map(|path| path.demand()).collect();
        let rates = rates(&self.scene.capacities, &flows);
        let each = paths.iter().zip(&rates).zip(members);
        Ok(each
            .map(|((path, rate), (_, bytes))| StagingTime {
                first: path.alpha,
                queued: self.queued_copy(),
                moving: bytes / rate,
            })
            .collect())
    }

    /// Windows of staged messages: a sender copies its window while the receiver copies the previous
    /// one, and both wait for the messages between.
    pub(crate) fn staged_window(
        &self,
        pairs: &[(ExchangeMember, ExchangeMember)],
        window: u32,
        bytes: f64,
    ) -> Result<AlgorithmTime, NoPath> {
        let mut outcome = self.window(pairs, window, bytes, HOST)?;
        let (senders, receivers): (Vec<_>, Vec<_>) =
            pairs.iter().map(|&(a, b)| ((a, bytes), (b, bytes))).unzip();
        let (out, back) = (self.staging(&senders, true)?, self.staging(&receivers, false)?);
        outcome.steps.clear();
        for ((each, out), back) in outcome.each.iter_mut().zip(&out).zip(&back) {
            let (out, back) = (out.of(window), back.of(window));
            outcome.steps.push(format!(
                "{} out of the GPU, {} for the messages, {} into the other",
                us(out),
                us(*each * f64::from(window)),
                us(back)
            ));
            *each += out.max(back) / f64::from(window);
        }
        outcome.bound_by.clear();
        Ok(finished(outcome))
    }

    /// One staged message of each pair there and back: nothing overlaps.
    pub(crate) fn staged_ping(
        &self,
        pairs: &[(ExchangeMember, ExchangeMember)],
        bytes: f64,
    ) -> Result<AlgorithmTime, NoPath> {
        let mut outcome = self.ping(pairs, bytes, HOST)?;
        outcome.steps.clear();
        for back in [false, true] {
            let turned = pairs.iter().map(|&(a, b)| if back { (b, a) } else { (a, b) });
            let (from, to): (Vec<_>, Vec<_>) =
                turned.map(|(a, b)| ((a, bytes), (b, bytes))).unzip();
            let (out, into) = (self.staging(&from, true)?, self.staging(&to, false)?);
            for ((each, out), into) in outcome.each.iter_mut().zip(&out).zip(&into) {
                let (out, into) = (out.of(1), into.of(1));
                outcome.steps.push(format!(
                    "{} out of the GPU, {} into the other",
                    us(out),
                    us(into)
                ));
                *each += (out + into) / 2.0;
            }
        }
        Ok(finished(outcome))
    }

    /// A collective of host memory between copies of all ranks.
    pub(crate) fn staged_collective(
        &self,
        op: Collective,
        over: &[ExchangeMember],
        bytes: f64,
    ) -> Result<AlgorithmTime, NoPath> {
        let mut outcome = schedule::collective(self, op, over, bytes, BufferPlace::Host)?;
        let part = bytes / over.len().max(1) as f64;
        let root = |at: usize, yes: f64, no: f64| if at == 0 { yes } else { no };
        let sent = |at: usize| match op {
            Collective::Broadcast => root(at, bytes, 0.0),
            Collective::AllGather => part,
            Collective::Barrier => 0.0,
            _ => bytes,
        };
        let received = |at: usize| match op {
            Collective::Broadcast => root(at, 0.0, bytes),
            Collective::Reduce => root(at, bytes, 0.0),
            Collective::ReduceScatter => part,
            Collective::Barrier => 0.0,
            _ => bytes,
        };
        let copied = |share: &dyn Fn(usize) -> f64, out: bool| -> Result<f64, NoPath> {
            let members: Vec<(ExchangeMember, f64)> =
                over.iter().enumerate().map(|(at, &m)| (m, share(at))).collect();
            let moving: Vec<_> = members.into_iter().filter(|(_, bytes)| *bytes > 0.0).collect();
            Ok(self.staging(&moving, out)?.iter().map(|time| time.of(1)).fold(0.0, f64::max))
        };
        let (out, back) = (copied(&sent, true)?, copied(&received, false)?);
        outcome.steps.insert(0, format!("{} out of the GPUs", us(out)));
        outcome.steps.push(format!("{} into the GPUs", us(back)));
        outcome.each.iter_mut().for_each(|each| *each += out + back);
        outcome.bound_by.clear();
        Ok(finished(outcome))
    }
}

/// The outcome with totals that follow from those of each pair or rank.
fn finished(mut outcome: AlgorithmTime) -> AlgorithmTime {
    outcome.time = outcome.each.iter().copied().fold(0.0, f64::max);
    outcome.mean = outcome.each.iter().sum::<f64>() / outcome.each.len().max(1) as f64;
    outcome.algorithm = format!("copied through pinned memory by pathline, {}", outcome.algorithm);
    outcome
}
