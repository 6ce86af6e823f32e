//! Tables, as `kubectl get` shows them: columns and cells of built-in kinds and of declared printer columns.

use serde_json::{Map, Value, json};

use crate::kinds::Resource;

/// Which part of an object a row carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

/// One column: name, type, priority, and where the cell comes from.
struct Column {
    name: String,
    kind: String,
    format: String,
    priority: i64,
    source: String,
}

fn columns(resource: &Resource) -> Vec<Column> {
    let mut out = vec![column("Name", "string", 0, ".metadata.name")];
    if let Some(custom) = &resource.custom {
        for printed in &custom.columns {
            let text = |key: &str| printed.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            let priority = printed.get("priority").and_then(Value::as_i64).unwrap_or_default();
            out.push(Column {
                name: text("name"),
                kind: text("type"),
                format: text("format"),
                priority,
                source: text("jsonPath"),
            });
        }
        if custom.columns.is_empty() {
            out.push(column("Age", "date", 0, ".metadata.creationTimestamp"));
        }
        return out;
    }
    for (name, kind, priority, source) in builtin(&resource.group, &resource.plural) {
        out.push(column(name, kind, *priority, source));
    }
    out
}

fn column(name: &str, kind: &str, priority: i64, source: &str) -> Column {
    let format = if name == "Name" { "name" } else { "" };
    Column { name: name.into(), kind: kind.into(), format: format.into(), priority, source: source.into() }
}

type Known = &'static [(&'static str, &'static str, i64, &'static str)];

const AGE: (&str, &str, i64, &str) = ("Age", "string", 0, "age");

fn builtin(group: &str, plural: &str) -> Known {
    match (group, plural) {
        ("", "pods") => &[
            ("Ready", "string", 0, "pod-ready"),
            ("Status", "string", 0, "pod-status"),
            ("Restarts", "string", 0, "pod-restarts"),
            AGE,
            ("IP", "string", 1, "or-none .status.podIP"),
            ("Node", "string", 1, "or-none .spec.nodeName"),
            ("Nominated Node", "string", 1, "or-none .status.nominatedNodeName"),
            ("Readiness Gates", "string", 1, "none"),
        ],
        ("", "configmaps") => &[("Data", "string", 0, "count .data"), AGE],
        ("", "secrets") => &[("Type", "string", 0, ".type"), ("Data", "string", 0, "count .data"), AGE],
        ("", "namespaces") => &[("Status", "string", 0, ".status.phase"), AGE],
        ("", "services") => &[
            ("Type", "string", 0, ".spec.type"),
            ("Cluster-IP", "string", 0, "or-none .spec.clusterIP"),
            ("External-IP", "string", 0, "none"),
            ("Port(s)", "string", 0, "service-ports"),
            AGE,
            ("Selector", "string", 1, "selector .spec.selector"),
        ],
        ("apps", "deployments") => &[
            ("Ready", "string", 0, "ratio .status.readyReplicas .spec.replicas"),
            ("Up-to-date", "string", 0, "number .status.updatedReplicas"),
            ("Available", "string", 0, "number .status.availableReplicas"),
            AGE,
            ("Containers", "string", 1, "containers name"),
            ("Images", "string", 1, "containers image"),
            ("Selector", "string", 1, "selector .spec.selector.matchLabels"),
        ],
        ("apps", "replicasets") => &[
            ("Desired", "integer", 0, "number .spec.replicas"),
            ("Current", "integer", 0, "number .status.replicas"),
            ("Ready", "integer", 0, "number .status.readyReplicas"),
            AGE,
            ("Containers", "string", 1, "containers name"),
            ("Images", "string", 1, "containers image"),
            ("Selector", "string", 1, "selector .spec.selector.matchLabels"),
        ],
        ("apps", "statefulsets") => &[
            ("Ready", "string", 0, "ratio .status.readyReplicas .spec.replicas"),
            AGE,
            ("Containers", "string", 1, "containers name"),
            ("Images", "string", 1, "containers image"),
        ],
        ("batch", "jobs") => &[
            ("Status", "string", 0, "job-status"),
            ("Completions", "string", 0, "ratio .status.succeeded .spec.completions"),
            ("Duration", "string", 0, "blank"),
            AGE,
            ("Containers", "string", 1, "containers name"),
            ("Images", "string", 1, "containers image"),
            ("Selector", "string", 1, "selector .spec.selector.matchLabels"),
        ],
        ("" | "events.k8s.io", "events") => &EVENTS,
        ("coordination.k8s.io", "leases") => &[("Holder", "string", 0, ".spec.holderIdentity"), AGE],
        ("apiextensions.k8s.io", _) => &[("Created At", "date", 0, ".metadata.creationTimestamp")],
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => {
            &[("Created At", "date", 0, ".metadata.creationTimestamp")]
        }
        ("rbac.authorization.k8s.io", _) => &[("Role", "string", 0, "role-ref"), AGE],
        _ => &[AGE],
    }
}

