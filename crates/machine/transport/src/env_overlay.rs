//! Overrides environment variables that a library reads again on request.
//!
//! A process with threads must not change its environment: `setenv` moves and frees memory that
//! `getenv` in another thread may be reading, and threads of libraries take no lock of this
//! program. The environment therefore stays as it was at process start. Instead, the program
//! exports `getenv`, which libraries call because the dynamic linker resolves a name in the program
//! before the C library. It forwards to the C library's `getenv`, except for the names of an active
//! overlay.
//!
//! Rejected alternative: for each rank a second process with those variables, which runs each case
//! once to produce the log. It needs a second context and a second communicator on every GPU, and
//! its log is not that of the timed process.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Names and values.
type Answers = Vec<(CString, CString)>;

/// The active overlay. It is never freed: a caller may keep the returned pointer.
static ACTIVE: AtomicPtr<Answers> = AtomicPtr::new(null_mut());

/// Variables that libraries see while the overlay is on. At most one overlay is on.
#[derive(Debug)]
pub(crate) struct EnvOverlay(&'static Answers);

impl EnvOverlay {
    /// `None` if libraries do not see it because a loader or a preloaded library placed another
    /// `getenv` before this program's.
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

    /// Activates the overlay.
    pub(crate) fn switch_on(&self) {
        ACTIVE.store(std::ptr::from_ref(self.0).cast_mut(), Ordering::Release);
    }

    /// Deactivates the overlay.
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

/// `getenv` of the C standard; every library of this process calls it.
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
            // Callers must not write to the result of `getenv`.
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

    /// The answer that a library gets: resolved by name, as the dynamic linker does.
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
    fn concurrent_readers_get_one_of_the_two_values() {
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
