//! Estimated costs of rules, from their expressions and the sizes that values can have at most.
//!
//! kube-apiserver rejects a CRD if a rule could cost too much. The costs here are those of its estimator: most operations
//! cost 1, strings are traversed at 10 bytes per unit, and iterations multiply the cost of their body. Costs and sizes are
//! upper bounds; arithmetic saturates.

use std::collections::HashMap;

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};

use super::parsing::parse;
use super::sizes::{max_elements, member};
use super::{Schema, Type};

/// Estimated cost of an expression for one value of the schema; `None` if it cannot be compiled.
pub(super) fn cost(text: &str, schema: &Schema, is_root: bool) -> Option<u64> {
    let parsed = parse(text).ok()?;
    let mut estimator = Estimator { schema, is_root, variables: HashMap::new() };
    Some(parsed.walk(|expression| estimator.estimate(expression).cost))
}

/// The known properties of the value of an expression.
#[derive(Clone, Copy, Debug)]
struct Shape<'s> {
    kind: Kind,
    /// The declared schema, if the value is a part of the object.
    schema: Option<&'s Schema>,
    is_root: bool,
    /// Minimum and maximum size; unknown sizes are unlimited.
    size: (u64, u64),
    /// Maximum size of the items, if it is known without a schema.
    items: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Scalar,
    Text,
    List,
    Map,
    Unknown,
}

const UNKNOWN: Shape<'static> =
    Shape { kind: Kind::Unknown, schema: None, is_root: false, size: (0, u64::MAX), items: None };

impl Shape<'_> {
    fn sized(kind: Kind, min: u64, max: u64) -> Self {
        Self { kind, size: (min, max), ..UNKNOWN }
    }

    fn scalar() -> Self {
        Self::sized(Kind::Scalar, 1, 1)
    }
}

fn declared(schema: &Schema, is_root: bool) -> Shape<'_> {
    let kind = match schema.kind {
        Type::Object => Kind::Map,
        Type::Array => Kind::List,
        Type::String => match schema.checks.as_ref().map_or("", |it| it.format.as_str()) {
            "duration" | "date" | "date-time" => Kind::Scalar,
            _ => Kind::Text,
        },
        Type::Integer | Type::Number | Type::Boolean => Kind::Scalar,
        _ => Kind::Unknown,
    };
    let size = (0, max_elements(schema).unwrap_or(u64::MAX));
    Shape { kind, schema: Some(schema), is_root, size, items: None }
}

/// An expression's cost, and its value.
struct Estimate<'s> {
    cost: u64,
    shape: Shape<'s>,
}

struct Estimator<'s> {
    schema: &'s Schema,
    is_root: bool,
    variables: HashMap<String, Vec<Shape<'s>>>,
}

