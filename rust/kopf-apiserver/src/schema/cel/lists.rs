//! Lists of the types `set` and `map` in expressions: the order of their items does not matter for `==`, and `+` merges them.
//!
//! The CEL library compares lists item by item. Expressions are therefore rewritten to call `EQUALS`.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use cel::common::traits::{Adder, Container, Indexer, Iterable, Sizer, Zeroer};
use cel::common::types::{
    CelBool, CelBytes, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelString, CelUInt, Kind, LIST_TYPE,
    Type,
};
use cel::common::value::{CowVal, StaticVal, Val};
use cel::{Context, ExecutionError, FunctionContext};

use super::Cel;

/// Compares two values.
pub(super) const EQUALS: &str = "@equals";

/// A function that gets its arguments as they are.
pub(super) type Function = Box<
    dyn for<'c, 'v> Fn(&mut FunctionContext<'c, 'v>) -> Result<CowVal<'c, 'v>, ExecutionError> + Send + Sync,
>;

/// A list of the type `set` or `map`.
#[derive(Clone, Debug)]
pub(super) struct KeyedList {
    items: CelList<'static>,
    /// Names of the keys of items; empty for sets.
    keys: Arc<[String]>,
}

/// What identifies an item.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ItemKey {
    Absent,
    Bool(bool),
    Int(i64),
    UInt(u64),
    /// Its bits.
    Double(u64),
    Text(String),
    Bytes(Vec<u8>),
    Several(Vec<ItemKey>),
    /// Another value, as text.
    Other(String),
}

impl ItemKey {
    fn of(value: &dyn Val) -> Self {
        if let Some(text) = value.downcast_ref::<CelString<'_>>() {
            Self::Text(text.inner().to_owned())
        } else if let Some(number) = value.downcast_ref::<CelInt>() {
            Self::Int(*number.inner())
        } else if let Some(it) = value.downcast_ref::<CelBool>() {
            Self::Bool(*it.inner())
        } else if let Some(number) = value.downcast_ref::<CelDouble>() {
            Self::Double(number.inner().to_bits())
        } else if let Some(number) = value.downcast_ref::<CelUInt>() {
            Self::UInt(*number.inner())
        } else if let Some(data) = value.downcast_ref::<CelBytes<'_>>() {
            Self::Bytes(data.inner().to_vec())
        } else {
            Self::Other(format!("{value:?}"))
        }
    }
}

impl KeyedList {
    /// A set, or with the names of keys a list of the type `map`.
    pub(super) fn new(items: Vec<Box<dyn Val>>, keys: Arc<[String]>) -> Self {
        Self { items: CelList::from(items), keys }
    }

    pub(super) fn items(&self) -> &[Box<dyn Val>] {
        self.items.inner()
    }

    fn key(&self, item: &dyn Val) -> ItemKey {
        if self.keys.is_empty() {
            return ItemKey::of(item);
        }
        let map = item.downcast_ref::<CelMap<'_>>();
        let member = |name: &String| {
            let found = map.and_then(|it| it.inner().get(&CelMapKey::String(name.as_str().into())));
            found.map_or(ItemKey::Absent, |it| ItemKey::of(it.as_ref()))
        };
        ItemKey::Several(self.keys.iter().map(member).collect())
    }
}

impl Val for KeyedList {
    fn get_type(&self) -> &Type {
        &LIST_TYPE
    }

    fn cel_type() -> &'static Type {
        &LIST_TYPE
    }

    fn as_adder<'b, 'v>(&'b self) -> Option<&'b (dyn Adder + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn as_container(&self) -> Option<&dyn Container> {
        self.items.as_container()
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        self.items.as_indexer()
    }

    fn as_iterable<'b, 'v>(&'b self) -> Option<&'b (dyn Iterable + 'v)>
    where
        Self: 'v,
    {
        self.items.as_iterable()
    }

    fn as_sizer(&self) -> Option<&dyn Sizer> {
        self.items.as_sizer()
    }

    fn as_zeroer(&self) -> Option<&dyn Zeroer> {
        self.items.as_zeroer()
    }

    /// As in kube-apiserver, all items of the other list must be in this one, which must have the same size.
    fn equals(&self, other: &dyn Val) -> bool {
        let Some(others) = items(other) else { return false };
        if others.len() != self.items().len() {
            return false;
        }
        if self.keys.is_empty() {
            let own: HashSet<ItemKey> = self.items().iter().map(|it| self.key(it.as_ref())).collect();
            return others.iter().all(|it| own.contains(&self.key(*it)));
        }
        let own: HashMap<ItemKey, _> = self.items().iter().map(|it| (self.key(it.as_ref()), it)).collect();
        others.iter().all(|other| own.get(&self.key(*other)).is_some_and(|it| equal(it.as_ref(), *other)))
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v>
    where
        Self: 'v,
    {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for KeyedList {}

impl Adder for KeyedList {
    /// Items of the other list replace those with the same key, or come last.
    fn add<'b, 'v>(&'b self, rhs: &(dyn Val + 'v)) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        let Some(others) = items(rhs) else { return self.items.add(rhs) };
        let mut items = self.items().to_vec();
        let mut positions: HashMap<ItemKey, usize> =
            items.iter().enumerate().map(|(i, it)| (self.key(it.as_ref()), i)).collect();
        for other in others {
            let position = *positions.entry(self.key(other)).or_insert(items.len());
            match items.get_mut(position) {
                Some(_) if self.keys.is_empty() => {}
                Some(place) => *place = owned(other)?,
                None => items.push(owned(other)?),
            }
        }
        Ok(CowVal::owned(Self::new(items, Arc::clone(&self.keys))))
    }
}

/// The items of a list; `None` if it is none.
pub(super) fn items<'b, 'v>(list: &'b (dyn Val + 'v)) -> Option<Vec<&'b (dyn Val + 'v)>> {
    if list.get_type().kind() != Kind::List {
        return None;
    }
    let mut iterator = list.as_iterable()?.iter();
    let mut items = Vec::new();
    while let Some(item) = iterator.next() {
        items.push(item);
    }
    Some(items)
}

/// A copy that borrows nothing.
fn owned(value: &dyn Val) -> Result<Box<dyn Val>, ExecutionError> {
    if let Some(list) = value.downcast_ref::<KeyedList>() {
        return Ok(Box::new(list.clone()));
    }
    if let Some(list) = value.downcast_ref::<CelList<'_>>() {
        let items: Result<Vec<_>, _> = list.inner().iter().map(|it| owned(it.as_ref())).collect();
        return Ok(Box::new(CelList::from(items?)));
    }
    if let Some(map) = value.downcast_ref::<CelMap<'_>>() {
        let entries: Result<HashMap<_, _>, ExecutionError> = map
            .inner()
            .iter()
            .map(|(key, value)| Ok((key.clone().into_static(), owned(value.as_ref())?)))
            .collect();
        return Ok(Box::new(CelMap::from(entries?)));
    }
    Cel::try_from(value)?.try_into()
}

