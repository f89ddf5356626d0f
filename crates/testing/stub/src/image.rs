//! The image format of this library's compiler and loader: a target, and the source itself.

use std::ffi::c_void;

use pathline_schema::KernelVariant;

/// First line of an image.
const MAGIC: &[u8] = b"pathline stub image\n";

/// A loaded image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KernelImage {
    pub(crate) arch: String,
    pub(crate) source: String,
}

/// An image as bytes.
pub(crate) fn pack(arch: &str, source: &str) -> Vec<u8> {
    [MAGIC, format!("{arch}\n{}\n{source}", source.len()).as_bytes()].concat()
}

/// Parses the argument of a load call; `None` if it is no image.
///
/// # Safety
/// `at` must be null, or point to an image, to machine code or to text that ends with a zero, as
/// the vendors' functions require.
pub(crate) unsafe fn unpack(at: *const c_void) -> Option<KernelImage> {
    if at.is_null() {
        return None;
    }
    let mut at = at.cast::<u8>();
    let mut next = || {
        // SAFETY: reading stops at the first byte that does not fit an image, at a line's end, or
        // after the number of bytes in the image's header.
        let byte = unsafe { at.read() };
        at = at.wrapping_add(1);
        byte
    };
    if !MAGIC.iter().all(|&wanted| next() == wanted) {
        return None;
    }
    let mut line = || {
        let mut line = Vec::new();
        loop {
            match next() {
                b'\n' => return String::from_utf8(line).ok(),
                0 => return None,
                byte => line.push(byte),
            }
        }
    };
    let (arch, length) = (line()?, line()?.parse().ok()?);
    let source = (0..length).map(|_: usize| next()).collect();
    Some(KernelImage { arch, source: String::from_utf8(source).ok()? })
}

/// The variant of a source: its key is a separate comment line.
pub(crate) fn variant(source: &str) -> Option<KernelVariant> {
    source.lines().find_map(|line| line.strip_prefix("// ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pathline_schema::{GridSize, KernelOp};

    #[test]
    fn only_images_are_parsed() {
        let source = pathline_hal::kernel::source(&KernelVariant::standard(KernelOp::Triad));
        let packed = pack("sm_90", &source);
        // SAFETY: an image, and two texts that end with a zero.
        let read = |bytes: &[u8]| unsafe { unpack(bytes.as_ptr().cast()) };
        let image = read(&packed).unwrap();
        assert_eq!((image.arch.as_str(), &image.source), ("sm_90", &source));
        assert_eq!(read(b"\x7fELF\0"), None);
        assert_eq!(read(b"pathline stub image\nsm_90\0"), None);
        let expected =
            KernelVariant { grid: GridSize::Blocks(1), ..KernelVariant::standard(KernelOp::Triad) };
        assert_eq!(variant(&format!("#define A\n{source}")), Some(expected));
        assert_eq!(variant("// a comment\nint main() {}"), None);
    }
}
