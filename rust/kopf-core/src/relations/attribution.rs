//! The attribution of triggers to the own writes of one primary's reconciliations: which are ignored, delayed, or kept until
//! the writes have ended (1.7).

use std::collections::BTreeMap;

use super::hot_loop::{HotLoop, TriggerOrigin};
use super::own_writes::{Cause, EventOrigin, OwnWrite, OwnWrites};
use crate::object::Object;
use crate::schedule::Delays;
use crate::time::Timestamp;

/// The most changed objects and fields that a warning contains.
const MAX_CHANGES: usize = 10;

/// The memory of one (reconciler, primary) that writes. `S` identifies objects.
#[derive(Clone, Debug)]
pub struct Attribution<S> {
    writes: OwnWrites<S>,
    hot_loop: HotLoop,
    /// The writes that have not ended.
    open: usize,
    /// The triggers of the next reconciliation.
    triggers: Triggers<S>,
    /// The fields that own writes and other clients change, with the other clients, by the object as in log lines.
    changes: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

/// The triggers since the last start.
#[derive(Clone, Debug)]
struct Triggers<S> {
    has_own: bool,
    has_other: bool,
    /// Events of objects with their versions, for which no own write was known yet.
    unknown: Vec<(S, Box<str>)>,
}

/// An event that is a trigger.
#[derive(Clone, Copy, Debug)]
pub struct TriggerEvent<'e, S> {
    /// The object.
    pub object: &'e S,
    /// Its state.
    pub state: &'e Object,
    /// Where the event comes from.
    pub origin: EventOrigin<'e>,
    /// Whether events of own writes are triggers.
    pub counts_own_writes: bool,
    /// The object as in log lines.
    pub name: &'e str,
}

/// What to do with a trigger.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TriggerDecision {
    /// It is a trigger.
    Trigger,
    /// It is a trigger of a hot loop, which waits for this number of seconds.
    Delay(f64),
    /// Decide again when a write has ended.
    Keep,
    /// It is ignored.
    Ignore,
}

impl<S> Default for Triggers<S> {
    fn default() -> Self {
        Self { has_own: false, has_other: false, unknown: vec![] }
    }
}

impl<S> Default for Attribution<S> {
    fn default() -> Self {
        Self {
            writes: OwnWrites::default(),
            hot_loop: HotLoop::default(),
            open: 0,
            triggers: Triggers::default(),
            changes: BTreeMap::new(),
        }
    }
}

impl<S: PartialEq + Clone> Attribution<S> {
    /// Records the start of a reconciliation.
    pub fn start(&mut self, now: Timestamp) {
        let triggers = std::mem::take(&mut self.triggers);
        let are_own = triggers.unknown.iter().all(|(object, _)| self.writes.has_written(object));
        let is_own = (triggers.has_own || !triggers.unknown.is_empty()) && !triggers.has_other && are_own;
        if !is_own {
            self.changes.clear();
        }
        self.hot_loop.start(if is_own { TriggerOrigin::OwnWrites } else { TriggerOrigin::Other }, now);
        self.writes.start();
    }

    /// Records the end of a reconciliation. Returns what a hot loop of `limit` reconciliations changes, if one is detected now.
    pub fn finish(&mut self, limit: usize) -> Option<Vec<String>> {
        let has_changed = self.writes.has_changed();
        self.hot_loop.finish(has_changed, limit).then(|| self.changes.iter().map(described).collect())
    }

    /// Whether nothing is remembered.
    pub fn is_over(&self) -> bool {
        self.open == 0 && self.writes.is_empty()
    }

    /// Whether the fields of writes are to be recorded: own writes have triggered the reconciliation.
    pub fn needs_fields(&self) -> bool {
        self.hot_loop.is_suspected()
    }

    /// Records the start of a write.
    pub fn open_write(&mut self) {
        self.open += 1;
    }

    /// Records the end of a write; with none, nothing is known about it.
    pub fn end_write(&mut self, written: Option<(S, OwnWrite)>) {
        self.open = self.open.saturating_sub(1);
        let Some((object, write)) = written else { return };
        // The version stays the same if there is nothing to change.
        let known = write.known.as_deref().or_else(|| self.writes.latest(&object));
        if known != Some(&*write.version) {
            self.writes.record(object, write);
        }
    }

    /// Records a trigger that is no event of an object.
    pub fn on_other_trigger(&mut self) {
        self.triggers.has_other = true;
    }

