//! What an incoming object must be before it is stored: of the right kind and place, read by its schema, defaulted, valid.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::Semaphore;

use super::Call;
use crate::builtin;
use crate::encoding;
use crate::kinds::{Resource, split_api_version};
use crate::meta;
use crate::request::{Strictness, json_complaint, parse_json};
use crate::schema::{self, cel, decode, validate};
use crate::status::{Cause, Status};

/// What is to be told beside the answer, or instead of it.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) twice: Vec<String>,
    pub(crate) unknown: Vec<String>,
}

impl Findings {
    /// The same as one text, when there is something to complain of.
    pub(crate) fn complaint(&self) -> Option<String> {
        let lines = self.lines();
        (!lines.is_empty()).then(|| format!("strict decoding error: {}", lines.join(", ")))
    }
    fn lines(&self) -> Vec<String> {
        let twice = self.twice.iter().map(|f| format!("duplicate field \"{f}\""));
        twice.chain(self.unknown.iter().map(|f| format!("unknown field \"{f}\""))).collect()
    }
    /// Warnings of the answer; an error when fields are taken strictly.
    pub(crate) fn judge(&self, strictness: Strictness, resource: &Resource) -> Result<Vec<String>, Status> {
        let lines = self.lines();
        match strictness {
            Strictness::Ignore => Ok(Vec::new()),
            Strictness::Warn => Ok(lines),
            Strictness::Strict if lines.is_empty() => Ok(lines),
            Strictness::Strict => Err(undecodable(
                resource,
                &resource.version,
                &format!("strict decoding error: {}", lines.join(", ")),
            )),
        }
    }
}

fn undecodable(resource: &Resource, version: &str, why: &str) -> Status {
    let kind = &resource.kind;
    Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
}

/// Reads a request's body as JSON.
pub(crate) fn body(call: &Call<'_>) -> Result<(Value, Vec<String>), Status> {
    let media = call.request.header("content-type").split(';').next().unwrap_or_default().trim().to_owned();
    if !matches!(media.as_str(), "" | "application/json" | "application/yaml") {
        let mut accepted = "application/json, application/yaml".to_owned();
        if !matches!(call.request.method, http::Method::PATCH) {
            accepted.push_str(", application/vnd.kubernetes.protobuf");
        }
        return Err(Status::unsupported_media(&accepted));
    }
    let bytes = &call.request.body;
    let kind = &call.resource.kind;
    let unrecognized = |why: &str, shown: &str| {
        let message = format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {why} ({shown})"
        );
        Status::bad_request(message)
    };
    match parse_json(bytes) {
        Ok((value, twice)) if value.is_object() => Ok((value, twice)),
        Ok((value, _)) => {
            let found = match value {
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                _ => "number",
            };
            let target = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }";
            let why = format!("json: cannot unmarshal {found} into Go value of type {target}");
            Err(unrecognized(&why, &excerpt(bytes)))
        }
        Err(error) => Err(unrecognized(&json_complaint(bytes, &error), &excerpt(bytes))),
    }
}

/// The beginning of a body, as complaints show it: text when it looks like JSON, else hexadecimal.
fn excerpt(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    if !text.trim_start().starts_with('{') {
        return bytes
            .iter()
            .take(30)
            .flat_map(|b| [b >> 4, b & 15])
            .filter_map(|d| char::from_digit(d.into(), 16))
            .collect();
    }
    if bytes.len() <= 30 {
        return text.into_owned();
    }
    format!("{} ...", text.chars().take(30).collect::<String>())
}

/// Checks that the object says it is what the path says.
pub(crate) fn check_type(call: &Call<'_>, value: &mut Value) -> Result<(), Status> {
    let resource = &call.resource;
    let api_version = super::text(value, "/apiVersion").to_owned();
    let kind = super::text(value, "/kind").to_owned();
    if resource.custom.is_some() {
        if kind.is_empty() || api_version.is_empty() {
            let missing = if kind.is_empty() { "Kind" } else { "apiVersion" };
            let body = String::from_utf8_lossy(&call.request.body);
            let message = format!(
                "the object provided is unrecognized (must be of type {}): Object '{missing}' is missing in '{}' ({})",
                resource.kind,
                body,
                excerpt(&call.request.body)
            );
            return Err(Status::bad_request(message));
        }
        if api_version != resource.api_version() {
            return Err(mismatched_version(&api_version, &resource.api_version()));
        }
        return Ok(());
    }
    let wanted = resource.api_version();
    if (!kind.is_empty() && kind != resource.kind) || (!api_version.is_empty() && api_version != wanted) {
        let kind = if kind.is_empty() { &resource.kind } else { &kind };
        let version = if api_version.is_empty() { &wanted } else { &api_version };
        return Err(foreign_kind(call, kind, version));
    }
    if let Value::Object(map) = value {
        map.insert("kind".into(), resource.kind.clone().into());
        map.insert("apiVersion".into(), wanted.into());
    }
    Ok(())
}