const EVENTS: [(&str, &str, i64, &str); 5] = [
    ("Last Seen", "string", 0, "last-seen"),
    ("Type", "string", 0, ".type"),
    ("Reason", "string", 0, ".reason"),
    ("Object", "string", 0, "event-object"),
    ("Message", "string", 0, ".message"),
];

/// A table without rows.
pub(crate) fn head(resource: &Resource, version: &Value, with_columns: bool) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("kind".into(), "Table".into());
    out.insert("apiVersion".into(), "meta.k8s.io/v1".into());
    out.insert(
        "metadata".into(),
        if version.is_null() { json!({}) } else { json!({"resourceVersion": version}) },
    );
    let mut defined = Vec::new();
    if with_columns {
        for c in columns(resource) {
            let custom = resource.custom.as_ref().and_then(|custom| {
                custom.columns.iter().find(|p| p["name"] == *c.name).and_then(|p| p["description"].as_str())
            });
            let description = custom.map_or_else(|| describe(&c, resource), str::to_owned);
            defined.push(json!({
                "name": c.name, "type": c.kind, "format": c.format, "description": description, "priority": c.priority,
            }));
        }
    }
    out.insert("columnDefinitions".into(), defined.into());
    out
}

fn describe(column: &Column, resource: &Resource) -> String {
    if resource.custom.is_some() && column.name != "Name" && column.name != "Age" {
        return format!("Custom resource definition column (in JSONPath format): {}", column.source);
    }
    format!("{} of the {}.", column.name, resource.kind)
}

/// One object's row.
pub(crate) fn row(resource: &Resource, object: &Value, include: Include, _single: bool) -> Value {
    let cells: Vec<Value> = columns(resource).iter().map(|c| cell(&c.source, &c.kind, object)).collect();
    let carried = match include {
        Include::Nothing => Value::Null,
        Include::Metadata => crate::response::partial(object),
        Include::Object => object.clone(),
    };
    let mut out = Map::new();
    out.insert("cells".into(), cells.into());
    out.insert("object".into(), carried);
    Value::Object(out)
}

fn at<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    path.trim_start_matches('.').split('.').try_fold(object, |v, key| v.get(key))
}

fn cell(source: &str, kind: &str, object: &Value) -> Value {
    let (word, rest) = source.split_once(' ').unwrap_or((source, ""));
    let number = |path: &str| at(object, path).and_then(Value::as_i64).unwrap_or_default();
    let or_none =
        |v: Option<&Value>| v.filter(|v| v.as_str() != Some("")).cloned().unwrap_or_else(|| "<none>".into());
    match word {
        "age" => at(object, ".metadata.creationTimestamp")
            .and_then(Value::as_str)
            .map_or("<unknown>".into(), age)
            .into(),
        "count" => at(object, rest).and_then(Value::as_object).map_or(0, Map::len).into(),
        "or-none" => or_none(at(object, rest)),
        "none" => "<none>".into(),
        "blank" => "".into(),
        "number" => number(rest).into(),
        "ratio" => {
            let (a, b) = rest.split_once(' ').unwrap_or_default();
            format!("{}/{}", number(a), number(b)).into()
        }
        "containers" => {
            let list = at(object, ".spec.template.spec.containers").and_then(Value::as_array);
            let names = list.into_iter().flatten().filter_map(|c| c.get(rest).and_then(Value::as_str));
            names.collect::<Vec<_>>().join(",").into()
        }
        "selector" => {
            let pairs = at(object, rest).and_then(Value::as_object).into_iter().flatten();
            let text: Vec<String> =
                pairs.map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
            if text.is_empty() { "<none>".into() } else { text.join(",").into() }
        }
        "service-ports" => {
            let ports = at(object, ".spec.ports").and_then(Value::as_array);
            let text: Vec<String> = ports
                .into_iter()
                .flatten()
                .map(|p| format!("{}/{}", p["port"], p["protocol"].as_str().unwrap_or("TCP")))
                .collect();
            if text.is_empty() { "<none>".into() } else { text.join(",").into() }
        }
        "role-ref" => format!(
            "{}/{}",
            at(object, ".roleRef.kind").and_then(Value::as_str).unwrap_or_default(),
            at(object, ".roleRef.name").and_then(Value::as_str).unwrap_or_default()
        )
        .into(),
        "event-object" => {
            let about =
                object.get("involvedObject").or_else(|| object.get("regarding")).unwrap_or(&Value::Null);
            let text = |key: &str| about.get(key).and_then(Value::as_str).unwrap_or_default();
            format!("{}/{}", text("kind").to_lowercase(), text("name")).into()
        }
        "last-seen" => {
            object.get("lastTimestamp").and_then(Value::as_str).map_or("<unknown>".into(), age).into()
        }
        "job-status" => {
            let done = at(object, ".status.conditions")
                .and_then(Value::as_array)
                .is_some_and(|l| l.iter().any(|c| c["type"] == "Complete" && c["status"] == "True"));
            if done { "Complete" } else { "Running" }.into()
        }
        "pod-ready" | "pod-restarts" | "pod-status" => pod_cell(word, object),
        path if kind == "date" => {
            found(object, path).and_then(Value::as_str).map_or(Value::Null, |t| age(t).into())
        }
        path => found(object, path).map_or(Value::Null, |v| typed(v, kind)),
    }
}

