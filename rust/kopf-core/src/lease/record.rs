//! The content of a Lease: reading and writing `coordination.k8s.io/v1`, with the semantics of client-go.

use serde_json::{Map, Value, json};

use crate::time::Timestamp;

/// The duration in a released record, in seconds, as client-go writes it.
const RELEASED_DURATION: i64 = 1;

/// The resource version of a Lease.
pub type Version = String;

/// The part of a Lease by which candidates decide. The times in it are only for people to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The identity of the holder (`holderIdentity`), if there is one.
    pub holder: Option<String>,
    /// Seconds for which the record is valid after it was first seen (`leaseDurationSeconds`). Positive.
    pub duration: i64,
    /// The number of changes of the holder (`leaseTransitions`): the number of the term.
    pub transitions: i64,
}

/// A Lease as read from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// `metadata.resourceVersion`.
    pub version: Version,
    /// The content.
    pub record: Record,
}

/// The Lease has a `spec.strategy`: its holder is selected by a coordinated election, in which Kopf does not take part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the Lease has spec.strategy {0:?}: coordinated leader election is not supported")]
pub struct UnsupportedStrategy(
    /// The strategy.
    pub String,
);

impl Record {
    /// The record of a released Lease.
    pub fn released(transitions: i64) -> Self {
        Self { holder: None, duration: RELEASED_DURATION, transitions }
    }

    /// The body of a POST or PUT with this record: `previous` is the Lease as read, if there is one. Its metadata and other
    /// fields stay.
    ///
    /// The acquisition time is kept if the previous record has the same holder and term.
    pub fn document(
        &self,
        previous: Option<&Value>,
        (namespace, name): (&str, &str),
        now: Timestamp,
    ) -> Value {
        let mut document = previous.filter(|previous| previous.is_object()).cloned().unwrap_or_else(|| {
            json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": namespace},
            })
        });
        let mut spec = document.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
        let now = Value::String(micro_time(now));
        let is_same_term = spec.get("holderIdentity").and_then(Value::as_str) == self.holder.as_deref()
            && integer(&spec, "leaseTransitions") == Some(self.transitions);
        if !(is_same_term && spec.get("acquireTime").is_some_and(Value::is_string)) {
            spec.insert("acquireTime".to_owned(), now.clone());
        }
        spec.insert("holderIdentity".to_owned(), json!(self.holder.as_deref().unwrap_or_default()));
        spec.insert("leaseDurationSeconds".to_owned(), json!(self.duration));
        spec.insert("renewTime".to_owned(), now);
        spec.insert("leaseTransitions".to_owned(), json!(self.transitions));
        document["spec"] = Value::Object(spec);
        document
    }
}

impl Lease {
    /// Parses a Lease. `default_duration` applies to records without a positive duration.
    ///
    /// # Errors
    /// The holder is selected by a coordinated election.
    pub fn parse(document: &Value, default_duration: i64) -> Result<Self, UnsupportedStrategy> {
        let empty = Map::new();
        let spec = document.get("spec").and_then(Value::as_object).unwrap_or(&empty);
        let text = |name: &str| spec.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        if let Some(strategy) = text("strategy") {
            return Err(UnsupportedStrategy(strategy.to_owned()));
        }
        let version = document.get("metadata").and_then(|metadata| metadata.get("resourceVersion"));
        let duration = integer(spec, "leaseDurationSeconds").filter(|duration| *duration > 0);
        Ok(Self {
            version: version.and_then(Value::as_str).unwrap_or_default().to_owned(),
            record: Record {
                holder: text("holderIdentity").map(str::to_owned),
                duration: duration.unwrap_or(default_duration),
                transitions: integer(spec, "leaseTransitions").unwrap_or(0),
            },
        })
    }
}

fn integer(spec: &Map<String, Value>, name: &str) -> Option<i64> {
    spec.get(name).and_then(Value::as_i64)
}

/// The format of Kubernetes' `MicroTime`.
fn micro_time(time: Timestamp) -> String {
    let text = time.to_string();
    format!("{}Z", text.strip_suffix("+00:00").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: (&str, &str) = ("ns", "operator");

    fn at(seconds: i64) -> Timestamp {
        Timestamp::parse("2026-01-01T00:00:00Z").unwrap().plus(f64::from(i32::try_from(seconds).unwrap()))
    }

    fn held(transitions: i64) -> Record {
        Record { holder: Some("me".to_owned()), duration: 15, transitions }
    }

    #[test]
    fn a_new_lease_has_all_fields_of_client_go() {
        let document = held(0).document(None, PLACE, at(1));
        assert_eq!(
            document,
            json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "operator", "namespace": "ns"},
                "spec": {
                    "holderIdentity": "me",
                    "leaseDurationSeconds": 15,
                    "acquireTime": "2026-01-01T00:00:01.000000Z",
                    "renewTime": "2026-01-01T00:00:01.000000Z",
                    "leaseTransitions": 0,
                },
            })
        );
    }

    #[test]
    fn a_renewal_keeps_the_acquisition_time_the_metadata_and_unknown_fields() {
        let mut first = held(3).document(None, PLACE, at(1));
        first["metadata"]["resourceVersion"] = json!("7");
        first["metadata"]["labels"] = json!({"a": "b"});
        first["spec"]["preferredHolder"] = json!("x");
        let second = held(3).document(Some(&first), PLACE, at(5));
        assert_eq!(second["metadata"], first["metadata"]);
        assert_eq!(second["spec"]["preferredHolder"], "x");
        assert_eq!(second["spec"]["acquireTime"], first["spec"]["acquireTime"]);
        assert_eq!(second["spec"]["renewTime"], "2026-01-01T00:00:05.000000Z");
    }

    #[test]
    fn a_new_term_and_a_release_have_their_own_acquisition_time() {
        let first = held(3).document(None, PLACE, at(1));
        let next = held(4).document(Some(&first), PLACE, at(5));
        assert_eq!(next["spec"]["acquireTime"], "2026-01-01T00:00:05.000000Z");
        let released = Record::released(4).document(Some(&next), PLACE, at(9));
        assert_eq!(released["spec"]["holderIdentity"], "");
        assert_eq!(released["spec"]["leaseDurationSeconds"], 1);
        assert_eq!(released["spec"]["leaseTransitions"], 4);
        assert_eq!(released["spec"]["acquireTime"], "2026-01-01T00:00:09.000000Z");
    }

    #[test]
    fn a_written_record_is_parsed_back() {
        for record in [held(3), Record::released(9)] {
            let mut document = record.document(None, PLACE, at(0));
            document["metadata"]["resourceVersion"] = json!("7");
            assert_eq!(Lease::parse(&document, 15), Ok(Lease { version: "7".to_owned(), record }));
        }
    }

    #[test]
    fn missing_fields_have_defaults() {
        let expected = Record { holder: None, duration: 15, transitions: 0 };
        for spec in [json!({}), json!(null), json!({"holderIdentity": "", "leaseDurationSeconds": 0})] {
            let document = json!({"metadata": {"resourceVersion": "1"}, "spec": spec});
            assert_eq!(Lease::parse(&document, 15).unwrap().record, expected);
        }
    }

    #[test]
    fn coordinated_election_is_rejected() {
        let document = json!({"spec": {"strategy": "OldestEmulationVersion", "holderIdentity": "x"}});
        let error = Lease::parse(&document, 15).unwrap_err();
        assert!(error.to_string().contains("OldestEmulationVersion"), "{error}");
    }
}
