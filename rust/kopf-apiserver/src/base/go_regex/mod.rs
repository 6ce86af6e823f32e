//! Regular expressions in the syntax of Go, which kube-apiserver uses for patterns and rules of CRDs.
//!
//! They are translated to the syntax of Rust. The classes `\d`, `\w`, `\s` and the boundary `\b` are those of ASCII, repetitions are limited to
//! 1000, and classes have no operators such as `&&`.

mod classes;

use regex::Regex;

/// Maximum count of a repetition, and of nested repetitions together.
const MAX_REPEAT: usize = 1000;

/// Compiles a pattern. The error is the message of Go.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    let error = |why: String| format!("error parsing regexp: {why}");
    let translated = Translator::new(pattern).translate().map_err(error)?;
    Regex::new(&translated).map_err(|why| match rust_error(pattern, &why) {
        Some(why) => error(why),
        None => why.to_string(),
    })
}

/// Go's message for an error of the library.
fn rust_error(pattern: &str, error: &regex::Error) -> Option<String> {
    let text = error.to_string();
    Some(if text.contains("unclosed group") {
        format!("missing closing ): `{pattern}`")
    } else if text.contains("unopened group") {
        format!("unexpected ): `{pattern}`")
    } else {
        return None;
    })
}

/// The item before the current position.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Nothing,
    /// Something that repeats its parts this often.
    Item(usize),
    /// A repetition, from this position.
    Repetition(usize),
}

struct Translator<'p> {
    pattern: &'p str,
    at: usize,
    out: String,
    last: Last,
    /// The largest repetition in each open group.
    repeats: Vec<usize>,
}

impl<'p> Translator<'p> {
    fn new(pattern: &'p str) -> Self {
        Self { pattern, at: 0, out: String::new(), last: Last::Nothing, repeats: vec![1] }
    }

