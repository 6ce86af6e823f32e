//! The label selector derived from the filters of the handlers of a resource.
//!
//! It matches every object that any handler may match. Callable filters require nothing.

use std::collections::BTreeSet;
use std::fmt;

use crate::handler::reconciling::Related;
use crate::handler::registry::{Registry, ResourceHandlers};
use crate::handler::{Kind, MetaFilter};
use crate::object::Object;

/// With more values than this, only the presence of the key is required: the selector is a part of the URL of each request.
const MOST_VALUES: usize = 64;
/// With more keys than this, the other keys are not required.
const MOST_KEYS: usize = 16;

/// A label selector derived from the filters of the handlers.
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
    /// The requirements that all handlers of the resource share; none if there are none.
    pub fn of(resource_handlers: &ResourceHandlers, registry: &Registry) -> Option<Self> {
        // Reconcilers get all events of their kinds, so that objects can begin and cease to match. Caches select by themselves.
        if resource_handlers.has_reconcilers() || !resource_handlers.caching.is_empty() {
            return None;
        }
        let kinds = [
            &resource_handlers.watching,
            &resource_handlers.changing,
            &resource_handlers.indexing,
            &resource_handlers.spawning,
        ];
        let handlers = kinds.into_iter().flatten().filter_map(|index| registry.handlers.get(*index));
        let mut common: Vec<(String, Requirement)> =
            handlers.map(|handler| needs(&handler.labels)).reduce(either)?;
        common.sort_by(|(one, _), (other, _)| one.cmp(other));
        common.truncate(MOST_KEYS);
        (!common.is_empty()).then_some(Self(common))
    }

    /// Whether the selector matches the object.
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

/// The label selector of a secondary kind of a reconciler, in the grammar of Kubernetes; empty for all objects.
pub fn of_related(related: &Related) -> String {
    let needs = needs(&related.labels);
    if needs.is_empty() { String::new() } else { DerivedSelector(needs).to_string() }
}

/// Whether some handler of the resource requires the finalizer: unselected objects may have it.
pub fn uses_finalizer(resource_handlers: &ResourceHandlers, registry: &Registry) -> bool {
    let mut handlers = [&resource_handlers.changing, &resource_handlers.spawning]
        .into_iter()
        .flatten()
        .filter_map(|index| registry.handlers.get(*index));
    handlers.any(|handler| match &handler.kind {
        Kind::Changing(changing) => changing.requires_finalizer,
        _ => true,
    })
}

/// The requirements of one declaration that an API server can evaluate.
fn needs(labels: &[(String, MetaFilter)]) -> Vec<(String, Requirement)> {
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
    labels.iter().filter_map(need).collect()
}

/// The requirements that both handlers have in common, each in its weaker form.
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
    /// The requirement that is satisfied if one of the two is; none if it is always satisfied.
    fn or(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Absent, Self::Absent) => Some(Self::Absent),
            (Self::Absent, _) | (_, Self::Absent) => None,
            (Self::OneOf(mut values), Self::OneOf(others)) => {
                values.extend(others);
                // Not every API server parses an empty value in a set of values.
                let is_plain = values.len() <= MOST_VALUES && (values.len() == 1 || !values.contains(""));
                Some(if is_plain { Self::OneOf(values) } else { Self::Present })
            }
            _ => Some(Self::Present),
        }
    }
}

/// Whether the API server accepts the text as a label key: a name, with an optional domain and slash before it.
fn is_key(key: &str) -> bool {
    let (domain, name) = key.split_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_part = |part: &str| {
        part.starts_with(is_lower)
            && part.ends_with(is_lower)
            && part.chars().all(|c| is_lower(c) || c == '-')
    };
    let is_domain = |domain: &str| domain.len() <= 253 && domain.split('.').all(is_part);
    // These are operators in the grammar of selectors.
    domain.is_none_or(is_domain) && !name.is_empty() && is_value(name) && !matches!(name, "in" | "notin")
}

/// Whether the text is valid as a label value.
fn is_value(value: &str) -> bool {
    let is_end = |c: char| c.is_ascii_alphanumeric();
    let is_inner = |c: char| is_end(c) || matches!(c, '-' | '_' | '.');
    let is_word = value.starts_with(is_end) && value.ends_with(is_end) && value.chars().all(is_inner);
    value.is_empty() || (value.len() <= 63 && is_word && !matches!(value, "in" | "notin"))
}

#[cfg(test)]
mod tests;
