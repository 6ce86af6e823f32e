//! Compilation of CEL expressions, with the errors of kube-apiserver: syntax, variables and functions that do not exist, types,
//! fields that the schema of a variable does not have, and literals that are not valid.

use super::checker::check;
use super::parsing::{SyntaxError, parse};
use super::types::StaticType;

/// Compiles an expression with these variables, and returns the type of its value. The error has a paragraph for each one.
pub(crate) fn compile<'s>(
    text: &str,
    variables: &[(&str, StaticType<'s>)],
) -> Result<StaticType<'s>, String> {
    let parsed = parse(text).map_err(|errors| {
        let shown = errors.iter().map(|error| syntax_error(text, error));
        shown.collect::<Vec<_>>().join("\n")
    })?;
    let variables = variables.iter().map(|(name, kind)| ((*name).to_owned(), kind.clone())).collect();
    let (kind, found) = parsed.walk(|expression| check(expression, variables));
    if found.is_empty() {
        return Ok(kind);
    }
    let mut errors: Vec<_> =
        found.into_iter().map(|(id, message)| (parsed.offset(id).unwrap_or(0), message)).collect();
    errors.sort_by_key(|(offset, _)| *offset);
    let paragraphs = errors.iter().map(|(offset, message)| {
        let (line, column) = position(text, *offset);
        paragraph(text, line, column, message)
    });
    Err(paragraphs.collect::<Vec<_>>().join("\n"))
}

/// Whether an expression reads `oldSelf`.
pub(crate) fn uses_old_value(text: &str) -> bool {
    parse(text).is_ok_and(|parsed| parsed.has_variable("oldSelf"))
}

/// The message of the parser. Where the expression can end, kube-apiserver names no other tokens.
fn expecting_end(message: &str) -> std::borrow::Cow<'_, str> {
    match message.split_once("expecting {<EOF>, ") {
        Some((before, _)) => format!("{before}expecting <EOF>").into(),
        None => message.into(),
    }
}

fn syntax_error(text: &str, error: &SyntaxError) -> String {
    match error.position {
        Some((line, column)) => paragraph(text, line, column, &expecting_end(&error.message)),
        None => error.to_string(),
    }
}

