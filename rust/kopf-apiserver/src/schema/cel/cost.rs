//! Cost limits of CEL rules: for each evaluation, and for all rules of one object.
//!
//! The CEL library has no limits: nested macros or concatenations could take hours or all memory. Expressions are
//! therefore rewritten: ranges of iterations and arguments of functions pass through functions that count. A unit is
//! about one evaluation step, or 16 bytes read or copied. The weights differ from those of kube-apiserver; its limits
//! are the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cel::Context;
use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue,
    MapEntryExpr, MapExpr, SelectExpr, operators,
};
use cel::common::types::{CelBytes, CelInt, CelList, CelMap, CelString};
use cel::common::value::Val;
use tokio::time::Instant;

use super::comprehensions::with_one_variable;
use super::lists::{EQUALS, Function, KeyedList};
use super::texts::{INDEX_OF, LAST_INDEX_OF, SHOWN};

/// Cost limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Limit of one evaluation.
    pub(crate) call: u64,
    /// Limit of all rules of one object.
    pub(crate) object: u64,
    /// Limit of time: some functions take longer than the size of their arguments suggests, e.g. compiling regular
    /// expressions.
    pub(crate) time: Duration,
}

/// Limits of kube-apiserver.
pub(crate) const LIMITS: Limits =
    Limits { call: 1_000_000, object: 10_000_000, time: Duration::from_secs(10) };

/// Bytes per unit, and the bytes that a number or an item counts.
const UNIT: u64 = 16;
/// Counting functions, which return their first argument. Expressions cannot contain such names. They count the size of
/// the argument, the product of two sizes, the number of its items with the size of another argument each, the square of the
/// size, and the number itself.
const CHARGE: &str = "@charge";
const CHARGE_PRODUCT: &str = "@charge_product";
const CHARGE_PAIRS: &str = "@charge_pairs";
const CHARGE_SQUARE: &str = "@charge_square";
const CHARGE_NUMBER: &str = "@charge_number";

/// The variable of an argument that is both counted and read. Expressions cannot contain such a name.
const BOUND: &str = "@bound";

/// `matches` with patterns in the syntax of Go.
pub(super) const MATCHES: &str = "@matches";

/// Cost meter of one object's rules.
#[derive(Debug)]
pub(crate) struct Meter {
    limits: Limits,
    deadline: Instant,
    /// Remaining units of all rules.
    left: u64,
    call: Arc<AtomicU64>,
    call_limit: u64,
}

/// Exceeded limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exceeded {
    Call,
    Object,
}

impl Meter {
    pub(crate) fn new(limits: Limits) -> Self {
        let call = Arc::new(AtomicU64::new(0));
        Self { limits, deadline: Instant::now() + limits.time, left: limits.object, call, call_limit: 0 }
    }

    /// Starts an evaluation in this context.
    pub(crate) fn begin(&mut self, context: &mut Context<'_, '_>) {
        self.call_limit = self.limits.call.min(self.left);
        // A new counter: functions of previous contexts keep theirs.
        self.call = Arc::new(AtomicU64::new(self.call_limit));
        for (name, cost) in COSTS {
            let (left, deadline) = (Arc::clone(&self.call), self.deadline);
            let count: Function = Box::new(move |call| {
                let before = left.load(Ordering::Relaxed);
                let values: Vec<&dyn Val> = call.args.iter().map(AsRef::as_ref).collect();
                let after = before.checked_sub(cost(&values, before)).filter(|_| Instant::now() < deadline);
                left.store(after.unwrap_or(0), Ordering::Relaxed);
                after.filter(|left| *left > 0).ok_or_else(|| call.error("actual cost limit exceeded"))?;
                let mut arguments = std::mem::take(&mut call.args);
                arguments.truncate(1);
                arguments.pop().ok_or_else(|| call.error("no value"))
            });
            // No library has a function of this name.
            let _ = context.add_function(name, count);
        }
    }

    /// Ends the evaluation. Returns the exceeded limit.
    pub(crate) fn end(&mut self) -> Option<Exceeded> {
        let unused = self.call.load(Ordering::Relaxed);
        self.left = self.left.saturating_sub(self.call_limit - unused);
        if unused > 0 {
            None
        } else if self.call_limit < self.limits.call {
            Some(Exceeded::Object)
        } else {
            Some(Exceeded::Call)
        }
    }
}

type Cost = fn(&[&dyn Val], u64) -> u64;

const COSTS: [(&str, Cost); 5] = [
    (CHARGE, |values, limit| values.first().map_or(1, |value| units(*value, limit))),
    (CHARGE_PRODUCT, |values, limit| {
        values.iter().map(|value| units(*value, limit).saturating_mul(UNIT)).fold(1, u64::saturating_mul)
            / UNIT
    }),
    (CHARGE_PAIRS, |values, limit| match values {
        [list, other] => items(*list).saturating_mul(units(*other, limit)).max(1),
        _ => 1,
    }),
    (CHARGE_SQUARE, |values, limit| {
        let units = values.first().map_or(1, |value| units(*value, limit));
        units.saturating_mul(units)
    }),
    (CHARGE_NUMBER, |values, _| {
        let number =
            values.first().and_then(|value| value.downcast_ref::<CelInt>().map(|number| *number.inner()));
        number.and_then(|number| u64::try_from(number).ok()).unwrap_or(0).saturating_add(1)
    }),
];

