//! Validation of the versions of a CRD.
//!
//! kube-apiserver moves what all versions have in common, such as their schema, to the CRD. Errors there have the paths of
//! `v1beta1`.

use serde_json::{Value, json};

use super::go_schema::{internal_text, internal_versions_text, is_shared};
use super::rules::{Walk, field_schema};
use super::structural;
use crate::base::json::{member_text, strings};
use crate::error::status::Cause;
use crate::registry::meta;

const MAX_SELECTABLE: usize = 8;

/// Members of versions that are moved if they are equal in all versions.
const SHARED: [&str; 4] = ["schema", "subresources", "additionalPrinterColumns", "selectableFields"];

fn list(spec: &Value) -> &[Value] {
    spec.get("versions").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Field errors of the versions.
pub(super) fn validate(spec: &Value, out: &mut Vec<Cause>) {
    let versions = list(spec);
    let mut names: Vec<&str> = versions.iter().map(|version| member_text(version, "name")).collect();
    for (i, version) in versions.iter().enumerate() {
        validate_name(version, &format!("spec.versions[{i}].name"), out);
        validate_deprecation(version, &format!("spec.versions[{i}].deprecationWarning"), out);
    }
    if let Some(first) = versions.first() {
        validate_name(first, "spec.version", out);
    }
    names.sort_unstable();
    names.dedup();
    if names.len() < versions.len() {
        let shown = internal_versions_text(versions);
        out.push(Cause::invalid_raw("spec.versions", &shown, "must contain unique version names"));
    }
    if versions.iter().filter(|version| is_storage(version)).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        out.push(Cause::invalid_raw("spec.versions", &internal_versions_text(versions), detail));
    }
    for key in SHARED {
        let shared = is_shared(versions, key);
        for (i, version) in versions.iter().enumerate().take(if shared { 1 } else { versions.len() }) {
            let path = if shared { "spec".to_owned() } else { format!("spec.versions[{i}]") };
            match key {
                "schema" => validate_schema(version, i, shared, out),
                "subresources" => validate_scale(version, &path, out),
                "additionalPrinterColumns" => validate_columns(version, &path, out),
                _ => validate_selectable(version, &path, is_shared(versions, "schema"), shared, out),
            }
        }
    }
}

fn is_storage(version: &Value) -> bool {
    version["storage"] == Value::Bool(true)
}

fn validate_name(version: &Value, field: &str, out: &mut Vec<Cause>) {
    let name = member_text(version, "name");
    if let Some(detail) = meta::label_1035_errors(name).first() {
        out.push(Cause::invalid(field, &name.into(), detail));
    }
}

fn validate_deprecation(version: &Value, field: &str, out: &mut Vec<Cause>) {
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else { return };
    if version["deprecated"] != Value::Bool(true) {
        out.push(Cause::invalid(field, &warning.into(), "can only be set for deprecated versions"));
    }
    if warning.len() > 256 {
        out.push(Cause::invalid(field, &warning.into(), "must be <= 256 characters long"));
    } else if warning.is_empty() {
        out.push(Cause::invalid(field, &warning.into(), "must not be empty"));
    }
}

/// The stored versions are those of the spec, with the storage version.
pub(super) fn validate_stored(crd: &Value, out: &mut Vec<Cause>) {
    const FIELD: &str = "status.storedVersions";
    let versions = list(&crd["spec"]);
    let mut stored = strings(crd.pointer("/status/storedVersions"));
    if let Some(first) = versions.iter().find(|version| is_storage(version)) {
        let name = member_text(first, "name");
        if !stored.iter().any(|known| known == name) {
            stored.push(name.to_owned());
        }
    }
    if stored.is_empty() {
        out.push(Cause::invalid(FIELD, &Value::Null, "must have at least one stored version"));
        return;
    }
    for (i, name) in stored.iter().enumerate() {
        if !versions.iter().any(|version| member_text(version, "name") == name) {
            let detail = format!(
                "missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a \
                 storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"
            );
            out.push(Cause::invalid(format!("{FIELD}[{i}]"), &name.as_str().into(), &detail));
        }
    }
    for version in versions.iter().filter(|version| is_storage(version)) {
        let name = member_text(version, "name");
        if !stored.iter().any(|known| known == name) {
            let detail = format!("must have the storage version {name}");
            out.push(Cause::invalid(FIELD, &json!(stored), &detail));
        }
    }
}

