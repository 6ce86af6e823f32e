//! Literal arguments that kube-apiserver checks when it compiles an expression: patterns, durations, timestamps and the
//! arguments of conversions.

use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};

use super::parsing::parse;
use crate::base::go_regex;

/// The ids of invalid literals, and messages about them.
pub(super) fn invalid_literals(expression: &IdedExpr) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    visit_calls(expression, &mut |call| {
        let Some((argument, text)) = call.args.first().and_then(|it| Some((it, text(it)?))) else { return };
        let is_valid = match call.func_name.as_str() {
            "duration" => is_duration(text),
            "timestamp" => is_timestamp(text),
            // kube-apiserver also takes the text of `matches(text, pattern)` for a pattern.
            "matches" => go_regex::compile(text).is_ok(),
            _ => return,
        };
        if !is_valid {
            found.push((argument.id, format!("invalid {} argument", call.func_name)));
        }
    });
    found
}

/// The first error of literals that only the preparation of an expression for its evaluations reports; `None` also if the
/// expression cannot be compiled.
pub(crate) fn instantiation_error(text: &str) -> Option<String> {
    let parsed = parse(text).ok()?;
    let mut error = None;
    parsed.walk(|expression| {
        visit_calls(expression, &mut |call| {
            if error.is_none() {
                error = call_error(call);
            }
        });
    });
    error
}

fn call_error(call: &CallExpr) -> Option<String> {
    match (call.func_name.as_str(), &call.target, call.args.as_slice()) {
        ("matches" | "find" | "findAll", Some(_), [pattern, ..]) | ("matches", None, [_, pattern]) => {
            go_regex::compile(text(pattern)?).err()
        }
        (name @ ("bool" | "double" | "int" | "uint"), None, [argument]) => conversion_error(name, argument),
        _ => None,
    }
}

fn conversion_error(name: &str, argument: &IdedExpr) -> Option<String> {
    let error = match (&argument.expr, name) {
        (Expr::Literal(LiteralValue::String(text)), _) => {
            return (!is_convertible(name, text.inner()))
                .then(|| format!("type conversion error from 'string' to '{name}'"));
        }
        (Expr::Literal(LiteralValue::Int(number)), "uint") if *number.inner() < 0 => {
            "unsigned integer overflow"
        }
        (Expr::Literal(LiteralValue::Double(number)), "uint")
            if !(0.0..18_446_744_073_709_551_616.0).contains(number.inner()) =>
        {
            "unsigned integer overflow"
        }
        (Expr::Literal(LiteralValue::Double(number)), "int")
            if number.inner().is_nan() || number.inner().abs() >= 9_223_372_036_854_775_808.0 =>
        {
            "integer overflow"
        }
        (Expr::Literal(LiteralValue::UInt(number)), "int") if i64::try_from(*number.inner()).is_err() => {
            "integer overflow"
        }
        _ => return None,
    };
    Some(error.to_owned())
}

/// Whether a string can be converted, by the rules of Go.
fn is_convertible(name: &str, text: &str) -> bool {
    match name {
        "bool" => {
            ["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"].contains(&text)
        }
        "double" => {
            text.parse::<f64>().is_ok_and(|it| it.is_finite() || !text.contains(|c: char| c.is_ascii_digit()))
        }
        "int" => text.parse::<i64>().is_ok(),
        _ => !text.starts_with('+') && text.parse::<u64>().is_ok(),
    }
}

fn text(expression: &IdedExpr) -> Option<&str> {
    match &expression.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

/// Whether a text is a duration of Go, such as `1h30m` or `-1.5s`, that fits into nanoseconds of 64 bits.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let mut total = 0.0;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (digits, tail) = rest.split_at(number);
        let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (name, tail) = tail.split_at(unit);
        let nanoseconds = match name {
            "ns" => 1.0,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 6e10,
            "h" => 3.6e12,
            _ => return false,
        };
        // As in Go, one side of the point can be empty.
        let Ok(number) = format!("0{digits}").parse::<f64>() else { return false };
        if !digits.contains(|c: char| c.is_ascii_digit()) {
            return false;
        }
        total += number * nanoseconds;
        rest = tail;
    }
    !matches!(text, "" | "-" | "+") && total < 9_223_372_036_854_775_808.0
}

