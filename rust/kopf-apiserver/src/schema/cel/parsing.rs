//! Parsing of CEL expressions, within the limits of kube-apiserver.
//!
//! The parser and all that walks an expression recurse. The depth is therefore estimated from the text first: an expression
//! that is too deep would end the process.

use std::fmt;

use cel::common::ast::{IdedExpr, SourceInfo};
use cel::{Context, ExecutionError, ParseError};

use super::depth::{Depth, depth};
use super::{Cel, ENV, cost};

/// Maximum size of an expression, in characters.
const MAX_SIZE: usize = 100_000;
/// Maximum number of expressions in each other, of which brackets separate them, and of operations that are operands of each
/// other.
const MAX_DEPTH: u16 = 250;

/// Size of an expression of any depth for which the stacks of the runtime's threads are large enough, in bytes.
const SHORT: usize = 250;
/// Stack of the parser for other expressions: for brackets, whose depth it limits itself, and for each byte of a chain of
/// operations. Measured without optimisation: 4 MiB, and less than 1 KiB.
const PARSER_STACK: usize = 8 * 1024 * 1024;
const PARSER_STACK_PER_BYTE: usize = 2 * 1024;

/// A parsed expression.
pub(super) struct Parsed {
    expression: IdedExpr,
    source_info: SourceInfo,
    depth: Depth,
}

impl Parsed {
    /// Calls a function that walks the expression.
    pub(super) fn walk<T>(&self, walk: impl FnOnce(&IdedExpr) -> T) -> T {
        self.depth.with_stack(|| walk(&self.expression))
    }

    pub(super) fn has_variable(&self, name: &str) -> bool {
        self.walk(|expression| expression.references().has_variable(name))
    }

    /// The offset of a part of the expression in the text, in bytes.
    pub(super) fn offset(&self, id: u64) -> Option<u32> {
        self.source_info.offset_for(id).map(|(start, _)| start)
    }

    /// The program that counts its costs. `variables` are names of values; other names are prefixes of functions.
    pub(super) fn metered(&self, variables: &[&str]) -> Program {
        Program { expression: self.walk(|it| cost::metered(it, variables)), depth: self.depth }
    }
}

/// An expression that can be evaluated.
#[derive(Debug)]
pub(super) struct Program {
    expression: IdedExpr,
    depth: Depth,
}

impl Program {
    pub(super) fn evaluate(&self, context: &Context) -> Result<Cel, ExecutionError> {
        self.depth.with_stack(|| Cel::resolve(&self.expression, context))
    }
}

/// An error of the syntax.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    /// Line and column, both from 1; `None` if the error is about all of the text.
    pub(super) position: Option<(usize, usize)>,
    pub(super) message: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) =
            self.position.map_or((-1, 0), |(line, column)| (i64::try_from(line).unwrap_or(i64::MAX), column));
        write!(f, "ERROR: <input>:{line}:{column}: {}", self.message)
    }
}

/// Parses an expression.
pub(super) fn parse(text: &str) -> Result<Parsed, Vec<SyntaxError>> {
    let too_large = |message: String| Err(vec![SyntaxError { position: None, message }]);
    let size = text.chars().count();
    if size > MAX_SIZE {
        return too_large(format!(
            "expression code point size exceeds limit: size: {size}, limit {MAX_SIZE}"
        ));
    }
    let depth = depth(text);
    if depth.nesting >= usize::from(MAX_DEPTH) {
        return too_large(format!("expression recursion limit exceeded: {MAX_DEPTH}"));
    }
    if depth.operations > usize::from(MAX_DEPTH) {
        return too_large("max recursion depth exceeded".to_owned());
    }
    let read = || {
        let parser = ENV.parser().max_recursion_depth(MAX_DEPTH);
        match parser.parse_with_source_info(text) {
            Ok((expression, source_info)) => Ok(Parsed { expression, source_info, depth }),
            Err(failed) => Err(failed.errors.into_iter().map(SyntaxError::from).collect()),
        }
    };
    // The parser skips what it cannot read, and goes on. The estimate holds only for a text without errors.
    if depth.is_shallow() && text.len() <= SHORT {
        read()
    } else {
        stacker::grow(PARSER_STACK + PARSER_STACK_PER_BYTE * text.len(), read)
    }
}

