//! The content of the webhook configurations: the names, rules, selectors and URLs of the webhooks.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::json;

use crate::handler::{Handler, Kind, MetaFilter, Webhook};
use crate::json::value::{Map, Value};
use crate::resource::Resource;

/// The types of webhooks, each with a separate configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookType {
    /// The webhook allows or denies requests.
    Validating,
    /// The webhook can also change the objects of requests.
    Mutating,
}

impl WebhookType {
    /// Both types.
    pub const ALL: [Self; 2] = [Self::Validating, Self::Mutating];

    /// The type as in logs and in the declarations of handlers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Validating => "validating",
            Self::Mutating => "mutating",
        }
    }

    /// The kind of the configurations of this type.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Validating => "ValidatingWebhookConfiguration",
            Self::Mutating => "MutatingWebhookConfiguration",
        }
    }

    /// The plural name of the configurations of this type.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Validating => "validatingwebhookconfigurations",
            Self::Mutating => "mutatingwebhookconfigurations",
        }
    }
}

/// The settings that all webhooks of an operator share.
#[derive(Debug, Clone, Copy)]
pub struct WebhookDefaults<'a> {
    /// The name of the configuration: a suffix of the names of its webhooks.
    pub name: &'a str,
    /// The `clientConfig` to reach the operator: `url` or `service`, and `caBundle`.
    pub client: &'a Value,
    /// Whether only persistent webhooks are included, because the operator exits.
    pub persistent_only: bool,
}

/// The webhooks of one configuration, in the order of the handlers. `of_handler` returns the resources of a handler.
pub fn webhooks(
    handlers: &[Handler],
    of_handler: &dyn Fn(usize) -> Vec<Arc<Resource>>,
    webhook_type: WebhookType,
    defaults: WebhookDefaults<'_>,
) -> Vec<Value> {
    let described = handlers.iter().enumerate().filter_map(|(index, handler)| {
        let Kind::Webhook(webhook) = &handler.kind else { return None };
        let here = webhook.reason.as_deref() == Some(webhook_type.as_str());
        let stays = !defaults.persistent_only || webhook.persistent == Some(true);
        (here && stays).then(|| describe(handler, webhook, &of_handler(index), defaults))
    });
    described.collect()
}

fn describe(
    handler: &Handler,
    webhook: &Webhook,
    resources: &[Arc<Resource>],
    defaults: WebhookDefaults<'_>,
) -> Value {
    let rules: Vec<_> = resources.iter().map(|resource| rule(webhook, resource)).collect();
    json!({
        "name": format!("{}.{}", normalized(&handler.id), defaults.name),
        "sideEffects": if webhook.side_effects == Some(true) { "NoneOnDryRun" } else { "None" },
        "failurePolicy": if webhook.ignore_failures == Some(true) { "Ignore" } else { "Fail" },
        "matchPolicy": "Equivalent",
        "rules": rules,
        "objectSelector": selector(handler),
        "clientConfig": addressed(defaults.client, &handler.id),
        "timeoutSeconds": 30,
        "admissionReviewVersions": ["v1", "v1beta1"],
    })
}

fn rule(webhook: &Webhook, resource: &Resource) -> Value {
    let plural = &resource.plural;
    let name = webhook.subresource.as_ref().map_or_else(|| plural.clone(), |part| format!("{plural}/{part}"));
    let operations = webhook.operations.as_ref().filter(|operations| !operations.is_empty());
    json!({
        "apiGroups": [resource.group],
        "apiVersions": [resource.version],
        "resources": [name],
        "operations": operations.map_or_else(|| json!(["*"]), |operations| json!(operations)),
        "scope": "*",
    })
}

/// The object selector from the label filters. The API server cannot evaluate callable filters, the operator does.
fn selector(handler: &Handler) -> Value {
    let expressions: Vec<Value> = handler
        .labels
        .iter()
        .filter_map(|(key, filter)| match filter {
            MetaFilter::Present => Some(json!({"key": key, "operator": "Exists"})),
            MetaFilter::Absent => Some(json!({"key": key, "operator": "DoesNotExist"})),
            MetaFilter::Equal(value) => Some(json!({"key": key, "operator": "In", "values": [value]})),
            MetaFilter::Callable => None,
        })
        .collect();
    if expressions.is_empty() { Value::Null } else { json!({"matchExpressions": expressions}) }
}

/// The client configuration with the handler's id in the path, which identifies the handler of a review.
fn addressed(client: &Value, id: &str) -> Value {
    let mut client = client.clone();
    let id = quoted(id);
    if let Some(Value::String(url)) = client.get_mut("url") {
        *url = format!("{}/{id}", url.trim_end_matches('/'));
    }
    if let Some(Value::Object(service)) = client.get_mut("service") {
        let path = service.get("path").and_then(Value::as_str).unwrap_or_default();
        let path = format!("{path}/{id}");
        service.insert("path".to_owned(), Value::String(path));
    }
    client
}

/// The id as a valid part of a domain name.
fn normalized(id: &str) -> String {
    let mut name = String::with_capacity(id.len());
    for char in id.chars() {
        match char {
            '/' => name.push('.'),
            '_' => name.push('-'),
            '.' | '-' => name.push(char),
            _ if char.is_alphanumeric() => name.push(char),
            _ => {
                for byte in char.encode_utf8(&mut [0; 4]).bytes() {
                    let _infallible = write!(name, "{byte:02x}");
                }
            }
        }
    }
    name
}

