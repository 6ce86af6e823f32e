//! Formats of strings: timestamps, quantities, durations, and the `format` keyword.

use std::cell::RefCell;

use base64::Engine;
use serde_json::Value;

/// Normalizes an RFC 3339 timestamp to UTC with whole seconds or microseconds. The error is the message of Go.
pub(crate) fn time(text: &str, micros: bool) -> Result<String, String> {
    if micros && text.len() == 20 && rfc3339(text).is_some() {
        let zone = text.get(19..).unwrap_or_default();
        let layout = "2006-01-02T15:04:05.000000Z07:00";
        return Err(format!(
            "parsing time \"{text}\" as \"{layout}\": cannot parse \"{zone}\" as \".000000\""
        ));
    }
    let parsed: jiff::Timestamp = rfc3339(text).ok_or_else(|| {
        let fraction = if micros { ".000000" } else { "" };
        format!(
            "parsing time \"{text}\" as \"2006-01-02T15:04:05{fraction}Z07:00\": cannot parse \"{text}\" as \"2006\""
        )
    })?;
    Ok(stamp(parsed, micros))
}

fn rfc3339(text: &str) -> Option<jiff::Timestamp> {
    let bytes = text.as_bytes();
    let well = bytes.len() >= 20 && bytes.get(10).is_some_and(|b| matches!(b, b'T' | b't' | b' '));
    let zoned = text.ends_with(['Z', 'z']) || text.get(19..).is_some_and(|t| t.contains(['+', '-']));
    if well && zoned { text.parse().ok() } else { None }
}

/// Formats a timestamp.
pub(crate) fn stamp(moment: jiff::Timestamp, micros: bool) -> String {
    let at = jiff::tz::Offset::UTC.to_datetime(moment);
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
        "date-time" | "datetime" => rfc3339(text).is_some(),
        "date" => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
        "byte" => base64::engine::general_purpose::STANDARD.decode(text).is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "email" => {
            text.split_once('@').is_some_and(|(a, b)| !a.is_empty() && !b.is_empty() && !text.contains(' '))
        }
        "hostname" => is_hostname(text),
        "uri" => text.parse::<http::Uri>().is_ok() && text.contains(['/', ':']),
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
