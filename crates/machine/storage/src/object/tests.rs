//! Jobs against a server in this process, which misbehaves on request.

mod test_server;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pathline_hal::{IoJob, LocalMemory, MetaJob, WorkerRange};
use pathline_host::clock::ClockOrigin;
use pathline_host::pattern;
use pathline_schema::{Bytes, Flow, IoSpec, MetaOp, Severity, VerifyResult};

use super::super::own_name::RunFolder;
use super::super::wait_limit::WaitLimit;
use super::super::worker_pool::RoundKind;
use super::client::BucketClient;
use super::job::{LiveObjects, ObjectJob};
use super::place::BucketPlace;
use super::small::LiveSmallObjects;
use super::wire::TlsSetup;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use test_server::TestServer;

const SEED: u64 = 1009;
const BLOCK: u64 = 4096;

fn place(server: &TestServer) -> Rc<BucketPlace> {
    let client = BucketClient::of_test(&server.endpoint, "a/b");
    let (place, name) = BucketPlace::of_client(Arc::new(client)).unwrap();
    assert_eq!(name, "test");
    Rc::new(place)
}

fn spec(args: &str) -> IoSpec {
    let (a, b) = ("r0.store0.file", "r0.numa0.paged");
    let text = if args.contains("-write") { format!("{b} > {a}") } else { format!("{a} > {b}") };
    let flow: Flow = format!("{text} by s3@numa0[{args}] x 4KiB").parse().unwrap();
    *flow.by.io().unwrap()
}

/// A job and the memory of its slots.
struct JobUnderTest {
    job: Box<LiveObjects>,
    memory: Vec<u64>,
}

impl JobUnderTest {
    fn open(place: &Rc<BucketPlace>, args: &str) -> pathline_hal::CallResult<Self> {
        let io = spec(args);
        let mut memory = vec![0u64; (io.slots() * BLOCK / 8) as usize];
        let host = LocalMemory { address: memory.as_mut_ptr() as u64, bytes: io.slots() * BLOCK };
        let (workers, block) = (WorkerRange::alone(&io), Bytes(BLOCK));
        let job = IoJob { io, workers, store: 0, block, numa: 0, host, gpu: None };
        let job = Box::new(LiveObjects::new(place, job, SEED, &[], ClockOrigin::now())?);
        let mut open = Self { job, memory };
        open.fill(if io.writes() { SEED } else { 5 });
        Ok(open)
    }

    fn bytes(&mut self) -> &mut [u8] {
        let len = self.memory.len() * 8;
        // SAFETY: the vector has that many bytes.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_mut_ptr().cast(), len) }
    }

    fn fill(&mut self, seed: u64) {
        pattern::fill_part(self.bytes(), 0, seed);
    }

    fn round(&self, kind: RoundKind) -> pathline_hal::CallResult<pathline_hal::IoDone> {
        self.job.threads().run(kind, None)
    }
}

#[test]
fn blocks_are_read_as_ranges_and_as_objects() {
    let server = TestServer::start();
    for (closes, chunks) in [(false, false), (true, true)] {
        server.state.closes.store(closes, Ordering::Relaxed);
        server.state.chunks.store(chunks, Ordering::Relaxed);
        let place = place(&server);
        for args in [
            "seq-read,direct,shared,64KiB,q4,n1,t2",
            "rand-read,direct,own,64KiB,q3,n2,t1",
            "seq-read,direct,each,64KiB,q4,n1,t2",
        ] {
            let mut open = JobUnderTest::open(&place, args).unwrap();
            let done = open.round(RoundKind::Sample(23)).unwrap();
            assert_eq!((done.ops, done.reading.latency.count()), (23, 23), "{args}");
            assert!(done.reading.calls["GetObject"].count > 0, "{args}");
            open.fill(5);
            open.round(RoundKind::Landing).unwrap();
            assert_eq!(pattern::check_part(open.bytes(), 0, SEED), None, "{args}");
            assert_eq!(open.job.check(SEED).unwrap(), VerifyResult::Verified);
            let calls = open.job.end();
            assert!(calls["connect"].count > 0, "{calls:?}");
        }
        drop(place);
        assert!(server.state.objects.lock().unwrap().is_empty(), "nothing stays");
    }
}

