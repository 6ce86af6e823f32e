//! Times as Go parses them, with its messages.

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime};

/// Parses a time with the layout `RFC3339`, or `RFC3339Micro` of apimachinery, and converts it to UTC. The error is the
/// message of Go.
pub(super) fn parse(text: &str, micros: bool) -> Result<DateTime, String> {
    Reader { rest: text }.read(micros).map_err(|error| match error {
        Error::Part(rest, part) => {
            let fraction = if micros { ".000000" } else { "" };
            let layout = format!("2006-01-02T15:04:05{fraction}Z07:00");
            format!("parsing time \"{text}\" as \"{layout}\": cannot parse \"{rest}\" as \"{part}\"")
        }
        Error::Range(part) => format!("parsing time \"{text}\": {part} out of range"),
        Error::Extra(rest) => format!("parsing time \"{text}\": extra text: \"{rest}\""),
    })
}

enum Error<'t> {
    /// The rest does not begin with this part of the layout.
    Part(&'t str, &'static str),
    /// The name of a part.
    Range(&'static str),
    Extra(&'t str),
}

struct Reader<'t> {
    rest: &'t str,
}

impl<'t> Reader<'t> {
    fn read(&mut self, micros: bool) -> Result<DateTime, Error<'t>> {
        let year = self.year()?;
        self.skip("-")?;
        let month = self.number("01", true)?;
        let month = within(month, 1, 12, "month")?;
        self.skip("-")?;
        let day = self.number("02", true)?;
        self.skip("T")?;
        let hour = self.number("15", false)?;
        let hour = within(hour, 0, 23, "hour")?;
        self.skip(":")?;
        let minute = self.number("04", true)?;
        let minute = within(minute, 0, 59, "minute")?;
        self.skip(":")?;
        let second = self.number("05", true)?;
        let second = within(second, 0, 59, "second")?;
        let nanosecond = if micros { self.microseconds()? } else { self.fraction() };
        let offset = self.offset()?;
        if !self.rest.is_empty() {
            return Err(Error::Extra(self.rest));
        }
        let date = Date::new(year, month, day).map_err(|_| Error::Range("day"))?;
        let moment = date.at(hour, minute, second, nanosecond);
        moment.checked_sub(SignedDuration::from_mins(offset)).map_err(|_| Error::Range("year"))
    }

    fn skip(&mut self, separator: &'static str) -> Result<(), Error<'t>> {
        self.rest = self.rest.strip_prefix(separator).ok_or(Error::Part(self.rest, separator))?;
        Ok(())
    }

    fn year(&mut self) -> Result<i16, Error<'t>> {
        let error = Error::Part(self.rest, "2006");
        let Some((year, rest)) = self.rest.split_at_checked(4).filter(|(year, _)| are_digits(year)) else {
            return Err(error);
        };
        self.rest = rest;
        year.parse().map_err(|_| error)
    }

    /// A number of two digits, or at least one.
    fn number(&mut self, part: &'static str, is_fixed: bool) -> Result<i8, Error<'t>> {
        let digits = self.digits().min(2);
        if digits == 0 || (is_fixed && digits < 2) {
            return Err(Error::Part(self.rest, part));
        }
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        Ok(number.parse().unwrap_or(0))
    }

    /// The number of digits that come next.
    fn digits(&self) -> usize {
        self.rest.bytes().take_while(u8::is_ascii_digit).count()
    }

    /// The nanoseconds of a fraction, if there is one.
    fn fraction(&mut self) -> i32 {
        let Some(fraction) = self.rest.strip_prefix(['.', ',']).filter(|it| it.starts_with(is_digit)) else {
            return 0;
        };
        let (digits, rest) = fraction.split_at(fraction.find(|c| !is_digit(c)).unwrap_or(fraction.len()));
        self.rest = rest;
        nanoseconds(digits)
    }

    /// The nanoseconds of a fraction with six digits.
    fn microseconds(&mut self) -> Result<i32, Error<'t>> {
        let found = self.rest.split_at_checked(7).and_then(|(fraction, rest)| {
            let digits = fraction.strip_prefix(['.', ',']).filter(|digits| are_digits(digits))?;
            Some((digits, rest))
        });
        let (digits, rest) = found.ok_or(Error::Part(self.rest, ".000000"))?;
        self.rest = rest;
        Ok(nanoseconds(digits))
    }

    /// The offset from UTC, in minutes.
    fn offset(&mut self) -> Result<i64, Error<'t>> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let error = Error::Part(self.rest, "Z07:00");
        let Some((zone, rest)) = self.rest.split_at_checked(6) else { return Err(error) };
        let parts = zone.split_at_checked(1).zip(zone.get(1..).and_then(|it| it.split_once(':')));
        let Some(((sign, _), (hours, minutes))) = parts else { return Err(error) };
        if hours.len() != 2 || !are_digits(hours) || !are_digits(minutes) {
            return Err(error);
        }
        let number = |text: &str| text.parse::<i64>().unwrap_or(0);
        let (hours, minutes) = (number(hours), number(minutes));
        // As in Go, offsets of 24 hours and 60 minutes are accepted.
        if hours > 24 {
            return Err(Error::Range("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(Error::Range("time zone offset minute"));
        }
        let sign = match sign {
            "+" => 1,
            "-" => -1,
            _ => return Err(error),
        };
        self.rest = rest;
        Ok(sign * (hours * 60 + minutes))
    }
}

