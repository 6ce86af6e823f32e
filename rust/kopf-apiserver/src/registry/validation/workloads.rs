//! Validation of workloads, jobs and cron jobs.

use serde_json::{Map, Value, json};

use super::{list, pods};
use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::registry::selectors::LabelSelector;

fn labels_match(selector: &Value, labels: &Value) -> bool {
    LabelSelector::from_json(selector).matches(|key| labels.get(key).and_then(Value::as_str))
}

/// Deployments, replica sets, stateful sets and daemon sets.
pub(super) fn workload(plural: &str, value: &Value, old: Option<&Value>, out: &mut Vec<Cause>) {
    let spec = &value["spec"];
    selector(plural, spec, out);
    let kind = match plural {
        "daemonsets" => "DaemonSet",
        "statefulsets" => "StatefulSet",
        _ => "ReplicaSet",
    };
    pods::always_restarts(&spec["template"], kind, "spec.template", out);
    match plural {
        "deployments" => deployment(spec, out),
        "statefulsets" => stateful_set(value, old, out),
        "daemonsets" => daemon_set(spec, out),
        _ => {}
    }
    if let Some(old) = old
        && old.pointer("/spec/selector") != spec.get("selector")
        && plural != "statefulsets"
    {
        let now = spec.get("selector").unwrap_or(&Value::Null);
        out.push(Cause::invalid("spec.selector", now, "field is immutable"));
    }
}

fn selector(plural: &str, spec: &Value, out: &mut Vec<Cause>) {
    let subject = match plural {
        "daemonsets" => "daemonset",
        "statefulsets" => "statefulset",
        _ => "deployment",
    };
    let selector = spec.get("selector").filter(|s| s.is_object());
    let empty = Value::Object(Map::new());
    let labels = spec.pointer("/template/metadata/labels");
    let mut errors = Vec::new();
    match selector {
        None => {
            if plural != "daemonsets" {
                out.push(Cause::required("spec.selector", ""));
            }
        }
        Some(selector) => {
            super::selectors::label_selector(selector, "spec.selector", &mut errors);
            let is_empty = ["matchLabels", "matchExpressions"].iter().all(|k| match selector.get(*k) {
                Some(Value::Array(list)) => list.is_empty(),
                Some(Value::Object(map)) => map.is_empty(),
                _ => true,
            });
            if is_empty {
                let detail = format!("empty selector is invalid for {subject}");
                out.push(Cause::invalid("spec.selector", selector, &detail));
            }
            if !errors.is_empty() && plural != "daemonsets" {
                let detail = "invalid label selector";
                out.push(Cause::invalid("spec.selector", selector, detail));
                return;
            }
        }
    }
    if selector.is_none_or(|s| !labels_match(s, labels.unwrap_or(&empty))) {
        let shown = labels.cloned().unwrap_or_default();
        let detail = "`selector` does not match template `labels`";
        out.push(Cause::invalid("spec.template.metadata.labels", &shown, detail));
    }
}

/// A number of pods, or a percentage of 100 % at most.
fn amount(value: &Value) -> Option<i64> {
    match value {
        Value::Number(n) => n.as_i64(),
        Value::String(text) => text.strip_suffix('%').and_then(|n| n.parse().ok()),
        _ => None,
    }
}

fn go_strategy(strategy: &Value) -> Value {
    let rolling = strategy
        .get("rollingUpdate")
        .map_or(Value::Null, |r| json!({"MaxUnavailable": r["maxUnavailable"], "MaxSurge": r["maxSurge"]}));
    json!({"Type": strategy["type"], "RollingUpdate": rolling})
}

fn deployment(spec: &Value, out: &mut Vec<Cause>) {
    let strategy = &spec["strategy"];
    let rolling = strategy.get("rollingUpdate");
    match member_text(strategy, "type") {
        "Recreate" => {
            if rolling.is_some() {
                let detail = "may not be specified when strategy `type` is 'Recreate'";
                out.push(Cause::forbidden("spec.strategy.rollingUpdate", detail));
            }
        }
        "RollingUpdate" => {
            let is_zero = |key: &str| rolling.and_then(|r| r.get(key)).and_then(amount) == Some(0);
            if is_zero("maxSurge") && is_zero("maxUnavailable") {
                let shown = &strategy["rollingUpdate"]["maxUnavailable"];
                let detail = "may not be 0 when `maxSurge` is 0";
                out.push(Cause::invalid("spec.strategy.rollingUpdate.maxUnavailable", shown, detail));
            }
        }
        _ => {
            let known = ["Recreate", "RollingUpdate"].map(str::to_owned);
            out.push(Cause::unsupported("spec.strategy", &go_strategy(strategy), &known));
        }
    }
    let number = |key: &str| spec.get(key).and_then(Value::as_i64);
    if let Some(deadline) = number("progressDeadlineSeconds")
        && deadline <= number("minReadySeconds").unwrap_or_default()
    {
        let detail = "must be greater than minReadySeconds";
        out.push(Cause::invalid("spec.progressDeadlineSeconds", &deadline.into(), detail));
    }
}

