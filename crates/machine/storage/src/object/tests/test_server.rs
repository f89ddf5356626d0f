//! A server with the interface of an object store, in memory, that can misbehave. The real ones are tested
//! with the whole program.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Parts by number.
type UploadParts = BTreeMap<u32, Vec<u8>>;

/// What it holds and does wrong.
#[derive(Default)]
pub(super) struct ServerState {
    pub(super) objects: Mutex<BTreeMap<String, Vec<u8>>>,
    pub(super) uploads: Mutex<BTreeMap<(String, String), UploadParts>>,
    next: AtomicU32,
    /// Closes the connection after each answer.
    pub(super) closes: AtomicBool,
    /// Answers documents in chunks.
    pub(super) chunks: AtomicBool,
    /// Requests to answer with 503 from now on.
    pub(super) busy: AtomicU32,
    /// Replies to cut off after half of the body from now on.
    pub(super) cuts: AtomicU32,
    /// Connections to close without an answer from now on.
    pub(super) drops: AtomicU32,
    /// Changes a byte of what it stores.
    pub(super) corrupts: AtomicBool,
    /// Names of next pages that it gives in turn, whatever is asked.
    pub(super) pages: Mutex<Vec<&'static str>>,
    /// Sends a byte of each reply now and then.
    pub(super) drips: AtomicBool,
    /// Sends that many interim replies first.
    pub(super) interim: AtomicU32,
    /// Requests so far: method and path.
    pub(super) asked: Mutex<Vec<String>>,
}

pub(super) struct TestServer {
    pub(super) endpoint: String,
    pub(super) state: Arc<ServerState>,
}

fn takes_one(count: &AtomicU32) -> bool {
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
}

impl TestServer {
    pub(super) fn start() -> Self {
        Self::start_with(None)
    }

    /// One with the certificate of `tests/server.pem`.
    pub(super) fn start_tls() -> Self {
        let parse = |text: &str| CertificateDer::from_pem_slice(text.as_bytes()).unwrap();
        let chain = vec![parse(include_str!("server.pem"))];
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("server.key")).unwrap();
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
        Self::start_with(Some(Arc::new(config.unwrap())))
    }

    fn start_with(tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let endpoint = format!("{scheme}://{}", listener.local_addr().unwrap());
        let state = Arc::<ServerState>::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (state, tls) = (Arc::clone(&shared), tls.clone());
                std::thread::spawn(move || match tls {
                    None => serve(stream, &state),
                    Some(tls) => {
                        let session = ServerConnection::new(tls).unwrap();
                        serve(StreamOwned::new(session, stream), &state);
                    }
                });
            }
        });
        Self { endpoint, state }
    }
}

/// A request: method, key, query and body, and the range that it asks for.
struct ServerRequest {
    method: String,
    key: String,
    query: BTreeMap<String, String>,
    range: Option<(usize, usize)>,
    body: Vec<u8>,
}

impl ServerRequest {
    fn read(reader: &mut impl BufRead) -> Option<Self> {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|&n| n > 0)?;
        let mut words = line.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?);
        let (path, query) = target.split_once('?')?;
        let key = path.strip_prefix("/data/")?.to_owned();
        let query = query
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .map(|(name, value)| (name.to_owned(), value.replace("%2F", "/")))
            .collect();
        let (mut range, mut length) = (None, 0);
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            let Some((name, value)) = header.trim().split_once(": ") else { break };
            match name {
                "Content-Length" => length = value.parse().ok()?,
                "Range" => {
                    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
                    range = Some((first.parse().ok()?, last.parse().ok()?));
                }
                _ => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        Some(Self { method, key, query, range, body })
    }
}

type Reply = (u16, Vec<u8>);

fn serve(stream: impl Read + Write, state: &ServerState) {
    let mut reader = BufReader::new(stream);
    while let Some(request) = ServerRequest::read(&mut reader) {
        if takes_one(&state.drops) {
            return;
        }
        state.asked.lock().unwrap().push(format!("{} /data/{}", request.method, request.key));
        let interim = "HTTP/1.1 100 Continue\r\n\r\n";
        let _ = reader
            .get_mut()
            .write_all(interim.repeat(state.interim.load(Ordering::Relaxed) as usize).as_bytes());
        let (status, body) = if takes_one(&state.busy) {
            (503, b"<Error><Code>SlowDown</Code><Message>less</Message></Error>".to_vec())
        } else {
            answer(state, &request)
        };
        let closes = state.closes.load(Ordering::Relaxed);
        let document = body.first() == Some(&b'<');
        let chunked = document && state.chunks.load(Ordering::Relaxed) && request.method != "HEAD";
        let mut head = format!("HTTP/1.1 {status} x\r\nServer: test\r\n");
        head.push_str(if closes { "Connection: close\r\n" } else { "" });
        if chunked {
            head.push_str("Transfer-Encoding: chunked\r\n\r\n");
        } else if status != 204 {
            head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
        } else {
            head.push_str("\r\n");
        }
        let mut bytes = head.into_bytes();
        if chunked {
            for part in body.chunks(10) {
                bytes.extend(format!("{:x}\r\n", part.len()).into_bytes());
                bytes.extend(part);
                bytes.extend(b"\r\n");
            }
            bytes.extend(b"0\r\n\r\n");
        } else if request.method != "HEAD" {
            let cut = takes_one(&state.cuts);
            bytes.extend(&body[..if cut { body.len() / 2 } else { body.len() }]);
            if cut {
                let _ = reader.get_mut().write_all(&bytes);
                return;
            }
        }
        if state.drips.load(Ordering::Relaxed) {
            for byte in &bytes {
                pathline_host::clock::pause(std::time::Duration::from_millis(50));
                if reader.get_mut().write_all(&[*byte]).is_err() {
                    return;
                }
            }
            continue;
        }
        if reader.get_mut().write_all(&bytes).is_err() || closes {
            return;
        }
    }
}