    fn rest(&self) -> &'p str {
        self.pattern.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let found = self.peek()?;
        self.at += found.len_utf8();
        Some(found)
    }

    /// The text from a position to the current one.
    fn since(&self, start: usize) -> &'p str {
        self.pattern.get(start..self.at).unwrap_or_default()
    }

    fn translate(mut self) -> Result<String, String> {
        while let Some(found) = self.peek() {
            let start = self.at;
            match found {
                '\\' => self.escape()?,
                '[' => self.class()?,
                '(' => self.group()?,
                '*' | '+' | '?' => {
                    self.next();
                    self.repeat(start, 1)?;
                }
                '{' => match self.counts()? {
                    Some(count) => self.repeat(start, count)?,
                    None => self.literal('{'),
                },
                '|' => {
                    self.next();
                    self.out.push('|');
                    self.last = Last::Nothing;
                }
                ')' => {
                    self.next();
                    self.out.push(')');
                    let inner = self.repeats.pop().unwrap_or(1);
                    self.item(inner);
                }
                '^' | '$' | '.' => {
                    self.next();
                    self.out.push(found);
                    self.item(1);
                }
                other => self.literal(other),
            }
        }
        Ok(self.out)
    }

    /// Adds the character at the current position as it is.
    fn literal(&mut self, found: char) {
        self.next();
        self.push_character(found);
        self.item(1);
    }

    fn push_character(&mut self, found: char) {
        self.out.push_str(&regex::escape(found.encode_utf8(&mut [0; 4])));
    }

    /// Ends an item with the largest repetition in it.
    fn item(&mut self, repeats: usize) {
        self.last = Last::Item(repeats);
        if let Some(largest) = self.repeats.last_mut() {
            *largest = repeats.max(*largest);
        }
    }

    /// Adds the repetition that begins at a position, of the last item.
    fn repeat(&mut self, start: usize, count: usize) -> Result<(), String> {
        let operator = self.since(start);
        let inner = match self.last {
            Last::Nothing => return Err(format!("missing argument to repetition operator: `{operator}`")),
            Last::Repetition(first) => {
                return Err(format!("invalid nested repetition operator: `{}`", self.since(first)));
            }
            Last::Item(inner) => inner,
        };
        let repeats = inner.saturating_mul(count.max(1));
        if count > MAX_REPEAT || (count > 1 && repeats > MAX_REPEAT) {
            return Err(format!("invalid repeat count: `{operator}`"));
        }
        self.out.push_str(operator);
        if self.peek() == Some('?') {
            self.next();
            self.out.push('?');
        }
        self.item(repeats);
        self.last = Last::Repetition(start);
        Ok(())
    }

    /// Reads `{n}`, `{n,}` or `{n,m}`, and returns the largest number. Other braces are literal.
    fn counts(&mut self) -> Result<Option<usize>, String> {
        let number = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let is_short = text.len() == 1 || !text.starts_with('0');
            (is_number && is_short).then(|| text.parse::<usize>().unwrap_or(usize::MAX))
        };
        let Some((inside, _)) = self.rest().get(1..).and_then(|rest| rest.split_once('}')) else {
            return Ok(None);
        };
        let (least, most) = inside.split_once(',').unwrap_or((inside, inside));
        let Some(least) = number(least) else { return Ok(None) };
        let most = if most.is_empty() { Some(least) } else { number(most) };
        let Some(most) = most else { return Ok(None) };
        let start = self.at;
        self.at += inside.len() + 2;
        if most < least || most > MAX_REPEAT {
            return Err(format!("invalid repeat count: `{}`", self.since(start)));
        }
        Ok(Some(most))
    }

    /// Translates the beginning of a group, or flags.
    fn group(&mut self) -> Result<(), String> {
        let start = self.at;
        self.next();
        if self.peek() != Some('?') {
            self.enter_group("(");
            return Ok(());
        }
        self.next();
        if self.rest().starts_with('<') || self.rest().starts_with("P<") {
            return self.named_group(start);
        }
        loop {
            match self.next() {
                Some('i' | 'm' | 's' | 'U' | '-') => {}
                Some(':') => {
                    self.enter_group(self.since(start));
                    return Ok(());
                }
                Some(')') => {
                    self.out.push_str(self.since(start));
                    return Ok(());
                }
                _ => return Err(format!("invalid or unsupported Perl syntax: `{}`", self.since(start))),
            }
        }
    }

    /// Translates the beginning of a named group. Names are not used.
    fn named_group(&mut self, start: usize) -> Result<(), String> {
        let end = self.rest().find('>').map_or(self.rest().len(), |end| end + 1);
        self.at += end;
        let group = self.since(start);
        let name = group.trim_start_matches(['(', '?', 'P']).strip_prefix('<');
        let name = name.and_then(|name| name.strip_suffix('>')).unwrap_or_default();
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return Err(format!("invalid named capture: `{group}`"));
        }
        self.enter_group("(");
        Ok(())
    }

    fn enter_group(&mut self, beginning: &str) {
        self.out.push_str(beginning);
        self.repeats.push(1);
        self.last = Last::Nothing;
    }

    /// Translates an escape outside of classes.
    fn escape(&mut self) -> Result<(), String> {
        let start = self.at;
        if let Some(quoted) = self.rest().strip_prefix(r"\Q") {
            let text = quoted.split_once(r"\E").map_or(quoted, |(text, _)| text);
            let is_closed = text.len() < quoted.len();
            self.at += 2;
            for character in text.chars() {
                self.literal(character);
            }
            self.at += if is_closed { 2 } else { 0 };
            return Ok(());
        }
        let after = self.rest().chars().nth(1);
        let translated = match after {
            Some('b') => r"(?-u:\b)",
            Some('B') => r"(?-u:\B)",
            Some('A') => r"\A",
            Some('z') => r"\z",
            _ => {
                if let Some(class) = self.shared_class()? {
                    self.out.extend(["[", &class, "]"]);
                } else {
                    let character = self.character(start)?;
                    self.push_character(character);
                }
                self.item(1);
                return Ok(());
            }
        };
        self.at += 2;
        self.out.push_str(translated);
        self.item(1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_go() {
        for (pattern, text, expected) in [
            (r"^\d+$", "123", true),
            (r"^\d+$", "\u{663}", false),
            (r"^\D$", "\u{663}", true),
            (r"^\w$", "é", false),
            (r"^[\w.]+$", "a.b", true),
            (r"^[^\d]$", "5", false),
            (r"^[adTPs]+$", "adTPs", true),
            (r"^[adTPs]$", "1", false),
            (r"^[^\W]$", "é", false),
            (r"^\s$", "\u{a0}", false),
            (r"\bé", "é", false),
            (r"é\b", "é", false),
            (r"a\B", "aé", false),
            (r"^[a&&b]+$", "a&b", true),
            (r"^[[a]+$", "[a", true),
            (r"^[]a]+$", "]a", true),
            (r"^[+--]+$", "+,-", true),
            (r"^[a-]+$", "a-", true),
            (r"^[-~~a]+$", "a~-", true),
            (r"^[[:alpha:]\d]+$", "a1", true),
            (r"^a{,3}$", "a{,3}", true),
            (r"^a{2,3}$", "aaaa", false),
            (r"^{$", "{", true),
            (r"^\<\>$", "<>", true),
            (r"^\Qa.b\E+$", "a.bb", true),
            (r"^\141\x42\x{43}$", "aBC", true),
            (r"^(?i:ab)(?P<1>c)(?<m>d)$", "ABcd", true),
            (r"^\pL\p{^Lu}\P{^Lu}$", "abC", true),
            (r"^a??b*?$", "abb", true),
        ] {
            assert_eq!(compile(pattern).unwrap().is_match(text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn errors_are_those_of_go() {
        for (pattern, expected) in [
            ("a{1,2048}", "invalid repeat count: `{1,2048}`"),
            ("a{3,2}", "invalid repeat count: `{3,2}`"),
            ("(a{100}){11}", "invalid repeat count: `{11}`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a|*", "missing argument to repetition operator: `*`"),
            ("(a", "missing closing ): `(a`"),
            ("a)", "unexpected ): `a)`"),
            ("x[a", "missing closing ]: `[a`"),
            ("[z-a]", "invalid character class range: `z-a`"),
            ("[[:no:]]", "invalid character class range: `[:no:]`"),
            (r"\u0041", r"invalid escape sequence: `\u`"),
            (r"(a)\1", r"invalid escape sequence: `\1`"),
            (r"a\", "trailing backslash at end of expression: ``"),
            ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?P=n)", "invalid or unsupported Perl syntax: `(?P`"),
            ("(?i", "invalid or unsupported Perl syntax: `(?i`"),
            ("(?<=a)", "invalid named capture: `(?<=a)`"),
            ("(?P<n", "invalid named capture: `(?P<n`"),
            (r"\pX", r"invalid character class range: `\pX`"),
            (r"[\p{Nope}]", r"invalid character class range: `\p{Nope}`"),
        ] {
            assert_eq!(
                compile(pattern).unwrap_err(),
                format!("error parsing regexp: {expected}"),
                "{pattern}"
            );
        }
    }
}
