//! Peering: operators that agree who works and who pauses, by records in the status of a common object.
//!
//! Owns: the records, who must pause for whom, the texts about it, and how often a sign of life is given.
//! Must not know: what time it is, how records are written, what pausing means.

use std::fmt;

use serde_json::json;

use crate::json::value::{Map, Value, python_repr};
use crate::log_level::Level;
use crate::time::Timestamp;

/// Seconds that a record lives if it does not say so itself.
const DEFAULT_LIFETIME: i64 = 60;
/// A sign of life is given so many seconds before the last one expires: at least, and with how much of chance upon it.
const MARGIN: i64 = 5;
const SPREAD: u64 = 6;

/// An operator, as it has announced itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its identity.
    pub id: String,
    /// The highest one works.
    pub priority: i64,
    /// Seconds that its record is valid.
    pub lifetime: i64,
    /// When it gave the last sign of life.
    pub lastseen: Timestamp,
}

impl Peer {
    /// Reads one record. What it lacks has defaults; what it has beyond that is tolerated.
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

    /// When it is dead, unless it gives a sign of life before.
    #[expect(clippy::cast_precision_loss, reason = "lifetimes are far from where it would matter")]
    pub fn deadline(&self) -> Timestamp {
        self.lastseen.plus(self.lifetime as f64)
    }

    /// Whether its record is not valid any more.
    pub fn is_dead(&self, now: Timestamp) -> bool {
        self.deadline() <= now
    }

    /// What is written as its record; nothing if it is not to live.
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

/// The merge patch of a peering object which sets the records, and removes those that are null.
pub fn patch(records: impl IntoIterator<Item = (String, Value)>) -> Value {
    json!({"status": records.into_iter().collect::<Map<String, Value>>()})
}

/// The identity and priority of this operator among its peers.
#[derive(Clone, Debug)]
pub struct LocalPeer {
    /// Its own identity.
    pub id: String,
    /// Its own priority.
    pub priority: i64,
    /// Whether it serves only a part of the objects, so that its equals are no rivals.
    pub sharded: bool,
}

/// Why an operator must pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// It need not.
    None,
    /// There are others of a higher priority.
    Stronger(Vec<Peer>),
    /// There are others of the same priority: nobody can tell who is to work, so nobody does.
    Equal(Vec<Peer>),
}

/// The evaluation of the records of a peering object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// Whether to pause.
    pub conflict: Conflict,
    /// All the others that live.
    pub others: Vec<Peer>,
    /// Whose records are to be removed.
    pub dead: Vec<String>,
    /// When to look again if nothing comes: the first of those whom we pause for is dead then.
    pub until: Option<Timestamp>,
}

impl Evaluation {
    /// Whether the operator must pause.
    pub fn pauses(&self) -> bool {
        self.conflict != Conflict::None
    }

