//! Validation of built-in kinds: required fields, immutable fields, enumerations.

use serde_json::{Map, Value};

use crate::base::field_path::join;
use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::schema::{Schema, Type};
use crate::scheme::resources::Resource;

/// Field errors of an object of a built-in kind, without its metadata.
pub(crate) fn validate(resource: &Resource, value: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut out = Vec::new();
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => {
            pod_spec(&value["spec"], "spec", &mut out);
            if let Some(old) = old {
                validate_pod_update(value, old, &mut out);
            }
        }
        ("", "services") => service(&value["spec"], &mut out),
        ("", "configmaps" | "secrets") => data(value, old, &mut out),
        ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets") => {
            workload(value, old, &mut out);
        }
        ("batch", "jobs") => job(&value["spec"], old, &mut out),
        ("batch", "cronjobs") => cron_job(&value["spec"], &mut out),
        ("coordination.k8s.io", _) => lease(&value["spec"], &mut out),
        ("rbac.authorization.k8s.io", plural) => rbac(plural, value, old, &mut out),
        ("apiextensions.k8s.io", _) => {
            out.extend(crate::registry::crd::validation::validate(value));
            for field in ["scope", "group"] {
                let now = &value["spec"][field];
                if old.is_some_and(|old| old["spec"][field] != *now) {
                    out.push(Cause::invalid(format!("spec.{field}"), now, "field is immutable"));
                }
            }
        }
        _ => {}
    }
    validate_enums(value, &resource.schema(), "", &mut out);
    out
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Validates enumerations.
fn validate_enums(value: &Value, schema: &Schema, path: &str, out: &mut Vec<Cause>) {
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                if let Some(known) = schema.child(key).filter(|_| !(path.is_empty() && key == "status")) {
                    validate_enums(child, known, &join(path, key), out);
                }
            }
        }
        Value::Array(items) => {
            if let Some(known) = &schema.items {
                for (i, item) in items.iter().enumerate() {
                    validate_enums(item, known, &format!("{path}[{i}]"), out);
                }
            }
        }
        Value::String(word)
            if schema.kind == Type::String
                && !schema.options.is_empty()
                && !word.is_empty()
                && !schema.options.contains(word) =>
        {
            let mut known = schema.options.clone();
            if known == ["Always", "Never", "OnFailure"] {
                known.swap(1, 2);
            }
            out.push(Cause::unsupported(path, value, &known));
        }
        _ => {}
    }
}

fn pod_spec(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    if list(spec, "containers").is_empty() {
        out.push(Cause::required(format!("{path}.containers"), ""));
    }
    for kind in ["containers", "initContainers"] {
        let mut names: Vec<&str> = Vec::new();
        for (i, container) in list(spec, kind).iter().enumerate() {
            let place = format!("{path}.{kind}[{i}]");
            let name = member_text(container, "name");
            if name.is_empty() {
                out.push(Cause::required(format!("{place}.name"), ""));
            } else if let Some(error) = crate::registry::meta::container_name_error(name) {
                out.push(Cause::invalid(format!("{place}.name"), &name.into(), &error));
            } else if names.contains(&name) {
                out.push(Cause::duplicate(format!("{place}.name"), &name.into()));
            }
            names.push(name);
            if member_text(container, "image").is_empty() {
                out.push(Cause::required(format!("{place}.image"), ""));
            }
            for (j, mount) in list(container, "volumeMounts").iter().enumerate() {
                let name = member_text(mount, "name");
                if !list(spec, "volumes").iter().any(|v| member_text(v, "name") == name) {
                    let field = format!("{place}.volumeMounts[{j}].name");
                    let message = format!("Not found: \"{name}\"");
                    out.push(Cause { field, reason: "FieldValueNotFound", message });
                }
            }
        }
    }
}

/// Validates that a pod update changes mutable fields only.
fn validate_pod_update(value: &Value, old: &Value, out: &mut Vec<Cause>) {
    let fixed = |pod: &Value| {
        let mut spec = pod.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
        for key in [
            "activeDeadlineSeconds",
            "terminationGracePeriodSeconds",
            "tolerations",
            "nodeName",
            "schedulingGates",
        ] {
            spec.shift_remove(key);
        }
        for key in ["containers", "initContainers"] {
            for container in spec.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(map) = container.as_object_mut() {
                    map.shift_remove("image");
                }
            }
        }
        spec
    };
    if fixed(value) != fixed(old) {
        let detail = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
                      `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
                      `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        out.push(Cause::forbidden("spec", detail));
    }
}

fn service(spec: &Value, out: &mut Vec<Cause>) {
    let ports = list(spec, "ports");
    if ports.is_empty()
        && member_text(spec, "type") != "ExternalName"
        && member_text(spec, "clusterIP") != "None"
    {
        out.push(Cause::required("spec.ports", ""));
    }
    for (i, port) in ports.iter().enumerate() {
        let number = port.get("port").and_then(Value::as_i64).unwrap_or_default();
        if !(1..=65535).contains(&number) {
            out.push(Cause::invalid(
                format!("spec.ports[{i}].port"),
                &number.into(),
                "must be between 1 and 65535, inclusive",
            ));
        }
        if ports.len() > 1 && member_text(port, "name").is_empty() {
            out.push(Cause::required(format!("spec.ports[{i}].name"), ""));
        }
    }
}

