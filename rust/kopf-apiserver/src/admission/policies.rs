//! `ValidatingAdmissionPolicy`: parameters, validations, and the actions of their bindings.

use std::sync::Arc;

use serde_json::{Value, json};

use super::attributes::{Attributes, Objects};
use super::expressions::{self, ignores_failures};
use super::matching::{self, list};
use crate::base::json::member_text;
use crate::error::status::Status;
use crate::http::render;
use crate::registry::selectors::LabelSelector;
use crate::schema::cel::evaluation::{Evaluation, Outcome};
use crate::scheme::resources::Resource;
use crate::storage::object::Stored;

const GROUP: &str = "admissionregistration.k8s.io";
/// Maximum size of the message of an expression, in bytes.
const MESSAGE_LIMIT: usize = 5 * 1024;

/// A validation that has failed.
#[derive(Debug)]
struct Failure {
    message: String,
    reason: String,
}

impl Failure {
    fn new(message: String) -> Self {
        Self { message, reason: String::new() }
    }

    /// The rejection of the request. `policy` names the policy, and the binding if there is one.
    fn status(&self, request: &Attributes<'_>, policy: &str) -> Status {
        let why = format!("ValidatingAdmissionPolicy {policy} denied request: {}", self.message);
        let (code, reason) = match self.reason.as_str() {
            "Unauthorized" => (401, "Unauthorized"),
            "Forbidden" => (403, "Forbidden"),
            "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
            _ => (422, "Invalid"),
        };
        let mut status =
            Status::forbidden(request.resource.group_resource(), request.shown_name(), &why, &[]);
        if let Some(details) = &mut status.details {
            details.insert("causes".into(), json!([{"message": why}]));
        }
        status.code = code;
        status.reason = reason.into();
        status
    }
}

