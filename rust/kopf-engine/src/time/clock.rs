//! The only clock of the engine: it returns the timestamps for the core, based on tokio's time, and sleeps.
//!
//! The wall clock is read once; from then on tokio's monotonic clock is used. So tests can pause time, and a change of
//! the system clock does not make handlers late or early. Only timestamps for other machines follow such changes.
//!
//! Only delays declared by the operator's author sleep here: initial delays, intervals, back-offs. They follow virtual
//! time ([`crate::time::virtual_time`]) if it is in use. Timeouts of the network and of the exit use real time.
//!
//! Leader election uses the boot-time clock ([`Clock::boot_now`]), since tokio's clock stops while the machine is suspended.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kopf_core::time::{BootInstant, Timestamp};
use tokio::time::{Instant, sleep};

use crate::time::traffic::Traffic;
use crate::time::virtual_time::{Busy, VirtualTime};

/// The difference in seconds at which the system clock takes precedence over ours. Smaller ones are normal: the system
/// clock drifts against tokio's. Larger ones mean that it was set, or that the machine was suspended.
const JUMP: f64 = 2.0;

/// Returns the current time, and sleeps.
#[derive(Debug, Clone)]
pub struct Clock {
    wall: Timestamp,
    /// The reading of the boot-time clock at the start.
    boot: BootInstant,
    start: Instant,
    time: Option<Arc<VirtualTime>>,
}

impl Clock {
    /// A clock that starts at the current system time.
    pub fn start() -> Self {
        Self { wall: system_time(), boot: boot_time(), start: Instant::now(), time: None }
    }

    /// A clock that starts at the current system time and follows this virtual time while that is in use.
    pub fn under(time: Arc<VirtualTime>) -> Self {
        Self { time: Some(time), ..Self::start() }
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.wall.micros().saturating_add(self.passed()))
    }

    /// The current time for comparison with the clocks of other machines: that of the system clock if it was changed.
    /// Only the clock of a running operator checks for changes; in virtual time, the system clock is ignored.
    pub fn now_for_others(&self) -> Timestamp {
        if self.time.is_none() || self.virtual_time().is_some() {
            return self.now();
        }
        believed(self.now(), system_time())
    }

    /// The current reading of the boot-time clock, which also advances while the machine is suspended. As with
    /// [`Clock::now_for_others`], only the clock of a running operator reads it, unless virtual time is in use.
    pub fn boot_now(&self) -> BootInstant {
        if self.time.is_none() || self.virtual_time().is_some() {
            return BootInstant::from_micros(self.boot.micros().saturating_add(self.passed()));
        }
        boot_time()
    }

    /// Sleeps until the instant. If the machine is suspended meanwhile, the task wakes up later.
    pub async fn sleep_until_boot(&self, instant: BootInstant) {
        let left = instant.micros().saturating_sub(self.boot_now().micros());
        self.sleep(Duration::from_micros(u64::try_from(left).unwrap_or_default())).await;
    }

    /// Sleeps for the duration.
    pub async fn sleep(&self, duration: Duration) {
        match self.virtual_time() {
            None => sleep(duration).await,
            Some(time) => {
                let due = self.passed().saturating_add(micros(duration));
                time.wait(due, || micros(self.start.elapsed())).await;
            }
        }
    }

    /// Sleeps until the time.
    pub async fn sleep_until(&self, moment: Timestamp) {
        let left = moment.micros().saturating_sub(self.now().micros());
        self.sleep(Duration::from_micros(u64::try_from(left).unwrap_or_default())).await;
    }

    /// Freezes virtual time.
    pub fn freeze(&self) {
        if let Some(time) = &self.time {
            time.freeze(micros(self.start.elapsed()));
        }
    }

    /// Lets virtual time continue from the current moment.
    pub fn thaw(&self) {
        if let Some(time) = &self.time {
            time.thaw(micros(self.start.elapsed()));
        }
    }

    /// Advances frozen time to the next wake-up, but not beyond the limit. Returns whether there is such a wake-up.
    pub fn advance_to(&self, limit: Timestamp) -> bool {
        let limit = limit.micros().saturating_sub(self.wall.micros());
        self.time.as_ref().is_some_and(|time| time.advance_to(limit))
    }

    /// The time of the next wake-up.
    pub fn next(&self) -> Option<Timestamp> {
        let next = self.time.as_ref()?.next()?;
        Some(Timestamp::from_micros(self.wall.micros().saturating_add(next)))
    }

    /// Whether the time of a sleeping task has come, but the task has not continued yet.
    pub fn is_due(&self) -> bool {
        self.virtual_time().is_some_and(|time| time.is_due(micros(self.start.elapsed())))
    }

    /// A guard of an operation that takes real time. Virtual time is not advanced while it exists.
    pub fn busy(&self, describe: impl FnOnce() -> String) -> Option<Busy> {
        self.virtual_time().map(|time| time.busy(describe()))
    }

    /// The counts of a new connection from the local address, if virtual time is in use. It is open until they are dropped.
    pub fn connected(&self, local: SocketAddr, peer: SocketAddr) -> Option<Arc<Traffic>> {
        self.virtual_time().map(|time| time.connected(local, peer))
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

/// The system time if it differs by more than [`JUMP`], else ours.
fn believed(ours: Timestamp, system: Timestamp) -> Timestamp {
    if ours.seconds_since(system).abs() > JUMP { system } else { ours }
}

#[expect(clippy::disallowed_methods, reason = "the one place where the wall clock is read")]
pub(crate) fn system_time() -> Timestamp {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(micros(passed))
}

/// The reading of the boot-time clock.
#[cfg(target_os = "linux")]
fn boot_time() -> BootInstant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    BootInstant::from_micros(time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1_000))
}

/// The time since the first reading: there is no other clock that all platforms have.
#[cfg(not(target_os = "linux"))]
fn boot_time() -> BootInstant {
    static FIRST: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    BootInstant::from_micros(micros(FIRST.get_or_init(Instant::now).elapsed()))
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_boot_time_follows_virtual_time() {
        let (plain, running) = (Clock::start(), Clock::under(Arc::default()));
        let (first, real) = (plain.boot_now(), running.boot_now());
        tokio::time::advance(Duration::from_hours(1)).await;
        assert!((plain.boot_now().seconds_since(first) - 3600.0).abs() < 1e-3);
        // Without virtual time, a running operator reads the clock of the machine, which tests cannot pause.
        assert!(running.boot_now().seconds_since(real) < 60.0);
        running.freeze();
        let frozen = running.boot_now();
        assert!(!running.advance_to(running.now().plus(50.0)), "nothing sleeps");
        assert!((running.boot_now().seconds_since(frozen) - 50.0).abs() < 1e-3);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_boot_time_is_that_of_the_machine() {
        let before = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let boot = Clock::under(Arc::default()).boot_now();
        let passed = boot.micros() / 1_000_000 - before.tv_sec;
        assert!((0..60).contains(&passed), "{boot:?}, {before:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn timestamps_for_others_follow_jumps_of_the_system_clock() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        assert_eq!(believed(at(1000), at(1001)), at(1000));
        assert_eq!(believed(at(1000), at(4600)), at(4600));
        assert_eq!(believed(at(1000), at(10)), at(10));
        // Advanced virtual time looks as if the system clock was set back.
        let (plain, running) = (Clock::start(), Clock::under(Arc::default()));
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(plain.now_for_others(), plain.now());
        assert!(running.now().seconds_since(running.now_for_others()) > 3500.0);
    }
}
