//! The text format of Prometheus.

use std::fmt::{Display, Write as _};

/// Appends the lines that begin a family of metrics. `kind` is `counter`, `gauge` or `histogram`.
pub(crate) fn add_family(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Appends a sample. The values of its labels are escaped, such as ids, which can be any text.
pub(crate) fn add_sample(text: &mut String, name: &str, labels: &[(&str, &str)], value: impl Display) {
    let _ = write!(text, "{name}");
    for (number, (label, shown)) in labels.iter().enumerate() {
        let separator = if number == 0 { '{' } else { ',' };
        let _ = write!(text, "{separator}{label}=\"{}\"", escaped(shown));
    }
    let _ = writeln!(text, "{} {value}", if labels.is_empty() { "" } else { "}" });
}

/// The value of a label.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_all_labels_and_their_values_are_escaped() {
        let mut text = String::new();
        add_family(&mut text, "m", "gauge", "A help.");
        add_sample(&mut text, "m", &[], 1);
        add_sample(&mut text, "m", &[("id", "a\"b\\c\nd"), ("le", "0.5")], 0.25);
        assert_eq!(
            text,
            "# HELP m A help.\n# TYPE m gauge\nm 1\nm{id=\"a\\\"b\\\\c\\nd\",le=\"0.5\"} 0.25\n"
        );
    }
}
