//! The scanner against `serde_json`, on texts that are valid, malformed or deep.

use super::*;
use serde_json::Value;

fn accepts(text: &str) -> bool {
    let mut cursor = Cursor::new(text);
    cursor.skip().and_then(|_| cursor.finish()).is_ok()
}

#[test]
fn accepts_exactly_the_text_that_serde_accepts() {
    for text in [
        "null",
        "true",
        "tru",
        "nul",
        "0",
        "-0",
        "01",
        "-",
        "1.",
        "1.5",
        ".5",
        "1e5",
        "1e",
        "1E+5",
        "1e-",
        "1e999",
        "\"\"",
        "\"a",
        "\"\\u00e9\"",
        "\"\\u00e\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud83d\"",
        "\"\\ude00\"",
        "\"\\x\"",
        "\"\n\"",
        "\"12345678\u{1}\"",
        "[]",
        "[1,]",
        "[1 2]",
        "[1, [2, {\"a\": [] } ] ]",
        "{}",
        "{\"a\":1,}",
        "{\"a\" 1}",
        "{a:1}",
        "{\"a\":1}}",
        "",
        " ",
        "[",
        "{",
        "{\"a\":",
        "]",
        "[}",
        "{]",
        "[1}",
        "{\"a\":1]",
        "\u{feff}1",
        "\"é😀 long enough for a word\"",
        "-12.5e-3",
        "--1",
        "+1",
        "NaN",
        "123456789012345678901234567890",
    ] {
        assert_eq!(accepts(text), serde_json::from_str::<Value>(text).is_ok(), "{text:?}");
    }
}

#[test]
fn the_end_of_validated_values_is_found_without_checks() {
    for text in [
        r#""""#,
        r#""a\"]}\\""#,
        "-12.5e+3",
        "true",
        "null",
        "{}",
        "[]",
        r#"{"a":[1,{"b":"]}\"{"},[]],"c":null}"#,
        r#"[ {"a" : "x" } , 2 ]"#,
    ] {
        for tail in ["", ",", "}", "]", " ", ",\"a\":1}"] {
            let whole = format!(" {text}{tail}");
            let ends = (Cursor::new(&whole).skip().unwrap(), Cursor::new(&whole).skip_known());
            assert_eq!(ends, (1..1 + text.len(), 1..1 + text.len()), "{whole}");
        }
    }
}

#[test]
fn depth_is_limited_without_recursion() {
    let nested = |n: usize| "[".repeat(n) + &"]".repeat(n);
    assert!(accepts(&nested(301)));
    assert!(!accepts(&nested(302)));
    assert_eq!(Cursor::new(&nested(302)).skip(), Err(DecodeError::Depth { at: 301 }));
    assert!(!accepts(&"[".repeat(1_000_000)));
}

#[test]
fn objects_and_lists_are_distinguished_at_any_depth() {
    for depth in [1, 127, 128, 129, 255, 256, 257, 299] {
        let open = |n: usize| if n.is_multiple_of(3) { "{\"a\":" } else { "[" };
        let close = |n: usize| if n.is_multiple_of(3) { "}" } else { "]" };
        let head: String = (0..depth).map(open).collect();
        let tail: String = (0..depth).rev().map(close).collect();
        assert!(accepts(&format!("{head}1{tail}")), "{depth}");
        for wrong in 0..depth {
            let tail: String = (0..depth)
                .rev()
                .map(|n| if n == wrong { if close(n) == "}" { "]" } else { "}" } } else { close(n) })
                .collect();
            assert!(!accepts(&format!("{head}1{tail}")), "{depth} {wrong}");
        }
    }
}
