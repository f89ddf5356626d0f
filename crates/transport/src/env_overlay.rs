//! Answers of this program for variables of the environment that a library reads again on request.
//!
//! Nothing may change the environment of a process that has threads: `setenv` moves and frees what
//! `getenv` is reading in another one, and threads of libraries take no lock of this program. Here
//! the environment stays as it was when the process began. The program has a `getenv` of its own
//! instead, which libraries call, since the dynamic linker looks a name up in the program before the
//! C library. It hands every question on to the C library's, but for the few names of an overlay
//! while that is on.
//!
//! The road not taken: a second process for each rank that is started with those variables, does
//! each case once and is asked for its log. It takes a second context and a second communicator on
//! every GPU, and its log is not that of the process that is timed.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Names with their values.
type Answers = Vec<(CString, CString)>;

/// The overlay that is on. It is never freed: whoever asked may keep the answer.
static ACTIVE: AtomicPtr<Answers> = AtomicPtr::new(null_mut());

/// Variables as libraries are to see them while it is on. One at a time is.
#[derive(Debug)]
pub(crate) struct EnvOverlay(&'static Answers);

impl EnvOverlay {
    /// None if libraries would not see it, because they call another `getenv` than this program's:
    /// where a loader or a preloaded library put its own before it.
    pub(crate) fn new(answers: &[(&str, &str)]) -> Option<Self> {
        // SAFETY: looks up a name in the libraries that are loaded.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"getenv".as_ptr()) };
        if !std::ptr::eq(found, getenv as *const c_void) {
            return None;
        }
        let text = |text: &str| CString::new(text).ok();
        let pairs = answers.iter().map(|(name, value)| Some((text(name)?, text(value)?)));
        Some(Self(Box::leak(Box::new(pairs.collect::<Option<Answers>>()?))))
    }

    /// From here on libraries see it.
    pub(crate) fn switch_on(&self) {
        ACTIVE.store(std::ptr::from_ref(self.0).cast_mut(), Ordering::Release);
    }

    /// From here on they see the environment alone.
    pub(crate) fn switch_off(&self) {
        ACTIVE.store(null_mut(), Ordering::Release);
    }
}

type Getenv = unsafe extern "C" fn(*const c_char) -> *mut c_char;

/// The C library's `getenv`.
fn next() -> Option<Getenv> {
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
    let mut at = NEXT.load(Ordering::Relaxed);
    if at.is_null() {
        // SAFETY: looks up a name in the libraries after this program.
        at = unsafe { libc::dlsym(libc::RTLD_NEXT, c"getenv".as_ptr()) };
        NEXT.store(at, Ordering::Relaxed);
    }
    // SAFETY: the function has this signature, and null is none.
    unsafe { std::mem::transmute::<*mut c_void, Option<Getenv>>(at) }
}

/// `getenv` of the C standard, as every library of this process calls it.
///
/// # Safety
/// `name` is a C string.
// SAFETY: the name is the C library's, whose function this one stands before and calls.
#[unsafe(no_mangle)]
unsafe extern "C" fn getenv(name: *const c_char) -> *mut c_char {
    let active = ACTIVE.load(Ordering::Acquire);
    if !active.is_null() && !name.is_null() {
        // SAFETY: an overlay lives for ever, and the name is a C string by the caller's promise.
        let (answers, name) = unsafe { (&*active, CStr::from_ptr(name)) };
        if let Some((_, value)) = answers.iter().find(|(known, _)| known.as_c_str() == name) {
            // Nobody may write to what `getenv` gives.
            return value.as_ptr().cast_mut();
        }
    }
    // SAFETY: the caller's promise.
    next().map_or(null_mut(), |next| unsafe { next(name) })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// One overlay at a time is on.
    static ALONE: Mutex<()> = Mutex::new(());

    /// What a library is answered: by the name, as the dynamic linker resolves it.
    fn ask(name: &CStr) -> Option<String> {
        // SAFETY: the function has this signature, takes a C string and gives one or null.
        unsafe {
            let at = libc::dlsym(libc::RTLD_DEFAULT, c"getenv".as_ptr());
            let value = std::mem::transmute::<*mut c_void, Getenv>(at)(name.as_ptr());
            (!value.is_null()).then(|| CStr::from_ptr(value).to_string_lossy().into_owned())
        }
    }

    #[test]
    fn libraries_see_the_overlay_and_the_environment_stays() {
        let _alone = ALONE.lock();
        let before: Vec<_> = std::env::vars_os().collect();
        let overlay = EnvOverlay::new(&[("PATHLINE_OVERLAID", "yes"), ("PATH", "")]).unwrap();
        let path = ask(c"PATH");
        assert_eq!(ask(c"PATHLINE_OVERLAID"), None);
        overlay.switch_on();
        assert_eq!(ask(c"PATHLINE_OVERLAID").as_deref(), Some("yes"));
        assert_eq!(ask(c"PATH").as_deref(), Some(""));
        assert_eq!(ask(c"PATHLINE_OVERLAI"), None);
        assert_eq!(std::env::vars_os().collect::<Vec<_>>(), before);
        overlay.switch_off();
        assert_eq!((ask(c"PATHLINE_OVERLAID"), ask(c"PATH")), (None, path));
    }

    #[test]
    fn threads_that_ask_meanwhile_get_one_of_the_two_answers() {
        let _alone = ALONE.lock();
        let overlay = EnvOverlay::new(&[("PATHLINE_OVERLAID", "yes")]).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let answer = ask(c"PATHLINE_OVERLAID");
                        assert!(answer.as_deref().is_none_or(|value| value == "yes"));
                    }
                });
            }
            for _ in 0..2000 {
                overlay.switch_on();
                overlay.switch_off();
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
