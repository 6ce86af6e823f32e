//! Which requests a webhook, a policy or a binding matches: rules, selectors, and match policies.

use std::sync::Arc;

use serde_json::Value;

use super::attributes::{Attributes, Objects, Operation};
use crate::base::json::{member_text, strings};
use crate::registry::selectors::LabelSelector;
use crate::scheme::resources::Resource;
use crate::storage::object::Stored;

/// The items of a list; none if it is absent.
pub(super) fn list<'v>(holder: &'v Value, key: &str) -> &'v [Value] {
    holder.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The resource of the request, in the version that a rule names. `holder` has the selectors and the match policy; `rules`
/// are its rules. `None` if it does not match.
pub(super) fn matched_resource(
    request: &Attributes<'_>,
    holder: &Value,
    rules: &[Value],
    objects: &Objects<'_>,
) -> Option<Arc<Resource>> {
    let accepts_equivalents = member_text(holder, "matchPolicy") != "Exact";
    let by_rules = |rules: &[Value]| match_rules(request, rules, accepts_equivalents, request.name);
    if by_rules(list(holder, "excludeResourceRules")).is_some() {
        return None;
    }
    let matched = by_rules(rules)?;
    (matches_object(holder, objects) && matches_namespace(request, holder, objects)).then_some(matched)
}

/// Whether a binding without rules matches: its selectors only.
pub(super) fn matches_selectors(request: &Attributes<'_>, holder: &Value, objects: &Objects<'_>) -> bool {
    matches_object(holder, objects) && matches_namespace(request, holder, objects)
}

fn match_rules(
    request: &Attributes<'_>,
    rules: &[Value],
    accepts_equivalents: bool,
    name: &str,
) -> Option<Arc<Resource>> {
    let has_name = |rule: &Value| {
        let names = strings(rule.get("resourceNames"));
        names.is_empty() || names.iter().any(|known| known == name)
    };
    let matches = |resource: &Resource| {
        rules.iter().any(|rule| has_name(rule) && rule_matches(request, resource, rule))
    };
    if matches(request.resource) {
        return Some(request.resource.clone());
    }
    if !accepts_equivalents || rules.is_empty() {
        return None;
    }
    let registry = request.cluster.registry();
    registry.all().find(|other| other.store_key == request.resource.store_key && matches(other)).cloned()
}

fn matches_object(holder: &Value, objects: &Objects<'_>) -> bool {
    let selector = LabelSelector::from_json(&holder["objectSelector"]);
    let matches_labels = |v: &Value| {
        selector.matches(|key| v.pointer("/metadata/labels").and_then(|l| l.get(key)).and_then(Value::as_str))
    };
    selector.is_empty() || objects.new.is_some_and(matches_labels) || objects.old.is_some_and(matches_labels)
}

fn matches_namespace(request: &Attributes<'_>, holder: &Value, objects: &Objects<'_>) -> bool {
    let selector = LabelSelector::from_json(&holder["namespaceSelector"]);
    let is_namespace = request.resource.is("", "namespaces");
    if selector.is_empty() || !(request.resource.namespaced || is_namespace) {
        return true;
    }
    if is_namespace && request.subresource.is_none() && request.operation != Operation::Delete {
        // The stored namespace is not the latest one.
        return matches_object(
            &serde_json::json!({"objectSelector": holder["namespaceSelector"]}),
            &Objects { old: None, ..*objects },
        );
    }
    let namespace = request.cluster.store.get("namespaces", "", request.namespace());
    namespace.is_some_and(|ns| selector.matches(|key| Stored::label(&ns, key)))
}

fn rule_matches(request: &Attributes<'_>, resource: &Resource, rule: &Value) -> bool {
    let list = |key: &str| strings(rule.get(key));
    let has = |key: &str, value: &str| list(key).iter().any(|v| v == "*" || v == value);
    let subresource = request.subresource.unwrap_or_default();
    let matches_resource = list("resources").iter().any(|given| {
        let (plural, sub) = given.split_once('/').unwrap_or((given, ""));
        // All subresources include the resource itself.
        (plural == "*" || plural == resource.plural) && (sub == "*" || sub == subresource)
    });
    let scope = match rule.get("scope").and_then(Value::as_str) {
        Some("Namespaced") => resource.namespaced,
        Some("Cluster") => !resource.namespaced,
        _ => true,
    };
    has("operations", request.operation.name())
        && has("apiGroups", &resource.group)
        && has("apiVersions", &resource.version)
        && matches_resource
        && scope
}
