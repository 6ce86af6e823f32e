//! What time it is to the servers of this process: the real time, unless a test has said otherwise.
//!
//! Only what is written into objects follows it. Nothing here waits.

use std::sync::atomic::{AtomicI64, Ordering};

const REAL: i64 = i64::MIN;
static STILL: AtomicI64 = AtomicI64::new(REAL);
static AHEAD: AtomicI64 = AtomicI64::new(0);

/// Stops time at a moment (in microseconds since the epoch), or lets it go, so far ahead of the real one.
pub fn set_time(still: Option<i64>, ahead: i64) {
    AHEAD.store(ahead, Ordering::Relaxed);
    STILL.store(still.unwrap_or(REAL), Ordering::Relaxed);
}

/// The present moment.
pub(crate) fn now() -> jiff::Timestamp {
    match STILL.load(Ordering::Relaxed) {
        REAL => {
            let ahead = jiff::SignedDuration::from_micros(AHEAD.load(Ordering::Relaxed));
            jiff::Timestamp::now().saturating_add(ahead).unwrap_or(jiff::Timestamp::MAX)
        }
        still => jiff::Timestamp::from_microsecond(still).unwrap_or(jiff::Timestamp::MAX),
    }
}
