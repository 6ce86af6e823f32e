//! Delete and deletecollection. Dependents and contents of namespaces are deleted in the background.

use serde_json::{Map, Value, json};

use super::deletion::{DeleteResult, Deletion, Effect, mark, try_delete};
use super::write::{admit_subresource, created};
use super::{Call, body, read};
use crate::admission::{self, Operation};
use crate::base::json::text;
use crate::error::status::{Cause, Status};
use crate::http::render;
use crate::http::render::Page;
use crate::http::request::WriteOptions;
use crate::http::response::Response;
use crate::scheme::resources::Resource;
use crate::storage::object::Stored;
use crate::storage::store::StoreError;
use crate::webhook::conversion;

/// `DeleteOptions` of the body or the query.
struct DeleteOptions {
    write: WriteOptions,
    propagation: Option<String>,
    grace: Option<i64>,
    uid: Option<String>,
    version: Option<String>,
}

fn delete_options(call: &Call<'_>) -> Result<DeleteOptions, Status> {
    let bytes = &call.request.body;
    let body: Value = if bytes.iter().all(u8::is_ascii_whitespace) {
        Value::Null
    } else {
        serde_json::from_slice(bytes).map_err(|e| {
            let message = crate::base::json::json_complaint(bytes, &e);
            Status::bad_request(format!("couldn't get version/kind; json parse error: {message}"))
        })?
    };
    options_of(call, &body)
}

/// The options in a JSON object, or in the query if it is null.
fn options_of(call: &Call<'_>, body: &Value) -> Result<DeleteOptions, Status> {
    let mut write = call.request.write_options("DeleteOptions")?;
    let query = &call.request.query;
    let body_text = |key: &str| body.get(key).and_then(Value::as_str).map(str::to_owned);
    // Options in the query count if there is no body.
    let in_query = |key: &str| if body.is_null() { query.get(key).to_owned() } else { String::new() };
    write.dry_run &= body.is_null();
    let propagation = body_text("propagationPolicy")
        .or_else(|| Some(in_query("propagationPolicy")))
        .filter(|p| !p.is_empty());
    let mut causes = Vec::new();
    let dry_run = crate::base::json::strings(body.get("dryRun"));
    if !dry_run.is_empty() {
        if dry_run.iter().any(|d| d != "All") {
            causes.push(Cause::unsupported("dryRun", &Value::from(dry_run.clone()), &["All".to_owned()]));
        }
        write.dry_run = true;
    }
    let orphan = body.get("orphanDependents").and_then(Value::as_bool);
    if let Some(policy) = &propagation {
        let known = ["Foreground", "Background", "Orphan", "nil"].map(str::to_owned);
        if !known.iter().take(3).any(|k| k == policy) {
            causes.push(Cause::unsupported("propagationPolicy", &policy.as_str().into(), &known));
        }
        if orphan.is_some() {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            causes.push(Cause::invalid("propagationPolicy", &policy.as_str().into(), detail));
        }
    }
    if !causes.is_empty() {
        return Err(Status::bad_options("DeleteOptions", &causes));
    }
    let propagation = propagation.or(orphan.map(|o| if o { "Orphan" } else { "Background" }.to_owned()));
    let precondition =
        |key: &str| body.pointer(&format!("/preconditions/{key}")).and_then(Value::as_str).map(str::to_owned);
    let grace = body
        .get("gracePeriodSeconds")
        .and_then(Value::as_i64)
        .or_else(|| in_query("gracePeriodSeconds").parse().ok());
    write.given = call.request.given_delete_options(body);
    Ok(DeleteOptions {
        write,
        propagation,
        grace,
        uid: precondition("uid"),
        version: precondition("resourceVersion"),
    })
}

impl DeleteResult {
    /// With the object in the version of the request.
    async fn in_version(self, resource: &Resource) -> Result<Self, Status> {
        let api_version = resource.api_version();
        Ok(match self {
            Self::Deleted(value) => Self::Deleted(conversion::one(resource, value, &api_version).await?),
            Self::Pending(value) => Self::Pending(conversion::one(resource, value, &api_version).await?),
        })
    }
}

pub(crate) async fn delete_one(call: &Call<'_>) -> Result<Response, Status> {
    call.output_format(false)?;
    let delete_options = delete_options(call)?;
    let name = call.name.as_deref().unwrap_or_default();
    let warnings = warnings(call, &delete_options);
    let response = match delete(call, name, &delete_options, true).await {
        Ok(DeleteResult::Deleted(object)) if !returns_object(call) => {
            Response::json(200, &success(call, &object))
        }
        Ok(DeleteResult::Deleted(object) | DeleteResult::Pending(object)) => {
            render::value(200, call.request, &call.resource, &object)?
        }
        Err(status) => status.into(),
    };
    Ok(response.warn(&warnings))
}

fn warnings(call: &Call<'_>, delete_options: &DeleteOptions) -> Vec<String> {
    let keeps_pods = call.resource.is("batch", "jobs") && delete_options.propagation.is_none();
    let text = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set \
                propagationPolicy=Orphan to suppress this warning";
    if keeps_pods { vec![text.to_owned()] } else { Vec::new() }
}

/// Resources whose deletion returns the object instead of a Status.
fn returns_object(call: &Call<'_>) -> bool {
    const KINDS: [&str; 8] = [
        "pods",
        "services",
        "persistentvolumes",
        "persistentvolumeclaims",
        "podtemplates",
        "resourcequotas",
        "serviceaccounts",
        "namespaces",
    ];
    call.resource.group.is_empty() && KINDS.contains(&call.resource.plural.as_str())
}

