//! The engine's only clock: moments as the core wants them, measured by tokio's time, and waiting for them.
//!
//! The wall clock is read once; from then on tokio's monotonic clock counts. So tests can pause time, and a jump of the
//! system's clock does not make handlers late or early. Only what others compare with their clocks follows such jumps.
//!
//! What is waited for here is what an author has declared: delays, intervals, back-offs, pauses. It follows virtual time
//! ([`crate::time::virtual_time`]), if there is any. Timeouts of the network, and of what runs at the exit, are not the clock's
//! affair: those are real.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kopf_core::time::Timestamp;
use tokio::time::{Instant, sleep};

use crate::time::virtual_time::{Busy, VirtualTime};

/// By how much the system's clock may differ from ours before it is believed, in seconds: it goes a bit faster or slower than
/// tokio's all the time, and is set now and then, or goes on while the machine sleeps.
const JUMP: f64 = 2.0;

/// Tells what time it is, and waits.
#[derive(Debug, Clone)]
pub struct Clock {
    wall: Timestamp,
    start: Instant,
    time: Option<Arc<VirtualTime>>,
}

impl Clock {
    /// A clock that goes from now on.
    pub fn start() -> Self {
        Self { wall: system_time(), start: Instant::now(), time: None }
    }

    /// A clock that goes from now on, unless and until it is told otherwise.
    pub fn under(time: Arc<VirtualTime>) -> Self {
        Self { time: Some(time), ..Self::start() }
    }

    /// The present moment.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.wall.micros().saturating_add(self.passed()))
    }

    /// The present moment for others, who have clocks of their own: by the system's clock, if that was set meanwhile. Only the
    /// clock of a running operator knows; in virtual time, there is no other one.
    pub fn now_for_others(&self) -> Timestamp {
        if self.time.is_none() || self.virtual_time().is_some() {
            return self.now();
        }
        believed(self.now(), system_time())
    }

    /// Waits for so long.
    pub async fn sleep(&self, duration: Duration) {
        match self.virtual_time() {
            None => sleep(duration).await,
            Some(time) => {
                let due = self.passed().saturating_add(micros(duration));
                time.wait(due, || micros(self.start.elapsed())).await;
            }
        }
    }

    /// Waits for a moment.
    pub async fn sleep_until(&self, moment: Timestamp) {
        let left = moment.micros().saturating_sub(self.now().micros());
        self.sleep(Duration::from_micros(u64::try_from(left).unwrap_or_default())).await;
    }

    /// Stops time where it is.
    pub fn freeze(&self) {
        if let Some(time) = &self.time {
            time.freeze(micros(self.start.elapsed()));
        }
    }

    /// Lets time go on from where it is.
    pub fn thaw(&self) {
        if let Some(time) = &self.time {
            time.thaw(micros(self.start.elapsed()));
        }
    }

    /// Moves frozen time to the next moment for which somebody waits, but not beyond the limit; whether anybody does.
    pub fn leap(&self, limit: Timestamp) -> bool {
        let limit = limit.micros().saturating_sub(self.wall.micros());
        self.time.as_ref().is_some_and(|time| time.leap(limit))
    }

    /// The next moment for which somebody waits.
    pub fn next(&self) -> Option<Timestamp> {
        let next = self.time.as_ref()?.next()?;
        Some(Timestamp::from_micros(self.wall.micros().saturating_add(next)))
    }

    /// Tells those who move time, for as long as it is kept, that something is under way which takes real time.
    pub fn busy(&self) -> Option<Busy> {
        self.virtual_time().map(VirtualTime::busy)
    }

    /// Microseconds since the start.
    fn passed(&self) -> i64 {
        let real = micros(self.start.elapsed());
        self.virtual_time().map_or(real, |time| time.passed(real))
    }

    fn virtual_time(&self) -> Option<&Arc<VirtualTime>> {
        self.time.as_ref().filter(|time| time.is_in_use())
    }
}

/// The system's time if it has jumped.
fn believed(ours: Timestamp, system: Timestamp) -> Timestamp {
    if ours.seconds_since(system).abs() > JUMP { system } else { ours }
}

#[expect(clippy::disallowed_methods, reason = "the one place where the wall clock is read")]
pub(crate) fn system_time() -> Timestamp {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(micros(passed))
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn others_are_told_the_time_of_the_system_if_that_has_jumped() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        assert_eq!(believed(at(1000), at(1001)), at(1000));
        assert_eq!(believed(at(1000), at(4600)), at(4600));
        assert_eq!(believed(at(1000), at(10)), at(10));
        // Time that was moved ahead here looks as if the system's clock had been set back.
        let (plain, running) = (Clock::start(), Clock::under(Arc::default()));
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(plain.now_for_others(), plain.now());
        assert!(running.now().seconds_since(running.now_for_others()) > 3500.0);
    }
}
