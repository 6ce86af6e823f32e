//! Kubernetes events about objects: their manifest, their namespace, and the log message of a failed post.

use std::borrow::Cow;

use serde_json::json;

use crate::json::value::{Map, Value, python_repr};
use crate::settings;
use crate::time::Timestamp;

/// The longest message that the API accepts, in bytes of UTF-8.
const LIMIT: usize = 1024;
/// The replacement of the cut part.
const INFIX: &str = "...";

/// A Kubernetes event to create.
#[derive(Clone, Debug, PartialEq)]
pub struct K8sEvent {
    /// The involved object: `apiVersion`, `kind`, `name`, `uid`, `namespace`, as far as they are known.
    pub reference: Map<String, Value>,
    /// The type, such as `Normal` or `Warning`.
    pub kind: String,
    /// The reason, in CamelCase.
    pub reason: String,
    /// The human-readable message.
    pub message: String,
    /// Seconds between attempts to post it.
    pub backoffs: Vec<f64>,
    /// The time of the event.
    pub at: Timestamp,
}

impl K8sEvent {
    fn text(&self, name: &str) -> Option<&str> {
        self.reference.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    /// The key of the involved object. Events with the same key are posted in order.
    pub fn key(&self) -> String {
        match self.text("uid") {
            Some(uid) => uid.to_owned(),
            None => ["apiVersion", "kind", "namespace", "name"]
                .map(|name| self.text(name).unwrap_or("-"))
                .join("//"),
        }
    }

    /// Whether to post the event. Events about events are not posted: they would cause more events.
    pub fn is_postable(&self) -> bool {
        (self.text("apiVersion"), self.text("kind")) != (Some("v1"), Some("Event"))
    }

    /// The namespace for the event: that of the object, or else that of the credentials, or else `default`.
    pub fn namespace<'a>(&'a self, of_credentials: Option<&'a str>) -> &'a str {
        self.text("namespace")
            .or_else(|| of_credentials.filter(|namespace| !namespace.is_empty()))
            .unwrap_or("default")
    }

    /// The manifest of the event.
    pub fn document(&self, namespace: &str, settings: &settings::Posting) -> Value {
        let mut involved: Map<String, Value> =
            self.reference.iter().filter(|(_, value)| !value.is_null()).map(owned).collect();
        involved.insert("namespace".to_owned(), namespace.into());
        // The API requires exactly six fractional digits.
        let at = self.at.to_string();
        json!({
            "metadata": {"namespace": namespace, "generateName": settings.event_name_prefix},
            "action": "Action?",
            "type": self.kind,
            "reason": self.reason,
            "message": truncate(&self.message),
            "reportingComponent": settings.reporting_component,
            "reportingInstance": settings.reporting_instance,
            "source": {"component": settings.reporting_component},
            "involvedObject": involved,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "eventTime": at,
        })
    }

    /// Truncates the message as in the manifest, so that the queued event is small.
    pub fn truncate_message(&mut self) {
        if let Cow::Owned(short) = truncate(&self.message) {
            self.message = short;
        }
    }

    /// The log message for a failed post; `why` is one or more sentences.
    pub fn failure(&self, why: &str) -> String {
        let quoted = |text: &str| python_repr(&Value::String(text.to_owned()));
        format!(
            "Failed to post an event. Ignoring and continuing. {why} Event: type={}, reason={}, message={}.",
            quoted(&self.kind),
            quoted(&self.reason),
            quoted(&truncate(&self.message)),
        )
    }
}

fn owned((key, value): (&String, &Value)) -> (String, Value) {
    (key.clone(), value.clone())
}

/// Truncates a long message in the middle, between characters.
pub fn truncate(message: &str) -> Cow<'_, str> {
    if message.len() <= LIMIT {
        return Cow::Borrowed(message);
    }
    let kept = LIMIT - INFIX.len();
    let (head, tail) = (kept.div_ceil(2), kept / 2);
    let start = &message[..message.floor_char_boundary(head)];
    let end = &message[message.ceil_char_boundary(message.len() - tail)..];
    Cow::Owned(format!("{start}{INFIX}{end}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(reference: Value) -> K8sEvent {
        let Value::Object(reference) = reference else { panic!("a mapping is needed") };
        let at = Timestamp::parse("2026-01-01T00:00:00Z").unwrap();
        let (kind, reason, message) = ("Normal".to_owned(), "Why".to_owned(), "text".to_owned());
        K8sEvent { reference, kind, reason, message, backoffs: vec![], at }
    }

    // contract: engine 13.3
    #[test]
    fn long_messages_are_truncated_in_the_middle() {
        for at_limit in ["a".repeat(1024), "é".repeat(512)] {
            assert_eq!(truncate(&at_limit), at_limit);
        }
        let long = format!("{}{}", "a".repeat(550), "é".repeat(550));
        let expected = format!("{}...{}", "a".repeat(511), "é".repeat(255));
        assert_eq!(truncate(&long), expected);
    }

    #[test]
    fn messages_are_limited_in_bytes() {
        for long in ["a".repeat(1025), "é".repeat(1024), "日".repeat(400), "😀".repeat(300)] {
            let short = truncate(&long);
            assert!((1018..=1024).contains(&short.len()), "{} bytes", short.len());
            let (start, end) = short.split_once("...").unwrap();
            assert!(long.starts_with(start) && long.ends_with(end), "{short}");
        }
    }

    #[test]
    fn namespaces() {
        let table = [
            (json!({"namespace": "ns"}), Some("cred"), "ns"),
            (json!({"namespace": null}), Some("cred"), "cred"),
            (json!({"namespace": ""}), Some("cred"), "cred"),
            (json!({}), Some(""), "default"),
            (json!({}), None, "default"),
        ];
        for (reference, of_credentials, expected) in table {
            assert_eq!(post(reference.clone()).namespace(of_credentials), expected, "{reference}");
        }
    }

    // contract: engine 13.3
    #[test]
    fn documents() {
        let post =
            post(json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "namespace": null}));
        let at = "2026-01-01T00:00:00.000000+00:00";
        let expected = json!({
            "metadata": {"namespace": "default", "generateName": "kopf-event-"},
            "action": "Action?", "type": "Normal", "reason": "Why", "message": "text",
            "reportingComponent": "kopf", "reportingInstance": "dev", "source": {"component": "kopf"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "namespace": "default"},
            "firstTimestamp": at, "lastTimestamp": at, "eventTime": at,
        });
        assert_eq!(post.document("default", &settings::Posting::default()), expected);
    }

    #[test]
    fn keys_are_uids_or_else_names() {
        assert_eq!(post(json!({"uid": "u", "name": "n"})).key(), "u");
        let named = json!({"apiVersion": "v1", "kind": "K", "name": "n", "uid": null});
        assert_eq!(post(named).key(), "v1//K//-//n");
    }

    #[test]
    fn events_about_events_are_not_posted() {
        assert!(!post(json!({"apiVersion": "v1", "kind": "Event"})).is_postable());
        assert!(post(json!({"apiVersion": "example.com/v1", "kind": "Event"})).is_postable());
        assert!(post(json!({})).is_postable());
    }

    // contract: engine 13.3
    #[test]
    fn failures_name_the_event() {
        assert_eq!(
            post(json!({})).failure("Code: 500."),
            "Failed to post an event. Ignoring and continuing. Code: 500. \
             Event: type='Normal', reason='Why', message='text'."
        );
    }
}
