//! Names of properties in CEL expressions: those that are no identifiers, or are reserved words, are escaped.

use std::borrow::Cow;

/// Reserved words of CEL.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// Whether a name is a reserved word. Expressions can also have it as it is.
pub(super) fn is_reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// The name by which expressions read a property.
pub(super) fn escaped(name: &str) -> Cow<'_, str> {
    if is_reserved(name) {
        return format!("__{name}__").into();
    }
    if !name.contains("__") && !name.contains(['.', '-', '/']) {
        return name.into();
    }
    let name = name.replace("__", "\0");
    let escapes = [('.', "__dot__"), ('-', "__dash__"), ('/', "__slash__"), ('\0', "__underscores__")];
    escapes.into_iter().fold(name, |name, (found, escape)| name.replace(found, escape)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        for (name, expected) in [
            ("plain_name", "plain_name"),
            ("namespace", "__namespace__"),
            ("a-b.c/d", "a__dash__b__dot__c__slash__d"),
            ("a__b", "a__underscores__b"),
            ("a___b", "a__underscores___b"),
            ("-__", "__dash____underscores__"),
        ] {
            assert_eq!(escaped(name), expected);
        }
    }
}