fn answer(state: &ServerState, request: &ServerRequest) -> Reply {
    let ServerRequest { method, key, query, range, body } = request;
    let has = |name: &str| query.contains_key(name);
    let missing = || (404, b"<Error><Code>NoSuchKey</Code></Error>".to_vec());
    let mut body = body.clone();
    if state.corrupts.load(Ordering::Relaxed)
        && let Some(byte) = body.last_mut()
    {
        *byte ^= 1;
    }
    let mut objects = state.objects.lock().unwrap();
    let mut uploads = state.uploads.lock().unwrap();
    let upload = (key.clone(), query.get("uploadId").cloned().unwrap_or_default());
    match method.as_str() {
        "HEAD" if key.is_empty() => (200, Vec::new()),
        "GET" if has("uploads") => {
            let list = uploads.keys().map(|(key, id)| {
                format!("<Upload><UploadId>{id}</UploadId><Key>{key}</Key></Upload>")
            });
            (200, format!("<R>{}</R>", list.collect::<String>()).into_bytes())
        }
        "GET" if key.is_empty() && !state.pages.lock().unwrap().is_empty() => {
            let mut pages = state.pages.lock().unwrap();
            pages.rotate_left(1);
            let next = pages[pages.len() - 1];
            (
                200,
                format!("<R><NextContinuationToken>{next}</NextContinuationToken></R>")
                    .into_bytes(),
            )
        }
        "GET" if key.is_empty() => (200, list(&objects, query)),
        "GET" if has("uploadId") => {
            let Some(parts) = uploads.get(&upload) else { return missing() };
            let parts = parts
                .keys()
                .map(|n| format!("<Part><ETag>\"e{n}\"</ETag><PartNumber>{n}</PartNumber></Part>"));
            (200, format!("<R>{}</R>", parts.collect::<String>()).into_bytes())
        }
        "GET" | "HEAD" => match (objects.get(key), range) {
            (Some(object), Some((first, last))) => match object.get(*first..=*last) {
                Some(part) => (206, part.to_vec()),
                None => (416, b"<Error><Code>InvalidRange</Code></Error>".to_vec()),
            },
            (Some(object), None) => (200, object.clone()),
            (None, _) => missing(),
        },
        "PUT" if has("uploadId") => {
            let number = query["partNumber"].parse().unwrap();
            let Some(parts) = uploads.get_mut(&upload) else { return missing() };
            parts.insert(number, body);
            (200, Vec::new())
        }
        "PUT" => {
            objects.insert(key.clone(), body);
            (200, Vec::new())
        }
        "POST" if has("uploads") => {
            let id = format!("u{}", state.next.fetch_add(1, Ordering::Relaxed));
            uploads.insert((key.clone(), id.clone()), BTreeMap::new());
            (200, format!("<R><UploadId>{id}</UploadId></R>").into_bytes())
        }
        "POST" => {
            let Some(parts) = uploads.remove(&upload) else { return missing() };
            let text = String::from_utf8(body).unwrap();
            let wanted = |n: &u32| text.contains(&format!("<PartNumber>{n}</PartNumber>"));
            let whole = parts.iter().filter(|(n, _)| wanted(n)).flat_map(|(_, part)| part.clone());
            objects.insert(key.clone(), whole.collect());
            (200, b"<R><ETag>x</ETag></R>".to_vec())
        }
        "DELETE" if has("uploadId") => {
            uploads.remove(&upload);
            (204, Vec::new())
        }
        _ => {
            objects.remove(key);
            (204, Vec::new())
        }
    }
}

/// At most three names a page.
fn list(objects: &BTreeMap<String, Vec<u8>>, query: &BTreeMap<String, String>) -> Vec<u8> {
    let prefix = query.get("prefix").map_or("", String::as_str);
    let after = query.get("continuation-token").map_or("", String::as_str);
    let under = objects.keys().filter(|k| k.starts_with(prefix));
    if query.contains_key("delimiter") {
        let folder = |k: &String| k[prefix.len()..].split('/').next().map(str::to_owned);
        let all: std::collections::BTreeSet<String> = under.filter_map(folder).collect();
        let all = all
            .into_iter()
            .map(|f| format!("<CommonPrefixes><Prefix>{prefix}{f}/</Prefix></CommonPrefixes>"));
        return format!("<R>{}</R>", all.collect::<String>()).into_bytes();
    }
    let mut rest = under.filter(|k| k.as_str() > after).peekable();
    let (mut text, mut last) = (String::new(), String::new());
    for key in rest.by_ref().take(3) {
        text.push_str(&format!("<Contents><Key>{key}</Key></Contents>"));
        last.clone_from(key);
    }
    if rest.peek().is_some() {
        text.push_str(&format!("<NextContinuationToken>{last}</NextContinuationToken>"));
    }
    format!("<R>{text}</R>").into_bytes()
}
