//! A bucket: where it is, and requests to it, signed.

use std::fmt;
use std::net::SocketAddr;

use jiff::Timestamp;
use pathline_hal::{CallError, CallResult};
use pathline_schema::{Bytes, Severity, mask_urls};
use rusty_s3::{Bucket, Credentials, Method, UrlStyle};

use super::endpoint::ServerEndpoint;
use super::reply::{ReplyHead, error_texts};
use super::wire::TlsSetup;

/// How paths of buckets begin.
pub(super) const SCHEME: &str = "s3://";
/// Seconds that a signature is valid. A request waits for nothing longer than a queue.
const VALID_S: u64 = 900;
/// Default region of servers that have none.
const USUAL_REGION: &str = "us-east-1";
const CREDENTIALS: &str = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";

/// Bytes in memory that a request sends or receives. Empty if it does not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct MemorySpan {
    pub(super) address: u64,
    pub(super) bytes: usize,
}

/// A request to a bucket.
#[derive(Debug, Clone)]
pub(super) struct ObjectRequest {
    pub(super) method: Method,
    /// The object; empty for the bucket.
    pub(super) key: String,
    /// Parameters by name, in order.
    pub(super) query: Vec<(&'static str, String)>,
    /// First and last byte.
    pub(super) range: Option<(u64, u64)>,
    /// A body of a few bytes.
    pub(super) text: Vec<u8>,
    /// A body in memory, instead.
    pub(super) body: MemorySpan,
    /// Where the body of a successful reply goes; it must have as many bytes. Elsewhere if empty.
    pub(super) sink: MemorySpan,
}

impl ObjectRequest {
    pub(super) fn new(method: Method, key: impl Into<String>) -> Self {
        Self {
            method,
            key: key.into(),
            query: Vec::new(),
            range: None,
            text: Vec::new(),
            body: MemorySpan::default(),
            sink: MemorySpan::default(),
        }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    /// What it is called, for records: that of the store's interface.
    pub(super) fn call(&self) -> &'static str {
        let has = |name: &str| self.query.iter().any(|(n, _)| *n == name);
        match self.method {
            Method::Get if has("uploads") => "ListMultipartUploads",
            Method::Get if self.key.is_empty() => "ListObjectsV2",
            Method::Get if has("uploadId") => "ListParts",
            Method::Get => "GetObject",
            Method::Head if self.key.is_empty() => "HeadBucket",
            Method::Head => "HeadObject",
            Method::Put if has("uploadId") => "UploadPart",
            Method::Put => "PutObject",
            Method::Post if has("uploadId") => "CompleteMultipartUpload",
            Method::Post => "CreateMultipartUpload",
            Method::Delete if has("uploadId") => "AbortMultipartUpload",
            Method::Delete => "DeleteObject",
        }
    }
}

/// Why a request failed.
#[derive(Debug)]
pub(super) enum RequestFailure {
    /// A call of the kernel on its connection failed.
    Socket(&'static str, std::io::Error),
    /// The server refused it.
    Status(ReplyHead, Vec<u8>),
    /// The answer cannot be used.
    Malformed(String),
    /// It was not sent, or not waited for.
    Stopped(String),
}

/// A bucket and the right to use it. Its text never shows the secret.
#[derive(Clone)]
pub(super) struct BucketClient {
    bucket: Bucket,
    credentials: Credentials,
    /// Where the server listens.
    pub(super) addresses: Vec<SocketAddr>,
    /// For an `https://` endpoint.
    pub(super) tls: Option<TlsSetup>,
    /// The server as requests name it: `127.0.0.1:9000`.
    authority: String,
    /// The same for people: `http://127.0.0.1:9000`.
    pub(super) endpoint: String,
    /// Path of the bucket on the server, with the slash at its end.
    root: String,
    /// Prefix of all keys, without the slash at its end.
    pub(super) prefix: String,
}

impl fmt::Debug for BucketClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for BucketClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{} at {}", self.bucket.name(), self.prefix, self.endpoint)
    }
}

/// A variable of the environment that is set to something.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

