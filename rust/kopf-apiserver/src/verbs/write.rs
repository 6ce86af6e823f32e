//! Create, update and patch, and the subresources that are written.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::conform::{self, Findings};
use super::{Call, text};
use crate::cluster::OBJECT_LIMIT;
use crate::fields::{self, Comparison, Entry, Set};
use crate::meta;
use crate::patch::{self, Dialect};
use crate::request::{WriteOptions, json_complaint};
use crate::response::{self, Response, view_value};
use crate::schema::{decode, formats};
use crate::status::{Cause, Status};
use crate::store::{Refused, Stored};
use crate::webhooks::{self, Operation};

/// How often a patch is made anew when somebody else was faster.
const ATTEMPTS: usize = 20;

pub(crate) async fn create(call: &Call<'_>) -> Result<Response, Status> {
    call.request.shape()?;
    let options = call.request.write_options("CreateOptions")?;
    let (mut value, twice) = conform::body(call)?;
    conform::check_type(call, &mut value)?;
    let mut findings = Findings { twice, ..Findings::default() };
    let mut value = conform::shape_body(call, value, &mut findings)?;
    let warnings = findings.judge(options.strictness, &call.resource)?;
    conform::check_place(call, &mut value)?;
    let versioned = !text(&value, "/metadata/resourceVersion").is_empty();
    let stored = create_object(call, value, &options, None).await?;
    if versioned {
        return Err(Status::internal("resourceVersion should not be set on objects to be created"));
    }
    Ok(response::value(201, call.request, &call.resource, &stored)?.warn(&warnings))
}

/// Stores a new object. `applied` is the manager's entry when the object comes from an apply.
async fn create_object(
    call: &Call<'_>,
    mut value: Value,
    options: &WriteOptions,
    applied: Option<Entry>,
) -> Result<Value, Status> {
    let versioned = !text(&value, "/metadata/resourceVersion").is_empty();
    start_life(call, &mut value);
    check_namespace(call, &value)?;
    let entries = match applied {
        Some(entry) => vec![entry],
        None => {
            let ground = if call.resource.custom.is_some() {
                json!({})
            } else {
                decode::zero(&call.resource.schema())
            };
            booked(call, &ground, &value, Vec::new(), options)
        }
    };
    if let Some(map) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        fields::write(map, entries);
    }
    let mut value = webhooks::mutate(call, Operation::Create, value, None, options).await?;
    crate::builtin::defaults::assign(call.cluster, &call.resource, &mut value, None);
    let causes = conform::validate_object(&call.resource, &value, None);
    conform::refuse(&call.resource, &value, &causes)?;
    webhooks::validate(call, Operation::Create, Some(&value), None, options).await?;
    check_size(&value)?;
    if options.dry_run || versioned {
        let name = text(&value, "/metadata/name");
        if call.cluster.get(&call.resource, &call.namespace, name).is_some() && !versioned {
            return Err(Status::already_exists(&call.resource, name));
        }
        return Ok(value);
    }
    let generated = !text(&value, "/metadata/generateName").is_empty();
    match call.cluster.insert(&call.resource, value.clone()) {
        Ok(stored) => Ok(view_value(&stored, &call.resource)),
        Err(_) => {
            let name = text(&value, "/metadata/name");
            let mut status = Status::already_exists(&call.resource, name);
            if generated {
                status.message.push_str(", the server was not able to generate a unique name for the object");
            }
            Err(status)
        }
    }
}

/// Fills in what the server gives a new object.
fn start_life(call: &Call<'_>, value: &mut Value) {
    let has_status = call.resource.subresource("status").is_some();
    let Some(map) = value.as_object_mut() else { return };
    if has_status {
        if call.resource.custom.is_some() {
            map.shift_remove("status");
        } else {
            crate::builtin::defaults::fresh_status(&call.resource, map);
        }
    }
    let Some(meta) = map.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let prefix = meta.get("generateName").and_then(Value::as_str).unwrap_or_default().to_owned();
    let unnamed = meta.get("name").and_then(Value::as_str).is_none_or(str::is_empty);
    if unnamed && !prefix.is_empty() {
        let kept: String = prefix.chars().take(58).collect();
        meta.insert("name".into(), format!("{kept}{}", meta::suffix()).into());
    }
    for key in [
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "managedFields",
        "resourceVersion",
        "generation",
    ] {
        meta.shift_remove(key);
    }
    meta.insert("uid".into(), meta::uid().into());
    meta.insert("creationTimestamp".into(), formats::now().into());
    if call.resource.counts_generations() {
        meta.insert("generation".into(), 1.into());
    }
}

