//! Functions of kube-apiserver that the CEL library does not have, or has differently: for texts, lists and optional values.

use cel::common::types::{CelList, CelOptional, CelString, Kind};
use cel::common::value::{CowVal, Val};
use cel::{Context, ExecutionError};

use super::lists::{Function, converted, items};
use super::{Cel, formatting};

/// Positions in texts and lists.
pub(super) const INDEX_OF: &str = "@index_of";
pub(super) const LAST_INDEX_OF: &str = "@last_index_of";
/// The arguments of `format`, with texts in place of lists and maps.
pub(super) const SHOWN: &str = "@shown";

/// Adds the functions.
pub(super) fn add_functions(context: &mut Context<'_, '_>) {
    add(context, INDEX_OF, |values| index_of("indexOf", values));
    add(context, LAST_INDEX_OF, |values| index_of("lastIndexOf", values));
    for (name, is_first) in [("first", true), ("last", false)] {
        let raw: Function = Box::new(move |call| {
            let list = call.this.as_ref().and_then(|list| items(list.as_ref()));
            let list = list.ok_or_else(|| no_overload(name))?;
            let item = if is_first { list.first() } else { list.last() };
            let item = item.map(|item| item.clone_as_boxed());
            Ok(CowVal::owned(item.map_or_else(CelOptional::none, CelOptional::of)))
        });
        let _ = context.add_function(name, raw);
    }
    for name in ["optional.unwrap", "unwrapOpt"] {
        let raw: Function = Box::new(move |call| {
            let list = call.this.as_ref().or(call.args.first()).and_then(|list| items(list.as_ref()));
            let values = list
                .ok_or_else(|| no_overload(name))?
                .into_iter()
                .filter_map(|item| Some(item.downcast_ref::<CelOptional<'_>>()?.option()?.clone_as_boxed()));
            Ok(CowVal::owned(CelList::from(values.collect::<Vec<_>>())))
        });
        let _ = context.add_function(name, raw);
    }
    let shown: Function = Box::new(|call| {
        let list = call.args.first().and_then(|list| items(list.as_ref()));
        let shown: Result<Vec<_>, ExecutionError> = list
            .ok_or_else(|| no_overload("format"))?
            .into_iter()
            .map(|item| match item.get_type().kind() {
                Kind::List | Kind::Map => {
                    let text = formatting::shown(&converted(item)?).unwrap_or_default();
                    Ok(Box::new(CelString::from(text)) as Box<dyn Val + '_>)
                }
                _ => Ok(item.clone_as_boxed()),
            })
            .collect();
        Ok(CowVal::owned(CelList::from(shown?)))
    });
    let _ = context.add_function(SHOWN, shown);
}

/// Adds a function with the values of its target and arguments.
pub(super) fn add(
    context: &mut Context<'_, '_>,
    name: &str,
    function: impl Fn(&[Cel]) -> Result<Cel, ExecutionError> + Send + Sync + 'static,
) {
    let raw: Function = Box::new(move |call| {
        let values: Result<Vec<Cel>, _> =
            call.this.iter().chain(&call.args).map(|it| converted(it.as_ref())).collect();
        Ok(CowVal::Owned(function(&values?)?.try_into()?))
    });
    let _ = context.add_function(name, raw);
}

fn no_overload(name: &str) -> ExecutionError {
    ExecutionError::function_error(name, "no such overload")
}

/// The position of an item in a list, or of a text in another one; -1 if there is none.
fn index_of(name: &str, values: &[Cel]) -> Result<Cel, ExecutionError> {
    let is_last = name == "lastIndexOf";
    let position = match values {
        [Cel::List(list), item] if is_last => list.iter().rposition(|it| it == item),
        [Cel::List(list), item] => list.iter().position(|it| it == item),
        [Cel::String(text), Cel::String(part)] => text_position(text, part, None, is_last),
        [Cel::String(text), Cel::String(part), Cel::Int(offset)] => {
            let out_of_range =
                || ExecutionError::function_error(name, format!("index out of range: {offset}"));
            let offset = usize::try_from(*offset).map_err(|_| out_of_range())?;
            text_position(text, part, Some(offset), is_last)
        }
        _ => return Err(no_overload(name)),
    };
    Ok(Cel::Int(position.and_then(|it| i64::try_from(it).ok()).unwrap_or(-1)))
}

/// Positions are counted in characters. The offset is the first possible position, or with `is_last` the last one.
fn text_position(text: &str, part: &str, offset: Option<usize>, is_last: bool) -> Option<usize> {
    let length = text.chars().count();
    if part.is_empty() {
        return Some(offset.unwrap_or(if is_last { length } else { 0 }));
    }
    if offset.is_some_and(|offset| offset >= length) {
        return None;
    }
    let byte_at = |position: usize| text.char_indices().nth(position).map_or(text.len(), |(byte, _)| byte);
    let found = if is_last {
        let end = offset.map_or(text.len(), |offset| (byte_at(offset) + part.len()).min(text.len()));
        let end = (end..=text.len()).find(|end| text.is_char_boundary(*end))?;
        text.get(..end)?.rfind(part)
    } else {
        let start = offset.map_or(0, byte_at);
        text.get(start..)?.find(part).map(|found| found + start)
    };
    found.and_then(|byte| text.get(..byte)).map(|before| before.chars().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_those_of_kube_apiserver() {
        for (text, part, offset, first, last) in [
            ("héllo", "l", None, Some(2), Some(3)),
            ("héllo", "l", Some(3), Some(3), Some(3)),
            ("héllo", "l", Some(1), Some(2), None),
            ("héllo", "l", Some(2), Some(2), Some(2)),
            ("héllo", "l", Some(9), None, None),
            ("hello", "", Some(9), Some(9), Some(9)),
            ("hello", "", None, Some(0), Some(5)),
            ("", "l", Some(1), None, None),
            ("aaa", "aa", Some(1), Some(1), Some(1)),
        ] {
            let found = [false, true].map(|is_last| text_position(text, part, offset, is_last));
            assert_eq!(found, [first, last], "{text} {part} {offset:?}");
        }
    }
}
