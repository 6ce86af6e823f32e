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

mod functions;

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

    /// The item at an index.
    fn item(&self, container: &Shape<'s>) -> Shape<'s> {
        match container.schema {
            Some(_) => self.items(container),
            None => Shape { size: (0, container.items.unwrap_or(u64::MAX)), ..UNKNOWN },
        }
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
        let own = match (call.func_name.as_str(), args.as_slice()) {
            (operators::INDEX, [container, _key]) => Estimate { cost: 1, shape: self.item(&container.shape) },
            _ => functions::of(call, target.as_ref().map(|it| &it.shape), &args),
        };
        let cost = sum(&args).saturating_add(target.map_or(0, |it| it.cost)).saturating_add(own.cost);
        // Of the branches, only the more expensive one counts.
        let cheaper = match args.as_slice() {
            [_, yes, no] if call.func_name == operators::CONDITIONAL => yes.cost.min(no.cost),
            _ => 0,
        };
        Estimate { cost: cost - cheaper, shape: own.shape }
    }
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