/// A namespaced object needs a living namespace.
fn check_namespace(call: &Call<'_>, value: &Value) -> Result<(), Status> {
    if !call.resource.namespaced {
        return Ok(());
    }
    let namespaces = call.cluster.builtin("", "namespaces");
    if let (None, Some(namespaces)) = (call.cluster.store.get("namespaces", "", &call.namespace), &namespaces)
    {
        return Err(Status::not_found(namespaces, &call.namespace));
    }
    if call.cluster.is_terminating(&call.namespace) {
        let place = &call.namespace;
        let why = format!("unable to create new content in namespace {place} because it is being terminated");
        let cause = Cause {
            field: "metadata.namespace".into(),
            reason: "NamespaceTerminating",
            message: format!("namespace {place} is being terminated"),
        };
        return Err(Status::forbidden(&call.resource, text(value, "/metadata/name"), &why, &[cause]));
    }
    Ok(())
}

fn check_size(value: &Value) -> Result<(), Status> {
    // Counting is cheap next to what it protects from: objects are seldom even near the limit.
    if value.to_string().len() > OBJECT_LIMIT {
        return Err(Status::internal("etcdserver: request is too large"));
    }
    Ok(())
}

/// The managers' entries after a change that was not an apply.
fn booked(
    call: &Call<'_>,
    old: &Value,
    new: &Value,
    entries: Vec<Entry>,
    options: &WriteOptions,
) -> Vec<Entry> {
    let mut changes = Comparison::default();
    let schema = managed_schema(call);
    fields::compare(Some(old), Some(new), &schema, &mut Vec::new(), &mut changes);
    for set in [&mut changes.added, &mut changes.modified, &mut changes.removed] {
        fields::strip(set);
    }
    fields::book(entries, &changes, entry(call, options, false, Set::new()))
}

/// The schema with the metadata's own, which declared schemas leave out.
fn managed_schema(call: &Call<'_>) -> crate::schema::Schema {
    let mut schema = (*call.resource.schema()).clone();
    schema.properties.insert("metadata".into(), crate::builtin::schema("meta.v1.ObjectMeta"));
    schema
}

fn entry(call: &Call<'_>, options: &WriteOptions, apply: bool, set: Set) -> Entry {
    Entry {
        manager: options.manager.clone(),
        apply,
        api_version: call.resource.api_version(),
        time: formats::now(),
        subresource: call.subresource.clone().unwrap_or_default(),
        set,
    }
}

pub(crate) async fn update(call: &Call<'_>) -> Result<Response, Status> {
    call.request.shape()?;
    let options = call.request.write_options("UpdateOptions")?;
    let name = call.name.as_deref().unwrap_or_default();
    let (mut value, twice) = conform::body(call)?;
    conform::check_type(call, &mut value)?;
    let mut findings = Findings { twice, ..Findings::default() };
    let mut value = conform::shape_body(call, value, &mut findings)?;
    let warnings = findings.judge(options.strictness, &call.resource)?;
    check_name(&value, name)?;
    conform::check_place(call, &mut value)?;
    for _ in 0..ATTEMPTS {
        let Some(old) = call.cluster.get(&call.resource, &call.namespace, name) else {
            if creates_on_update(call) {
                let stored = create_object(call, value, &options, None).await?;
                return response::value(201, call.request, &call.resource, &stored);
            }
            return Err(Status::not_found(&call.resource, name));
        };
        let pinned = check_version(call, &value, &old)?;
        check_uid(call, &value, &old)?;
        match change(call, &old, value.clone(), &options, None).await? {
            Some(stored) => {
                return Ok(response::value(200, call.request, &call.resource, &stored)?.warn(&warnings));
            }
            None if pinned => return Err(Status::modified(&call.resource, name)),
            None => {}
        }
    }
    Err(Status::modified(&call.resource, name))
}