    /// Decides about an event that is a trigger. `chance` is a random number from 0 to 1.
    pub fn on_event(&mut self, event: &TriggerEvent<'_, S>, delays: &Delays, chance: f64) -> TriggerDecision {
        if self.open > 0 && (!event.counts_own_writes || self.hot_loop.is_detected()) {
            return TriggerDecision::Keep;
        }
        if !event.counts_own_writes && self.writes.explains(event.object, event.origin) {
            return TriggerDecision::Ignore;
        }
        let version = event.origin.version;
        let cause = self.writes.cause(event.object, version, event.state);
        // The response to an open write is compared with the version at its start.
        if self.open == 0 {
            self.writes.observe(event.object, version);
        }
        match cause {
            Cause::Other if self.open > 0 => {
                self.triggers.unknown.push((event.object.clone(), version.into()));
                return TriggerDecision::Trigger;
            }
            Cause::Other => {
                self.triggers.has_other = true;
                return TriggerDecision::Trigger;
            }
            Cause::OwnWrite => {
                let fields = self.writes.changed_fields(event.object, version);
                let fields = fields.iter().map(|path| (path.to_string(), vec![])).collect();
                self.note_changes(event.name, fields);
            }
            Cause::ChangedBack(fields) => {
                let fields =
                    fields.into_iter().map(|(path, managers)| (path.to_string(), managers)).collect();
                self.note_changes(event.name, fields);
            }
        }
        self.triggers.has_own = true;
        self.hot_loop.delay(delays, chance).map_or(TriggerDecision::Trigger, TriggerDecision::Delay)
    }

    /// Records the changed fields of an object, with the other managers that have changed them back.
    fn note_changes(&mut self, name: &str, fields: Vec<(String, Vec<String>)>) {
        if self.changes.len() >= MAX_CHANGES && !self.changes.contains_key(name) {
            return;
        }
        let mut known: usize = self.changes.values().map(BTreeMap::len).sum();
        let object = self.changes.entry(name.to_owned()).or_default();
        for (path, managers) in fields {
            if let Some(others) = object.get_mut(&path) {
                others.extend(managers);
                others.sort();
                others.dedup();
            } else if known < MAX_CHANGES {
                object.insert(path, managers);
                known += 1;
            }
        }
    }
}

