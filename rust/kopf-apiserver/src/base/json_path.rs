//! `JSONPath`, as far as CRDs use it.

use serde_json::Value;

/// Value at a `JSONPath` of the subset of printer columns: names, indices, and filters by equality.
pub(crate) fn find<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    let mut value = object;
    let mut rest = path.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let end = inner.find(']')?;
            let (subscript, tail) = (inner.get(..end)?, inner.get(end + 1..)?);
            rest = tail;
            value = select(value, subscript)?;
            continue;
        }
        let name_on = rest.strip_prefix('.').unwrap_or(rest);
        let mut name = String::new();
        let mut chars = name_on.char_indices();
        let mut end = name_on.len();
        while let Some((i, c)) = chars.next() {
            match c {
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                '.' | '[' => {
                    end = i;
                    break;
                }
                c => name.push(c),
            }
        }
        value = value.get(&name)?;
        rest = name_on.get(end..)?;
    }
    Some(value)
}

fn select<'v>(value: &'v Value, subscript: &str) -> Option<&'v Value> {
    if let Some(filter) = subscript.strip_prefix("?(@.") {
        let (key, expected) = filter.trim_end_matches(')').split_once("==")?;
        let expected = expected.trim().trim_matches(['"', '\'']);
        return value.as_array()?.iter().find(|item| {
            item.get(key.trim())
                .is_some_and(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned) == expected)
        });
    }
    match subscript.trim_matches(['"', '\'']) {
        "*" => value.as_array()?.first(),
        name => {
            value.as_array().map_or_else(|| value.get(name), |list| list.get(name.parse::<usize>().ok()?))
        }
    }
}
