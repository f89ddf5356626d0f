//! A short label of the protocol and lanes that UCX reports.

use std::collections::BTreeSet;
use std::ffi::c_char;

/// The text that `print` writes to a stream.
pub(super) fn printed(print: impl FnOnce(*mut libc::FILE)) -> Option<String> {
    let (mut text, mut bytes): (*mut c_char, usize) = (std::ptr::null_mut(), 0);
    // SAFETY: both outlive the stream, which stores into them when it is closed.
    let stream = unsafe { libc::open_memstream(&raw mut text, &raw mut bytes) };
    if stream.is_null() {
        return None;
    }
    print(stream);
    // SAFETY: the stream is open and not used again. `text` then holds `bytes` bytes, which this
    // function frees.
    unsafe {
        libc::fclose(stream);
        if text.is_null() {
            return None;
        }
        let copy = std::slice::from_raw_parts(text.cast::<u8>(), bytes).to_vec();
        libc::free(text.cast());
        Some(String::from_utf8_lossy(&copy).into_owned())
    }
}

/// UCX's name for memory that the CPU addresses.
pub(super) const HOST: &str = "host";

/// The name of a `ucs_memory_type_t`. Numbers from 5 on differ between releases.
pub(super) fn memory_type(number: i32) -> String {
    match number {
        0 => HOST.to_owned(),
        1 => "cuda".to_owned(),
        2 => "cuda-managed".to_owned(),
        3 => "rocm".to_owned(),
        4 => "rocm-managed".to_owned(),
        _ => format!("memory type {number}"),
    }
}

/// Transports of an endpoint's lanes, in order, without repetition, from its printed text:
///
/// ```text
/// #                 lane[0]:  4:posix/memory.0 md[3]       -> md[3]/posix/sysdev[255] seg 8256 am
/// ```
pub(super) fn lanes(printed: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let of = |line: &str| -> Option<String> {
        let rest = line.split_once("lane[")?.1.split_once("]:")?.1.trim_start();
        let resource = rest.split_once(':')?.1.split_whitespace().next()?;
        Some(resource.rsplit_once('.').map_or(resource, |(name, _)| name).to_owned())
    };
    printed.lines().filter_map(of).filter(|name| seen.insert(name.clone())).collect()
}

/// The size limits of each protocol in older releases, before the second protocol generation, from
/// an endpoint's printed text:
///
/// ```text
/// #                tag_send: 0..<egr/short>..93..<egr/bcopy>..8256..<rndv>..(inf)
/// ```
pub(super) fn thresholds(printed: &str, operation: &str) -> Option<String> {
    let of = |line: &str| {
        let rest = line.trim_start_matches(['#', ' ']).strip_prefix(operation)?;
        Some(rest.strip_prefix(':')?.trim().to_owned())
    };
    printed.lines().find_map(of)
}

/// The essential part of a request's text. The first protocol generation prints flags, a length,
/// the remaining progress function, if any, and a lane, which is that of control messages:
///
/// ```text
/// flags:0x44000 send length 1048576 ucp_proto_progress_tag_rndv_rts() lane[0]: 4:sysv/memory.0
/// ```
///
/// The second generation prints flags in braces, the protocol, and the expected rate and time. The
/// rate follows from the time.
pub(super) fn protocol(text: &str) -> String {
    let text = text.split(" lane[").next().unwrap_or_default().trim();
    let rest = match (text.starts_with('{'), text.split_once('}')) {
        (true, Some((_, rest))) => rest,
        _ => text,
    };
    let is_informative = |field: &&str| !field.starts_with("flags:") && *field != "???()";
    let fields: Vec<&str> = rest.split_whitespace().filter(is_informative).collect();
    match fields.as_slice() {
        [before @ .., _, "MB/s", time, "us"] => {
            format!("{} (expects {time} us)", before.join(" "))
        }
        _ => fields.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_printed_to_a_stream_is_returned() {
        let text = printed(|stream| {
            // SAFETY: the stream is open and the text is a C string.
            unsafe { libc::fputs(c"lanes\nand more".as_ptr(), stream) };
        });
        assert_eq!(text.as_deref(), Some("lanes\nand more"));
    }

    #[test]
    fn lanes_are_those_of_the_printed_endpoint() {
        // As 1.22.0 prints them, and a line that is none.
        let printed = "#\n# UCP endpoint\n\
            #                 lane[0]:  4:posix/memory.0 md[3]  -> md[3]/posix/sysdev[255] seg 8256 am\n\
            #                 lane[1]:  5:cma/memory.0 md[4]    -> md[4]/cma/sysdev[255] seg 524288\n\
            #                 lane[2]:  5:cma/memory.1 md[4]    -> md[4]/cma/sysdev[255] seg 524288\n\
            #                tag_send: 0..<egr/short>..92\n";
        assert_eq!(lanes(printed), ["posix/memory", "cma/memory"]);
        assert_eq!(thresholds(printed, "tag_send").as_deref(), Some("0..<egr/short>..92"));
        assert_eq!(thresholds(printed, "put[0]"), None);
    }

    #[test]
    fn the_protocol_is_kept_and_the_expected_rate_left_out() {
        let text = "{proto-send} tag_send from host memory length 1048576 rendezvous zero-copy \
                    read from remote cma/memory  11087.1 MB/s 90.20 us";
        let short = "tag_send from host memory length 1048576 rendezvous zero-copy read from remote \
                     cma/memory (expects 90.20 us)";
        // 1048576 B in 90.20 us are 11087 MiB/s.
        assert_eq!(protocol(text), short);
        // As 1.13.1 prints a message that was sent, and one that waits for its reader.
        let lane = "lane[0]: 4:sysv/memory.0 md[2] -> md[2]/sysv/sysdev[255] am am_bw#0host memory";
        let gone = format!("flags:0x4001 send length 8 ???() {lane}");
        assert_eq!(protocol(&gone), "send length 8");
        let waits =
            format!("flags:0x44000 send length 8192 ucp_proto_progress_tag_rndv_rts() {lane}");
        assert_eq!(protocol(&waits), "send length 8192 ucp_proto_progress_tag_rndv_rts()");
    }
}
