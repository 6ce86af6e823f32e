//! Preparation of objects for storage: decoding by schema, defaults, validation.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use crate::base::json::{at, drop_empty, text};
use crate::base::options::FieldValidation;
use crate::base::tasks::Tasks;
use crate::base::yaml::DuplicateKey;
use crate::error::status::{Cause, Status};
use crate::registry::{defaults, meta, validation};
use crate::schema::{self, cel, decode, validate};
use crate::scheme::builtin;
use crate::scheme::resources::Resource;
use crate::storage::encoding;

/// Unknown and duplicate fields of an object.
#[derive(Debug, Default)]
pub(crate) struct FieldWarnings {
    pub(crate) duplicates: Vec<String>,
    /// Duplicate keys of a YAML body.
    pub(crate) duplicate_keys: Vec<DuplicateKey>,
    pub(crate) unknown: Vec<String>,
}

impl FieldWarnings {
    /// Message of strict decoding, if there are such fields.
    pub(crate) fn strict_error(&self) -> Option<String> {
        let keys: Vec<String> = self.duplicate_keys.iter().map(|key| format!("\n  {key}")).collect();
        let keys = (!keys.is_empty()).then(|| format!("yaml: unmarshal errors:{}", keys.concat()));
        let errors: Vec<String> = keys.into_iter().chain(self.fields()).collect();
        (!errors.is_empty()).then(|| format!("strict decoding error: {}", errors.join(", ")))
    }
    fn fields(&self) -> impl Iterator<Item = String> {
        let duplicates = self.duplicates.iter().map(|f| format!("duplicate field \"{f}\""));
        duplicates.chain(self.unknown.iter().map(|f| format!("unknown field \"{f}\"")))
    }
    /// Warnings of the response; an error if the field validation is strict.
    pub(crate) fn apply_field_validation(
        &self,
        field_validation: FieldValidation,
        resource: &Resource,
    ) -> Result<Vec<String>, Status> {
        match field_validation {
            FieldValidation::Ignore => Ok(Vec::new()),
            FieldValidation::Warn => {
                Ok(self.duplicate_keys.iter().map(ToString::to_string).chain(self.fields()).collect())
            }
            FieldValidation::Strict => match self.strict_error() {
                Some(why) => Err(decode_error(resource, &resource.version, &why)),
                None => Ok(Vec::new()),
            },
        }
    }
}

pub(crate) fn decode_error(resource: &Resource, version: &str, why: &str) -> Status {
    let kind = &resource.kind;
    Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
}

/// Decodes an object by its schema, with defaults. The error is the message of Go's decoder. `before` is the stored
/// object, if known: unchanged metadata is not decoded again.
pub(crate) fn decode_object(
    resource: &Resource,
    mut value: Value,
    before: Option<&Value>,
    warnings: &mut FieldWarnings,
) -> Result<Value, String> {
    let managed = at(&value, "/metadata/managedFields");
    // An empty list in a custom object is as none.
    let is_absent = resource.custom.is_some() && managed.and_then(Value::as_array).is_some_and(Vec::is_empty);
    let reset = !is_absent && managed.is_some_and(is_reset);
    let mut value = if resource.custom.is_some() {
        decode_custom_object(resource, value, before, warnings)?
    } else {
        if resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
            crate::registry::crd::keywords::decode(&mut value, &mut warnings.unknown)?;
        }
        let mut decode_warnings = decode::DecodeWarnings::default();
        let mut read = decode::decode(value, &resource.schema(), &mut decode_warnings)?;
        warnings.unknown.extend(decode_warnings.unknown);
        defaults::fill_defaults(resource, &mut read);
        read
    };
    if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        drop_empty(meta);
        if reset {
            // An explicit empty list resets the managed fields.
            meta.insert("managedFields".into(), Value::Array(Vec::new()));
        }
    }
    Ok(value)
}

/// A custom object that webhooks have changed, as it is stored: without unknown fields.
pub(crate) fn coerce_custom_object(resource: &Resource, mut value: Value) -> Value {
    if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["labels", "annotations"] {
            // Values that are no texts make the whole map unreadable.
            if meta.get(key).and_then(Value::as_object).is_some_and(|map| !map.values().all(Value::is_string))
            {
                meta.shift_remove(key);
            }
        }
    }
    decode_object(resource, value.clone(), None, &mut FieldWarnings::default()).unwrap_or(value)
}

