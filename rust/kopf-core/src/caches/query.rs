//! Queries of caches (K3, K4).

use std::collections::BTreeSet;
use std::sync::Arc;

use thiserror::Error;

use super::indices::UnknownKey;
use super::key::CacheKey;
use super::store::ObjectStore;
use crate::json::path::FieldPath;
use crate::json::value::{Value, equal};
use crate::object::Object;
use crate::selectors::{LabelSelector, SelectorError};
use crate::time::Timestamp;

/// A query: an object must satisfy all its parts.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// The namespace.
    pub namespace: Option<String>,
    /// A label selector in the grammar of Kubernetes.
    pub labels: Option<String>,
    /// The values of fields. A null value also matches a missing field.
    pub fields: Vec<(FieldPath, Value)>,
    /// The uid of an owner.
    pub owner: Option<String>,
    /// The values of declared keys.
    pub by: Vec<(String, Value)>,
}

/// The reason why a query cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum QueryError {
    /// A key is not declared.
    #[error(transparent)]
    Key(#[from] UnknownKey),
    /// The label selector cannot be parsed.
    #[error(transparent)]
    Selector(#[from] SelectorError),
}

impl ObjectStore {
    /// The objects that match, ordered by namespace and name. They count as read.
    pub fn select(&mut self, query: &Query, now: Timestamp) -> Result<Vec<Arc<Object>>, QueryError> {
        let labels = query.labels.as_deref().map(LabelSelector::parse).transpose()?;
        let mut found: Option<BTreeSet<Arc<CacheKey>>> = None;
        let mut narrow = |keys: BTreeSet<Arc<CacheKey>>| {
            found = Some(match found.take() {
                Some(found) => &found & &keys,
                None => keys,
            });
        };
        if let Some(owner) = &query.owner {
            narrow(self.indices().owned_by(owner).cloned().collect());
        }
        for (name, value) in &query.by {
            narrow(self.indices().select(name, value)?.cloned().collect());
        }
        let is_selected = |key: &CacheKey, object: &Object| {
            query.namespace.as_deref().is_none_or(|namespace| key.namespace() == Some(namespace))
                && labels.as_ref().is_none_or(|labels| labels.matches(object))
                && query.fields.iter().all(|(path, expected)| {
                    object.field(path).map_or(expected.is_null(), |value| equal(&value, expected))
                })
        };
        let keys: Vec<Arc<CacheKey>> = match found {
            Some(keys) => keys
                .into_iter()
                .filter(|key| self.shown(key).is_some_and(|object| is_selected(key, object)))
                .collect(),
            None => self
                .all(query.namespace.as_deref())
                .filter(|(key, object)| is_selected(key, object))
                .map(|(key, _)| Arc::clone(key))
                .collect(),
        };
        Ok(keys.iter().filter_map(|key| self.read(key, now)).collect())
    }
}
