//! Defaults and checks of single fields of built-in types, as data.
//!
//! `rules.txt` has a line for each field with rules. A rule applies wherever its type occurs: the rules of a container hold
//! in pods and in all templates. Rules that depend on several fields are code, in `registry::validation` and
//! `registry::defaults`.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::schema::Schema;

pub(crate) mod check;

const RULES: &str = include_str!("rules.txt");

/// One word of a rule, with its text in parentheses.
#[derive(Debug)]
pub(crate) struct Word {
    pub(crate) name: &'static str,
    pub(crate) detail: &'static str,
}

/// Rules of a field.
#[derive(Debug)]
pub(crate) struct FieldRules {
    pub(crate) field: &'static str,
    pub(crate) default: Option<Value>,
    pub(crate) words: Vec<Word>,
}

static TYPES: LazyLock<HashMap<&'static str, Vec<FieldRules>>> = LazyLock::new(|| {
    let mut out: HashMap<&str, Vec<FieldRules>> = HashMap::new();
    let mut current = "";
    for line in RULES.lines().filter(|l| !l.starts_with('#')) {
        match line.strip_prefix(' ') {
            Some(rule) => out.entry(current).or_default().push(parse(rule)),
            None => current = line,
        }
    }
    out
});

/// Rules of the fields of a type.
pub(crate) fn rules_of(type_name: &str) -> &'static [FieldRules] {
    TYPES.get(type_name).map_or(&[], Vec::as_slice)
}

fn parse(line: &'static str) -> FieldRules {
    let (field, mut rest) = line.split_once(' ').unwrap_or((line, ""));
    let mut out = FieldRules { field, default: None, words: Vec::new() };
    while !rest.is_empty() {
        let (word, after) = next_word(rest);
        rest = after;
        match word.strip_prefix('=') {
            Some(default) => out.default = serde_json::from_str(default).ok(),
            None => out.words.push(parse_word(word)),
        }
    }
    out
}

/// Splits off the first word. Spaces in parentheses and in strings do not end it.
fn next_word(text: &'static str) -> (&'static str, &'static str) {
    let mut depth = 0;
    for (i, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ' ' if depth == 0 => {
                return (text.get(..i).unwrap_or_default(), text.get(i + 1..).unwrap_or_default());
            }
            _ => {}
        }
    }
    (text, "")
}

pub(crate) fn parse_word(word: &'static str) -> Word {
    match word.split_once('(') {
        Some((name, detail)) => Word { name, detail: detail.strip_suffix(')').unwrap_or(detail) },
        None => Word { name: word, detail: "" },
    }
}

/// When defaults are set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// On decoding.
    Decoding,
    /// After the managed fields are updated: all defaults, also those below fields with the word `late`.
    Storing,
}

/// Sets the defaults of all fields below an object.
pub(crate) fn fill_defaults(value: &mut Value, schema: &Schema, phase: Phase) {
    match value {
        Value::Object(map) => fill_object(map, schema, phase),
        Value::Array(list) => {
            if let Some(items) = &schema.items {
                for item in list {
                    fill_defaults(item, items, phase);
                }
            }
        }
        _ => {}
    }
}

fn fill_object(map: &mut Map<String, Value>, schema: &Schema, phase: Phase) {
    let mut late = None;
    for rule in rules_of(&schema.type_name) {
        // Fields of features that are off are dropped, after their managers are known.
        if phase == Phase::Storing && rule.words.iter().any(|w| w.name == "disabled") {
            map.shift_remove(rule.field);
        }
        if phase == Phase::Decoding && rule.words.iter().any(|w| w.name == "late") {
            late = Some(rule.field);
        }
        if let Some(default) = &rule.default {
            // A pointer to an empty string is not absent.
            let is_pointer = schema.properties.get(rule.field).is_some_and(|s| s.is_string_pointer());
            let is_absent =
                map.get(rule.field).is_none_or(|v| v.is_null() || (!is_pointer && v.as_str() == Some("")));
            if is_absent {
                map.insert(rule.field.to_owned(), default.clone());
            }
        }
    }
    for (key, child) in map.iter_mut() {
        let has_members = (child.is_object() || child.is_array()) && late != Some(key.as_str());
        if let (true, Some(known)) = (has_members, schema.child(key)) {
            fill_defaults(child, known, phase);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheme::builtin;

    #[test]
    fn every_rule_belongs_to_a_field() {
        for (type_name, rules) in TYPES.iter() {
            let schema = builtin::schema(type_name);
            for rule in rules {
                assert!(schema.properties.contains_key(rule.field), "{type_name}.{}", rule.field);
                for word in &rule.words {
                    assert!(check::is_known(word), "{type_name}.{}: {}", rule.field, word.name);
                }
            }
        }
        assert!(TYPES.len() > 100, "only {} types have rules", TYPES.len());
    }
}
