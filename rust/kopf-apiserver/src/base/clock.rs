//! Clock of all servers in the process: real time, unless a test controls it.
//!
//! Affects timestamps in objects and the delays of controllers, not timeouts of the network.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

const RUNNING: i64 = i64::MIN;
static FIXED: AtomicI64 = AtomicI64::new(RUNNING);
static OFFSET: AtomicI64 = AtomicI64::new(0);
/// Ends of the current delays, in microseconds since the epoch.
static WAKE_UPS: Mutex<Vec<i64>> = Mutex::new(Vec::new());
static MOVED: Notify = Notify::const_new();

/// Sets the clock: fixed at a time (microseconds since the epoch), or running with an offset from real time
/// (microseconds).
pub fn set_time(fixed: Option<i64>, offset: i64) {
    OFFSET.store(offset, Ordering::Relaxed);
    FIXED.store(fixed.unwrap_or(RUNNING), Ordering::Relaxed);
    MOVED.notify_waiters();
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

/// End of the next delay of a controller, in microseconds since the epoch.
pub fn next_wake_up() -> Option<i64> {
    wake_ups().iter().min().copied()
}

/// Waits for the duration. Ends early if the clock is set back.
pub(crate) async fn sleep(duration: Duration) {
    let start = now().as_microsecond();
    let due = start.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX));
    let _wake_up = WakeUp::new(due);
    loop {
        let moved = MOVED.notified();
        let time = now().as_microsecond();
        if !(start..due).contains(&time) {
            return;
        }
        if FIXED.load(Ordering::Relaxed) == RUNNING {
            let left = Duration::from_micros(due.abs_diff(time));
            // The time may have been set in between.
            let _moved = tokio::time::timeout(left, moved).await;
        } else {
            moved.await;
        }
    }
}

/// End of a delay, until this is dropped.
struct WakeUp(i64);

impl WakeUp {
    fn new(due: i64) -> Self {
        wake_ups().push(due);
        Self(due)
    }
}

impl Drop for WakeUp {
    fn drop(&mut self) {
        let mut wake_ups = wake_ups();
        if let Some(index) = wake_ups.iter().position(|due| *due == self.0) {
            wake_ups.swap_remove(index);
        }
    }
}

fn wake_ups() -> MutexGuard<'static, Vec<i64>> {
    WAKE_UPS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_is_known_until_its_delay_ends() {
        // Other tests have later ones.
        let wake_up = WakeUp::new(5);
        assert_eq!(next_wake_up(), Some(5));
        drop(wake_up);
        assert_ne!(next_wake_up(), Some(5));
    }

    #[tokio::test]
    async fn delays_take_their_time() {
        let before = now().as_microsecond();
        sleep(Duration::from_millis(20)).await;
        assert!(now().as_microsecond() - before >= 20_000);
    }
}
