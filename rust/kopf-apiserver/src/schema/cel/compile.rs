//! Compilation errors of CEL expressions, with the messages of kube-apiserver: syntax, variables that are not declared, and
//! fields that the schema of a variable does not have.
//!
//! Types of operators and functions are not checked: an expression with errors of this kind fails when it is evaluated.

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SourceInfo, operators,
};

use super::sizes::member;
use super::{ENV, Schema, Type};

/// Known properties of a variable's value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Declared<'s> {
    /// Nothing: all fields are accepted.
    Dynamic,
    /// A value of a schema; the root of a resource has metadata as well.
    Value { schema: &'s Schema, is_root: bool },
    /// An optional value of a schema.
    Optional { schema: &'s Schema, is_root: bool },
    /// An object with these fields.
    Fields(&'s [&'s str]),
}

/// Type of the value of an expression, as far as it is evident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResultKind {
    Bool,
    Number,
    Text,
}

/// Type of an expression's value, if the expression shows it without its variables.
pub(crate) fn result_kind(text: &str) -> Option<ResultKind> {
    kind_of(&ENV.compile(text).ok()?.expression().expr)
}

fn kind_of(expression: &Expr) -> Option<ResultKind> {
    match expression {
        Expr::Literal(literal) => match literal {
            LiteralValue::Boolean(_) => Some(ResultKind::Bool),
            LiteralValue::String(_) => Some(ResultKind::Text),
            LiteralValue::Int(_) | LiteralValue::UInt(_) | LiteralValue::Double(_) => {
                Some(ResultKind::Number)
            }
            _ => None,
        },
        Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::ADD | operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE, [left, _]) => {
                kind_of(&left.expr)
            }
            (operators::CONDITIONAL, [_, yes, _]) => kind_of(&yes.expr),
            ("size" | "indexOf", _) => Some(ResultKind::Number),
            _ => None,
        },
        _ => None,
    }
}

/// Whether the type of an expression's value is not known, as the types of these variables.
pub(crate) fn is_dynamic(text: &str, variables: &[&str]) -> bool {
    ENV.compile(text).is_ok_and(|program| is_dynamic_value(&program.expression().expr, variables))
}

fn is_dynamic_value(expression: &Expr, variables: &[&str]) -> bool {
    let is_dynamic = |inner: &IdedExpr| is_dynamic_value(&inner.expr, variables);
    match expression {
        Expr::Ident(name) => variables.contains(&name.as_str()),
        Expr::Select(select) => {
            let is_option = select.field == "options"
                && matches!(&select.operand.expr, Expr::Ident(name) if name == "request");
            !select.test && (is_option || is_dynamic(&select.operand))
        }
        Expr::Call(call) => match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::ADD, [left, right]) => is_dynamic(left) && is_dynamic(right),
            (operators::CONDITIONAL, [_, yes, no]) => is_dynamic(yes) || is_dynamic(no),
            (operators::INDEX, [list, _]) => is_dynamic(list),
            _ => false,
        },
        _ => false,
    }
}

/// Whether an expression reads `oldSelf`.
pub(crate) fn uses_old_value(text: &str) -> bool {
    ENV.compile(text).is_ok_and(|program| program.references().has_variable("oldSelf"))
}

/// Names of types, which are not variables, and of packages.
const TYPES: [&str; 17] = [
    "bool",
    "bytes",
    "double",
    "dyn",
    "duration",
    "google",
    "int",
    "kubernetes",
    "list",
    "map",
    "net",
    "null_type",
    "optional_type",
    "string",
    "timestamp",
    "type",
    "uint",
];
/// Prefixes of functions.
const PREFIXES: [&str; 11] =
    ["base64", "cel", "cidr", "format", "ip", "lists", "math", "optional", "regex", "sets", "strings"];

