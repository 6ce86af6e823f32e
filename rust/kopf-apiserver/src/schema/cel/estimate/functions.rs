//! Estimated costs of functions and operators, without those of their arguments, and the known properties of their results.

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};

use super::super::sizes::max_elements;
use super::{Estimate, Kind, Schema, Shape, Type, UNKNOWN, declared};

/// Estimates a call. `target` is a value, but not the prefix of a function's name, such as `math`.
pub(super) fn of<'s>(call: &CallExpr, target: Option<&Shape<'s>>, args: &[Estimate<'s>]) -> Estimate<'s> {
    let name = call.func_name.as_str();
    let free = |shape| Estimate { cost: 0, shape };
    match (name, target, args) {
        (operators::LOGICAL_AND | operators::LOGICAL_OR, ..) => free(Shape::scalar()),
        (operators::CONDITIONAL, _, [_, yes, no]) => free(union(&yes.shape, &no.shape)),
        (operators::ADD, _, [left, right]) => concatenated(&left.shape, &right.shape),
        (operators::EQUALS | operators::NOT_EQUALS, _, [left, right]) => {
            traversed(left.shape.size.1.min(right.shape.size.1))
        }
        (
            operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS,
            _,
            [left, right],
        ) if left.shape.kind == Kind::Text || right.shape.kind == Kind::Text => {
            traversed(left.shape.size.1.min(right.shape.size.1))
        }
        (operators::IN, _, [_, list]) if list.shape.kind != Kind::Map => {
            Estimate { cost: list.shape.size.1, shape: Shape::scalar() }
        }
        (_, Some(target), _) => of_member(call, target, args),
        _ => of_global(call, args),
    }
}

/// Functions without a target.
fn of_global<'s>(call: &CallExpr, args: &[Estimate<'s>]) -> Estimate<'s> {
    let text = |shape: &Shape<'_>, size| Estimate {
        cost: tenths(shape.size.1),
        shape: Shape::sized(Kind::Text, 0, size),
    };
    match (call.func_name.as_str(), args) {
        ("url", [text]) => {
            let size = text.shape.size;
            Estimate { cost: tenths(size.1), shape: Shape { size, ..UNKNOWN } }
        }
        ("ip", [text])
        | ("isIP" | "isCIDR" | "cidr" | "isQuantity" | "quantity" | "isSemver" | "semver", [text, ..]) => {
            traversed(text.shape.size.1)
        }
        ("isCanonical", [text]) => Estimate { cost: fifths(text.shape.size.1), shape: Shape::scalar() },
        // A character has up to four bytes.
        ("bytes", [it]) if !is_bytes(it.shape.schema) => text(&it.shape, it.shape.size.1.saturating_mul(4)),
        // A value of an unknown type can be bytes.
        ("string", [it]) if it.shape.kind == Kind::Unknown || are_bytes(call.args.first(), &it.shape) => {
            text(&it.shape, it.shape.size.1)
        }
        // Each character can be escaped.
        ("quote", [it]) => text(&it.shape, it.shape.size.1.saturating_mul(2).saturating_add(2)),
        ("contains" | "intersects", [a, b]) => pairs(&a.shape, &b.shape, 1),
        ("equivalent", [a, b]) => pairs(&a.shape, &b.shape, 2),
        ("range", [_]) => allocated(number(call, 0).unwrap_or(u64::MAX), 1),
        _ => Estimate { cost: 1, shape: result(&call.func_name) },
    }
}

