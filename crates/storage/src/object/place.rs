//! A bucket as a place for data sets: what pathline makes there lies under a key of this process,
//! and goes when the place does.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use pathline_hal::{CallError, CallResult};
use pathline_host::{files, pattern};
use pathline_schema::{Bytes, Severity, StoreFacts};
use rusty_s3::Method;

use super::super::scratch_dir::SweepResult;
use super::super::store_place::StoreRequest;
use super::client::{BucketClient, MemorySpan, ObjectRequest, SCHEME};
use super::engine::ObjectLayout;
use super::pool::RequestPool;
use super::reply::{first_text, xml_texts};

/// What keys of this program begin with.
const PREFIX: &str = "pathline-storage-";
/// Requests at once while data sets are made and removed.
const AT_ONCE: u32 = 8;
/// Bytes of one request while a data set is made or compared.
const PIECE: u64 = 8 << 20;
/// Default size of an object: a few seconds over 1 Gbit/s.
const USUAL_SPAN: Bytes = Bytes::mib(256);

/// A bucket.
#[derive(Debug)]
pub(crate) struct BucketPlace {
    pub(super) client: Arc<BucketClient>,
    /// Version of HTTP, and whether connections stay open.
    pub(super) about: String,
    /// What the keys of this process begin with.
    run: String,
    control: RefCell<RequestPool>,
    /// Bytes of each data set that hold their pattern, by key.
    laid: RefCell<BTreeMap<String, u64>>,
    /// Whether anything was made.
    used: Cell<bool>,
    trees: Cell<u64>,
}

/// Whether a path names a bucket.
pub(crate) fn is_bucket(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with(SCHEME))
}

/// A process by what the kernel calls it: boot, PID namespace, number and start.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RunOwner {
    /// Boot and namespace.
    host: String,
    pid: u32,
    /// Clock ticks from the boot to its start.
    start: u64,
}

/// Start of a process in clock ticks since the boot: field 22 of `/proc/PID/stat`.
fn start_of(pid: u32) -> Option<u64> {
    let stat = files::text(format!("/proc/{pid}/stat"))?;
    // The name of the program may have spaces and brackets.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

impl RunOwner {
    fn this() -> Self {
        let boot = files::text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot: String = boot.chars().filter(char::is_ascii_hexdigit).take(12).collect();
        let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let namespace: String =
            namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
        let pid = std::process::id();
        Self { host: format!("{boot}{namespace}"), pid, start: start_of(pid).unwrap_or(0) }
    }

    fn key(&self) -> String {
        format!("{PREFIX}{}-{}-{}/", self.host, self.pid, self.start)
    }

    fn parse(key: &str) -> Option<Self> {
        let mut parts = key.strip_prefix(PREFIX)?.strip_suffix('/')?.split('-');
        let host = parts.next()?.to_owned();
        let (pid, start) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        parts.next().is_none().then_some(Self { host, pid, start })
    }

    /// Whether it ran on this boot of this host and has ended. Of other hosts that is not known.
    fn has_ended(&self, here: &Self) -> bool {
        self.host == here.host && start_of(self.pid) != Some(self.start)
    }
}

/// A key below the prefix that the user named.
fn below(prefix: &str, key: &str) -> String {
    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}/{key}") }
}

impl BucketPlace {
    /// Asks for the bucket. What stands against it is in the facts.
    pub(crate) fn new(asked: &StoreRequest) -> (Option<Self>, StoreFacts) {
        let path = asked.path.display().to_string();
        let mut facts = StoreFacts {
            path: path.clone(),
            file_system: StoreFacts::OBJECTS.to_owned(),
            span: asked.span.unwrap_or(USUAL_SPAN),
            ..StoreFacts::default()
        };
        let client = match BucketClient::new(&path, asked.endpoint.as_deref()) {
            Ok(client) => Arc::new(client),
            Err(why) => {
                facts.without = Some(why);
                return (None, facts);
            }
        };
        facts.options = format!("endpoint {}, region {}", client.endpoint, client.region());
        match Self::of_client(client) {
            Ok((place, server)) => {
                facts.model = server;
                (Some(place), facts)
            }
            Err(error) => {
                let way_out = Some(error.way_out.as_str()).filter(|text| !text.is_empty());
                let way_out = way_out.map_or(String::new(), |text| format!("; {text}"));
                facts.without = Some(format!("{}: {}{way_out}", error.call, error.reason));
                (None, facts)
            }
        }
    }