/// Kinds that an update brings into being.
fn creates_on_update(call: &Call<'_>) -> bool {
    call.subresource.is_none()
        && matches!(
            (call.resource.group.as_str(), call.resource.plural.as_str()),
            ("coordination.k8s.io", "leases")
                | ("rbac.authorization.k8s.io", _)
                | ("", "endpoints" | "events" | "limitranges")
        )
}

fn check_name(value: &Value, name: &str) -> Result<(), Status> {
    match text(value, "/metadata/name") {
        "" => Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        said if said != name => Err(Status::bad_request(format!(
            "the name of the object ({said}) does not match the name on the URL ({name})"
        ))),
        _ => Ok(()),
    }
}

/// Compares the version that the change was made for; tells whether one was given.
fn check_version(call: &Call<'_>, value: &Value, old: &Stored) -> Result<bool, Status> {
    match text(value, "/metadata/resourceVersion") {
        "" | "0" if needs_version(call) => {
            let cause =
                Cause::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
            Err(Status::invalid(&call.resource.group, &call.resource.plural, &old.name, &[cause]))
        }
        "" => Ok(false),
        said => {
            let version: u64 = said.parse().map_err(|_| {
                Status::internal(format!("strconv.ParseUint: parsing \"{said}\": invalid syntax"))
            })?;
            if version == old.version { Ok(true) } else { Err(Status::modified(&call.resource, &old.name)) }
        }
    }
}

/// Kinds that may only be replaced by who has seen their newest version.
fn needs_version(call: &Call<'_>) -> bool {
    const STRICT: [(&str, &str); 9] = [
        ("coordination.k8s.io", "leases"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("apiregistration.k8s.io", "apiservices"),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
        ("policy", "poddisruptionbudgets"),
        ("storage.k8s.io", "csistoragecapacities"),
        ("networking.k8s.io", "ipaddresses"),
    ];
    call.resource.custom.is_some() || STRICT.iter().any(|(g, p)| call.resource.is(g, p))
}

fn check_uid(call: &Call<'_>, value: &Value, old: &Stored) -> Result<(), Status> {
    let said = text(value, "/metadata/uid");
    if said.is_empty() || said == &*old.uid {
        return Ok(());
    }
    let group =
        if call.resource.group.is_empty() { String::new() } else { format!("{}/", call.resource.group) };
    let place = if call.namespace.is_empty() { String::new() } else { format!("{}/", call.namespace) };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{group}{}/{place}{}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {said}, UID in object meta: {}",
        call.resource.plural, old.name, old.uid
    );
    Err(Status::conflict(&call.resource, &old.name, &why))
}

/// Carries a change out. `None` when somebody else changed the object in between. `applied` are the managers' entries when
/// the change comes from an apply.
async fn change(
    call: &Call<'_>,
    old: &Arc<Stored>,
    mut new: Value,
    options: &WriteOptions,
    applied: Option<Vec<Entry>>,
) -> Result<Option<Value>, Status> {
    let before = view_value(old, &call.resource);
    keep_other_parts(call, &before, &mut new);
    let old_meta = before.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
    let reset = new.pointer("/metadata/managedFields").is_some_and(resets);
    let mut causes = match new.get_mut("metadata").and_then(Value::as_object_mut) {
        Some(meta) => meta::carry_over(meta, &old_meta),
        None => Vec::new(),
    };
    let entries = match applied {
        Some(entries) => entries,
        None if reset => Vec::new(),
        None => booked(call, &before, &new, fields::read(&Value::Object(old_meta.clone())), options),
    };
    if let Some(meta) = new.get_mut("metadata").and_then(Value::as_object_mut) {
        fields::write(meta, entries);
        meta.insert("resourceVersion".into(), old.version.to_string().into());
    }
    count_generation(call, &before, &mut new);
    let mut new = webhooks::mutate(call, Operation::Update, new, Some(&before), options).await?;
    crate::builtin::defaults::assign(call.cluster, &call.resource, &mut new, Some(&before));
    causes.extend(conform::validate_object(&call.resource, &new, Some(&before)));
    conform::refuse(&call.resource, &new, &causes)?;
    webhooks::validate(call, Operation::Update, Some(&new), Some(&before), options).await?;
    check_size(&new)?;
    if options.dry_run || new == before {
        return Ok(Some(new));
    }
    let free = new.pointer("/metadata/finalizers").and_then(Value::as_array).is_none_or(Vec::is_empty);
    let deleting = old_meta.contains_key("deletionTimestamp");
    let graceful = old_meta.get("deletionGracePeriodSeconds").and_then(Value::as_i64).is_some_and(|g| g > 0);
    if deleting && free && !graceful && !call.resource.is("", "namespaces") {
        return match call.cluster.remove(&call.resource, old, new.clone()) {
            Ok(_) => Ok(Some(new)),
            Err(_) => Ok(None),
        };
    }
    match call.cluster.replace(&call.resource, old, new) {
        Ok(stored) => Ok(Some(view_value(&stored, &call.resource))),
        Err(Refused::Missing) => Err(Status::not_found(&call.resource, &old.name)),
        Err(_) => Ok(None),
    }
}

