//! A bucket as a place for data sets: what pathline makes there lies under a key of this process,
//! and goes when the place does.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use pathline_hal::{CallError, CallResult};
use pathline_host::{files, pattern};
use pathline_schema::{Bytes, Severity, StoreFacts, mask_urls};
use rusty_s3::Method;

use super::super::own_name::{OwnName, PREFIX, RunFolder};
use super::super::scratch_dir::SweepResult;
use super::super::store_place::StoreRequest;
use super::super::wait_limit::WaitLimit;
use super::client::{BucketClient, MemorySpan, ObjectRequest, SCHEME};
use super::engine::ObjectLayout;
use super::pool::RequestPool;
use super::reply::{XmlText, first_text, xml_texts};

/// Requests at once while data sets are made and removed.
const AT_ONCE: u32 = 8;
/// Bytes of one request while a data set is made or compared.
const PIECE: u64 = 8 << 20;
/// Pages of a list, and bytes of the name of the next one: 10 million objects.
const MAX_PAGES: usize = 10_000;
const MAX_TOKEN: usize = 4096;
/// Time for the bucket to answer at first, and to list, remove or complete what is in it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const LIST_TIMEOUT: Duration = Duration::from_secs(600);
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
    control: RefCell<RequestPool<'static>>,
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

/// Start of a process in clock ticks since the boot: field 22 of `/proc/PID/stat`.
fn start_of(pid: u32) -> Option<u64> {
    let stat = files::text(format!("/proc/{pid}/stat"))?;
    // The name of the program may have spaces and brackets.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

impl RunFolder {
    /// That of this process by what the kernel calls it: boot, PID namespace, number and start.
    pub(super) fn of_this_process() -> Self {
        let boot = files::text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let boot: String = boot.chars().filter(char::is_ascii_hexdigit).take(12).collect();
        let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let namespace: String =
            namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
        let process = std::process::id();
        let number = start_of(process).unwrap_or(0);
        Self { host: format!("{boot}{namespace}"), process, number }
    }

    /// Whether its process ran on this boot of this host and has ended. Of other hosts that is not known.
    fn has_ended(&self, here: &Self) -> bool {
        self.host == here.host && start_of(self.process) != Some(self.number)
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
            path: mask_urls(&path).into_owned(),
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
        control.limit = WaitLimit::total(ANSWER_TIMEOUT);
        let request = ObjectRequest::new(Method::Head, "");
        let asked = control.ask_head(&request);
        let head = client.checked(&request, asked)?;
        let how = if head.closes { "a connection for each request" } else { "keep-alive" };
        let about = format!("HTTP/1.1, {how}");
        let run = below(&client.prefix, &format!("{}/", RunFolder::of_this_process()));
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
    pub(crate) fn sweep(path: &Path, endpoint: Option<&str>, limit: WaitLimit<'_>) -> SweepResult {
        match BucketClient::new(&path.display().to_string(), endpoint) {
            Ok(client) => Self::sweep_with(&Arc::new(client), limit),
            Err(why) => SweepResult { unseen: Some(why), ..SweepResult::default() },
        }
    }

    pub(super) fn sweep_with(client: &Arc<BucketClient>, limit: WaitLimit<'_>) -> SweepResult {
        let mut swept = SweepResult::default();
        let mut control = RequestPool::new(Arc::clone(client), AT_ONCE);
        control.limit = limit;
        let (here, top) = (RunFolder::of_this_process(), below(&client.prefix, ""));
        let listed =
            list(&mut control, &format!("{top}{PREFIX}"), Some("/"), &mut |control, page| {
                let found =
                    page.iter().filter(|t| t.parent == "CommonPrefixes" && t.name == "Prefix");
                let names =
                    found.filter_map(|t| t.text.strip_prefix(top.as_str())?.strip_suffix('/'));
                let ended = names.filter_map(RunFolder::parse).filter(|run| run.has_ended(&here));
                for run in ended {
                    let key = format!("{top}{run}/");
                    let folder = PathBuf::from(format!("{}{key}", client.bucket_text()));
                    match remove(control, &key, &key) {
                        Ok(0) => swept.removed.push(folder),
                        Ok(foreign) => {
                            let why = format!("{foreign} objects in it are not of pathline");
                            swept.left.push((folder, why));
                        }
                        Err(error) => swept.left.push((folder, error.to_string())),
                    }
                }
                Ok(())
            });
        swept.unseen = listed.err().map(|error| error.to_string());
        swept
    }

    /// A key of this process.
    pub(super) fn key(&self, name: OwnName) -> String {
        self.used.set(true);
        format!("{}{name}", self.run)
    }

    /// The connections, for requests that take this time at most.
    fn control(&self, most: Duration) -> RefMut<'_, RequestPool<'static>> {
        let mut control = self.control.borrow_mut();
        control.limit = WaitLimit::total(most);
        control
    }

    /// What all keys of a new tree of small objects begin with.
    pub(super) fn tree(&self) -> String {
        self.trees.set(self.trees.get() + 1);
        format!("{}/", self.key(OwnName::Tree(self.trees.get())))
    }

    /// Removes everything of this program under a key.
    pub(super) fn remove(&self, key: &str) -> CallResult<()> {
        remove(&mut self.control(LIST_TIMEOUT), &self.run, key).map(drop)
    }

    /// Number of objects under a key.
    pub(super) fn count(&self, key: &str) -> CallResult<u64> {
        let mut count = 0;
        list(&mut self.control(LIST_TIMEOUT), key, None, &mut |_, page| {
            count += values(page, "Contents", "Key").count();
            Ok(())
        })?;
        Ok(count as u64)
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
                self.control(Duration::MAX).call(&request)?;
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
        self.control(Duration::MAX).call_all(|slot| {
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
        let answer = self.control(LIST_TIMEOUT).call(&request)?;
        let id = first_text(&String::from_utf8_lossy(&answer), "UploadId");
        let id = id
            .filter(|id| id.len() <= MAX_TOKEN)
            .ok_or_else(|| unlike(&self.client, &request, "no UploadId"))?;
        *upload.lock().unwrap_or_else(PoisonError::into_inner) = id;
        Ok(())
    }

    /// Ends an upload with its first parts. Whether there were any.
    pub(super) fn complete(&self, layout: &ObjectLayout, parts: u64) -> CallResult<bool> {
        let ObjectLayout::Whole { key, upload } = layout else { return Ok(false) };
        let id = upload.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut control = self.control(LIST_TIMEOUT);
        // Each page has parts of higher numbers than the one before: the list ends.
        let (mut chosen, mut marker) = (String::new(), 0);
        loop {
            let request = ObjectRequest::new(Method::Get, key.as_str())
                .with("max-parts", "1000")
                .with("part-number-marker", marker.to_string())
                .with("uploadId", id.as_str());
            let answer = control.call(&request)?;
            let page = xml_texts(&String::from_utf8_lossy(&answer));
            let before = marker;
            let tags = values(&page, "Part", "ETag").map(str::trim);
            let numbers =
                values(&page, "Part", "PartNumber").map(|n| n.trim().parse().unwrap_or(0));
            for (number, tag) in numbers.zip(tags) {
                if (marker + 1..=parts).contains(&number) {
                    marker = number;
                    let tag = quick_xml::escape::escape(tag);
                    chosen.push_str(&format!(
                        "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>"
                    ));
                }
            }
            let more = page.iter().any(|t| t.name == "IsTruncated" && t.text.trim() == "true");
            if !more || marker == before {
                break;
            }
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
            Some(code) => Err(unlike(&self.client, &request, &format!("the error {}", code.text))),
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
            self.control(Duration::MAX).call(&request)?;
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

fn unlike(client: &BucketClient, request: &ObjectRequest, why: &str) -> CallError {
    let reason = format!("the answer has {why}");
    CallError::new(Severity::Unsupported, request.call(), client.thing(request), reason)
        .or_try("see whether --s3-endpoint names an S3 server")
}

/// The texts of elements of a name, whatever their order among others.
fn values<'a>(
    page: &'a [XmlText],
    parent: &'a str,
    name: &'a str,
) -> impl Iterator<Item = &'a str> {
    page.iter().filter(move |t| t.parent == parent && t.name == name).map(|t| t.text.as_str())
}

/// Lists what is under a prefix, page by page.
fn list<'a>(
    control: &mut RequestPool<'a>,
    prefix: &str,
    delimiter: Option<&str>,
    each: &mut dyn FnMut(&mut RequestPool<'a>, &[XmlText]) -> CallResult<()>,
) -> CallResult<()> {
    let mut tokens = BTreeSet::new();
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
        let page = xml_texts(&String::from_utf8_lossy(&control.call(&request)?));
        each(control, &page)?;
        let value = |name| page.iter().find(|t| t.name == name).map(|t| t.text.as_str());
        let more = value("IsTruncated") != Some("false");
        let Some(next) = value("NextContinuationToken").filter(|_| more) else { return Ok(()) };
        let is_new = next.len() <= MAX_TOKEN && tokens.insert(next.to_owned());
        if !is_new || tokens.len() > MAX_PAGES {
            return Err(unlike(
                &control.client,
                &request,
                "no end: its pages come again and again",
            ));
        }
        token = Some(next.to_owned());
    }
}

/// Removes the objects of the process with the key `run` under a prefix, and ends its uploads there. Objects with
/// other names than this program makes stay; returns their number.
fn remove(control: &mut RequestPool<'_>, run: &str, prefix: &str) -> CallResult<usize> {
    let is_own = |key: &str| {
        key.starts_with(prefix) && key.strip_prefix(run).is_some_and(OwnName::is_object)
    };
    let mut foreign = 0;
    list(control, prefix, None, &mut |control, page| {
        let keys = values(page, "Contents", "Key");
        let (mut own, others): (Vec<_>, Vec<_>) = keys.partition(|key| is_own(key));
        foreign += others.len();
        control.call_all(|_| own.pop().map(|key| ObjectRequest::new(Method::Delete, key)))
    })?;
    let request = ObjectRequest::new(Method::Get, "").with("prefix", prefix).with("uploads", "");
    // Not every server lists uploads.
    let Ok(answer) = control.ask(&request) else { return Ok(foreign) };
    let page = xml_texts(&String::from_utf8_lossy(&answer));
    let uploads = values(&page, "Upload", "Key").zip(values(&page, "Upload", "UploadId"));
    let mut uploads = uploads.filter(|(key, _)| is_own(key));
    control.call_all(|_| {
        let (key, id) = uploads.next()?;
        Some(ObjectRequest::new(Method::Delete, key).with("uploadId", id))
    })?;
    Ok(foreign)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_dead_process_of_this_host_left_is_removed() {
        let here = RunFolder::of_this_process();
        assert_eq!(RunFolder::parse(&here.to_string()), Some(here.clone()));
        assert!(!here.has_ended(&here), "this process lives: {here:?}");
        // The same number, given to a process that started at another time.
        assert!(RunFolder { number: here.number + 1, ..here.clone() }.has_ended(&here));
        let elsewhere = RunFolder { host: "f00".into(), number: 1, ..here.clone() };
        assert!(!elsewhere.has_ended(&here), "another host's are not judged");
        assert_eq!(below("a/b", "c"), "a/b/c");
        assert_eq!(below("", "c"), "c");
    }
}
