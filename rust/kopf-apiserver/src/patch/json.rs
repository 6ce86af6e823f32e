//! RFC 6902, with the limits that Kubernetes sets.

use serde_json::Value;

/// Operations in one patch.
const LIMIT: usize = 10_000;

/// Why a patch was refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is no list of operations.
    Malformed(String),
    /// An operation cannot be carried out, or a test failed.
    Inapplicable,
    TooMany(usize),
}

/// Applies all operations or none.
pub(crate) fn apply(target: &mut Value, patch: &Value) -> Result<(), Refused> {
    let Value::Array(operations) = patch else {
        let found = if patch.is_object() { "object" } else { "value" };
        let text = format!("json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp");
        return Err(Refused::Malformed(text));
    };
    if operations.len() > LIMIT {
        return Err(Refused::TooMany(operations.len()));
    }
    let mut copy = target.clone();
    for operation in operations {
        step(&mut copy, operation).ok_or(Refused::Inapplicable)?;
    }
    *target = copy;
    Ok(())
}

fn step(target: &mut Value, operation: &Value) -> Option<()> {
    let text = |key: &str| operation.get(key).and_then(Value::as_str);
    let path = tokens(text("path")?)?;
    match text("op")? {
        "add" => add(target, &path, operation.get("value").cloned().unwrap_or_default()),
        "remove" => remove(target, &path).map(|_| ()),
        "replace" => {
            let place = get_mut(target, &path)?;
            *place = operation.get("value").cloned().unwrap_or_default();
            Some(())
        }
        "move" => {
            let from = tokens(text("from")?)?;
            if path.len() > from.len() && path.starts_with(&from) {
                return None;
            }
            let value = remove(target, &from)?;
            add(target, &path, value)
        }
        "copy" => {
            let value = get_mut(target, &tokens(text("from")?)?)?.clone();
            add(target, &path, value)
        }
        "test" => {
            let wanted = operation.get("value").unwrap_or(&Value::Null);
            match get_mut(target, &path) {
                Some(found) => same(found, wanted).then_some(()),
                None => wanted.is_null().then_some(()),
            }
        }
        _ => None,
    }
}

/// Equal as JSON: numbers by value, members in any order.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64(),
        _ => a == b,
    }
}

fn tokens(pointer: &str) -> Option<Vec<String>> {
    if pointer.is_empty() {
        return Some(Vec::new());
    }
    let rest = pointer.strip_prefix('/')?;
    Some(rest.split('/').map(|t| t.replace("~1", "/").replace("~0", "~")).collect())
}

fn index(token: &str, len: usize) -> Option<usize> {
    match token.strip_prefix('-') {
        // Negative indices count from the end.
        Some(back) if !back.is_empty() => len.checked_sub(back.parse().ok()?),
        _ => token.parse().ok(),
    }
}

fn get_mut<'v>(target: &'v mut Value, path: &[String]) -> Option<&'v mut Value> {
    let mut at = target;
    for token in path {
        at = match at {
            Value::Object(map) => map.get_mut(token)?,
            Value::Array(list) => {
                let i = index(token, list.len())?;
                list.get_mut(i)?
            }
            _ => return None,
        };
    }
    Some(at)
}

fn add(target: &mut Value, path: &[String], value: Value) -> Option<()> {
    let Some((last, parents)) = path.split_last() else {
        *target = value;
        return Some(());
    };
    match get_mut(target, parents)? {
        Value::Object(map) => {
            map.insert(last.clone(), value);
        }
        Value::Array(list) if last == "-" => list.push(value),
        Value::Array(list) => {
            let i = index(last, list.len())?;
            if i > list.len() {
                return None;
            }
            list.insert(i, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(target: &mut Value, path: &[String]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    match get_mut(target, parents)? {
        Value::Object(map) => map.shift_remove(last),
        Value::Array(list) => {
            let i = index(last, list.len())?;
            (i < list.len()).then(|| list.remove(i))
        }
        _ => None,
    }
}