/// The id, quoted as a part of a URL's path. Slashes are not quoted.
fn quoted(id: &str) -> String {
    let mut text = String::with_capacity(id.len());
    for byte in id.bytes() {
        if byte.is_ascii_alphanumeric() || b"_.-~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _infallible = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// The patch that replaces the webhooks of a configuration.
pub fn patch(webhooks: Vec<Value>) -> Map<String, Value> {
    Map::from_iter([("webhooks".to_owned(), Value::Array(webhooks))])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handlers(declared: Value) -> Vec<Handler> {
        serde_json::from_value(declared).unwrap()
    }

    fn resource() -> Arc<Resource> {
        Arc::new(
            serde_json::from_value(json!({
                "group": "kopf.dev", "version": "v1", "plural": "ks", "kind": "K", "singular": "k", "shortcuts": [],
                "categories": [], "subresources": [], "verbs": [], "namespaced": true, "preferred": true,
            }))
            .unwrap(),
        )
    }

    fn built(
        declared: Value,
        webhook_type: WebhookType,
        client: &Value,
        persistent_only: bool,
    ) -> Vec<Value> {
        let defaults = WebhookDefaults { name: "auto.kopf.dev", client, persistent_only };
        webhooks(&handlers(declared), &|_| vec![resource()], webhook_type, defaults)
    }

    // contract: api 9.3
    #[test]
    fn a_plain_handler_becomes_a_complete_webhook() {
        let client = json!({"url": "https://host/", "caBundle": "QQ=="});
        let built = built(
            json!([{"id": "fn", "kind": "webhook", "reason": "validating"}]),
            WebhookType::Validating,
            &client,
            false,
        );
        assert_eq!(
            built,
            [json!({
                "name": "fn.auto.kopf.dev", "sideEffects": "None", "failurePolicy": "Fail", "matchPolicy": "Equivalent",
                "rules": [{
                    "apiGroups": ["kopf.dev"], "apiVersions": ["v1"], "resources": ["ks"], "operations": ["*"], "scope": "*",
                }],
                "objectSelector": null,
                "clientConfig": {"url": "https://host/fn", "caBundle": "QQ=="},
                "timeoutSeconds": 30, "admissionReviewVersions": ["v1", "v1beta1"],
            })]
        );
    }

    #[test]
    fn options_of_a_handler_are_configured() {
        let built = built(
            json!([{
                "id": "fn", "kind": "webhook", "reason": "mutating", "operations": ["CREATE", "UPDATE"],
                "subresource": "status", "side_effects": true, "ignore_failures": true,
                "labels": [["a", {"present": true}], ["b", {"absent": true}], ["c", {"equal": "v"}], ["d", {"callable": true}]],
            }]),
            WebhookType::Mutating,
            &json!({"service": {"name": "s", "path": "/x/"}}),
            false,
        );
        let [built] = &built[..] else { panic!("{built:?}") };
        assert_eq!(
            (&built["sideEffects"], &built["failurePolicy"]),
            (&json!("NoneOnDryRun"), &json!("Ignore"))
        );
        assert_eq!(built["rules"][0]["resources"], json!(["ks/status"]));
        assert_eq!(built["rules"][0]["operations"], json!(["CREATE", "UPDATE"]));
        assert_eq!(built["clientConfig"]["service"], json!({"name": "s", "path": "/x//fn"}));
        assert_eq!(
            built["objectSelector"],
            json!({"matchExpressions": [
                {"key": "a", "operator": "Exists"}, {"key": "b", "operator": "DoesNotExist"},
                {"key": "c", "operator": "In", "values": ["v"]},
            ]})
        );
    }

    #[test]
    fn each_configuration_has_the_handlers_of_its_type_or_only_the_persistent_ones() {
        let declared = json!([
            {"id": "v", "kind": "webhook", "reason": "validating"},
            {"id": "m", "kind": "webhook", "reason": "mutating"},
            {"id": "p", "kind": "webhook", "reason": "validating", "persistent": true},
            {"id": "e", "kind": "watching"},
        ]);
        let names = |webhook_type, persistent_only| {
            let client = json!({"service": {}});
            let built = built(declared.clone(), webhook_type, &client, persistent_only);
            built.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(WebhookType::Validating, false), ["v.auto.kopf.dev", "p.auto.kopf.dev"]);
        assert_eq!(names(WebhookType::Mutating, false), ["m.auto.kopf.dev"]);
        assert_eq!(names(WebhookType::Validating, true), ["p.auto.kopf.dev"]);
        assert_eq!(names(WebhookType::Mutating, true), Vec::<String>::new());
    }

    #[test]
    fn ids_become_names_and_paths() {
        assert_eq!(normalized("Fn.<locals>.in_ner/spec.a"), "Fn.3clocals3e.in-ner.spec.a");
        assert_eq!(normalized("naïve €"), "naïve20e282ac");
        assert_eq!(quoted("a b/c<d>"), "a%20b/c%3Cd%3E");
    }
}
