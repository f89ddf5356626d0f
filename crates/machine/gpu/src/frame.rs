//! Messages between this program and its compile worker: a field count, then each field with its
//! length first; all numbers have 32 bits, little-endian.

use std::io::{self, Read, Write};

/// Upper limits of the fields of a message and the bytes of a field.
const FIELDS: u32 = 16;
const BYTES: u32 = 256 << 20;

fn number(from: &mut impl Read) -> io::Result<u32> {
    let mut word = [0; 4];
    from.read_exact(&mut word)?;
    Ok(u32::from_le_bytes(word))
}

/// Reads a message; `None` at the end of the stream.
pub(crate) fn read(from: &mut impl Read) -> io::Result<Option<Vec<Vec<u8>>>> {
    let count = match number(from) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        count => count?,
    };
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    if count > FIELDS {
        return Err(wrong("no message of the compile worker"));
    }
    let mut fields = Vec::new();
    for _ in 0..count {
        let length = number(from)?;
        if length > BYTES {
            return Err(wrong("a field is too long"));
        }
        // Read incrementally: a wrong length must not allocate memory.
        let mut field = Vec::new();
        from.take(length.into()).read_to_end(&mut field)?;
        if field.len() != length as usize {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        fields.push(field);
    }
    Ok(Some(fields))
}

/// Writes a message in one call.
pub(crate) fn write(to: &mut impl Write, fields: &[&[u8]]) -> io::Result<()> {
    let mut message = Vec::new();
    let word = |n: usize| u32::try_from(n).map_err(io::Error::other).map(u32::to_le_bytes);
    message.extend(word(fields.len())?);
    for field in fields {
        message.extend(word(field.len())?);
        message.extend(*field);
    }
    to.write_all(&message)?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_and_truncated_ones_are_errors() {
        let mut bytes = Vec::new();
        write(&mut bytes, &[b"ok", b"", &[0, 1, 255]]).unwrap();
        let message = read(&mut &bytes[..]).unwrap().unwrap();
        assert_eq!(message, [&b"ok"[..], b"", &[0, 1, 255]]);
        assert!(read(&mut &b""[..]).unwrap().is_none());
        for cut in 4..bytes.len() {
            assert!(read(&mut &bytes[..cut]).is_err(), "cut at {cut}");
        }
        assert!(read(&mut &b"not a message"[..]).is_err());
        // One field of 4 GiB without any data.
        assert!(read(&mut &[1, 0, 0, 0, 255, 255, 255, 255][..]).is_err());
    }
}