/// Whether the managed fields are an explicit empty list, or one of empty entries.
fn is_reset(managed: &Value) -> bool {
    managed.as_array().is_some_and(|list| list.iter().all(|e| e.as_object().is_some_and(Map::is_empty)))
}

fn decode_custom_object(
    resource: &Resource,
    mut value: Value,
    before: Option<&Value>,
    warnings: &mut FieldWarnings,
) -> Result<Value, String> {
    let schema = resource.schema();
    if let Some(map) = value.as_object_mut() {
        let mut meta = map.shift_remove("metadata").unwrap_or_default();
        let stored = before.and_then(|b| b.get("metadata"));
        if stored.is_some_and(|stored| encoding::is_identical(stored, &meta)) {
            debug_assert!(is_decoded(&meta), "stored metadata is not decoded again: {meta}");
        } else {
            let mut decode_warnings = decode::DecodeWarnings::default();
            meta = decode::decode(meta, &builtin::schema("meta.v1.ObjectMeta"), &mut decode_warnings)?;
            warnings.unknown.extend(decode_warnings.unknown.into_iter().map(|f| format!("metadata.{f}")));
        }
        map.insert("metadata".into(), meta);
    }
    schema::prune(&mut value, &schema, &mut warnings.unknown);
    schema::fill_defaults(&mut value, &schema);
    schema::drop_nulls(&mut value, &schema);
    Ok(value)
}

fn is_decoded(meta: &Value) -> bool {
    let mut decode_warnings = decode::DecodeWarnings::default();
    let read = decode::decode(meta.clone(), &builtin::schema("meta.v1.ObjectMeta"), &mut decode_warnings);
    let Ok(Value::Object(mut read)) = read else { return false };
    drop_empty(&mut read);
    decode_warnings.unknown.is_empty() && encoding::is_identical(&Value::Object(read), meta)
}

/// Reasons of field errors after which CEL rules are not evaluated.
const RULE_BLOCKING_REASONS: [&str; 5] = [
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
];

/// The result of the validation of an object.
#[derive(Debug, Default)]
pub(crate) struct Validated {
    pub(crate) causes: Vec<Cause>,
    /// Errors that the update does not cause.
    pub(crate) warnings: Vec<String>,
}

/// Validates an object. `old` is the stored object of an update.
pub(crate) async fn validate_object(
    resource: &Arc<Resource>,
    value: &Value,
    old: Option<&Value>,
    tasks: &Tasks,
) -> Result<Validated, Status> {
    let mut out = meta::validate(resource, value.get("metadata").unwrap_or(&Value::Null));
    if old.is_some() {
        // kube-apiserver validates the metadata of updates in several layers, and each reports the errors.
        let first = out.clone();
        (1..validation_layers(resource)).for_each(|_| out.extend(first.clone()));
    }
    if resource.custom.is_none() {
        out.extend(validation::validate(resource, value, old));
        return Ok(Validated { causes: out, ..Validated::default() });
    }
    let kind = text(value, "/kind");
    if kind != resource.kind {
        out.push(Cause::invalid("kind", &kind.into(), &format!("must be {}", resource.kind)));
    }
    let schema = resource.schema();
    let (causes, duplicates) = validate::validate_update(value, old, &schema);
    if let Some(scale) = resource.custom.as_ref().and_then(|c| c.scale.as_ref()) {
        out.extend(replicas_error(value, &scale.spec));
    }
    // CEL rules are not evaluated on values of wrong types or sizes.
    out.extend(causes);
    let is_well_typed = !out.iter().any(|c| RULE_BLOCKING_REASONS.contains(&c.reason));
    out.extend(duplicates);
    let mut warnings = Vec::new();
    if resource.custom.as_ref().is_some_and(|c| c.has_rules) {
        if is_well_typed {
            let violations = match cel::check_inline(value, old, &schema) {
                Some(violations) => violations,
                None => check_rules_blocking(&schema, value, old, tasks).await?,
            };
            out.extend(violations.causes);
            warnings.extend(violations.tolerated.iter().map(|it| format!("{}: {}", it.field, it.message)));
        } else {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing errors \
                          to complete validation";
            out.push(Cause::invalid("<nil>", &Value::Null, detail));
        }
    }
    Ok(Validated { causes: out, warnings })
}