/// The number of items of a list.
fn items(value: &dyn Val) -> u64 {
    value.as_sizer().and_then(|list| u64::try_from(*list.size().inner()).ok()).unwrap_or(0)
}

/// Units for reading or copying a value. Measuring stops above the limit.
fn units(value: &dyn Val, limit: u64) -> u64 {
    let mut bytes = UNIT;
    measure(value, limit.saturating_mul(UNIT), &mut bytes);
    bytes / UNIT
}

fn measure(value: &dyn Val, limit: u64, bytes: &mut u64) {
    if *bytes > limit {
        return;
    }
    let length = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        *bytes = bytes.saturating_add(length(text.inner().len()));
    } else if let Some(data) = value.downcast_ref::<CelBytes<'_>>() {
        *bytes = bytes.saturating_add(length(data.inner().len()));
    } else if let Some(list) = value.downcast_ref::<CelList<'_>>() {
        measure_items(list.inner(), limit, bytes);
    } else if let Some(list) = value.downcast_ref::<KeyedList>() {
        measure_items(list.items(), limit, bytes);
    } else if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        for (key, item) in map.inner() {
            *bytes += UNIT;
            measure(key.inner(), limit, bytes);
            measure(item.as_ref(), limit, bytes);
        }
    }
}

fn measure_items(items: &[Box<dyn Val + '_>], limit: u64, bytes: &mut u64) {
    for item in items {
        *bytes += UNIT;
        measure(item.as_ref(), limit, bytes);
    }
}

/// Rewrites an expression with counting. `variables` are names of values; other names are prefixes of functions.
pub(crate) fn metered(expression: &IdedExpr, variables: &[&str]) -> IdedExpr {
    let mut scope: Vec<String> = variables.iter().map(|&name| name.to_owned()).collect();
    rewrite(expression, &mut scope)
}

fn rewrite(expression: &IdedExpr, scope: &mut Vec<String>) -> IdedExpr {
    let expr = match &expression.expr {
        Expr::Call(call) => rewrite_call(call, scope),
        Expr::Comprehension(it) => match with_one_variable(it, scope.len()) {
            Some(expr) => return rewrite(&IdedExpr { id: expression.id, expr }, scope),
            None => Expr::Comprehension(Box::new(rewrite_loop(it, scope))),
        },
        Expr::List(list) => Expr::List(ListExpr {
            elements: list.elements.iter().map(|element| charged(element, scope)).collect(),
            optional_indices: list.optional_indices.clone(),
        }),
        Expr::Map(map) => Expr::Map(MapExpr {
            entries: map.entries.iter().map(|entry| rewrite_entry(entry, scope)).collect(),
        }),
        // A chain of names, or a field of another expression.
        Expr::Select(select) if root(&expression.expr).is_none() => Expr::Select(SelectExpr {
            operand: Box::new(rewrite(&select.operand, scope)),
            field: select.field.clone(),
            test: select.test,
        }),
        // No struct types are declared.
        other @ (Expr::Select(_)
        | Expr::Ident(_)
        | Expr::Literal(_)
        | Expr::Struct(_)
        | Expr::Unspecified) => other.clone(),
    };
    IdedExpr { id: expression.id, expr }
}

fn rewrite_call(call: &CallExpr, scope: &mut Vec<String>) -> Expr {
    // These read a part of their arguments only.
    let cheap = [
        operators::CONDITIONAL,
        operators::LOGICAL_AND,
        operators::LOGICAL_OR,
        operators::LOGICAL_NOT,
        operators::NOT_STRICTLY_FALSE,
        operators::INDEX,
        operators::OPT_INDEX,
        operators::OPT_SELECT,
        "size",
    ];
    let name = call.func_name.as_str();
    let (mut args, mut target): (Vec<IdedExpr>, Option<IdedExpr>) = if cheap.contains(&name) {
        (
            call.args.iter().map(|it| rewrite(it, scope)).collect(),
            call.target.as_deref().map(|it| rewrite(it, scope)),
        )
    } else {
        (
            call.args.iter().map(|it| charged(it, scope)).collect(),
            call.target.as_deref().map(|it| charged(it, scope)),
        )
    };
    // Some results are larger, or take longer, than their arguments together.
    let mut bound = None;
    match (name, &mut target, args.as_mut_slice()) {
        ("join", Some(list), [separator]) => bound = Some(charge_both(list, CHARGE_PRODUCT, separator)),
        ("replace", Some(text), [_, new, ..]) => bound = Some(charge_both(text, CHARGE_PRODUCT, new)),
        // Of `sets`, which compare each item with each other one.
        ("contains" | "equivalent" | "intersects", Some(_), [a, b]) => {
            bound = Some(charge_both(a, CHARGE_PAIRS, b));
        }
        ("distinct", Some(list), []) => charge(list, CHARGE_SQUARE, None),
        ("range", Some(_), [count]) => charge(count, CHARGE_NUMBER, None),
        _ => {}
    }
    let call = Expr::Call(with_own_functions(name, target, args));
    match bound {
        Some(value) => binding(value, call),
        None => call,
    }
}

/// A call, of the functions of this module's siblings in place of those of the library.
fn with_own_functions(name: &str, target: Option<IdedExpr>, args: Vec<IdedExpr>) -> CallExpr {
    let call = |name: &str, target: Option<IdedExpr>, args| CallExpr {
        func_name: name.to_owned(),
        target: target.map(Box::new),
        args,
    };
    match name {
        // The library's patterns have the syntax of Rust.
        "matches" => call(MATCHES, target, args),
        "indexOf" => call(INDEX_OF, target, args),
        "lastIndexOf" => call(LAST_INDEX_OF, target, args),
        "format" => {
            let shown =
                args.into_iter().map(|it| IdedExpr { id: 0, expr: Expr::Call(call(SHOWN, None, vec![it])) });
            call(name, target, shown.collect())
        }
        operators::EQUALS => call(EQUALS, target, args),
        operators::NOT_EQUALS => {
            let equals = Expr::Call(call(EQUALS, target, args));
            call(operators::LOGICAL_NOT, None, vec![IdedExpr { id: 0, expr: equals }])
        }
        _ => call(name, target, args),
    }
}

/// Wraps an expression into a counting function, with another argument if given.
fn charge(expression: &mut IdedExpr, function: &str, other: Option<IdedExpr>) {
    let id = expression.id;
    let args = [std::mem::take(expression)].into_iter().chain(other).collect();
    *expression =
        IdedExpr { id, expr: Expr::Call(CallExpr { func_name: function.to_owned(), target: None, args }) };
}

/// Wraps an expression into a function that counts it together with another argument of the call. The call reads that one
/// from `BOUND`; returns its value. A copy of it would double nested calls at each level.
fn charge_both(expression: &mut IdedExpr, function: &str, other: &mut IdedExpr) -> IdedExpr {
    let name = IdedExpr { id: other.id, expr: Expr::Ident(BOUND.to_owned()) };
    charge(expression, function, Some(name.clone()));
    std::mem::replace(other, name)
}

/// `cel.bind(BOUND, value, result)`. Bindings in the value are outside of its scope, and those in the result hide it only
/// within themselves.
fn binding(value: IdedExpr, result: Expr) -> Expr {
    let make = |expr| IdedExpr { id: 0, expr };
    Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: make(Expr::List(ListExpr::default())),
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: BOUND.to_owned(),
        accu_init: value,
        loop_cond: make(Expr::Literal(LiteralValue::Boolean(false.into()))),
        loop_step: make(Expr::Ident(BOUND.to_owned())),
        result: make(result),
    }))
}

