//! Hardware of stores and host cost of I/O: `[[store]]` and `[io]` of a machine description.
//!
//! A store is a row of targets: the drives of a node, or the servers of a parallel file system.
//! Blocks are cut at stripes and at the largest request; a request passes, one after the other, the
//! network to its target (if there is one), the target's front (limits requests/s), one of its
//! channels (a latency each), its bus (limits bytes/s) and the link of the node (if the
//! target is beyond one). See docs/understand/model.md.

use pathline_schema::{Bytes, IoCache, IoEngine, IoOp, IoSpec, MemKind, Ns, Rate};
use serde::Deserialize;

use crate::model::{bytes, count, gbs, gib, maybe_gbs, some_time, time};

/// The kind of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// Drives of the node.
    Nvme,
    /// A parallel file system, whose files are striped over servers.
    Striped,
    /// An object store: its targets are servers, and a request has one block.
    Object,
}

/// One `[[store]]`: a place for files, and its hardware.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreModel {
    /// Drives of the node, or a parallel file system.
    pub kind: StoreKind,
    /// Its mount point.
    pub path: String,
    /// Model of the drives or servers.
    #[serde(default)]
    pub model: String,
    /// Type of its file system.
    pub file_system: String,
    /// The NUMA domain that its drives hang on: `numa1`.
    #[serde(default)]
    pub near: Option<String>,
    /// Room for files, GiB.
    #[serde(deserialize_with = "gib")]
    pub capacity_gib: u64,
    /// Drives, or servers that a file is striped over.
    #[serde(default = "one", deserialize_with = "count")]
    pub targets: u32,
    /// Bytes on one target before the next has its turn.
    #[serde(default = "whole", deserialize_with = "bytes")]
    pub stripe_bytes: u64,
    /// Requests that a target works on at once.
    #[serde(deserialize_with = "count")]
    pub channels: u32,
    /// Time that a request keeps a channel, before its bytes move.
    #[serde(deserialize_with = "some_time")]
    pub read_us: f64,
    /// The same of a write.
    #[serde(deserialize_with = "some_time")]
    pub write_us: f64,
    /// How far these times spread: standard deviation over mean. None is below `1 - spread` of the
    /// mean; the rest is exponential.
    #[serde(default, deserialize_with = "spread")]
    pub spread: f64,
    /// Bytes that a target reads, GB/s.
    #[serde(deserialize_with = "gbs")]
    pub read_gbs: f64,
    /// Bytes that it writes, GB/s.
    #[serde(deserialize_with = "gbs")]
    pub write_gbs: f64,
    /// Requests to read that a target's front takes in a second.
    #[serde(deserialize_with = "some_time")]
    pub read_iops: f64,
    /// Requests to write.
    #[serde(deserialize_with = "some_time")]
    pub write_iops: f64,
    /// Round trip to a target, without the transfer of the bytes.
    #[serde(default, deserialize_with = "time")]
    pub network_us: f64,
    /// Limit of the node over all targets, GB/s; `None` without one.
    #[serde(default, deserialize_with = "maybe_gbs")]
    pub client_gbs: Option<f64>,
    /// The largest request.
    #[serde(deserialize_with = "bytes")]
    pub max_request_bytes: u64,
    /// Stretches of memory that one request may have: pages of the buffer.
    #[serde(deserialize_with = "count")]
    pub max_segments: u32,
    /// Queues of the device.
    #[serde(default = "one", deserialize_with = "count")]
    pub queues: u32,
    /// Whether it has queues that can be polled.
    #[serde(default)]
    pub polls: bool,
    /// Costs of metadata operations; `None` if they are not known.
    #[serde(default)]
    pub meta: Option<MetaCosts>,
}

