//! How deep an expression is, estimated from its text before it is parsed.

/// Depths of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Depth {
    /// The most parentheses, lists, maps and arguments in each other.
    pub(super) nesting: usize,
    /// The most operations, selections and calls of members that are operands of each other: exact, or too high if operators
    /// of different precedence alternate. `&&` and `||` are balanced, and repeated `!` and `-` are reduced.
    pub(super) operations: usize,
}

/// Depth up to which the stacks of the runtime's threads are large enough.
const SHALLOW: usize = 40;
/// Stack for deeper expressions, in bytes.
const DEEP_STACK: usize = 32 * 1024 * 1024;

impl Depth {
    pub(super) fn is_shallow(self) -> bool {
        self.nesting + self.operations <= SHALLOW
    }

    /// Calls a function that walks an expression of this depth, on a stack that is large enough.
    pub(super) fn with_stack<T>(self, walk: impl FnOnce() -> T) -> T {
        if self.is_shallow() { walk() } else { stacker::grow(DEEP_STACK, walk) }
    }
}

/// Estimates the depths of an expression, which need not be valid.
pub(super) fn depth(text: &str) -> Depth {
    let mut level = Level::default();
    let mut outer = Vec::new();
    let mut nesting = 0;
    let mut rest = text;
    // Whether the previous token ends an operand, so that the next one can only be an operator.
    let mut after_operand = false;
    while let Some(first) = rest.chars().next() {
        let (token, length) = token(rest, first);
        rest = &rest[length..];
        match token {
            Token::Space => continue,
            Token::Open => {
                level.members += usize::from(after_operand && first == '[');
                outer.push(std::mem::take(&mut level));
                nesting = nesting.max(outer.len());
            }
            // One without an opening bracket is an error, which the parser reports.
            Token::Close => level = outer.pop().map_or(Level::default(), |it| it.around(&level)),
            Token::Separator => level.end_item(),
            Token::Branch if after_operand => {
                level.end_operand();
                level.branches += usize::from(first == '?');
            }
            Token::Logical => level.end_operand(),
            Token::Member => level.members += 1,
            Token::Operator if after_operand => {
                level.end_member();
                level.operations += 1;
            }
            // Signs, and the question marks of optional members and items, among others.
            Token::Branch | Token::Operator | Token::Operand => {}
        }
        after_operand = matches!(token, Token::Operand | Token::Close);
    }
    // Brackets that are not closed are an error as well.
    let all = outer.into_iter().rev().fold(level, |inner, it| it.around(&inner));
    Depth { nesting, operations: all.depth() }
}

/// The text between two brackets, or outside of all brackets.
#[derive(Clone, Copy, Default)]
struct Level {
    /// Selections, indexes and calls in the current chain of members.
    members: usize,
    /// Depth of the deepest brackets of this chain.
    inner: usize,
    /// Depth of the deepest chain of members of the current operand of `&&`, `||` or a condition.
    member: usize,
    /// Operations of this operand; they can be operands of each other.
    operations: usize,
    /// Depth of the deepest operand of the current item.
    operand: usize,
    /// Conditional operators of the current item. Each one can be an operand of the previous one.
    branches: usize,
    /// Depth of the deepest of the previous items.
    item: usize,
}

impl Level {
    fn end_member(&mut self) {
        self.member = self.member.max(self.members + self.inner);
        (self.members, self.inner) = (0, 0);
    }

    fn end_operand(&mut self) {
        self.end_member();
        self.operand = self.operand.max(self.operations + self.member);
        (self.operations, self.member) = (0, 0);
    }

    fn end_item(&mut self) {
        self.end_operand();
        self.item = self.item.max(self.branches + self.operand);
        (self.branches, self.operand) = (0, 0);
    }

    /// This level around brackets with an inner one.
    fn around(mut self, inner: &Self) -> Self {
        self.inner = self.inner.max(inner.depth());
        self
    }

    fn depth(mut self) -> usize {
        self.end_item();
        self.item
    }
}

#[derive(Clone, Copy)]
enum Token {
    Space,
    Open,
    Close,
    Separator,
    Branch,
    Logical,
    /// A selection, or a call of a member.
    Member,
    Operator,
    /// A name, a number or a string.
    Operand,
}

