//! What is remembered of writes, and how the object looks with it.

use super::super::memory::{Accepted, ObjectMemory};
use super::*;
use crate::activation::log::LogMessage;
use crate::activation::{Command, CommandResult, Completion};
use crate::cause::EventType;
use crate::cycle::{Cycle, CycleEvent, CycleInput, Decision, Effect, EffectResult, OperatorConfig};
use crate::handler::lifecycle::Lifecycle;
use crate::handler::registry::Registry;
use crate::handling::attempt::CallResult;
use crate::settings::Settings;
use crate::time::Timestamp;
use std::collections::HashMap;

const LAST: &str = "kopf.zalando.org/last-handled-configuration";

/// An operator with two creation and two update handlers, called one by one; its memory, and the object on the server.
struct Scene {
    rules: Arc<OperatorConfig>,
    plan: Arc<ResourceHandlers>,
    memory: ObjectMemory,
    object: Value,
    calls: Vec<String>,
    notes: Vec<LogMessage>,
    consistent: bool,
    /// What handlers put into the patch, by their ids.
    patches: HashMap<&'static str, Value>,
    /// What handlers write with their own clients, likewise; and who does that.
    writes: HashMap<&'static str, (&'static str, Value)>,
    /// Whoever is called fails, and is to be called again after so many seconds.
    fails: Option<f64>,
    now: Timestamp,
}

impl Scene {
    fn new(compat: bool) -> Self {
        let handlers = [("c1", "create"), ("c02", "create"), ("u001", "update"), ("u0002", "update")];
        Self::of(compat, &handlers)
    }