/// The compilation errors of an expression with these variables, a paragraph each; `None` if it has none.
pub(crate) fn compile_errors(text: &str, variables: &[(&str, Declared<'_>)]) -> Option<String> {
    let program = match ENV.compile(text) {
        Ok(program) => program,
        Err(failed) => {
            let errors = failed.errors.iter().map(|error| {
                let at = |n: isize| usize::try_from(n).unwrap_or(1).max(1);
                paragraph(text, at(error.pos.0), at(error.pos.1), &expecting_end(&error.msg))
            });
            return Some(errors.collect::<Vec<_>>().join("\n"));
        }
    };
    let variables = variables.iter().map(|(name, declared)| ((*name).to_owned(), *declared)).collect();
    let mut checker = Checker { source: program.source_info(), variables, errors: Vec::new() };
    checker.check(program.expression());
    let mut errors = checker.errors;
    errors.sort();
    let paragraphs = errors.iter().map(|(offset, message)| {
        let (line, column) = position(text, *offset);
        paragraph(text, line, column, message)
    });
    (!errors.is_empty()).then(|| paragraphs.collect::<Vec<_>>().join("\n"))
}

/// The message of the parser. Where the expression can end, kube-apiserver names no other tokens.
fn expecting_end(message: &str) -> std::borrow::Cow<'_, str> {
    match message.split_once("expecting {<EOF>, ") {
        Some((before, _)) => format!("{before}expecting <EOF>").into(),
        None => message.into(),
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

struct Checker<'s, 'p> {
    source: &'p SourceInfo,
    /// Inner variables come last.
    variables: Vec<(String, Declared<'s>)>,
    /// Offsets and messages.
    errors: Vec<(u32, String)>,
}

impl<'s> Checker<'s, '_> {
    fn report(&mut self, id: u64, message: String) {
        let offset = self.source.offset_for(id).map_or(0, |(start, _)| start);
        self.errors.push((offset, message));
    }

    fn variable(&self, name: &str) -> Option<Declared<'s>> {
        self.variables.iter().rev().find(|(known, _)| known == name).map(|(_, declared)| *declared)
    }

    /// Checks an expression. Returns the known properties of its value.
    fn check(&mut self, expression: &IdedExpr) -> Declared<'s> {
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) => {}
            Expr::Ident(name) => match self.variable(name) {
                Some(declared) => return declared,
                None if TYPES.contains(&name.as_str()) => {}
                None => {
                    self.report(expression.id, format!("undeclared reference to '{name}' (in container '')"));
                }
            },
            Expr::Select(select) => {
                let operand = self.check(&select.operand);
                let field = self.field(expression.id, operand, &select.field);
                return if select.test { Declared::Dynamic } else { field };
            }
            Expr::Call(call) => return self.call(expression.id, call),
            Expr::List(list) => list.elements.iter().for_each(|item| {
                self.check(item);
            }),
            Expr::Map(map) => map.entries.iter().for_each(|entry| self.entry(&entry.expr)),
            Expr::Struct(value) => value.entries.iter().for_each(|entry| self.entry(&entry.expr)),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }
        Declared::Dynamic
    }

    fn entry(&mut self, entry: &EntryExpr) {
        match entry {
            EntryExpr::StructField(field) => self.check(&field.value),
            EntryExpr::MapEntry(pair) => {
                self.check(&pair.key);
                self.check(&pair.value)
            }
        };
    }

    fn field(&mut self, id: u64, operand: Declared<'s>, name: &str) -> Declared<'s> {
        let found = match operand {
            Declared::Fields(names) => names.contains(&name).then_some(Declared::Dynamic),
            Declared::Value { schema, is_root } if schema.kind == Type::Object => {
                let child = member(schema, name, is_root);
                child.map(|schema| Declared::Value { schema, is_root: false })
            }
            Declared::Optional { schema, is_root } if schema.kind == Type::Object => {
                let child = member(schema, name, is_root);
                child.map(|schema| Declared::Optional { schema, is_root: false })
            }
            Declared::Dynamic | Declared::Value { .. } | Declared::Optional { .. } => Some(Declared::Dynamic),
        };
        found.unwrap_or_else(|| {
            self.report(id, format!("undefined field '{name}'"));
            Declared::Dynamic
        })
    }

    fn call(&mut self, id: u64, call: &CallExpr) -> Declared<'s> {
        let variables = self.variables.len();
        if let Some(target) = &call.target {
            match &target.expr {
                Expr::Ident(name) if PREFIXES.contains(&name.as_str()) && self.variable(name).is_none() => {}
                _ => {
                    self.check(target);
                }
            }
            // Macros that the library does not expand declare variables.
            let names = call.args.split_last().map_or(&[][..], |(_, names)| names);
            for name in names {
                if let Expr::Ident(name) = &name.expr {
                    self.variables.push((name.clone(), Declared::Dynamic));
                }
            }
        }
        let arguments: Vec<_> = call.args.iter().map(|argument| self.check(argument)).collect();
        self.variables.truncate(variables);
        if let (operators::EQUALS | operators::NOT_EQUALS, [left, right], [first, second]) =
            (call.func_name.as_str(), arguments.as_slice(), call.args.as_slice())
            && let (Some(left), Some(right)) = (type_name(first, *left), type_name(second, *right))
            && left != right
        {
            let name = &call.func_name;
            self.report(
                id,
                format!("found no matching overload for '{name}' applied to '({left}, {right})'"),
            );
        }
        match (call.func_name.as_str(), arguments.first()) {
            (operators::INDEX, Some(list)) => items(*list),
            _ => Declared::Dynamic,
        }
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) {
        let range = self.check(&comprehension.iter_range);
        self.check(&comprehension.accu_init);
        let variables = self.variables.len();
        self.variables.push((comprehension.accu_var.clone(), Declared::Dynamic));
        if let Some(second) = &comprehension.iter_var2 {
            self.variables.push((comprehension.iter_var.clone(), Declared::Dynamic));
            self.variables.push((second.clone(), items(range)));
        } else {
            // The variable has the keys of a map.
            let is_list = matches!(range, Declared::Value { schema, .. } if schema.kind == Type::Array);
            let item = if is_list { items(range) } else { Declared::Dynamic };
            self.variables.push((comprehension.iter_var.clone(), item));
        }
        self.check(&comprehension.loop_cond);
        self.check(&comprehension.loop_step);
        self.check(&comprehension.result);
        self.variables.truncate(variables);
    }
}

