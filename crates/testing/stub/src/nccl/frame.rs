//! The messages between a rank of a communicator and its hub: a header of eight 64-bit fields in
//! host byte order, then bytes.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// The kind of a request or reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// A rank takes its place. Fields: size, rank. Answered once all ranks have.
    Join,
    /// A rank's part of a collective, with its data. Fields: those of `Collective`. Answered with
    /// the rank's result once all ranks have sent theirs.
    Collective,
    /// A message. Field: the receiver. Not answered.
    Send,
    /// Field: the sender. Answered with the message once it has arrived.
    Receive,
    /// Answered once every message of this rank has been received.
    Flush,
    /// Answered once the communicator has ended early.
    End,
    /// The rank has destroyed its communicator. Not answered.
    Leave,
    /// The rank has aborted its communicator. Not answered.
    Abort,
    /// The reply. Field: a status.
    Done,
    /// The reply to every request after a rank has aborted.
    Aborted,
    /// The reply to every request after the process of a rank has ended.
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

/// Numbers of a frame; their meaning depends on its kind.
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
        let mut fields = vec![kind as i64];
        fields.extend(self.fields);
        fields.push(self.length as i64);
        let mut bytes = [0; HEADER_BYTES];
        for (place, field) in bytes.chunks_exact_mut(8).zip(fields) {
            place.copy_from_slice(&field.to_ne_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let mut numbers = [0; HEADER_BYTES / 8];
        for (number, place) in numbers.iter_mut().zip(bytes.chunks_exact(8)) {
            *number = i64::from_ne_bytes(place.try_into().ok()?);
        }
        let [kind, fields @ .., length] = numbers;
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

/// Waits for a frame's header; its bytes remain to be read. `None` at the end of the stream.
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
    fn invalid_frames_are_errors() {
        let (mut a, b) = UnixStream::pair().unwrap();
        a.write_all(&[0xff; HEADER_BYTES]).unwrap();
        assert!(read_header(&b).is_err());
    }
}
