//! Checks of single fields: the words of `rules.txt`.

use std::net::IpAddr;

use serde_json::Value;

use super::{Word, parse_word};
use crate::error::status::Cause;
use crate::registry::meta;
use crate::schema::formats;

/// Message about an IP address.
pub(crate) const IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
/// Message about a CIDR.
pub(crate) const CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used \
                       for validation is '[0-9]+%')";
pub(crate) const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  \
                                     or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const PORT: &str = "must be between 1 and 65535, inclusive";
const SEARCH: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and \
                      end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                      '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";
const GE0: &str = "must be greater than or equal to 0";

#[cfg(test)]
/// Words that are checked, without their marks.
const WORDS: [&str; 36] = [
    "each",
    "search",
    "path",
    "disabled",
    "late",
    "nonempty",
    "own",
    "absolute",
    "atleast",
    "between",
    "cidr",
    "configkey",
    "csidriver",
    "enum",
    "ge0",
    "ge0z",
    "gt0",
    "gt0z",
    "id",
    "ip",
    "items",
    "label",
    "label1035",
    "labelvalue",
    "max",
    "mode",
    "percent",
    "port",
    "portname",
    "positive",
    "qualified",
    "qualifiedlower",
    "req",
    "req0",
    "subdomain",
    "targetport",
];

#[cfg(test)]
/// Whether a word is implemented.
pub(crate) fn is_known(word: &Word) -> bool {
    WORDS.contains(&word.name.trim_end_matches(['!', '?', '~']))
}

fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

/// Checks a field against a word. With the mark `?`, empty strings are checked as well, with `!` absent ones, too.
pub(crate) fn field(value: &Value, word: &Word, path: &str, out: &mut Vec<Cause>) {
    pointer(value, word, false, path, out);
}

/// Checks a field that may be a pointer, so that an empty string is a value.
pub(crate) fn pointer(value: &Value, word: &Word, is_pointer: bool, path: &str, out: &mut Vec<Cause>) {
    let name = word.name.trim_end_matches(['!', '?', '~']);
    let is_set = !value.is_null()
        && (word.name.ends_with('?') || (is_pointer && value.is_string() && !word.name.ends_with('~')));
    let checks_blank = word.name.ends_with('!') || is_set;
    if name == "nonempty" && value.as_array().is_some_and(Vec::is_empty) {
        out.push(Cause::required(path, word.detail));
    }
    if name == "req" || name == "req0" {
        let is_zero = name == "req0" && value.as_i64() == Some(0);
        if (is_blank(value) && !(is_pointer && is_set)) || is_zero {
            out.push(Cause::required(path, word.detail));
        }
        return;
    }
    if is_blank(value) && !checks_blank {
        return;
    }
    match value {
        Value::Array(list) => {
            if name == "items" || name == "each" {
                let inner = parse_word(word.detail);
                for (i, item) in list.iter().enumerate() {
                    let place = if name == "items" { format!("{path}[{i}]") } else { path.to_owned() };
                    field(item, &inner, &place, out);
                }
            }
        }
        // An absent port is 0; `req0` reports it.
        Value::Number(n)
            if matches!(name, "port" | "targetport") && n.as_i64() == Some(0) && !checks_blank => {}
        Value::Number(_) => {
            if let Some(detail) = number(value, name, word.detail) {
                out.push(Cause::invalid(path, value, &detail));
            }
        }
        Value::Null if matches!(name, "port" | "targetport" | "between" | "positive") => {
            if let Some(detail) = number(&0.into(), name, word.detail) {
                out.push(Cause::invalid(path, &0.into(), &detail));
            }
        }
        _ => string(value.as_str().unwrap_or_default(), name, word.detail, path, out),
    }
}

/// Messages about a number.
fn number(value: &Value, name: &str, detail: &'static str) -> Option<String> {
    let n = value.as_i64().unwrap_or_default();
    let bounds = || {
        let mut parts = detail.splitn(3, ',');
        let low = parts.next().and_then(|p| p.parse().ok()).unwrap_or(i64::MIN);
        let high = parts.next().and_then(|p| p.parse().ok()).unwrap_or(i64::MAX);
        (low, high, parts.next().unwrap_or_default())
    };
    let message = |is_good: bool, text: &str| (!is_good).then(|| text.to_owned());
    match name {
        "ge0" | "percent" => message(n >= 0, GE0),
        "ge0z" => message(n >= 0, "must be greater than or equal to zero"),
        "gt0" => message(n > 0, "must be greater than 0"),
        "gt0z" => message(n > 0, "must be greater than zero"),
        "positive" => message(n > 0, detail),
        "max" => {
            let limit: i64 = detail.parse().unwrap_or(i64::MAX);
            message(n <= limit, &format!("must be less than or equal to {limit}"))
        }
        "between" => {
            let (low, high, text) = bounds();
            message((low..=high).contains(&n), text)
        }
        "atleast" => {
            let (low, text) = detail.split_once(',').unwrap_or((detail, ""));
            message(n >= low.parse().unwrap_or(i64::MIN), text)
        }
        "id" => message((0..=2_147_483_647).contains(&n), "must be between 0 and 2147483647, inclusive"),
        "mode" => {
            message((0..=0o777).contains(&n), "must be a number between 0 and 0777 (octal), both inclusive")
        }
        "port" | "targetport" => message((1..=65535).contains(&n), PORT),
        _ => None,
    }
}

