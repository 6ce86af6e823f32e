//! Peering: operators decide which of them work and which pause, by records in the status of a shared peering object.
//!
//! This module has the records, the decision, the log messages, and the interval of keep-alives.

use std::fmt;

use serde_json::json;

use crate::json::value::{Map, Value, python_repr};
use crate::log_level::Level;
use crate::time::Timestamp;

/// The default lifetime of a record, in seconds.
const DEFAULT_LIFETIME: i64 = 60;
/// A keep-alive is sent at least this many seconds before the previous record expires.
const MARGIN: i64 = 5;
/// The number of different intervals: up to this many seconds, exclusive, are added to the margin at random.
const JITTER: u64 = 6;

/// The record of an operator in the peering object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The identity of the operator.
    pub id: String,
    /// The priority: operators with a lower one pause.
    pub priority: i64,
    /// Seconds for which the record is valid.
    pub lifetime: i64,
    /// The time of the last keep-alive.
    pub lastseen: Timestamp,
}

impl Peer {
    /// Parses one record. Missing fields have defaults; unknown fields are ignored.
    fn read(id: &str, record: &Value, now: Timestamp) -> Option<Self> {
        let record = record.as_object()?;
        let number = |name: &str| {
            let value = record.get(name)?;
            value.as_i64().or_else(|| value.as_str()?.trim().parse().ok())
        };
        let lastseen = record.get("lastseen").and_then(Value::as_str).and_then(Timestamp::parse);
        Some(Self {
            id: id.to_owned(),
            priority: number("priority").unwrap_or(0),
            lifetime: number("lifetime").unwrap_or(DEFAULT_LIFETIME),
            lastseen: lastseen.unwrap_or(now),
        })
    }

    /// The time when the record expires.
    #[expect(clippy::cast_precision_loss, reason = "lifetimes are far from where it would matter")]
    pub fn deadline(&self) -> Timestamp {
        self.lastseen.plus(self.lifetime as f64)
    }

    /// Whether the record has expired.
    pub fn is_dead(&self, now: Timestamp) -> bool {
        self.deadline() <= now
    }

    /// The record to write; `null` removes it, if the lifetime is zero or less.
    pub fn record(&self) -> Value {
        if self.lifetime <= 0 {
            return Value::Null;
        }
        let lastseen = self.lastseen.to_string();
        json!({"priority": self.priority, "lifetime": self.lifetime, "lastseen": lastseen})
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, priority, lifetime, lastseen } = self;
        write!(f, "<Peer {id}: priority={priority}, lifetime={lifetime}, lastseen='{lastseen}'>")
    }
}

/// The merge patch of a peering object that sets these records, and removes those that are `null`.
pub fn patch(records: impl IntoIterator<Item = (String, Value)>) -> Value {
    json!({"status": records.into_iter().collect::<Map<String, Value>>()})
}

/// The identity and priority of this operator among its peers.
#[derive(Clone, Debug)]
pub struct LocalPeer {
    /// The identity of this operator.
    pub id: String,
    /// The priority of this operator.
    pub priority: i64,
    /// Whether the operator handles only a shard of the objects. Then peers with an equal priority are no conflict.
    pub sharded: bool,
}

/// The reason why an operator must pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// It need not pause.
    None,
    /// There are peers with a higher priority.
    Stronger(Vec<Peer>),
    /// There are peers with the same priority: it is undefined which one works, so all of them pause.
    Equal(Vec<Peer>),
}

const EQUAL_PRIORITIES_HINT: &str =
    "None of these operators handles objects. Give them different priorities with --priority.";

/// The evaluation of the records of a peering object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// Whether to pause, and for which peers.
    pub conflict: Conflict,
    /// All other peers whose records have not expired.
    pub others: Vec<Peer>,
    /// The identities of peers whose expired records are to be removed.
    pub dead: Vec<String>,
    /// The time to evaluate again without a watch event: the first record of a conflicting peer expires then.
    pub until: Option<Timestamp>,
}

