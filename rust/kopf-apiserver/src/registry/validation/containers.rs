//! Validation of containers: ports, environment, probes, hooks, resources, security.

use serde_json::Value;

use super::list;
use crate::base::json::{member_text, strings};
use crate::error::status::Cause;
use crate::registry::meta;
use crate::schema::formats::quantity_value;
use crate::scheme::go_values;

const HEADER: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for \
                      validation is '[-A-Za-z0-9]+')";
const ENV_SOURCES: [&str; 5] =
    ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
const FIELD_PATHS: [&str; 14] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Resources that are standard, but not those of containers.
pub(super) const STANDARD_RESOURCES: [&str; 8] = [
    "storage",
    "pods",
    "services",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "resourcequotas",
    "replicationcontrollers",
];

/// A container of any kind.
pub(super) fn container(container: &Value, path: &str, out: &mut Vec<Cause>) {
    ports(container, path, out);
    for source in list(container, "envFrom") {
        let count = ["configMapRef", "secretRef"].iter().filter(|k| source.get(**k).is_some()).count();
        let detail = match count {
            0 => "must specify one of: `configMapRef` or `secretRef`",
            1 => continue,
            _ => "may not have more than one field specified at a time",
        };
        out.push(Cause::invalid(format!("{path}.envFrom"), &"".into(), detail));
    }
    for (kind, last) in [("livenessProbe", true), ("readinessProbe", false), ("startupProbe", true)] {
        if let Some(found) = container.get(kind) {
            probe(found, &format!("{path}.{kind}"), kind, last, out);
        }
    }
    for hook in ["postStart", "preStop"] {
        if let Some(found) = container.pointer(&format!("/lifecycle/{hook}")) {
            let path = format!("{path}.lifecycle.{hook}");
            handlers(found, &path, &["exec", "httpGet", "tcpSocket", "sleep"], out);
        }
    }
    mounts(container, path, out);
    resources(container.get("resources").unwrap_or(&Value::Null), &format!("{path}.resources"), out);
    restart_rules(container, path, out);
    let security = container.get("securityContext").unwrap_or(&Value::Null);
    let flag = |key: &str| security.get(key).and_then(Value::as_bool);
    if flag("allowPrivilegeEscalation") == Some(false) {
        let added = strings(security.pointer("/capabilities/add"));
        let place = format!("{path}.securityContext");
        let shown = go_values::internal_text(security, "core.v1.SecurityContext");
        if flag("privileged") == Some(true) {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
            out.push(Cause::invalid_raw(place, &shown, detail));
        } else if added.iter().any(|c| c == "CAP_SYS_ADMIN") {
            let detail =
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            out.push(Cause::invalid_raw(place, &shown, detail));
        }
    }
}

fn ports(container: &Value, path: &str, out: &mut Vec<Cause>) {
    let mut names: Vec<&str> = Vec::new();
    for (i, port) in list(container, "ports").iter().enumerate() {
        let name = member_text(port, "name");
        if !name.is_empty() && names.contains(&name) {
            out.push(Cause::duplicate(format!("{path}.ports[{i}].name"), &name.into()));
        }
        names.push(name);
    }
}

fn restart_rules(container: &Value, path: &str, out: &mut Vec<Cause>) {
    if !list(container, "restartPolicyRules").is_empty() && container.get("restartPolicy").is_none() {
        let detail = "must specify restartPolicy when restart rules are used";
        out.push(Cause::required(format!("{path}.restartPolicy"), detail));
    }
    for policy in list(container, "resizePolicy") {
        let place = format!("{path}.resizePolicy");
        for (key, known) in
            [("resourceName", ["cpu", "memory"]), ("restartPolicy", ["NotRequired", "RestartContainer"])]
        {
            let value = member_text(policy, key);
            if value.is_empty() {
                out.push(Cause::required(place.clone(), ""));
            } else if !known.contains(&value) {
                out.push(Cause::unsupported(place.clone(), &value.into(), &known.map(str::to_owned)));
            }
        }
    }
}