/// An explicitly empty list of managers wipes them.
fn resets(managed: &Value) -> bool {
    managed.as_array().is_some_and(|list| list.iter().all(|e| e.as_object().is_some_and(Map::is_empty)))
}

/// A change through one door leaves what lies behind the others.
fn keep_other_parts(call: &Call<'_>, old: &Value, new: &mut Value) {
    let Some(map) = new.as_object_mut() else { return };
    let mut restore = |key: &str| match old.get(key) {
        Some(value) => {
            map.insert(key.to_owned(), value.clone());
        }
        None => {
            map.shift_remove(key);
        }
    };
    if call.status_only() {
        let others: Vec<String> = old.as_object().into_iter().flatten().map(|(k, _)| k.clone()).collect();
        for key in
            others.iter().filter(|k| *k != "status" && (call.resource.custom.is_some() || *k != "metadata"))
        {
            restore(key);
        }
        if call.resource.custom.is_some() {
            map.retain(|k, _| k == "status" || old.get(k).is_some());
        }
    } else if call.resource.subresource("status").is_some() && call.subresource.is_none() {
        restore("status");
    }
}

/// The generation counts changes of what the author wants, not of what was observed.
fn count_generation(call: &Call<'_>, old: &Value, new: &mut Value) {
    if !call.resource.counts_generations() || call.status_only() {
        return;
    }
    let has_status = call.resource.subresource("status").is_some();
    let relevant = |v: &Value| -> Map<String, Value> {
        let all = v.as_object().cloned().unwrap_or_default();
        all.into_iter()
            .filter(|(k, _)| {
                !matches!(k.as_str(), "metadata" | "apiVersion" | "kind") && !(has_status && k == "status")
            })
            .collect()
    };
    if relevant(old) != relevant(new) {
        let count = old.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        if let Some(meta) = new.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.insert("generation".into(), (count + 1).into());
        }
    }
}

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
            return Err(Status { details: Some(Map::new()), ..status });
        }
    };
    let options = call.request.write_options("PatchOptions")?;
    let name = call.name.as_deref().unwrap_or_default();
    if dialect == Dialect::Apply {
        return super::write::apply(call, &options).await;
    }
    if call.request.query.has("force") && options.force {
        let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
        return Err(Status::bad_options("PatchOptions", &[cause]));
    }
    for _ in 0..ATTEMPTS {
        let old = call.cluster.get(&call.resource, &call.namespace, name);
        let old = old.ok_or_else(|| Status::not_found(&call.resource, name))?;
        let before = view_value(&old, &call.resource);
        let (patched, twice) = patched(call, dialect, &before)?;
        let mut findings = Findings { twice, ..Findings::default() };
        let mut value = conform::shape(&call.resource, patched.clone(), &mut findings)
            .map_err(|why| unreadable(&patched, &why))?;
        let warnings = findings.judge(options.strictness, &call.resource)?;
        check_name(&value, name)?;
        conform::check_place(call, &mut value)?;
        let said = text(&value, "/metadata/resourceVersion").to_owned();
        let pinned = said != old.version.to_string();
        if pinned && !said.is_empty() {
            check_version(call, &value, &old)?;
        }
        if let Some(stored) = change(call, &old, value, &options, None).await? {
            return Ok(response::value(200, call.request, &call.resource, &stored)?.warn(&warnings));
        }
    }
    Err(Status::modified(&call.resource, name))
}

