//! Validation of pods and pod templates.

use serde_json::Value;

use super::{containers, list};
use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::registry::meta;
use crate::scheme::go_values;

const SYSCTL: &str = "must have at most 253 characters and match regex \
                      ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

/// A pod template.
pub(super) fn template(template: &Value, path: &str, out: &mut Vec<Cause>) {
    template_metadata(template, path, out);
    if !list(&template["spec"], "ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        out.push(Cause::forbidden(format!("{path}.spec.ephemeralContainers"), detail));
    }
}

/// The labels and annotations of a pod template.
pub(super) fn template_metadata(template: &Value, path: &str, out: &mut Vec<Cause>) {
    let metadata = template.get("metadata").unwrap_or(&Value::Null);
    for (key, value) in metadata.get("labels").and_then(Value::as_object).into_iter().flatten() {
        meta::check_label(&format!("{path}.labels"), key, value, out);
    }
    for (key, _) in metadata.get("annotations").and_then(Value::as_object).into_iter().flatten() {
        for error in meta::qualified_name_errors(&key.to_lowercase()) {
            out.push(Cause::invalid(format!("{path}.annotations"), &key.as_str().into(), &error));
        }
    }
}

fn not_found(field: String, name: &str) -> Cause {
    Cause { field, reason: "FieldValueNotFound", message: format!("Not found: {}", Value::from(name)) }
}

/// Rules of a pod spec that depend on several fields. `mountable` are the names of its valid volumes.
pub(super) fn spec(spec: &Value, mountable: &[&str], path: &str, out: &mut Vec<Cause>) {
    let mut names: Vec<&str> = Vec::new();
    for kind in ["initContainers", "containers", "ephemeralContainers"] {
        for (i, container) in list(spec, kind).iter().enumerate() {
            let place = format!("{path}.{kind}[{i}]");
            let name = member_text(container, "name");
            if !name.is_empty() && names.contains(&name) {
                out.push(Cause::duplicate(format!("{place}.name"), &name.into()));
            }
            names.push(name);
            volumes_of_container(mountable, container, &place, out);
            if kind == "initContainers" && member_text(container, "restartPolicy") != "Always" {
                for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                    if container.get(key).is_some() {
                        let detail = "may not be set for init containers without restartPolicy=Always";
                        out.push(Cause::forbidden(format!("{place}.{key}"), detail));
                    }
                }
            }
        }
    }
    host_network(spec, path, out);
    dns(spec, path, out);
    unique_names(spec, "volumes", path, out);
    tokens(spec, path, out);
    for (key, value) in spec.get("nodeSelector").and_then(Value::as_object).into_iter().flatten() {
        meta::check_label(&format!("{path}.nodeSelector"), key, value, out);
    }
    for (name, _) in spec.get("overhead").and_then(Value::as_object).into_iter().flatten() {
        for error in containers::resource_name_errors(name) {
            let path = format!("{path}.overhead.limits[{name}]");
            out.push(Cause::invalid(path, &name.as_str().into(), &error));
        }
    }
    if let Some(os) = spec.get("os") {
        let name = member_text(os, "name");
        if !name.is_empty() && !matches!(name, "linux" | "windows") {
            let known = ["linux", "windows"].map(str::to_owned);
            out.push(Cause::unsupported(format!("{path}.os"), &name.into(), &known));
        }
    }
    spread(spec, path, out);
    resource_claims(spec, path, out);
}

fn resource_claims(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    for (i, claim) in list(spec, "resourceClaims").iter().enumerate() {
        let count =
            ["resourceClaimName", "resourceClaimTemplateName"].iter().filter(|k| claim.get(**k).is_some());
        let detail = match count.count() {
            0 => "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            1 => continue,
            _ => "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
        };
        let shown = go_values::internal_text(claim, "core.v1.PodResourceClaim");
        out.push(Cause::invalid_raw(format!("{path}.resourceClaims[{i}]"), &shown, detail));
    }
}

fn volumes_of_container(mountable: &[&str], container: &Value, place: &str, out: &mut Vec<Cause>) {
    for (j, env) in list(container, "env").iter().enumerate() {
        if let Some(file) = env.pointer("/valueFrom/fileKeyRef") {
            let name = member_text(file, "volumeName");
            if !mountable.contains(&name) {
                out.push(not_found(format!("{place}.env[{j}].valueFrom.fileKeyRef.volumeName"), name));
            }
        }
    }
    for key in ["volumeMounts", "volumeDevices"] {
        for (j, mount) in list(container, key).iter().enumerate() {
            let name = member_text(mount, "name");
            if name.is_empty() || !mountable.contains(&name) {
                out.push(not_found(format!("{place}.{key}[{j}].name"), name));
            }
        }
    }
}

fn host_network(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    if spec.get("hostNetwork") != Some(&Value::Bool(true)) {
        return;
    }
    for kind in ["containers", "initContainers"] {
        for (i, container) in list(spec, kind).iter().enumerate() {
            for (j, port) in list(container, "ports").iter().enumerate() {
                let number = |key: &str| port.get(key).and_then(Value::as_i64).unwrap_or_default();
                let host = number("hostPort");
                if host != number("containerPort") && host != 0 {
                    let field = format!("{path}.{kind}[{i}].ports[{j}].hostPort");
                    let detail = "must match `containerPort` when `hostNetwork` is true";
                    out.push(Cause::invalid(field, &host.into(), detail));
                }
            }
        }
    }
    if !member_text(spec, "hostnameOverride").is_empty() {
        let detail = "may not be specified when hostNetwork is true";
        out.push(Cause::forbidden(format!("{path}.hostnameOverride"), detail));
    }
}

