//! The labels of handlers in logs. The ids are made in Python, from functions.

use crate::handler::Handler;
use crate::json::value::{Value, python_repr};

/// The label of a handler at the start of its log lines: `Handler 'id'`.
pub fn label(handler: &Handler) -> Box<str> {
    let title = handler.title();
    let id = &*handler.id;
    // Python's repr of a plain string is the string in single quotes. Only unusual ids need the complete repr.
    if id.bytes().all(|b| b.is_ascii_graphic() && b != b'\'' && b != b'\\') {
        return format!("{title} '{id}'").into_boxed_str();
    }
    format!("{title} {}", python_repr(&Value::String(id.to_owned()))).into_boxed_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_titles_and_quoted_ids() {
        let handler: Handler = serde_json::from_str(r#"{"id": "fn/spec.x", "kind": "timer"}"#).unwrap();
        assert_eq!(&*label(&handler), "Timer 'fn/spec.x'");
        let handler: Handler = serde_json::from_str(r#"{"id": "it's", "kind": "watching"}"#).unwrap();
        assert_eq!(&*label(&handler), r#"Handler "it's""#);
    }
}