fn mounts(container: &Value, path: &str, out: &mut Vec<Cause>) {
    let mut paths: Vec<&str> = Vec::new();
    let is_privileged = container.pointer("/securityContext/privileged") == Some(&Value::Bool(true));
    for (i, mount) in list(container, "volumeMounts").iter().enumerate() {
        let path_of = |key: &str| format!("{path}.volumeMounts[{i}].{key}");
        let mount_path = member_text(mount, "mountPath");
        if paths.contains(&mount_path) {
            out.push(Cause::invalid(path_of("mountPath"), &mount_path.into(), "must be unique"));
        }
        paths.push(mount_path);
        if !member_text(mount, "subPath").is_empty() && !member_text(mount, "subPathExpr").is_empty() {
            let detail = "subPathExpr and subPath are mutually exclusive";
            out.push(Cause::invalid(path_of("subPathExpr"), &mount["subPathExpr"], detail));
        }
        for key in ["subPath", "subPathExpr"] {
            let sub = member_text(mount, key);
            if sub.starts_with('/') {
                out.push(Cause::invalid(path_of(key), &sub.into(), "must be a relative path"));
            } else if sub.split('/').any(|p| p == "..") {
                out.push(Cause::invalid(path_of(key), &sub.into(), "must not contain '..'"));
            }
        }
        let field = format!("{path}.volumeMounts.mountPropagation");
        match mount.get("mountPropagation").and_then(Value::as_str) {
            None | Some("HostToContainer" | "None") => {}
            Some("Bidirectional") if is_privileged => {}
            Some("Bidirectional") => {
                let detail = "Bidirectional mount propagation is available only to privileged containers";
                out.push(Cause::forbidden(field, detail));
            }
            Some(other) => {
                let known = ["Bidirectional", "HostToContainer", "None"].map(str::to_owned);
                out.push(Cause::unsupported(field, &other.into(), &known));
            }
        }
        if let Some(other) = mount.get("recursiveReadOnly").and_then(Value::as_str)
            && !matches!(other, "Disabled" | "Enabled" | "IfPossible")
        {
            let known = ["Disabled", "Enabled", "IfPossible"].map(str::to_owned);
            out.push(Cause::unsupported(
                format!("{path}.volumeMounts.recursiveReadOnly"),
                &other.into(),
                &known,
            ));
        }
    }
}

fn probe(probe: &Value, path: &str, kind: &str, is_single: bool, out: &mut Vec<Cause>) {
    handlers(probe, path, &["exec", "httpGet", "tcpSocket", "grpc"], out);
    let number = |key: &str| probe.get(key).and_then(Value::as_i64);
    if let Some(n) = number("successThreshold").filter(|n| is_single && *n != 1) {
        out.push(Cause::invalid(format!("{path}.successThreshold"), &n.into(), "must be 1"));
    }
    if let Some(n) = number("terminationGracePeriodSeconds") {
        let path = format!("{path}.terminationGracePeriodSeconds");
        if kind == "readinessProbe" {
            out.push(Cause::invalid(path.clone(), &n.into(), "must not be set for readinessProbes"));
        }
        if n <= 0 {
            out.push(Cause::invalid(path, &n.into(), "must be greater than 0"));
        }
    }
}

/// The handlers that are not validated: all but the first.
pub(super) fn skipped_handlers(map: &serde_json::Map<String, Value>) -> Vec<&'static str> {
    ["exec", "httpGet", "tcpSocket", "grpc"].into_iter().filter(|k| map.contains_key(*k)).skip(1).collect()
}

/// One of the handlers must be set.
fn handlers(value: &Value, path: &str, known: &[&str], out: &mut Vec<Cause>) {
    let found: Vec<&&str> = known.iter().filter(|k| value.get(**k).is_some()).collect();
    if found.is_empty() {
        out.push(Cause::required(path, "must specify a handler type"));
    }
    for other in found.iter().skip(1) {
        out.push(Cause::forbidden(format!("{path}.{other}"), "may not specify more than 1 handler type"));
    }
}