impl<'s> Estimator<'s> {
    fn estimate(&mut self, expression: &IdedExpr) -> Estimate<'s> {
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) => Estimate { cost: 0, shape: literal(&expression.expr) },
            Expr::Ident(name) => Estimate { cost: 1, shape: self.variable(name).unwrap_or(UNKNOWN) },
            Expr::Select(select) => {
                let operand = self.estimate(&select.operand);
                if select.test {
                    return Estimate { cost: operand.cost, shape: Shape::scalar() };
                }
                let shape = self.member(&operand.shape, &select.field);
                Estimate { cost: operand.cost.saturating_add(1), shape }
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let items: Vec<_> = list.elements.iter().map(|item| self.estimate(item)).collect();
                let size = u64::try_from(items.len()).unwrap_or(u64::MAX);
                let largest = items.iter().map(|item| item.shape.size.1).max().unwrap_or(0);
                let shape = Shape { items: Some(largest), ..Shape::sized(Kind::List, size, size) };
                Estimate { cost: sum(&items).saturating_add(10), shape }
            }
            Expr::Map(map) => {
                let mut items = Vec::new();
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        items.push(self.estimate(&entry.key));
                        items.push(self.estimate(&entry.value));
                    }
                }
                let size = u64::try_from(map.entries.len()).unwrap_or(u64::MAX);
                Estimate { cost: sum(&items).saturating_add(30), shape: Shape::sized(Kind::Map, size, size) }
            }
            Expr::Struct(_) => Estimate { cost: 40, shape: UNKNOWN },
            Expr::Comprehension(it) => self.comprehension(it),
        }
    }

    fn variable(&self, name: &str) -> Option<Shape<'s>> {
        if let Some(shape) = self.variables.get(name).and_then(|shapes| shapes.last()) {
            return Some(*shape);
        }
        matches!(name, "self" | "oldSelf").then(|| declared(self.schema, self.is_root))
    }

    fn member(&self, operand: &Shape<'s>, name: &str) -> Shape<'s> {
        let Some(schema) = operand.schema else { return self.part_of_computed() };
        member(schema, name, operand.is_root).map_or(UNKNOWN, |schema| declared(schema, false))
    }

    /// A part of a value that is not a part of the object. kube-apiserver takes the size of the rule's value for its size.
    fn part_of_computed(&self) -> Shape<'s> {
        Shape::sized(Kind::Unknown, 0, max_elements(self.schema).unwrap_or(u64::MAX))
    }

    fn comprehension(&mut self, it: &ComprehensionExpr) -> Estimate<'s> {
        let (range, start) = (self.estimate(&it.iter_range), self.estimate(&it.accu_init));
        let before = range.cost.saturating_add(start.cost);
        if is_binding(it) {
            self.push(&it.accu_var, start.shape);
            let result = self.estimate(&it.result);
            self.pop(&it.accu_var);
            return Estimate { cost: before.saturating_add(result.cost), shape: result.shape };
        }
        self.push(&it.accu_var, start.shape);
        match &it.iter_var2 {
            Some(value) => {
                let key = if range.shape.kind == Kind::List { Shape::scalar() } else { keys() };
                self.push(&it.iter_var, key);
                self.push(value, self.items(&range.shape));
            }
            None if range.shape.kind == Kind::Map => self.push(&it.iter_var, keys()),
            None => self.push(&it.iter_var, self.items(&range.shape)),
        }
        let (condition, step) = (self.estimate(&it.loop_cond), self.estimate(&it.loop_step));
        self.pop(&it.iter_var);
        if let Some(value) = &it.iter_var2 {
            self.pop(value);
        }
        let result = self.estimate(&it.result);
        self.pop(&it.accu_var);
        let each = condition.cost.saturating_add(step.cost);
        let cost = range.shape.size.1.saturating_mul(each).saturating_add(before).saturating_add(result.cost);
        let shape = match &it.accu_init.expr {
            Expr::List(_) | Expr::Map(_) => {
                Shape { size: range.shape.size, items: step.shape.items, schema: None, ..start.shape }
            }
            _ => Shape::scalar(),
        };
        Estimate { cost, shape }
    }

    /// The items of a list, or the values of a map.
    fn items(&self, range: &Shape<'s>) -> Shape<'s> {
        let Some(schema) = range.schema else { return self.part_of_computed() };
        let items = if range.kind == Kind::List { &schema.items } else { &schema.additional };
        items.as_deref().map_or(UNKNOWN, |items| declared(items, false))
    }

    fn push(&mut self, name: &str, shape: Shape<'s>) {
        self.variables.entry(name.to_owned()).or_default().push(shape);
    }

    fn pop(&mut self, name: &str) {
        self.variables.get_mut(name).and_then(Vec::pop);
    }

    fn call(&mut self, call: &CallExpr) -> Estimate<'s> {
        let args: Vec<Estimate<'s>> = call.args.iter().map(|arg| self.estimate(arg)).collect();
        // The prefix of a function's name, such as `math`, is no value.
        let is_value = |target: &IdedExpr| match &target.expr {
            Expr::Ident(name) => self.variable(name).is_some(),
            _ => true,
        };
        let target = call.target.as_deref().filter(|target| is_value(target));
        let target = target.map(|target| self.estimate(target));
        let own = self.function(&call.func_name, target.as_ref(), &args);
        let cost = sum(&args).saturating_add(target.map_or(0, |it| it.cost)).saturating_add(own.cost);
        // Of the branches, only the more expensive one counts.
        let cheaper = match args.as_slice() {
            [_, yes, no] if call.func_name == operators::CONDITIONAL => yes.cost.min(no.cost),
            _ => 0,
        };
        Estimate { cost: cost - cheaper, shape: own.shape }
    }

    /// Cost of a function without its arguments, and its result.
    fn function(&self, name: &str, target: Option<&Estimate<'s>>, args: &[Estimate<'s>]) -> Estimate<'s> {
        let free = |shape| Estimate { cost: 0, shape };
        match (name, target.map(|it| it.shape), args) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, ..) => free(Shape::scalar()),
            (operators::CONDITIONAL, _, [_, yes, no]) => free(union(&yes.shape, &no.shape)),
            (operators::ADD, _, [left, right]) => concatenated(&left.shape, &right.shape),
            (operators::EQUALS | operators::NOT_EQUALS, _, [left, right]) => {
                compared(left.shape.size.1.min(right.shape.size.1))
            }
            (
                operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS,
                _,
                [left, right],
            ) if left.shape.kind == Kind::Text || right.shape.kind == Kind::Text => {
                compared(left.shape.size.1.min(right.shape.size.1))
            }
            (operators::IN, _, [_, list]) if list.shape.kind != Kind::Map => {
                Estimate { cost: list.shape.size.1, shape: Shape::scalar() }
            }
            (operators::INDEX, _, [container, _key]) => {
                let shape = match container.shape.schema {
                    Some(_) => self.items(&container.shape),
                    None => Shape { size: (0, container.shape.items.unwrap_or(u64::MAX)), ..UNKNOWN },
                };
                Estimate { cost: 1, shape }
            }
            ("startsWith" | "endsWith", Some(_), [part]) => {
                Estimate { cost: tenths(part.shape.size.1), shape: Shape::scalar() }
            }
            ("contains", Some(text), [part]) => Estimate {
                cost: tenths(text.size.1).saturating_mul(tenths(part.shape.size.1)),
                shape: Shape::scalar(),
            },
            ("matches" | "find" | "findAll", Some(text), [pattern, ..]) => {
                let kind = if name == "findAll" { Kind::List } else { Kind::Text };
                let shape =
                    if name == "matches" { Shape::scalar() } else { Shape::sized(kind, 0, text.size.1) };
                let traversal = tenths(text.size.1.saturating_add(1));
                let cost = traversal.saturating_mul(pattern.shape.size.1.div_ceil(4));
                Estimate { cost, shape }
            }
            ("url", None, [text]) => Estimate { cost: tenths(text.shape.size.1), shape: Shape::scalar() },
            (_, Some(target), _) => of_target(name, &target, args),
            _ => Estimate { cost: 1, shape: result(name) },
        }
    }
}

