//! What an object store answers: the head of an HTTP reply, bodies in chunks, and XML documents.

use pathline_schema::is_steering;
use quick_xml::Reader;
use quick_xml::events::Event;

/// Most bytes of a head.
pub(super) const MAX_HEAD: usize = 16 << 10;
/// Most header lines of a reply.
const MAX_HEADERS: usize = 96;
/// Most characters of a server's message in an error.
const MAX_MESSAGE: usize = 200;
/// Most nesting of a document: listings have three levels.
const MAX_NESTING: usize = 16;

/// The head of a reply, as far as it is used.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplyHead {
    /// The status: 206.
    pub status: u16,
    /// Bytes of the body, if the server states them.
    pub length: Option<u64>,
    /// Whether the body comes in chunks.
    pub chunked: bool,
    /// Whether the server closes the connection after this reply.
    pub closes: bool,
    /// The name that the server gives itself.
    pub server: String,
}

impl ReplyHead {
    /// Whether the request did what it asks for.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Parses the head at the start of `bytes`, and says how long it is. `None` while it is incomplete.
    ///
    /// # Errors
    /// It is no head of HTTP/1, longer than 16 KiB, or has more than 96 headers.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, String> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut reply = httparse::Response::new(&mut headers);
        let len = match reply.parse(bytes) {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) if bytes.len() >= MAX_HEAD => {
                return Err(format!("the head of its answer is longer than {MAX_HEAD} bytes"));
            }
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => return Err(format!("it does not answer in HTTP/1: {error}")),
        };
        // From HTTP/1.1 on a connection stays open unless a header closes it.
        let mut head = Self {
            status: reply.code.unwrap_or(0),
            closes: reply.version == Some(0),
            ..Self::default()
        };
        for header in reply.headers.iter() {
            let value = String::from_utf8_lossy(header.value);
            let value = value.trim();
            match header.name.to_ascii_lowercase().as_str() {
                "content-length" => {
                    let length = value.parse().map_err(|_| "its Content-Length is no number")?;
                    head.length = Some(length);
                }
                "transfer-encoding" => head.chunked = value.eq_ignore_ascii_case("chunked"),
                "connection" if value.eq_ignore_ascii_case("close") => head.closes = true,
                "connection" if value.eq_ignore_ascii_case("keep-alive") => head.closes = false,
                "server" => head.server = plain(value),
                _ => {}
            }
        }
        Ok(Some((head, len)))
    }
}

/// A body that came in chunks, in one piece. `None` while its end is missing.
///
/// # Errors
/// A chunk has no size, or another one than it says.
pub fn join_chunks(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let mut whole = Vec::new();
    loop {
        match httparse::parse_chunk_size(bytes) {
            Ok(httparse::Status::Complete((start, size))) => {
                let size = usize::try_from(size).map_err(|_| "a chunk is too long")?;
                let end = start.checked_add(size).ok_or("a chunk is too long")?;
                if size == 0 {
                    // Trailers may follow; an empty line ends them.
                    let rest = bytes.get(start..).unwrap_or_default();
                    let ended =
                        rest.starts_with(b"\r\n") || rest.windows(4).any(|w| w == b"\r\n\r\n");
                    return Ok(ended.then_some(whole));
                }
                let Some(chunk) = bytes.get(start..end) else { return Ok(None) };
                let Some(rest) = bytes.get(end..).filter(|rest| rest.len() >= 2) else {
                    return Ok(None);
                };
                if !rest.starts_with(b"\r\n") {
                    return Err("a chunk is longer than it says".into());
                }
                whole.extend_from_slice(chunk);
                bytes = rest.get(2..).unwrap_or_default();
            }
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err("a chunk has no size".into()),
        }
    }
}

/// An element of a document that holds a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XmlText {
    /// Name of the element around it, without its prefix.
    pub parent: String,
    /// Its own name.
    pub name: String,
    /// The text.
    pub text: String,
}

