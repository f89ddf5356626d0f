//! Compiles in a separate process: the code generator behind hipRTC ends the process on some
//! targets and sources, and any compiler may hang.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use pathline_hal::{CallError, CallResult};
use pathline_schema::Severity;

use super::family::RuntimeFamily;
use super::frame;
use super::rtc::BoundCompiler;
use pathline_dylib::SharedLibrary;

/// The argument that makes this program serve compilations.
pub const COMPILE_COMMAND: &str = "__compile";

/// Timeout of one kernel. The slowest known takes 0.5 s.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Maximum bytes kept of a worker's output.
const OUTPUT_TAIL: usize = 400;

/// A worker process that compiles one kernel after the other.
#[derive(Debug)]
pub(crate) struct CompileWorker {
    process: Child,
    requests: Option<ChildStdin>,
    replies: Receiver<io::Result<Option<Vec<Vec<u8>>>>>,
    output: Arc<Mutex<Vec<u8>>>,
    readers: Vec<JoinHandle<()>>,
}

/// The source, the target and the compiler of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CompileRequest<'a> {
    pub(crate) family: RuntimeFamily,
    pub(crate) library: &'a Path,
    pub(crate) target: &'a str,
    pub(crate) text: &'a str,
}

impl CompileWorker {
    pub(crate) fn start(program: &Path) -> io::Result<Self> {
        let mut process = Command::new(program)
            .arg(COMPILE_COMMAND)
            // Otherwise the compiler's own cache would go to a home folder that all ranks share.
            .env("AMD_COMGR_CACHE", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (sender, replies) = channel();
        let output = Arc::<Mutex<Vec<u8>>>::default();
        let mut readers = Vec::new();
        if let Some(mut stdout) = process.stdout.take() {
            readers.push(std::thread::Builder::new().spawn(move || {
                loop {
                    let reply = frame::read(&mut stdout);
                    let last = !matches!(reply, Ok(Some(_)));
                    if sender.send(reply).is_err() || last {
                        return;
                    }
                }
            })?);
        }
        if let Some(mut stderr) = process.stderr.take() {
            let output = Arc::clone(&output);
            readers.push(std::thread::Builder::new().spawn(move || {
                let mut piece = [0; 1024];
                while let Ok(1..) = stderr.read(&mut piece).inspect(|&length| {
                    if let Ok(mut output) = output.lock() {
                        output.extend(piece.get(..length).unwrap_or_default());
                        let surplus = output.len().saturating_sub(OUTPUT_TAIL);
                        output.drain(..surplus);
                    }
                }) {}
            })?);
        }
        let requests = process.stdin.take();
        Ok(Self { process, requests, replies, output, readers })
    }

    /// The outcome of a compilation. The error is how the worker ended before it replied; the
    /// worker cannot be used again.
    pub(crate) fn compile(
        &mut self,
        request: CompileRequest<'_>,
        deadline: Duration,
    ) -> std::result::Result<CallResult<Vec<u8>>, String> {
        let CompileRequest { family, library, target, text } = request;
        let path = library.as_os_str().as_bytes();
        let fields = [family.name.as_bytes(), path, target.as_bytes(), text.as_bytes()];
        let sent = match &mut self.requests {
            Some(requests) => frame::write(requests, &fields),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        let reply = match sent {
            Ok(()) => self.replies.recv_timeout(deadline),
            Err(_) => Err(RecvTimeoutError::Disconnected),
        };
        match reply {
            Ok(Ok(Some(fields))) => parse_reply(&fields, family)
                .ok_or_else(|| self.end("it sent an invalid reply".to_owned())),
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                Err(self.end(format!("it sent an invalid reply ({error})")))
            }
            Err(RecvTimeoutError::Timeout) => {
                Err(self.end(format!("it did not finish within {} s", deadline.as_secs_f64())))
            }
            Ok(_) | Err(RecvTimeoutError::Disconnected) => Err(self.end(String::new())),
        }
    }

    /// Ends the worker; returns how it ended.
    fn end(&mut self, why: String) -> String {
        drop(self.requests.take());
        if !why.is_empty() {
            // Killing a process that has already ended fails.
            let _ = self.process.kill();
        }
        let status = self.process.wait();
        if why.is_empty() {
            // All its output has arrived; a grandchild that was killed may still write.
            self.readers.drain(..).for_each(|reader| drop(reader.join()));
        }
        let output = self.output.lock().map(|s| String::from_utf8_lossy(&s).trim().to_owned());
        let output = output.ok().filter(|s| !s.is_empty()).map(|s| format!("; its output: {s}"));
        let how = if why.is_empty() { status.map_or_else(|e| e.to_string(), ended) } else { why };
        format!("{how}{}", output.unwrap_or_default())
    }
}

impl Drop for CompileWorker {
    fn drop(&mut self) {
        drop(self.requests.take());
        // It has no work to finish.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn ended(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(signal), _) => format!("it died of signal {signal}"),
        (None, Some(code)) => format!("it ended with code {code}"),
        (None, None) => "it ended".to_owned(),
    }
}

/// The outcome in a reply; `None` if the reply is invalid.
fn parse_reply(fields: &[Vec<u8>], family: RuntimeFamily) -> Option<CallResult<Vec<u8>>> {
    let text = |field: &[u8]| String::from_utf8_lossy(field).into_owned();
    match fields {
        [status, code] if status == b"ok" => Some(Ok(code.clone())),
        [status, call, thing, code, reason, way_out] if status == b"no" => {
            let call = if call.is_empty() { family.name.to_owned() } else { text(call) };
            Some(Err(CallError::new(Severity::Unsupported, call, text(thing), text(reason))
                .with_code(text(code).parse().ok()?)
                .or_try(text(way_out))))
        }
        _ => None,
    }
}

/// Serves compilations: reads requests from standard input and writes the outcome of each to
/// standard output, until the input ends. The compiler's own output goes to standard error.
///
/// # Errors
/// Standard input or output fails, or a request is invalid.
pub fn serve_compilations() -> io::Result<()> {
    // SAFETY: duplicates a descriptor of this process, which nobody else closes, and puts standard
    // error in the place of standard output.
    let mut replies = unsafe {
        let kept = libc::dup(libc::STDOUT_FILENO);
        if kept < 0 || libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) < 0 {
            return Err(io::Error::last_os_error());
        }
        std::fs::File::from_raw_fd(kept)
    };
    let mut requests = io::stdin().lock();
    let mut open: Option<OpenCompiler> = None;
    while let Some(fields) = frame::read(&mut requests)? {
        let [family, library, target, text] = &fields[..] else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "an invalid compile request"));
        };
        match served(&mut open, family, library, target, text) {
            Ok(code) => frame::write(&mut replies, &[b"ok", &code])?,
            Err(CallError { call, thing, code, reason, way_out, .. }) => {
                let fields: [&[u8]; 6] = [
                    b"no",
                    call.as_bytes(),
                    thing.as_bytes(),
                    &code.to_string().into_bytes(),
                    reason.as_bytes(),
                    way_out.as_bytes(),
                ];
                frame::write(&mut replies, &fields)?;
            }
        }
    }
    Ok(())
}