    /// The place of a client, and what its server calls itself. Asks for the bucket.
    pub(super) fn of_client(client: Arc<BucketClient>) -> CallResult<(Self, String)> {
        let mut control = RequestPool::new(Arc::clone(&client), AT_ONCE);
        let request = ObjectRequest::new(Method::Head, "");
        let asked = control.ask_head(&request);
        let head = client.checked(&request, asked)?;
        let how = if head.closes { "a connection for each request" } else { "keep-alive" };
        let about = format!("HTTP/1.1, {how}");
        let run = below(&client.prefix, &RunOwner::this().key());
        let place = Self {
            client,
            about,
            run,
            control: RefCell::new(control),
            laid: RefCell::default(),
            used: Cell::new(false),
            trees: Cell::new(0),
        };
        Ok((place, head.server))
    }

    /// Removes what processes of this host have left that were killed.
    pub(crate) fn sweep(path: &Path, endpoint: Option<&str>) -> SweepResult {
        let mut swept = SweepResult::default();
        let text = path.display().to_string();
        let unseen = |why: String| SweepResult { unseen: Some(why), ..SweepResult::default() };
        let client = match BucketClient::new(&text, endpoint) {
            Ok(client) => Arc::new(client),
            Err(why) => return unseen(why),
        };
        let mut control = RequestPool::new(Arc::clone(&client), AT_ONCE);
        let mut runs = Vec::new();
        let listed = list(&mut control, &below(&client.prefix, PREFIX), Some("/"), &mut |text| {
            if text.parent == "CommonPrefixes" && text.name == "Prefix" {
                runs.push(text.text);
            }
        });
        if let Err(error) = listed {
            return unseen(error.to_string());
        }
        let here = RunOwner::this();
        for run in runs {
            let name = run.strip_prefix(&client.prefix).unwrap_or(&run).trim_start_matches('/');
            if !RunOwner::parse(name).is_some_and(|owner| owner.has_ended(&here)) {
                continue;
            }
            let folder = PathBuf::from(format!("{}/{name}", text.trim_end_matches('/')));
            match remove(&mut control, &run) {
                Ok(()) => swept.removed.push(folder),
                Err(error) => swept.left.push((folder, error.to_string())),
            }
        }
        swept
    }

    /// A key of this process.
    pub(super) fn key(&self, name: &str) -> String {
        self.used.set(true);
        format!("{}{name}", self.run)
    }

    /// What all keys of a new tree of small objects begin with.
    pub(super) fn tree(&self) -> String {
        self.trees.set(self.trees.get() + 1);
        self.key(&format!("tree-{}/", self.trees.get()))
    }

    /// Removes everything under a key.
    pub(super) fn remove(&self, key: &str) -> CallResult<()> {
        remove(&mut self.control.borrow_mut(), key)
    }

    /// Number of objects under a key.
    pub(super) fn count(&self, key: &str) -> CallResult<u64> {
        let mut count = 0;
        list(&mut self.control.borrow_mut(), key, None, &mut |text| {
            count += u64::from(text.parent == "Contents" && text.name == "Key");
        })?;
        Ok(count)
    }

    /// Makes a data set of `size` bytes with a pattern, unless it is there. `block` is that of objects
    /// for each block.
    pub(super) fn lay(
        &self,
        layout: &ObjectLayout,
        (size, block): (u64, u64),
        seed: u64,
    ) -> CallResult<()> {
        if self.laid.borrow().get(layout.key()).is_some_and(|&laid| laid >= size) {
            return Ok(());
        }
        self.laid.borrow_mut().remove(layout.key());
        match layout {
            ObjectLayout::Each { .. } => self.upload(layout, size / block * block, block, seed)?,
            ObjectLayout::Whole { key, .. } if size <= PIECE => {
                let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
                pattern::fill_part(&mut bytes, 0, seed);
                let mut request = ObjectRequest::new(Method::Put, key.as_str());
                request.body = MemorySpan { address: bytes.as_ptr() as u64, bytes: bytes.len() };
                self.control.borrow_mut().call(&request)?;
            }
            ObjectLayout::Whole { .. } => {
                self.begin_upload(layout)?;
                self.upload(layout, size, PIECE, seed)?;
                self.complete(layout, size.div_ceil(PIECE))?;
            }
        }
        self.laid.borrow_mut().insert(layout.key().to_owned(), size);
        Ok(())
    }