/// A patch whose result is no object of the kind.
fn unreadable(patched: &Value, why: &str) -> Status {
    let shown = Value::from(patched.to_string()).to_string();
    Status::invalid("", "", "", &[Cause::invalid_raw("patch", &shown, why)])
}

fn patched(call: &Call<'_>, dialect: Dialect, before: &Value) -> Result<(Value, Vec<String>), Status> {
    let bytes = &call.request.body;
    let undecodable = |why: String| Status::bad_request(format!("error decoding patch: {why}"));
    let (document, twice) =
        crate::request::parse_json(bytes).map_err(|e| undecodable(json_complaint(bytes, &e)))?;
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
                return Err(undecodable(
                    "json: cannot unmarshal array into Go value of type map[string]interface {}".into(),
                ));
            }
            patch::merge(&mut value, &document);
        }
        Dialect::Strategic => {
            if !document.is_object() {
                return Err(undecodable(
                    "json: cannot unmarshal array into Go value of type map[string]interface {}".into(),
                ));
            }
            patch::strategic::merge(&mut value, &document, &call.resource.schema())
                .map_err(Status::internal)?;
        }
    }
    Ok((value, twice))
}

/// Server-side apply.
async fn apply(call: &Call<'_>, options: &WriteOptions) -> Result<Response, Status> {
    if call.request.query.get("fieldManager").is_empty() {
        let cause = Cause::required("fieldManager", "is required for apply patch");
        return Err(Status::bad_options("PatchOptions", &[cause]));
    }
    let name = call.name.as_deref().unwrap_or_default();
    let mut config = read_config(call)?;
    check_name(&config, name)?;
    conform::check_place(call, &mut config)?;
    if config.pointer("/metadata/managedFields").is_some() {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    let mut findings = Findings::default();
    let typed = conform::shape_body(call, config.clone(), &mut findings)?;
    let warnings = findings.judge(options.strictness, &call.resource)?;
    drop_unknown(&mut config, &typed);
    patch::apply::drop_nulls(&mut config);
    let schema = managed_schema(call);
    for _ in 0..ATTEMPTS {
        let mut set = Set::new();
        let mut own = config.clone();
        own_part(call, &mut own);
        fields::of_object(&own, &schema, &mut Vec::new(), &mut set);
        fields::strip(&mut set);
        let who = entry(call, options, true, set);
        let Some(old) = call.cluster.get(&call.resource, &call.namespace, name) else {
            if call.subresource.is_some() {
                return Err(Status::not_found(&call.resource, name));
            }
            let stored = create_object(call, typed, options, Some(who)).await?;
            return Ok(response::value(201, call.request, &call.resource, &stored)?.warn(&warnings));
        };
        check_uid(call, &config, &old)?;
        if !text(&config, "/metadata/resourceVersion").is_empty() {
            check_version(call, &config, &old)?;
        }
        let before = view_value(&old, &call.resource);
        let entries = fields::read(before.get("metadata").unwrap_or(&Value::Null));
        let known = entries
            .iter()
            .find(|e| e.apply && e.manager == who.manager && e.set == who.set)
            .map(|e| e.time.clone());
        let mut applied = patch::apply::apply(&before, &own, &schema, entries, who, options.force);
        if !applied.conflicts.is_empty() {
            return Err(Status::apply_conflict(&applied.conflicts));
        }
        let object = conform::shape(&call.resource, applied.object, &mut Findings::default())
            .map_err(|why| unreadable(&config, &why))?;
        // An apply that says what it said before does not touch the time.
        if let (Some(time), true) = (known, same_intent(&object, &before)) {
            applied
                .entries
                .iter_mut()
                .filter(|e| e.apply && e.manager == options.manager)
                .for_each(|e| e.time.clone_from(&time));
        }
        if let Some(stored) = change(call, &old, object, options, Some(applied.entries)).await? {
            return Ok(response::value(200, call.request, &call.resource, &stored)?.warn(&warnings));
        }
    }
    Err(Status::modified(&call.resource, name))
}

fn same_intent(a: &Value, b: &Value) -> bool {
    let strip = |v: &Value| {
        let mut v = v.clone();
        if let Some(meta) = v.get_mut("metadata").and_then(Value::as_object_mut) {
            meta.shift_remove("managedFields");
            meta.shift_remove("resourceVersion");
        }
        v
    };
    strip(a) == strip(b)
}

fn read_config(call: &Call<'_>) -> Result<Value, Status> {
    let bytes = &call.request.body;
    let (mut config, _) = crate::request::parse_json(bytes)
        .map_err(|e| Status::bad_request(format!("error decoding YAML: {}", json_complaint(bytes, &e))))?;
    if !config.is_object() {
        return Err(Status::bad_request(
            "error decoding YAML: json: cannot unmarshal into Go value of type map",
        ));
    }
    let wanted = call.resource.api_version();
    for (key, wanted) in [("apiVersion", &wanted), ("kind", &call.resource.kind)] {
        let said = config.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        if said.is_empty() {
            let missing =
                if key == "kind" { "Object 'Kind' is missing" } else { "Object 'apiVersion' is missing" };
            return Err(Status::bad_request(format!("{missing} in '{}'", String::from_utf8_lossy(bytes))));
        }
        if said != *wanted {
            let message =
                format!("the {key} in the data ({said}) does not match the expected {key} ({wanted})");
            return Err(Status::bad_request(message));
        }
    }
    if let Value::Object(map) = &mut config {
        map.entry("metadata").or_insert_with(|| json!({}));
    }
    Ok(config)
}

/// Leaves of the configuration that the kind does not know do not take part.
fn drop_unknown(config: &mut Value, typed: &Value) {
    if let (Value::Object(map), Value::Object(known)) = (config, typed) {
        map.retain(|key, value| known.contains_key(key) || is_blank(value));
        for (key, value) in map.iter_mut() {
            if let Some(below) = known.get(key) {
                drop_unknown(value, below);
            }
        }
    }
}

fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(s) => s.is_empty(),
        Value::Array(l) => l.is_empty(),
        Value::Object(m) => m.is_empty(),
        _ => false,
    }
}