fn success(call: &Call<'_>, object: &Value) -> Value {
    let mut details = Map::new();
    details.insert("name".into(), text(object, "/metadata/name").into());
    if !call.resource.group.is_empty() {
        details.insert("group".into(), call.resource.group.clone().into());
    }
    details.insert("kind".into(), call.resource.plural.clone().into());
    details.insert("uid".into(), text(object, "/metadata/uid").into());
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

/// Deletes an object. The admission of the deletion is optional.
async fn delete(
    call: &Call<'_>,
    name: &str,
    delete_options: &DeleteOptions,
    is_admitted: bool,
) -> Result<DeleteResult, Status> {
    for _ in 0..20 {
        let old = call.cluster.get(&call.resource, &call.namespace, name);
        let old = old.ok_or_else(|| Status::not_found(call.resource.group_resource(), name))?;
        preconditions(call, &old, delete_options)?;
        if call.resource.is("", "namespaces") && matches!(name, "default" | "kube-system" | "kube-public") {
            return Err(Status::forbidden(
                call.resource.group_resource(),
                name,
                "this namespace may not be deleted",
                &[],
            ));
        }
        let before = render::object_value(call.in_version(old.clone()).await?.as_ref(), &call.resource);
        if is_admitted {
            // The deletion of a collection has no name.
            let name = if call.is_collection() { "" } else { name };
            let mut write = delete_options.write.clone();
            if call.resource.is("", "namespaces") && !write.given.contains_key("preconditions") {
                write.given.insert("preconditions".into(), json!({"uid": &*old.uid}));
            }
            let attributes = call.admission_attributes(Operation::Delete, name, &write);
            admission::validate(&attributes, None, Some(&before)).await?;
        }
        let deletion =
            Deletion { propagation: delete_options.propagation.as_deref(), grace: delete_options.grace };
        let mut value = before;
        let effect = mark(&call.resource, &mut value, &deletion);
        if delete_options.write.dry_run {
            return Ok(match effect {
                Effect::Remove => DeleteResult::Deleted(value),
                Effect::Mark | Effect::Nothing => DeleteResult::Pending(value),
            });
        }
        if effect == Effect::Mark {
            value = conversion::to_storage(&call.resource, value).await?;
        }
        match try_delete(call.cluster, &call.resource, &old, value, effect) {
            Ok(result) => return result.in_version(&call.resource).await,
            Err(StoreError::NotFound) => return Err(Status::not_found(call.resource.group_resource(), name)),
            Err(_) => {}
        }
    }
    Err(Status::modified(call.resource.group_resource(), name))
}

fn preconditions(call: &Call<'_>, old: &Stored, delete_options: &DeleteOptions) -> Result<(), Status> {
    let message = if let Some(uid) = delete_options.uid.as_ref().filter(|u| ***u != *old.uid) {
        format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and \
             then recreated",
            old.uid
        )
    } else if let Some(version) = delete_options.version.as_ref().filter(|v| **v != old.version.to_string()) {
        format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object \
             might have been modified",
            old.version
        )
    } else {
        return Ok(());
    };
    Err(Status::conflict_of_kind(&call.resource.group, &call.resource.kind, &old.name, &message))
}

pub(crate) async fn delete_collection(call: &Call<'_>) -> Result<Response, Status> {
    let delete_options = delete_options(call)?;
    let page = read::list_selected(call).await?;
    let mut deleted = Vec::new();
    for object in &page.objects {
        let inner = Call {
            cluster: call.cluster,
            request: call.request,
            resource: call.resource.clone(),
            namespace: object.namespace.to_string(),
            name: Some(object.name.to_string()),
            subresource: None,
            warnings: call.warnings.clone(),
        };
        match delete(&inner, &object.name, &delete_options, true).await {
            // The list shows deleted objects as they were, pending ones as they are now.
            Ok(DeleteResult::Deleted(_)) => deleted.push(object.clone()),
            Ok(DeleteResult::Pending(_)) => {
                if let Some(pending) = call.cluster.get(&call.resource, &object.namespace, &object.name) {
                    deleted.push(call.in_version(pending).await?);
                }
            }
            Err(status) if status.code == 404 => {}
            Err(status) => return Err(status),
        }
    }
    let response = Page { version: page.version, objects: deleted, next: None, remaining: None, shard: None };
    render::list(call.request, &call.resource, &response)
}

/// Evicts a pod. Disruption budgets are not checked.
pub(crate) async fn evict(call: &Call<'_>) -> Result<Response, Status> {
    let name = call.name.as_deref().unwrap_or_default();
    let write = call.request.write_options("CreateOptions")?;
    let (body, _) = body::read(call)?;
    let body = admit_subresource(call, body, &write, |body| {
        if text(body, "/metadata/name") == name {
            return Ok(());
        }
        Err(Status::bad_request("name in URL does not match name in Eviction object"))
    })
    .await?;
    let mut delete_options = options_of(call, body.get("deleteOptions").unwrap_or(&Value::Null))?;
    // A dry run can be requested in the query or in the body.
    delete_options.write.dry_run |= write.dry_run;
    delete(call, name, &delete_options, false).await?;
    Ok(created())
}