    /// Writes the first `size` bytes of a data set, in pieces: parts of its upload or objects.
    pub(super) fn upload(
        &self,
        layout: &ObjectLayout,
        size: u64,
        piece: u64,
        seed: u64,
    ) -> CallResult<()> {
        let mut buffers: Vec<Vec<u8>> = (0..AT_ONCE).map(|_| Vec::new()).collect();
        let mut at = 0;
        self.control.borrow_mut().call_all(|slot| {
            let buffer = buffers.get_mut(slot as usize).filter(|_| at < size)?;
            buffer.resize(usize::try_from(piece.min(size - at)).unwrap_or(0), 0);
            pattern::fill_part(buffer, at, seed);
            let memory = MemorySpan { address: buffer.as_ptr() as u64, bytes: buffer.len() };
            let request = layout.request(true, (at, piece), memory);
            at += piece;
            Some(request)
        })
    }

    /// Begins an upload to which parts belong from now on.
    pub(super) fn begin_upload(&self, layout: &ObjectLayout) -> CallResult<()> {
        let ObjectLayout::Whole { key, upload } = layout else { return Ok(()) };
        let request = ObjectRequest::new(Method::Post, key.as_str()).with("uploads", "");
        let answer = self.control.borrow_mut().call(&request)?;
        let id = first_text(&String::from_utf8_lossy(&answer), "UploadId");
        let id =
            id.filter(|id| id.len() <= 1024).ok_or_else(|| self.unlike(&request, "no UploadId"))?;
        *upload.lock().unwrap_or_else(PoisonError::into_inner) = id;
        Ok(())
    }

    fn unlike(&self, request: &ObjectRequest, why: &str) -> CallError {
        let reason = format!("the answer has {why}");
        CallError::new(Severity::Unsupported, request.call(), self.client.thing(request), reason)
            .or_try("see whether --s3-endpoint names an S3 server")
    }

    /// Ends an upload with its first parts. Whether there were any.
    pub(super) fn complete(&self, layout: &ObjectLayout, parts: u64) -> CallResult<bool> {
        let ObjectLayout::Whole { key, upload } = layout else { return Ok(false) };
        let id = upload.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut control = self.control.borrow_mut();
        let (mut chosen, mut marker) = (String::new(), String::from("0"));
        loop {
            let request = ObjectRequest::new(Method::Get, key.as_str())
                .with("max-parts", "1000")
                .with("part-number-marker", marker.as_str())
                .with("uploadId", id.as_str());
            let answer = control.call(&request)?;
            let texts = xml_texts(&String::from_utf8_lossy(&answer));
            let (mut number, mut more) = (0u64, false);
            for text in texts {
                match (text.parent.as_str(), text.name.as_str()) {
                    ("Part", "PartNumber") => number = text.text.trim().parse().unwrap_or(0),
                    ("Part", "ETag") if (1..=parts).contains(&number) => {
                        let tag = quick_xml::escape::escape(text.text.trim());
                        chosen.push_str(&format!(
                            "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>"
                        ));
                    }
                    (_, "IsTruncated") => more = text.text.trim() == "true",
                    _ => {}
                }
            }
            if !more || number == 0 || marker == number.to_string() {
                break;
            }
            marker = number.to_string();
        }
        if chosen.is_empty() {
            return Ok(false);
        }
        let mut request =
            ObjectRequest::new(Method::Post, key.as_str()).with("uploadId", id.as_str());
        request.text =
            format!("<CompleteMultipartUpload>{chosen}</CompleteMultipartUpload>").into_bytes();
        let answer = control.call(&request)?;
        // A server that has begun to answer reports failures in the document.
        let texts = xml_texts(&String::from_utf8_lossy(&answer));
        match texts.iter().find(|t| t.parent == "Error" && t.name == "Code") {
            Some(code) => Err(self.unlike(&request, &format!("the error {}", code.text))),
            None => Ok(true),
        }
    }