impl From<ParseError> for SyntaxError {
    fn from(error: ParseError) -> Self {
        let at = |n: isize| usize::try_from(n).unwrap_or(1).max(1);
        Self { position: Some((at(error.pos.0), at(error.pos.1))), message: error.msg }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn nested(before: &str, inner: &str, after: &str, n: usize) -> String {
        format!("{}{inner}{}", before.repeat(n), after.repeat(n))
    }

    /// Chains and nested parts of an expression that is true for `{"f": {}}`, by their length.
    pub(in super::super) fn deep(n: usize) -> [(&'static str, String); 18] {
        let joined = |operator: &str, item: &str| vec![item; n].join(operator);
        [
            ("sum", format!("{} != ''", joined(" + ", "'a'"))),
            ("difference", format!("{} < 2", joined(" - ", "1"))),
            ("comparison", joined(" == ", "true")),
            ("selection", format!("!has(self.f.o) || self.f{} == 1", ".o".repeat(n))),
            ("optional", format!("self.f{} == optional.none()", ".?o".repeat(n))),
            ("index", format!("self.f{} == 1 || true", "[1]".repeat(n))),
            ("call", format!("'a'{} == 'a'", ".trim()".repeat(n))),
            ("condition", format!("{}true", "self.f == 1 ? false : ".repeat(n))),
            ("inner condition", nested("(", "self.f != 1", " ? true : false)", n)),
            ("parentheses", nested("(", "true", ")", n)),
            ("list", format!("{} != []", nested("[", "", "]", n))),
            ("map", format!("{} != {{}}", nested("{1: ", "1", "}", n))),
            ("index of a list", format!("{} == 1", nested("[", "1", "][0]", n))),
            ("operand", format!("{} > 0", nested("(", "1", " + 1)", n))),
            ("call of a member", format!("{} != ''", nested("'a'.replace(", "'a'", ", 'b')", n))),
            ("last argument of a member", format!("{} == 'a'", nested("'a'.replace('b', ", "'c'", ")", n))),
            ("argument", format!("{} == 1", nested("int(", "1", ")", n))),
            ("macro", format!("{} != []", nested("[1].map(x, ", "x", ")", n))),
        ]
    }

    /// The first error of an expression.
    fn message(text: &str) -> Option<String> {
        parse(text).err().map(|errors| errors[0].to_string())
    }

    #[test]
    fn expressions_are_limited_in_depth() {
        for n in [252, 3_000, 30_000] {
            for (name, text) in deep(n) {
                let message = message(&text).unwrap_or_default();
                let expected = [
                    "ERROR: <input>:-1:0: max recursion depth exceeded",
                    "ERROR: <input>:-1:0: expression recursion limit exceeded: 250",
                ];
                let is_long = text.chars().count() > MAX_SIZE;
                assert!(is_long || expected.contains(&message.as_str()), "{name} {n}: {message}");
            }
        }
    }

    #[test]
    fn deep_expressions_are_parsed() {
        for (name, text) in deep(248) {
            assert_eq!(message(&text), None, "{name}");
        }
    }

    #[test]
    fn repeated_and_balanced_operators_are_not_deep() {
        for text in [
            format!("{}true", "!".repeat(20_000)),
            format!("{}1 < 2", "-".repeat(20_000)),
            vec!["true"; 10_000].join(" && "),
        ] {
            assert!(parse(&text).is_ok());
        }
    }

    #[test]
    fn errors_of_tokens_do_not_hide_the_depth() {
        for part in
            ["'\\q.o", "&.o", "'\\x'.o", "r'\n.o", ". ?o", "'\"\n.o", "+", "(", "[", "a ? ", "'''.o", "#.o"]
        {
            let text = format!("self{}", part.repeat(20_000 / part.len()));
            assert!(parse(&text).is_err(), "{part}");
        }
    }

    #[test]
    fn expressions_are_limited_in_size() {
        let text = |n: usize| format!("'{}' == ''", "é".repeat(n - 8));
        assert!(parse(&text(MAX_SIZE)).is_ok());
        let expected =
            "ERROR: <input>:-1:0: expression code point size exceeds limit: size: 100001, limit 100000";
        assert_eq!(message(&text(MAX_SIZE + 1)).as_deref(), Some(expected));
    }
}
