//! Decoding of YAML, and its duplicate keys.

use std::collections::HashSet;
use std::fmt;

use serde_json::Value;
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle};
use serde_saphyr::options;
use serde_saphyr::options::DuplicateKeyPolicy;

/// A key that its mapping has already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DuplicateKey {
    /// The line of its value.
    pub(crate) line: usize,
    /// As Go shows it: texts are in quotes.
    pub(crate) key: String,
}

impl fmt::Display for DuplicateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: key {} already set in map", self.line, self.key)
    }
}

/// Decodes YAML. Of duplicate keys, the last one counts.
pub(crate) fn decode(text: &str) -> Option<(Value, Vec<DuplicateKey>)> {
    let strict = options! { legacy_octal_numbers: true };
    if let Ok(value) = serde_saphyr::from_str_with_options(text, strict) {
        return Some((value, Vec::new()));
    }
    let lenient = options! { legacy_octal_numbers: true, duplicate_keys: DuplicateKeyPolicy::LastWins };
    let value = serde_saphyr::from_str_with_options(text, lenient).ok()?;
    Some((value, duplicate_keys(text)))
}

/// A list or mapping that contains the position.
enum Container {
    List,
    Mapping(Mapping),
}

/// The keys of a mapping up to the position.
#[derive(Default)]
struct Mapping {
    keys: HashSet<String>,
    /// The key whose value comes next or contains the position; `None` before a key. Keys that are not scalars are empty.
    key: Option<String>,
    /// The line of the key, and then of the value.
    line: usize,
    is_in_value: bool,
}

/// The duplicate keys of a YAML document, in the order in which the decoder of Go completes their values.
pub(crate) fn duplicate_keys(text: &str) -> Vec<DuplicateKey> {
    let mut found = Vec::new();
    let mut open: Vec<Container> = Vec::new();
    for (event, span) in Parser::new_from_str(text).map_while(Result::ok) {
        match event {
            Event::DocumentEnd => break,
            Event::SequenceEnd | Event::MappingEnd => {
                open.pop();
                complete(&mut open, &mut found);
            }
            _ if event.is_node() => {
                begin(&mut open, &event, span.tag_start.unwrap_or(span.start).line());
                match event {
                    Event::SequenceStart(..) => open.push(Container::List),
                    Event::MappingStart(..) => open.push(Container::Mapping(Mapping::default())),
                    _ => complete(&mut open, &mut found),
                }
            }
            _ => {}
        }
    }
    found
}

/// A node begins: a key or a value of the innermost mapping, or an item of a list.
fn begin(open: &mut [Container], node: &Event<'_>, line: usize) {
    let Some(Container::Mapping(mapping)) = open.last_mut() else { return };
    let scalar = node.scalar();
    if mapping.key.is_some() {
        mapping.is_in_value = true;
        // A block scalar begins behind its key, its text in the next line.
        if !matches!(scalar, Some((_, ScalarStyle::Literal | ScalarStyle::Folded))) {
            mapping.line = line;
        }
    } else {
        mapping.key = Some(scalar.map(|(text, style)| shown(text, style)).unwrap_or_default());
        mapping.line = line;
    }
}

/// A key as Go shows it.
fn shown(text: &str, style: ScalarStyle) -> String {
    let is_number = style == ScalarStyle::Plain && text.parse::<f64>().is_ok();
    if is_number { text.to_owned() } else { format!("{text:?}") }
}

/// A node ends.
fn complete(open: &mut [Container], found: &mut Vec<DuplicateKey>) {
    let Some(Container::Mapping(mapping)) = open.last_mut() else { return };
    if !std::mem::take(&mut mapping.is_in_value) {
        return;
    }
    let Some(key) = mapping.key.take() else { return };
    if !mapping.keys.insert(key.clone()) {
        found.push(DuplicateKey { line: mapping.line, key });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<(usize, String)> {
        duplicate_keys(text).into_iter().map(|found| (found.line, found.key)).collect()
    }

    #[test]
    fn duplicate_keys_have_the_lines_of_their_values() {
        for (text, expected) in [
            ("a: 1\nb: 2\n", vec![]),
            ("1: 1\n1: 2\n\"1\": 3\n", vec![(2, "1")]),
            ("a: 1\na: |\n  text\na: !!str\n  2\n", vec![(2, "\"a\""), (4, "\"a\"")]),
            ("- a: 1\n- a: 1\n  a: 2\n", vec![(3, "\"a\"")]),
            ("a: 1\n# b\na: 2\na: 3\n", vec![(3, "\"a\""), (4, "\"a\"")]),
            ("a: 1\na:\n  b: 1\n", vec![(3, "\"a\"")]),
            ("a:\n  b: 1\n  \"b\": 2\na:\n  - b\n", vec![(3, "\"b\""), (5, "\"a\"")]),
            ("a: 1\na:\n  b: 1\n  b: 2\n", vec![(4, "\"b\""), (3, "\"a\"")]),
            ("{\"a\": 1, \"b\": {\"x\": 1, \"\\u0078\":\n2},\n\"a\":\n{}}", vec![(2, "\"x\""), (4, "\"a\"")]),
        ] {
            let expected: Vec<_> = expected.into_iter().map(|(line, key)| (line, key.to_owned())).collect();
            assert_eq!(keys(text), expected, "{text}");
        }
    }

    #[test]
    fn of_duplicate_keys_the_last_one_counts() {
        let (value, duplicates) = decode("a: {b: 1, c: 1}\na: {b: 2}\n").unwrap();
        assert_eq!(value, serde_json::json!({"a": {"b": 2}}));
        assert_eq!(duplicates, [DuplicateKey { line: 2, key: "\"a\"".to_owned() }]);
    }
}
