//! Durations from seconds.

use std::time::Duration;

/// A duration from seconds. Negative values become zero, and values that are too long become the longest supported
/// sleep.
pub fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value.max(0.0)).unwrap_or(Duration::from_secs(u64::from(u32::MAX)))
}
