//! Canonical form of quantities.

const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Format of a quantity: it is kept, as far as the value can be written in it.
enum Format {
    Decimal,
    Exponent,
    Binary,
}

/// The quantity with the largest suffix that leaves an integer. `None` if it is no quantity, or out of range.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let split = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
    let (digits, suffix) = rest.split_at_checked(split)?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut number: i128 = format!("{whole}{fraction}").parse().ok()?;
    let mut exponent = -i32::try_from(fraction.len()).ok()?;
    let format = if let Some(power) = BINARY.iter().skip(1).position(|s| *s == suffix) {
        number = number.checked_mul(1024_i128.checked_pow(u32::try_from(power).ok()? + 1)?)?;
        Format::Binary
    } else if let Some((_, power)) = DECIMAL.iter().find(|(s, _)| *s == suffix) {
        exponent += power;
        Format::Decimal
    } else {
        exponent += suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?;
        Format::Exponent
    };
    let written = match format {
        Format::Binary => binary(number, exponent)?,
        Format::Decimal => decimal(number, exponent, false)?,
        Format::Exponent => decimal(number, exponent, true)?,
    };
    Some(if written == "0" { written } else { format!("{sign}{written}") })
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
}
