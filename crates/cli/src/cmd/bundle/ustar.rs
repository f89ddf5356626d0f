//! Entries of a tar archive. Format: POSIX.1-1988, ustar.

const BLOCK: usize = 512;

/// What ends an archive.
pub(super) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// A plain file below one folder, with its header, filled up to whole blocks. `name` has at most 80 bytes.
pub(super) fn entry(name: &str, bytes: &[u8], seconds: u64) -> Vec<u8> {
    let mut header = vec![0u8; BLOCK];
    let mut put = |at: usize, text: &str| {
        if let Some(field) = header.get_mut(at..at + text.len()) {
            field.copy_from_slice(text.as_bytes());
        }
    };
    let name: String = name.chars().filter(char::is_ascii).take(80).collect();
    put(0, &format!("pathline-bundle/{name}"));
    put(100, "0000600\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{:011o}\0", bytes.len()));
    put(136, &format!("{:011o}\0", seconds & 0o77_777_777_777));
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\u{0}00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    if let Some(field) = header.get_mut(148..156) {
        field.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    header.extend_from_slice(bytes);
    header.resize(header.len().next_multiple_of(BLOCK), 0);
    header
}
