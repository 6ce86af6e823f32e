//! Unified differences of values in messages, as kube-apiserver writes them for immutable structs.

use serde_json::Value;

use super::go_values::escape;

/// Lines of an internal struct, as they are compared in messages.
fn lines(value: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let format = serde_json::ser::PrettyFormatter::with_indent(b" ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, format);
    let is_written = serde::Serialize::serialize(value, &mut serializer).is_ok();
    debug_assert!(is_written, "values are serialized into memory");
    escape(&String::from_utf8_lossy(&out)).lines().map(str::to_owned).collect()
}

/// Lines around a change.
const CONTEXT: usize = 3;

/// Unified difference of two internal structs.
pub(crate) fn difference(old: &Value, new: &Value) -> String {
    let (old, new) = (lines(old), lines(new));
    let edits = edits(&old, &new);
    let mut out = String::new();
    let mut start = 0;
    while let Some(first) = edits.get(start..).unwrap_or_default().iter().position(|e| e.0 != ' ') {
        let from = (start + first).saturating_sub(CONTEXT).max(start);
        // The hunk ends where more unchanged lines follow than two contexts have.
        let mut end = start + first;
        let mut unchanged = 0;
        for (i, edit) in edits.iter().enumerate().skip(start + first) {
            unchanged = if edit.0 == ' ' { unchanged + 1 } else { 0 };
            if unchanged > 2 * CONTEXT {
                break;
            }
            end = i + 1;
        }
        let trailing = edits.get(..end).unwrap_or_default().iter().rev().take_while(|e| e.0 == ' ').count();
        let end = end - trailing.saturating_sub(CONTEXT);
        let count = |part: &[(char, &str)], sign: char| part.iter().filter(|e| e.0 != sign).count();
        let (before, hunk) =
            (edits.get(..from).unwrap_or_default(), edits.get(from..end).unwrap_or_default());
        let header = format!(
            "@@ -{},{} +{},{} @@\n",
            count(before, '+') + 1,
            count(hunk, '+'),
            count(before, '-') + 1,
            count(hunk, '-')
        );
        out.push_str(&header);
        for (sign, line) in hunk {
            out.push(*sign);
            out.push_str(line);
            out.push('\n');
        }
        start = end;
    }
    out
}

/// Number of pairs of lines that are compared at most.
const PAIRS: usize = 1 << 20;

/// Lines with their signs: the longest common subsequence is unchanged, removals come before additions.
fn edits<'l>(old: &'l [String], new: &'l [String]) -> Vec<(char, &'l str)> {
    let same = |pair: &(&String, &String)| pair.0 == pair.1;
    let head = old.iter().zip(new).take_while(same).count();
    let (head_lines, old) = old.split_at(head);
    let new = new.get(head..).unwrap_or_default();
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
    let (old, tail_lines) = old.split_at(old.len() - tail);
    let new = new.get(..new.len() - tail).unwrap_or_default();
    let unchanged = |lines: &'l [String]| lines.iter().map(|line| (' ', line.as_str()));
    unchanged(head_lines).chain(middle_edits(old, new)).chain(unchanged(tail_lines)).collect()
}

fn middle_edits<'l>(old: &'l [String], new: &'l [String]) -> Vec<(char, &'l str)> {
    if old.len().saturating_mul(new.len()) > PAIRS {
        let removed = old.iter().map(|line| ('-', line.as_str()));
        return removed.chain(new.iter().map(|line| ('+', line.as_str()))).collect();
    }
    let mut lengths = vec![vec![0_usize; new.len() + 1]; old.len() + 1];
    let at = |table: &[Vec<usize>], i: usize, j: usize| {
        table.get(i).and_then(|row| row.get(j)).copied().unwrap_or_default()
    };
    for (i, a) in old.iter().enumerate().rev() {
        for (j, b) in new.iter().enumerate().rev() {
            let length = if a == b {
                at(&lengths, i + 1, j + 1) + 1
            } else {
                at(&lengths, i + 1, j).max(at(&lengths, i, j + 1))
            };
            if let Some(cell) = lengths.get_mut(i).and_then(|r| r.get_mut(j)) {
                *cell = length;
            }
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut out = Vec::new();
    let mut added: Vec<(char, &str)> = Vec::new();
    loop {
        match (old.get(i), new.get(j)) {
            (Some(a), Some(b)) if a == b => {
                out.append(&mut added);
                out.push((' ', a.as_str()));
                (i, j) = (i + 1, j + 1);
            }
            (Some(a), b) if b.is_none() || at(&lengths, i + 1, j) >= at(&lengths, i, j + 1) => {
                out.push(('-', a.as_str()));
                i += 1;
            }
            (_, Some(b)) => {
                added.push(('+', b.as_str()));
                j += 1;
            }
            (_, None) => break,
        }
    }
    out.append(&mut added);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn differences_are_unified() {
        let old = json!({"A": ["x"], "B": 1, "C": 2, "D": 3, "E": 4});
        let new = json!({"A": null, "B": 1, "C": 2, "D": 3, "E": 4});
        assert_eq!(
            difference(&old, &new),
            "@@ -1,7 +1,5 @@\n {\n- \"A\": [\n-  \"x\"\n- ],\n+ \"A\": null,\n  \"B\": 1,\n  \"C\": 2,\n  \"D\": 3,\n"
        );
        assert_eq!(difference(&old, &old), "");
        // Values of any size are compared in bounded time.
        let many = |n: usize| json!((0..n).map(|i| i * n).collect::<Vec<_>>());
        assert!(difference(&many(40_000), &many(40_001)).starts_with("@@ -"));
    }
}