/// A compiler with the runtime and library of its request.
struct OpenCompiler {
    family: RuntimeFamily,
    library: Vec<u8>,
    bound: BoundCompiler,
}

impl OpenCompiler {
    /// Opens the compiler by the runtime's name and the library's file.
    fn open(family: &[u8], library: &[u8]) -> Result<Self, String> {
        let name = String::from_utf8_lossy(family);
        let family =
            RuntimeFamily::named(&name).ok_or_else(|| format!("no runtime is called {name}"))?;
        let shared = SharedLibrary::open(Path::new(OsStr::from_bytes(library)))?;
        let bound = BoundCompiler::new(family.compiler.names, shared)?;
        (family.compiler.prepare)(&bound.path);
        Ok(Self { family, library: library.to_vec(), bound })
    }

    fn is(&self, family: &[u8], library: &[u8]) -> bool {
        self.family.name.as_bytes() == family && self.library == library
    }
}

fn served(
    open: &mut Option<OpenCompiler>,
    family: &[u8],
    library: &[u8],
    target: &[u8],
    text: &[u8],
) -> CallResult<Vec<u8>> {
    let target = String::from_utf8_lossy(target);
    let known = open.take().filter(|open| open.is(family, library));
    let compiler = match known {
        Some(known) => known,
        None => OpenCompiler::open(family, library).map_err(|why| {
            let path = Path::new(OsStr::from_bytes(library));
            CallError::unsupported("dlopen", path.display().to_string(), why)
        })?,
    };
    let compiler = open.insert(compiler);
    let code = compiler.family.compiler.code;
    code(&compiler.bound, &String::from_utf8_lossy(text), &target)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    /// A program that runs a shell script in place of the worker.
    fn instead(script: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        (folder, path)
    }

    fn outcome(
        script: &str,
        deadline: Duration,
    ) -> std::result::Result<CallResult<Vec<u8>>, String> {
        let (_folder, path) = instead(script);
        let library = Path::new("libamdhip64.so");
        let request = CompileRequest {
            family: RuntimeFamily::named("hip").unwrap(),
            library,
            target: "gfx90a",
            text: "a kernel",
        };
        CompileWorker::start(&path).unwrap().compile(request, deadline)
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn a_worker_that_dies_hangs_or_sends_garbage_costs_one_kernel() {
        let died = outcome("echo 'munmap_chunk(): invalid pointer' >&2; kill -ABRT $$", LONG);
        let died = died.unwrap_err();
        assert!(died.contains("signal 6") && died.contains("munmap_chunk"), "{died}");
        let left = outcome("exit 7", LONG).unwrap_err();
        assert!(left.contains("code 7"), "{left}");
        let hung = outcome("exec sleep 60", Duration::from_millis(100)).unwrap_err();
        assert!(hung.contains("did not finish within 0.1 s"), "{hung}");
        let babble = outcome("echo usage: pathline COMMAND; exec sleep 60", LONG).unwrap_err();
        assert!(babble.contains("an invalid reply"), "{babble}");
        // One message of one field `??`, which no compilation sends.
        let odd = outcome(r"printf '\001\000\000\000\002\000\000\000??'; exec sleep 60", LONG);
        assert!(odd.unwrap_err().contains("an invalid reply"));
        assert!(CompileWorker::start(Path::new("/nowhere/pathline")).is_err());
    }

    #[test]
    fn a_reply_is_the_code_or_the_compilers_reason() {
        let code = outcome(
            r"head -c 4 >/dev/null; printf '\002\000\000\000\002\000\000\000ok\003\000\000\000abc'; exec sleep 60",
            LONG,
        );
        assert_eq!(code.unwrap().unwrap(), b"abc");
        let mut open = None;
        let error =
            served(&mut open, b"hip", b"/nowhere/libhiprtc.so", b"gfx90a", b"").unwrap_err();
        assert!(error.reason.contains("No such file"), "{error}");
    }
}