/// Whether a text is a timestamp of RFC 3339, as Go reads it, from the year 1.
fn is_timestamp(text: &str) -> bool {
    let (Some(local), Some(rest)) = (text.get(..19), text.get(19..)) else { return false };
    // Two digits of an offset.
    let is_below = |text: Option<&str>, limit: u8| {
        let digits = text.filter(|it| it.bytes().all(|byte| byte.is_ascii_digit()));
        digits.and_then(|it| it.parse::<u8>().ok()).is_some_and(|number| number < limit)
    };
    let (fraction, zone) = rest.split_at(rest.find(['Z', '+', '-']).unwrap_or(rest.len()));
    let is_fraction = |it: &str| !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit());
    let has_zone = zone == "Z"
        || (zone.len() == 6
            && zone.get(3..4) == Some(":")
            && is_below(zone.get(1..3), 24)
            && is_below(zone.get(4..), 60));
    let is_separated = local.as_bytes().get(10) == Some(&b'T');
    let is_leap_second = local.ends_with("60");
    let has_year = local.starts_with(|c: char| c.is_ascii_digit()) && !local.starts_with("0000");
    let has_fraction = fraction.is_empty() || fraction.strip_prefix('.').is_some_and(is_fraction);
    (has_zone && has_fraction && is_separated && has_year && !is_leap_second)
        && local.parse::<jiff::civil::DateTime>().is_ok()
}

/// Visits all calls: arguments before the calls that have them.
fn visit_calls<'e>(expression: &'e IdedExpr, visit: &mut dyn FnMut(&'e CallExpr)) {
    match &expression.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select(select) => visit_calls(&select.operand, visit),
        Expr::Call(call) => {
            call.target.as_deref().into_iter().chain(&call.args).for_each(|it| visit_calls(it, visit));
            visit(call);
        }
        Expr::List(list) => list.elements.iter().for_each(|it| visit_calls(it, visit)),
        Expr::Map(map) => map.entries.iter().for_each(|it| visit_entry(&it.expr, visit)),
        Expr::Struct(value) => value.entries.iter().for_each(|it| visit_entry(&it.expr, visit)),
        Expr::Comprehension(it) => {
            for part in [&it.accu_init, &it.iter_range, &it.loop_cond, &it.loop_step, &it.result] {
                visit_calls(part, visit);
            }
        }
    }
}

fn visit_entry<'e>(entry: &'e EntryExpr, visit: &mut dyn FnMut(&'e CallExpr)) {
    match entry {
        EntryExpr::StructField(field) => visit_calls(&field.value, visit),
        EntryExpr::MapEntry(pair) => {
            visit_calls(&pair.key, visit);
            visit_calls(&pair.value, visit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        for text in ["0", "+0", "1h30m", "-1.5s", ".5s", "5.s", "100ms", "3\u{b5}s", "2562047h", "1h1h"] {
            assert!(is_duration(text), "{text}");
        }
        for text in ["", "-", "5", "1d", "1 s", "s", ".s", "1.2.3s", "1e3s", "--1s", "2562048h"] {
            assert!(!is_duration(text), "{text}");
        }
    }

    #[test]
    fn timestamps_are_those_of_go() {
        for text in [
            "2020-01-31T00:00:00Z",
            "0001-01-01T00:00:00.5Z",
            "9999-12-31T23:59:59Z",
            "9999-12-31T23:59:59+01:00",
        ] {
            assert!(is_timestamp(text), "{text}");
        }
        for text in [
            "",
            "2020-01-31",
            "2020-01-31 00:00:00Z",
            "2020-01-31T00:00:00",
            "2020-02-30T00:00:00Z",
            "2020-01-31T00:00:60Z",
            "2020-01-31T00:00:00z",
            "0000-01-31T00:00:00Z",
            "2020-01-31T00:00:00.Z",
            "2020-01-31T00:00:00+1:00",
            "2020-01-31T00:00:00+25:00",
        ] {
            assert!(!is_timestamp(text), "{text}");
        }
    }

    #[test]
    fn instantiation_errors_are_those_of_go() {
        let conversion = |name: &str| Some(format!("type conversion error from 'string' to '{name}'"));
        let pattern = |why: &str| Some(format!("error parsing regexp: {why}"));
        for (text, expected) in [
            ("self.find('[a-z]+') == '' && [int('5'), int('+5')] == [5, 5]", None),
            ("matches(self, '(a')", pattern("missing closing ): `(a`")),
            ("self.find('a)') == ''", pattern("unexpected ): `a)`")),
            (
                "self.all(x, x.findAll('(?=a)', 2).size() > 0)",
                pattern("invalid or unsupported Perl syntax: `(?=`"),
            ),
            ("int('x') > 0 && self.find('(') == ''", conversion("int")),
            ("{'a': uint('+5')}.a == 5u", conversion("uint")),
            ("bool('yes') || double('1e999') > 0.0", conversion("bool")),
            ("double('1e999') > 0.0 || bool('yes')", conversion("double")),
            ("double('inf') > 0.0 && bool('t')", None),
            ("uint(-1) == 1u", Some("unsigned integer overflow".to_owned())),
            ("int(1e19) == 1", Some("integer overflow".to_owned())),
        ] {
            assert_eq!(instantiation_error(text), expected, "{text}");
        }
    }
}
