//! JSON patch (RFC 6902) with the limits of kube-apiserver.
//!
//! The crate `json-patch` is not used: patches of kube-apiserver replace absent members, accept negative indices, test
//! absent members for null, and limit the size of copies and the depth of results, all of which differ from the RFC.

use serde_json::Value;

use crate::base::json::DEPTH_LIMIT;

/// Maximum number of operations in a patch.
const LIMIT: usize = 10_000;
/// Maximum size of all copied values, in bytes of JSON, as in kube-apiserver.
const COPY_LIMIT: usize = 3 * 1024 * 1024;
/// Number of operations after which the depth of the result is checked.
const DEPTH_CHECKED_AFTER: usize = 16;

/// Error of a JSON patch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PatchError {
    /// The patch is not a list of operations.
    Malformed(String),
    /// An operation cannot be applied, or a test failed. The text is not in the answers to patches of clients.
    Inapplicable(String),
    TooMany(usize),
}

/// Applies all operations or none.
pub(crate) fn apply(target: &mut Value, patch: &Value) -> Result<(), PatchError> {
    let Value::Array(operations) = patch else {
        let found = if patch.is_object() { "object" } else { "value" };
        let text = format!("json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp");
        return Err(PatchError::Malformed(text));
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
        return Err(PatchError::Malformed(text));
    }
    if operations.len() > LIMIT {
        return Err(PatchError::TooMany(operations.len()));
    }
    let mut result = target.clone();
    let mut copied = 0;
    for some in operations.chunks(DEPTH_CHECKED_AFTER) {
        for operation in some {
            step(&mut result, operation, &mut copied).map_err(PatchError::Inapplicable)?;
        }
        if is_deeper(&result, DEPTH_LIMIT) {
            return Err(PatchError::Inapplicable("exceeded max depth".to_owned()));
        }
    }
    *target = result;
    Ok(())
}

/// Whether a value has more than `limit` levels of nesting.
fn is_deeper(value: &Value, limit: usize) -> bool {
    let below = |child: &Value| limit == 0 || is_deeper(child, limit - 1);
    match value {
        Value::Object(map) => limit == 0 || map.values().any(below),
        Value::Array(list) => limit == 0 || list.iter().any(below),
        _ => false,
    }
}

