//! Validation of jobs and cron jobs.

use serde_json::{Map, Value};

use super::workloads::labels_match;
use super::{list, selectors};
use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::scheme::go_values;

/// Maximum number of indexes that may fail, and of pods of an indexed job at the same time.
const INDEX_LIMIT: i64 = 100_000;
const INDEXED_ONLY: &str = "requires indexed completion mode";
const IMMUTABLE: &str = "field is immutable";

/// A job, without its pods.
pub(super) fn job(spec: &Value, out: &mut Vec<Cause>) {
    job_spec(spec, "spec", out);
    let selector = spec.get("selector").filter(|s| s.is_object());
    if selector.is_none() {
        out.push(Cause::required("spec.selector", ""));
    }
    let labels = spec.pointer("/template/metadata/labels");
    let nothing = Value::Object(Map::new());
    if selector.is_none_or(|s| !labels_match(s, labels.unwrap_or(&nothing))) {
        let mut errors = Vec::new();
        if let Some(selector) = selector {
            selectors::label_selector(selector, "spec.selector", &mut errors);
        }
        if errors.is_empty() {
            let detail = "`selector` does not match template `labels`";
            let shown = labels.unwrap_or(&Value::Null);
            out.push(Cause::invalid("spec.template.metadata.labels", shown, detail));
        }
    }
}

/// The fields of a job that cannot change.
pub(super) fn job_update(spec: &Value, old: &Value, out: &mut Vec<Cause>) {
    let is_suspended = old.get("suspend") == Some(&Value::Bool(true));
    let number = |spec: &Value, key: &str| spec.get(key).and_then(Value::as_i64);
    for key in [
        "completions",
        "selector",
        "template",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "successPolicy",
    ] {
        if spec.get(key) == old.get(key) || (is_suspended && key == "template") {
            continue;
        }
        let now = spec.get(key).unwrap_or(&Value::Null);
        let field = format!("spec.{key}");
        match key {
            "completions" if member_text(spec, "completionMode") == "Indexed" => {
                let is_elastic = |spec: &Value| number(spec, "completions") == number(spec, "parallelism");
                let is_allowed = now.is_null() || (is_elastic(spec) && is_elastic(old));
                if !is_allowed {
                    let detail = "can only be modified in tandem with spec.parallelism";
                    out.push(Cause::invalid(field, now, &format!("{IMMUTABLE}: {detail}")));
                }
            }
            "template" | "podFailurePolicy" | "successPolicy" if !now.is_null() => {
                let type_name = match key {
                    "template" => "core.v1.PodTemplateSpec",
                    "podFailurePolicy" => "batch.v1.PodFailurePolicy",
                    _ => "batch.v1.SuccessPolicy",
                };
                out.push(Cause::invalid_raw(field, &go_values::internal_text(now, type_name), IMMUTABLE));
            }
            _ => out.push(Cause::invalid(field, now, IMMUTABLE)),
        }
    }
}

fn job_spec(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    restart_policy(spec, path, out);
    indexes(spec, path, out);
    failure_policy(spec, path, out);
    success_policy(spec, path, out);
    if let Some(policy) = spec.get("podReplacementPolicy").and_then(Value::as_str) {
        let known: &[&str] = if spec.get("podFailurePolicy").is_some() {
            &["Failed"]
        } else {
            &["Failed", "TerminatingOrFailed"]
        };
        if !known.contains(&policy) {
            out.push(super::unsupported(format!("{path}.podReplacementPolicy"), policy, known));
        }
    }
    if let Some(manager) = spec.get("managedBy").and_then(Value::as_str)
        && !manager.contains('/')
    {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        out.push(Cause::invalid(format!("{path}.managedBy"), &manager.into(), detail));
    }
}

fn restart_policy(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    let policy = member_text(&spec["template"]["spec"], "restartPolicy");
    let field = format!("{path}.template.spec.restartPolicy");
    if policy == "Always" || policy.is_empty() {
        out.push(Cause::required(field, "valid values: \"OnFailure\", \"Never\""));
    } else if !matches!(policy, "Never" | "OnFailure") {
        out.push(super::unsupported(field, policy, &["OnFailure", "Never"]));
    } else if spec.get("podFailurePolicy").is_some() && policy != "Never" {
        let detail = "only \"Never\" is supported when podFailurePolicy is specified";
        out.push(Cause::invalid(field, &policy.into(), detail));
    }
}

/// Fields that belong to indexed jobs.
fn indexes(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    let number = |key: &str| spec.get(key).and_then(Value::as_i64);
    let mut invalid = |key: &str, n: i64, detail: &str| {
        out.push(Cause::invalid(format!("{path}.{key}"), &n.into(), detail));
    };
    match member_text(spec, "completionMode") {
        "Indexed" => {
            if let Some(n) = number("parallelism").filter(|n| *n > INDEX_LIMIT) {
                let detail =
                    format!("must be less than or equal to {INDEX_LIMIT} when completion mode is Indexed");
                invalid("parallelism", n, &detail);
            }
            if let Some(n) = number("maxFailedIndexes") {
                if number("completions").is_some_and(|all| n > all) {
                    invalid("maxFailedIndexes", n, "must be less than or equal to completions");
                }
                if n > INDEX_LIMIT {
                    invalid("maxFailedIndexes", n, &format!("must be less than or equal to {INDEX_LIMIT}"));
                }
            }
            if spec.get("completions").is_none() {
                let detail = "when completion mode is Indexed";
                out.push(Cause::required(format!("{path}.completions"), detail));
            }
        }
        "" | "NonIndexed" if spec.get("completionMode").is_none_or(|mode| mode == "NonIndexed") => {
            for key in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if let Some(n) = number(key) {
                    invalid(key, n, INDEXED_ONLY);
                }
            }
        }
        _ => {}
    }
    if spec.get("maxFailedIndexes").is_some() && spec.get("backoffLimitPerIndex").is_none() {
        let detail = "when maxFailedIndexes is specified";
        out.push(Cause::required(format!("{path}.backoffLimitPerIndex"), detail));
    }
}