/// Whether two values are equal, also if the second one has lists of the types `set` and `map`.
fn equal(a: &dyn Val, b: &dyn Val) -> bool {
    if let (Some(a), Some(b)) = (a.downcast_ref::<CelMap<'_>>(), b.downcast_ref::<CelMap<'_>>()) {
        let is_equal = |key: &CelMapKey<'_>, value: &dyn Val| {
            let other = b.as_indexer().map(|it| it.get(key.inner()));
            other.and_then(Result::ok).is_some_and(|other| equal(value, other.as_ref()))
        };
        let (a, b) = (a.inner(), b.inner());
        return a.len() == b.len() && a.iter().all(|(key, value)| is_equal(key, value.as_ref()));
    }
    match (a.downcast_ref::<CelList<'_>>(), items(b)) {
        (Some(a), Some(b)) => {
            let a = a.inner();
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a.as_ref(), b))
        }
        _ => a.equals(b),
    }
}

/// A value of the library's enumeration. Lists of the types `set` and `map` become lists.
pub(super) fn converted(value: &dyn Val) -> Result<Cel, ExecutionError> {
    match (value.get_type().kind(), items(value), value.downcast_ref::<CelMap<'_>>()) {
        (Kind::List, Some(items), _) => {
            let items: Result<Vec<_>, _> = items.into_iter().map(converted).collect();
            Ok(Cel::List(Arc::new(items?)))
        }
        (_, _, Some(map)) => {
            let entries: Result<HashMap<cel::objects::Key, Cel>, ExecutionError> = map
                .inner()
                .iter()
                .map(|(key, value)| Ok((key.clone().into(), converted(value.as_ref())?)))
                .collect();
            Ok(entries?.into())
        }
        _ => value.try_into(),
    }
}

/// A key of a map, as messages show it.
pub(super) fn shown_key(key: &dyn Val) -> String {
    match ItemKey::of(key) {
        ItemKey::Text(text) | ItemKey::Other(text) => text,
        ItemKey::Int(number) => number.to_string(),
        ItemKey::UInt(number) => number.to_string(),
        ItemKey::Bool(it) => it.to_string(),
        ItemKey::Absent | ItemKey::Double(_) | ItemKey::Bytes(_) | ItemKey::Several(_) => String::new(),
    }
}

/// Adds a function of lists: of its target, and of its arguments.
pub(super) fn add_list_function(
    context: &mut Context<'_, '_>,
    name: &'static str,
    function: impl Fn(&[&[Cel]]) -> Result<Cel, ExecutionError> + Send + Sync + 'static,
) {
    let raw: Function = Box::new(move |call| {
        let values: Result<Vec<Cel>, _> =
            call.this.iter().chain(&call.args).map(|it| converted(it.as_ref())).collect();
        let values = values?;
        let lists: Vec<&[Cel]> = values
            .iter()
            .filter_map(|it| if let Cel::List(items) = it { Some(items.as_slice()) } else { None })
            .collect();
        if lists.len() != values.len() {
            return Err(ExecutionError::function_error(name, "no such overload"));
        }
        Ok(CowVal::Owned(function(&lists)?.try_into()?))
    });
    let _ = context.add_function(name, raw);
}

/// Adds the comparison.
pub(super) fn add_functions(context: &mut Context<'_, '_>) {
    let equals: Function = Box::new(|call| match call.args.as_slice() {
        [a, b] => Ok(CowVal::owned(CelBool::from(equal(a.as_ref(), b.as_ref())))),
        _ => Err(call.error("no value")),
    });
    // No library has a function of this name.
    let _ = context.add_function(EQUALS, equals);
}
