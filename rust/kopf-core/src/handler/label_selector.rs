//! The label selector that follows from the filters of the handlers of a resource.
//!
//! It matches every object that some handler could match; filters that are functions require nothing.

use std::collections::BTreeSet;
use std::fmt;

use crate::handler::registry::{Registry, ResourceHandlers};
use crate::handler::{Handler, Kind, MetaFilter};
use crate::object::Object;

/// With more values than that, a key is only demanded to be there: the selector travels in the address of each request.
const MOST_VALUES: usize = 64;
/// With more keys than that, the rest is not demanded.
const MOST_KEYS: usize = 16;

/// A label selector that follows from the filters of the handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DerivedSelector(Vec<(String, Requirement)>);

/// The requirement on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Present,
    Absent,
    OneOf(BTreeSet<String>),
}

impl DerivedSelector {
    /// What all handlers of the resource's objects have in common; none if that is nothing.
    pub fn of(plan: &ResourceHandlers, registry: &Registry) -> Option<Self> {
        let kinds = [&plan.watching, &plan.changing, &plan.indexing, &plan.spawning];
        let handlers = kinds.into_iter().flatten().filter_map(|index| registry.handlers.get(*index));
        let mut common: Vec<(String, Requirement)> = handlers.map(needs).reduce(either)?;
        common.sort_by(|(one, _), (other, _)| one.cmp(other));
        common.truncate(MOST_KEYS);
        (!common.is_empty()).then_some(Self(common))
    }

    /// Whether the object is let through.
    pub fn matches(&self, object: &Object) -> bool {
        self.0.iter().all(|(key, need)| {
            let label = object.label(key);
            match need {
                Requirement::Present => label.is_some(),
                Requirement::Absent => label.is_none(),
                Requirement::OneOf(values) => label.is_some_and(|label| values.contains(label.as_ref())),
            }
        })
    }
}

impl fmt::Display for DerivedSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (key, need)) in self.0.iter().enumerate() {
            f.write_str(if position == 0 { "" } else { "," })?;
            match need {
                Requirement::Present => write!(f, "{key}")?,
                Requirement::Absent => write!(f, "!{key}")?,
                Requirement::OneOf(values) => {
                    let values: Vec<_> = values.iter().map(String::as_str).collect();
                    match values[..] {
                        [value] => write!(f, "{key}={value}")?,
                        _ => write!(f, "{key} in ({})", values.join(","))?,
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether some handler of the resource holds deletions: there may be objects with our finalizer that are not let through.
pub fn uses_finalizer(plan: &ResourceHandlers, registry: &Registry) -> bool {
    let mut handlers = [&plan.changing, &plan.spawning]
        .into_iter()
        .flatten()
        .filter_map(|index| registry.handlers.get(*index));
    handlers.any(|handler| match &handler.kind {
        Kind::Changing(changing) => changing.requires_finalizer,
        _ => true,
    })
}

/// What one handler demands, as far as a server understands it.
fn needs(handler: &Handler) -> Vec<(String, Requirement)> {
    let need = |(key, filter): &(String, MetaFilter)| {
        let need = match filter {
            MetaFilter::Present => Requirement::Present,
            MetaFilter::Absent => Requirement::Absent,
            MetaFilter::Equal(value) => {
                let value = value.as_str().filter(|value| is_value(value))?;
                Requirement::OneOf(BTreeSet::from([value.to_owned()]))
            }
            MetaFilter::Callable => return None,
        };
        is_key(key).then(|| (key.clone(), need))
    };
    handler.labels.iter().filter_map(need).collect()
}

/// What both demand of a key, or what either of them does; a key that one of them says nothing about is free.
fn either(
    one: Vec<(String, Requirement)>,
    mut other: Vec<(String, Requirement)>,
) -> Vec<(String, Requirement)> {
    let joined = one.into_iter().filter_map(|(key, need)| {
        let position = other.iter().position(|(its, _)| *its == key)?;
        let need = need.or(other.swap_remove(position).1)?;
        Some((key, need))
    });
    joined.collect()
}

impl Requirement {
    /// The weaker need, which holds if one of the two does; none if one of them always does.
    fn or(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Absent, Self::Absent) => Some(Self::Absent),
            (Self::Absent, _) | (_, Self::Absent) => None,
            (Self::OneOf(mut values), Self::OneOf(others)) => {
                values.extend(others);
                // An empty value is hardly to be seen in an enumeration, and not every server reads it.
                let is_plain = values.len() <= MOST_VALUES && (values.len() == 1 || !values.contains(""));
                Some(if is_plain { Self::OneOf(values) } else { Self::Present })
            }
            _ => Some(Self::Present),
        }
    }
}

/// Whether it can be a key of a label: a name, maybe after a domain and a slash. Others are refused by the server.
fn is_key(key: &str) -> bool {
    let (domain, name) = key.split_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| {
        part.starts_with(is_lower)
            && part.ends_with(is_lower)
            && part.chars().all(|c| is_lower(c) || c == '-')
    };
    let is_domain = |domain: &str| domain.len() <= 253 && domain.split('.').all(is_part);
    // The words of the selectors' own grammar are left alone.
    domain.is_none_or(is_domain) && !name.is_empty() && is_value(name) && !matches!(name, "in" | "notin")
}

/// Whether it can be a value of a label.
fn is_value(value: &str) -> bool {
    let is_end = |c: char| c.is_ascii_alphanumeric();
    let is_inner = |c: char| is_end(c) || matches!(c, '-' | '_' | '.');
    let is_word = value.starts_with(is_end) && value.ends_with(is_end) && value.chars().all(is_inner);
    value.is_empty() || (value.len() <= 63 && is_word && !matches!(value, "in" | "notin"))
}

#[cfg(test)]
mod tests;