/// Name of the type of a scalar, if it is known.
fn type_name(expression: &IdedExpr, declared: Declared<'_>) -> Option<String> {
    let literal = match &expression.expr {
        Expr::Literal(LiteralValue::Boolean(_)) => Some("bool"),
        Expr::Literal(LiteralValue::String(_)) => Some("string"),
        Expr::Literal(LiteralValue::Int(_)) => Some("int"),
        Expr::Literal(LiteralValue::UInt(_)) => Some("uint"),
        Expr::Literal(LiteralValue::Double(_)) => Some("double"),
        Expr::Select(_) | Expr::Ident(_) => None,
        _ => return None,
    };
    let named = |schema: &Schema| match schema.kind {
        Type::Boolean => Some("bool"),
        Type::Integer => Some("int"),
        Type::String if schema.checks.as_ref().is_none_or(|checks| checks.format.is_empty()) => {
            Some("string")
        }
        _ => None,
    };
    match declared {
        _ if literal.is_some() => literal.map(str::to_owned),
        Declared::Value { schema, .. } => named(schema).map(str::to_owned),
        Declared::Optional { schema, .. } => named(schema).map(|name| format!("optional_type({name})")),
        _ => None,
    }
}
/// Known properties of the items of a list, or of the values of a map.
fn items(list: Declared<'_>) -> Declared<'_> {
    let Declared::Value { schema, .. } = list else { return Declared::Dynamic };
    let items =
        if schema.kind == Type::Array { schema.items.as_deref() } else { schema.additional.as_deref() };
    items.map_or(Declared::Dynamic, |schema| Declared::Value { schema, is_root: false })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn errors(text: &str) -> Option<String> {
        let schema = Schema::from_json(&json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "replicas": {"type": "integer"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "ports": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            "free": {"x-kubernetes-preserve-unknown-fields": true},
            "x-y": {"type": "integer"}, "namespace": {"type": "string"},
        }}}}));
        let this = Declared::Value { schema: &schema, is_root: true };
        let fields = ["limit"];
        compile_errors(
            text,
            &[("self", this), ("object", Declared::Dynamic), ("variables", Declared::Fields(&fields))],
        )
    }

    #[test]
    fn expressions_with_declared_variables_and_fields_compile() {
        for text in [
            "self.spec.replicas <= 5 && self.metadata.name != ''",
            "self.spec.ports.all(p, p.name.size() > 0) && self.spec.ports.exists_one(p, p.name == 'a')",
            "self.spec.labels.all(k, self.spec.labels[k] != '') && self.spec.labels.any.size() > 0",
            "has(self.spec.free.anything.below) && self.spec.ports[0].name == 'x'",
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
    fn evident_types_of_results_are_known() {
        for (text, expected) in [
            ("true", Some(ResultKind::Bool)),
            ("1 + 1", Some(ResultKind::Number)),
            ("'a' + self.b", Some(ResultKind::Text)),
            ("self.size()", Some(ResultKind::Number)),
            ("self.b", None),
        ] {
            assert_eq!(result_kind(text), expected, "{text}");
        }
        for (text, expected) in [
            ("object.a[0] + object.b", true),
            ("true ? 'a' : object.a", true),
            ("'a' + object.b", false),
            ("has(object.a)", false),
            ("request.options.kind", true),
        ] {
            assert_eq!(is_dynamic(text, &["object"]), expected, "{text}");
        }
        assert!(uses_old_value("self == oldSelf") && !uses_old_value("self.oldSelf == 'oldSelf'"));
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
