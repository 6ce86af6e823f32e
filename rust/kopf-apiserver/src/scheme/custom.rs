//! The version of a custom resource.

use std::sync::Arc;

use serde_json::Value;

use crate::schema::Schema;

/// What a declared kind has beyond a built-in one.
#[derive(Debug)]
pub(crate) struct CustomVersion {
    /// The definition's name.
    pub(crate) definition: String,
    pub(crate) schema: Arc<Schema>,
    /// The schema as it was declared, for who wants to read it.
    pub(crate) published: Value,
    /// The schema with the metadata's own.
    pub(crate) managed: Arc<Schema>,
    /// Whether the schema has rules anywhere.
    pub(crate) has_rules: bool,
    pub(crate) columns: Vec<Value>,
    pub(crate) selectable: Vec<String>,
    pub(crate) scale: Option<Arc<ScalePaths>>,
}

#[derive(Debug)]
pub(crate) struct ScalePaths {
    pub(crate) spec: String,
    pub(crate) status: String,
    pub(crate) selector: Option<String>,
}
