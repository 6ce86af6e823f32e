//! Patches in the JSON, merge and strategic dialects; server-side apply has a file of its own.

use serde_json::{Map, Value};

use super::body;
use super::change::{change, check_name, check_version};
use super::write::ATTEMPTS;
use super::{Call, apply};
use crate::base::json::json_complaint;
use crate::base::json::text;
use crate::base::options::Strictness;
use crate::error::status::{Cause, Status};
use crate::http::render::view_value;
use crate::http::response::Response;
use crate::patch::{self, Dialect};
use crate::registry::prepare::{self, Findings};

pub(crate) async fn patch(call: &Call<'_>) -> Result<Response, Status> {
    call.request.shape()?;
    let custom = call.resource.custom.is_some();
    let dialect = match Dialect::of(call.request.header("content-type")) {
        Some(Dialect::Strategic) if custom => {
            return Err(Status::unsupported_media(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            ));
        }
        Some(dialect) => dialect,
        None => {
            let status = Status::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
            return Err(status.with(Map::new()));
        }
    };
    let options = call.request.write_options("PatchOptions")?;
    let name = call.name.as_deref().unwrap_or_default();
    if dialect == Dialect::Apply {
        return apply::apply(call, &options).await;
    }
    if call.request.query.has("force") && options.force {
        let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
        return Err(Status::bad_options("PatchOptions", &[cause]));
    }
    for _ in 0..ATTEMPTS {
        let old = call.cluster.get(&call.resource, &call.namespace, name);
        let old = old.ok_or_else(|| Status::not_found(call.resource.group_resource(), name))?;
        let before = view_value(&old, &call.resource);
        let (patched, twice) = patched(call, dialect, &before)?;
        let mut findings = Findings { twice, ..Findings::default() };
        let wrong_kind = check_kind(call, &patched);
        // Complaints show the patched object as it was: it is patched again for them.
        let refused = |why: String| match self::patched(call, dialect, &before) {
            Ok((patched, _)) => Status::invalid_patch(&patched, &why),
            Err(status) => status,
        };
        let mut value =
            prepare::shape(&call.resource, patched, Some(&before), &mut findings).map_err(refused)?;
        if let (Strictness::Strict, Some(why)) = (options.strictness, findings.complaint()) {
            return Err(refused(why));
        }
        wrong_kind?;
        let warnings = findings.judge(options.strictness, &call.resource)?;
        check_name(&value, name)?;
        body::check_place(call, &mut value)?;
        let said = text(&value, "/metadata/resourceVersion").to_owned();
        let pinned = said != old.version.to_string();
        if pinned && !said.is_empty() {
            check_version(call, &value, &old)?;
        }
        if let Some(made) = change(call, &old, &before, value, &options, None).await? {
            return Ok(made.response(200, call.request, &call.resource)?.warn(&warnings));
        }
    }
    Err(Status::modified(call.resource.group_resource(), name))
}

/// A patch cannot make another kind of an object.
fn check_kind(call: &Call<'_>, patched: &Value) -> Result<(), Status> {
    if call.resource.custom.is_some() {
        return Ok(());
    }
    let (kind, version) = (text(patched, "/kind"), text(patched, "/apiVersion"));
    if kind == call.resource.kind && version == call.resource.api_version() {
        return Ok(());
    }
    let why = format!(
        "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""
    );
    Err(Status::invalid_patch(patched, &why))
}

pub(super) fn patched(
    call: &Call<'_>,
    dialect: Dialect,
    before: &Value,
) -> Result<(Value, Vec<String>), Status> {
    let bytes = &call.request.body;
    let undecodable = |why: String| Status::bad_request(format!("error decoding patch: {why}"));
    let (document, twice) =
        crate::base::json::parse_json(bytes).map_err(|e| undecodable(json_complaint(bytes, &e)))?;
    let mut value = before.clone();
    match dialect {
        Dialect::Json => patch::json::apply(&mut value, &document).map_err(|refused| match refused {
            patch::json::Refused::Malformed(why) => undecodable(why),
            patch::json::Refused::Inapplicable => Status::unprocessable(),
            patch::json::Refused::TooMany(count) => Status::new(
                413,
                "RequestEntityTooLarge",
                format!("The allowed maximum operations in a JSON patch is 10000, got {count}"),
            ),
        })?,
        Dialect::Merge | Dialect::Apply => {
            if !document.is_object() {
                return Err(undecodable(no_map(&document)));
            }
            patch::merge(&mut value, &document);
        }
        Dialect::Strategic => {
            if !document.is_object() {
                return Err(Status::bad_request(no_map(&document)));
            }
            patch::strategic::merge(&mut value, &document, &call.resource.schema())
                .map_err(Status::internal)?;
        }
    }
    Ok((value, twice))
}

fn no_map(document: &Value) -> String {
    let found = match document {
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        _ => "number",
    };
    format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")
}
