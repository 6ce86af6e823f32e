//! Cells of table rows.

use serde_json::{Map, Value};

use crate::base::json_path::find;

fn at<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    path.trim_start_matches('.').split('.').try_fold(object, |v, key| v.get(key))
}

pub(super) fn cell(source: &str, kind: &str, object: &Value) -> Value {
    let (word, rest) = source.split_once(' ').unwrap_or((source, ""));
    if let Some(value) = other_cell(word, rest, object) {
        return value;
    }
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
            find(object, path).and_then(Value::as_str).map_or(Value::Null, |t| age(t).into())
        }
        path => find(object, path).map_or(Value::Null, |v| typed(v, kind)),
    }
}

/// Cells of less common resources.
fn other_cell(word: &str, rest: &str, object: &Value) -> Option<Value> {
    Some(match word {
        "has" => at(object, rest).is_some_and(|v| v != &Value::Bool(false)).to_string().into(),
        "length" => at(object, rest).and_then(Value::as_array).map_or(0, Vec::len).into(),
        "joined" => joined(at(object, rest)).into(),
        "addresses" => addresses(object).into(),
        "slice-addresses" => slice_addresses(object).into(),
        "slice-ports" => {
            let ports = at(object, ".ports").and_then(Value::as_array).into_iter().flatten();
            joined(Some(&ports.map(|p| p["port"].clone()).collect())).into()
        }
        "hosts" => {
            let rules = at(object, ".spec.rules").and_then(Value::as_array).into_iter().flatten();
            let hosts: Vec<&str> = rules.filter_map(|r| r["host"].as_str()).collect();
            if hosts.is_empty() { "*".into() } else { hosts.join(",").into() }
        }
        "reference" => {
            let to = at(object, rest).unwrap_or(&Value::Null);
            format!("{}/{}", to["kind"].as_str().unwrap_or_default(), to["name"].as_str().unwrap_or_default())
                .into()
        }
        "since" => at(object, rest).and_then(Value::as_str).map_or("<none>".into(), |t| Value::from(age(t))),
        "or-na" => at(object, rest)
            .map_or_else(|| "N/A".to_owned(), |v| v.as_str().map_or_else(|| v.to_string(), str::to_owned))
            .into(),
        "modes" => {
            let modes = at(object, rest).and_then(Value::as_array).into_iter().flatten();
            let short = modes.filter_map(Value::as_str).map(|mode| match mode {
                "ReadWriteOnce" => "RWO",
                "ReadOnlyMany" => "ROX",
                "ReadWriteMany" => "RWX",
                "ReadWriteOncePod" => "RWOP",
                other => other,
            });
            short.collect::<Vec<_>>().join(",").into()
        }
        "ingress-ports" => if at(object, ".spec.tls").is_some() { "80, 443" } else { "80" }.into(),
        "duration" => duration(object).into(),
        "node-status" => node_status(object).into(),
        "node-roles" => {
            let labels = at(object, ".metadata.labels").and_then(Value::as_object).into_iter().flatten();
            let roles = labels.filter_map(|(k, _)| k.strip_prefix("node-role.kubernetes.io/"));
            joined(Some(&roles.map(Value::from).collect())).into()
        }
        _ => return None,
    })
}

/// Items joined by commas.
fn joined(list: Option<&Value>) -> String {
    let all = list.and_then(Value::as_array).into_iter().flatten();
    let texts: Vec<String> = all.map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned)).collect();
    if texts.is_empty() { "<none>".into() } else { texts.join(",") }
}

/// Addresses and ports of endpoints, abbreviated.
fn addresses(endpoints: &Value) -> String {
    let mut out = Vec::new();
    for subset in endpoints["subsets"].as_array().into_iter().flatten() {
        for port in subset["ports"].as_array().into_iter().flatten() {
            for address in subset["addresses"].as_array().into_iter().flatten() {
                out.push(format!("{}:{}", address["ip"].as_str().unwrap_or_default(), port["port"]));
            }
        }
    }
    abbreviate(&out)
}

fn slice_addresses(slice: &Value) -> String {
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let all: Vec<String> = endpoints
        .flat_map(|e| e["addresses"].as_array().into_iter().flatten())
        .filter_map(|a| a.as_str().map(str::to_owned))
        .collect();
    abbreviate(&all)
}

fn abbreviate(all: &[String]) -> String {
    match all {
        [] => "<none>".into(),
        [a, b, c, rest @ ..] if !rest.is_empty() => format!("{a},{b},{c} + {} more...", rest.len()),
        _ => all.join(","),
    }
}

/// Duration of a job until its completion or now.
fn duration(job: &Value) -> String {
    let timestamp =
        |path: &str| at(job, path).and_then(Value::as_str).and_then(|t| t.parse::<jiff::Timestamp>().ok());
    let Some(start) = timestamp(".status.startTime") else { return String::new() };
    let end = timestamp(".status.completionTime").unwrap_or_else(jiff::Timestamp::now);
    format_duration(end.as_second().saturating_sub(start.as_second()))
}

fn node_status(node: &Value) -> String {
    let conditions = at(node, ".status.conditions").and_then(Value::as_array);
    let ready = conditions.and_then(|l| l.iter().find(|c| c["type"] == "Ready"));
    let mut out = match ready.map(|c| c["status"] == "True") {
        Some(true) => "Ready".to_owned(),
        Some(false) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if at(node, ".spec.unschedulable") == Some(&Value::Bool(true)) {
        out.push_str(",SchedulingDisabled");
    }
    out
}

/// Value of a cell by the type of its column.
fn typed(value: &Value, kind: &str) -> Value {
    match (kind, value) {
        ("string", Value::String(_) | Value::Null) => value.clone(),
        ("string", other) => other.to_string().into(),
        _ => value.clone(),
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
        _ => {
            // The reason of a terminated container is more specific than the phase.
            let ended = statuses.and_then(|l| l.iter().find_map(|s| s.pointer("/state/terminated/reason")));
            let phase = || at(pod, ".status.phase").cloned();
            ended.cloned().or_else(phase).unwrap_or_else(|| "Unknown".into())
        }
    }
}

/// Human-readable time since a timestamp.
fn age(since: &str) -> String {
    let Ok(then) = since.parse::<jiff::Timestamp>() else { return "<invalid>".into() };
    format_duration(crate::base::clock::now().as_second().saturating_sub(then.as_second()))
}

fn format_duration(seconds: i64) -> String {
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