/// Length of a value as JSON, in bytes.
fn length(value: &Value) -> usize {
    struct Counter(usize);
    impl std::io::Write for Counter {
        fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
            self.0 += data.len();
            Ok(data.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // Neither serialization nor the counter can fail.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

/// Applies one operation. The error is the text of the library that kube-apiserver uses.
fn step(target: &mut Value, operation: &Value, copied: &mut usize) -> Result<(), String> {
    let text = |key: &str| operation.get(key).and_then(Value::as_str);
    let kind = text("op").unwrap_or("unknown");
    let Some(pointer) = text("path") else {
        return Err(format!("{kind} operation failed to decode path: missing value"));
    };
    let missing =
        |quoted: &str| format!("{kind} operation does not apply: doc is missing {quoted}: missing value");
    let path = tokens(pointer).filter(|path| path.len() <= DEPTH_LIMIT);
    let path = path.ok_or_else(|| missing(&format!("path: \"{pointer}\"")))?;
    let has_parent = path
        .split_last()
        .is_none_or(|(_, above)| get_mut(target, above).is_some_and(|it| it.is_object() || it.is_array()));
    match kind {
        "add" | "remove" if !has_parent => Err(missing(&format!("path: \"{pointer}\""))),
        "add" => add(target, &path, operation.get("value").cloned().unwrap_or_default())
            .map_err(|why| format!("error in add for path: '{pointer}': {why}")),
        "remove" => remove(target, &path)
            .map(|_| ())
            .map_err(|why| format!("error in remove for path: '{pointer}': {why}")),
        "replace" if !has_parent => Err(missing(&format!("path: {pointer}"))),
        "replace" => {
            let value = operation.get("value").cloned().unwrap_or_default();
            match get_mut(target, &path) {
                Some(place) => *place = value,
                // An absent member is added, as in kube-apiserver.
                None if path.last().is_some_and(|t| t.parse::<usize>().is_err()) => {
                    add(target, &path, value)?;
                }
                None => return Err(missing(&format!("key: {pointer}"))),
            }
            Ok(())
        }
        "move" => {
            let given = text("from").unwrap_or_default();
            let from = tokens(given).ok_or_else(|| missing(&format!("from path: {given}")))?;
            if path.len() > from.len() && path.starts_with(&from) {
                return Err(missing(&format!("destination path: {pointer}")));
            }
            let key = from.last().cloned().unwrap_or_default();
            let value =
                remove(target, &from).map_err(|why| format!("error in move for path: '{key}': {why}"))?;
            add(target, &path, value).map_err(|why| format!("error in move for path: '{pointer}': {why}"))
        }
        "copy" => {
            let given = text("from").unwrap_or_default();
            let source = tokens(given).and_then(|from| get_mut(target, &from));
            let source = source.ok_or_else(|| missing(&format!("from path: {given}")))?;
            *copied += length(source);
            if *copied > COPY_LIMIT {
                return Err(format!(
                    "Unable to copy, the accumulated size increase of copy is {copied}, exceeding the limit {COPY_LIMIT}"
                ));
            }
            let value = source.clone();
            add(target, &path, value).map_err(|why| format!("error while adding value during copy: {why}"))
        }
        "test" if !has_parent => {
            Err(format!("test operation does not apply: is missing path: {pointer}: missing value"))
        }
        "test" => {
            let expected = operation.get("value").unwrap_or(&Value::Null);
            let is_equal = match get_mut(target, &path) {
                Some(found) => same(found, expected),
                None => expected.is_null(),
            };
            if is_equal { Ok(()) } else { Err(format!("testing value {pointer} failed: test failed")) }
        }
        _ => Err(format!("Unexpected kind: {kind}")),
    }
}

/// JSON equality: numbers by value, members in any order.
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

fn add(target: &mut Value, path: &[String], value: Value) -> Result<(), String> {
    let Some((end, above)) = path.split_last() else {
        *target = value;
        return Ok(());
    };
    match get_mut(target, above) {
        Some(Value::Object(map)) => {
            map.insert(end.clone(), value);
        }
        Some(Value::Array(list)) if end == "-" => list.push(value),
        Some(Value::Array(list)) => {
            // Negative indices count from the end of the new list.
            let i = index(end, list.len() + 1).filter(|i| *i <= list.len());
            list.insert(i.ok_or_else(|| bad_index(end))?, value);
        }
        _ => return Err("missing value".to_owned()),
    }
    Ok(())
}

fn remove(target: &mut Value, path: &[String]) -> Result<Value, String> {
    let missing = || "missing value".to_owned();
    let (end, above) = path.split_last().ok_or_else(missing)?;
    match get_mut(target, above) {
        Some(Value::Object(map)) => map
            .shift_remove(end)
            .ok_or_else(|| format!("Unable to remove nonexistent key: {end}: missing value")),
        Some(Value::Array(list)) => {
            let i = index(end, list.len()).filter(|i| *i < list.len());
            i.map(|i| list.remove(i)).ok_or_else(|| bad_index(end))
        }
        _ => Err(missing()),
    }
}

/// Text about a token that is no index of a list.
fn bad_index(token: &str) -> String {
    match token.parse::<i64>() {
        Ok(index) => format!("Unable to access invalid index: {index}: invalid index referenced"),
        Err(_) => format!(
            "value was not a proper array index: '{token}': strconv.Atoi: parsing {}: invalid syntax",
            Value::from(token)
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(before: Value, patch: &Value, expected: Option<Value>) {
        let mut found = before.clone();
        let done = apply(&mut found, patch);
        assert_eq!(done.is_ok(), expected.is_some(), "{patch}");
        assert_eq!(found, expected.unwrap_or(before), "{patch}");
    }

    #[test]
    fn a_patch_is_applied_completely_or_not_at_all() {
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
        for (index, expected) in
            [("-1", json!([1, 2, 3])), ("-2", json!([1, 3, 2])), ("-3", json!([3, 1, 2]))]
        {
            let patch = json!([{"op": "add", "path": format!("/l/{index}"), "value": 3}]);
            check(json!({"l": [1, 2]}), &patch, Some(json!({"l": expected})));
        }
        check(json!({"l": [1, 2]}), &json!([{"op": "add", "path": "/l/-4", "value": 3}]), None);
        check(json!({"l": [1, 2]}), &json!([{"op": "remove", "path": "/l/-1"}]), Some(json!({"l": [1]})));
        check(json!({"l": [1, 2]}), &json!([{"op": "remove", "path": "/l/5"}]), None);
        check(
            json!({"a/b": 1}),
            &json!([{"op": "test", "path": "/a~1b", "value": 1.0}]),
            Some(json!({"a/b": 1})),
        );
        check(json!({"a": {"b": 1}}), &json!([{"op": "move", "from": "/a", "path": "/a/b"}]), None);
    }

    #[test]
    fn the_total_size_of_copies_is_limited() {
        let copy = |count| Value::from(vec![json!({"op": "copy", "from": "/a", "path": "/b"}); count]);
        let before = json!({"a": "x".repeat(1024 * 1024 - 2)});
        check(before.clone(), &copy(3), Some(json!({"a": before["a"], "b": before["a"]})));
        check(before, &copy(4), None);
        let doubling: Vec<_> =
            (0..30).map(|i| json!({"op": "copy", "from": "", "path": format!("/c{i}")})).collect();
        check(json!({"a": 1}), &doubling.into(), None);
    }

    #[test]
    fn the_depth_of_results_is_limited() {
        let nest = |levels| {
            let level = [
                json!({"op": "add", "path": "/b", "value": {}}),
                json!({"op": "move", "from": "/a", "path": "/b/c"}),
                json!({"op": "move", "from": "/b", "path": "/a"}),
            ];
            Value::from(vec![level; levels].concat())
        };
        let mut nested = json!({"a": 1});
        assert_eq!(apply(&mut nested, &nest(DEPTH_LIMIT - 1)), Ok(()));
        assert!(serde_json::from_str::<Value>(&nested.to_string()).is_ok());
        check(json!({"a": 1}), &nest(DEPTH_LIMIT), None);
        check(json!({"a": 1}), &nest(3_000), None);
    }
}
