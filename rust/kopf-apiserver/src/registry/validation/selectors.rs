//! Validation of selectors of labels, nodes and topologies.

use serde_json::Value;

use super::list;
use crate::base::json::member_text;
use crate::error::status::Cause;
use crate::registry::meta;

const OPERATOR: &str = "not a valid selector operator";

/// A label selector.
pub(super) fn label_selector(selector: &Value, path: &str, out: &mut Vec<Cause>) {
    for (key, value) in selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        meta::check_label(&format!("{path}.matchLabels"), key, value, out);
    }
    for (i, expression) in list(selector, "matchExpressions").iter().enumerate() {
        requirement(expression, &format!("{path}.matchExpressions[{i}]"), &[], out);
    }
}

/// Requirement of a selector. `numeric` are the operators that compare numbers.
fn requirement(expression: &Value, path: &str, numeric: &[&str], out: &mut Vec<Cause>) {
    let operator = member_text(expression, "operator");
    let values = list(expression, "values");
    match operator {
        "In" | "NotIn" => {
            if values.is_empty() {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                out.push(Cause::required(format!("{path}.values"), detail));
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                out.push(Cause::forbidden(format!("{path}.values"), detail));
            }
        }
        other if numeric.contains(&other) => {
            if values.len() != 1 {
                let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
                out.push(Cause::required(format!("{path}.values"), detail));
            }
        }
        other => out.push(Cause::invalid(format!("{path}.operator"), &other.into(), OPERATOR)),
    }
    let key = member_text(expression, "key");
    for error in meta::qualified_name_errors(key) {
        out.push(Cause::invalid(format!("{path}.key"), &key.into(), &error));
    }
    if matches!(operator, "In" | "NotIn") || numeric.is_empty() {
        for (i, value) in values.iter().enumerate() {
            if let Some(error) = value.as_str().and_then(meta::label_value_error) {
                out.push(Cause::invalid(format!("{path}.values[{i}]"), value, &error));
            }
        }
    }
}

/// A term of a node selector.
pub(super) fn node_selector_term(term: &Value, path: &str, out: &mut Vec<Cause>) {
    for (i, expression) in list(term, "matchExpressions").iter().enumerate() {
        requirement(expression, &format!("{path}.matchExpressions[{i}]"), &["Gt", "Lt"], out);
    }
    for (i, field) in list(term, "matchFields").iter().enumerate() {
        let path = format!("{path}.matchFields[{i}]");
        let (key, operator) = (member_text(field, "key"), member_text(field, "operator"));
        if !matches!(operator, "In" | "NotIn") {
            out.push(Cause::invalid(format!("{path}.operator"), &operator.into(), OPERATOR));
        } else if list(field, "values").len() != 1 {
            let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
            out.push(Cause::required(format!("{path}.values"), detail));
        }
        if key != "metadata.name" {
            out.push(Cause::invalid(format!("{path}.key"), &key.into(), "not a valid field selector key"));
        }
    }
}

/// A topology selector of a storage class.
pub(super) fn topology_term(term: &Value, path: &str, out: &mut Vec<Cause>) {
    let mut keys: Vec<&str> = Vec::new();
    for (i, expression) in list(term, "matchLabelExpressions").iter().enumerate() {
        let path = format!("{path}.matchLabelExpressions[{i}]");
        let key = member_text(expression, "key");
        let values = list(expression, "values");
        if values.is_empty() {
            out.push(Cause::required(format!("{path}.values"), ""));
        }
        for (j, value) in values.iter().enumerate() {
            if values.iter().take(j).any(|v| v == value) {
                out.push(Cause::duplicate(format!("{path}.values[{j}]"), value));
            }
        }
        for error in meta::qualified_name_errors(key) {
            out.push(Cause::invalid(format!("{path}.key"), &key.into(), &error));
        }
        if keys.contains(&key) {
            out.push(Cause::duplicate(format!("{path}.key"), &key.into()));
        }
        keys.push(key);
    }
}