fn mismatched_version(found: &str, wanted: &str) -> Status {
    let message =
        format!("the API version in the data ({found}) does not match the expected API version ({wanted})");
    Status::bad_request(message)
}

fn foreign_kind(call: &Call<'_>, kind: &str, api_version: &str) -> Status {
    let resource = &call.resource;
    let (group, version) = split_api_version(api_version);
    let registered =
        call.cluster.registry().by_kind(group, version, kind).is_some_and(|r| r.custom.is_none());
    let why = if !registered {
        format!(
            "no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"pkg/runtime/scheme.go:111\""
        )
    } else if kind == resource.kind {
        return mismatched_version(api_version, &resource.api_version());
    } else {
        let place = if resource.group.is_empty() {
            "core"
        } else {
            resource.group.split('.').next().unwrap_or_default()
        };
        format!("converting ({version}.{kind}) to ({place}.{}): unknown conversion", resource.kind)
    };
    Status::bad_request(format!(
        "{kind} in version \"{version}\" cannot be handled as a {}: {why}",
        resource.kind
    ))
}

/// Makes the object's place and the path's the same.
pub(crate) fn check_place(call: &Call<'_>, value: &mut Value) -> Result<(), Status> {
    let Some(map) = value.as_object_mut() else { return Ok(()) };
    let meta = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if meta.is_null() {
        *meta = Value::Object(Map::new());
    }
    let Some(meta) = meta.as_object_mut() else { return Ok(()) };
    let said = meta.get("namespace").and_then(Value::as_str).unwrap_or_default();
    if !said.is_empty() && said != call.namespace && call.resource.namespaced {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Status::bad_request(message));
    }
    if call.resource.namespaced {
        meta.insert("namespace".into(), call.namespace.clone().into());
    } else if said.is_empty() {
        meta.shift_remove("namespace");
    }
    Ok(())
}

/// Reads the object by its schema: unknown fields fall away, defaults come in. The error is the decoder's. `before` is what was
/// stored of it, if that is known.
pub(crate) fn shape(
    resource: &Resource,
    value: Value,
    before: Option<&Value>,
    findings: &mut Findings,
) -> Result<Value, String> {
    let wiped = super::at(&value, "/metadata/managedFields").is_some_and(resets);
    let mut value = if resource.custom.is_some() {
        shape_custom(resource, value, before, findings)?
    } else {
        let mut notes = decode::Notes::default();
        let mut read = decode::decode(value, &resource.schema(), &mut notes)?;
        findings.unknown.extend(notes.unknown);
        builtin::defaults::fill(resource, &mut read);
        read
    };
    if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        meta::tidy(meta);
        if wiped {
            // Saying that nobody manages anything is not the same as saying nothing.
            meta.insert("managedFields".into(), Value::Array(Vec::new()));
        }
    }
    Ok(value)
}

/// An explicitly empty list of managers wipes them.
fn resets(managed: &Value) -> bool {
    managed.as_array().is_some_and(|list| list.iter().all(|e| e.as_object().is_some_and(Map::is_empty)))
}

fn shape_custom(
    resource: &Resource,
    mut value: Value,
    before: Option<&Value>,
    findings: &mut Findings,
) -> Result<Value, String> {
    let schema = resource.schema();
    if let Some(map) = value.as_object_mut() {
        let mut meta = map.shift_remove("metadata").unwrap_or_default();
        let stored = before.and_then(|b| b.get("metadata"));
        if stored.is_some_and(|stored| encoding::alike(stored, &meta)) {
            debug_assert!(reads_as_it_is(&meta), "what was stored has been read before: {meta}");
        } else {
            let mut notes = decode::Notes::default();
            meta = decode::decode(meta, &builtin::schema("meta.v1.ObjectMeta"), &mut notes)?;
            findings.unknown.extend(notes.unknown.into_iter().map(|f| format!("metadata.{f}")));
        }
        map.insert("metadata".into(), meta);
    }
    schema::prune(&mut value, &schema, &mut findings.unknown);
    schema::fill_defaults(&mut value, &schema);
    drop_forbidden_nulls(&mut value, &schema);
    Ok(value)
}