/// The part of a configuration that this door takes.
fn own_part(call: &Call<'_>, config: &mut Value) {
    let Some(map) = config.as_object_mut() else { return };
    if call.status_only() {
        map.retain(|k, _| matches!(k.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
    } else if call.resource.subresource("status").is_some() && call.subresource.is_none() {
        map.shift_remove("status");
    }
}

/// A namespace is released by who keeps its finalizers.
pub(crate) async fn finalize(call: &Call<'_>) -> Result<Response, Status> {
    let options = call.request.write_options("UpdateOptions")?;
    let name = call.name.as_deref().unwrap_or_default();
    let (value, _) = conform::body(call)?;
    let old =
        call.cluster.get(&call.resource, "", name).ok_or_else(|| Status::not_found(&call.resource, name))?;
    let mut new = old.value();
    if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
        let left = value
            .pointer("/spec/finalizers")
            .cloned()
            .filter(|f| f.as_array().is_some_and(|l| !l.is_empty()));
        match left {
            Some(left) => spec.insert("finalizers".into(), left),
            None => spec.shift_remove("finalizers"),
        };
    }
    if options.dry_run {
        return response::value(200, call.request, &call.resource, &new);
    }
    let free = new.pointer("/spec/finalizers").is_none() && new.pointer("/metadata/finalizers").is_none();
    let deleting = new.pointer("/metadata/deletionTimestamp").is_some();
    let done = if free && deleting {
        call.cluster.remove(&call.resource, &old, new.clone())
    } else {
        call.cluster.replace(&call.resource, &old, new)
    };
    let stored = done.map_err(|_| Status::modified(&call.resource, name))?;
    response::object(200, call.request, &call.resource, &stored)
}

/// Puts a pod on a node.
pub(crate) fn bind(call: &Call<'_>) -> Result<Response, Status> {
    let name = call.name.as_deref().unwrap_or_default();
    let (value, _) = conform::body(call)?;
    let node = text(&value, "/target/name").to_owned();
    let bound = call.cluster.edit(&call.resource, &call.namespace, name, |pod| {
        pod["spec"]["nodeName"] = node.clone().into();
        true
    });
    if !bound {
        return Err(Status::not_found(&call.resource, name));
    }
    Ok(Response::json(
        201,
        &json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}),
    ))
}