/// Validates the keys of config maps and secrets, and their immutability.
fn data(value: &Value, old: Option<&Value>, out: &mut Vec<Cause>) {
    for field in ["data", "binaryData"] {
        for (key, _) in value.get(field).and_then(Value::as_object).into_iter().flatten() {
            let good = !key.is_empty()
                && key.len() <= 253
                && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
            if !good {
                let detail = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
                              'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
                out.push(Cause::invalid(format!("{field}[{key}]"), &key.as_str().into(), detail));
            }
        }
    }
    let Some(old) = old else { return };
    if value["kind"] == "Secret" && value["type"] != old["type"] {
        out.push(Cause::invalid("type", &value["type"], "field is immutable"));
    }
    if old.get("immutable") == Some(&Value::Bool(true)) {
        if value.get("immutable") != Some(&Value::Bool(true)) {
            out.push(Cause::forbidden("immutable", "field is immutable when `immutable` is set"));
        }
        if value.get("data") != old.get("data") {
            out.push(Cause::forbidden("data", "field is immutable when `immutable` is set"));
        }
    }
}

fn labels_match(selector: &Value, labels: &Value) -> bool {
    let expected = crate::registry::selectors::LabelSelector::from_json(selector);
    expected.matches(|key| labels.get(key).and_then(Value::as_str))
}

fn workload(value: &Value, old: Option<&Value>, out: &mut Vec<Cause>) {
    let spec = &value["spec"];
    if let Some(replicas) = spec.get("replicas").and_then(Value::as_i64).filter(|r| *r < 0) {
        out.push(Cause::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0"));
    }
    let selector = spec.get("selector").filter(|s| s.is_object());
    let empty = Value::Object(Map::new());
    let labels = spec.pointer("/template/metadata/labels");
    match selector {
        None => out.push(Cause::required("spec.selector", "")),
        Some(selector) if selector.as_object().is_some_and(Map::is_empty) => {
            out.push(Cause::invalid("spec.selector", selector, "empty selector is invalid for deployment"));
        }
        Some(_) => {}
    }
    if selector.is_none_or(|s| !labels_match(s, labels.unwrap_or(&empty))) {
        let shown = labels.cloned().unwrap_or_default();
        let detail = "`selector` does not match template `labels`";
        out.push(Cause::invalid("spec.template.metadata.labels", &shown, detail));
    }
    if let Some(old) = old
        && old.pointer("/spec/selector") != spec.get("selector")
    {
        out.push(Cause::invalid(
            "spec.selector",
            spec.get("selector").unwrap_or(&Value::Null),
            "field is immutable",
        ));
    }
    pod_spec(&spec["template"]["spec"], "spec.template.spec", out);
    let policy = member_text(&spec["template"]["spec"], "restartPolicy");
    if policy == "Never" || policy == "OnFailure" {
        let supported = ["Always".to_owned()];
        out.push(Cause::unsupported("spec.template.spec.restartPolicy", &policy.into(), &supported));
    }
}

fn job(spec: &Value, old: Option<&Value>, out: &mut Vec<Cause>) {
    job_template(spec, "spec", out);
    let Some(old) = old else { return };
    for key in ["completions", "selector", "template", "completionMode"] {
        if spec.get(key) != old["spec"].get(key) {
            out.push(Cause::invalid(
                format!("spec.{key}"),
                spec.get(key).unwrap_or(&Value::Null),
                "field is immutable",
            ));
        }
    }
}

fn job_template(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    pod_spec(&spec["template"]["spec"], &format!("{path}.template.spec"), out);
    if member_text(&spec["template"]["spec"], "restartPolicy") == "Always" {
        out.push(Cause::required(
            format!("{path}.template.spec.restartPolicy"),
            "valid values: \"OnFailure\", \"Never\"",
        ));
    }
}

fn cron_job(spec: &Value, out: &mut Vec<Cause>) {
    if member_text(spec, "schedule").is_empty() {
        out.push(Cause::required("spec.schedule", ""));
    }
    job_template(&spec["jobTemplate"]["spec"], "spec.jobTemplate.spec", out);
}

fn lease(spec: &Value, out: &mut Vec<Cause>) {
    for key in ["leaseDurationSeconds", "leaseTransitions"] {
        let Some(number) = spec.get(key).and_then(Value::as_i64) else { continue };
        if key == "leaseDurationSeconds" && number <= 0 {
            out.push(Cause::invalid(format!("spec.{key}"), &number.into(), "must be greater than 0"));
        } else if number < 0 {
            out.push(Cause::invalid(
                format!("spec.{key}"),
                &number.into(),
                "must be greater than or equal to 0",
            ));
        }
    }
}

fn rbac(plural: &str, value: &Value, old: Option<&Value>, out: &mut Vec<Cause>) {
    if plural.ends_with("bindings") {
        if member_text(&value["roleRef"], "name").is_empty() {
            out.push(Cause::required("roleRef.name", ""));
        }
        if let Some(old) = old
            && old["roleRef"] != value["roleRef"]
        {
            out.push(Cause::invalid("roleRef", &value["roleRef"], "cannot change roleRef"));
        }
        return;
    }
    for (i, rule) in list(value, "rules").iter().enumerate() {
        let place = format!("rules[{i}]");
        if list(rule, "verbs").is_empty() {
            out.push(Cause::required(format!("{place}.verbs"), "verbs must contain at least one value"));
        }
        if !list(rule, "nonResourceURLs").is_empty() {
            continue;
        }
        if list(rule, "apiGroups").is_empty() {
            out.push(Cause::required(
                format!("{place}.apiGroups"),
                "resource rules must supply at least one api group",
            ));
        }
        if list(rule, "resources").is_empty() {
            out.push(Cause::required(
                format!("{place}.resources"),
                "resource rules must supply at least one resource",
            ));
        }
    }
}
