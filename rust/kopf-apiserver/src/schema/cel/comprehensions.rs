//! Comprehensions with two variables: `all(key, value, …)`, `transformMap` and others. The CEL library has only those with
//! one, so they are rewritten: the variable has the pairs of keys and values.

use std::collections::HashMap;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue,
    MapEntryExpr, MapExpr, SelectExpr, operators,
};
use cel::common::types::{CelInt, CelList, CelMap, CelMapKey, Kind};
use cel::common::value::{CowVal, Val};
use cel::parser::{Macro, MacroExprHelper, ParseError};
use cel::{Context, Env, ExecutionError};

use super::lists::Function;

const ACCUMULATOR: &str = "@result";
/// Adds an entry to the accumulated map.
pub(super) const MAP_INSERT: &str = "cel.@mapInsert";
/// The pairs of a list or a map.
const PAIRS: &str = "@pairs";
/// A map of pairs, and of maps.
const MAP_OF_PAIRS: &str = "@map_of_pairs";

type Expanded = Result<Option<IdedExpr>, ParseError>;

/// Adds the macros.
pub(super) fn add_macros(env: &mut Env) {
    for (name, counts) in [
        ("all", &[3][..]),
        ("exists", &[3]),
        ("existsOne", &[3]),
        ("exists_one", &[3]),
        ("transformList", &[3, 4]),
        ("transformMap", &[3, 4]),
        ("transformMapEntry", &[3, 4]),
    ] {
        for count in counts {
            let expand =
                move |helper: &mut MacroExprHelper<'_>,
                      target: &mut Option<IdedExpr>,
                      args: &mut Vec<IdedExpr>| { expand(name, helper, target, args) };
            // Fails only if the library has the macro already.
            let _ = env.add_macro(Macro::receiver(name, *count, expand));
        }
    }
}

fn expand(
    name: &str,
    helper: &mut MacroExprHelper<'_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
) -> Expanded {
    let (key, value) = match args.as_slice() {
        [key, value, ..] => (variable(helper, key)?, variable(helper, value)?),
        _ => return Ok(None),
    };
    if key == value {
        let id = args.get(1).map_or(0, |it| it.id);
        return Err(helper.new_error(id, format!("duplicate variable name: {key}")));
    }
    let (Some(iter_range), Some(body)) = (target.take(), args.pop()) else { return Ok(None) };
    let filter = if args.len() == 3 { args.pop() } else { None };
    let mut make = |expr: Expr| helper.next_expr(expr);
    let yes = make(Expr::Literal(LiteralValue::Boolean(true.into())));
    let (accu_init, loop_cond, step, result) = match name {
        "all" => {
            let accumulated = accumulator(&mut make);
            let condition = call(&mut make, operators::NOT_STRICTLY_FALSE, vec![accumulated]);
            let accumulated = accumulator(&mut make);
            let step = call(&mut make, operators::LOGICAL_AND, vec![accumulated, body]);
            (yes, condition, step, accumulator(&mut make))
        }
        "exists" => {
            let accumulated = accumulator(&mut make);
            let negated = call(&mut make, operators::LOGICAL_NOT, vec![accumulated]);
            let condition = call(&mut make, operators::NOT_STRICTLY_FALSE, vec![negated]);
            let accumulated = accumulator(&mut make);
            let step = call(&mut make, operators::LOGICAL_OR, vec![accumulated, body]);
            let no = make(Expr::Literal(LiteralValue::Boolean(false.into())));
            (no, condition, step, accumulator(&mut make))
        }
        "existsOne" | "exists_one" => {
            let mut number = |it: i64| make(Expr::Literal(LiteralValue::Int(it.into())));
            let (zero, one, expected) = (number(0), number(1), number(1));
            let accumulated = accumulator(&mut make);
            let more = call(&mut make, operators::ADD, vec![accumulated, one]);
            let accumulated = accumulator(&mut make);
            let step = call(&mut make, operators::CONDITIONAL, vec![body, more, accumulated]);
            let accumulated = accumulator(&mut make);
            let result = call(&mut make, operators::EQUALS, vec![accumulated, expected]);
            (zero, yes, step, result)
        }
        _ => {
            let (init, step) = transformation(name, &key, body, &mut make);
            let step = match filter {
                Some(filter) => {
                    let accumulated = accumulator(&mut make);
                    call(&mut make, operators::CONDITIONAL, vec![filter, step, accumulated])
                }
                None => step,
            };
            (init, yes, step, accumulator(&mut make))
        }
    };
    let loop_step = step;
    Ok(Some(make(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range,
        iter_var: key,
        iter_var2: Some(value),
        accu_var: ACCUMULATOR.to_owned(),
        accu_init,
        loop_cond,
        loop_step,
        result,
    })))))
}

