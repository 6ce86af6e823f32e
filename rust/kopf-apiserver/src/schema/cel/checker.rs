//! Types of all parts of an expression, and the errors of kube-apiserver about them.

use std::collections::HashMap;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, SelectExpr,
    operators,
};

use super::formatting;
use super::literals::invalid_literals;
use super::overloads::{FIRST_VARIABLE, Overload, named_type, overloads};
use super::sizes::member;
use super::types::{Bindings, StaticType};

/// Checks an expression with these variables, of which inner ones come last. Returns its type, and the errors with the ids
/// of what they are about.
pub(super) fn check<'s>(
    expression: &IdedExpr,
    variables: Vec<(String, StaticType<'s>)>,
) -> (StaticType<'s>, Vec<(u64, String)>) {
    let mut checker = Checker {
        variables,
        errors: Vec::new(),
        bindings: Bindings::default(),
        next_variable: FIRST_VARIABLE,
        literals: Vec::new(),
        formats: 0,
        formatted: Vec::new(),
        last_items: Vec::new(),
    };
    let result = checker.check(expression);
    if checker.errors.is_empty() {
        checker.check_literals();
        checker.check_formats();
        checker.errors.extend(invalid_literals(expression));
    }
    (checker.bindings.substituted(&result, true), checker.errors)
}

/// The ids and types of parts of an expression.
type TypedParts<'s> = Vec<(u64, StaticType<'s>)>;