fn rewrite_loop(it: &ComprehensionExpr, scope: &mut Vec<String>) -> ComprehensionExpr {
    let (iter_range, accu_init) = (charged(&it.iter_range, scope), rewrite(&it.accu_init, scope));
    let outside = scope.len();
    scope.extend([it.iter_var.clone()].into_iter().chain(it.iter_var2.clone()));
    let inside = ComprehensionExpr {
        iter_range,
        accu_init,
        iter_var: it.iter_var.clone(),
        iter_var2: it.iter_var2.clone(),
        accu_var: it.accu_var.clone(),
        loop_cond: rewrite(&it.loop_cond, scope),
        loop_step: rewrite(&it.loop_step, scope),
        result: rewrite(&it.result, scope),
    };
    scope.truncate(outside);
    inside
}

fn rewrite_entry(entry: &IdedEntryExpr, scope: &mut Vec<String>) -> IdedEntryExpr {
    let expr = match &entry.expr {
        EntryExpr::MapEntry(entry) => EntryExpr::MapEntry(MapEntryExpr {
            key: charged(&entry.key, scope),
            value: charged(&entry.value, scope),
            optional: entry.optional,
        }),
        EntryExpr::StructField(field) => EntryExpr::StructField(field.clone()),
    };
    IdedEntryExpr { id: entry.id, expr }
}

/// Rewrites an expression and counts its value. Literals are free. Accumulators of macros are not wrapped: the library
/// appends to them in place if it detects the macro's pattern.
fn charged(expression: &IdedExpr, scope: &mut Vec<String>) -> IdedExpr {
    let mut inner = rewrite(expression, scope);
    let counts = match &expression.expr {
        Expr::Literal(_) | Expr::List(_) | Expr::Map(_) | Expr::Unspecified => false,
        other => root(other).is_none_or(|name| scope.iter().any(|known| known == name)),
    };
    if counts {
        charge(&mut inner, CHARGE, None);
    }
    inner
}

/// First name of a chain of names: a variable, or the prefix of a function's name.
fn root(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Ident(name) => Some(name),
        Expr::Select(select) => root(&select.operand.expr),
        _ => None,
    }
}