/// Evaluates the policies that match the request; the error is the first denial.
pub(super) async fn validate(request: &Attributes<'_>, objects: &Objects<'_>) -> Result<(), Status> {
    if request.resource.group == GROUP {
        return Ok(());
    }
    let all = |plural: &str| request.cluster.store.list(&format!("{GROUP}/{plural}"), None).objects;
    let policies = all("validatingadmissionpolicies");
    if policies.is_empty() {
        return Ok(());
    }
    let bindings: Vec<Value> =
        all("validatingadmissionpolicybindings").iter().map(|binding| binding.value()).collect();
    let mut denied = None;
    for policy in policies {
        let spec = Arc::new(policy.value()["spec"].take());
        let bound = bindings.iter().filter(|binding| binding["spec"]["policyName"] == *policy.name);
        let constraints = &spec["matchConstraints"];
        let rules = list(constraints, "resourceRules");
        let Some(matched) = matching::matched_resource(request, constraints, rules, objects) else {
            continue;
        };
        if let Err(why) = parameter_resource(request, &spec["paramKind"]) {
            if !ignores_failures(&spec) && denied.is_none() && bound.clone().next().is_some() {
                let failure = Failure::new(format!("failed to configure policy: {why}"));
                denied = Some(failure.status(request, &format!("'{}'", policy.name)));
            }
            continue;
        }
        for binding in bound {
            if !binding_matches(request, &binding["spec"]["matchResources"], objects) {
                continue;
            }
            let failures = evaluate(request, &spec, &binding["spec"], &matched, objects).await?;
            let name = binding["metadata"]["name"].as_str().unwrap_or_default();
            let named = format!("'{}' with binding '{name}'", policy.name);
            for failure in failures {
                for action in list(&binding["spec"], "validationActions") {
                    match action.as_str() {
                        Some("Warn") => request.warnings.add(&format!(
                            "Validation failed for ValidatingAdmissionPolicy {named}: {}",
                            failure.message
                        )),
                        Some("Deny") if denied.is_none() => {
                            denied = Some(failure.status(request, &named));
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    denied.map_or(Ok(()), Err)
}

fn binding_matches(request: &Attributes<'_>, resources: &Value, objects: &Objects<'_>) -> bool {
    let rules = list(resources, "resourceRules");
    if rules.is_empty() && list(resources, "excludeResourceRules").is_empty() {
        return matching::matches_selectors(request, resources, objects);
    }
    matching::matched_resource(request, resources, rules, objects).is_some()
}

/// Evaluates a policy with the parameters of a binding.
async fn evaluate(
    request: &Attributes<'_>,
    spec: &Arc<Value>,
    binding: &Value,
    matched: &Arc<Resource>,
    objects: &Objects<'_>,
) -> Result<Vec<Failure>, Status> {
    let params = match parameters(request, &spec["paramKind"], &binding["paramRef"]) {
        Ok(params) => params,
        Err(_) if ignores_failures(spec) => return Ok(Vec::new()),
        Err(why) => return Ok(vec![Failure::new(format!("failed to configure binding: {why}"))]),
    };
    let (new, old) = objects.in_version(request, matched).await?;
    let objects = Objects { new: new.as_ref(), old: old.as_ref() };
    let mut failures = Vec::new();
    for param in params {
        let mut inputs = expressions::inputs(request, matched, &objects);
        inputs.values.push(("params", param));
        let spec = Arc::clone(spec);
        failures
            .extend(expressions::evaluate(request, inputs, move |it| failed_validations(&spec, it)).await?);
    }
    Ok(failures)
}

/// The resource of parameters, if a policy has any.
fn parameter_resource(request: &Attributes<'_>, kind: &Value) -> Result<Option<Arc<Resource>>, String> {
    if !kind.is_object() {
        return Ok(None);
    }
    let (api_version, kind) = (member_text(kind, "apiVersion"), member_text(kind, "kind"));
    let registry = request.cluster.registry();
    let found = registry.all().find(|resource| resource.kind == kind && resource.is_of_version(api_version));
    let error = || format!("failed to find resource referenced by paramKind: '{api_version}, Kind={kind}'");
    found.cloned().map(Some).ok_or_else(error)
}

/// The parameters of a binding: objects, or one null if the policy or the binding has none.
fn parameters(request: &Attributes<'_>, kind: &Value, reference: &Value) -> Result<Vec<Value>, String> {
    let Some(resource) = parameter_resource(request, kind)?.filter(|_| reference.is_object()) else {
        return Ok(vec![Value::Null]);
    };
    let given = member_text(reference, "namespace");
    let namespace = match (resource.namespaced, given, request.namespace()) {
        (false, "", _) => "",
        (false, ..) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into());
        }
        (true, "", "") => {
            let why =
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
            return Err(why.into());
        }
        (true, "", own) => own,
        (true, given, _) => given,
    };
    let found: Vec<Arc<Stored>> = match member_text(reference, "name") {
        "" => {
            let selector = LabelSelector::from_json(&reference["selector"]);
            let all = request.cluster.store.list(&resource.store_key, Some(namespace)).objects;
            all.into_iter().filter(|stored| selector.matches(|key| stored.label(key))).collect()
        }
        name => request.cluster.get(&resource, namespace, name).into_iter().collect(),
    };
    if found.is_empty() && member_text(reference, "parameterNotFoundAction") == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
    }
    Ok(found.iter().map(|stored| render::object_value(stored, &resource)).collect())
}

/// Evaluates the match conditions and the validations of a policy.
fn failed_validations(spec: &Value, evaluation: &mut Evaluation) -> Vec<Failure> {
    match expressions::are_met(list(spec, "matchConditions"), spec, evaluation) {
        Ok(true) => {}
        Ok(false) => return Vec::new(),
        Err(message) => return vec![Failure::new(message)],
    }
    for variable in list(spec, "variables") {
        evaluation.declare(member_text(variable, "name"), member_text(variable, "expression"));
    }
    let mut failures = Vec::new();
    for validation in list(spec, "validations") {
        match evaluation.evaluate(member_text(validation, "expression")) {
            Ok(Outcome::Bool(true)) => {}
            Ok(_) => failures.push(Failure {
                message: message(validation, evaluation),
                reason: member_text(validation, "reason").to_owned(),
            }),
            Err(_) if ignores_failures(spec) => {}
            Err(error) => failures.push(Failure::new(error)),
        }
    }
    failures
}

/// The message of a failed validation.
fn message(validation: &Value, evaluation: &mut Evaluation) -> String {
    let expression = member_text(validation, "messageExpression").trim();
    if !expression.is_empty()
        && let Ok(Outcome::Text(text)) = evaluation.evaluate(expression)
        && text.len() <= MESSAGE_LIMIT
        && !text.trim().is_empty()
        && !text.trim().contains('\n')
    {
        return text.trim().to_owned();
    }
    match member_text(validation, "message").trim() {
        "" => format!("failed expression: {}", member_text(validation, "expression").trim()),
        message => message.to_owned(),
    }
}