/// Other functions with a target.
fn of_target<'s>(name: &str, target: &Shape<'s>, args: &[Estimate<'s>]) -> Estimate<'s> {
    let (min, max) = target.size;
    match (name, args) {
        ("lowerAscii" | "upperAscii" | "substring" | "trim", _) => {
            Estimate { cost: tenths(max), shape: Shape::sized(Kind::Text, min, max) }
        }
        ("replace", [old, new, ..]) => {
            let new = new.shape.size.1;
            let size = match old.shape.size.0 {
                0 => max.saturating_add(1).saturating_mul(new).saturating_add(max),
                old if new <= old => max,
                old => max.div_ceil(old).saturating_mul(new),
            };
            Estimate { cost: fifths(max), shape: Shape::sized(Kind::Text, 0, size) }
        }
        ("split", _) => Estimate { cost: fifths(max), shape: Shape::sized(Kind::List, 0, max) },
        ("join", _) => {
            let separator = args.first().map_or(0, |it| it.shape.size.1);
            let items = max.saturating_mul(item_size(target));
            let size = items.saturating_add(max.saturating_sub(1).saturating_mul(separator));
            Estimate { cost: tenths(size), shape: Shape::sized(Kind::Text, 0, size) }
        }
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", _) => {
            let has_texts = target
                .schema
                .and_then(|it| it.items.as_deref())
                .is_some_and(|it| declared(it, false).kind == Kind::Text);
            let cost = match target.kind {
                Kind::Text => tenths(max),
                _ if has_texts => max.saturating_mul(tenths(item_size(target)).saturating_add(1)),
                _ => max,
            };
            Estimate { cost, shape: Shape::scalar() }
        }
        _ => Estimate { cost: 1, shape: result(name) },
    }
}

