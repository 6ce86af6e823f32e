//! The engine's only clock: moments as the core wants them, measured by tokio's time.
//!
//! The wall clock is read once; from then on tokio's monotonic clock counts. So tests can pause time, and a jump of the
//! system's clock does not make handlers late or early.

use std::time::{SystemTime, UNIX_EPOCH};

use kopf_core::time::Timestamp;
use tokio::time::Instant;

/// Tells what time it is.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    wall: Timestamp,
    start: Instant,
}

impl Clock {
    /// A clock that goes from now on.
    #[expect(clippy::disallowed_methods, reason = "the one place where the wall clock is read")]
    pub fn start() -> Self {
        let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let micros = i64::try_from(passed.as_micros()).unwrap_or(i64::MAX);
        Self { wall: Timestamp::from_micros(micros), start: Instant::now() }
    }

    /// The present moment.
    pub fn now(&self) -> Timestamp {
        let passed = i64::try_from(self.start.elapsed().as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_micros(self.wall.micros().saturating_add(passed))
    }
}