/// `[store.meta]`: the file system's service for names, folders and attributes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetaCosts {
    /// Time of creating a file, without its content, the calls and the round trip.
    #[serde(deserialize_with = "some_time")]
    pub create_us: f64,
    /// The same of asking for attributes.
    #[serde(deserialize_with = "some_time")]
    pub stat_us: f64,
    /// Of opening and closing a file.
    #[serde(deserialize_with = "some_time")]
    pub open_us: f64,
    /// Of removing a file.
    #[serde(deserialize_with = "some_time")]
    pub delete_us: f64,
    /// Of creating a folder.
    #[serde(deserialize_with = "some_time")]
    pub mkdir_us: f64,
    /// Of removing a folder.
    #[serde(deserialize_with = "some_time")]
    pub rmdir_us: f64,
    /// Operations that the service takes in a second.
    #[serde(deserialize_with = "some_time")]
    pub ops_per_s: f64,
    /// Entries that one folder gets or loses in a second.
    #[serde(deserialize_with = "some_time")]
    pub folder_changes_per_s: f64,
}

/// `[io]`: what I/O costs the CPU that does it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IoCosts {
    /// A call of the kernel, whatever it does.
    #[serde(deserialize_with = "time")]
    pub syscall_us: f64,
    /// From a completion until a thread that slept runs again.
    #[serde(deserialize_with = "time")]
    pub wake_us: f64,
    /// A request, in file system, block layer, driver and interrupt.
    #[serde(deserialize_with = "time")]
    pub request_us: f64,
    /// A request whose completion is polled for.
    #[serde(deserialize_with = "time")]
    pub polled_request_us: f64,
    /// Holding a page of memory that is not registered for one I/O past the page cache; of huge
    /// pages one for each.
    #[serde(deserialize_with = "time")]
    pub page_us: f64,
    /// Opening a file, or setting up a ring or context.
    #[serde(deserialize_with = "time")]
    pub open_us: f64,
    /// Further cost of an I/O, by engine.
    pub engine: Vec<EngineCost>,
}

/// One `[[io.engine]]`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineCost {
    /// The engine: `uring`, `uring-plain`, `uring-poll`, `aio`, `sync`, `mmap`, `s3`.
    pub name: IoEngine,
    /// In user mode.
    #[serde(deserialize_with = "time")]
    pub user_us: f64,
    /// In the kernel.
    #[serde(deserialize_with = "time")]
    pub kernel_us: f64,
}

fn one() -> u32 {
    1
}
fn whole() -> u64 {
    1 << 50
}
fn spread<'de, D: serde::Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    let value = f64::deserialize(d)?;
    if (0.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        let reason = format!("{value} is out of range; expected a spread from 0 to 1");
        Err(serde::de::Error::custom(reason))
    }
}

/// A part of a block that one target serves as one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetRequest {
    /// Number of the target.
    pub target: u32,
    /// Its bytes.
    pub bytes: u64,
}

impl StoreModel {
    /// The number of the NUMA domain that it hangs on.
    pub fn numa(&self) -> Option<u32> {
        self.near.as_deref()?.strip_prefix("numa")?.parse().ok()
    }
    /// Room for files.
    pub fn capacity(&self) -> Bytes {
        Bytes::gib(self.capacity_gib)
    }
    /// The largest request, in bytes, from memory in pages of `page` bytes: each page is a segment,
    /// as if no two pages were contiguous.
    pub fn largest_request(&self, page: u64) -> u64 {
        let of_pages = page.saturating_mul(u64::from(self.max_segments));
        self.max_request_bytes.min(of_pages).max(1)
    }
    /// The requests that a block at an offset of a file becomes, with its memory in pages of such a
    /// size.
    pub fn requests(
        &self,
        offset: u64,
        block: u64,
        page: u64,
    ) -> impl Iterator<Item = TargetRequest> {
        let (largest, stripe) = (self.largest_request(page), self.stripe_bytes.max(1));
        let targets = u64::from(self.targets.max(1));
        let end = offset.saturating_add(block);
        let mut at = offset;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let to_stripe = stripe - at % stripe;
            let bytes = largest.min(to_stripe).min(end - at);
            let target = (at / stripe % targets) as u32;
            at += bytes;
            Some(TargetRequest { target, bytes })
        })
    }
    /// Mean time of a request on its channel.
    pub fn latency(&self, writes: bool) -> Ns {
        Ns::us(if writes { self.write_us } else { self.read_us })
    }
    /// Rate of one target's bus.
    pub fn rate(&self, writes: bool) -> Rate {
        Rate(if writes { self.write_gbs } else { self.read_gbs })
    }
    /// Time of a request at a target's front.
    pub fn turn(&self, writes: bool) -> Ns {
        Ns(1e9 / if writes { self.write_iops } else { self.read_iops })
    }

    /// The most bytes that all targets move, and what holds them: buses or the node's link.
    pub fn ceiling(&self, writes: bool) -> (Rate, &'static str) {
        let all = self.rate(writes).0 * f64::from(self.targets);
        match self.client_gbs {
            Some(link) if link < all => (Rate(link), "the node's link to its servers"),
            _ => (Rate(all), "its rate"),
        }
    }
    /// The most requests that all targets take in a second, and what holds them: fronts or channels.
    pub fn most_requests(&self, writes: bool) -> (f64, &'static str) {
        let targets = f64::from(self.targets);
        let fronts = 1e9 / self.turn(writes).0;
        let channels = f64::from(self.channels) * 1e9 / self.latency(writes).0;
        if channels < fronts {
            (channels * targets, "its channels over their latency")
        } else {
            (fronts * targets, "the requests that it takes in a second")
        }
    }
}