fn reads_as_it_is(meta: &Value) -> bool {
    let mut notes = decode::Notes::default();
    let read = decode::decode(meta.clone(), &builtin::schema("meta.v1.ObjectMeta"), &mut notes);
    let Ok(Value::Object(mut read)) = read else { return false };
    meta::tidy(&mut read);
    notes.unknown.is_empty() && encoding::alike(&Value::Object(read), meta)
}

/// Nulls of fields that may not be null, but have a default, count as absent; others are validated as they are.
fn drop_forbidden_nulls(value: &mut Value, schema: &schema::Schema) {
    if let Value::Object(map) = value {
        map.retain(|key, child| {
            let known = schema.properties.get(key);
            !(child.is_null() && known.is_some_and(|s| !s.nullable && s.default.is_some()))
        });
        for (key, child) in map.iter_mut() {
            if let Some(known) = schema.child(key) {
                drop_forbidden_nulls(child, known);
            }
        }
    }
}

/// The same for a request's body: the decoder's complaint becomes the answer.
pub(crate) fn shape_body(call: &Call<'_>, value: Value, findings: &mut Findings) -> Result<Value, Status> {
    shape(&call.resource, value, None, findings)
        .map_err(|why| undecodable(&call.resource, &call.resource.version, &why))
}

/// Complaints after which rules are not tried.
const BLOCKING: [&str; 4] =
    ["FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"];

/// All complaints about an object; `old` is what it replaces.
pub(crate) async fn validate_object(
    resource: &Arc<Resource>,
    value: &Value,
    old: Option<&Value>,
) -> Result<Vec<Cause>, Status> {
    let mut out = meta::validate(resource, value.get("metadata").unwrap_or(&Value::Null));
    if old.is_some() {
        // A change is checked as a change and as an object, and both complain.
        let once = out.clone();
        (1..echoes(resource)).for_each(|_| out.extend(once.clone()));
    }
    if resource.custom.is_none() {
        out.extend(builtin::validation::validate(resource, value, old));
        return Ok(out);
    }
    let found_kind = super::text(value, "/kind");
    if found_kind != resource.kind {
        out.push(Cause::invalid("kind", &found_kind.into(), &format!("must be {}", resource.kind)));
    }
    let schema = resource.schema();
    let (causes, twins) = validate::validate(value, &schema);
    // Rules are not tried on what cannot be read as its type, or is too much.
    let clean = !causes.iter().any(|c| BLOCKING.contains(&c.reason));
    out.extend(causes);
    out.extend(twins);
    if resource.custom.as_ref().is_some_and(|c| c.ruled) {
        if clean {
            out.extend(match cel::check_cheaply(value, old, &schema) {
                Some(causes) => causes,
                None => check_rules_in_thread(&schema, value, old).await?,
            });
        } else {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing errors \
                          to complete validation";
            out.push(Cause::invalid("<nil>", &Value::Null, detail));
        }
    }
    Ok(out)
}

/// How many threads evaluate expensive rules at once.
static EXPENSIVE: Semaphore = Semaphore::const_new(2);

/// Rules that take long must not hold up other requests.
async fn check_rules_in_thread(
    schema: &Arc<schema::Schema>,
    value: &Value,
    old: Option<&Value>,
) -> Result<Vec<Cause>, Status> {
    let failed = || Status::internal("Internal error occurred: validation rules cannot be evaluated");
    let _permit = EXPENSIVE.acquire().await.map_err(|_| failed())?;
    let (schema, value, old) = (Arc::clone(schema), value.clone(), old.cloned());
    let checking = tokio::task::spawn_blocking(move || cel::check(&value, old.as_ref(), &schema));
    checking.await.map_err(|_| failed())
}

/// How many of the server's layers check the metadata of a change of this kind.
fn echoes(resource: &Resource) -> usize {
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

/// Refuses an object with complaints.
pub(crate) fn refuse(resource: &Resource, value: &Value, causes: &[Cause]) -> Result<(), Status> {
    if causes.is_empty() {
        return Ok(());
    }
    let kind = match super::text(value, "/kind") {
        "" => &resource.kind,
        kind => kind,
    };
    Err(Status::invalid(&resource.group, kind, super::text(value, "/metadata/name"), causes))
}
