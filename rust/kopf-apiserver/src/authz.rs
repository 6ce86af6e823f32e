//! Authorization by RBAC. Off by default: any authenticated user may do everything.

use serde_json::Value;

use crate::base::names::GroupResource;
use crate::base::user::User;
use crate::cluster::Cluster;
use crate::error::status::Status;
use crate::http::request::Request;

/// Attributes of an authorization request.
#[derive(Debug, Default, Clone)]
pub(crate) struct Attributes {
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Path of a non-resource request. The other fields but the verb are empty then.
    pub(crate) path: String,
}

/// Name of the anonymous user.
pub(crate) const ANONYMOUS: &str = "system:anonymous";

/// Authorizes a request to a resource.
pub(crate) fn check(cluster: &Cluster, user: &User, attributes: &Attributes) -> Result<(), Status> {
    // Anonymous requests are denied even if authorization is off.
    if !cluster.options.authorization && user.name != ANONYMOUS {
        return Ok(());
    }
    if allowed(cluster, user, attributes) {
        return Ok(());
    }
    let sub = if attributes.subresource.is_empty() {
        String::new()
    } else {
        format!("/{}", attributes.subresource)
    };
    let scope = if attributes.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace \"{}\"", attributes.namespace)
    };
    let why = format!(
        "User \"{}\" cannot {} resource \"{}{sub}\" in API group \"{}\" {scope}",
        user.name, attributes.verb, attributes.resource, attributes.group
    );
    let resource = GroupResource { group: &attributes.group, resource: &attributes.resource };
    Err(Status::forbidden(resource, &attributes.name, &why, &[]))
}

/// The groups of a service account, by its user name; `None` for other users.
pub(crate) fn service_account_groups(name: &str) -> Option<Vec<String>> {
    let (namespace, _) = name.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    Some(vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")])
}

/// Authorizes a non-resource request.
pub(crate) fn check_path(cluster: &Cluster, request: &Request) -> Result<(), Status> {
    const OPEN: [&str; 6] = ["/healthz", "/livez", "/readyz", "/version", "/api", "/openapi"];
    if OPEN.iter().any(|p| request.path.starts_with(p)) {
        return Ok(());
    }
    let attributes = Attributes {
        verb: request.method.as_str().to_lowercase(),
        path: request.path.clone(),
        ..Attributes::default()
    };
    if allowed(cluster, &request.user, &attributes) {
        return Ok(());
    }
    let message = format!(
        "forbidden: User \"{}\" cannot {} path \"{}\"",
        request.user.name, attributes.verb, attributes.path
    );
    Err(Status::new(403, "Forbidden", message).with(serde_json::Map::new()))
}

/// Whether RBAC allows the request.
pub(crate) fn allowed(cluster: &Cluster, user: &User, attributes: &Attributes) -> bool {
    user.groups.iter().any(|g| g == "system:masters")
        || is_self_review(attributes)
        || rules(cluster, user, &attributes.namespace).iter().any(|r| rule_allows(r, attributes))
}

/// Rules of all roles of the user: of the cluster, and of this namespace.
pub(crate) fn rules(cluster: &Cluster, user: &User, namespace: &str) -> Vec<Value> {
    let rbac = |plural: &str| format!("rbac.authorization.k8s.io/{plural}");
    let clusterwide = cluster.store.list(&rbac("clusterrolebindings"), None).objects;
    let local = cluster.store.list(&rbac("rolebindings"), Some(namespace)).objects;
    let local = local.into_iter().filter(|_| !namespace.is_empty());
    let mut out = Vec::new();
    for binding in clusterwide.into_iter().chain(local) {
        let value = binding.value();
        let subjects = value["subjects"].as_array().into_iter().flatten();
        if !subjects.into_iter().any(|s| is_subject(s, user, &binding.namespace)) {
            continue;
        }
        let role = value.pointer("/roleRef/name").and_then(Value::as_str).unwrap_or_default();
        let found = match value.pointer("/roleRef/kind").and_then(Value::as_str) {
            Some("ClusterRole") => cluster.store.get(&rbac("clusterroles"), "", role),
            _ => cluster.store.get(&rbac("roles"), &binding.namespace, role),
        };
        out.extend(found.and_then(|role| role.value()["rules"].as_array().cloned()).unwrap_or_default());
    }
    out
}

/// Self reviews are allowed for every user.
fn is_self_review(attributes: &Attributes) -> bool {
    attributes.verb == "create"
        && matches!(
            attributes.resource.as_str(),
            "selfsubjectaccessreviews" | "selfsubjectrulesreviews" | "selfsubjectreviews"
        )
}

/// Whether the user is the subject of a binding in this namespace, which is that of service accounts without one.
fn is_subject(subject: &Value, user: &User, namespace: &str) -> bool {
    let text = |key: &str| subject.get(key).and_then(Value::as_str).unwrap_or_default();
    match text("kind") {
        "User" => text("name") == user.name,
        "Group" => user.groups.iter().any(|g| g == text("name")),
        "ServiceAccount" => {
            let namespace = if text("namespace").is_empty() { namespace } else { text("namespace") };
            user.name == format!("system:serviceaccount:{namespace}:{}", text("name"))
        }
        _ => false,
    }
}

fn rule_allows(rule: &Value, attributes: &Attributes) -> bool {
    let list = |key: &str| crate::base::json::strings(rule.get(key));
    let has = |key: &str, value: &str| list(key).iter().any(|v| v == "*" || v == value);
    if !has("verbs", &attributes.verb) {
        return false;
    }
    if !attributes.path.is_empty() {
        return list("nonResourceURLs").iter().any(|p| {
            *p == attributes.path
                || p.strip_suffix('*').is_some_and(|prefix| attributes.path.starts_with(prefix))
        });
    }
    let full = if attributes.subresource.is_empty() {
        attributes.resource.clone()
    } else {
        format!("{}/{}", attributes.resource, attributes.subresource)
    };
    let any_resource = format!("*/{}", attributes.subresource);
    let resources = has("resources", &full)
        || (!attributes.subresource.is_empty() && list("resources").contains(&any_resource));
    let names = list("resourceNames");
    has("apiGroups", &attributes.group) && resources && (names.is_empty() || names.contains(&attributes.name))
}