/// Line and column of a byte, both from 1.
fn position(text: &str, offset: u32) -> (usize, usize) {
    let before = usize::try_from(offset).ok().and_then(|end| text.get(..end)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    (line, column)
}

fn paragraph(text: &str, line: usize, column: usize, message: &str) -> String {
    let shown = text.split('\n').nth(line - 1).unwrap_or_default();
    let dots = ".".repeat(column - 1);
    format!("ERROR: <input>:{line}:{column}: {message}\n | {shown}\n | {dots}^")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::super::Schema;
    use super::*;

    fn compiled(text: &str) -> Result<String, String> {
        let schema = Schema::from_json(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "replicas": {"type": "integer"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "ports": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            "free": {"x-kubernetes-preserve-unknown-fields": true},
            "either": {"x-kubernetes-int-or-string": true},
            "x-y": {"type": "integer"}, "namespace": {"type": "string"},
        }}}}));
        let this = StaticType::of_schema(&schema, true).unwrap();
        let fields = StaticType::Fields(Arc::new(vec![("limit".to_owned(), StaticType::Dyn)]));
        let variables = [("self", this), ("object", StaticType::Dyn), ("variables", fields)];
        compile(text, &variables).map(|kind| kind.to_string())
    }

    fn errors(text: &str) -> Option<String> {
        compiled(text).err()
    }

    #[test]
    fn expressions_with_declared_variables_and_fields_compile() {
        for text in [
            "self.spec.replicas <= 5 && self.metadata.name != ''",
            "self.spec.ports.all(p, p.name.size() > 0) && self.spec.ports.exists_one(p, p.name == 'a')",
            "self.spec.labels.all(k, self.spec.labels[k] != '') && self.spec.labels.any.size() > 0",
            "self.spec.either == 1 && self.spec.either == 'a' && self.spec.ports[0].name == 'x'",
            "object.spec.anything[0].x == variables.limit",
            "type(ip('::1')) == net.IP && type(self.spec.replicas) == int && optional.of(1).hasValue()",
            "self.spec.ports.map(p, p.name).filter(n, n != '').size() == 0 ? [1] == [2] : {'a': 1}.a == 1",
            "optional.of(1).optMap(r, r > 1).orValue(true)",
            "self.spec.x__dash__y == 1 && self.spec.__namespace__ == self.spec.namespace",
            "self.spec.labels.a__dash__b == 'c' && object.a__b == 1",
            "self.spec.replicas == 1 && self.kind != 'x' && self.spec.labels['a'] == 'b'",
        ] {
            assert_eq!(errors(text), None, "{text}");
        }
    }

    #[test]
    fn results_have_types() {
        for (text, expected) in [
            ("1 + 1", "int"),
            ("'a' + self.spec.namespace", "string"),
            ("self.spec.ports.map(p, p.name.size())", "list(int)"),
            ("self.spec.ports.transformMap(i, p, p.name)", "map(int, string)"),
            ("self.spec.either", "dyn"),
            ("object.a[0] + object.b", "dyn"),
            ("'a' + object.b", "string"),
            ("true ? 'a' : object.a", "dyn"),
            ("self.?spec.replicas", "optional_type(int)"),
            ("self.?spec.replicas.orValue(1)", "int"),
            ("[].map(x, x)", "list(dyn)"),
            ("self.spec.labels.map(k, self.spec.labels[k])", "list(string)"),
            ("type(1)", "type(int)"),
            ("[[1], []].flatten()", "list(int)"),
            ("object.x == null ? 1.0 : 2.0", "double"),
        ] {
            assert_eq!(compiled(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn types_are_checked() {
        for (text, expected) in [
            ("self.spec.replicas + 'a'", "found no matching overload for '_+_' applied to '(int, string)'"),
            ("self.spec.replicas.size()", "found no matching overload for 'size' applied to 'int.()'"),
            ("math.greatest(1, 2)", "undeclared reference to 'math' (in container '')"),
            ("self.spec.replicas && true", "expected type 'bool' but found 'int'"),
            (
                "self.spec.replicas.all(x, true)",
                "expression of type 'int' cannot be range of a comprehension",
            ),
            ("self.spec.namespace.name", "type 'string' does not support field selection"),
            ("self.spec.free == 1", "undefined field 'free'"),
            ("1 in ['a']", "found no matching overload for '@in' applied to '(int, list(string))'"),
            ("[1, 'a'] == []", "expected type 'int' but found 'string'"),
            ("{'a': 1, 'b': 2.0}.a == 1", "expected type 'int' but found 'double'"),
            (
                "self.spec.namespace == null",
                "found no matching overload for '_==_' applied to '(string, null)'",
            ),
            ("duration('1d') > duration('1h')", "invalid duration argument"),
            ("self.spec.namespace.matches('[')", "invalid matches argument"),
            ("matches('[', self.spec.namespace)", "invalid matches argument"),
        ] {
            let found = errors(text).unwrap_or_default();
            assert!(found.contains(expected), "{text}: {found}");
        }
    }

    #[test]
    fn errors_are_those_of_kube_apiserver() {
        for (text, expected) in [
            ("x", "ERROR: <input>:1:1: undeclared reference to 'x' (in container '')\n | x\n | ^"),
            (
                "self.spec.replicas <= self.spec.y__dash__x",
                "ERROR: <input>:1:32: undefined field 'y__dash__x'\n | self.spec.replicas <= self.spec.y__dash__x\n \
                 | ...............................^",
            ),
            (
                "object.a <=\n variables.other",
                "ERROR: <input>:2:11: undefined field 'other'\n |  variables.other\n | ..........^",
            ),
            (
                "self.spec.ports.all(p, p.port > 0)",
                "ERROR: <input>:1:25: undefined field 'port'\n | self.spec.ports.all(p, p.port > 0)\n | ........................^",
            ),
            (
                "self.kind == 1",
                "ERROR: <input>:1:11: found no matching overload for '_==_' applied to '(string, int)'\n | self.kind == 1\n | ..........^",
            ),
            (
                "Not Valid!",
                "ERROR: <input>:1:5: Syntax error: mismatched input 'Valid' expecting <EOF>\n | Not Valid!\n | ....^",
            ),
        ] {
            assert_eq!(errors(text).as_deref(), Some(expected), "{text}");
        }
    }
}
