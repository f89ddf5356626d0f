//! CPU time of an I/O that kernel threads do for the worker. Alone in its process, whose time it
//! compares.

use pathline_hal::{IoJob, LocalMemory, WorkerRange};
use pathline_runner::live::live_with;
use pathline_schema::{Bytes, Flow, MemKind, Topology};
use pathline_storage::StoreRequest;
use pathline_stub::need::missing;

/// Time that all threads of this process have spent on a core, those of the kernel included, in ns.
fn process() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").expect("listed").flatten();
    let spent = |file| std::fs::read_to_string(file).ok()?.split(' ').next()?.parse::<f64>().ok();
    threads.filter_map(|thread| spent(thread.path().join("schedstat"))).sum()
}

/// Set in the process that runs the test alone.
const INSIDE: &str = "PATHLINE_TEST_HELPERS_ALONE";

/// `ext4` begins no write to the page cache that might wait: the ring gives all of them to a kernel
/// thread, which copies 64 MiB here, while the worker only asks for it.
#[test]
fn time_of_kernel_threads_is_time_of_the_io() {
    // The time of the whole process is compared: other tests must not be threads of it.
    if std::env::var_os(INSIDE).is_none() {
        let alone = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["helpers::time_of_kernel_threads_is_time_of_the_io", "--exact", "--nocapture"])
            .env(INSIDE, "1")
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&alone.stderr);
        assert!(alone.status.success(), "{printed}");
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let asked = StoreRequest {
        path: folder.path().to_owned(),
        span: None,
        overwrite: false,
        endpoint: None,
    };
    let machine = live_with(Topology::default(), &[asked]);
    let storage = machine.storage.as_deref().unwrap();
    let flow: Flow = "r0.numa0.paged > r0.store0.file by \
                      uring@numa0[seq-write,cached,shared,64MiB,q4,n1,t1] x 1MiB"
        .parse()
        .unwrap();
    let (io, block) = (*flow.by.io().unwrap(), flow.bytes.0);
    if let Some(why) = storage.cannot(0, &io, flow.bytes) {
        missing("uring", &why);
        return;
    }
    let bytes = io.slots() * block;
    let address = machine.host.alloc(0, MemKind::Paged, Bytes(bytes)).unwrap();
    machine.host.fill(address, Bytes(bytes), 1, false).unwrap();
    let host = LocalMemory { address, bytes };
    let workers = WorkerRange::alone(&io);
    let id = storage
        .open(IoJob { io, workers, store: 0, block: flow.bytes, numa: 0, host, gpu: None }, 1)
        .unwrap();
    // 64 copies of 1 MiB take 10 ms at least; this thread sleeps meanwhile. What it does around that,
    // and what each clock rounds, is less than the third that is left out.
    let gate = machine.host.gate_create().unwrap();
    let before = process();
    storage.submit(id, gate, 64).unwrap();
    machine.host.gate_release(gate).unwrap();
    let done = storage.reap(id).unwrap();
    let all = process() - before;
    machine.host.gate_destroy(gate).unwrap();
    let cpu_ns = done.reading.cpu_user_ns + done.reading.cpu_system_ns;
    assert_eq!(done.ops, 64);
    assert!(cpu_ns > all * 2.0 / 3.0, "{cpu_ns} of {all} ns");
    assert!(cpu_ns < all * 1.1 + 1e6, "{cpu_ns} of {all} ns");
    storage.close(id).unwrap();
    machine.host.free(address).unwrap();
}