fn scale_of(call: &Call<'_>, object: &Value) -> Value {
    let meta = |key: &str| object.pointer(&format!("/metadata/{key}")).cloned().unwrap_or_default();
    let paths = call.resource.custom.as_ref().and_then(|c| c.scale.clone());
    let (spec_path, status_path, selector) = match &paths {
        Some(paths) => {
            let selector =
                paths.selector.as_ref().and_then(|p| crate::table::found(object, p)).and_then(Value::as_str);
            (paths.spec.as_str(), paths.status.as_str(), selector.unwrap_or_default().to_owned())
        }
        None => (".spec.replicas", ".status.replicas", selector_text(object)),
    };
    let count = |path: &str| crate::table::found(object, path).and_then(Value::as_i64).unwrap_or_default();
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {"name": meta("name"), "namespace": meta("namespace"), "uid": meta("uid"),
            "resourceVersion": meta("resourceVersion"), "creationTimestamp": meta("creationTimestamp")},
        "spec": {}, "status": {"replicas": count(status_path)},
    });
    if count(spec_path) != 0 {
        scale["spec"]["replicas"] = count(spec_path).into();
    }
    if !selector.is_empty() {
        scale["status"]["selector"] = selector.into();
    }
    scale
}

fn selector_text(object: &Value) -> String {
    let labels = object.pointer("/spec/selector/matchLabels").or_else(|| object.pointer("/spec/selector"));
    let pairs = labels.and_then(Value::as_object).into_iter().flatten();
    pairs.map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect::<Vec<_>>().join(",")
}

pub(crate) fn get_scale(call: &Call<'_>) -> Result<Response, Status> {
    let name = call.name.as_deref().unwrap_or_default();
    let found = call.cluster.get(&call.resource, &call.namespace, name);
    let found = found.ok_or_else(|| Status::not_found(&call.resource, name))?;
    Ok(Response::json(200, &scale_of(call, &view_value(&found, &call.resource))))
}

pub(crate) async fn put_scale(call: &Call<'_>, patching: bool) -> Result<Response, Status> {
    let options = call.request.write_options(if patching { "PatchOptions" } else { "UpdateOptions" })?;
    let name = call.name.as_deref().unwrap_or_default();
    let found = call.cluster.get(&call.resource, &call.namespace, name);
    let old = found.ok_or_else(|| Status::not_found(&call.resource, name))?;
    let before = view_value(&old, &call.resource);
    let scale = if patching {
        let dialect = Dialect::of(call.request.header("content-type"));
        let dialect = if dialect == Some(Dialect::Strategic) { Some(Dialect::Merge) } else { dialect };
        patched(call, dialect.unwrap_or(Dialect::Merge), &scale_of(call, &before))?.0
    } else {
        conform::body(call)?.0
    };
    check_name(&scale, name)?;
    if !text(&scale, "/metadata/resourceVersion").is_empty() {
        let said = text(&scale, "/metadata/resourceVersion").parse().unwrap_or(0);
        if said != old.version {
            return Err(Status::modified(&call.resource, name));
        }
    }
    let replicas = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or_default();
    if replicas < 0 {
        let cause = Cause::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0");
        return Err(Status::invalid("autoscaling", "Scale", name, &[cause]));
    }
    let path = call
        .resource
        .custom
        .as_ref()
        .and_then(|c| c.scale.clone())
        .map_or(".spec.replicas".into(), |s| s.spec.clone());
    let mut new = before.clone();
    set_path(&mut new, &path, replicas.into());
    match change(call, &old, new, &options, None).await? {
        Some(stored) => Ok(Response::json(200, &scale_of(call, &stored))),
        None => Err(Status::modified(&call.resource, name)),
    }
}

fn set_path(value: &mut Value, path: &str, new: Value) {
    let mut here = value;
    for key in path.trim_start_matches('.').split('.') {
        if !here.is_object() {
            *here = json!({});
        }
        here = &mut here[key];
    }
    *here = new;
}