struct Checker<'s> {
    variables: Vec<(String, StaticType<'s>)>,
    errors: Vec<(u64, String)>,
    bindings: Bindings<'s>,
    next_variable: usize,
    /// The ids and types of what must have the same type in a literal list or map.
    literals: Vec<TypedParts<'s>>,
    /// How many calls of `format` the current expression is in.
    formats: usize,
    /// The ids, texts and arguments of calls of `format`.
    formatted: Vec<(u64, String, TypedParts<'s>)>,
    /// The ids and types of the items of the last literal list.
    last_items: TypedParts<'s>,
}

impl<'s> Checker<'s> {
    fn report(&mut self, id: u64, message: String) {
        self.errors.push((id, message));
    }

    fn new_variable(&mut self) -> StaticType<'s> {
        self.next_variable += 1;
        StaticType::Param(self.next_variable)
    }

    /// A known type with new variables for its parameters.
    fn instance(
        &mut self,
        known: &StaticType<'static>,
        fresh: &mut HashMap<usize, StaticType<'s>>,
    ) -> StaticType<'s> {
        for parameter in 0..2 {
            fresh.entry(parameter).or_insert_with(|| self.new_variable());
        }
        let known: StaticType<'s> = known.clone();
        Bindings::with(fresh.iter().map(|(parameter, it)| (*parameter, it.clone())))
            .substituted(&known, false)
    }

    /// A variable, or a type.
    fn named(&mut self, name: &str) -> Option<StaticType<'s>> {
        if let Some((_, kind)) = self.variables.iter().rev().find(|(known, _)| known == name) {
            return Some(kind.clone());
        }
        let kind = self.instance(&named_type(name)?, &mut HashMap::new());
        Some(StaticType::Type(Box::new(kind)))
    }

    fn check(&mut self, expression: &IdedExpr) -> StaticType<'s> {
        match &expression.expr {
            Expr::Unspecified | Expr::Struct(_) => StaticType::Dyn,
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => StaticType::Bool,
                LiteralValue::Bytes(_) => StaticType::Bytes,
                LiteralValue::Double(_) => StaticType::Double,
                LiteralValue::Int(_) => StaticType::Int,
                LiteralValue::Null => StaticType::Null,
                LiteralValue::String(_) => StaticType::Text,
                LiteralValue::UInt(_) => StaticType::UInt,
            },
            Expr::Ident(name) => self.named(name).unwrap_or_else(|| {
                self.report(expression.id, format!("undeclared reference to '{name}' (in container '')"));
                StaticType::Error
            }),
            Expr::Select(select) => self.select(expression, select),
            Expr::Call(call) => self.call(expression.id, call),
            Expr::List(list) => self.list(list),
            Expr::Map(map) => self.map(map),
            Expr::Comprehension(it) => self.comprehension(it),
        }
    }

    fn select(&mut self, expression: &IdedExpr, select: &SelectExpr) -> StaticType<'s> {
        if let Some(kind) = qualified_name(&expression.expr).and_then(|name| self.named(&name)) {
            return kind;
        }
        let field = self.field(expression.id, &select.operand, &select.field, false);
        if select.test { StaticType::Bool } else { self.bindings.substituted(&field, false) }
    }

    fn field(&mut self, id: u64, operand: &IdedExpr, name: &str, is_optional: bool) -> StaticType<'s> {
        let operand = self.check(operand);
        let (target, was_optional) = self.bindings.substituted(&operand, false).unwrapped();
        let field = match &target {
            StaticType::Map(pair) => pair.1.clone(),
            StaticType::Object { schema, is_root } => {
                let found = member(schema, name, *is_root);
                found
                    .and_then(|it| StaticType::of_schema(it, it.embedded))
                    .unwrap_or_else(|| self.undefined(id, name))
            }
            StaticType::Fields(fields) => {
                let found = fields.iter().find(|(known, _)| known == name).map(|(_, kind)| kind.clone());
                found.unwrap_or_else(|| self.undefined(id, name))
            }
            StaticType::Named(_) => self.undefined(id, name),
            StaticType::Param(_) => {
                self.bindings.assign(&StaticType::Dyn, &target);
                StaticType::Dyn
            }
            other => {
                if !other.is_dynamic() {
                    self.report(id, format!("type '{other}' does not support field selection"));
                }
                StaticType::Dyn
            }
        };
        if is_optional || was_optional { field.optional() } else { field }
    }

    fn undefined(&mut self, id: u64, name: &str) -> StaticType<'s> {
        self.report(id, format!("undefined field '{name}'"));
        StaticType::Error
    }

    fn call(&mut self, id: u64, call: &CallExpr) -> StaticType<'s> {
        let name = call.func_name.as_str();
        if let (operators::OPT_SELECT, [operand, field]) = (name, call.args.as_slice())
            && let Expr::Literal(LiteralValue::String(field)) = &field.expr
        {
            let field = self.field(id, operand, field.inner(), true);
            return self.bindings.substituted(&field, false);
        }
        let is_format = usize::from(name == "format");
        self.formats += is_format;
        let mut args: Vec<_> = call.args.iter().map(|argument| self.check(argument)).collect();
        self.formats -= is_format;
        if let Some(target) = &call.target {
            let qualified = qualified_name(&target.expr).map(|prefix| format!("{prefix}.{name}"));
            if let Some((name, found)) = qualified.as_ref().and_then(|it| Some((it, overloads(it)?))) {
                return self.resolve(id, name, found, &args, false);
            }
            self.formats += is_format;
            args.insert(0, self.check(target));
            self.formats -= is_format;
        }
        if let (
            "format",
            Some(Expr::Literal(LiteralValue::String(text))),
            [IdedExpr { expr: Expr::List(_), .. }],
        ) = (name, call.target.as_ref().map(|target| &target.expr), call.args.as_slice())
        {
            self.formatted.push((id, text.inner().to_owned(), std::mem::take(&mut self.last_items)));
        }
        let Some(found) = overloads(name) else {
            self.report(id, format!("undeclared reference to '{name}' (in container '')"));
            return StaticType::Error;
        };
        if matches!(name, operators::LOGICAL_AND | operators::LOGICAL_OR) {
            return self.logical(call, &args);
        }
        self.resolve(id, name, found, &args, call.target.is_some())
    }

    fn logical(&mut self, call: &CallExpr, args: &[StaticType<'s>]) -> StaticType<'s> {
        let mut result = StaticType::Bool;
        for (argument, kind) in call.args.iter().zip(args) {
            if !self.bindings.assign(kind, &StaticType::Bool) {
                self.report(argument.id, format!("expected type 'bool' but found '{kind}'"));
                result = StaticType::Error;
            }
        }
        result
    }

    /// The type of the result. If the types of the arguments are not known, there can be several.
    fn resolve(
        &mut self,
        id: u64,
        name: &str,
        found: &'static [Overload],
        args: &[StaticType<'s>],
        is_member: bool,
    ) -> StaticType<'s> {
        let mut result: Option<StaticType<'s>> = None;
        for overload in found.iter().filter(|it| it.is_member == is_member && it.args.len() == args.len()) {
            let mut fresh = HashMap::new();
            let expected: Vec<_> = overload.args.iter().map(|it| self.instance(it, &mut fresh)).collect();
            if self.bindings.assign_all(args, &expected) {
                let this = self.instance(&overload.result, &mut fresh);
                let this = self.bindings.substituted(&this, false);
                result = Some(match result {
                    None => this,
                    Some(other) if other.is_exactly(&this) => other,
                    Some(_) => StaticType::Dyn,
                });
            }
        }
        result.unwrap_or_else(|| {
            let mut shown = args.iter().map(|it| self.bindings.substituted(it, true).to_string());
            let target = if is_member { shown.next().map(|it| it + ".") } else { None };
            let shown: Vec<String> = shown.collect();
            let applied = format!("{}({})", target.unwrap_or_default(), shown.join(", "));
            self.report(id, format!("found no matching overload for '{name}' applied to '{applied}'"));
            StaticType::Error
        })
    }

    fn list(&mut self, list: &ListExpr) -> StaticType<'s> {
        let mut common = None;
        let mut items = Vec::new();
        for (i, item) in list.elements.iter().enumerate() {
            let mut kind = self.check(item);
            if list.optional_indices.contains(&i) {
                kind = self.unwrap(item.id, &kind);
            }
            items.push((item.id, kind.clone()));
            common = Some(self.joined(common, kind));
        }
        self.last_items.clone_from(&items);
        self.keep(items);
        StaticType::list(common.unwrap_or_else(|| self.new_variable()))
    }

    fn map(&mut self, map: &MapExpr) -> StaticType<'s> {
        let (mut key_type, mut value_type) = (None, None);
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
            let key = self.check(&entry.key);
            keys.push((entry.key.id, key.clone()));
            key_type = Some(self.joined(key_type, key));
            let mut value = self.check(&entry.value);
            if entry.optional {
                value = self.unwrap(entry.value.id, &value);
            }
            values.push((entry.value.id, value.clone()));
            value_type = Some(self.joined(value_type, value));
        }
        self.keep(keys);
        self.keep(values);
        let (key, value) = match (key_type, value_type) {
            (Some(key), Some(value)) => (key, value),
            _ => (self.new_variable(), self.new_variable()),
        };
        StaticType::map(key, value)
    }

    fn unwrap(&mut self, id: u64, kind: &StaticType<'s>) -> StaticType<'s> {
        let (inner, is_optional) = kind.unwrapped();
        if !is_optional && !matches!(inner, StaticType::Dyn) {
            self.report(id, format!("expected type 'optional_type({inner})' but found '{inner}'"));
        }
        inner
    }

    fn joined(&mut self, previous: Option<StaticType<'s>>, kind: StaticType<'s>) -> StaticType<'s> {
        match previous {
            None => kind,
            Some(previous) if self.bindings.assign(&previous, &kind) => previous.most_general(kind),
            Some(_) => StaticType::Dyn,
        }
    }

    /// Keeps the types of a literal, unless they are arguments of `format`.
    fn keep(&mut self, parts: TypedParts<'s>) {
        if self.formats == 0 {
            self.literals.push(parts);
        }
    }

    /// All items of a list, and all keys and values of a map, must have the type of the first one.
    fn check_literals(&mut self) {
        for parts in std::mem::take(&mut self.literals) {
            let mut parts = parts.into_iter().map(|(id, kind)| (id, self.bindings.substituted(&kind, true)));
            let Some((_, first)) = parts.next() else { continue };
            if let Some((id, other)) = parts.find(|(_, kind)| !first.is_exactly(kind)) {
                self.report(id, format!("expected type '{first}' but found '{other}'"));
            }
        }
    }

    fn check_formats(&mut self) {
        for (id, text, arguments) in std::mem::take(&mut self.formatted) {
            let arguments: Vec<_> = arguments
                .into_iter()
                .map(|(id, kind)| (id, self.bindings.substituted(&kind, true)))
                .collect();
            if let Err((about, error)) = formatting::check(&text, &arguments) {
                self.report(about.unwrap_or(id), error);
            }
        }
    }

    fn comprehension(&mut self, it: &ComprehensionExpr) -> StaticType<'s> {
        let (range, start) = (self.check(&it.iter_range), self.check(&it.accu_init));
        let range = self.bindings.substituted(&range, false);
        let outside = self.variables.len();
        self.variables.push((it.accu_var.clone(), start.clone()));
        let is_pair = it.iter_var2.is_some();
        let (first, second) = match &range {
            StaticType::List(items) if is_pair => (StaticType::Int, (**items).clone()),
            StaticType::List(items) => ((**items).clone(), StaticType::Dyn),
            StaticType::Map(pair) => (pair.0.clone(), pair.1.clone()),
            StaticType::Dyn | StaticType::Error | StaticType::Param(_) => {
                self.bindings.assign(&StaticType::Dyn, &range);
                (StaticType::Dyn, StaticType::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.report(it.iter_range.id, message);
                (StaticType::Error, StaticType::Error)
            }
        };
        self.variables.push((it.iter_var.clone(), first));
        self.variables.extend(it.iter_var2.clone().map(|name| (name, second)));
        self.expect(&it.loop_cond, &StaticType::Bool);
        self.expect(&it.loop_step, &start);
        self.variables.truncate(outside + 1);
        let result = self.check(&it.result);
        self.variables.truncate(outside);
        self.bindings.substituted(&result, false)
    }

    fn expect(&mut self, expression: &IdedExpr, expected: &StaticType<'s>) {
        let kind = self.check(expression);
        if !self.bindings.assign(expected, &kind) {
            self.report(expression.id, format!("expected type '{expected}' but found '{kind}'"));
        }
    }
}

/// The name that a chain of names spells.
fn qualified_name(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) if !select.test => {
            Some(format!("{}.{}", qualified_name(&select.operand.expr)?, select.field))
        }
        _ => None,
    }
}