fn item_size(list: &Shape<'_>) -> u64 {
    let declared = list.schema.and_then(|it| it.items.as_deref()).and_then(max_elements);
    declared.unwrap_or(u64::MAX)
}

/// The result of a function whose cost is 1.
fn result(name: &str) -> Shape<'static> {
    match name {
        "string" | "format" | "charAt" | "getHost" | "getScheme" => Shape { kind: Kind::Text, ..UNKNOWN },
        "dyn"
        | "none"
        | "orValue"
        | "type"
        | "validate"
        | "value"
        | "optional"
        | operators::OPT_SELECT
        | operators::OPT_INDEX => UNKNOWN,
        _ => Shape::scalar(),
    }
}

/// Two lists, two strings, or two numbers.
fn concatenated<'s>(left: &Shape<'s>, right: &Shape<'s>) -> Estimate<'s> {
    let size = (left.size.0.saturating_add(right.size.0), left.size.1.saturating_add(right.size.1));
    let is = |kind| left.kind == kind || right.kind == kind;
    if is(Kind::List) {
        let items = left.items.zip(right.items).map(|(left, right)| left.max(right));
        return Estimate { cost: 1, shape: Shape { size, items, ..Shape::sized(Kind::List, 0, 0) } };
    }
    if is(Kind::Text) {
        return Estimate { cost: tenths(size.1), shape: Shape::sized(Kind::Text, size.0, size.1) };
    }
    Estimate { cost: 1, shape: Shape::scalar() }
}

fn compared(size: u64) -> Estimate<'static> {
    Estimate { cost: tenths(size), shape: Shape::scalar() }
}

fn union<'s>(yes: &Shape<'s>, no: &Shape<'s>) -> Shape<'s> {
    let kind = if yes.kind == Kind::Unknown { no.kind } else { yes.kind };
    let items = yes.items.zip(no.items).map(|(yes, no)| yes.max(no));
    let size = (yes.size.0.min(no.size.0), yes.size.1.max(no.size.1));
    Shape { kind, size, items, ..UNKNOWN }
}

/// Keys have no declared length.
fn keys() -> Shape<'static> {
    Shape::sized(Kind::Text, 0, 0)
}

fn literal(expression: &Expr) -> Shape<'static> {
    match expression {
        Expr::Literal(LiteralValue::String(text)) => {
            let size = u64::try_from(text.inner().chars().count()).unwrap_or(u64::MAX);
            Shape::sized(Kind::Text, size, size)
        }
        _ => Shape::scalar(),
    }
}

/// `cel.bind`: a comprehension without iterations.
fn is_binding(it: &ComprehensionExpr) -> bool {
    matches!(&it.iter_range.expr, Expr::List(list) if list.elements.is_empty())
        && matches!(&it.loop_cond.expr, Expr::Literal(LiteralValue::Boolean(value)) if !*value.inner())
}

fn sum(estimates: &[Estimate<'_>]) -> u64 {
    estimates.iter().fold(0, |total, it| total.saturating_add(it.cost))
}

fn tenths(size: u64) -> u64 {
    size.div_ceil(10)
}

fn fifths(size: u64) -> u64 {
    size.div_ceil(5)
}
