//! The engine of object stores: blocks as ranges of an object, as parts of an upload, or as objects.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use pathline_hal::CallError;
use rusty_s3::Method;

use super::super::engine::{BlockEngine, FinishedIo};
use super::super::own_name::OwnName;
use super::client::{BucketClient, MemorySpan, ObjectRequest};
use super::pool::{EndedRequest, RequestPool};

/// Where the blocks of a data set are.
#[derive(Debug, Clone)]
pub(super) enum ObjectLayout {
    /// In one object: reads are of ranges, writes are parts of an upload.
    Whole {
        /// The object.
        key: String,
        /// The upload that parts belong to; empty where nothing is written.
        upload: Arc<Mutex<String>>,
    },
    /// Each block is an object.
    Each {
        /// Keys without the number of the block.
        key: String,
    },
}

impl ObjectLayout {
    pub(super) fn whole(key: String) -> Self {
        Self::Whole { key, upload: Arc::default() }
    }

    /// The object, or what the keys of all objects begin with.
    pub(super) fn key(&self) -> &str {
        match self {
            Self::Whole { key, .. } | Self::Each { key } => key,
        }
    }

    /// The request for a block at an offset: `len` bytes of block number `offset / block`.
    pub(super) fn request(
        &self,
        write: bool,
        (offset, block): (u64, u64),
        memory: MemorySpan,
    ) -> ObjectRequest {
        let number = offset / block.max(1);
        let mut request = match self {
            Self::Each { key } => {
                let method = if write { Method::Put } else { Method::Get };
                ObjectRequest::new(method, format!("{key}{}", OwnName::Block(number)))
            }
            Self::Whole { key, upload } if write => {
                let upload = upload.lock().unwrap_or_else(PoisonError::into_inner).clone();
                ObjectRequest::new(Method::Put, key.as_str())
                    .with("partNumber", (number + 1).to_string())
                    .with("uploadId", upload)
            }
            Self::Whole { key, .. } => {
                let mut request = ObjectRequest::new(Method::Get, key.as_str());
                request.range = Some((offset, offset + (memory.bytes as u64).max(1) - 1));
                request
            }
        };
        let end = if write { &mut request.body } else { &mut request.sink };
        *end = memory;
        request
    }
}

/// Slots of one worker, each with its connection.
pub(super) struct ObjectEngine {
    pool: RequestPool<'static>,
    layout: ObjectLayout,
    writes: bool,
    /// Address of slot 0.
    memory: u64,
    block: u32,
    noted: Vec<(u32, bool, u64)>,
    /// The request of each slot, for errors.
    flying: Vec<Option<(bool, u64)>>,
    ended: Vec<EndedRequest>,
    failure: Option<CallError>,
    /// Version of HTTP, and whether connections stay open.
    about: String,
}

impl ObjectEngine {
    pub(super) fn new(
        pool: RequestPool<'static>,
        layout: ObjectLayout,
        writes: bool,
        (memory, block, slots): (u64, u32, u32),
        about: String,
    ) -> Self {
        let slots = slots as usize;
        Self {
            pool,
            layout,
            writes,
            memory,
            block,
            noted: Vec::with_capacity(slots),
            flying: vec![None; slots],
            ended: Vec::with_capacity(slots),
            failure: None,
            about,
        }
    }

    fn request(&self, slot: u32, write: bool, offset: u64) -> ObjectRequest {
        let block = u64::from(self.block);
        let address = self.memory + u64::from(slot) * block;
        let memory = MemorySpan { address, bytes: self.block as usize };
        self.layout.request(write, (offset, block), memory)
    }

    fn client(&self) -> &BucketClient {
        &self.pool.client
    }
}

impl BlockEngine for ObjectEngine {
    fn call(&self) -> &'static str {
        match (&self.layout, self.writes) {
            (_, false) => "GetObject",
            (ObjectLayout::Whole { .. }, true) => "UploadPart",
            (ObjectLayout::Each { .. }, true) => "PutObject",
        }
    }

    fn describe(&self) -> String {
        let what = match (&self.layout, self.writes) {
            (ObjectLayout::Whole { .. }, false) => "ranges of an object",
            (ObjectLayout::Whole { .. }, true) => "parts of an upload",
            (ObjectLayout::Each { .. }, _) => "an object for each block",
        };
        format!("S3, {what}, {}", self.about)
    }

    #[inline]
    fn push(&mut self, slot: u32, write: bool, offset: u64) {
        self.noted.push((slot, write, offset));
    }

    fn enter(&mut self, wait: u32, ended: &mut Vec<FinishedIo>) -> io::Result<()> {
        for nth in 0..self.noted.len() {
            let Some(&(slot, write, offset)) = self.noted.get(nth) else { break };
            let request = self.request(slot, write, offset);
            if let Some(flying) = self.flying.get_mut(slot as usize) {
                *flying = Some((write, offset));
            }
            self.pool.begin(slot, &request, &mut self.ended);
        }
        self.noted.clear();
        let went = self.pool.progress(wait as usize, &mut self.ended);
        for (slot, result) in std::mem::take(&mut self.ended) {
            let flying = self.flying.get_mut(slot as usize).and_then(Option::take);
            let (Err(failure), Some((write, offset))) = (result, flying) else {
                ended.push((slot, self.block.cast_signed()));
                continue;
            };
            let error = self.client().error(&self.request(slot, write, offset), &failure);
            self.failure.get_or_insert(error);
            ended.push((slot, -libc::EREMOTEIO));
        }
        let Err(failure) = went else { return Ok(()) };
        // No request in particular: the whole server is silent.
        let first = self.flying.iter().zip(0..).find_map(|(f, slot)| f.map(|f| (slot, f)));
        if let Some((slot, (write, offset))) = first {
            let error = self.client().error(&self.request(slot, write, offset), &failure);
            self.failure.get_or_insert(error);
        }
        Err(io::Error::from_raw_os_error(libc::ETIMEDOUT))
    }

    fn settle(&mut self) -> u32 {
        self.noted.clear();
        self.pool.abandon();
        self.flying.fill(None);
        0
    }

    fn explain(&mut self) -> Option<CallError> {
        self.failure.take()
    }
}