/// The first value and the step of a macro that transforms items.
fn transformation(
    name: &str,
    key: &str,
    body: IdedExpr,
    make: &mut impl FnMut(Expr) -> IdedExpr,
) -> (IdedExpr, IdedExpr) {
    let accumulated = accumulator(make);
    if name == "transformList" {
        let items = make(Expr::List(ListExpr::new(vec![body])));
        let step = call(make, operators::ADD, vec![accumulated, items]);
        return (make(Expr::List(ListExpr::default())), step);
    }
    let args = if name == "transformMap" {
        vec![accumulated, make(Expr::Ident(key.to_owned())), body]
    } else {
        vec![accumulated, body]
    };
    let step = call(make, MAP_INSERT, args);
    (make(Expr::Map(MapExpr::default())), step)
}

fn variable(helper: &MacroExprHelper<'_>, argument: &IdedExpr) -> Result<String, ParseError> {
    match &argument.expr {
        Expr::Ident(name) => Ok(name.clone()),
        _ => Err(helper.new_error(argument.id, "argument must be a simple name")),
    }
}

fn accumulator(make: &mut impl FnMut(Expr) -> IdedExpr) -> IdedExpr {
    make(Expr::Ident(ACCUMULATOR.to_owned()))
}

fn call(make: &mut impl FnMut(Expr) -> IdedExpr, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    make(Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
}

/// The same comprehension with one variable, whose name differs with the number of variables around; `None` if it has one.
pub(super) fn with_one_variable(it: &ComprehensionExpr, outside: usize) -> Option<Expr> {
    let second = it.iter_var2.as_ref()?;
    let variable = format!("@pair{outside}");
    let part = |index: i64| {
        let args = [Expr::Ident(variable.clone()), Expr::Literal(LiteralValue::Int(index.into()))];
        let args = args.map(|expr| IdedExpr { id: 0, expr }).into();
        Expr::Call(CallExpr { func_name: operators::INDEX.to_owned(), target: None, args })
    };
    let mut parts = HashMap::from([(it.iter_var.clone(), part(0)), (second.clone(), part(1))]);
    parts.remove(&it.accu_var);
    let is_map = matches!(it.accu_init.expr, Expr::Map(_));
    let mut make = |expr: Expr| IdedExpr { id: it.iter_range.id, expr };
    let step = substituted(&it.loop_step, &parts);
    let one = ComprehensionExpr {
        iter_range: call(&mut make, PAIRS, vec![it.iter_range.clone()]),
        iter_var: variable.clone(),
        iter_var2: None,
        accu_var: it.accu_var.clone(),
        accu_init: if is_map { make(Expr::List(ListExpr::default())) } else { it.accu_init.clone() },
        loop_cond: substituted(&it.loop_cond, &parts),
        loop_step: if is_map { with_entries_appended(step) } else { step },
        result: it.result.clone(),
    };
    let comprehension = Expr::Comprehension(Box::new(one));
    if !is_map {
        return Some(comprehension);
    }
    let entries = make(comprehension);
    Some(call(&mut make, MAP_OF_PAIRS, vec![entries]).expr)
}

/// A step that appends the entries to a list, in place of copies of a map.
fn with_entries_appended(step: IdedExpr) -> IdedExpr {
    let id = step.id;
    let mut make = |expr: Expr| IdedExpr { id, expr };
    let Expr::Call(mut inner) = step.expr else { return step };
    if inner.func_name == MAP_INSERT {
        let mut args = inner.args.into_iter();
        let accumulated = args.next().unwrap_or_default();
        let entry = match (args.next(), args.next()) {
            (Some(key), Some(value)) => make(Expr::List(ListExpr::new(vec![key, value]))),
            (entries, _) => entries.unwrap_or_default(),
        };
        let items = make(Expr::List(ListExpr::new(vec![entry])));
        return call(&mut make, operators::ADD, vec![accumulated, items]);
    }
    inner.args = inner.args.into_iter().map(with_entries_appended).collect();
    make(Expr::Call(inner))
}

/// An expression with other expressions in place of variables.
fn substituted(expression: &IdedExpr, parts: &HashMap<String, Expr>) -> IdedExpr {
    let inner = |it: &IdedExpr| substituted(it, parts);
    let all = |list: &[IdedExpr]| list.iter().map(inner).collect();
    let expr = match &expression.expr {
        Expr::Ident(name) => parts.get(name).unwrap_or(&expression.expr).clone(),
        Expr::Select(it) => Expr::Select(SelectExpr {
            operand: Box::new(inner(&it.operand)),
            field: it.field.clone(),
            test: it.test,
        }),
        Expr::Call(it) => Expr::Call(CallExpr {
            func_name: it.func_name.clone(),
            target: it.target.as_deref().map(|target| Box::new(inner(target))),
            args: all(&it.args),
        }),
        Expr::List(it) => {
            Expr::List(ListExpr::new_with_optionals(all(&it.elements), it.optional_indices.clone()))
        }
        Expr::Map(it) => Expr::Map(MapExpr {
            entries: it.entries.iter().map(|entry| substituted_entry(entry, parts)).collect(),
        }),
        Expr::Comprehension(it) => {
            // Its own variables hide those outside.
            let without = |names: &[&String]| {
                let mut rest = parts.clone();
                rest.retain(|name, _| !names.contains(&name));
                rest
            };
            let own: Vec<&String> = [&it.iter_var, &it.accu_var].into_iter().chain(&it.iter_var2).collect();
            let inside = without(&own);
            Expr::Comprehension(Box::new(ComprehensionExpr {
                iter_range: inner(&it.iter_range),
                accu_init: inner(&it.accu_init),
                loop_cond: substituted(&it.loop_cond, &inside),
                loop_step: substituted(&it.loop_step, &inside),
                result: substituted(&it.result, &without(&[&it.accu_var])),
                iter_var: it.iter_var.clone(),
                iter_var2: it.iter_var2.clone(),
                accu_var: it.accu_var.clone(),
            }))
        }
        Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => expression.expr.clone(),
    };
    IdedExpr { id: expression.id, expr }
}

fn substituted_entry(entry: &IdedEntryExpr, parts: &HashMap<String, Expr>) -> IdedEntryExpr {
    let expr = match &entry.expr {
        EntryExpr::MapEntry(pair) => EntryExpr::MapEntry(MapEntryExpr {
            key: substituted(&pair.key, parts),
            value: substituted(&pair.value, parts),
            optional: pair.optional,
        }),
        EntryExpr::StructField(field) => EntryExpr::StructField(field.clone()),
    };
    IdedEntryExpr { id: entry.id, expr }
}

/// Adds the functions of rewritten comprehensions.
pub(super) fn add_functions(context: &mut Context) {
    let pairs_of: Function =
        Box::new(|call| pairs(call.args.first().ok_or_else(|| call.error("no value"))?.as_ref()));
    let map_of_pairs: Function =
        Box::new(|call| merged(call.args.first().ok_or_else(|| call.error("no value"))?.as_ref()));
    // No library has functions of these names.
    let _ = context.add_function(PAIRS, pairs_of);
    let _ = context.add_function(MAP_OF_PAIRS, map_of_pairs);
}

/// Pairs of indices and items, or of keys and values.
fn pairs<'b, 'v>(value: &(dyn Val + 'v)) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let no_overload = || ExecutionError::function_error(PAIRS, "no such overload");
    let mut items = value.as_iterable().ok_or_else(no_overload)?.iter();
    let map = value.downcast_ref::<CelMap<'_>>().map(CelMap::inner);
    let mut pairs: Vec<Box<dyn Val + 'v>> = Vec::new();
    let mut index = 0;
    while let Some(item) = items.next() {
        let pair = match map {
            Some(map) => {
                let key = CelMapKey::try_from(CowVal::Borrowed(item))?;
                let value = map.get(&key).ok_or_else(no_overload)?;
                vec![item.clone_as_boxed(), value.clone()]
            }
            None => vec![Box::new(CelInt::from(index)) as Box<dyn Val + 'v>, item.clone_as_boxed()],
        };
        pairs.push(Box::new(CelList::from(pair)));
        index += 1;
    }
    Ok(CowVal::owned(CelList::from(pairs)))
}

/// The map of pairs, and of the entries of maps.
fn merged<'b, 'v>(entries: &(dyn Val + 'v)) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let no_overload = || ExecutionError::function_error(MAP_INSERT, "no such overload");
    let mut merged: HashMap<CelMapKey<'v>, Box<dyn Val + 'v>> = HashMap::new();
    let mut insert = |key: CelMapKey<'v>, value: &(dyn Val + 'v)| {
        let shown = super::lists::shown_key(key.inner());
        if merged.insert(key, value.clone_as_boxed()).is_some() {
            let error = format!("insert failed: key {shown} already exists");
            return Err(ExecutionError::function_error(MAP_INSERT, error));
        }
        Ok(())
    };
    for entry in entries.downcast_ref::<CelList<'v>>().ok_or_else(no_overload)?.inner() {
        if entry.get_type().kind() == Kind::Map {
            for (key, value) in entry.downcast_ref::<CelMap<'v>>().ok_or_else(no_overload)?.inner() {
                insert(key.clone(), value.as_ref())?;
            }
        } else if let [key, value] = entry.downcast_ref::<CelList<'v>>().ok_or_else(no_overload)?.inner() {
            insert(CelMapKey::try_from(CowVal::Owned(key.clone()))?, value.as_ref())?;
        }
    }
    Ok(CowVal::owned(CelMap::from(merged)))
}
