//! What one core of a description moves, for models of copies that several cores share.

use crate::desc::MachineDesc;

/// Rates of one core.
#[derive(Debug, Clone, PartialEq)]
pub struct CoreRates {
    /// Traffic with memory that it keeps going, GB/s.
    pub memory_gbs: f64,
    /// Size from which the C library's memcpy stores around the caches, in bytes.
    pub memcpy_streams_from: f64,
    /// A base page, in bytes.
    pub page: f64,
    /// Its caches, the smallest first.
    pub caches: Vec<CoreCache>,
}

/// A cache as one core sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CoreCache {
    /// 1 is the nearest.
    pub level: u32,
    /// Its size in bytes.
    pub bytes: f64,
    /// Number of cores that share it.
    pub shared_by: u32,
    /// Bytes read and written by 32 B accesses, GB/s.
    pub gbs: f64,
}

impl MachineDesc {
    /// The rates of one of its cores.
    pub fn core_rates(&self) -> CoreRates {
        let cpu = &self.model.cpu;
        let caches = cpu.cache.iter().map(|cache| CoreCache {
            level: cache.level,
            bytes: cache.bytes as f64,
            shared_by: cache.shared_by,
            gbs: cache.core_gbs,
        });
        CoreRates {
            memory_gbs: cpu.core_gbs,
            memcpy_streams_from: cpu.memcpy_streams_from_bytes as f64,
            page: self.topology.host.page.0 as f64,
            caches: caches.collect(),
        }
    }
}
