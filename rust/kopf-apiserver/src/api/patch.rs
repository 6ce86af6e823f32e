//! JSON, merge and strategic merge patches. Apply patches are in `apply`.

use serde_json::{Map, Value};

use super::body;
use super::change::{check_name, check_version, update_object};
use super::write::ATTEMPTS;
use super::{Call, apply};
use crate::base::json::json_complaint;
use crate::base::json::text;
use crate::base::options::FieldValidation;
use crate::error::status::{Cause, Status};
use crate::http::render::object_value;
use crate::http::request::WriteOptions;
use crate::http::response::Response;
use crate::patch::{self, PatchType};
use crate::registry::prepare::{self, FieldWarnings};
use crate::scheme::go_values;

/// The type and the options of a patch.
pub(super) fn options(call: &Call<'_>) -> Result<(PatchType, WriteOptions), Status> {
    call.output_format(false)?;
    let custom = call.resource.custom.is_some();
    let patch_type = match PatchType::of(call.request.header("content-type")) {
        Some(PatchType::Strategic) if custom => {
            return Err(Status::unsupported_media(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            ));
        }
        Some(patch_type) => patch_type,
        None => {
            let status = Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
            return Err(status.with(Map::new()));
        }
    };
    let options = call.request.write_options("PatchOptions")?;
    if patch_type == PatchType::Apply && call.request.query.get("fieldManager").is_empty() {
        let cause = Cause::required("fieldManager", "is required for apply patch");
        return Err(Status::bad_options("PatchOptions", &[cause]));
    }
    if patch_type != PatchType::Apply && call.request.query.has("force") && options.force {
        let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
        return Err(Status::bad_options("PatchOptions", &[cause]));
    }
    Ok((patch_type, options))
}

pub(crate) async fn patch(call: &Call<'_>) -> Result<Response, Status> {
    let (patch_type, options) = options(call)?;
    let name = call.name.as_deref().unwrap_or_default();
    if patch_type == PatchType::Apply {
        return apply::apply(call, &options).await;
    }
    for _ in 0..ATTEMPTS {
        let old = call.stored(name).await?;
        let old = old.ok_or_else(|| Status::not_found(call.resource.group_resource(), name))?;
        let before = object_value(&old, &call.resource);
        let value = patched(call, patch_type, &before, &options)?;
        let given = text(&value, "/metadata/resourceVersion").to_owned();
        let is_other_version = given != old.version.to_string();
        if is_other_version && !given.is_empty() {
            check_version(call, &value, &old)?;
        }
        if let Some(outcome) = update_object(call, &old, &before, value, &options, None).await? {
            return outcome.response(200, call.request, &call.resource);
        }
    }
    Err(Status::modified(call.resource.group_resource(), name))
}

/// The object with the patch applied, decoded and checked against the path. Reports unknown and duplicate fields.
pub(super) fn patched(
    call: &Call<'_>,
    patch_type: PatchType,
    before: &Value,
    options: &WriteOptions,
) -> Result<Value, Status> {
    let (patched, duplicates) = apply_patch(call, patch_type, before)?;
    let mut warnings = FieldWarnings { duplicates, ..FieldWarnings::default() };
    let kind_check = check_kind(call, &patched);
    // Error messages contain the patched object before decoding: it is patched again for them.
    let rejection = |why: String| match apply_patch(call, patch_type, &in_go_order(call, before)) {
        Ok((mut patched, _)) => {
            sort_patched(call, patch_type, &mut patched);
            Status::invalid_patch(&patched, &why)
        }
        Err(status) => status,
    };
    let mut value =
        prepare::decode_object(&call.resource, patched, Some(before), &mut warnings).map_err(rejection)?;
    if let (FieldValidation::Strict, Some(why)) = (options.field_validation, warnings.strict_error()) {
        return Err(rejection(why));
    }
    kind_check?;
    for line in warnings.apply_field_validation(options.field_validation, &call.resource)? {
        call.warnings.add(&line);
    }
    check_name(&value, call.name.as_deref().unwrap_or_default())?;
    body::check_namespace_matches(call, &mut value)?;
    Ok(value)
}

/// The stored object with its members in the order of Go, for messages.
fn in_go_order(call: &Call<'_>, before: &Value) -> Value {
    if call.resource.custom.is_some() {
        return before.clone();
    }
    go_values::ordered(before, &call.resource.schema())
}

/// Sorts the members of the objects that the patch has changed, as kube-apiserver does.
fn sort_patched(call: &Call<'_>, patch_type: PatchType, patched: &mut Value) {
    match patch_type {
        PatchType::Merge => {
            let document = crate::base::json::parse_json(&call.request.body);
            if let Ok((document, _)) = document {
                go_values::sort_patched(patched, &document);
            }
        }
        PatchType::Strategic => patched.sort_all_objects(),
        PatchType::Json | PatchType::Apply => {}
    }
}

/// Checks that the patch does not change `apiVersion` or `kind`.
fn check_kind(call: &Call<'_>, patched: &Value) -> Result<(), Status> {
    if call.resource.custom.is_some() {
        return Ok(());
    }
    let (kind, version) = (text(patched, "/kind"), text(patched, "/apiVersion"));
    // An absent kind is that of the version.
    if (kind == call.resource.kind || kind.is_empty()) && version == call.resource.api_version() {
        return Ok(());
    }
    let why = format!(
        "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""
    );
    Err(Status::invalid_patch(patched, &why))
}

pub(super) fn apply_patch(
    call: &Call<'_>,
    patch_type: PatchType,
    before: &Value,
) -> Result<(Value, Vec<String>), Status> {
    let bytes = &call.request.body;
    let decode_error = |why: String| Status::bad_request(format!("error decoding patch: {why}"));
    let (document, duplicates) = crate::base::json::parse_json(bytes).map_err(|e| {
        let why = json_complaint(bytes, &e);
        if patch_type == PatchType::Strategic { Status::bad_request(why) } else { decode_error(why) }
    })?;
    let mut value = before.clone();
    match patch_type {
        PatchType::Json => {
            patch::json::apply(&mut value, &document).map_err(|rejection| match rejection {
                patch::json::PatchError::Malformed(why) => decode_error(why),
                patch::json::PatchError::Inapplicable(_) => Status::unprocessable(),
                patch::json::PatchError::TooMany(count) => Status::new(
                    413,
                    "RequestEntityTooLarge",
                    format!("The allowed maximum operations in a JSON patch is 10000, got {count}"),
                ),
            })?;
        }
        PatchType::Merge | PatchType::Apply => {
            if !document.is_object() {
                return Err(decode_error(not_a_map(&document)));
            }
            patch::merge(&mut value, &document);
        }
        PatchType::Strategic => {
            if !document.is_object() {
                return Err(Status::bad_request(not_a_map(&document)));
            }
            patch::strategic::merge(&mut value, &document, &call.resource.schema())
                .map_err(Status::internal)?;
        }
    }
    Ok((value, duplicates))
}

fn not_a_map(document: &Value) -> String {
    let found = match document {
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        _ => "number",
    };
    format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")
}