    /// What there is to be said, given whether the operator is paused by this peering already, and whether that was for
    /// its peers. Otherwise it was because nothing was known of them, and for whom it goes on is news.
    pub fn texts(&self, paused: bool, for_peers: bool) -> Vec<(Level, String)> {
        let mut texts = vec![];
        match &self.conflict {
            Conflict::Stronger(peers) if !for_peers => {
                texts.push((Level::Info, format!("Pausing operations in favour of {}.", listed(peers))));
            }
            Conflict::Equal(peers) => {
                let rivals = listed(peers);
                let text = format!("Possibly conflicting operators with the same priority: {rivals}.");
                texts.push((Level::Warning, text));
                if !for_peers {
                    let text = format!("Pausing all operators, including self: {}", listed(&self.others));
                    texts.push((Level::Warning, text));
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

/// Judges the status of a peering object: every key of it with a record is taken for a peer.
pub fn evaluate(status: &Value, observer: &LocalPeer, now: Timestamp) -> Evaluation {
    let records = status.as_object().into_iter().flatten();
    let peers = records.filter_map(|(id, record)| Peer::read(id, record, now));
    // Our own record is ours to renew, however late we are with that.
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

/// Seconds until the next sign of life: some seconds before the last one expires, not all operators at once.
pub fn keep_alive_interval(lifetime: i64, chance: u64) -> i64 {
    let spread = i64::try_from(chance % SPREAD).unwrap_or_default();
    lifetime.saturating_sub(MARGIN + spread).max(1).min(lifetime).max(1)
}

/// What is said of a sign of life.
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

    #[test]
    fn records_have_defaults_and_may_have_more() {
        let status = json!({
            "full": {"priority": 5, "lifetime": 10, "lastseen": "2026-01-01T00:00:55Z", "namespace": "old field"},
            "bare": {},
            "odd": {"priority": "7", "lifetime": null, "lastseen": "yesterday"},
            "conditions": [], "phase": "text", "none": null,
        });
        let judgement = evaluate(&status, &observer(0, false), now());
        let told: Vec<_> =
            judgement.others.iter().map(|peer| (peer.id.as_str(), peer.priority, peer.lifetime)).collect();
        assert_eq!(told, [("full", 5, 10), ("bare", 0, 60), ("odd", 7, 60)]);
        assert_eq!(judgement.others[1].lastseen, now());
        assert_eq!(
            judgement.others[0].to_string(),
            "<Peer full: priority=5, lifetime=10, lastseen='2026-01-01T00:00:55.000000+00:00'>"
        );
        assert_eq!(evaluate(&Value::Null, &observer(0, false), now()).others, []);
    }

    #[test]
    fn who_pauses_for_whom() {
        let peer =
            |priority| json!({"priority": priority, "lifetime": 60, "lastseen": "2026-01-01T00:00:30Z"});
        let dead = json!({"priority": 9, "lifetime": 60, "lastseen": "2026-01-01T00:00:00Z"});
        // The others, our priority, whether we are sharded; whether we pause, and for whom.
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
            let judgement = evaluate(&status, &observer(priority, sharded), now());
            let (got, peers) = match &judgement.conflict {
                Conflict::None => ("no", vec![]),
                Conflict::Stronger(peers) => ("stronger", ids(peers)),
                Conflict::Equal(peers) => ("equal", ids(peers)),
            };
            assert_eq!((got, peers), (expected, whom), "{status} {priority} {sharded}");
            assert_eq!(judgement.pauses(), expected != "no");
            assert_eq!(judgement.until.is_some(), expected != "no");
        }
    }

    #[test]
    fn the_dead_are_told_apart_to_the_moment_and_our_own_record_is_never_buried() {
        let status = json!({
            "gone": {"lifetime": 60, "lastseen": "2026-01-01T00:00:00Z"},
            "lives": {"lifetime": 60, "lastseen": "2026-01-01T00:00:00.000001Z"},
            "left": {"lifetime": 0, "lastseen": "2026-01-01T00:01:00Z"},
            "me": {"lifetime": 60, "lastseen": "2025-01-01T00:00:00Z"},
        });
        let judgement = evaluate(&status, &observer(0, false), now());
        assert_eq!(judgement.dead, ["gone", "left"]);
        assert_eq!(ids(&judgement.others), ["lives"]);
    }

    #[test]
    fn the_next_look_is_when_the_first_of_the_rivals_is_dead() {
        let status = json!({
            "strong": {"priority": 9, "lifetime": 60, "lastseen": "2026-01-01T00:00:50Z"},
            "equal": {"priority": 0, "lifetime": 60, "lastseen": "2026-01-01T00:00:40Z"},
            "weak": {"priority": -1, "lifetime": 60, "lastseen": "2026-01-01T00:00:30Z"},
        });
        assert_eq!(evaluate(&status, &observer(0, false), now()).until, Some(at("2026-01-01T00:01:40Z")));
        assert_eq!(evaluate(&status, &observer(0, true), now()).until, Some(at("2026-01-01T00:01:50Z")));
    }

    #[test]
    fn changes_are_announced_once_and_ambiguity_each_time() {
        let peer = |priority| json!({"priority": priority, "lastseen": "2026-01-01T00:01:00Z"});
        let said = |status: Value, paused| -> Vec<String> {
            let judgement = evaluate(&status, &observer(0, false), now());
            judgement
                .texts(paused, paused)
                .into_iter()
                .map(|(level, text)| format!("{level:?} {text}"))
                .collect()
        };
        let shown = "<Peer a: priority=1, lifetime=60, lastseen='2026-01-01T00:01:00.000000+00:00'>";
        assert_eq!(
            said(json!({"a": peer(1)}), false),
            [format!("Info Pausing operations in favour of [{shown}].")]
        );
        assert_eq!(said(json!({"a": peer(1)}), true), Vec::<String>::new());
        let texts = said(json!({"a": peer(0), "b": peer(-1)}), false);
        assert!(
            texts[0].starts_with("Warning Possibly conflicting operators with the same priority: [<Peer a:")
        );
        assert!(
            texts[1].starts_with("Warning Pausing all operators, including self: [<Peer a:"),
            "{texts:?}"
        );
        assert!(texts[1].contains("<Peer b:"));
        assert_eq!(said(json!({"a": peer(0)}), true).len(), 1);
        assert!(said(json!({}), true)[0].starts_with("Info Resuming operations after the pause."));
        assert_eq!(said(json!({}), false), Vec::<String>::new());
        let first = evaluate(&json!({"a": peer(1)}), &observer(0, false), now()).texts(true, false);
        assert!(first[0].1.starts_with("Pausing operations in favour of"), "{first:?}");
    }

    #[test]
    fn records_are_written_with_the_moment_or_removed() {
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
    fn signs_of_life_come_before_the_last_one_expires_and_never_in_a_tight_loop() {
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
    fn keep_alives_name_the_place() {
        assert_eq!(keep_alive_text("default", None, true), "Keep-alive in 'default' cluster-wide: ok.");
        assert_eq!(keep_alive_text("x", Some("ns"), false), "Keep-alive in 'x' in 'ns': not found.");
    }
}
