//! Durations in log messages, in the formats of Python.

use std::fmt;

/// Seconds in their shortest form: `60`, `0.5`.
pub struct Seconds(
    /// The seconds.
    pub f64,
);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Seconds in the format of Python's `timedelta`: `0:00:05.250000`, `1 day, 2:03:04`.
pub struct TimeDelta(
    /// The seconds.
    pub f64,
);

impl fmt::Display for TimeDelta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a cast saturates; no delay is 292,000 years long"
        )]
        let micros = (self.0 * 1e6).round() as i64;
        let days = micros.div_euclid(86_400_000_000);
        let rest = micros.rem_euclid(86_400_000_000);
        let (seconds, micros) = (rest / 1_000_000, rest % 1_000_000);
        if days != 0 {
            write!(f, "{days} day{}, ", if days.abs() == 1 { "" } else { "s" })?;
        }
        write!(f, "{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)?;
        if micros != 0 {
            write!(f, ".{micros:06}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_printed_as_python_prints_it() {
        let table = [
            (0.0, "0:00:00"),
            (5.0, "0:00:05"),
            (3725.5, "1:02:05.500000"),
            (86_400.0, "1 day, 0:00:00"),
            (200_000.25, "2 days, 7:33:20.250000"),
            (-1.0, "-1 day, 23:59:59"),
        ];
        for (seconds, expected) in table {
            assert_eq!(TimeDelta(seconds).to_string(), expected);
        }
        assert_eq!(Seconds(60.0).to_string(), "60");
        assert_eq!(Seconds(0.1).to_string(), "0.1");
    }
}