/// CPU time of one I/O in the thread that submits it, by part.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct IoCpu {
    /// A call of the kernel.
    pub call: Ns,
    /// Each I/O in user mode.
    pub user: Ns,
    /// Each I/O in the kernel, requests and pages included.
    pub kernel: Ns,
    /// From a completion until the thread runs; 0 if it polls.
    pub wake: Ns,
    /// Opening a file or a ring.
    pub open: Ns,
    /// Holding a page.
    pub hold: Ns,
}

impl IoCpu {
    /// CPU time that one I/O takes from its thread, with one call per `batch` I/Os.
    pub fn each(&self, batch: u32) -> Ns {
        Ns(self.call.0 / f64::from(batch.max(1)) + self.user.0 + self.kernel.0)
    }
}

impl IoCosts {
    /// Of an engine; none if the description has no row for it.
    pub fn engine(&self, engine: IoEngine) -> Option<&EngineCost> {
        self.engine.iter().find(|row| row.name == engine)
    }
    /// CPU cost of one I/O of `block` that is cut into `requests`, from memory in pages of `page`
    /// bytes; `None` if the engine has no costs.
    pub fn io_cpu(&self, io: &IoSpec, block: Bytes, requests: usize, page: u64) -> Option<IoCpu> {
        let engine = self.engine(io.engine)?;
        let polled = io.engine == IoEngine::UringPoll;
        let direct = io.cache == IoCache::Direct;
        let registered = matches!(io.engine, IoEngine::Uring | IoEngine::UringPoll);
        let request = if polled { self.polled_request_us } else { self.request_us };
        // Reads from the page cache, and writes into it, make no request.
        let asks = direct || (io.cache == IoCache::Cold && io.op == IoOp::Read);
        let requests = if asks { requests as f64 } else { 0.0 };
        // Blocks of objects pass sockets: no page of theirs is held.
        let held = direct && !registered && io.engine != IoEngine::S3;
        let pages = if held { block.0.div_ceil(page.max(1)) as f64 } else { 0.0 };
        Some(IoCpu {
            call: Ns::us(self.syscall_us),
            user: Ns::us(engine.user_us),
            kernel: Ns::us(engine.kernel_us + requests * request + pages * self.page_us),
            wake: Ns::us(if polled { 0.0 } else { self.wake_us }),
            open: Ns::us(self.open_us),
            hold: Ns::us(self.page_us),
        })
    }
}