fn stateful_set(value: &Value, old: Option<&Value>, out: &mut Vec<Cause>) {
    let spec = &value["spec"];
    let policy = member_text(spec, "podManagementPolicy");
    if !matches!(policy, "OrderedReady" | "Parallel") {
        let detail = "must be 'OrderedReady' or 'Parallel'";
        out.push(Cause::invalid("spec.podManagementPolicy", &policy.into(), detail));
    }
    let strategy = member_text(&spec["updateStrategy"], "type");
    if !matches!(strategy, "RollingUpdate" | "OnDelete") {
        let shown = json!({"type": strategy});
        let detail = "must be 'RollingUpdate' or 'OnDelete'";
        out.push(Cause::invalid("spec.updateStrategy", &shown, detail));
    }
    let Some(old) = old else { return };
    let fixed = |set: &Value| {
        let mut spec = set.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
        for key in [
            "replicas",
            "ordinals",
            "template",
            "updateStrategy",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
            "minReadySeconds",
        ] {
            spec.shift_remove(key);
        }
        spec
    };
    if fixed(value) != fixed(old) {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
                      'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        out.push(Cause::forbidden("spec", detail));
    }
}

/// The stateful set with a volume for each claim template, which containers can mount.
pub(super) fn with_claims(value: &Value) -> Value {
    let mut value = value.clone();
    let claims: Vec<Value> = list(&value["spec"], "volumeClaimTemplates")
        .iter()
        .map(|claim| {
            let name = &claim["metadata"]["name"];
            json!({"name": name, "persistentVolumeClaim": {"claimName": name}})
        })
        .collect();
    let Some(spec) = value.pointer_mut("/spec/template/spec").and_then(Value::as_object_mut) else {
        return value;
    };
    if let (Some(volumes), false) =
        (spec.entry("volumes").or_insert_with(|| json!([])).as_array_mut(), claims.is_empty())
    {
        volumes.retain(|v| claims.iter().all(|c| c["name"] != v["name"]));
        volumes.extend(claims);
    }
    value
}

fn daemon_set(spec: &Value, out: &mut Vec<Cause>) {
    let strategy = &spec["updateStrategy"];
    let path = "spec.updateStrategy.rollingUpdate";
    match member_text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let rolling = &strategy["rollingUpdate"];
            let (max, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            let (has_max, has_surge) = (amount(max) != Some(0), amount(surge) != Some(0));
            if has_max && has_surge {
                let detail = "may not be set when maxUnavailable is non-zero";
                out.push(Cause::invalid(format!("{path}.maxSurge"), surge, detail));
            } else if !has_max && !has_surge {
                out.push(Cause::required(format!("{path}.maxUnavailable"), "cannot be 0 when maxSurge is 0"));
            }
        }
        _ => {
            let known = ["RollingUpdate", "OnDelete"].map(str::to_owned);
            out.push(Cause::unsupported("spec.updateStrategy", &go_strategy(strategy), &known));
        }
    }
}

/// A replication controller.
pub(super) fn replication_controller(spec: &Value, out: &mut Vec<Cause>) {
    let Some(template) = spec.get("template") else { return };
    pods::always_restarts(template, "ReplicationController", "spec.template", out);
    let labels = template.pointer("/metadata/labels");
    let selector = spec.get("selector").and_then(Value::as_object);
    let matches =
        selector.is_some_and(|s| s.iter().all(|(k, v)| labels.is_some_and(|l| l.get(k) == Some(v))));
    if !matches && selector.is_some_and(|s| !s.is_empty()) {
        let shown = labels.cloned().unwrap_or_default();
        let detail = "`selector` does not match template `labels`";
        out.push(Cause::invalid("spec.template.metadata.labels", &shown, detail));
    }
}

