//! Values of quantities, and their canonical form.

const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Format of a quantity: it is kept, as far as the value can be written in it.
enum Format {
    Decimal,
    Exponent,
    Binary,
}

/// A quantity as it is written: a number of powers of ten.
struct Written {
    is_negative: bool,
    /// `None` if it has too many digits.
    number: Option<i128>,
    exponent: i32,
    format: Format,
}

fn parse(text: &str) -> Option<Written> {
    let (is_negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let split = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
    let (digits, suffix) = rest.split_at_checked(split)?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || digits.contains('.') {
        return None;
    }
    let mut number: Option<i128> = digits.parse().ok();
    let mut exponent = i32::try_from(fraction.len()).ok()?.checked_neg()?;
    let format = if let Some(power) = (1..).zip(BINARY.iter().skip(1)).find(|(_, s)| **s == suffix) {
        number = number.zip(1024_i128.checked_pow(power.0)).and_then(|(it, factor)| it.checked_mul(factor));
        Format::Binary
    } else if let Some((_, power)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        exponent += power;
        Format::Decimal
    } else {
        exponent = exponent.saturating_add(suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?);
        Format::Exponent
    };
    Some(Written { is_negative, number, exponent, format })
}

/// The billionths of a quantity. Smaller parts are rounded away from zero; a number that is too large becomes the largest one.
pub(crate) fn nanos(text: &str) -> Option<i128> {
    let Written { is_negative, number, exponent, .. } = parse(text)?;
    let (number, shift) = (number.unwrap_or(i128::MAX), exponent.saturating_add(9));
    let power = 10_i128.checked_pow(shift.unsigned_abs());
    let magnitude = match power {
        _ if number == 0 => 0,
        Some(power) if shift >= 0 => number.saturating_mul(power),
        None if shift >= 0 => i128::MAX,
        Some(power) => number / power + i128::from(number % power != 0),
        None => 1,
    };
    Some(if is_negative { -magnitude } else { magnitude })
}

/// The quantity with the largest suffix that leaves an integer. `None` if it is no quantity, or out of range.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let Written { is_negative, number, exponent, format } = parse(text)?;
    let number = number?;
    let written = match format {
        Format::Binary => binary(number, exponent)?,
        Format::Decimal => decimal(number, exponent, false)?,
        Format::Exponent => decimal(number, exponent, true)?,
    };
    Some(if is_negative && written != "0" { format!("-{written}") } else { written })
}

fn binary(number: i128, exponent: i32) -> Option<String> {
    let scale = 10_i128.checked_pow(u32::try_from(-exponent).ok()?)?;
    // Small values are written with decimal suffixes.
    if number < scale.checked_mul(1024)? {
        return decimal(number, exponent, false);
    }
    let mut value = number.div_euclid(scale) + i128::from(number % scale != 0);
    let mut power = 0;
    while value % 1024 == 0 && power + 1 < BINARY.len() {
        value /= 1024;
        power += 1;
    }
    Some(format!("{value}{}", BINARY.get(power)?))
}

fn decimal(mut number: i128, mut exponent: i32, as_exponent: bool) -> Option<String> {
    if number == 0 {
        return Some("0".to_owned());
    }
    // Nothing is smaller than a nano: the rest is rounded up.
    while exponent < -9 {
        number = number / 10 + i128::from(number % 10 != 0);
        exponent += 1;
    }
    while number % 10 == 0 && exponent < 18 {
        number /= 10;
        exponent += 1;
    }
    while exponent.rem_euclid(3) != 0 || exponent > 18 {
        number = number.checked_mul(10)?;
        exponent -= 1;
    }
    if as_exponent {
        return Some(if exponent == 0 { number.to_string() } else { format!("{number}e{exponent}") });
    }
    let (suffix, _) = DECIMAL.iter().find(|(_, e)| *e == exponent)?;
    Some(format!("{number}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_have_a_canonical_form() {
        let cases = [
            ("0.5", "500m"),
            ("1500m", "1500m"),
            ("1000m", "1"),
            ("1.5Gi", "1536Mi"),
            ("1024Mi", "1Gi"),
            ("0.5Ki", "512"),
            ("2k", "2k"),
            ("2000", "2k"),
            ("100", "100"),
            ("1e3", "1e3"),
            ("12e1", "120"),
            ("0", "0"),
            ("-0.1", "-100m"),
            ("0.0000000001", "1n"),
            ("1Ei", "1Ei"),
        ];
        for (given, expected) in cases {
            assert_eq!(canonical(given).as_deref(), Some(expected), "{given}");
        }
        assert_eq!(canonical("x"), None);
    }

    #[test]
    fn quantities_are_counted_in_nanos() {
        for (given, expected) in [
            ("0", Some(0)),
            ("1", Some(1_000_000_000)),
            ("-100m", Some(-100_000_000)),
            ("0.009", Some(9_000_000)),
            ("9m", Some(9_000_000)),
            ("1.5Gi", Some(1_610_612_736_000_000_000)),
            ("1e3", Some(1_000_000_000_000)),
            ("1E", Some(1_000_000_000_000_000_000_000_000_000)),
            ("0.1n", Some(1)),
            ("-1e-400", Some(-1)),
            ("9007199254740993", Some(9_007_199_254_740_993_000_000_000)),
            ("1e400", Some(i128::MAX)),
            ("1111111111111111111111111111111111111111", Some(i128::MAX)),
            ("0e400", Some(0)),
            ("", None),
            (".", None),
            ("1.2.3", None),
            ("1x", None),
            ("1e", None),
            ("--1", None),
        ] {
            assert_eq!(nanos(given), expected, "{given}");
        }
    }
}
