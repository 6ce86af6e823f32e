//! A served version of a custom resource.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::schema::Schema;

/// Properties of custom resources that built-in resources lack.
#[derive(Debug)]
pub(crate) struct CustomVersion {
    /// Name of the CRD.
    pub(crate) crd: String,
    /// Whether the CRD is being deleted.
    pub(crate) is_terminating: bool,
    pub(crate) schema: Arc<Schema>,
    /// The schemas of all versions by their `apiVersion`, including the versions that are not served.
    pub(crate) schemas: Arc<BTreeMap<String, Arc<Schema>>>,
    /// Published schema, unchanged.
    pub(crate) published: Value,
    /// Schema with that of the metadata.
    pub(crate) managed: Arc<Schema>,
    /// These schemas of all versions.
    pub(crate) managed_versions: Arc<BTreeMap<String, Arc<Schema>>>,
    /// Whether the schema has CEL rules at any level.
    pub(crate) has_rules: bool,
    /// Whether a set in the schema can have items that are not scalars. An object with such an item has no managed fields.
    pub(crate) has_sets_of_objects: bool,
    pub(crate) columns: Vec<Value>,
    pub(crate) selectable: Vec<String>,
    pub(crate) scale: Option<Arc<ScalePaths>>,
    /// `specReplicasPath` of all versions by their `apiVersion`; `None` in those without a scale.
    pub(crate) replicas_paths: Arc<BTreeMap<String, Option<String>>>,
    /// Webhook that converts objects between versions; the strategy `None` needs none.
    pub(crate) conversion: Option<Arc<Value>>,
    /// Warning of each response, if the version is deprecated.
    pub(crate) deprecation: Option<String>,
}

#[derive(Debug)]
pub(crate) struct ScalePaths {
    pub(crate) spec: String,
    pub(crate) status: String,
    pub(crate) selector: Option<String>,
}
