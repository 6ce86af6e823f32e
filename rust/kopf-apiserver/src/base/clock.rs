//! Clock of all servers in the process: real time, unless a test controls it.
//!
//! Affects timestamps in objects only, not timers.

use std::sync::atomic::{AtomicI64, Ordering};

const RUNNING: i64 = i64::MIN;
static FIXED: AtomicI64 = AtomicI64::new(RUNNING);
static OFFSET: AtomicI64 = AtomicI64::new(0);

/// Sets the clock: fixed at a time (microseconds since the epoch), or running with an offset from real time
/// (microseconds).
pub fn set_time(fixed: Option<i64>, offset: i64) {
    OFFSET.store(offset, Ordering::Relaxed);
    FIXED.store(fixed.unwrap_or(RUNNING), Ordering::Relaxed);
}

/// Current time.
pub(crate) fn now() -> jiff::Timestamp {
    match FIXED.load(Ordering::Relaxed) {
        RUNNING => {
            let offset = jiff::SignedDuration::from_micros(OFFSET.load(Ordering::Relaxed));
            jiff::Timestamp::now().saturating_add(offset).unwrap_or(jiff::Timestamp::MAX)
        }
        fixed => jiff::Timestamp::from_microsecond(fixed).unwrap_or(jiff::Timestamp::MAX),
    }
}
