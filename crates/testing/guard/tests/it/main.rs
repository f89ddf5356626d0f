//! Processes under the allocator, and how they end.
#![allow(unsafe_code, reason = "writes behind blocks are what is tested")]
// Helpers of tests may unwrap as tests do; the lint exempts only functions marked as tests.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;

const SIGABRT: i32 = 6;
const SIGSEGV: i32 = 11;

/// Set in the process that runs the body of a test.
const INSIDE: &str = "PATHLINE_TEST_INSIDE";

fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let places = test.ancestors().skip(1).take(2).map(|f| f.join("libpathline_guard.so"));
    places.into_iter().find(|file| file.is_file()).expect("cargo builds it before this test")
}

/// Runs the body of the named test in a process under the allocator. Returns the signal that ended
/// it and its output; in that process, runs the body and exits.
fn inside(test: &str, body: impl FnOnce()) -> (Option<i32>, String) {
    if std::env::var_os(INSIDE).is_some() {
        body();
        std::process::exit(0);
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .env("LD_PRELOAD", library())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() || output.status.signal().is_some(), "{text}");
    (output.status.signal(), text)
}

/// Writes one byte at an offset of a block of `bytes`.
fn write_at(bytes: usize, offset: usize) {
    let block = black_box(vec![0u8; bytes]);
    // SAFETY: none; the allocator is to find it.
    unsafe { block.as_ptr().add(offset).cast_mut().write_volatile(1) };
    drop(block);
}

#[test]
fn a_write_behind_a_block_ends_the_process_there() {
    let test = "a_write_behind_a_block_ends_the_process_there";
    // 54 elements of 40 bytes: a multiple of 16, so that the page is right behind.
    let (signal, text) = inside(test, || write_at(54 * 40, 54 * 40 + 8));
    assert_eq!(signal, Some(SIGSEGV), "{text}");
    assert!(text.contains("wrote byte 9 behind a block of 2160 bytes by code of /"), "{text}");
}

#[test]
fn a_read_behind_a_block_ends_the_process_there() {
    let (signal, text) = inside("a_read_behind_a_block_ends_the_process_there", || {
        let block = black_box(vec![0u8; 8192]);
        // SAFETY: none; the allocator is to find it.
        black_box(unsafe { block.as_ptr().add(8192).read_volatile() });
    });
    assert_eq!(signal, Some(SIGSEGV), "{text}");
    assert!(text.contains("read byte 1 behind a block of 8192 bytes"), "{text}");
}

#[test]
fn a_write_into_what_fills_a_block_up_is_found_when_it_is_freed() {
    let test = "a_write_into_what_fills_a_block_up_is_found_when_it_is_freed";
    // 100 bytes end 12 before a multiple of 16.
    let (signal, text) = inside(test, || write_at(100, 101));
    assert_eq!(signal, Some(SIGABRT), "{text}");
    assert!(text.contains("byte 2 behind a block of 100 bytes was written, of 12 that"), "{text}");
}

#[test]
fn a_write_behind_a_small_block_is_found_when_it_is_freed() {
    let test = "a_write_behind_a_small_block_is_found_when_it_is_freed";
    let (signal, text) = inside(test, || write_at(10, 10));
    assert_eq!(signal, Some(SIGABRT), "{text}");
    assert!(text.contains("byte 1 behind a block of 10 bytes was written, of 32 that"), "{text}");
}

#[test]
fn a_freed_block_is_no_memory() {
    let (signal, text) = inside("a_freed_block_is_no_memory", || {
        let block = black_box(vec![0u8; 4096]);
        let at = block.as_ptr();
        drop(block);
        // SAFETY: none; the allocator is to find it.
        black_box(unsafe { at.read_volatile() });
    });
    assert_eq!(signal, Some(SIGSEGV), "{text}");
    assert!(text.contains("a block that was freed"), "{text}");
}

#[repr(align(256))]
struct Aligned([u8; 256]);

#[test]
fn a_program_without_errors_runs_as_ever() {
    let (signal, text) = inside("a_program_without_errors_runs_as_ever", || {
        // More blocks at a time than have pages, of all sizes, grown and freed by other threads.
        let threads = (0..4).map(|nth: usize| {
            std::thread::spawn(move || {
                let block = |size: usize| {
                    let mut block = vec![size as u8; size % 300];
                    block.extend(vec![nth as u8; size % 77]);
                    block
                };
                (0..6000).map(block).collect::<Vec<_>>()
            })
        });
        let all: Vec<Vec<Vec<u8>>> =
            threads.collect::<Vec<_>>().into_iter().map(|t| t.join().unwrap()).collect();
        for (nth, blocks) in all.iter().enumerate() {
            for (size, block) in blocks.iter().enumerate() {
                let (first, rest) = block.split_at(size % 300);
                assert!(first.iter().all(|&byte| byte == size as u8));
                assert!(rest.len() == size % 77 && rest.iter().all(|&byte| byte == nth as u8));
            }
        }
        let aligned: Vec<Box<Aligned>> = (0..100).map(|n| Box::new(Aligned([n; 256]))).collect();
        assert!(aligned.iter().all(|block| (&raw const **block).addr().is_multiple_of(256)));
        assert!((0..).zip(&aligned).all(|(n, block)| block.0.iter().all(|&byte| byte == n)));
        let zeros = black_box(vec![0u64; 1 << 16]);
        assert!(zeros.iter().all(|&word| word == 0));
    });
    assert_eq!((signal, text.contains("pathline-guard")), (None, false), "{text}");
}