/// The changes of an object, as in the warning.
fn described((name, fields): (&String, &BTreeMap<String, Vec<String>>)) -> String {
    let fields: Vec<_> = fields
        .iter()
        .map(|(path, managers)| {
            let by = if managers.is_empty() {
                String::new()
            } else {
                format!(" changed back by {}", managers.join(", "))
            };
            path.clone() + &by
        })
        .collect();
    if fields.is_empty() { name.clone() } else { format!("{name} ({})", fields.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relations::WrittenFields;
    use serde_json::{Value, json};

    fn state(value: u32) -> Object {
        let managed = json!([{"manager": "other", "fieldsV1": {"f:spec": {"f:a": {}}}}]);
        Object::decode(&json!({"metadata": {"managedFields": managed}, "spec": {"a": value}}).to_string())
            .unwrap()
    }

    fn event<'e>(
        state: &'e Object,
        version: &'e str,
        counts_own_writes: bool,
    ) -> TriggerEvent<'e, &'static str> {
        let origin = EventOrigin { is_watched: true, version, previous: None };
        TriggerEvent { object: &"x", state, origin, counts_own_writes, name: "things/x in default" }
    }

    fn written(version: &str, fields: Option<&Value>) -> (&'static str, OwnWrite) {
        let fields = fields.map(|request| WrittenFields::of(request, &state(1), "kopf"));
        ("x", OwnWrite { known: None, version: version.into(), is_last: true, fields })
    }

    fn decide(
        own: &mut Attribution<&'static str>,
        event: &TriggerEvent<'_, &'static str>,
    ) -> TriggerDecision {
        own.on_event(event, &Delays::default(), 0.0)
    }

    fn at(seconds: u32) -> Timestamp {
        Timestamp::from_micros(0).plus(f64::from(seconds))
    }

    /// One reconciliation, which writes; then another client changes the field back.
    fn fight(own: &mut Attribution<&'static str>, number: u32) -> (Option<Vec<String>>, TriggerDecision) {
        own.start(at(number));
        own.open_write();
        let request = json!({"spec": {"a": 1}});
        let fields = own.needs_fields().then_some(&request);
        own.end_write(Some(written(&format!("{}", number * 2), fields)));
        let found = own.finish(10);
        let (state, version) = (state(7), format!("{}", number * 2 + 1));
        (found, decide(own, &event(&state, &version, true)))
    }

    #[test]
    fn s1_14_22_fields_that_are_changed_back_are_a_hot_loop() {
        let mut own = Attribution::default();
        let all: Vec<_> = (0..14).map(|number| fight(&mut own, number)).collect();
        let found: Vec<_> = all.iter().filter_map(|(found, _)| found.clone()).collect();
        assert_eq!(found, [["things/x in default (spec.a changed back by other)"]]);
        assert_eq!(
            all.iter().position(|(found, _)| found.is_some()),
            Some(10),
            "after ten that are triggered by own writes"
        );
        let delays: Vec<_> = all.iter().map(|(_, decision)| *decision).skip(9).collect();
        let delayed = [1.0, 2.0, 4.0, 8.0].map(TriggerDecision::Delay);
        assert_eq!(delays, [[TriggerDecision::Trigger].as_slice(), &delayed].concat());
        own.on_other_trigger();
        assert_eq!(fight(&mut own, 20).1, TriggerDecision::Trigger, "another trigger ends it");
    }

    #[test]
    fn s1_14_22_the_warning_names_the_fields_that_differ_between_writes() {
        let mut own = Attribution::default();
        let mut found = None;
        for number in 0..11 {
            own.start(at(number));
            own.open_write();
            let state = state(number);
            let request = json!({"spec": {"a": number}, "metadata": {"labels": {"app": "x"}}});
            let version = number.to_string();
            let fields = own.needs_fields().then(|| WrittenFields::of(&request, &state, "kopf"));
            let write = OwnWrite { known: None, version: version.clone().into(), is_last: true, fields };
            own.end_write(Some(("x", write)));
            found = own.finish(10).or(found);
            decide(&mut own, &event(&state, &version, true));
        }
        assert_eq!(found, Some(vec!["things/x in default (spec.a)".to_owned()]));
    }

    #[test]
    fn reactions_of_other_controllers_are_no_hot_loop() {
        let mut own = Attribution::default();
        for number in 0..30 {
            own.start(at(number));
            own.open_write();
            let request = json!({"spec": {"a": 1}});
            let fields = own.needs_fields().then_some(&request);
            own.end_write(Some(written(&format!("{}", number * 2), fields)));
            assert_eq!(own.finish(10), None);
            // The written field stays; such as a new status.
            let (state, version) = (state(1), format!("{}", number * 2 + 1));
            assert_eq!(decide(&mut own, &event(&state, &version, true)), TriggerDecision::Trigger);
        }
    }

    #[test]
    fn s1_14_23_events_of_own_writes_are_ignored_on_request() {
        let mut own = Attribution::default();
        let state = state(1);
        own.start(at(0));
        own.open_write();
        assert_eq!(
            decide(&mut own, &event(&state, "5", false)),
            TriggerDecision::Keep,
            "before the response"
        );
        own.end_write(Some(written("5", None)));
        assert_eq!(decide(&mut own, &event(&state, "5", false)), TriggerDecision::Ignore);
        assert_eq!(decide(&mut own, &event(&state, "5", true)), TriggerDecision::Trigger);
        assert_eq!(decide(&mut own, &event(&state, "6", false)), TriggerDecision::Trigger);
        assert!(!own.is_over());
        own.start(at(1));
        own.start(at(2));
        assert!(own.is_over());
    }

    #[test]
    fn calls_that_change_nothing_do_not_count() {
        let mut own = Attribution::default();
        let request = json!({"spec": {"a": 1}});
        let mut found = vec![];
        for number in 0..12 {
            let [version, reverted] = [number * 2, number * 2 + 1].map(|version| version.to_string());
            for _ in 0..2 {
                own.start(at(number));
                own.open_write();
                let fields = own.needs_fields().then_some(&request);
                own.end_write(Some(written(&version, fields)));
                found.push(own.finish(10).is_some());
                // The event of the first write causes the second call, which finds nothing to change.
                decide(&mut own, &event(&state(1), &version, true));
            }
            decide(&mut own, &event(&state(7), &reverted, true));
        }
        assert_eq!(found.iter().position(|found| *found), Some(20), "the tenth write after the first one");
    }

    #[test]
    fn events_before_the_response_count_as_own_if_the_object_was_written() {
        let mut own = Attribution::default();
        for number in 0..11 {
            own.start(at(number));
            own.open_write();
            let (state, version) = (state(1), format!("{number}"));
            let decision = decide(&mut own, &event(&state, &version, true));
            assert_eq!(decision, TriggerDecision::Trigger);
            own.end_write(Some(written(&version, None)));
            assert_eq!(own.finish(10).is_some(), number == 10);
        }
    }
}