fn string(text: &str, name: &str, detail: &str, path: &str, out: &mut Vec<Cause>) {
    if name == "enum" {
        let options: Vec<String> = detail.split(',').map(str::to_owned).collect();
        if !options.iter().any(|o| o == text) {
            out.push(Cause::unsupported(path, &text.into(), &options));
        }
        return;
    }
    let errors: Vec<String> = match name {
        "label" => meta::label_errors(text),
        "label1035" => meta::label_1035_errors(text),
        "subdomain" => meta::subdomain_errors(text),
        "qualified" => meta::qualified_name_errors(text),
        "qualifiedlower" => meta::qualified_name_errors(&text.to_lowercase()),
        "labelvalue" => meta::label_value_error(text).into_iter().collect(),
        "csidriver" => return csi_driver(text, path, out),
        "configkey" => config_key_errors(text),
        "path" => {
            let is_prefixed = text
                .split_once('/')
                .is_some_and(|(domain, path)| meta::subdomain_errors(domain).is_empty() && !path.is_empty());
            let length = "must be no more than 250 characters";
            let prefix = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            let too_long = invalid_unless(text.len() <= 250, length);
            too_long.into_iter().chain(invalid_unless(is_prefixed, prefix)).collect()
        }
        "search" => {
            let plain = text.trim_end_matches('.').replace("._", ".").replace('_', "-");
            let is_good = meta::subdomain_errors(plain.strip_prefix('-').unwrap_or(&plain)).is_empty();
            if text.len() > 253 { meta::subdomain_errors(text) } else { invalid_unless(is_good, SEARCH) }
        }
        "absolute" => invalid_unless(text.starts_with('/'), "must be an absolute path"),
        "ip" => invalid_unless(text.parse::<IpAddr>().is_ok(), IP),
        "cidr" => invalid_unless(formats::matches("cidr", text), CIDR),
        "percent" => invalid_unless(is_percent(text), PERCENT),
        "targetport" | "portname" => port_name_errors(text),
        _ => Vec::new(),
    };
    let shown = if name == "qualifiedlower" { text.to_lowercase() } else { text.to_owned() };
    out.extend(errors.iter().map(|detail| Cause::invalid(path, &shown.as_str().into(), detail)));
}

fn invalid_unless(is_good: bool, detail: &str) -> Vec<String> {
    if is_good { Vec::new() } else { vec![detail.to_owned()] }
}

fn is_percent(text: &str) -> bool {
    text.strip_suffix('%').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn csi_driver(text: &str, path: &str, out: &mut Vec<Cause>) {
    if text.len() > 63 {
        out.push(Cause::too_long(path, 63));
    }
    let errors = meta::subdomain_errors(&text.to_lowercase());
    out.extend(errors.iter().map(|detail| Cause::invalid(path, &text.into(), detail)));
}

/// Errors of a key of a config map or a secret.
pub(crate) fn config_key_errors(key: &str) -> Vec<String> {
    let mut out = Vec::new();
    if key.len() > 253 {
        out.push("must be no more than 253 characters".to_owned());
    }
    if key.is_empty() || !key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b)) {
        out.push(CONFIG_KEY.to_owned());
    } else if key == "." {
        out.push("must not be '.'".to_owned());
    } else if key == ".." {
        out.push("must not be '..'".to_owned());
    } else if key.starts_with("..") {
        out.push("must not start with '..'".to_owned());
    }
    out
}

/// Errors of the name of a port.
pub(crate) fn port_name_errors(name: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut require = |is_good: bool, detail: &str| {
        if !is_good {
            out.push(detail.to_owned());
        }
    };
    require(name.len() <= 15, "must be no more than 15 characters");
    let is_plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    require(
        is_plain && !name.is_empty(),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    require(name.bytes().any(|b| b.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    require(!name.contains("--"), "must not contain consecutive hyphens");
    require(!name.starts_with('-') && !name.ends_with('-'), "must not begin or end with a hyphen");
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_report_values() {
        let cases = [
            ("req", json!(""), 1),
            ("req0", json!(0), 1),
            ("ge0", json!(-1), 1),
            ("ge0", json!(0), 0),
            ("port", json!(0), 0),
            ("port!", Value::Null, 1),
            ("port", Value::Null, 0),
            ("enum(A,B)", json!("C"), 1),
            ("enum(A,B)", json!(""), 0),
            ("enum!(A,B)", json!(""), 1),
            ("enum!(A,B)", Value::Null, 1),
            ("enum?(A,B)", Value::Null, 0),
            ("enum?(A,B)", json!(""), 1),
            ("targetport", json!("http"), 0),
            ("targetport", json!("80"), 1),
            ("ip", json!("1.2.3"), 1),
            ("percent", json!("25%"), 0),
            ("percent", json!("x"), 1),
            ("items(ip!)", json!(["1.2.3.4", ""]), 1),
            ("mode", json!(512), 1),
            ("between(1,30,the text)", json!(31), 1),
            ("configkey", json!(".."), 1),
            ("path", json!("example.com/a"), 0),
            ("path", json!("other"), 1),
            ("search", json!("_srv.example.com"), 0),
            ("search", json!("Not Valid!"), 1),
            ("each(label!)", json!(["a", "", "B"]), 2),
            ("targetport!", Value::Null, 1),
        ];
        for (word, value, expected) in cases {
            let mut out = Vec::new();
            field(&value, &parse_word(word), "spec.x", &mut out);
            assert_eq!(out.len(), expected, "{word} {value}: {out:?}");
        }
    }

    #[test]
    fn an_empty_string_behind_a_pointer_is_a_value() {
        for (word, is_pointer, expected) in
            [("enum(A,B)", true, 1), ("enum(A,B)", false, 0), ("label~", true, 0), ("label", true, 1)]
        {
            let mut out = Vec::new();
            pointer(&json!(""), &parse_word(word), is_pointer, "spec.x", &mut out);
            assert_eq!(out.len(), expected, "{word} {is_pointer}: {out:?}");
        }
    }
}