fn success_policy(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    let Some(policy) = spec.get("successPolicy") else { return };
    let field = format!("{path}.successPolicy");
    if member_text(spec, "completionMode") != "Indexed" {
        let shown = go_values::internal_text(policy, "batch.v1.SuccessPolicy");
        out.push(Cause::invalid_raw(field, &shown, INDEXED_ONLY));
        return;
    }
    let rules = list(policy, "rules");
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        out.push(Cause::required(format!("{field}.rules"), detail));
    }
    for (i, rule) in rules.iter().enumerate() {
        if rule.get("succeededIndexes").is_none() && rule.get("succeededCount").is_none() {
            let detail = "at least one of succeededCount or succeededIndexes must be specified";
            out.push(Cause::required(format!("{field}.rules[{i}]"), detail));
        }
    }
}

fn failure_policy(spec: &Value, path: &str, out: &mut Vec<Cause>) {
    let template = &spec["template"]["spec"];
    let names: Vec<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|kind| list(template, kind))
        .map(|container| member_text(container, "name"))
        .collect();
    for (i, rule) in list(&spec["podFailurePolicy"], "rules").iter().enumerate() {
        let field = format!("{path}.podFailurePolicy.rules[{i}]");
        let mut invalid = |message: &str| {
            let message = format!("Invalid value: {message}");
            out.push(Cause { field: field.clone(), reason: "FieldValueInvalid", message });
        };
        let has_conditions = !list(rule, "onPodConditions").is_empty();
        match rule.get("onExitCodes") {
            Some(_) if has_conditions => {
                invalid("specifying both OnExitCodes and OnPodConditions is not supported");
            }
            None if !has_conditions => {
                invalid("specifying one of OnExitCodes and OnPodConditions is required");
            }
            _ => {}
        }
        if member_text(rule, "action") == "FailIndex" && spec.get("backoffLimitPerIndex").is_none() {
            let detail = "requires the backoffLimitPerIndex to be set";
            out.push(Cause::invalid(format!("{field}.action"), &"FailIndex".into(), detail));
        }
        if let Some(codes) = rule.get("onExitCodes") {
            exit_codes(codes, &names, &format!("{field}.onExitCodes"), out);
        }
    }
}

fn exit_codes(codes: &Value, containers: &[&str], path: &str, out: &mut Vec<Cause>) {
    if let Some(name) = codes.get("containerName").and_then(Value::as_str)
        && !containers.contains(&name)
    {
        let detail = "must be one of the container or initContainer names in the pod template";
        out.push(Cause::invalid(format!("{path}.containerName"), &name.into(), detail));
    }
    let values: Vec<i64> = list(codes, "values").iter().filter_map(Value::as_i64).collect();
    let shown = codes.get("values").unwrap_or(&Value::Null);
    let field = format!("{path}.values");
    if values.is_empty() {
        out.push(Cause::invalid(&*field, shown, "at least one value is required"));
    } else if values.len() > 255 {
        out.push(Cause::too_many(&*field, values.len(), 255));
    }
    for (i, value) in values.iter().enumerate() {
        if *value == 0 && member_text(codes, "operator") == "In" {
            let detail = "must not be 0 for the In operator";
            out.push(Cause::invalid(format!("{field}[{i}]"), &0.into(), detail));
        }
        if values.iter().take(i).any(|earlier| earlier == value) {
            out.push(Cause::duplicate(format!("{field}[{i}]"), &(*value).into()));
        }
    }
    if !values.is_sorted() {
        out.push(Cause::invalid(field, shown, "must be ordered"));
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
    job_spec(job, path, out);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn failure_and_success_policies_are_validated() {
        let rule = |rule: Value| json!({"podFailurePolicy": {"rules": [rule]}, "template": {"spec": {"restartPolicy": "Never"}}});
        let indexed = |key: &str, value: Value| {
            json!({"completionMode": "Indexed", "completions": 2, "backoffLimitPerIndex": 1, key: value,
                "template": {"spec": {"restartPolicy": "Never"}}})
        };
        let codes = |values: Value| {
            rule(json!({"action": "Ignore", "onExitCodes": {"operator": "In", "values": values}}))
        };
        for (spec, expected) in [
            (codes(json!([1, 2])), Vec::new()),
            (codes(json!([2, 1])), vec!["spec.podFailurePolicy.rules[0].onExitCodes.values"]),
            (codes(json!([0])), vec!["spec.podFailurePolicy.rules[0].onExitCodes.values[0]"]),
            (codes(json!([3, 3])), vec!["spec.podFailurePolicy.rules[0].onExitCodes.values[1]"]),
            (rule(json!({"action": "Ignore"})), vec!["spec.podFailurePolicy.rules[0]"]),
            (indexed("maxFailedIndexes", json!(3)), vec!["spec.maxFailedIndexes"]),
            (indexed("successPolicy", json!({})), vec!["spec.successPolicy.rules"]),
            (indexed("podReplacementPolicy", json!("x")), vec!["spec.podReplacementPolicy"]),
        ] {
            let mut out = Vec::new();
            job_spec(&spec, "spec", &mut out);
            assert_eq!(out.iter().map(|c| c.field.as_str()).collect::<Vec<_>>(), expected, "{spec}");
        }
    }
}