/// A client of the server that trusts the authority of `tests/authority.pem`, or nobody the server knows.
fn client_with_tls(server: &TestServer, host: &str, trusts: bool) -> BucketClient {
    let mut roots = RootCertStore::empty();
    let text =
        if trusts { include_str!("tests/authority.pem") } else { include_str!("tests/other.pem") };
    roots.add(CertificateDer::from_pem_slice(text.as_bytes()).unwrap()).unwrap();
    let tls = TlsSetup::with_roots(host, roots).unwrap();
    let mut client = BucketClient::of_test(&server.endpoint, "a/b");
    client.tls = Some(tls);
    client
}

/// 23 blocks each way, of objects and of parts of one, through TLS.
#[test]
fn https_carries_every_byte() {
    let server = TestServer::start_tls();
    let client = Arc::new(client_with_tls(&server, "localhost", true));
    let (place, _) = BucketPlace::of_client(client).unwrap();
    let place = Rc::new(place);
    for args in [
        "seq-read,direct,shared,64KiB,q4,n1,t2",
        "seq-read,direct,each,64KiB,q4,n1,t2",
        "seq-write,direct,each,64KiB,q4,n1,t2",
        "seq-write,direct,shared,64KiB,q4,n1,t2",
    ] {
        let mut open = JobUnderTest::open(&place, args).unwrap();
        assert_eq!(open.round(RoundKind::Sample(23)).unwrap().ops, 23, "{args}");
        if args.contains("-read") {
            open.fill(5);
        }
        open.round(RoundKind::Landing).unwrap();
        assert_eq!(open.job.check(SEED).unwrap(), VerifyResult::Verified, "{args}");
    }
}

#[test]
fn a_server_that_nobody_trusts_is_named_so() {
    let server = TestServer::start_tls();
    for (host, trusts, why) in
        [("localhost", false, "UnknownIssuer"), ("other.example", true, "not valid for name")]
    {
        let client = client_with_tls(&server, host, trusts);
        let error = BucketPlace::of_client(Arc::new(client)).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("SSL_CERT_FILE"), "{error}");
    }
}

#[test]
fn what_is_written_is_read_back_and_wrong_bytes_are_found() {
    let server = TestServer::start();
    let place = place(&server);
    for args in [
        "seq-write,direct,each,64KiB,q4,n1,t2",
        "seq-write,direct,shared,64KiB,q4,n1,t2",
        "rand-write,direct,own,64KiB,q2,n1,t1",
        "rand-mix50,direct,each,64KiB,q4,n1,t1",
    ] {
        let mut open = JobUnderTest::open(&place, args).unwrap();
        assert_eq!(open.round(RoundKind::Sample(17)).unwrap().ops, 17, "{args}");
        open.fill(SEED);
        open.job.spoil().unwrap();
        let error = open.job.check(SEED).unwrap_err();
        assert_eq!(error.severity, Severity::Corrupt, "{args}: {error}");
        open.round(RoundKind::Landing).unwrap();
        assert_eq!(open.job.check(SEED).unwrap(), VerifyResult::Verified, "{args}");
        assert!(open.job.check(SEED + 77).is_err(), "{args}");
        server.state.corrupts.store(true, Ordering::Relaxed);
        open.round(RoundKind::Landing).unwrap();
        server.state.corrupts.store(false, Ordering::Relaxed);
        assert!(open.job.check(SEED).is_err(), "{args}");
        open.job.end();
    }
    drop(place);
    assert!(server.state.objects.lock().unwrap().is_empty());
    assert!(server.state.uploads.lock().unwrap().is_empty(), "uploads are ended");
}