fn dns(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    if member_text(spec, "dnsPolicy") != "None" {
        return;
    }
    match spec.get("dnsConfig") {
        None => {
            let detail = "must provide `dnsConfig` when `dnsPolicy` is None";
            out.push(Cause::required(format!("{path}.dnsConfig"), detail));
        }
        Some(config) if list(config, "nameservers").is_empty() => {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            out.push(Cause::required(format!("{path}.dnsConfig.nameservers"), detail));
        }
        Some(_) => {}
    }
}

fn unique_names(spec: &Value, key: &str, path: &str, out: &mut Vec<Cause>) {
    let items = list(spec, key);
    for (i, item) in items.iter().enumerate() {
        let name = member_text(item, "name");
        if !name.is_empty() && items.iter().take(i).any(|other| member_text(other, "name") == name) {
            out.push(Cause::duplicate(format!("{path}.{key}[{i}].name"), &name.into()));
        }
    }
}

/// Projected tokens need a service account.
fn tokens(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    // Templates are not checked: the account of a pod may be set at its creation.
    if path != "spec" || !member_text(spec, "serviceAccountName").is_empty() {
        return;
    }
    for (i, volume) in list(spec, "volumes").iter().enumerate() {
        let sources = volume.pointer("/projected/sources").and_then(Value::as_array);
        for (j, source) in sources.into_iter().flatten().enumerate() {
            if source.get("serviceAccountToken").is_some() {
                let field = format!("{path}.volumes[{i}].projected.sources[{j}].serviceAccountToken");
                let detail = "must not be specified when serviceAccountName is not set";
                out.push(Cause::forbidden(field, detail));
            }
        }
    }
}

fn spread(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    let items = list(spec, "topologySpreadConstraints");
    for (i, item) in items.iter().enumerate() {
        let same = |other: &&Value| {
            ["topologyKey", "whenUnsatisfiable"].iter().all(|k| other.get(*k) == item.get(*k))
        };
        // The message is about the first of the two.
        if items.iter().skip(i + 1).any(|other| same(&other)) {
            let (key, when) = (member_text(item, "topologyKey"), member_text(item, "whenUnsatisfiable"));
            let field = format!("{path}.topologySpreadConstraints[{i}].{{topologyKey, whenUnsatisfiable}}");
            out.push(Cause::duplicate(field, &format!("{{{key}, {when}}}").into()));
        }
    }
}

/// The security context of a pod: sysctls, and profiles.
pub(super) fn security_context(context: &Value, path: &str, out: &mut Vec<Cause>) {
    let sysctls = list(context, "sysctls");
    for (i, sysctl) in sysctls.iter().enumerate() {
        let name = member_text(sysctl, "name");
        let field = format!("{path}.sysctls[{i}].name");
        let part = |p: &str| {
            let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
            edge(p.chars().next())
                && edge(p.chars().last())
                && p.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_'))
        };
        if !name.is_empty() && (name.len() > 253 || !name.split(['.', '/']).all(part)) {
            out.push(Cause::invalid(field.clone(), &name.into(), SYSCTL));
        }
        if !name.is_empty() && sysctls.iter().take(i).any(|other| member_text(other, "name") == name) {
            out.push(Cause::duplicate(field, &name.into()));
        }
    }
    let profile = context.get("seccompProfile").unwrap_or(&Value::Null);
    if profile.get("localhostProfile").is_some() && member_text(profile, "type") != "Localhost" {
        let detail = "can only be set when seccomp type is Localhost";
        let field = format!("{path}.seccompProfile.localhostProfile");
        let shown = go_values::internal_text(profile, "core.v1.SeccompProfile");
        out.push(Cause::invalid_raw(field, &shown, detail));
    }
}

/// A toleration.
pub(super) fn toleration(toleration: &Value, path: &str, out: &mut Vec<Cause>) {
    let (key, operator) = (member_text(toleration, "key"), member_text(toleration, "operator"));
    let (value, effect) = (member_text(toleration, "value"), member_text(toleration, "effect"));
    let field = format!("{path}.operator");
    if key.is_empty() {
        if operator != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            out.push(Cause::invalid(field.clone(), &operator.into(), detail));
        }
    } else {
        for error in meta::qualified_name_errors(key) {
            out.push(Cause::invalid(format!("{path}.key"), &key.into(), &error));
        }
    }
    if toleration.get("tolerationSeconds").is_some() && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        out.push(Cause::invalid(format!("{path}.effect"), &effect.into(), detail));
    }
    match operator {
        "" | "Equal" => {
            if let Some(error) = meta::label_value_error(value) {
                out.push(Cause::invalid(field, &value.into(), &error));
            }
        }
        "Exists" => {
            if !value.is_empty() {
                let detail = "value must be empty when `operator` is 'Exists'";
                out.push(Cause::invalid(field, &value.into(), detail));
            }
        }
        other => {
            let known = ["Equal", "Exists"].map(str::to_owned);
            out.push(Cause::unsupported(field, &other.into(), &known));
        }
    }
    if !effect.is_empty() && !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"].map(str::to_owned);
        out.push(Cause::unsupported(format!("{path}.effect"), &effect.into(), &known));
    }
}

/// Whether the pod of a template may stop by itself.
pub(super) fn always_restarts(template: &Value, kind: &str, path: &str, out: &mut Vec<Cause>) {
    let spec = &template["spec"];
    let policy = member_text(spec, "restartPolicy");
    if !policy.is_empty() && policy != "Always" {
        let supported = ["Always".to_owned()];
        out.push(Cause::unsupported(format!("{path}.spec.restartPolicy"), &policy.into(), &supported));
    }
    if spec.get("activeDeadlineSeconds").is_some() {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        out.push(Cause::forbidden(format!("{path}.spec.activeDeadlineSeconds"), &detail));
    }
}
