//! Timestamps with microseconds, in the form in which they are persisted, and instants since boot. No clock is read here.

use std::fmt;

use jiff::civil::{Date, DateTime};
use jiff::tz::Offset;

const SECOND: f64 = 1_000_000.0;

/// A point in time: microseconds since the epoch, UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The time this many microseconds after the epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Parses ISO-8601. Without an offset it is UTC: records of old versions of Kopf have no offsets.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if let Ok(time) = text.parse::<jiff::Timestamp>() {
            return Some(Self(time.as_microsecond()));
        }
        let naive = text.parse::<DateTime>().or_else(|_| text.parse::<Date>().map(DateTime::from)).ok()?;
        Offset::UTC.to_timestamp(naive).ok().map(|time| Self(time.as_microsecond()))
    }

    /// The time this many seconds later (or earlier, if negative).
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates, as intended")]
    pub fn plus(self, seconds: f64) -> Self {
        Self(self.0.saturating_add((seconds * SECOND).round_ties_even() as i64))
    }

    /// Seconds from an earlier time to this one; negative if it is not earlier.
    #[expect(clippy::cast_precision_loss, reason = "exact for intervals under 285 years")]
    pub fn seconds_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / SECOND
    }
}

impl fmt::Display for Timestamp {
    /// Always with six fractional digits and `+00:00`, never `Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fallback = if self.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        let time = jiff::Timestamp::from_microsecond(self.0).unwrap_or(fallback);
        let at = Offset::UTC.to_datetime(time);
        // Negative years need a sign and six digits to be parsed again.
        let (sign, digits) = if at.year() < 0 { ("-", 6) } else { ("", 4) };
        write!(
            f,
            "{sign}{:0digits$}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}+00:00",
            at.year().unsigned_abs(),
            at.month(),
            at.day(),
            at.hour(),
            at.minute(),
            at.second(),
            at.subsec_nanosecond() / 1000
        )
    }
}

/// A reading of the boot-time clock: microseconds since boot, including time in suspension.
///
/// Readings of different machines, or of one machine before and after a restart, are not comparable.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct BootInstant(i64);

impl BootInstant {
    /// An instant that never comes.
    pub const NEVER: Self = Self(i64::MAX);

    /// The instant this many microseconds after the boot.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the boot.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// The instant this many seconds later (or earlier, if negative).
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates, as intended")]
    pub fn plus(self, seconds: f64) -> Self {
        Self(self.0.saturating_add((seconds * SECOND).round_ties_even() as i64))
    }

    /// Seconds from an earlier instant to this one; negative if it is not earlier.
    #[expect(clippy::cast_precision_loss, reason = "exact for intervals under 285 years")]
    pub fn seconds_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 / SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // contract: engine 7.1
    #[test]
    fn text_is_padded_and_has_an_offset() {
        let time = Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
        assert_eq!(time.plus(0.000_001).to_string(), "2026-01-01T00:00:00.000001+00:00");
        assert_eq!(Timestamp::from_micros(-1).to_string(), "1969-12-31T23:59:59.999999+00:00");
    }

    #[test]
    fn offsets_fractions_and_naive_timestamps_are_parsed() {
        let time = Timestamp::parse("2020-02-14T16:58:25.396364+00:00").unwrap();
        for same in
            ["2020-02-14T16:58:25.396364", "2020-02-14T16:58:25.396364Z", "2020-02-14T17:58:25.396364+01:00"]
        {
            assert_eq!(Timestamp::parse(same), Some(time), "{same}");
        }
        assert_eq!(Timestamp::parse("2020-02-14"), Timestamp::parse("2020-02-14T00:00:00Z"));
        assert_eq!(Timestamp::parse("yesterday"), None);
        assert_eq!(Timestamp::parse(""), None);
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Timestamp::from_micros(5).plus(f64::INFINITY).micros(), i64::MAX);
        assert!(!Timestamp::from_micros(i64::MAX).to_string().is_empty());
        assert!(
            (Timestamp::from_micros(1_500_000).seconds_since(Timestamp::from_micros(0)) - 1.5).abs() < 1e-9
        );
    }
}