#[test]
fn a_failure_names_the_object_the_server_and_the_status() {
    let server = TestServer::start();
    let place = place(&server);
    let open = JobUnderTest::open(&place, "seq-read,direct,shared,64KiB,q4,n1,t2").unwrap();
    server.state.busy.store(1, Ordering::Relaxed);
    let error = open.round(RoundKind::Sample(40)).unwrap_err();
    assert_eq!((error.call.as_str(), error.code), ("GetObject", 503));
    let text = error.to_string();
    for part in [
        "s3://data/a/b/pathline-storage-",
        &server.endpoint,
        "HTTP 503 SlowDown: less",
        "limits requests",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("hidden-secret") && !text.contains("X-Amz"), "{text}");
    // The next sample of the same workers is fine.
    assert_eq!(open.round(RoundKind::Sample(40)).unwrap().ops, 40);
    // A connection that the server has closed is opened again; one that ends within a body is a failure.
    server.state.drops.store(1, Ordering::Relaxed);
    assert_eq!(open.round(RoundKind::Sample(40)).unwrap().ops, 40);
    server.state.cuts.store(1, Ordering::Relaxed);
    let error = open.round(RoundKind::Sample(40)).unwrap_err();
    assert!(error.reason.contains("the connection ended after"), "{error}");
    server.state.objects.lock().unwrap().clear();
    let error = open.round(RoundKind::Sample(4)).unwrap_err();
    assert!(error.reason.contains("HTTP 404 NoSuchKey"), "{error}");
    assert_eq!(open.job.end().get("connect").map(|c| c.count), Some(8));
}

#[test]
fn small_objects_are_made_asked_for_listed_read_and_removed() {
    let server = TestServer::start();
    let place = place(&server);
    for op in [MetaOp::Create, MetaOp::Stat, MetaOp::Read, MetaOp::List, MetaOp::Delete] {
        for (folders, bytes) in [("own", 1), ("shared", 5)] {
            let (a, b) = ("r0.numa0.reg", "r0.store0.file");
            let ends =
                if op == MetaOp::Create { format!("{a} > {b}") } else { format!("{b} > {a}") };
            let text = format!("{ends} by meta@numa0[{},{folders},d2,f3,t2] x 1B", op.word());
            let flow: Flow = text.parse().unwrap();
            let meta = *flow.by.meta().unwrap();
            let job = MetaJob { meta, store: 0, bytes: Bytes(bytes), numa: 0 };
            let open = LiveSmallObjects::new(&place, &job, SEED, &[], ClockOrigin::now()).unwrap();
            let open: Box<dyn ObjectJob> = Box::new(open);
            for ops in [12, 1, 12, 11] {
                open.arrange(ops).unwrap();
                let done = open.threads().run(RoundKind::Sample(ops), None).unwrap();
                assert_eq!((done.ops, done.reading.latency.count()), (ops, ops), "{text}");
            }
            open.before_landing().unwrap();
            open.threads().run(RoundKind::Landing, None).unwrap();
            assert_eq!(open.check(SEED).unwrap(), VerifyResult::Verified, "{text}");
            if op == MetaOp::Create {
                let stray =
                    server.state.objects.lock().unwrap().keys().next().unwrap().clone() + "x";
                server.state.objects.lock().unwrap().insert(stray, Vec::new());
                assert!(
                    open.check(SEED).unwrap_err().reason.contains("lists 13 objects"),
                    "{text}"
                );
            }
            open.end();
            // The stray object is none of this program's.
            let left = std::mem::take(&mut *server.state.objects.lock().unwrap());
            assert_eq!(left.len(), usize::from(op == MetaOp::Create), "{text}");
        }
    }
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let client = BucketClient::of_test("http://127.0.0.1:9", "p");
    let error = BucketPlace::of_client(Arc::new(client)).unwrap_err();
    assert!(error.to_string().contains("s3://data/ at http://127.0.0.1:9"), "{error}");
    assert!(error.reason.starts_with("connect: "), "{error}");
}