/// Functions with a target.
fn of_member<'s>(call: &CallExpr, target: &Shape<'s>, args: &[Estimate<'s>]) -> Estimate<'s> {
    let (name, (min, max)) = (call.func_name.as_str(), target.size);
    match (name, args) {
        ("startsWith" | "endsWith", [part]) => traversed(part.shape.size.1),
        ("contains", [part]) => {
            let cost = tenths(max).saturating_mul(tenths(part.shape.size.1));
            Estimate { cost, shape: Shape::scalar() }
        }
        ("matches" | "find" | "findAll", [pattern, ..]) => {
            let kind = if name == "findAll" { Kind::List } else { Kind::Text };
            let shape = if name == "matches" { Shape::scalar() } else { Shape::sized(kind, 0, max) };
            let cost = tenths(max.saturating_add(1)).saturating_mul(pattern.shape.size.1.div_ceil(4));
            Estimate { cost, shape }
        }
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
        ("split", _) => {
            Estimate { cost: fifths(max), shape: Shape::sized(Kind::List, 0, number(call, 1).unwrap_or(max)) }
        }
        ("join", _) => {
            let separator = args.first().map_or(0, |it| it.shape.size.1);
            let items = max.saturating_mul(item_size(target));
            let size = items.saturating_add(max.saturating_sub(1).saturating_mul(separator));
            Estimate { cost: tenths(size), shape: Shape::sized(Kind::Text, 0, size) }
        }
        ("format", _) => Estimate { cost: tenths(max), shape: result(name) },
        // The longest pattern of a format counts 32 units.
        ("validate", [text]) => {
            Estimate { cost: tenths(text.shape.size.1).saturating_mul(32), shape: result(name) }
        }
        // The addresses of both have up to 16 bytes. A string is parsed as well.
        ("containsIP", [other]) => addresses_compared(4, &other.shape),
        ("containsCIDR", [other]) => addresses_compared(7, &other.shape),
        _ => of_list(call, target, args),
    }
}

/// Functions of lists, and all others of which a call costs 1.
fn of_list<'s>(call: &CallExpr, target: &Shape<'s>, args: &[Estimate<'s>]) -> Estimate<'s> {
    let (name, max) = (call.func_name.as_str(), target.size.1);
    match (name, args) {
        ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", _) => {
            let cost = match target.kind {
                Kind::Text => tenths(max),
                _ if has_texts(target) => max.saturating_mul(tenths(item_size(target)).saturating_add(1)),
                _ => max,
            };
            Estimate { cost, shape: Shape::scalar() }
        }
        ("reverse" | "flatten", []) => allocated(max, 1),
        ("flatten", [_]) => allocated(max, number(call, 0).unwrap_or(u64::MAX)),
        ("slice", [_, _]) => {
            let (start, end) = (number(call, 0).unwrap_or(0), number(call, 1).unwrap_or(max));
            allocated(end.saturating_sub(start), 1)
        }
        ("distinct", []) => compared_with_each_other(max, false),
        ("sort", []) => compared_with_each_other(max, has_texts(target)),
        ("@sortByAssociatedKeys", [keys]) => compared_with_each_other(keys.shape.size.1, false),
        _ => Estimate { cost: 1, shape: result(name) },
    }
}

/// Reads all of a text.
fn traversed(size: u64) -> Estimate<'static> {
    Estimate { cost: tenths(size), shape: Shape::scalar() }
}

/// Compares each item of a list with each one of another list.
fn pairs(a: &Shape<'_>, b: &Shape<'_>, factor: u64) -> Estimate<'static> {
    let cost = a.size.1.saturating_mul(b.size.1).saturating_mul(factor).saturating_add(1);
    Estimate { cost, shape: Shape::scalar() }
}

fn addresses_compared(cost: u64, other: &Shape<'_>) -> Estimate<'static> {
    let parsing = if other.kind == Kind::Scalar { 0 } else { tenths(other.size.1) };
    Estimate { cost: parsing.saturating_add(cost), shape: Shape::scalar() }
}

/// A new list of this size.
fn allocated(size: u64, factor: u64) -> Estimate<'static> {
    Estimate {
        cost: size.saturating_mul(factor).saturating_add(11),
        shape: Shape::sized(Kind::List, 0, size),
    }
}

/// A new list, for which the items of another one are compared with each other. kube-apiserver takes the number of comparisons
/// for its size.
fn compared_with_each_other(size: u64, are_texts: bool) -> Estimate<'static> {
    let square = size.saturating_mul(size);
    let texts = if are_texts { tenths(square) } else { 0 };
    let Estimate { cost, shape } = allocated(square, 2);
    Estimate { cost: cost.saturating_add(texts), shape }
}

/// An argument that is a literal integer.
fn number(call: &CallExpr, index: usize) -> Option<u64> {
    match &call.args.get(index)?.expr {
        Expr::Literal(LiteralValue::Int(number)) => Some(u64::try_from(*number.inner()).unwrap_or(0)),
        _ => None,
    }
}

fn is_bytes(schema: Option<&Schema>) -> bool {
    let checks = schema.filter(|it| it.kind == Type::String).and_then(|it| it.checks.as_ref());
    checks.is_some_and(|it| it.format == "byte")
}

/// Whether an argument of a conversion is bytes.
fn are_bytes(argument: Option<&IdedExpr>, shape: &Shape<'_>) -> bool {
    match argument.map(|it| &it.expr) {
        Some(Expr::Literal(LiteralValue::Bytes(_))) => true,
        Some(Expr::Call(call)) if call.func_name == "bytes" => true,
        _ => is_bytes(shape.schema),
    }
}

fn has_texts(list: &Shape<'_>) -> bool {
    let items = list.schema.and_then(|it| it.items.as_deref());
    items.is_some_and(|it| declared(it, false).kind == Kind::Text)
}

fn item_size(list: &Shape<'_>) -> u64 {
    let declared = list.schema.and_then(|it| it.items.as_deref()).and_then(max_elements);
    declared.unwrap_or(u64::MAX)
}

/// The result of a function whose size depends on nothing known.
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

fn union<'s>(yes: &Shape<'s>, no: &Shape<'s>) -> Shape<'s> {
    let kind = if yes.kind == Kind::Unknown { no.kind } else { yes.kind };
    let items = yes.items.zip(no.items).map(|(yes, no)| yes.max(no));
    let size = (yes.size.0.min(no.size.0), yes.size.1.max(no.size.1));
    Shape { kind, size, items, ..UNKNOWN }
}

fn tenths(size: u64) -> u64 {
    size.div_ceil(10)
}

fn fifths(size: u64) -> u64 {
    size.div_ceil(5)
}
