//! Formats of strings: timestamps, quantities, durations, and the `format` keyword.

use std::cell::RefCell;
use std::sync::LazyLock;

use base64::Engine;
use regex::Regex;
use serde_json::Value;

use super::go_time;
use crate::base::go_url;

/// Normalizes an RFC 3339 timestamp to UTC with whole seconds or microseconds. The error is the message of Go.
pub(crate) fn time(text: &str, micros: bool) -> Result<String, String> {
    go_time::parse(text, micros).map(|moment| written(moment, micros))
}

/// Formats a timestamp.
pub(crate) fn stamp(moment: jiff::Timestamp, micros: bool) -> String {
    written(jiff::tz::Offset::UTC.to_datetime(moment), micros)
}

fn written(at: jiff::civil::DateTime, micros: bool) -> String {
    let (year, month, day) = (at.year(), at.month(), at.day());
    let (hour, minute, second) = (at.hour(), at.minute(), at.second());
    if micros {
        let fraction = at.subsec_nanosecond() / 1000;
        return format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:06}Z");
    }
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

thread_local! {
    static LAST_SECOND: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
}

/// Current time in whole seconds. The last result is cached, as most writes share their second.
pub(crate) fn now() -> String {
    let moment = crate::base::clock::now();
    LAST_SECOND.with_borrow_mut(|(second, text)| {
        if *second != moment.as_second() {
            *second = moment.as_second();
            *text = stamp(moment, false);
        }
        text.clone()
    })
}

pub(crate) const QUANTITY_ERROR: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Validates a quantity. Numbers become strings.
pub(crate) fn quantity(value: &Value) -> Result<Value, String> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if quantity_value(&text).is_none() {
        return Err(QUANTITY_ERROR.into());
    }
    Ok(super::quantity::canonical(&text).unwrap_or(text).into())
}

/// Numeric value of a quantity.
pub(crate) fn quantity_value(text: &str) -> Option<f64> {
    let split =
        text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-'))).unwrap_or(text.len());
    let (digits, name_suffix) = text.split_at(split);
    let number: f64 = digits.parse().ok()?;
    let scale = match name_suffix {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024.0_f64.powi(2),
        "Gi" => 1024.0_f64.powi(3),
        "Ti" => 1024.0_f64.powi(4),
        "Pi" => 1024.0_f64.powi(5),
        "Ei" => 1024.0_f64.powi(6),
        exponent => 10.0_f64.powi(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    Some(number * scale)
}

/// Whether a string has a format. Unknown formats accept everything.
pub(crate) fn matches(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => is_date_time(text),
        "date" => is_date(text),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "email" => {
            text.split_once('@').is_some_and(|(a, b)| !a.is_empty() && !b.is_empty() && !text.contains(' '))
        }
        "hostname" => is_hostname(text),
        "uri" => go_url::check(text).is_ok(),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')),
        "uuid5" => is_uuid(text, Some('5')),
        "duration" => is_duration(text),
        "mac" => {
            text.split([':', '-']).count() == 6 && text.split([':', '-']).all(|p| p.len() == 2 && hex(p))
        }
        _ => true,
    }
}

fn is_date(text: &str) -> bool {
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

/// A time of day with a zone. As in kube-apiserver, any character can precede the fraction.
static TIME_OF_DAY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let zone = "(?:[zZ]|[+-][0-9]{2}:[0-9]{2})";
    Regex::new(&format!("^(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:.[0-9]+)?{zone}$")).ok()
});

fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['t', 'T']) else { return false };
    is_date(date) && TIME_OF_DAY.as_ref().is_some_and(|pattern| pattern.is_match(time))
}

fn hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let limit = match address.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(_)) => 32,
        Ok(std::net::IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    bits.parse::<u8>().is_ok_and(|n| n <= limit)
}

fn is_hostname(text: &str) -> bool {
    let label = |l: &str| {
        !l.is_empty()
            && l.len() <= 63
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    let mut labels = text.split('.');
    let last = labels.next_back().unwrap_or_default();
    let is_top_level = |l: &str| (2..=63).contains(&l.len()) && l.bytes().all(|b| b.is_ascii_alphabetic());
    let is_single = !text.contains('.');
    text.len() <= 253 && labels.all(label) && if is_single { label(last) } else { is_top_level(last) }
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    let plain: String = text.chars().filter(|c| *c != '-').collect();
    plain.len() == 32 && hex(&plain) && version.is_none_or(|v| plain.chars().nth(12) == Some(v))
}

/// Whether a string is a duration: `1h30m`, `250ms`, `3 seconds`.
pub(crate) fn is_duration(text: &str) -> bool {
    duration_seconds(text).is_some()
}

/// Seconds of a duration.
pub(crate) fn duration_seconds(text: &str) -> Option<f64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0.0);
    }
    let mut total = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let number: f64 = rest.get(..digits)?.parse().ok()?;
        rest = rest.get(digits..)?.trim_start();
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = match rest.get(..end)?.trim() {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" | "sec" | "second" | "seconds" => 1.0,
            "m" | "min" | "minute" | "minutes" => 60.0,
            "h" | "hour" | "hours" => 3600.0,
            "d" | "day" | "days" => 86400.0,
            "w" | "week" | "weeks" => 604_800.0,
            _ => return None,
        };
        total += number * unit;
        rest = rest.get(end..)?;
    }
    Some(sign * total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_times_are_those_of_rfc_3339() {
        for text in [
            "2026-11-27T14:03:42Z",
            "2026-11-27t14:03:42z",
            "2026-11-27T14:03:42.123456+01:00",
            "2026-11-27T14:03:42.1-23:59",
            "2024-02-29T00:00:00Z",
        ] {
            assert!(matches("date-time", text), "{text}");
            assert_eq!(matches("datetime", text), matches("date-time", text), "{text}");
        }
        for text in [
            "2026-11-27 14:03:42+00:00",
            "2026-11-27T14:03:42+0000",
            "2026-11-27T14:03:42+00",
            "2026-11-27T14:03:42",
            "2026-11-27T14:03:60Z",
            "2026-11-27T24:00:00Z",
            "2026-11-27T14:03:42.Z",
            "2026-11-27T14:03:42Z[UTC]",
            "2026-02-29T00:00:00Z",
            "2026-11-27",
            "",
        ] {
            assert!(!matches("date-time", text), "{text}");
        }
    }

    #[test]
    fn times_are_normalized() {
        for (text, micros, expected) in [
            ("2026-11-27T14:03:42Z", false, "2026-11-27T14:03:42Z"),
            ("2026-11-27T15:03:42.5+01:00", false, "2026-11-27T14:03:42Z"),
            ("9999-12-31T23:59:59Z", false, "9999-12-31T23:59:59Z"),
            ("2026-11-27T15:03:42.123456+01:00", true, "2026-11-27T14:03:42.123456Z"),
        ] {
            assert_eq!(time(text, micros).as_deref(), Ok(expected), "{text}");
        }
        for (text, micros) in [
            ("2026-11-27 14:03:42Z", false),
            ("2026-11-27T14:03:42+0000", false),
            ("2026-11-27T14:03:42.123Z", true),
            ("2026-11-27T14:03:42Z", true),
        ] {
            assert!(time(text, micros).is_err(), "{text}");
        }
    }

    #[test]
    fn uris_are_those_of_go() {
        for (text, expected) in [
            ("https://a/b c", true),
            ("urn:isbn:1", true),
            ("/a", true),
            ("a/b", false),
            ("https://a/%zz", false),
            ("", false),
        ] {
            assert_eq!(matches("uri", text), expected, "{text}");
        }
    }
}