/// A cell's value as its column's type.
fn typed(value: &Value, kind: &str) -> Value {
    match (kind, value) {
        ("string", Value::String(_) | Value::Null) => value.clone(),
        ("string", other) => other.to_string().into(),
        _ => value.clone(),
    }
}

/// The small part of `JSONPath` that printer columns use: names, indices, and filters by equality.
pub(crate) fn found<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    let mut here = object;
    let mut rest = path.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let end = inner.find(']')?;
            let (inside, tail) = (inner.get(..end)?, inner.get(end + 1..)?);
            rest = tail;
            here = step_in(here, inside)?;
            continue;
        }
        let name_on = rest.strip_prefix('.').unwrap_or(rest);
        let mut name = String::new();
        let mut chars = name_on.char_indices();
        let mut end = name_on.len();
        while let Some((i, c)) = chars.next() {
            match c {
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                '.' | '[' => {
                    end = i;
                    break;
                }
                c => name.push(c),
            }
        }
        here = here.get(&name)?;
        rest = name_on.get(end..)?;
    }
    Some(here)
}

fn step_in<'v>(here: &'v Value, inside: &str) -> Option<&'v Value> {
    if let Some(filter) = inside.strip_prefix("?(@.") {
        let (key, wanted) = filter.trim_end_matches(')').split_once("==")?;
        let wanted = wanted.trim().trim_matches(['"', '\'']);
        return here.as_array()?.iter().find(|item| {
            item.get(key.trim())
                .is_some_and(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned) == wanted)
        });
    }
    match inside.trim_matches(['"', '\'']) {
        "*" => here.as_array()?.first(),
        name => here.as_array().map_or_else(|| here.get(name), |list| list.get(name.parse::<usize>().ok()?)),
    }
}

fn pod_cell(word: &str, pod: &Value) -> Value {
    let statuses = at(pod, ".status.containerStatuses").and_then(Value::as_array);
    let total = at(pod, ".spec.containers").and_then(Value::as_array).map_or(0, Vec::len);
    match word {
        "pod-ready" => {
            let ready = statuses.map_or(0, |l| l.iter().filter(|s| s["ready"] == Value::Bool(true)).count());
            format!("{ready}/{total}").into()
        }
        "pod-restarts" => {
            let count: i64 =
                statuses.map_or(0, |l| l.iter().filter_map(|s| s["restartCount"].as_i64()).sum());
            count.to_string().into()
        }
        _ if at(pod, ".metadata.deletionTimestamp").is_some() => "Terminating".into(),
        _ => at(pod, ".status.phase").cloned().unwrap_or_else(|| "Unknown".into()),
    }
}

/// The time since then, in the rough form that people read.
fn age(since: &str) -> String {
    let Ok(then) = since.parse::<jiff::Timestamp>() else { return "<invalid>".into() };
    let seconds = crate::clock::now().as_second().saturating_sub(then.as_second());
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        ..0 => "0s".into(),
        0..120 => format!("{seconds}s"),
        120..600 if seconds % 60 != 0 => format!("{minutes}m{}s", seconds % 60),
        120..10_800 => format!("{minutes}m"),
        10_800..28_800 if minutes % 60 != 0 => format!("{hours}h{}m", minutes % 60),
        10_800..172_800 => format!("{hours}h"),
        172_800..691_200 if hours % 24 != 0 => format!("{days}d{}h", hours % 24),
        172_800..63_072_000 => format!("{days}d"),
        _ => format!("{}y", days / 365),
    }
}