/// The error about the number of replicas of the scale subresource: it is a number of 32 bits, and not negative.
fn replicas_error(value: &Value, path: &str) -> Option<Cause> {
    let mut found = value;
    for name in path.trim_start_matches('.').split('.') {
        if !found.is_object() {
            let go_type = match found {
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                Value::Number(number) if number.is_f64() => "float64",
                Value::Number(_) => "int64",
                Value::Array(_) => "[]interface {}",
                Value::Null | Value::Object(_) => return None,
            };
            let shown = found.as_str().map_or_else(|| found.to_string(), str::to_owned);
            let detail = format!(
                "{path} accessor error: {shown} is of the type {go_type}, expected map[string]interface{{}}"
            );
            return Some(Cause::invalid(path, &0.into(), &detail));
        }
        found = found.get(name)?;
    }
    if let Value::String(text) = found {
        let detail = format!("{path} accessor error: {text} is of the type string, expected int64");
        return Some(Cause::invalid(path, &0.into(), &detail));
    }
    let replicas = found.as_i64()?;
    if replicas < 0 {
        return Some(Cause::invalid(path, found, "should be a non-negative integer"));
    }
    let detail = format!("should be less than or equal to {}", i32::MAX);
    (replicas > i64::from(i32::MAX)).then(|| Cause::invalid(path, found, &detail))
}

/// Threads for expensive CEL rules.
static RULE_THREADS: Semaphore = Semaphore::const_new(2);

/// Evaluates expensive CEL rules in a thread, so that they do not block other requests.
async fn check_rules_blocking(
    schema: &Arc<schema::Schema>,
    value: &Value,
    old: Option<&Value>,
    tasks: &Tasks,
) -> Result<cel::Violations, Status> {
    let failed = || Status::internal("Internal error occurred: validation rules cannot be evaluated");
    let _permit = RULE_THREADS.acquire().await.map_err(|_| failed())?;
    let (schema, value, old) = (Arc::clone(schema), value.clone(), old.cloned());
    let checking = tasks.spawn_blocking(move || cel::check(&value, old.as_ref(), &schema));
    checking.await.map_err(|_| failed())
}

/// Number of layers of kube-apiserver that validate the metadata of an update.
fn validation_layers(resource: &Resource) -> usize {
    const FOUR: [&str; 19] = [
        "configmaps",
        "secrets",
        "pods",
        "serviceaccounts",
        "endpoints",
        "persistentvolumeclaims",
        "nodes",
        "namespaces",
        "persistentvolumes",
        "controllerrevisions",
        "jobs",
        "ingresses",
        "ingressclasses",
        "roles",
        "rolebindings",
        "clusterroles",
        "clusterrolebindings",
        "storageclasses",
        "runtimeclasses",
    ];
    match resource.plural.as_str() {
        _ if resource.custom.is_some() => 2,
        "poddisruptionbudgets" => 2,
        "events" if resource.group.is_empty() => 2,
        plural if FOUR.contains(&plural) => 4,
        _ => 3,
    }
}

/// Rejects an object with field errors.
pub(crate) fn reject_invalid(resource: &Resource, value: &Value, causes: &[Cause]) -> Result<(), Status> {
    if causes.is_empty() {
        return Ok(());
    }
    let kind = match text(value, "/kind") {
        "" => &resource.kind,
        kind => kind,
    };
    Err(Status::invalid(&resource.group, kind, text(value, "/metadata/name"), causes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replicas_are_a_number_that_is_not_negative() {
        for (value, expected) in [
            (json!({"spec": {"replicas": 3}}), None),
            (json!({"spec": {}}), None),
            (json!({"spec": {"replicas": -1}}), Some("Invalid value: -1: should be a non-negative integer")),
            (
                json!({"spec": {"replicas": "x"}}),
                Some(
                    "Invalid value: 0: .spec.replicas accessor error: x is of the type string, expected int64",
                ),
            ),
            (
                json!({"spec": 5}),
                Some(
                    "Invalid value: 0: .spec.replicas accessor error: 5 is of the type int64, expected map[string]interface{}",
                ),
            ),
        ] {
            let found = replicas_error(&value, ".spec.replicas").map(|cause| cause.message);
            assert_eq!(found.as_deref(), expected, "{value}");
        }
    }
}
