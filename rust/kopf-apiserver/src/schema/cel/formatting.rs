//! `format`: the checks of its texts before they are used, and lists and maps as texts.

use super::Cel;
use super::types::StaticType;

/// Checks the clauses of a text with the types of their arguments. The error has the id of the argument that it is about, if
/// there is one.
pub(super) fn check(text: &str, arguments: &[(u64, StaticType<'_>)]) -> Result<(), (Option<u64>, String)> {
    let mut rest = text;
    let mut used = 0;
    while let Some((_, clause)) = rest.split_once('%') {
        if let Some(after) = clause.strip_prefix('%') {
            rest = after;
            continue;
        }
        if clause.is_empty() {
            return Err((None, "unexpected end of string".to_owned()));
        }
        let index = used;
        used += 1;
        let Some((id, kind)) = arguments.get(index) else {
            return Err((None, format!("index {index} out of range")));
        };
        let unparsed = |why: &str| Err((None, format!("could not parse formatting clause: {why}")));
        let after = match clause.strip_prefix('.') {
            Some(digits) => digits.trim_start_matches(|c: char| c.is_ascii_digit()),
            None => clause,
        };
        let Some(letter) = after.chars().next() else {
            return unparsed("error while parsing precision: could not find end of precision specifier");
        };
        let Some((accepted, what)) = clause_types(letter) else {
            return unparsed(&format!("unrecognized formatting clause \"{letter}\""));
        };
        let shown = kind.to_string();
        let name = shown.split('(').next().unwrap_or_default();
        if !kind.is_dynamic() && !accepted.contains(&name) {
            let found = kind.declared_name();
            let found = found.split('(').next().unwrap_or_default();
            return Err((Some(*id), format!("error during formatting: {what}, was given {found}")));
        }
        rest = after.get(letter.len_utf8()..).unwrap_or_default();
    }
    if arguments.len() > used {
        let given = arguments.len();
        return Err((
            None,
            format!("too many arguments supplied to string.format (expected {used}, got {given})"),
        ));
    }
    Ok(())
}

/// The types that a clause accepts, and the message about others.
fn clause_types(letter: char) -> Option<(&'static [&'static str], &'static str)> {
    Some(match letter {
        's' => (
            &[
                "list",
                "map",
                "int",
                "uint",
                "double",
                "bool",
                "string",
                "timestamp",
                "bytes",
                "duration",
                "type",
                "null",
            ],
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and \
             timestamps",
        ),
        'd' => (&["int", "uint"], "decimal clause can only be used on integers"),
        'f' => (&["double", "string"], "fixed-point clause can only be used on doubles"),
        'e' => (&["double", "string"], "scientific clause can only be used on doubles"),
        'b' => (&["int", "uint", "bool"], "only integers and bools can be formatted as binary"),
        'x' | 'X' => (
            &["int", "uint", "string", "bytes"],
            "only integers, byte buffers, and strings can be formatted as hex",
        ),
        'o' => (&["int", "uint"], "octal clause can only be used on integers"),
        _ => return None,
    })
}

/// A list or a map as text; `None` for other values.
pub(super) fn shown(value: &Cel) -> Option<String> {
    match value {
        Cel::List(items) => {
            let items: Vec<String> = items.iter().map(quoted).collect();
            Some(format!("[{}]", items.join(", ")))
        }
        Cel::Map(map) => {
            let mut pairs: Vec<String> = map
                .map
                .iter()
                .map(|(key, value)| format!("{}:{}", quoted(&key.into()), quoted(value)))
                .collect();
            pairs.sort_unstable();
            Some(format!("{{{}}}", pairs.join(", ")))
        }
        _ => None,
    }
}

/// A part of a list or a map as text.
fn quoted(value: &Cel) -> String {
    match value {
        Cel::String(text) => format!("{text:?}"),
        Cel::Bytes(data) => format!("b{:?}", String::from_utf8_lossy(data)),
        Cel::Bool(it) => it.to_string(),
        Cel::Int(number) => number.to_string(),
        Cel::UInt(number) => number.to_string(),
        Cel::Float(number) if number.is_finite() => format!("{number:.6}"),
        Cel::Null => "null".to_owned(),
        #[expect(clippy::cast_precision_loss, reason = "as text of a fraction")]
        Cel::Duration(duration) => match duration.num_nanoseconds() {
            Some(nanoseconds) => format!("{}s", nanoseconds as f64 / 1e9),
            None => format!("{}s", duration.num_seconds()),
        },
        Cel::Timestamp(time) => time.to_rfc3339().replace("+00:00", "Z"),
        other => shown(other).unwrap_or_else(|| format!("{other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_are_checked_with_types() {
        let one = [(7, StaticType::Int)];
        for (text, expected) in [
            ("%d%% %s", Err((None, "index 1 out of range".to_owned()))),
            ("%d 100%%", Ok(())),
            ("%x", Ok(())),
            ("none", Err((None, "too many arguments supplied to string.format (expected 0, got 1)".to_owned()))),
            ("%", Err((None, "unexpected end of string".to_owned()))),
            ("%.2", Err((None, "could not parse formatting clause: error while parsing precision: could not find end of precision specifier".to_owned()))),
            ("%y", Err((None, "could not parse formatting clause: unrecognized formatting clause \"y\"".to_owned()))),
            ("%.2f", Err((Some(7), "error during formatting: fixed-point clause can only be used on doubles, was given int".to_owned()))),
        ] {
            assert_eq!(check(text, &one), expected, "{text}");
        }
    }
}