impl Evaluation {
    /// Whether the operator must pause.
    pub fn pauses(&self) -> bool {
        self.conflict != Conflict::None
    }

    /// The log messages. `paused` is whether this peering already pauses the operator; `for_peers` is whether it does so
    /// for peers, and not because the peering object was not received yet.
    pub fn texts(&self, paused: bool, for_peers: bool) -> Vec<(Level, String)> {
        let mut texts = vec![];
        match &self.conflict {
            Conflict::Stronger(peers) if !for_peers => {
                texts.push((Level::Info, format!("Pausing operations in favour of {}.", listed(peers))));
            }
            Conflict::Equal(peers) => {
                let conflicting = listed(peers);
                let text = format!("Possibly conflicting operators with the same priority: {conflicting}.");
                texts.push((Level::Warning, text));
                if !for_peers {
                    let text = format!("Pausing all operators, including self: {}", listed(&self.others));
                    texts.push((Level::Warning, text));
                    texts.push((Level::Warning, EQUAL_PRIORITIES_HINT.to_owned()));
                }
            }
            Conflict::None if paused => texts.push((
                Level::Info,
                "Resuming operations after the pause. Conflicting operators with the same priority are gone."
                    .to_owned(),
            )),
            Conflict::Stronger(_) | Conflict::None => {}
        }
        texts
    }
}

fn listed(peers: &[Peer]) -> String {
    let texts: Vec<_> = peers.iter().map(ToString::to_string).collect();
    format!("[{}]", texts.join(", "))
}

/// Evaluates the status of a peering object: each of its keys with a mapping is a peer.
pub fn evaluate(status: &Value, observer: &LocalPeer, now: Timestamp) -> Evaluation {
    let records = status.as_object().into_iter().flatten();
    let peers = records.filter_map(|(id, record)| Peer::read(id, record, now));
    // Our own record never expires here: only we renew it, even if late.
    let (dead, others): (Vec<_>, Vec<_>) =
        peers.filter(|peer| peer.id != observer.id).partition(|peer| peer.is_dead(now));
    let stronger: Vec<_> = others.iter().filter(|peer| peer.priority > observer.priority).cloned().collect();
    let equal: Vec<_> = others
        .iter()
        .filter(|peer| peer.priority == observer.priority && !observer.sharded)
        .cloned()
        .collect();
    let until = stronger.iter().chain(&equal).map(Peer::deadline).min();
    let conflict = match (stronger, equal) {
        (stronger, _) if !stronger.is_empty() => Conflict::Stronger(stronger),
        (_, equal) if !equal.is_empty() => Conflict::Equal(equal),
        _ => Conflict::None,
    };
    Evaluation { conflict, others, dead: dead.into_iter().map(|peer| peer.id).collect(), until }
}

/// The operators whose records in the status of a peering object have not expired.
pub fn live(status: &Value, now: Timestamp) -> Vec<Peer> {
    let records = status.as_object().into_iter().flatten();
    records.filter_map(|(id, record)| Peer::read(id, record, now)).filter(|peer| !peer.is_dead(now)).collect()
}

/// Seconds until the next keep-alive: some seconds before the record expires, with jitter.
pub fn keep_alive_interval(lifetime: i64, chance: u64) -> i64 {
    let jitter = i64::try_from(chance % JITTER).unwrap_or_default();
    lifetime.saturating_sub(MARGIN + jitter).max(1).min(lifetime).max(1)
}

