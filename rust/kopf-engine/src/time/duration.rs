//! Durations from seconds.

use std::time::Duration;

/// A duration of so many seconds; negative and endless ones are brought to what the clock can do.
pub fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value.max(0.0)).unwrap_or(Duration::from_secs(u64::from(u32::MAX)))
}