/// Headers of an HTTP request.
pub(super) fn http_headers(action: &Value, path: &str, out: &mut Vec<Cause>) {
    for header in list(action, "httpHeaders") {
        let name = member_text(header, "name");
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            out.push(Cause::invalid(format!("{path}.httpHeaders"), &name.into(), HEADER));
        }
    }
}

/// An environment variable.
pub(super) fn env_var(env: &Value, path: &str, out: &mut Vec<Cause>) {
    let Some(from) = env.get("valueFrom") else { return };
    let count = ENV_SOURCES.iter().filter(|k| from.get(**k).is_some()).count();
    let path = format!("{path}.valueFrom");
    if count == 0 {
        let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        out.push(Cause::invalid(path, &"".into(), detail));
    } else if !member_text(env, "value").is_empty() {
        out.push(Cause::invalid(path, &"".into(), "may not be specified when `value` is not empty"));
    } else if count > 1 {
        out.push(Cause::invalid(path, &"".into(), "may not have more than one field specified at a time"));
    }
}

/// Field of a pod in its environment or a volume.
pub(super) fn field_selector(selector: &Value, path: &str, out: &mut Vec<Cause>) {
    let (version, field) = (member_text(selector, "apiVersion"), member_text(selector, "fieldPath"));
    if field.is_empty() {
        return;
    }
    let path = format!("{path}.fieldPath");
    let subscript = field.strip_suffix("']").and_then(|f| f.split_once("['"));
    if let Some((map, _)) = subscript {
        if !matches!(map, "metadata.annotations" | "metadata.labels") {
            let detail = "error converting fieldPath: field label does not support subscript";
            out.push(Cause::invalid(path, &field.into(), detail));
        }
        return;
    }
    if version != "v1" {
        let detail = format!("error converting fieldPath: unsupported pod version: {version}");
        out.push(Cause::invalid(path, &field.into(), &detail));
    } else if !FIELD_PATHS.contains(&field) {
        let detail = format!("error converting fieldPath: field label not supported: {field}");
        out.push(Cause::invalid(path, &field.into(), &detail));
    }
}

/// Standard resources of containers.
pub(super) fn is_container_resource(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-")
}

/// Error of the name of a resource of a container.
pub(super) fn resource_name_errors(name: &str) -> Vec<String> {
    let mut out = meta::qualified_name_errors(name);
    if !name.contains('/') && !is_container_resource(name) {
        let is_standard = STANDARD_RESOURCES.contains(&name)
            || name.starts_with("requests.")
            || name.starts_with("limits.");
        if !is_standard && out.is_empty() {
            out.push("must be a standard resource type or fully qualified".into());
        }
        out.push("must be a standard resource for containers".into());
    }
    out
}

/// Requests and limits.
pub(super) fn resources(resources: &Value, path: &str, out: &mut Vec<Cause>) {
    let amount = |kind: &str, name: &str| {
        resources.get(kind).and_then(|r| r.get(name)).and_then(Value::as_str).and_then(quantity_value)
    };
    let requests = format!("{path}.requests");
    for kind in ["limits", "requests"] {
        for (name, quantity) in resources.get(kind).and_then(Value::as_object).into_iter().flatten() {
            let path = format!("{path}.{kind}[{name}]");
            for error in resource_name_errors(name) {
                out.push(Cause::invalid(path.clone(), &name.as_str().into(), &error));
            }
            let value = amount(kind, name).unwrap_or_default();
            if value < 0.0 {
                out.push(Cause::invalid(path, quantity, "must be greater than or equal to 0"));
            }
            if kind == "requests"
                && let Some(limit) = amount("limits", name)
                && value > limit
            {
                let shown = resources.pointer(&format!("/limits/{name}")).and_then(Value::as_str);
                let detail =
                    format!("must be less than or equal to {name} limit of {}", shown.unwrap_or_default());
                out.push(Cause::invalid(requests.clone(), quantity, &detail));
            }
        }
    }
}