/// The first token of a text, and its size in bytes.
fn token(text: &str, first: char) -> (Token, usize) {
    let end_of_line = || text.find('\n').unwrap_or(text.len());
    match first {
        '(' | '[' | '{' => (Token::Open, 1),
        ')' | ']' | '}' => (Token::Close, 1),
        ',' => (Token::Separator, 1),
        '?' | ':' => (Token::Branch, 1),
        '/' if text.starts_with("//") => (Token::Space, end_of_line()),
        '&' if text.starts_with("&&") => (Token::Logical, 2),
        '|' if text.starts_with("||") => (Token::Logical, 2),
        '.' => (Token::Member, 1),
        '=' | '!' | '<' | '>' if text[1..].starts_with('=') => (Token::Operator, 2),
        '\'' | '"' => (Token::Operand, string(text, first, false)),
        '0'..='9' => (Token::Operand, number(text)),
        _ if first.is_alphabetic() || first == '_' => name(text),
        _ if first.is_whitespace() => (Token::Space, first.len_utf8()),
        _ => (Token::Operator, first.len_utf8()),
    }
}

fn name(text: &str) -> (Token, usize) {
    let is_end = |c: char| !c.is_alphanumeric() && c != '_';
    let length = text.find(is_end).unwrap_or(text.len());
    let (name, rest) = text.split_at(length);
    match (name, rest.chars().next()) {
        ("in", _) => (Token::Operator, length),
        ("r" | "R" | "b" | "B" | "br" | "bR" | "Br" | "BR", Some(quote @ ('\'' | '"'))) => {
            (Token::Operand, length + string(rest, quote, name.contains(['r', 'R'])))
        }
        _ => (Token::Operand, length),
    }
}

/// The size of a number. Signs of exponents are not included.
fn number(text: &str) -> usize {
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        let is_decimal_point = c == '.' && characters.peek().is_some_and(|(_, next)| next.is_ascii_digit());
        if !c.is_ascii_alphanumeric() && !is_decimal_point {
            return at;
        }
    }
    text.len()
}

/// The size of a string with its quotes.
fn string(text: &str, quote: char, is_raw: bool) -> usize {
    let triple = [quote; 3].iter().collect::<String>();
    let end = if text.starts_with(&triple) { triple } else { quote.to_string() };
    let mut at = end.len();
    while let Some(c) = text[at..].chars().next() {
        if text[at..].starts_with(&end) {
            return at + end.len();
        }
        if c == '\n' && end.len() == 1 {
            break;
        }
        at += c.len_utf8();
        if c == '\\' && !is_raw {
            at += text[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations(text: &str) -> usize {
        depth(text).operations
    }

    #[test]
    fn operands_of_operations_are_deeper() {
        for (text, expected) in [
            ("", 0),
            ("self", 0),
            ("self.a.b", 2),
            ("self.a.b == 1 + 2", 4),
            ("self.a + self.b.c + self.d", 4),
            ("self.a[0][1].?b", 4),
            ("self.a[b.c[d.e].f]", 6),
            ("1.5 + 2.0e3", 1),
            ("'a'.trim().trim()", 2),
            ("a in b", 1),
            ("self.?a. ?b", 2),
            ("[?a.b, ?c]", 1),
            ("{?a.b: ?c}", 1),
            ("!!!a", 0),
            ("- - a - -1", 1),
            ("((a + b) + c)", 2),
            ("f(a.b.c, d)", 2),
            ("[[], [a.b.c.d]]", 3),
            ("{'a': b.c, 'd': e.f}", 1),
            ("a ? b : c ? d : e", 2),
            ("[a ? b : c, d ? e : f.g.h]", 3),
            ("a.b || c.d && e.f.g", 2),
            ("a || b ? c : d || e.f ? g : h", 3),
            ("((a.b", 1),
            ("a))) + b", 1),
        ] {
            assert_eq!(operations(text), expected, "{text}");
        }
    }

    #[test]
    fn strings_and_comments_have_no_operations() {
        for text in [
            "'a.b.c + (d'",
            "\"a.b 'c' + d\"",
            r"'a\'.b.c'",
            r"r'a\' ",
            "'''a.b\n'c'.d'''",
            "b\"\"\"a.b\"c\".d\"\"\"",
            "a // b.c + d",
            "'a.b.c",
            "'é\\",
        ] {
            assert_eq!(operations(text), 0, "{text}");
        }
        assert_eq!(operations("'a.b\n.c"), 1);
    }

    #[test]
    fn nesting_counts_open_brackets() {
        for (text, expected) in [("a", 0), ("(a) + (b)", 1), ("[{1: f(a)}]", 3), ("((", 2), ("'('", 0)] {
            assert_eq!(depth(text).nesting, expected, "{text}");
        }
    }
}
