//! Compiles kernel text to machine code.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pathline_hal::{CallError, CallResult};

use super::cache;
use super::child::{CompileRequest, CompileWorker, DEADLINE};
use super::family::RuntimeFamily;
use super::rtc::BoundCompiler;

/// The definitions that `hal::kernel` expects, for both languages: NVRTC may compile a HIP text
/// where a library carries HIP over CUDA.
const DIALECT: &str = include_str!("kernel_text/dialect.cu");

/// Where kernels are compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompileMode {
    /// In this process: an abort of the compiler ends this process.
    InProcess,
    /// In a worker process of this program, which serves [`super::serve_compilations`] when its
    /// argument is [`super::COMPILE_COMMAND`].
    Child(PathBuf),
}

/// The compiler with its caches.
#[derive(Debug)]
pub(crate) struct KernelCompiler {
    bound: BoundCompiler,
    family: RuntimeFamily,
    /// Its name and version, part of the cache key.
    label: String,
    cache: Option<PathBuf>,
    compile: CompileMode,
    worker: RefCell<Option<CompileWorker>>,
    /// Code by target and text: a node's GPUs are alike, and the folder may not exist.
    compiled: RefCell<BTreeMap<(String, String), Vec<u8>>>,
    deadline: Duration,
}

impl KernelCompiler {
    pub(crate) fn new(
        family: RuntimeFamily,
        bound: BoundCompiler,
        label: String,
        cache: Option<PathBuf>,
        compile: CompileMode,
    ) -> Self {
        let (worker, compiled) = (RefCell::default(), RefCell::default());
        Self { bound, family, label, cache, compile, worker, compiled, deadline: DEADLINE }
    }

    /// The same compiler for another thread.
    pub(crate) fn another(&self) -> Self {
        let (label, cache) = (self.label.clone(), self.cache.clone());
        Self::new(self.family, self.bound.clone(), label, cache, self.compile.clone())
    }

    /// Code for a target: machine code, or PTX where this compiler does not know the target. Each
    /// text is compiled once, by this process or an earlier one.
    pub(crate) fn code(&self, source: &str, target: &str) -> CallResult<Vec<u8>> {
        let known = (target.to_owned(), source.to_owned());
        if let Some(code) = self.compiled.borrow().get(&known) {
            return Ok(code.clone());
        }
        let code = self.kept_or_made(source, target)?;
        self.compiled.borrow_mut().insert(known, code.clone());
        Ok(code)
    }

    fn kept_or_made(&self, source: &str, target: &str) -> CallResult<Vec<u8>> {
        let text = format!("{DIALECT}{source}");
        let key = format!("{} {target}\n{text}", self.label);
        let file = self.cache.as_deref().map(|folder| folder.join(cache::file_name(&key)));
        if let Some(code) = file.as_deref().and_then(|file| cache::read(file, &key)) {
            return Ok(code);
        }
        let code = self.compile(&text, target)?;
        if let Some(file) = file {
            // A cache that cannot be written only costs time at the next start.
            let _ = cache::write(&file, &key, &code);
        }
        Ok(code)
    }

    fn compile(&self, text: &str, target: &str) -> CallResult<Vec<u8>> {
        if let Some(call) = self.family.compiler.needs_temporary {
            // Otherwise the compiler fails with an empty log.
            writable(&std::env::temp_dir()).map_err(|why| {
                CallError::unsupported(call, target, why)
                    .or_try("set TMPDIR to a folder that can be written")
            })?;
        }
        match &self.compile {
            CompileMode::InProcess => (self.family.compiler.code)(&self.bound, text, target),
            CompileMode::Child(program) => self.in_child(program, text, target),
        }
    }

    fn in_child(&self, program: &Path, text: &str, target: &str) -> CallResult<Vec<u8>> {
        let lost = |reason: String| {
            let thing = format!("a kernel for {target}");
            CallError::unsupported("the compiling process", thing, reason).or_try(
                "`pathline doctor` shows the compiler and the targets that it knows; another version of it may do",
            )
        };
        let mut worker = self.worker.borrow_mut();
        let mut alive = match worker.take() {
            Some(alive) => alive,
            None => CompileWorker::start(program)
                .map_err(|e| lost(format!("it does not start: {e}")))?,
        };
        let request =
            CompileRequest { family: self.family, library: &self.bound.path, target, text };
        let outcome = alive.compile(request, self.deadline).map_err(lost)?;
        // Only a worker that has replied is used again.
        *worker = Some(alive);
        outcome
    }
}

/// Checks that a folder can be written; the error is the reason.
pub(crate) fn writable(folder: &Path) -> std::result::Result<(), String> {
    let file = folder.join(format!(".pathline-{}", std::process::id()));
    let written = std::fs::write(&file, "").and_then(|()| std::fs::remove_file(&file));
    written.map_err(|error| format!("{} cannot be written: {error}", folder.display()))
}

#[cfg(test)]
mod tests;
