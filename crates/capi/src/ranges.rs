//! Ranges of memory that callers pass.

use crate::copy_error::CopyError;

/// Whether two ranges of this length share a byte.
pub(crate) fn overlap(a: u64, b: u64, bytes: usize) -> bool {
    a.abs_diff(b) < bytes as u64
}

/// Refuses ranges that no copy can have.
pub(crate) fn check_ranges(dst: u64, src: u64, bytes: usize) -> Result<(), CopyError> {
    if bytes == 0 {
        return Ok(());
    }
    for (name, address) in [("destination", dst), ("source", src)] {
        if address == 0 {
            return Err(CopyError::invalid(format!("the {name} is a null pointer")));
        }
        if address.checked_add(bytes as u64).is_none() {
            let text = format!("{bytes} bytes at {address:#x} go beyond the end of all memory");
            return Err(CopyError::invalid(text));
        }
    }
    if overlap(dst, src, bytes) {
        let text = format!("{bytes} bytes from {src:#x} overlap those at {dst:#x}");
        return Err(CopyError::invalid(text));
    }
    Ok(())
}

/// Joins copies that continue one another at both ends.
pub(crate) fn merge_adjacent(copies: &[(u64, u64, usize)]) -> Vec<(u64, u64, usize)> {
    let mut merged: Vec<(u64, u64, usize)> = Vec::new();
    for &(dst, src, bytes) in copies {
        let continues = |last: &&mut (u64, u64, usize)| {
            last.0.checked_add(last.2 as u64) == Some(dst)
                && last.1.checked_add(last.2 as u64) == Some(src)
                && last.2.checked_add(bytes).is_some()
        };
        match merged.last_mut().filter(continues) {
            Some(last) => last.2 += bytes,
            None => merged.push((dst, src, bytes)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_continue_one_another_are_one() {
        let copies = [(100, 1000, 50), (150, 1050, 50), (200, 1101, 10), (210, 1111, 5)];
        // The third continues the destination only; the fourth both of the third.
        assert_eq!(merge_adjacent(&copies), [(100, 1000, 100), (200, 1101, 15)]);
        assert_eq!(merge_adjacent(&[]), []);
    }

    #[test]
    fn impossible_ranges_are_refused() {
        let text = |dst, src, bytes| check_ranges(dst, src, bytes).unwrap_err().text;
        assert_eq!(text(0, 16, 8), "the destination is a null pointer");
        assert_eq!(text(16, 0, 8), "the source is a null pointer");
        assert!(text(16, 20, 8).contains("overlap"));
        assert!(text(u64::MAX - 3, 16, 8).contains("beyond the end"));
        assert!(check_ranges(16, 24, 8).is_ok());
        assert!(check_ranges(0, 0, 0).is_ok());
    }
}