/// Size of the pages that memory of a kind is in.
pub(crate) fn page_of(mem: MemKind, page: u64, huge: u64) -> u64 {
    // Runtimes give pinned memory in huge pages where it is large; registered memory is as it was.
    if matches!(mem, MemKind::Huge | MemKind::Pinned) { huge } else { page }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> StoreModel {
        toml::from_str(
            "kind = 'nvme'\npath = '/x'\nfile_system = 'xfs'\ncapacity_gib = 100\ntargets = 2\n\
             stripe_bytes = 524288\nchannels = 64\nread_us = 80\nwrite_us = 20\nread_gbs = 5\n\
             write_gbs = 2\nread_iops = 1e6\nwrite_iops = 2e5\nmax_request_bytes = 1048576\n\
             max_segments = 127",
        )
        .expect("a store")
    }

    /// 127 segments of 4 KiB are 508 KiB: each half of 1 MiB, on its own drive, is cut into 508
    /// and 4 KiB. In huge pages the stripe alone cuts.
    #[test]
    fn pages_cut_requests() {
        let store = store();
        let of = |offset, block, page| -> Vec<(u32, u64)> {
            store.requests(offset, block, page).map(|r| (r.target, r.bytes)).collect()
        };
        let kib = 1 << 10;
        assert_eq!(
            of(0, 1024 * kib, 4 * kib),
            [(0, 508 * kib), (0, 4 * kib), (1, 508 * kib), (1, 4 * kib)]
        );
        assert_eq!(of(0, 1024 * kib, 2048 * kib), [(0, 512 * kib), (1, 512 * kib)]);
        // A block that starts 4 KiB before the end of a stripe.
        assert_eq!(of(508 * kib, 8 * kib, 4 * kib), [(0, 4 * kib), (1, 4 * kib)]);
        assert_eq!(of(1024 * kib, 4 * kib, 4 * kib), [(0, 4 * kib)]);
        assert_eq!(of(0, 0, 4096), []);
    }

    /// 64 channels of 80 us take 800 thousand reads a second, below the front's million; of 20 us
    /// 3.2 million writes, of which the front takes 200 thousand.
    #[test]
    fn most_requests() {
        let store = store();
        assert_eq!(store.most_requests(false), (1.6e6, "its channels over their latency"));
        let (writes, why) = store.most_requests(true);
        assert!((writes - 4e5).abs() < 1e-3, "{writes}");
        assert_eq!(why, "the requests that it takes in a second");
        assert_eq!(store.ceiling(false).0, Rate(10.0));
    }

    /// A call of 0.4 us for 8 I/Os is 0.05 us each, plus 0.1 in user mode, 0.5 in the kernel,
    /// a request of 0.6. Without registration 256 pages of 0.02 us are 5.12 us of a block of 1 MiB.
    #[test]
    fn cost_of_an_io() {
        let costs: IoCosts = toml::from_str(
            "syscall_us = 0.4\nwake_us = 1.5\nrequest_us = 0.6\npolled_request_us = 0.3\n\
             page_us = 0.02\nopen_us = 10\n\
             [[engine]]\nname = 'uring'\nuser_us = 0.1\nkernel_us = 0.5\n\
             [[engine]]\nname = 'uring-plain'\nuser_us = 0.1\nkernel_us = 0.5",
        )
        .expect("costs");
        let case = |by: &str| -> IoSpec {
            let text = format!("r0.store0.file > r0.numa0.paged by {by} x 4KiB");
            let flow: pathline_schema::Flow = text.parse().expect("a flow");
            *flow.by.io().expect("I/O")
        };
        let io = case("uring@numa0[rand-read,direct,shared,2GiB,q32,n8,t1]");
        let cpu = costs.io_cpu(&io, Bytes(4096), 1, 4096).expect("a row");
        assert!((cpu.each(8).0 - 1250.0).abs() < 1e-9, "{:?}", cpu.each(8));
        let io = case("uring-plain@numa0[rand-read,direct,shared,2GiB,q32,n8,t1]");
        let cpu = costs.io_cpu(&io, Bytes::mib(1), 2, 4096).expect("a row");
        assert!((cpu.kernel.0 - (500.0 + 2.0 * 600.0 + 5120.0)).abs() < 1e-9, "{cpu:?}");
        let io = case("aio@numa0[rand-read,direct,shared,2GiB,q32,n8,t1]");
        assert_eq!(costs.io_cpu(&io, Bytes(4096), 1, 4096), None);
    }
}