/// The log message for a keep-alive.
pub fn keep_alive_text(name: &str, namespace: Option<&str>, found: bool) -> String {
    let name = python_repr(&Value::String(name.to_owned()));
    let place = match namespace {
        Some(namespace) => format!("in {}", python_repr(&Value::String(namespace.to_owned()))),
        None => "cluster-wide".to_owned(),
    };
    format!("Keep-alive in {name} {place}: {}.", if found { "ok" } else { "not found" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    fn now() -> Timestamp {
        at("2026-01-01T00:01:00Z")
    }

    fn observer(priority: i64, sharded: bool) -> LocalPeer {
        LocalPeer { id: "me".to_owned(), priority, sharded }
    }

    fn ids(peers: &[Peer]) -> Vec<&str> {
        peers.iter().map(|peer| peer.id.as_str()).collect()
    }

    // contract: api 8.2
    #[test]
    fn records_have_defaults_and_may_have_unknown_fields() {
        let status = json!({
            "full": {"priority": 5, "lifetime": 10, "lastseen": "2026-01-01T00:00:55Z", "namespace": "old field"},
            "bare": {},
            "odd": {"priority": "7", "lifetime": null, "lastseen": "yesterday"},
            "conditions": [], "phase": "text", "none": null,
        });
        let evaluation = evaluate(&status, &observer(0, false), now());
        let fields: Vec<_> =
            evaluation.others.iter().map(|peer| (peer.id.as_str(), peer.priority, peer.lifetime)).collect();
        assert_eq!(fields, [("full", 5, 10), ("bare", 0, 60), ("odd", 7, 60)]);
        assert_eq!(evaluation.others[1].lastseen, now());
        assert_eq!(
            evaluation.others[0].to_string(),
            "<Peer full: priority=5, lifetime=10, lastseen='2026-01-01T00:00:55.000000+00:00'>"
        );
        assert_eq!(evaluate(&Value::Null, &observer(0, false), now()).others, []);
    }

    // contract: api 8.3
    #[test]
    fn operators_pause_for_peers_of_higher_or_equal_priority() {
        let peer =
            |priority| json!({"priority": priority, "lifetime": 60, "lastseen": "2026-01-01T00:00:30Z"});
        let dead = json!({"priority": 9, "lifetime": 60, "lastseen": "2026-01-01T00:00:00Z"});
        // The status, our priority, whether we are sharded; the expected conflict and its peers.
        let table = [
            (json!({}), 0, false, "no", vec![]),
            (json!({"me": peer(99)}), 0, false, "no", vec![]),
            (json!({"a": peer(1)}), 2, false, "no", vec![]),
            (json!({"a": peer(3), "b": peer(2)}), 2, false, "stronger", vec!["a"]),
            (json!({"a": peer(2), "b": peer(1)}), 2, false, "equal", vec!["a"]),
            (json!({"a": peer(2)}), 2, true, "no", vec![]),
            (json!({"a": peer(3)}), 2, true, "stronger", vec!["a"]),
            (json!({"a": dead}), 2, false, "no", vec![]),
        ];
        for (status, priority, sharded, expected, whom) in table {
            let evaluation = evaluate(&status, &observer(priority, sharded), now());
            let (got, peers) = match &evaluation.conflict {
                Conflict::None => ("no", vec![]),
                Conflict::Stronger(peers) => ("stronger", ids(peers)),
                Conflict::Equal(peers) => ("equal", ids(peers)),
            };
            assert_eq!((got, peers), (expected, whom), "{status} {priority} {sharded}");
            assert_eq!(evaluation.pauses(), expected != "no");
            assert_eq!(evaluation.until.is_some(), expected != "no");
        }
    }

    #[test]
    fn records_expire_exactly_and_our_own_record_never_does() {
        let status = json!({
            "gone": {"lifetime": 60, "lastseen": "2026-01-01T00:00:00Z"},
            "active": {"lifetime": 60, "lastseen": "2026-01-01T00:00:00.000001Z"},
            "left": {"lifetime": 0, "lastseen": "2026-01-01T00:01:00Z"},
            "me": {"lifetime": 60, "lastseen": "2025-01-01T00:00:00Z"},
        });
        let evaluation = evaluate(&status, &observer(0, false), now());
        assert_eq!(evaluation.dead, ["gone", "left"]);
        assert_eq!(ids(&evaluation.others), ["active"]);
        // Without an observer, all records are those of others.
        assert_eq!(ids(&live(&status, now())), ["active"]);
    }

    #[test]
    fn the_next_evaluation_is_when_the_first_conflicting_record_expires() {
        let status = json!({
            "strong": {"priority": 9, "lifetime": 60, "lastseen": "2026-01-01T00:00:50Z"},
            "equal": {"priority": 0, "lifetime": 60, "lastseen": "2026-01-01T00:00:40Z"},
            "weak": {"priority": -1, "lifetime": 60, "lastseen": "2026-01-01T00:00:30Z"},
        });
        assert_eq!(evaluate(&status, &observer(0, false), now()).until, Some(at("2026-01-01T00:01:40Z")));
        assert_eq!(evaluate(&status, &observer(0, true), now()).until, Some(at("2026-01-01T00:01:50Z")));
    }

    #[test]
    fn changes_are_logged_once_and_equal_priorities_each_time() {
        let peer = |priority| json!({"priority": priority, "lastseen": "2026-01-01T00:01:00Z"});
        let logged = |status: Value, paused| -> Vec<String> {
            let evaluation = evaluate(&status, &observer(0, false), now());
            evaluation
                .texts(paused, paused)
                .into_iter()
                .map(|(level, text)| format!("{level:?} {text}"))
                .collect()
        };
        let shown = "<Peer a: priority=1, lifetime=60, lastseen='2026-01-01T00:01:00.000000+00:00'>";
        assert_eq!(
            logged(json!({"a": peer(1)}), false),
            [format!("Info Pausing operations in favour of [{shown}].")]
        );
        assert_eq!(logged(json!({"a": peer(1)}), true), Vec::<String>::new());
        let texts = logged(json!({"a": peer(0), "b": peer(-1)}), false);
        assert!(
            texts[0].starts_with("Warning Possibly conflicting operators with the same priority: [<Peer a:")
        );
        assert!(
            texts[1].starts_with("Warning Pausing all operators, including self: [<Peer a:"),
            "{texts:?}"
        );
        assert!(texts[1].contains("<Peer b:"));
        assert_eq!(texts[2..], [format!("Warning {EQUAL_PRIORITIES_HINT}")]);
        assert_eq!(logged(json!({"a": peer(0)}), true).len(), 1);
        assert!(logged(json!({}), true)[0].starts_with("Info Resuming operations after the pause."));
        assert_eq!(logged(json!({}), false), Vec::<String>::new());
        let first = evaluate(&json!({"a": peer(1)}), &observer(0, false), now()).texts(true, false);
        assert!(first[0].1.starts_with("Pausing operations in favour of"), "{first:?}");
    }

    // contract: api 8.2
    #[test]
    fn records_are_written_with_the_time_or_removed() {
        let mut peer = Peer { id: "me".to_owned(), priority: 666, lifetime: 60, lastseen: now() };
        assert_eq!(
            patch([(peer.id.clone(), peer.record())]),
            json!({"status": {"me": {
                "priority": 666, "lifetime": 60, "lastseen": "2026-01-01T00:01:00.000000+00:00"
            }}})
        );
        peer.lifetime = 0;
        assert_eq!(patch([(peer.id.clone(), peer.record())]), json!({"status": {"me": null}}));
    }

    #[test]
    fn keep_alives_are_sent_before_expiry_and_never_in_a_tight_loop() {
        let table =
            [(60, 0, 55), (60, 5, 50), (60, 6, 55), (8, 0, 3), (8, 5, 1), (1, 0, 1), (0, 3, 1), (-5, 3, 1)];
        for (lifetime, chance, expected) in table {
            assert_eq!(keep_alive_interval(lifetime, chance), expected, "{lifetime} {chance}");
        }
        for lifetime in 2..200 {
            for chance in 0..20 {
                let interval = keep_alive_interval(lifetime, chance);
                assert!((1..lifetime).contains(&interval), "{lifetime} {chance} {interval}");
            }
        }
    }

    #[test]
    fn keep_alive_messages_name_the_namespace() {
        assert_eq!(keep_alive_text("default", None, true), "Keep-alive in 'default' cluster-wide: ok.");
        assert_eq!(keep_alive_text("x", Some("ns"), false), "Keep-alive in 'x' in 'ns': not found.");
    }
}
