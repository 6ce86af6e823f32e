//! What time it is to the servers of this process: the real time, unless a test has said otherwise.
//!
//! Only what is written into objects follows it. Nothing here waits.

use std::sync::atomic::{AtomicI64, Ordering};

const RUNNING: i64 = i64::MIN;
static FIXED: AtomicI64 = AtomicI64::new(RUNNING);
static OFFSET: AtomicI64 = AtomicI64::new(0);

/// Stops time at a moment (in microseconds since the epoch), or lets it go, so far ahead of the real one.
pub fn set_time(fixed: Option<i64>, offset: i64) {
    OFFSET.store(offset, Ordering::Relaxed);
    FIXED.store(fixed.unwrap_or(RUNNING), Ordering::Relaxed);
}

/// The present moment.
pub(crate) fn now() -> jiff::Timestamp {
    match FIXED.load(Ordering::Relaxed) {
        RUNNING => {
            let offset = jiff::SignedDuration::from_micros(OFFSET.load(Ordering::Relaxed));
            jiff::Timestamp::now().saturating_add(offset).unwrap_or(jiff::Timestamp::MAX)
        }
        fixed => jiff::Timestamp::from_microsecond(fixed).unwrap_or(jiff::Timestamp::MAX),
    }
}