    fn of(compat: bool, handlers: &[(&str, &str)]) -> Self {
        let handler = |id: &str, reason: &str| {
            let selector = json!({"group": "kopf.dev", "version": "v1", "plural": "kopfexamples"});
            let handler = json!({"id": id, "key": id.len(), "kind": "changing", "reason": reason, "selector": selector,
                                 "requires_finalizer": reason == "delete"});
            serde_json::from_value(handler).unwrap()
        };
        let handlers = handlers.iter().map(|(id, reason)| handler(id, reason)).collect();
        let registry = Arc::new(Registry { handlers });
        let resource = json!({
            "group": "kopf.dev", "version": "v1", "plural": "kopfexamples", "kind": "KopfExample",
            "singular": "kopfexample", "shortcuts": [], "categories": [], "subresources": [], "verbs": [],
            "namespaced": true, "preferred": true,
        });
        let resource: crate::resource::Resource = serde_json::from_value(resource).unwrap();
        let plan = Arc::new(registry.plan(&Arc::new(resource), &|_| true));
        let settings = Arc::new(Settings { compat, ..Settings::default() });
        let rules = Arc::new(OperatorConfig { registry, settings, lifecycle: Lifecycle::OneByOne });
        let object = json!({
            "apiVersion": "kopf.dev/v1", "kind": "KopfExample", "spec": {"x": 1},
            "metadata": {"name": "n", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
        });
        Self {
            rules,
            plan,
            memory: ObjectMemory::default(),
            object,
            calls: vec![],
            notes: vec![],
            consistent: true,
            patches: HashMap::new(),
            writes: HashMap::new(),
            fails: None,
            now: Timestamp::from_micros(0),
        }
    }

    /// The progress is in the status, which is written on its own.
    fn with_progress_in_the_status(mut self) -> Self {
        let storage =
            json!({"type": "Status", "field": ["status", "progress"], "touch_field": ["status", "dummy"]});
        let OperatorConfig { registry, settings, lifecycle } = &*self.rules;
        let mut settings = Settings::clone(settings);
        settings.persistence.progress_storage = serde_json::from_value(storage).unwrap();
        let mut resource = serde_json::to_value(&*self.plan.resource).unwrap();
        resource["subresources"] = json!(["status"]);
        let resource: crate::resource::Resource = serde_json::from_value(resource).unwrap();
        self.plan = Arc::new(registry.plan(&Arc::new(resource), &|_| true));
        let (registry, settings) = (Arc::clone(registry), Arc::new(settings));
        self.rules = Arc::new(OperatorConfig { registry, settings, lifecycle: *lifecycle });
        self
    }

    /// One cycle, in which all handlers succeed; its conclusion is written, or is not.
    fn cycle(&mut self, requeued: bool, written: bool) -> Decision {
        let object = Arc::new(Object::decode(&self.object.to_string()).unwrap());
        let now = self.now;
        let moment = CycleInput { now, entropy: 0, consistent: self.consistent };
        let observation = CycleEvent { event: EventType::Modified, object: Arc::clone(&object), requeued };
        let settings = Arc::clone(&self.rules.settings);
        let temporary = |delay| CallResult::Temporary { message: "boo".to_owned(), delay: Some(delay) };
        let raised = self.fails.map_or(CallResult::Nothing, temporary);
        self.memory.observe(&object, &settings, &self.plan);
        let (plan, rules) = (Arc::clone(&self.plan), Arc::clone(&self.rules));
        let (mut cycle, mut next) = Cycle::open(observation, &self.memory, plan, rules, moment);
        let object = Arc::clone(cycle.object());
        loop {
            next = match next {
                Effect::Run(script) => {
                    let (mut steps, mut patch) = (vec![], Patch::default());
                    for step in &script.steps {
                        let Command::Handle { attempt } = step else { panic!("{step:?}") };
                        let id = &self.rules.registry.handlers[attempt.handler].id;
                        self.calls.push(format!("{id} x={}", cycle.object().to_value()["spec"]["x"]));
                        steps.push(CommandResult::Attempted(attempt.evaluate(&raised, now).outcome));
                        if let Some(Value::Object(more)) = self.patches.get(&**id) {
                            patch.merge(more.clone());
                        }
                        if let Some((manager, Value::Object(more))) = self.writes.get(&**id) {
                            apply_merge(&mut self.object, more);
                            let fields = json!({"f:spec": {"f:own": {}}});
                            self.object["metadata"]["managedFields"] =
                                json!([{"manager": manager, "fieldsV1": fields}]);
                        }
                    }
                    let patch = (!patch.is_empty()).then_some(patch.0);
                    cycle.resume(
                        EffectResult::Completion(Completion { steps, patch, ..Completion::default() }),
                        now,
                    )
                }
                Effect::Done(conclusion) => {
                    self.notes.extend(cycle.drain_log());
                    self.memory.annotations_removed |= conclusion.annotations_removed;
                    let (patch, handling_status) =
                        (conclusion.patch.0.clone(), conclusion.handling_status.clone());
                    if written {
                        apply_merge(&mut self.object, &patch);
                        let latest = Object::decode(&self.object.to_string()).unwrap();
                        let accepted = Accepted { patch: &patch, latest: Some(&latest) };
                        self.memory.record_write(&object, accepted, handling_status, &settings, &self.plan);
                    } else {
                        self.memory.failed(&object, (patch, true), handling_status, &settings, &self.plan);
                    }
                    return *conclusion;
                }
                Effect::AwaitConsistency => cycle.resume(EffectResult::Consistent(false), now),
                other @ Effect::Spawn(_) => panic!("{other:?}"),
            };
        }
    }

    /// Cycles until nothing is written any more.
    fn settle(&mut self) {
        for _ in 0..20 {
            let conclusion = self.cycle(false, true);
            if conclusion.patch.is_empty() && conclusion.delay.is_none() {
                return;
            }
        }
        panic!("there is no end: {:?}", self.calls);
    }

    fn strip(&mut self) {
        self.object["metadata"].as_object_mut().unwrap().shift_remove("annotations");
    }

    /// An object that is handled, with nobody called since.
    fn handled() -> Self {
        let mut scene = Self::new(false);
        scene.settle();
        scene.calls.clear();
        scene
    }

    fn set(&mut self, x: u8) {
        self.object["spec"]["x"] = json!(x);
    }

    /// The operator dies, and another one takes its place.
    fn die(&mut self) {
        self.memory = ObjectMemory::default();
    }

    fn die_if(&mut self, dies: bool) {
        if dies {
            self.die();
        }
    }

    /// Settles; this was handled last then, and no progress is left.
    fn settle_with(&mut self, x: u8) {
        self.settle();
        assert_eq!(self.last()["spec"]["x"], json!(x));
        let object = Object::decode(&self.object.to_string()).unwrap();
        let persistence = &self.rules.settings.persistence;
        assert!(equal(&self.last(), &essence(&object, persistence, &self.plan.extra_fields)));
        assert_eq!(self.object["metadata"]["annotations"].as_object().unwrap().len(), 1);
    }

    fn last(&self) -> Value {
        let text = self.object["metadata"]["annotations"][LAST].as_str().unwrap_or("null");
        serde_json::from_str(text).unwrap()
    }

    fn warnings(&self) -> usize {
        self.notes.iter().filter(|note| matches!(note, LogMessage::Stripped(_))).count()
    }
}

#[test]
fn nobody_is_called_again_for_what_could_not_be_written() {
    let mut scene = Scene::new(false);
    scene.cycle(false, false);
    scene.cycle(false, false);
    scene.cycle(false, false);
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=1"]);
    assert_eq!(scene.memory.pending_state.as_ref().unwrap().refusals(), 3);
    scene.settle_with(1);
    assert_eq!(scene.calls.len(), 2);
    assert_eq!(scene.memory.pending_state, None);
}

#[test]
fn a_write_that_was_applied_after_all_is_recognised() {
    let mut scene = Scene::new(false);
    let conclusion = scene.cycle(false, false);
    apply_merge(&mut scene.object, &conclusion.patch.0);
    let again = scene.cycle(false, true);
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=1"]);
    assert!(!again.patch.is_empty());
    scene.settle();
    assert_eq!(scene.calls.len(), 2);
}

#[test]
fn a_last_write_that_was_applied_after_all_is_recognised_for_good() {
    let mut scene = Scene::new(false);
    scene.cycle(false, true);
    let conclusion = scene.cycle(false, false);
    apply_merge(&mut scene.object, &conclusion.patch.0);
    for _ in 0..3 {
        assert!(scene.cycle(false, true).patch.is_empty(), "{}", scene.object);
    }
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=1"]);
    assert_eq!((scene.memory.pending_state.as_ref(), scene.warnings()), (None, 0));
}

#[test]
fn what_is_removed_while_an_own_write_is_awaited_is_looked_at_again_when_it_is_quiet() {
    let mut scene = Scene::new(false);
    scene.settle();
    scene.strip();
    scene.consistent = false;
    let conclusion = scene.cycle(false, true);
    assert_eq!((conclusion.delay, conclusion.patch.is_empty(), scene.warnings()), (Some(5.0), true, 0));
    scene.consistent = true;
    scene.cycle(true, true);
    assert_eq!((scene.last(), scene.warnings()), (json!({"spec": {"x": 1}}), 1));
    assert_eq!(scene.calls.len(), 2);
}

#[test]
fn what_the_first_have_seen_is_settled_when_it_is_written_as_handled() {
    let mut scene = Scene::new(false);
    scene.settle();
    scene.set(2);
    scene.cycle(false, true);
    assert!(scene.memory.pending_state.as_ref().unwrap().seen.first.is_some());
    // It is taken back; the others have seen nothing else.
    scene.set(1);
    scene.fails = Some(0.0);
    scene.cycle(true, true);
    assert_eq!(scene.last(), json!({"spec": {"x": 2}}));
    let seen = ObservedEssences { first: None, later: Some(Arc::new(json!({"spec": {"x": 1}}))) };
    assert_eq!(scene.memory.pending_state.as_ref().unwrap().seen, seen);
}

#[test]
fn what_is_handled_while_the_last_write_is_missing_is_compared_with_that_write() {
    let mut scene = Scene::new(false);
    scene.cycle(false, true);
    scene.cycle(false, false);
    scene.set(2);
    scene.settle_with(2);
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=1", "u001 x=2", "u0002 x=2"]);
}

#[test]
fn a_change_between_two_handlers_is_followed_by_an_update() {
    for dies in [false, true] {
        let mut scene = Scene::new(false);
        scene.cycle(false, true);
        scene.die_if(dies);
        scene.set(2);
        scene.settle_with(2);
        assert_eq!(scene.calls, ["c1 x=1", "c02 x=2", "u001 x=2", "u0002 x=2"]);
    }
}

#[test]
fn a_death_between_two_handlers_without_a_change_makes_no_update() {
    let mut scene = Scene::new(false);
    scene.cycle(false, true);
    scene.die();
    scene.settle_with(1);
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=1"]);
}

#[test]
fn what_the_first_have_seen_in_a_sequence_that_is_over_is_a_relic() {
    let mut scene = Scene::new(false);
    scene.settle();
    let record = json!({"purpose": "update", "retries": 0, "seen": "{\"spec\":{\"x\":7}}"});
    scene.object["metadata"]["annotations"]["kopf.zalando.org/u001"] = json!(record.to_string());
    scene.die();
    scene.set(2);
    scene.settle_with(2);
    assert_eq!(scene.calls[2..], ["u001 x=2", "u0002 x=2"]);
}

#[test]
fn progress_of_a_sequence_that_is_over_is_removed_before_another_one_begins() {
    for (reason, dies) in [("update", false), ("update", true), ("delete", false), ("delete", true)] {
        let handlers = [("c1", "create"), ("c02", "create"), ("h001", reason), ("h0002", reason)];
        let mut scene = Scene::of(false, &handlers).with_progress_in_the_status();
        if reason == "delete" {
            scene.object["metadata"]["finalizers"] = json!(["kopf.zalando.org/KopfFinalizerMarker"]);
        }
        scene.cycle(false, true);
        // The operator dies after the last handled state is written, and before the progress is removed.
        let status = scene.object["status"].clone();
        scene.cycle(false, true);
        scene.object["status"] = status;
        scene.die();
        scene.set(2);
        if reason == "delete" {
            scene.object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let cycles = [(); 3].map(|()| {
            scene.die_if(dies);
            scene.cycle(false, true)
        });
        let released = cycles.map(|conclusion| conclusion.finalizer.is_some());
        assert_eq!(released, [false, false, reason == "delete"]);
    }
}

#[test]
fn in_the_reference_it_is_absorbed() {
    let mut scene = Scene::new(true);
    scene.cycle(false, true);
    scene.set(2);
    scene.settle_with(2);
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=2"]);
}

#[test]
fn a_change_that_is_taken_back_between_two_handlers_is_taken_back_for_those_who_saw_it() {
    for dies in [false, true] {
        let mut scene = Scene::handled();
        scene.set(2);
        scene.cycle(false, true);
        scene.die_if(dies);
        scene.set(1);
        scene.settle_with(1);
        assert_eq!(scene.calls, ["u001 x=2", "u001 x=1", "u0002 x=1"]);
    }
}

#[test]
fn who_has_been_shown_the_way_back_is_followed_while_that_is_written_late() {
    let mut scene = Scene::handled();
    scene.set(2);
    scene.cycle(false, true);
    scene.set(1);
    scene.cycle(false, false);
    // It is written by a cycle that calls nobody.
    scene.consistent = false;
    scene.cycle(false, true);
    scene.consistent = true;
    scene.set(3);
    scene.settle_with(3);
    assert_eq!(scene.calls, ["u001 x=2", "u001 x=1", "u0002 x=3", "u001 x=3", "u0002 x=3"]);
}

/// The first has seen 2, the last has seen 3, and then it is 2 again.
fn the_last_has_seen_more() -> Scene {
    let mut scene = Scene::handled();
    scene.set(2);
    scene.cycle(false, true);
    scene.set(3);
    scene.cycle(false, true);
    assert_eq!(
        (&*scene.calls, scene.last()),
        (&["u001 x=2", "u0002 x=3"].map(str::to_owned)[..], json!({"spec": {"x": 2}}))
    );
    scene.set(2);
    scene
}

#[test]
fn what_only_the_last_has_seen_is_taken_back_too() {
    for dies in [false, true] {
        let mut scene = the_last_has_seen_more();
        scene.die_if(dies);
        scene.settle_with(2);
        assert_eq!(scene.calls[2..], ["u001 x=2", "u0002 x=2"]);
    }
}

#[test]
fn what_only_the_last_has_seen_is_followed_by_an_update_of_all_if_it_stays() {
    for dies in [false, true] {
        let mut scene = the_last_has_seen_more();
        scene.set(3);
        scene.die_if(dies);
        scene.settle_with(3);
        assert_eq!(scene.calls[2..], ["u001 x=3", "u0002 x=3"]);
    }
}

#[test]
fn what_only_one_in_between_has_seen_is_taken_back_too() {
    for dies in [false, true] {
        let mut scene = Scene::of(false, &[("u001", "update"), ("u0002", "update"), ("u00003", "update")]);
        scene.settle();
        for x in [2, 3, 2] {
            scene.set(x);
            scene.cycle(false, true);
            scene.die_if(dies);
        }
        scene.settle_with(2);
        assert_eq!(scene.calls[..3], ["u001 x=2", "u0002 x=3", "u00003 x=2"]);
        assert_eq!(scene.calls[3..], ["u001 x=2", "u0002 x=2", "u00003 x=2"]);
    }
}

#[test]
fn a_way_back_that_could_not_be_prepared_is_shown_once() {
    let mut scene = Scene::handled();
    scene.set(2);
    scene.cycle(false, true);
    scene.set(1);
    scene.fails = Some(0.0);
    assert!(!scene.cycle(true, false).patch.is_empty());
    scene.fails = None;
    scene.settle_with(1);
    assert_eq!(scene.calls, ["u001 x=2", "u001 x=1", "u001 x=1", "u0002 x=1"]);
}

#[test]
fn the_way_back_is_not_forgotten_with_a_last_handled_state_that_somebody_removes() {
    let mut scene = Scene::handled();
    scene.set(2);
    scene.cycle(false, true);
    scene.set(1);
    scene.object["metadata"]["annotations"].as_object_mut().unwrap().shift_remove(LAST);
    scene.cycle(false, true);
    scene.cycle(true, true);
    scene.settle_with(1);
    assert_eq!(scene.calls, ["u001 x=2", "u001 x=1", "u0002 x=1"]);
}

#[test]
fn progress_that_somebody_removes_is_known_nevertheless() {
    let mut scene = Scene::new(false);
    scene.cycle(false, true);
    scene.object["metadata"]["managedFields"] = json!([
        {"manager": "kopf", "time": "2026-01-01T00:00:00Z"}, {"manager": "vandal", "time": "2026-01-02T00:00:00Z"},
    ]);
    scene.strip();
    scene.settle();
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=1"]);
    assert_eq!(scene.warnings(), 1);
    assert!(scene.notes.contains(&LogMessage::Stripped(Some("vandal".to_owned()))));
}

#[test]
fn the_last_handled_state_that_somebody_removes_is_known_and_is_written_again_when_it_is_quiet() {
    let mut scene = Scene::new(false);
    scene.settle();
    for _ in 0..3 {
        scene.strip();
        let conclusion = scene.cycle(false, true);
        assert_eq!((conclusion.delay, conclusion.patch.is_empty()), (Some(5.0), true));
    }
    assert_eq!(scene.calls.len(), 2);
    assert_eq!(scene.warnings(), 1);
    scene.cycle(true, true);
    assert_eq!(scene.last(), json!({"spec": {"x": 1}}));
    // From now on it is kept as a whole.
    scene.strip();
    scene.set(2);
    scene.settle();
    assert_eq!(scene.calls[2..], ["u001 x=2", "u0002 x=2"]);
}

#[test]
fn whoever_takes_over_is_believed() {
    let mut scene = Scene::new(false);
    scene.settle();
    scene.strip();
    scene.memory.invalidate();
    scene.settle();
    assert_eq!(scene.calls.len(), 4);
}

#[test]
fn what_was_handled_last_is_known_while_an_update_goes_on() {
    for written in [true, false] {
        let mut scene = Scene::new(false);
        scene.settle();
        scene.set(2);
        scene.cycle(false, written);
        scene.strip();
        scene.settle_with(2);
        assert_eq!(scene.calls[2..], ["u001 x=2", "u0002 x=2"]);
    }
}

#[test]
fn what_an_operator_before_has_written_is_known_as_well_when_it_goes_on() {
    let mut scene = Scene::of(false, &[("u001", "update"), ("u0002", "update"), ("u00003", "update")]);
    scene.settle();
    scene.set(2);
    scene.cycle(false, true);
    scene.die();
    scene.cycle(false, true);
    scene.strip();
    scene.settle();
    assert_eq!(scene.calls, ["u001 x=2", "u0002 x=2", "u00003 x=2"]);
}

#[test]
fn what_is_taken_for_new_is_new_also_if_it_becomes_again_as_it_was() {
    let mut scene = Scene::handled();
    scene.strip();
    scene.set(2);
    scene.cycle(false, true);
    scene.set(1);
    scene.settle_with(1);
    assert_eq!(scene.calls, ["c1 x=2", "c02 x=1", "u001 x=1", "u0002 x=1"]);
}

#[test]
fn what_is_taken_back_and_made_again_before_anybody_has_seen_that_is_missed_by_nobody() {
    for dies in [false, true] {
        let mut scene = Scene::handled();
        scene.set(2);
        scene.cycle(false, true);
        scene.set(1);
        scene.fails = Some(0.0);
        scene.cycle(false, true);
        scene.fails = None;
        scene.die_if(dies);
        scene.set(2);
        scene.settle_with(2);
        assert_eq!(scene.calls, ["u001 x=2", "u001 x=1", "u001 x=2", "u0002 x=2"]);
    }
}

#[test]
fn a_state_from_before_an_own_write_takes_nothing_back_but_is_looked_at_again() {
    let mut scene = Scene::handled();
    scene.set(2);
    scene.cycle(false, true);
    scene.set(1);
    scene.consistent = false;
    let conclusion = scene.cycle(true, true);
    assert_eq!((conclusion.patch.is_empty(), conclusion.delay), (true, Some(5.0)));
    // It was no news: meanwhile, it is what it was.
    scene.consistent = true;
    scene.set(2);
    scene.settle();
    assert_eq!(scene.calls, ["u001 x=2", "u0002 x=2"]);
}

#[test]
fn what_the_last_have_seen_is_written_again_with_the_rest_of_the_progress() {
    let mut scene = Scene::new(false);
    scene.cycle(false, true);
    scene.set(2);
    // The creation is over, and the first of the update is done.
    scene.cycle(false, true);
    scene.cycle(false, true);
    scene.fails = Some(60.0);
    scene.cycle(false, true);
    scene.fails = None;
    scene.strip();
    scene.cycle(true, true);
    scene.die();
    scene.now = scene.now.plus(60.0);
    scene.set(1);
    scene.settle_with(1);
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=2", "u001 x=2", "u0002 x=2", "u001 x=1", "u0002 x=1"]);
}

fn status(value: Value) -> Map<String, Value> {
    std::iter::once(("status".to_owned(), value)).collect()
}

impl Scene {
    /// The server rejects this part of a patch; the rest of it is written.
    fn reject(&mut self, rejected: Map<String, Value>) -> Option<f64> {
        let settings = Arc::clone(&self.rules.settings);
        self.memory.rejected(rejected, self.now, &settings)
    }
}

#[test]
fn a_rejected_part_waits_for_its_pause_or_for_the_next_patch() {
    let mut scene = Scene::handled();
    let rejected = status(json!({"c1": 1}));
    assert_eq!(scene.reject(rejected.clone()), Some(1.0));
    let quiet = scene.cycle(false, true);
    assert!(quiet.pending.is_none() && quiet.patch.is_empty());
    assert_eq!(quiet.delay, Some(1.0));
    scene.now = scene.now.plus(1.0);
    assert_eq!(scene.cycle(true, true).pending.unwrap().0, rejected);
    assert_eq!(scene.reject(rejected.clone()), Some(2.0));
    scene.set(2);
    let written = scene.cycle(false, true);
    assert!(!written.patch.is_empty() && !written.patch.0.contains_key("status"));
    assert_eq!(written.pending.unwrap().0, rejected);
}

#[test]
fn a_rejected_status_is_seen_by_handlers() {
    let mut scene = Scene::handled();
    scene.reject(status(json!({"c1": 1})));
    let object = Arc::new(Object::decode(&scene.object.to_string()).unwrap());
    let amended = scene.memory.overlay(&object, true, &scene.rules.settings, &scene.plan).unwrap();
    assert_eq!(amended.object.to_value()["status"], json!({"c1": 1}));
    assert!(amended.missing_patch.is_empty() && !amended.urgent);
}

#[test]
fn a_rejected_part_is_forgotten_when_it_is_on_the_object_or_replaced() {
    let mut scene = Scene::handled();
    scene.reject(status(json!({"c1": 1, "c02": 1})));
    scene.memory.accepted(&status(json!({"c1": 2})));
    scene.object["status"] = json!({"c02": 1});
    scene.cycle(false, true);
    assert_eq!(scene.memory.pending_state, None);
    // Later changes by others are kept.
    scene.object["status"] = json!({"c02": 3});
    let conclusion = scene.cycle(false, true);
    assert!(conclusion.pending.is_none() && conclusion.delay.is_none());
}

#[test]
fn nothing_is_kept_of_rejections_if_all_is_to_be_as_in_the_reference() {
    let mut scene = Scene::new(true);
    let settings = Arc::clone(&scene.rules.settings);
    assert_eq!(scene.memory.rejected(status(json!({"c1": 1})), scene.now, &settings), None);
    assert_eq!(scene.memory.pending_state, None);
}

#[test]
fn what_the_first_handler_puts_into_the_patch_is_no_update() {
    for (dies, written) in [(false, true), (true, true), (false, false)] {
        let mut scene = Scene::new(false);
        scene.patches.insert("c1", json!({"spec": {"own": 1}, "metadata": {"labels": {"own": "yes"}}}));
        scene.patches.insert("u001", json!({"spec": {"own": 2}}));
        scene.cycle(false, written);
        scene.die_if(dies);
        scene.settle_with(1);
        assert_eq!(scene.calls, ["c1 x=1", "c02 x=1"]);
        scene.set(2);
        scene.cycle(false, written);
        scene.die_if(dies);
        scene.settle_with(2);
        assert_eq!(scene.calls[2..], ["u001 x=2", "u0002 x=2"]);
    }
}

#[test]
fn what_others_change_besides_is_an_update_with_their_change_only() {
    let mut scene = Scene::new(false);
    scene.patches.insert("c1", json!({"spec": {"own": 1}}));
    scene.cycle(false, true);
    scene.set(2);
    scene.cycle(false, true);
    assert_eq!(scene.last(), json!({"spec": {"x": 1, "own": 1}}));
    scene.settle_with(2);
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=2", "u001 x=2", "u0002 x=2"]);
}

#[test]
fn what_a_handler_writes_with_its_own_client_is_no_update() {
    for written in [true, false] {
        let mut scene = Scene::new(false);
        scene.writes.insert("c1", ("OpenAPI-Generator", json!({"spec": {"own": 1}})));
        scene.cycle(false, written);
        scene.settle_with(1);
        assert_eq!(scene.calls, ["c1 x=1", "c02 x=1"]);
    }
}

#[test]
fn what_others_change_while_a_handler_runs_is_an_update() {
    let mut scene = Scene::new(false);
    scene.writes.insert("c1", ("kubectl-edit", json!({"spec": {"own": 1}})));
    scene.cycle(false, true);
    scene.settle_with(1);
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=1", "u001 x=1", "u0002 x=1"]);
}

#[test]
fn what_a_daemon_writes_between_two_handlers_is_no_update() {
    let mut scene = Scene::new(false);
    scene.cycle(false, true);
    let Value::Object(patch) = json!({"spec": {"own": 1}}) else { panic!() };
    apply_merge(&mut scene.object, &patch);
    let latest = Object::decode(&scene.object.to_string()).unwrap();
    let accepted = Accepted { patch: &patch, latest: Some(&latest) };
    scene.memory.record_daemon_write(accepted, &scene.rules.settings, &scene.plan);
    scene.settle_with(1);
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=1"]);
}

#[test]
fn what_is_let_go_with_a_finalizer_of_others_is_owed_nothing() {
    let mut scene = Scene::of(false, &[("d1", "delete")]);
    scene.object["metadata"]["finalizers"] =
        json!(["kopf.zalando.org/KopfFinalizerMarker", "example.com/other"]);
    scene.object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    scene.patches.insert("d1", json!({"metadata": {"annotations": {"bye": "1"}}}));
    let conclusion = scene.cycle(false, true);
    assert_eq!((scene.calls.len(), conclusion.finalizer.is_some()), (1, true));
    // The finalizer and the progress go in one request.
    let object = Object::decode(&scene.object.to_string()).unwrap();
    let leftovers = stale_progress(&object, &scene.rules.settings.persistence, &scene.plan);
    assert!(!leftovers.is_empty());
    apply_merge(&mut scene.object, &leftovers.0);
    scene.object["metadata"]["finalizers"] = json!(["example.com/other"]);
    let conclusion = scene.cycle(true, true);
    assert!(conclusion.patch.is_empty() && conclusion.delay.is_none());
    assert_eq!((scene.calls.len(), scene.warnings()), (1, 0));
}

#[test]
fn what_the_server_rejects_is_not_in_the_last_handled_state() {
    let scene = Scene::handled();
    let object = Object::decode(&scene.object.to_string()).unwrap();
    let persistence = &scene.rules.settings.persistence;
    let rejected = json!({"spec": {"strict": "x"}, "status": {"c1": 1}});
    let mut patch = Patch::default();
    let foreseen = json!({"spec": {"x": 1, "strict": "x", "other": 2}});
    persistence.diffbase_storage.store(&object, &mut patch, &foreseen);
    let own = without_rejected(patch.0, rejected.as_object().unwrap(), &object, persistence, &scene.plan);
    let written = Object::decode(&Value::Object(own).to_string()).unwrap();
    let base = persistence.diffbase_storage.fetch(&written).unwrap();
    assert_eq!(base, Some(json!({"spec": {"x": 1, "other": 2}})));
}