    /// The offset of the first byte of the first `size` bytes that is not the pattern's.
    pub(super) fn find_wrong(
        &self,
        layout: &ObjectLayout,
        (size, block): (u64, u64),
        seed: u64,
    ) -> CallResult<Option<u64>> {
        let piece = match layout {
            ObjectLayout::Each { .. } => block,
            ObjectLayout::Whole { .. } => PIECE,
        };
        let mut bytes = Vec::new();
        let mut at = 0;
        while at < size {
            bytes.resize(usize::try_from(piece.min(size - at)).unwrap_or(0), 0);
            let memory = MemorySpan { address: bytes.as_mut_ptr() as u64, bytes: bytes.len() };
            let request = layout.request(false, (at, piece), memory);
            self.control.borrow_mut().call(&request)?;
            if let Some(wrong) = pattern::check_part(&bytes, at, seed) {
                return Ok(Some(wrong));
            }
            at += piece;
        }
        Ok(None)
    }
}

impl Drop for BucketPlace {
    /// What stays is removed by the next run on this host.
    fn drop(&mut self) {
        if self.used.get() {
            let _ = self.remove(&self.run.clone());
        }
    }
}

/// Lists what is under a prefix, page by page.
fn list(
    control: &mut RequestPool,
    prefix: &str,
    delimiter: Option<&str>,
    each: &mut dyn FnMut(super::reply::XmlText),
) -> CallResult<()> {
    let mut token: Option<String> = None;
    loop {
        let mut request = ObjectRequest::new(Method::Get, "");
        if let Some(token) = &token {
            request = request.with("continuation-token", token.as_str());
        }
        if let Some(delimiter) = delimiter {
            request = request.with("delimiter", delimiter);
        }
        let request = request.with("list-type", "2").with("prefix", prefix);
        let answer = control.call(&request)?;
        let mut next = None;
        for text in xml_texts(&String::from_utf8_lossy(&answer)) {
            if text.name == "NextContinuationToken" {
                next = Some(text.text);
            } else {
                each(text);
            }
        }
        if next.is_none() || next == token {
            return Ok(());
        }
        token = next;
    }
}

/// Removes all objects under a prefix, and ends all uploads there.
fn remove(control: &mut RequestPool, prefix: &str) -> CallResult<()> {
    let mut keys = Vec::new();
    list(control, prefix, None, &mut |text| {
        if text.parent == "Contents" && text.name == "Key" && text.text.starts_with(prefix) {
            keys.push(text.text);
        }
    })?;
    control.call_all(|_| keys.pop().map(|key| ObjectRequest::new(Method::Delete, key)))?;
    let request = ObjectRequest::new(Method::Get, "").with("prefix", prefix).with("uploads", "");
    // Not every server lists uploads.
    let Ok(answer) = control.ask(&request) else { return Ok(()) };
    let (mut uploads, mut key) = (Vec::new(), String::new());
    for text in xml_texts(&String::from_utf8_lossy(&answer)) {
        match (text.parent.as_str(), text.name.as_str()) {
            ("Upload", "Key") => key = text.text,
            ("Upload", "UploadId") if key.starts_with(prefix) => {
                uploads.push((key.clone(), text.text));
            }
            _ => {}
        }
    }
    control.call_all(|_| {
        let (key, id) = uploads.pop()?;
        Some(ObjectRequest::new(Method::Delete, key).with("uploadId", id))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_dead_process_of_this_host_left_is_removed() {
        let here = RunOwner::this();
        assert_eq!(RunOwner::parse(&here.key()), Some(here.clone()));
        assert!(!here.has_ended(&here), "this process lives: {here:?}");
        // The same number, given to a process that started at another time.
        assert!(RunOwner { start: here.start + 1, ..here.clone() }.has_ended(&here));
        let elsewhere = RunOwner { host: "f00".into(), start: 1, ..here.clone() };
        assert!(!elsewhere.has_ended(&here), "another host's are not judged");
        for wrong in ["", "pathline-storage-a-1/", "pathline-storage-a-1-2", "x-a-1-2/"] {
            assert_eq!(RunOwner::parse(wrong), None, "{wrong}");
        }
        assert_eq!(below("a/b", "c"), "a/b/c");
        assert_eq!(below("", "c"), "c");
    }
}
