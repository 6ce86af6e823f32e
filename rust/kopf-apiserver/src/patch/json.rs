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
    if let Some(odd) = operations.iter().find(|o| !o.is_object()) {
        let found = if odd.is_number() {
            "number"
        } else if odd.is_string() {
            "string"
        } else {
            "array"
        };
        let text = format!("json: cannot unmarshal {found} into Go value of type handlers.jsonPatchOp");
        return Err(Refused::Malformed(text));
    }
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
            let value = operation.get("value").cloned().unwrap_or_default();
            match get_mut(target, &path) {
                Some(place) => *place = value,
                // A missing member of a map is made, as the server's library does.
                None if path.last().is_some_and(|t| t.parse::<usize>().is_err()) => {
                    add(target, &path, value)?;
                }
                None => return None,
            }
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
    let Some((end, above)) = path.split_last() else {
        *target = value;
        return Some(());
    };
    match get_mut(target, above)? {
        Value::Object(map) => {
            map.insert(end.clone(), value);
        }
        Value::Array(list) if end == "-" => list.push(value),
        Value::Array(list) => {
            let i = index(end, list.len())?;
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
    let (end, above) = path.split_last()?;
    match get_mut(target, above)? {
        Value::Object(map) => map.shift_remove(end),
        Value::Array(list) => {
            let i = index(end, list.len())?;
            (i < list.len()).then(|| list.remove(i))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(before: Value, patch: &Value, wanted: Option<Value>) {
        let mut found = before.clone();
        let done = apply(&mut found, patch);
        assert_eq!(done.is_ok(), wanted.is_some(), "{patch}");
        assert_eq!(found, wanted.unwrap_or(before), "{patch}");
    }

    #[test]
    fn operations_are_all_or_nothing() {
        check(
            json!({"a": 1}),
            &json!([{"op": "add", "path": "/b", "value": 2}]),
            Some(json!({"a": 1, "b": 2})),
        );
        check(
            json!({"a": 1}),
            &json!([{"op": "remove", "path": "/a"}, {"op": "test", "path": "/a", "value": 1}]),
            None,
        );
        check(
            json!({"l": [1, 2]}),
            &json!([{"op": "add", "path": "/l/-", "value": 3}]),
            Some(json!({"l": [1, 2, 3]})),
        );
        check(json!({"l": [1, 2]}), &json!([{"op": "remove", "path": "/l/5"}]), None);
        check(
            json!({"a/b": 1}),
            &json!([{"op": "test", "path": "/a~1b", "value": 1.0}]),
            Some(json!({"a/b": 1})),
        );
        check(json!({"a": {"b": 1}}), &json!([{"op": "move", "from": "/a", "path": "/a/b"}]), None);
    }
}