/// Whether a schema of the CRD has a default.
pub(super) fn have_defaults(spec: &Value) -> bool {
    fn has_default(schema: &Value) -> bool {
        let Some(map) = schema.as_object() else { return false };
        let in_members = |key: &str| {
            map.get(key).and_then(Value::as_object).is_some_and(|members| members.values().any(has_default))
        };
        map.get("default").is_some_and(|default| !default.is_null())
            || in_members("properties")
            || ["items", "additionalProperties"].iter().any(|key| map.get(*key).is_some_and(has_default))
    }
    list(spec).iter().any(|version| version.pointer("/schema/openAPIV3Schema").is_some_and(has_default))
}

fn validate_columns(version: &Value, path: &str, out: &mut Vec<Cause>) {
    const KINDS: &str = "must be one of boolean,date,integer,number,string";
    let columns = version.get("additionalPrinterColumns").and_then(Value::as_array).into_iter().flatten();
    for (i, column) in columns.enumerate() {
        let path = format!("{path}.additionalPrinterColumns[{i}]");
        if member_text(column, "name").is_empty() {
            out.push(Cause::required(format!("{path}.name"), ""));
        }
        match member_text(column, "type") {
            "" => out.push(Cause::required(format!("{path}.type"), KINDS)),
            "boolean" | "date" | "integer" | "number" | "string" => {}
            other => out.push(Cause::invalid(format!("{path}.type"), &other.into(), KINDS)),
        }
        let format = member_text(column, "format");
        let formats = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
        if !format.is_empty() && !formats.contains(&format) {
            let detail = format!("must be one of {}", formats.join(","));
            out.push(Cause::invalid(format!("{path}.format"), &format.into(), &detail));
        }
        validate_json_path(column, "jsonPath", &format!("{path}.JSONPath"), out);
    }
}

