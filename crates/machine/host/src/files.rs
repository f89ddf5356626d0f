//! Reads small files of /proc and /sys, with a size limit.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Maximum bytes to read: `/proc/self/smaps` of a large process fits.
const MAX_BYTES: u64 = 64 << 20;

/// The text of a file. `None` if it is absent, unreadable or not UTF-8.
pub fn text(path: impl AsRef<Path>) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Up to `most` bytes of a file. `None` if it is absent or unreadable.
pub fn bytes(path: impl AsRef<Path>, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The only number in a file.
pub fn number(path: impl AsRef<Path>) -> Option<u64> {
    text(path)?.trim().parse().ok()
}

/// Bytes of a line `KEY  N kB` in a text like `meminfo`.
pub fn kilobytes(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let rest = &line[line.find(key)?..];
        let number: u64 =
            rest.strip_prefix(key)?.strip_prefix(':')?.split_whitespace().next()?.parse().ok()?;
        number.checked_mul(1024)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_meminfo_is_found_by_its_whole_key() {
        let text =
            "Node 0 MemFree:   100 kB\nNode 0 Inactive:  7 kB\nNode 0 Inactive(file): 3 kB\n";
        assert_eq!(kilobytes(text, "MemFree"), Some(102_400));
        assert_eq!(kilobytes(text, "Inactive(file)"), Some(3072));
        assert_eq!(kilobytes(text, "Inactive(anon)"), None);
        assert_eq!(kilobytes("MemFree: 99999999999999999999 kB", "MemFree"), None);
        assert_eq!(kilobytes("MemFree: 18446744073709551615 kB", "MemFree"), None);
    }
}