fn client(server: &TestServer) -> Arc<BucketClient> {
    Arc::new(BucketClient::of_test(&server.endpoint, "p"))
}

#[test]
fn a_sweep_removes_what_this_program_made_and_nothing_else() {
    let server = TestServer::start();
    let here = RunFolder::of_this_process();
    let dead = RunFolder { number: here.number + 1, ..here.clone() };
    let own = ["read-5eed", "write-0", "each-5-4096/7", "each-write-1/0", "tree-1/d0-0/f0-3"];
    let foreign = [
        "../../../other/precious",
        "../precious",
        "./x",
        "/x",
        "precious",
        "read-5EED",
        "%2e%2e/x",
    ];
    let put = |key: String| server.state.objects.lock().unwrap().insert(key, Vec::new());
    own.iter().chain(&foreign).for_each(|name| drop(put(format!("p/{dead}/{name}"))));
    put(format!("p/{here}/write-0"));
    put(format!("p/x/{dead}/write-0"));
    put(format!("p/{dead}-old/write-0"));
    let swept =
        BucketPlace::sweep_with(&client(&server), WaitLimit::total(Duration::from_secs(60)));
    assert_eq!((swept.removed.len(), swept.left.len(), swept.unseen), (0, 1, None));
    assert_eq!(swept.left[0].1, "7 objects in it are not of pathline");
    let left = server.state.objects.lock().unwrap().len();
    assert_eq!(left, foreign.len() + 3, "{:?}", server.state.objects.lock().unwrap());
    let asked = server.state.asked.lock().unwrap();
    let mut deleted: Vec<&str> =
        asked.iter().filter_map(|line| line.strip_prefix("DELETE ")).collect();
    deleted.sort_unstable();
    let mut wanted: Vec<String> = own.iter().map(|name| format!("/data/p/{dead}/{name}")).collect();
    wanted.sort_unstable();
    assert_eq!(deleted, wanted);
}

#[test]
fn a_list_without_an_end_ends() {
    let server = TestServer::start();
    for pages in [vec!["a"], vec!["b", "a"], vec!["a", "b", "c", "d", "e"]] {
        *server.state.pages.lock().unwrap() = pages.clone();
        let limit = WaitLimit::total(Duration::from_secs(60));
        let why = BucketPlace::sweep_with(&client(&server), limit).unseen.unwrap();
        assert!(why.contains("again and again"), "{pages:?}: {why}");
    }
    assert!(server.state.asked.lock().unwrap().len() < 20);
}

#[test]
fn a_slow_answer_ends_by_the_limit_and_by_an_interrupt() {
    let server = TestServer::start();
    server.state.drips.store(true, Ordering::Relaxed);
    let begun = ClockOrigin::now();
    let elapsed = || Duration::from_nanos(begun.ns());
    let sweep = |limit| BucketPlace::sweep_with(&client(&server), limit).unseen.unwrap();
    let why = sweep(WaitLimit::total(Duration::from_secs(1)));
    assert!(why.contains("not done after 1 s"), "{why}");
    let stop = || (elapsed() > Duration::from_millis(1500)).then(|| "interrupted".to_owned());
    let why = sweep(WaitLimit::total(Duration::from_secs(600)).stopped_by(&stop));
    assert!(why.contains("interrupted"), "{why}");
    // A reply has some 60 bytes and takes 3 s each time: neither waited for it.
    assert!(elapsed() < Duration::from_millis(2900), "{:?}", elapsed());
}

#[test]
fn interim_replies_are_few() {
    let server = TestServer::start();
    for (count, fine) in [(3, true), (1000, false)] {
        server.state.interim.store(count, Ordering::Relaxed);
        let found = BucketPlace::of_client(client(&server));
        assert_eq!(found.is_ok(), fine, "{count}");
        assert!(fine || found.unwrap_err().reason.contains("1xx"));
    }
}