fn within<'t>(number: i8, min: i8, max: i8, part: &'static str) -> Result<i8, Error<'t>> {
    if (min..=max).contains(&number) { Ok(number) } else { Err(Error::Range(part)) }
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

fn are_digits(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_digit)
}

/// The nanoseconds of the digits of a fraction. Smaller parts are dropped.
fn nanoseconds(digits: &str) -> i32 {
    let digits = digits.get(..9).unwrap_or(digits);
    format!("{digits:0<9}").parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_in_go() {
        for (text, micros, expected) in [
            ("2026-11-27T14:03:42Z", false, "2026-11-27T14:03:42"),
            ("2026-11-27T15:03:42+01:00", false, "2026-11-27T14:03:42"),
            ("2026-11-27T14:03:42.5Z", false, "2026-11-27T14:03:42.5"),
            ("2026-11-27T14:03:42,123456789012Z", false, "2026-11-27T14:03:42.123456789"),
            ("2026-11-27T4:03:42Z", false, "2026-11-27T04:03:42"),
            ("2026-11-27T00:03:42+24:00", false, "2026-11-26T00:03:42"),
            ("9999-12-31T23:59:59Z", false, "9999-12-31T23:59:59"),
            ("0001-01-01T00:00:00Z", false, "0001-01-01T00:00:00"),
            ("2026-11-27T14:03:42.123456-00:30", true, "2026-11-27T14:33:42.123456"),
        ] {
            let parsed = parse(text, micros).map(|moment| moment.to_string());
            assert_eq!(parsed.as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn errors_have_the_messages_of_go() {
        let layout = "2006-01-02T15:04:05Z07:00";
        let micros = "2006-01-02T15:04:05.000000Z07:00";
        for (text, is_micro, layout, rest, part) in [
            ("", false, layout, "", "2006"),
            ("x", false, layout, "x", "2006"),
            ("2026-1-27T14:03:42Z", false, layout, "1-27T14:03:42Z", "01"),
            ("2026-11-27 14:03:42Z", false, layout, " 14:03:42Z", "T"),
            ("2026-11-27t14:03:42Z", false, layout, "t14:03:42Z", "T"),
            ("2026-11-27T14:03", false, layout, "", ":"),
            ("2026-11-27T14:03:42", false, layout, "", "Z07:00"),
            ("2026-11-27T14:03:42z", false, layout, "z", "Z07:00"),
            ("2026-11-27T14:03:42+0000", false, layout, "+0000", "Z07:00"),
            ("2026-11-27T14:03:42 00:00", false, layout, " 00:00", "Z07:00"),
            ("2026-11-27T14:03:42.Z", false, layout, ".Z", "Z07:00"),
            ("2026-11-27T14:03:42é", false, layout, "é", "Z07:00"),
            ("2026-11-27T14:03:42Z", true, micros, "Z", ".000000"),
            ("2026-11-27T14:03:42.123Z", true, micros, ".123Z", ".000000"),
            ("2026-11-27T14:03:42.123456789Z", true, micros, "789Z", "Z07:00"),
        ] {
            let expected =
                format!("parsing time \"{text}\" as \"{layout}\": cannot parse \"{rest}\" as \"{part}\"");
            assert_eq!(parse(text, is_micro), Err(expected), "{text}");
        }
        for (text, why) in [
            ("2026-13-27T14:03:42Z", "month out of range"),
            ("2026-11-31T14:03:42Z", "day out of range"),
            ("2026-11-27T24:03:42Z", "hour out of range"),
            ("2026-11-27T14:60:42Z", "minute out of range"),
            ("2026-11-27T14:03:60Z", "second out of range"),
            ("2026-11-27T14:03:42+25:00", "time zone offset hour out of range"),
            ("2026-11-27T14:03:42Z[UTC]", "extra text: \"[UTC]\""),
        ] {
            assert_eq!(parse(text, false), Err(format!("parsing time \"{text}\": {why}")), "{text}");
        }
    }
}
