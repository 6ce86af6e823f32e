//! Rules for names: labels and subdomains of DNS, label values, qualified names, with the messages of kube-apiserver.

use std::sync::LazyLock;

use regex::Regex;

const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
    start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is \
    '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
    start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
    end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
    character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
    '[a-z]([-a-z0-9]*[a-z0-9])?')";
#[expect(clippy::unwrap_used, reason = "the patterns are literals, and a test uses each")]
fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap()
}

static NAME_PART_PATTERN: LazyLock<Regex> =
    LazyLock::new(|| pattern("^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"));
static SUBDOMAIN_PATTERN: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"));
static LABEL_PATTERN: LazyLock<Regex> = LazyLock::new(|| pattern("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"));
static LABEL_1035_PATTERN: LazyLock<Regex> = LazyLock::new(|| pattern("^[a-z]([-a-z0-9]*[a-z0-9])?$"));

/// Error message for a label value.
pub(crate) fn label_value_error(value: &str) -> Option<String> {
    if value.len() > 63 {
        return Some("must be no more than 63 bytes".into());
    }
    (!value.is_empty() && !NAME_PART_PATTERN.is_match(value)).then(|| LABEL_VALUE.to_owned())
}

/// Error messages for a qualified name. The empty name has two.
pub(crate) fn qualified_name_errors(name: &str) -> Vec<String> {
    let mut out: Vec<String> = qualified_name_error(name).into_iter().collect();
    if out.iter().any(|e| e == "name part must be non-empty") {
        out.push(NAME_PART.to_owned());
    }
    out
}

/// Error messages for a DNS-1123 label.
pub(crate) fn label_errors(text: &str) -> Vec<String> {
    label_error(text, LABEL, &LABEL_PATTERN).into_iter().collect()
}

/// Error messages for a DNS-1035 label.
pub(crate) fn label_1035_errors(text: &str) -> Vec<String> {
    label_error(text, LABEL_1035, &LABEL_1035_PATTERN).into_iter().collect()
}

/// Error messages for a DNS-1123 subdomain.
pub(crate) fn subdomain_errors(text: &str) -> Vec<String> {
    if text.len() > 253 {
        return vec!["must be no more than 253 characters".into()];
    }
    if SUBDOMAIN_PATTERN.is_match(text) { Vec::new() } else { vec![SUBDOMAIN.to_owned()] }
}

/// Error message for the key of a label or an annotation, or for a finalizer.
pub(crate) fn qualified_name_error(key: &str) -> Option<String> {
    let (prefix, name) = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => (None, (*name).to_owned()),
        [prefix, name] => (Some((*prefix).to_owned()), (*name).to_owned()),
        _ => {
            return Some(
                "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                 alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                 '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
                    .into(),
            );
        }
    };
    match prefix {
        Some(prefix) if prefix.is_empty() => return Some("prefix part must be non-empty".into()),
        Some(prefix) if !SUBDOMAIN_PATTERN.is_match(&prefix) => {
            return Some(format!("prefix part {SUBDOMAIN}"));
        }
        _ => {}
    }
    match name.len() {
        0 => Some("name part must be non-empty".into()),
        64.. => Some("name part must be no more than 63 bytes".into()),
        _ => (!NAME_PART_PATTERN.is_match(&name)).then(|| NAME_PART.to_owned()),
    }
}

/// Whether a string is a DNS-1035 label.
pub(crate) fn is_dns_1035_label(text: &str) -> bool {
    text.len() <= 63 && LABEL_1035_PATTERN.is_match(text)
}

fn label_error(name: &str, words: &str, pattern: &Regex) -> Option<String> {
    if name.len() > 63 {
        return Some("must be no more than 63 characters".into());
    }
    (!pattern.is_match(name)).then(|| words.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_validated() {
        for (key, good) in
            [("a", true), ("a.b/c", true), ("a/b/c", false), ("/c", false), ("A b", false), ("x.Y/z", false)]
        {
            assert_eq!(qualified_name_error(key).is_none(), good, "{key}");
        }
        assert!(label_value_error("ok-1").is_none() && label_value_error("-bad").is_some());
        assert!(label_errors("c").is_empty() && !label_errors("C").is_empty());
        assert!(is_dns_1035_label("abc") && !is_dns_1035_label("1abc"));
        assert!(subdomain_errors("a.b").is_empty() && !subdomain_errors("a..b").is_empty());
    }
}
