//! Classes and characters of Go's regular expressions.

use super::Translator;

/// Named classes, such as `[:alpha:]`.
const NAMED_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];
const DIGITS: &str = "0-9";
const WORD: &str = "0-9A-Za-z_";
const SPACES: &str = r"\t\n\f\r ";

impl<'p> Translator<'p> {
    /// Reads a class that is an escape, such as `\d` or `\pL`, as the contents of a class in brackets.
    pub(super) fn shared_class(&mut self) -> Result<Option<String>, String> {
        let escaped = self.rest().strip_prefix('\\').and_then(|rest| rest.chars().next());
        let class = match escaped {
            Some('d') => DIGITS.to_owned(),
            Some('w') => WORD.to_owned(),
            Some('s') => SPACES.to_owned(),
            Some('D') => format!("[^{DIGITS}]"),
            Some('W') => format!("[^{WORD}]"),
            Some('S') => format!("[^{SPACES}]"),
            Some('p' | 'P') => return self.property_class().map(Some),
            _ => return Ok(None),
        };
        self.at += 2;
        Ok(Some(class))
    }

    /// Reads a class of a Unicode property, such as `\pL` or `\p{Greek}`.
    fn property_class(&mut self) -> Result<String, String> {
        let start = self.at;
        let letter = self.rest().chars().nth(1);
        self.at += 2;
        let is_braced = self.peek() == Some('{');
        let end = if is_braced { self.rest().find('}').map(|end| end + 1) } else { None };
        let end = end.or_else(|| self.peek().filter(|_| !is_braced).map(char::len_utf8));
        self.at += end.unwrap_or(self.rest().len());
        let class = self.since(start);
        let class = match class.get(2..).and_then(|name| name.strip_prefix("{^")) {
            Some(name) => format!("\\{}{{{name}", if letter == Some('p') { 'P' } else { 'p' }),
            None => class.to_owned(),
        };
        let is_known = regex::Regex::new(&class).is_ok();
        let unknown = || format!("invalid character class range: `{}`", self.since(start));
        is_known.then_some(class).ok_or_else(unknown)
    }

    /// Reads one character, which may be escaped. `start` is that of the expression in error messages.
    pub(super) fn character(&mut self, start: usize) -> Result<char, String> {
        let invalid = |this: &Self| format!("invalid escape sequence: `{}`", this.since(start));
        let start_of_escape = self.at;
        let found = self.next();
        if found != Some('\\') {
            return found.ok_or_else(|| format!("missing closing ]: `{}`", self.since(start)));
        }
        let Some(escaped) = self.next() else {
            return Err("trailing backslash at end of expression: ``".to_owned());
        };
        let code = match escaped {
            'a' => 7,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'v' => 11,
            'x' => self.hexadecimal().ok_or_else(|| invalid(self))?,
            '0'..='7' => {
                let octal = |this: &Self| this.peek().and_then(|digit| digit.to_digit(8));
                let mut code = escaped.to_digit(8).unwrap_or_default();
                // A single digit is a reference to a group, which Go does not support.
                if code > 0 && octal(self).is_none() {
                    return Err(invalid(self));
                }
                for _ in 0..2 {
                    let Some(digit) = octal(self) else { break };
                    self.next();
                    code = code * 8 + digit;
                }
                code
            }
            other if other.is_ascii() && !other.is_ascii_alphanumeric() => u32::from(other),
            _ => {
                return Err(format!("invalid escape sequence: `{}`", self.since(start_of_escape)));
            }
        };
        char::from_u32(code).ok_or_else(|| invalid(self))
    }

    /// The number after `\x`.
    fn hexadecimal(&mut self) -> Option<u32> {
        let digits = if let Some(rest) = self.rest().strip_prefix('{') {
            let (digits, _) = rest.split_once('}')?;
            self.at += digits.len() + 2;
            digits
        } else {
            let digits = self.rest().get(..2)?;
            self.at += 2;
            digits
        };
        u32::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))
    }

    /// Translates a class in brackets.
    pub(super) fn class(&mut self) -> Result<(), String> {
        let start = self.at;
        let unclosed = || format!("missing closing ]: `{}`", self.pattern.get(start..).unwrap_or_default());
        self.next();
        self.out.push('[');
        if self.peek() == Some('^') {
            self.next();
            self.out.push('^');
        }
        let first = self.at;
        while self.peek() != Some(']') || self.at == first {
            if self.peek().is_none() {
                return Err(unclosed());
            }
            if let Some(class) = self.named_class()? {
                self.out.push_str(class);
            } else if let Some(class) = self.shared_class()? {
                self.out.push_str(&class);
            } else {
                self.range(start)?;
            }
        }
        self.next();
        self.out.push(']');
        self.item(1);
        Ok(())
    }

    /// Reads a class such as `[:alpha:]`.
    fn named_class(&mut self) -> Result<Option<&'p str>, String> {
        let Some((name, _)) = self.rest().strip_prefix("[:").and_then(|rest| rest.split_once(":]")) else {
            return Ok(None);
        };
        let start = self.at;
        self.at += name.len() + 4;
        if NAMED_CLASSES.contains(&name.strip_prefix('^').unwrap_or(name)) {
            Ok(Some(self.since(start)))
        } else {
            Err(format!("invalid character class range: `{}`", self.since(start)))
        }
    }

    /// Translates one character of a class, or a range of characters.
    fn range(&mut self, class: usize) -> Result<(), String> {
        let start = self.at;
        let low = self.character(class)?;
        self.push_character(low);
        let is_range =
            self.rest().starts_with('-') && !self.rest().starts_with("-]") && self.rest().len() > 1;
        if is_range {
            self.next();
            let high = self.character(class)?;
            if high < low {
                return Err(format!("invalid character class range: `{}`", self.since(start)));
            }
            self.out.push('-');
            self.push_character(high);
        }
        Ok(())
    }
}