/// The date of a request, which servers compare with theirs.
fn date() -> Timestamp {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Timestamp::from_second(now.tv_sec).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Bucket and prefix of `s3://bucket/prefix`.
pub(super) fn split_path(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix(SCHEME)?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    Some((bucket, prefix.trim_matches('/')))
}

/// Why a bucket or prefix cannot be used; none if it can.
fn name_misfit(bucket: &str, prefix: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if !(1..=255).contains(&bucket.len()) || !bucket.chars().all(fits) || is_resolved(bucket) {
        let bucket = mask_urls(&format!("{SCHEME}{bucket}")).into_owned();
        return Some(format!("{bucket} names no bucket: write s3://BUCKET/PREFIX"));
    }
    let mut parts = prefix.split('/').filter(|_| !prefix.is_empty());
    let wrong = parts.find(|part| is_resolved(part) || part.contains(char::is_control));
    wrong.map(|part| format!("`{part}` cannot be a part of the prefix"))
}

/// Whether URLs resolve a part of a path, which then leads out of the bucket.
fn is_resolved(part: &str) -> bool {
    matches!(part.to_ascii_lowercase().replace("%2e", ".").as_str(), "" | "." | "..")
}

/// A key in a path of a URL. What is no letter, digit, `-`, `.`, `_`, `~` or `/` is escaped.
fn path_text(key: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/".contains(&b);
    let text =
        key.bytes().map(|b| if plain(b) { char::from(b).into() } else { format!("%{b:02X}") });
    text.collect()
}

impl BucketClient {
    /// The bucket of a path, with what the environment says. Resolves the server's name.
    pub(super) fn new(path: &str, endpoint: Option<&str>) -> Result<Self, String> {
        let (name, prefix) = split_path(path).ok_or("it is no s3:// path")?;
        if let Some(why) = name_misfit(name, prefix) {
            return Err(why);
        }
        let named = endpoint.map(str::to_owned);
        let endpoint = named
            .or_else(|| variable("AWS_ENDPOINT_URL_S3"))
            .or_else(|| variable("AWS_ENDPOINT_URL"))
            .ok_or("no server is named: use --s3-endpoint URL, or set AWS_ENDPOINT_URL")?;
        let endpoint = ServerEndpoint::parse(&endpoint)?;
        let tls = endpoint.is_tls.then(|| TlsSetup::of_host(&endpoint.host)).transpose()?;
        let credentials = Credentials::from_env()
            .ok_or_else(|| format!("there are no credentials: {CREDENTIALS}"))?;
        let region = variable("AWS_REGION")
            .or_else(|| variable("AWS_DEFAULT_REGION"))
            .unwrap_or_else(|| USUAL_REGION.to_owned());
        let shown = &endpoint.url;
        let url = shown.parse().map_err(|error| format!("{shown} is no URL: {error}"))?;
        let bucket = Bucket::new(url, UrlStyle::Path, name.to_owned(), region)
            .map_err(|error| format!("{shown} cannot serve a bucket: {error}"))?;
        Self::of_bucket(bucket, credentials, endpoint, tls, prefix)
    }

    fn of_bucket(
        bucket: Bucket,
        credentials: Credentials,
        endpoint: ServerEndpoint,
        tls: Option<TlsSetup>,
        prefix: &str,
    ) -> Result<Self, String> {
        let root = format!("{}/{}/", endpoint.path(), bucket.name());
        if bucket.base_url().path() != root {
            let url = &endpoint.url;
            return Err(format!("the path of {url} leads elsewhere: write it without dots"));
        }
        let (addresses, authority) = (endpoint.addresses()?, endpoint.authority());
        let (endpoint, prefix) = (endpoint.url, prefix.to_owned());
        Ok(Self { bucket, credentials, addresses, tls, authority, endpoint, root, prefix })
    }

    /// `s3://BUCKET/`.
    pub(super) fn bucket_text(&self) -> String {
        format!("{SCHEME}{}/", self.bucket.name())
    }

    /// Region of the signatures.
    pub(super) fn region(&self) -> &str {
        self.bucket.region()
    }

    /// The head of a request on the wire, signed now. Bodies are not part of the signature: pathline
    /// compares every byte itself.
    ///
    /// # Errors
    /// Its URL would have another path than was meant.
    pub(super) fn head(
        &self,
        request: &ObjectRequest,
        out: &mut Vec<u8>,
    ) -> Result<(), RequestFailure> {
        let url = if request.key.is_empty() {
            self.bucket.base_url().clone()
        } else {
            self.bucket.object_url(&request.key)
        };
        let meant = format!("{}{}", self.root, path_text(&request.key));
        if url.path() != meant {
            let reason = format!("its URL would have the path {} instead of {meant}", url.path());
            return Err(RequestFailure::Stopped(reason));
        }
        let query = request.query.iter().map(|(name, value)| (*name, value.as_str()));
        let url = rusty_s3::signing::sign(
            &date(),
            request.method,
            url,
            self.credentials.key(),
            self.credentials.secret(),
            self.credentials.token(),
            self.bucket.region(),
            VALID_S,
            query,
            std::iter::empty(),
        );
        out.clear();
        let (method, path) = (request.method.to_str(), url.path());
        let (host, query) = (&self.authority, url.query().unwrap_or_default());
        out.extend_from_slice(
            format!("{method} {path}?{query} HTTP/1.1\r\nHost: {host}\r\n").as_bytes(),
        );
        if let Some((first, last)) = request.range {
            out.extend_from_slice(format!("Range: bytes={first}-{last}\r\n").as_bytes());
        }
        if matches!(request.method, Method::Put | Method::Post) {
            let length = request.text.len() + request.body.bytes;
            out.extend_from_slice(format!("Content-Length: {length}\r\n").as_bytes());
        }
        out.extend_from_slice(b"User-Agent: pathline\r\n\r\n");
        out.extend_from_slice(&request.text);
        Ok(())
    }

    /// An object for errors: `s3://bucket/key at http://host:port`.
    pub(super) fn thing(&self, request: &ObjectRequest) -> String {
        let part = match request.range {
            Some((first, last)) => {
                format!("{} at {} of ", Bytes(last.saturating_sub(first) + 1), Bytes(first))
            }
            None => String::new(),
        };
        format!("{part}{SCHEME}{}/{} at {}", self.bucket.name(), request.key, self.endpoint)
    }

    /// The error of a request that failed.
    pub(super) fn error(&self, request: &ObjectRequest, failure: &RequestFailure) -> CallError {
        let (call, thing) = (request.call(), self.thing(request));
        match failure {
            RequestFailure::Socket(function, error) => {
                let text = error.to_string();
                let reason = text.split(" (os error").next().unwrap_or(&text);
                let reason = format!("{function}: {reason}");
                if error.kind() == std::io::ErrorKind::InvalidData {
                    return CallError::new(Severity::Unsupported, call, thing, reason).or_try(
                        "see whether the endpoint speaks TLS, and has a certificate of an authority that this host \
                         trusts; SSL_CERT_FILE names another one",
                    );
                }
                let code = error.raw_os_error().unwrap_or(0);
                CallError::new(Severity::Transient, call, thing, reason)
                    .with_code(code.into())
                    .or_try("see whether the server of --s3-endpoint is up and reachable from this host")
            }
            RequestFailure::Malformed(reason) => {
                CallError::new(Severity::Transient, call, thing, reason.clone())
                    .or_try("see whether --s3-endpoint names an S3 server, and its log")
            }
            RequestFailure::Stopped(reason) => {
                CallError::new(Severity::Transient, call, thing, reason.clone())
            }
            RequestFailure::Status(head, body) => {
                let (mut code, message) = error_texts(body);
                // An answer to HEAD has no document.
                if request.key.is_empty() && head.status == 404 && code.is_empty() {
                    "NoSuchBucket".clone_into(&mut code);
                }
                let (severity, way_out) = meaning(head.status, &code);
                let message =
                    if message.is_empty() { String::new() } else { format!(": {message}") };
                let code = if code.is_empty() { String::new() } else { format!(" {code}") };
                let reason = format!("HTTP {}{code}{message}", head.status);
                CallError::new(severity, call, thing, reason)
                    .with_code(head.status.into())
                    .or_try(way_out)
            }
        }
    }

    /// The result of a request, as an error unless it succeeded.
    pub(super) fn checked<T>(
        &self,
        request: &ObjectRequest,
        done: Result<T, RequestFailure>,
    ) -> CallResult<T> {
        done.map_err(|failure| self.error(request, &failure))
    }
}

/// Severity and remedy of a status and the store's code.
fn meaning(status: u16, code: &str) -> (Severity, &'static str) {
    match (status, code) {
        (_, "RequestTimeTooSkewed") => {
            (Severity::Unsupported, "this host's clock or the server's is wrong: set it")
        }
        (_, "SignatureDoesNotMatch") => (
            Severity::Unsupported,
            "see AWS_SECRET_ACCESS_KEY and AWS_REGION, and whether a proxy changes paths or names",
        ),
        (_, "InvalidAccessKeyId" | "InvalidToken" | "ExpiredToken") => (
            Severity::Unsupported,
            "see AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN: the server does not accept them",
        ),
        (_, "NoSuchBucket") => {
            (Severity::Unsupported, "create the bucket, or name another one in --store")
        }
        (_, "EntityTooSmall") => (
            Severity::Unsupported,
            "parts of an upload have at least 5 MiB: use a larger block, or `each`",
        ),
        (_, "QuotaExceeded" | "StorageFull" | "XMinioStorageFull") | (507, _) => {
            (Severity::Exhausted, "the store is full: free some of it, or use a smaller --span")
        }
        (401 | 403, _) => (
            Severity::Unsupported,
            "these credentials may not: grant them read, write, list and delete under this prefix",
        ),
        (404, _) => (
            Severity::Transient,
            "another program has removed it meanwhile: see whether a lifecycle rule does",
        ),
        (405 | 501, _) => (Severity::Unsupported, "this server does not have this operation"),
        (408 | 429 | 503, _) => (
            Severity::Transient,
            "the server limits requests: use fewer workers, less depth, or a limit (rRATE in the case)",
        ),
        (301 | 307 | 308, _) => {
            (Severity::Unsupported, "the bucket is elsewhere: name its endpoint and AWS_REGION")
        }
        (500.., _) => (Severity::Transient, "the server failed: see its log"),
        _ => (
            Severity::Transient,
            "run this case alone to see whether it repeats, and see the server's log",
        ),
    }
}

#[cfg(test)]
impl BucketClient {
    /// A client with fixed credentials, which asks neither the environment nor a name server.
    pub(super) fn of_test(endpoint: &str, prefix: &str) -> Self {
        let endpoint = ServerEndpoint::parse(endpoint).unwrap();
        let url = endpoint.url.parse().unwrap();
        let bucket = Bucket::new(url, UrlStyle::Path, "data", USUAL_REGION).unwrap();
        let credentials = Credentials::new("AKEY", "hidden-secret");
        Self::of_bucket(bucket, credentials, endpoint, None, prefix).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_prefixes() {
        assert_eq!(split_path("s3://data/a/b/"), Some(("data", "a/b")));
        assert_eq!(split_path("s3://data"), Some(("data", "")));
        assert_eq!(split_path("/data"), None);
        assert_eq!(name_misfit("data", "a/b"), None);
        assert_eq!(name_misfit("data", ""), None);
        for (bucket, prefix) in [
            ("", ""),
            ("a b", ""),
            (".", ""),
            ("..", "x"),
            ("data", "a/../b"),
            ("data", "a//b"),
            ("data", "%2E./b"),
            ("data", "a/%2e"),
        ] {
            assert!(name_misfit(bucket, prefix).is_some(), "{bucket} {prefix}");
        }
        let secret = name_misfit("AKEY:hidden@data", "").unwrap();
        assert!(!secret.contains("hidden"), "{secret}");
    }

    #[test]
    fn a_request_is_signed_for_the_path_that_is_meant_or_not_at_all() {
        let client = BucketClient::of_test("http://127.0.0.1:9/s3", "p");
        let mut out = Vec::new();
        for method in [Method::Get, Method::Put, Method::Head, Method::Delete, Method::Post] {
            for key in ["p/a b", "p/%2e%2e/x", "p/a\\b", "p/é?#[]", "/a", "a//b", "..a/.b", ""] {
                client.head(&ObjectRequest::new(method, key), &mut out).unwrap();
                let head = String::from_utf8_lossy(&out).into_owned();
                assert!(head.contains(&format!(" /s3/data/{}?X-Amz-", path_text(key))), "{head}");
            }
            for key in ["..", ".", "p/..", "p/../../other/precious", "p/./x", "../data/x"] {
                let refused = client.head(&ObjectRequest::new(method, key), &mut out).unwrap_err();
                assert!(matches!(refused, RequestFailure::Stopped(_)), "{key}: {refused:?}");
            }
        }
    }

    #[test]
    fn nothing_shows_the_secret() {
        let client = BucketClient::of_test("http://127.0.0.1:9", "p");
        let request = ObjectRequest::new(Method::Get, "p/a b");
        let mut head = Vec::new();
        client.head(&request, &mut head).unwrap();
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with("GET /data/p/a%20b?X-Amz-Algorithm=AWS4-HMAC-SHA256&"), "{head}");
        assert!(head.contains("\r\nHost: 127.0.0.1:9\r\n"), "{head}");
        let body = b"<Error><Code>SignatureDoesNotMatch</Code><Message>no</Message>\
                     <AWSAccessKeyId>AKEY</AWSAccessKeyId></Error>";
        let refused = ReplyHead { status: 403, ..ReplyHead::default() };
        let error = client.error(&request, &RequestFailure::Status(refused, body.to_vec()));
        let shown = format!("{error} {client} {client:?}");
        assert!(shown.contains("s3://data/p/a b at http://127.0.0.1:9"), "{shown}");
        assert!(shown.contains("HTTP 403 SignatureDoesNotMatch: no"), "{shown}");
        for secret in ["hidden-secret", "AKEY", "X-Amz"] {
            assert!(!shown.contains(secret) && !head.contains("hidden-secret"), "{shown}");
        }
    }
}