/// The elements of a document that hold texts, in their order. Ends at the first error.
pub fn xml_texts(document: &str) -> Vec<XmlText> {
    let mut reader = Reader::from_str(document);
    let (mut names, mut all, mut text): (Vec<String>, Vec<XmlText>, String) = Default::default();
    loop {
        match reader.read_event() {
            Ok(Event::Start(start)) if names.len() < MAX_NESTING => {
                names.push(start.local_name().as_ref().to_owned());
                text.clear();
            }
            Ok(Event::Text(part)) => text.push_str(&part),
            Ok(Event::GeneralRef(reference)) => {
                let number = reference.resolve_char_ref().ok().flatten();
                match number.map(String::from).or_else(|| {
                    quick_xml::escape::resolve_predefined_entity(&reference).map(str::to_owned)
                }) {
                    Some(known) => text.push_str(&known),
                    None => return all,
                }
            }
            Ok(Event::End(_)) => {
                let Some(name) = names.pop() else { return all };
                let parent = names.last().cloned().unwrap_or_default();
                let text = std::mem::take(&mut text);
                if !text.trim().is_empty() {
                    all.push(XmlText { parent, name, text });
                }
            }
            Ok(Event::Start(_) | Event::Eof) | Err(_) => return all,
            Ok(_) => {}
        }
    }
}

/// The first text of an element of this name.
pub(crate) fn first_text(document: &str, name: &str) -> Option<String> {
    xml_texts(document).into_iter().find(|t| t.name == name).map(|t| t.text)
}

/// A server's text without what steers a terminal, cut where it gets long.
fn plain(text: &str) -> String {
    text.chars().filter(|&c| !is_steering(c)).take(MAX_MESSAGE).collect()
}

/// Code and message of an error document: `NoSuchKey` and a sentence. Empty where it has none.
pub fn error_texts(body: &[u8]) -> (String, String) {
    let document = String::from_utf8_lossy(body);
    let texts = xml_texts(&document);
    let of = |name: &str| texts.iter().find(|t| t.name == name).map_or("", |t| t.text.as_str());
    (plain(of("Code")), plain(of("Message")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_says_how_its_body_ends() {
        let of = |text: &str| ReplyHead::parse(text.as_bytes());
        let text = "HTTP/1.1 206 Partial Content\r\nServer: a\u{1}\r\n";
        assert!(of(text).is_err(), "a control character in a header");
        let text = "HTTP/1.1 206 Partial Content\r\nContent-Length: 4096\r\nServer: MinIO\r\n";
        assert_eq!(of(text), Ok(None));
        let whole = format!("{text}\r\nbody");
        let (head, len) = of(&whole).unwrap().unwrap();
        assert_eq!((head.status, head.length, head.closes), (206, Some(4096), false));
        assert_eq!((head.server.as_str(), len), ("MinIO", whole.len() - 4));
        // Version 1.0 closes unless a header keeps it open, 1.1 the reverse.
        let closes = |text: &str| of(text).unwrap().unwrap().0.closes;
        assert!(closes("HTTP/1.0 200 OK\r\n\r\n"));
        assert!(!closes("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\n\r\n"));
        assert!(closes("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"));
        assert!(of("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n").is_err());
        assert!(of("SSH-2.0-OpenSSH_9.2p1\r\n").is_err());
        assert!(of(&format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(MAX_HEAD))).is_err());
    }

    #[test]
    fn chunks_join() {
        let whole = b"4\r\nWiki\r\n6;x=y\r\npedia \r\n0\r\n\r\n";
        assert_eq!(join_chunks(whole), Ok(Some(b"Wikipedia ".to_vec())));
        for cut in 0..whole.len() {
            assert_eq!(join_chunks(&whole[..cut]), Ok(None), "{cut}");
        }
        assert!(join_chunks(b"4\r\nWikipedia\r\n0\r\n\r\n").is_err());
        assert!(join_chunks(b"ffffffffffffffff\r\n").is_err());
        assert!(join_chunks(b"x\r\n").is_err());
    }

    #[test]
    fn documents_are_read_by_name() {
        let text = "<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code>\
                    <Message>no &lt;key&gt; &#65;&quot;</Message></Error>";
        assert_eq!(error_texts(text.as_bytes()), ("NoSuchKey".into(), "no <key> A\"".into()));
        assert_eq!(error_texts(b"<html>busy"), (String::new(), String::new()));
        let list = "<a:List xmlns:a='x'><Prefix>p</Prefix><Contents><Key>p/1</Key></Contents>\
                    <CommonPrefixes><Prefix>p/2/</Prefix></CommonPrefixes></a:List>";
        let texts = xml_texts(list);
        let key = |parent: &str, name: &str| {
            texts.iter().find(|t| t.parent == parent && t.name == name).map(|t| t.text.as_str())
        };
        assert_eq!(key("Contents", "Key"), Some("p/1"));
        assert_eq!(key("CommonPrefixes", "Prefix"), Some("p/2/"));
        assert!(xml_texts(&"<a>".repeat(100)).is_empty());
    }
}