/// A job.
pub(super) fn job(spec: &Value, old: Option<&Value>, out: &mut Vec<Cause>) {
    job_template(spec, "spec", out);
    let Some(old) = old else { return };
    let is_suspended = old["spec"].get("suspend") == Some(&Value::Bool(true));
    for key in
        ["completions", "selector", "template", "completionMode", "podFailurePolicy", "backoffLimitPerIndex"]
    {
        if spec.get(key) != old["spec"].get(key) && !(is_suspended && key == "template") {
            let now = spec.get(key).unwrap_or(&Value::Null);
            out.push(Cause::invalid(format!("spec.{key}"), now, "field is immutable"));
        }
    }
}

fn job_template(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    let policy = member_text(&spec["template"]["spec"], "restartPolicy");
    let field = format!("{path}.template.spec.restartPolicy");
    if policy == "Always" || policy.is_empty() {
        out.push(Cause::required(field.clone(), "valid values: \"OnFailure\", \"Never\""));
    } else if !matches!(policy, "Never" | "OnFailure") {
        let known = ["OnFailure", "Never"].map(str::to_owned);
        out.push(Cause::unsupported(field.clone(), &policy.into(), &known));
    } else if spec.get("podFailurePolicy").is_some() && policy != "Never" {
        let detail = "only \"Never\" is supported when podFailurePolicy is specified";
        out.push(Cause::invalid(field, &policy.into(), detail));
    }
    indexes(spec, path, out);
    for (i, rule) in list(&spec["podFailurePolicy"], "rules").iter().enumerate() {
        let count = usize::from(rule.get("onExitCodes").is_some())
            + usize::from(!list(rule, "onPodConditions").is_empty());
        if count == 0 {
            out.push(Cause {
                field: format!("{path}.podFailurePolicy.rules[{i}]"),
                reason: "FieldValueInvalid",
                message: "Invalid value: specifying one of OnExitCodes and OnPodConditions is required"
                    .into(),
            });
        }
    }
    if let Some(manager) = spec.get("managedBy").and_then(Value::as_str)
        && !manager.contains('/')
    {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        out.push(Cause::invalid(format!("{path}.managedBy"), &manager.into(), detail));
    }
}

/// Fields that belong to indexed jobs.
fn indexes(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    let is_indexed = member_text(spec, "completionMode") == "Indexed";
    if is_indexed && spec.get("completions").is_none() {
        let detail = "when completion mode is Indexed";
        out.push(Cause::required(format!("{path}.completions"), detail));
    }
    for key in ["backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"] {
        if let Some(value) = spec.get(key).filter(|_| !is_indexed) {
            out.push(Cause::invalid(format!("{path}.{key}"), value, "requires indexed completion mode"));
        }
    }
    if spec.get("maxFailedIndexes").is_some() && spec.get("backoffLimitPerIndex").is_none() {
        let detail = "when maxFailedIndexes is specified";
        out.push(Cause::required(format!("{path}.backoffLimitPerIndex"), detail));
    }
}

/// A cron job.
pub(super) fn cron_job(spec: &Value, out: &mut Vec<Cause>) {
    let schedule = member_text(spec, "schedule");
    if schedule.is_empty() {
        out.push(Cause::required("spec.schedule", ""));
    } else if !schedule.starts_with('@') {
        let fields: Vec<&str> = schedule.split_whitespace().collect();
        if fields.len() != 5 {
            let count = fields.len();
            let detail = format!("expected exactly 5 fields, found {count}: [{}]", fields.join(" "));
            out.push(Cause::invalid("spec.schedule", &schedule.into(), &detail));
        }
    }
    if let Some(zone) = spec.get("timeZone").and_then(Value::as_str) {
        if zone.is_empty() {
            let detail = "timeZone must be nil or non-empty string";
            out.push(Cause::invalid("spec.timeZone", &zone.into(), detail));
        } else if !is_time_zone(zone) {
            let detail = format!("unknown time zone {zone}");
            out.push(Cause::invalid("spec.timeZone", &zone.into(), &detail));
        }
    }
    let path = "spec.jobTemplate.spec";
    let job = &spec["jobTemplate"]["spec"];
    job_template(job, path, out);
    if job.get("manualSelector") == Some(&Value::Bool(true)) {
        let known = ["nil", "false"].map(str::to_owned);
        out.push(Cause::unsupported(format!("{path}.manualSelector"), &true.into(), &known));
    }
    if let Some(selector) = job.get("selector") {
        let detail = "`selector` will be auto-generated";
        out.push(Cause::invalid(format!("{path}.selector"), selector, detail));
    }
}

/// Whether a name looks like a time zone of the IANA database, which is not part of the server.
fn is_time_zone(name: &str) -> bool {
    let is_word = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_uppercase())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_+-".contains(&b))
    };
    name.len() < 40 && name.split('/').all(is_word)
}