fn validate_scale(version: &Value, path: &str, out: &mut Vec<Cause>) {
    let Some(scale) = version.pointer("/subresources/scale") else { return };
    let path = format!("{path}.subresources.scale");
    for (key, below) in
        [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status."), ("labelSelectorPath", "")]
    {
        let field = format!("{path}.{key}");
        let given = member_text(scale, key);
        if below.is_empty() && given.is_empty() {
            continue;
        }
        let before = out.len();
        validate_json_path(scale, key, &field, out);
        let is_below = match below {
            "" => given.starts_with(".status.") || given.starts_with(".spec."),
            below => given.starts_with(below),
        };
        if out.len() == before && !is_below {
            let detail = match below {
                "" => "should be a json path under either .status or .spec".to_owned(),
                below => format!("should be a json path under {}", below.trim_end_matches('.')),
            };
            out.push(Cause::invalid(field, &given.into(), &detail));
        }
    }
}

/// Validates the selectable fields: scalars of the schema.
fn validate_selectable(
    version: &Value,
    path: &str,
    is_schema_shared: bool,
    is_shared: bool,
    out: &mut Vec<Cause>,
) {
    let Some(fields) = version.get("selectableFields").and_then(Value::as_array) else { return };
    let path = format!("{path}.selectableFields");
    if is_schema_shared && !is_shared {
        let detail = "may only be set when `version.schema.openAPIV3Schema` is not included";
        out.push(Cause::invalid(path, &"".into(), detail));
        return;
    }
    let schema = version.pointer("/schema/openAPIV3Schema").unwrap_or(&Value::Null);
    let mut seen: Vec<&str> = Vec::new();
    for (i, field) in fields.iter().enumerate() {
        let (given, path) = (member_text(field, "jsonPath"), format!("{path}[{i}].jsonPath"));
        if given.is_empty() {
            out.push(Cause::required(path, ""));
            continue;
        }
        let Some(found) = field_schema(schema, given) else {
            let detail = "is an invalid path: does not refer to a valid field";
            out.push(Cause::invalid(path, &given.into(), detail));
            continue;
        };
        if !matches!(member_text(found, "type"), "string" | "boolean" | "integer") {
            let detail = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are \
                          allowed.";
            out.push(Cause::invalid(&*path, &given.into(), detail));
        }
        if seen.contains(&given) {
            out.push(Cause::duplicate(path, &given.into()));
        } else {
            seen.push(given);
        }
    }
    if seen.len() > MAX_SELECTABLE {
        out.push(Cause::too_many(path, seen.len(), MAX_SELECTABLE as u64));
    }
}

/// Requires a JSON path that starts at the root.
fn validate_json_path(parent: &Value, key: &str, field: &str, out: &mut Vec<Cause>) {
    match member_text(parent, key) {
        "" => out.push(Cause::required(field, "")),
        given if given.starts_with('.') => {}
        given => out.push(Cause::invalid(field, &given.into(), "must be a simple json path starting with .")),
    }
}

fn validate_schema(version: &Value, index: usize, shared: bool, out: &mut Vec<Cause>) {
    let first = out.len();
    let path = format!("spec.versions[{index}]");
    let Some(schema) = version.pointer("/schema/openAPIV3Schema") else {
        out.push(Cause::required(format!("{path}.schema.openAPIV3Schema"), ""));
        return;
    };
    let has_status = version.pointer("/subresources/status").is_some();
    let path = if shared {
        "spec.validation.openAPIV3Schema".to_owned()
    } else {
        format!("{path}.schema.openAPIV3Schema")
    };
    if has_status && !matches!(member_text(schema, "type"), "" | "object") {
        let detail = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
        let kind = member_text(schema, "type");
        out.push(Cause::invalid(format!("{path}.type"), &kind.into(), detail));
    }
    if has_status {
        validate_root_keywords(schema, &path, out);
    }
    if schema["nullable"] == Value::Bool(true) {
        out.push(Cause::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    structural::validate(schema, &path, out);
    Walk::check(schema, &path, first, out);
}

/// Keywords that the root of a schema can have if the status is a subresource.
const ROOT_KEYWORDS: [&str; 22] = [
    "description",
    "type",
    "format",
    "title",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "required",
    "items",
    "properties",
    "externalDocs",
    "example",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-validations",
];

fn validate_root_keywords(schema: &Value, path: &str, out: &mut Vec<Cause>) {
    let is_other = |(key, value): (&String, &Value)| {
        !ROOT_KEYWORDS.contains(&key.as_str()) && !matches!(value, Value::Null | Value::Bool(false))
    };
    if schema.as_object().is_some_and(|map| map.iter().any(is_other)) {
        let detail = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength \
                      Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example \
                      XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status \
                      subresource is enabled";
        out.push(Cause::invalid_raw(path, &internal_text(schema), detail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(version: &Value) -> Vec<String> {
        let mut base = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
            "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}}});
        crate::patch::merge(&mut base, version);
        let mut out = Vec::new();
        validate(&json!({"versions": [base]}), &mut out);
        out.iter().map(|c| format!("{}: {}", c.field.trim_start_matches("spec."), c.message)).collect()
    }

    #[test]
    fn members_of_versions_are_validated() {
        let scale = json!({"specReplicasPath": ".data.n", "statusReplicasPath": ".status.n"});
        for (version, expected) in [
            (json!({"selectableFields": [{"jsonPath": ".spec.a"}]}), vec![]),
            (
                json!({"selectableFields": [{"jsonPath": ".spec.b"}]}),
                vec![
                    "selectableFields[0].jsonPath: Invalid value: \".spec.b\": is an invalid path: does not refer to a valid field",
                ],
            ),
            (json!({"selectableFields": [{}]}), vec!["selectableFields[0].jsonPath: Required value"]),
            (
                json!({"subresources": {"scale": scale}}),
                vec![
                    "subresources.scale.specReplicasPath: Invalid value: \".data.n\": should be a json path under .spec",
                ],
            ),
            (
                json!({"deprecationWarning": "x"}),
                vec![
                    "versions[0].deprecationWarning: Invalid value: \"x\": can only be set for deprecated versions",
                ],
            ),
        ] {
            assert_eq!(errors(&version), expected, "{version}");
        }
        assert_eq!(errors(&json!({"name": "V1"})).len(), 2);
    }

    #[test]
    fn errors_of_what_all_versions_share_have_one_path() {
        let version = |name: &str, kind: &str| json!({"name": name, "served": true, "storage": name == "v1", "schema": {"openAPIV3Schema": {"type": kind}}});
        let fields = |versions: Value| -> Vec<String> {
            let mut out = Vec::new();
            validate(&json!({"versions": versions}), &mut out);
            out.into_iter().map(|cause| cause.field).collect()
        };
        let shared = fields(json!([version("v1", "string"), version("v2", "string")]));
        assert_eq!(shared, ["spec.validation.openAPIV3Schema.type"]);
        let single = fields(json!([version("v1", "string"), version("v2", "object")]));
        assert_eq!(single, ["spec.versions[0].schema.openAPIV3Schema.type"]);
    }

    #[test]
    fn the_root_of_a_schema_with_a_status_has_few_keywords() {
        for (schema, expected) in [
            (json!({"type": "object", "description": "x", "required": ["a"]}), 0),
            (json!({"type": "object", "not": {}}), 1),
            (json!({"type": "object", "nullable": false}), 0),
        ] {
            let mut out = Vec::new();
            validate_root_keywords(&schema, "s", &mut out);
            assert_eq!(out.len(), expected, "{schema}");
        }
    }
}
