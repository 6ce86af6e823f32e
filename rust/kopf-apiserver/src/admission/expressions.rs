//! CEL expressions about a request: its variables, match conditions, and evaluation without blocking other requests.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::Semaphore;

use super::attributes::{Attributes, Objects};
use crate::authz;
use crate::base::json::member_text;
use crate::base::user::User;
use crate::error::status::Status;
use crate::schema::cel::authorizer::{Authorizer, Check};
use crate::schema::cel::evaluation::{Evaluation, Inputs, Outcome};
use crate::scheme::resources::Resource;

/// Threads for expensive expressions.
static THREADS: Semaphore = Semaphore::const_new(2);

/// The variables that describe the request. `objects` are in the version of the matched resource.
pub(super) fn inputs(request: &Attributes<'_>, matched: &Resource, objects: &Objects<'_>) -> Inputs {
    let namespace = match request.namespace() {
        "" => None,
        _ if request.resource.is("", "namespaces") => None,
        name => request.cluster.store.get("namespaces", "", name).map(|stored| stored.value()),
    };
    let values = vec![
        ("object", objects.new.cloned().unwrap_or_default()),
        ("oldObject", objects.old.cloned().unwrap_or_default()),
        ("request", request.admission_request(matched)),
        ("namespaceObject", namespace.unwrap_or_default()),
    ];
    let request_resource = vec![
        ("group", matched.group.clone()),
        ("resource", matched.plural.clone()),
        ("subresource", request.subresource.unwrap_or_default().to_owned()),
        ("namespace", request.namespace().to_owned()),
        ("name", request.name.to_owned()),
    ];
    Inputs { values, authorizer: authorizer(request), request_resource }
}

/// Checks of the user of the request, or of a service account.
fn authorizer(request: &Attributes<'_>) -> Authorizer {
    let (cluster, requester) = (Arc::clone(request.cluster), request.user.clone());
    Arc::new(move |check: &Check| {
        let attributes = authz::Attributes {
            verb: check.verb.clone(),
            group: check.group.clone(),
            resource: check.resource.clone(),
            subresource: check.subresource.clone(),
            namespace: check.namespace.clone(),
            name: check.name.clone(),
            path: check.path.clone(),
        };
        let account = User {
            name: check.service_account.clone(),
            groups: authz::service_account_groups(&check.service_account).unwrap_or_default(),
            ..User::default()
        };
        let user = if check.service_account.is_empty() { &requester } else { &account };
        let is_trusted = !cluster.options.authorization && check.service_account.is_empty();
        is_trusted || authz::allowed(&cluster, user, &attributes)
    })
}

/// Evaluates expressions with these variables: cheap ones at once, others in a thread.
pub(super) async fn evaluate<T: Send + 'static>(
    request: &Attributes<'_>,
    inputs: Inputs,
    work: impl Fn(&mut Evaluation) -> T + Send + 'static,
) -> Result<T, Status> {
    let mut evaluation = Evaluation::new(&inputs, true);
    let result = work(&mut evaluation);
    if !evaluation.is_exhausted() {
        return Ok(result);
    }
    let failed = || Status::internal("Internal error occurred: expressions cannot be evaluated");
    let _permit = THREADS.acquire().await.map_err(|_| failed())?;
    let evaluating = request.cluster.tasks.spawn_blocking(move || work(&mut Evaluation::new(&inputs, false)));
    evaluating.await.map_err(|_| failed())
}

/// Whether all conditions are true. The error is that of conditions that cannot be evaluated, if no other one is false;
/// with `failurePolicy: Ignore`, the conditions are not met then.
pub(super) fn are_met(
    conditions: &[Value],
    holder: &Value,
    evaluation: &mut Evaluation,
) -> Result<bool, String> {
    let mut errors = Vec::new();
    for condition in conditions {
        match evaluation.evaluate(member_text(condition, "expression")) {
            Ok(Outcome::Bool(false)) => return Ok(false),
            Ok(_) => {}
            Err(error) => errors.push(error),
        }
    }
    match errors.as_slice() {
        [] => Ok(true),
        _ if ignores_failures(holder) => Ok(false),
        [error] => Err(error.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

/// Whether failures of a webhook or a policy are ignored.
pub(super) fn ignores_failures(holder: &Value) -> bool {
    member_text(holder, "failurePolicy") == "Ignore"
}

/// Whether a webhook's match conditions are met. The error rejects the request.
pub(super) async fn webhook_is_called(
    request: &Attributes<'_>,
    webhook: &Arc<Value>,
    matched: &Resource,
    objects: &Objects<'_>,
) -> Result<bool, Status> {
    if super::matching::list(webhook, "matchConditions").is_empty() {
        return Ok(true);
    }
    let holder = Arc::clone(webhook);
    let met = evaluate(request, inputs(request, matched, objects), move |evaluation| {
        are_met(super::matching::list(&holder, "matchConditions"), &holder, evaluation)
    });
    let resource = request.resource.group_resource();
    met.await?.map_err(|why| Status::forbidden(resource, request.shown_name(), &why, &[]))
}
