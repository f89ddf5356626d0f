//! Sizes of copies that have shown no gain, and for how long they are made plainly.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use pathline_schema::Ns;

/// A copy that gains less is no gain.
const MIN_MEASURED_GAIN: f64 = 1.02;
/// Successive copies without a gain that switch a class off.
const SLOW_COPIES: u32 = 2;
/// Time after which a class that was switched off is tried once more: a host that is disturbed for a moment makes
/// all copies slow, and costs no more than that.
const FIRST_PAUSE: Ns = Ns(2e9);
/// The longest such time: each try without a gain doubles it.
const LONGEST_PAUSE: Ns = Ns(180e9);
/// Size classes: powers of two.
const CLASSES: usize = 64;

/// Copies of one size class.
#[derive(Debug, Default)]
struct ClassRecord {
    slow: AtomicU32,
    /// Time until which the class is off, ns.
    off_until: AtomicU64,
    /// For how long it was switched off last, ns; 0 since a copy has gained.
    pause: AtomicU64,
}

/// What copies of each size have shown, by powers of two.
#[derive(Debug)]
pub(crate) struct SizeClasses(Vec<ClassRecord>);

impl Default for SizeClasses {
    fn default() -> Self {
        Self((0..CLASSES).map(|_| ClassRecord::default()).collect())
    }
}

impl SizeClasses {
    fn class(&self, bytes: u64) -> Option<&ClassRecord> {
        self.0.get(bytes.max(1).ilog2() as usize)
    }

    /// Whether copies of a size are tried.
    pub(crate) fn is_on(&self, bytes: u64, now: Ns) -> bool {
        let off_until = |class: &ClassRecord| class.off_until.load(Ordering::Relaxed) as f64;
        self.class(bytes).is_some_and(|class| now.0 >= off_until(class))
    }

    /// Notes the time of a copy that ran alone, from the caller's order to its end, after the predicted time of
    /// the plain one. Whether that switched its class off.
    pub(crate) fn note(&self, bytes: u64, (plain, elapsed): (Ns, Ns), now: Ns) -> bool {
        let Some(class) = self.class(bytes) else { return false };
        if plain.0 >= elapsed.0 * MIN_MEASURED_GAIN {
            class.slow.store(0, Ordering::Relaxed);
            class.pause.store(0, Ordering::Relaxed);
            return false;
        }
        if class.slow.fetch_add(1, Ordering::Relaxed) + 1 < SLOW_COPIES {
            return false;
        }
        // The next try decides alone.
        class.slow.store(SLOW_COPIES - 1, Ordering::Relaxed);
        let doubled = 2.0 * class.pause.load(Ordering::Relaxed) as f64;
        let pause = doubled.clamp(FIRST_PAUSE.0, LONGEST_PAUSE.0);
        class.pause.store(pause as u64, Ordering::Relaxed);
        class.off_until.store((now.0 + pause) as u64, Ordering::Relaxed);
        true
    }
}
