//! What a rank of a communicator and its hub send each other: a header of eight 64-bit words in the
//! byte order of the host, then bytes.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// What a frame asks for or answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// A rank takes its place. Fields: size, rank. Answered once all ranks have.
    Join,
    /// A rank's part of a collective, with what it sends. Fields: those of `Collective`. Answered
    /// with what it receives once all ranks have sent theirs.
    Collective,
    /// A message. Field: the receiver. Not answered.
    Send,
    /// Field: the sender. Answered with the message once it has come.
    Receive,
    /// Answered once every message of this rank has been received.
    Flush,
    /// Answered once the communicator has ended early, as everything then is.
    End,
    /// The rank has destroyed its communicator. Not answered.
    Leave,
    /// The rank has aborted its communicator. Not answered.
    Abort,
    /// The answer. Field: a status.
    Done,
    /// The answer to everything since a rank has aborted.
    Aborted,
    /// The answer to everything since the process of a rank has ended.
    Lost,
}

impl FrameKind {
    const ALL: [Self; 11] = [
        Self::Join,
        Self::Collective,
        Self::Send,
        Self::Receive,
        Self::Flush,
        Self::End,
        Self::Leave,
        Self::Abort,
        Self::Done,
        Self::Aborted,
        Self::Lost,
    ];
}

/// Numbers that go with a frame; what they mean depends on its kind.
pub(super) type Fields = [i64; 6];

/// The head of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: FrameKind,
    pub(super) fields: Fields,
    /// Bytes that follow.
    pub(super) length: usize,
}

const HEADER_BYTES: usize = 64;

impl Header {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let kind = FrameKind::ALL.iter().position(|kind| *kind == self.kind).unwrap_or(0);
        let mut words = vec![kind as i64];
        words.extend(self.fields);
        words.push(self.length as i64);
        let mut bytes = [0; HEADER_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let mut words = [0; HEADER_BYTES / 8];
        for (word, place) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = i64::from_ne_bytes(place.try_into().ok()?);
        }
        let [kind, fields @ .., length] = words;
        let kind = *FrameKind::ALL.get(usize::try_from(kind).ok()?)?;
        Some(Self { kind, fields, length: usize::try_from(length).ok()? })
    }
}

/// Sends a frame.
pub(super) fn write_frame(
    mut to: &UnixStream,
    kind: FrameKind,
    fields: Fields,
    bytes: &[u8],
) -> io::Result<()> {
    to.write_all(&Header { kind, fields, length: bytes.len() }.encode())?;
    to.write_all(bytes)
}

/// Waits for the head of a frame; its bytes are still to be read. None at the end of the stream.
pub(super) fn read_header(mut from: &UnixStream) -> io::Result<Option<Header>> {
    let mut bytes = [0; HEADER_BYTES];
    match from.read_exact(&mut bytes) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let header = Header::decode(&bytes).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Some(header))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_arrives_as_it_was_sent() {
        let (a, b) = UnixStream::pair().unwrap();
        for kind in FrameKind::ALL {
            let fields = [1, -2, i64::MAX, i64::MIN, 0, 7];
            write_frame(&a, kind, fields, b"bytes").unwrap();
            let header = read_header(&b).unwrap().unwrap();
            assert_eq!(header, Header { kind, fields, length: 5 });
            let mut body = [0; 5];
            (&b).read_exact(&mut body).unwrap();
            assert_eq!(&body, b"bytes");
        }
        drop(a);
        assert_eq!(read_header(&b).unwrap(), None);
    }

    #[test]
    fn what_is_no_frame_is_an_error() {
        let (mut a, b) = UnixStream::pair().unwrap();
        a.write_all(&[0xff; HEADER_BYTES]).unwrap();
        assert!(read_header(&b).is_err());
    }
}
