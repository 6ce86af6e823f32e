//! Crashes between the requests of one patch, if the progress and the diff-base are written by different requests.

use super::super::super::merge_requests::merge_requests;
use super::*;
use crate::cycle::Decision;
use crate::persistence::memory::HandlingStatus;
use crate::persistence::unwritten_patch::Unwritten;

impl Scene {
    /// One cycle, of which only the first requests are written before the operator crashes. Returns their total number.
    fn crash_after(&mut self, count: usize) -> usize {
        let object = Object::decode(&self.object.to_string()).unwrap();
        let decision = self.cycle(false, false);
        let persistence = &self.config.settings.persistence;
        let requests = merge_requests(&object, &decision.patch.0, &decision.final_progress.0, persistence);
        for request in requests.iter().take(count) {
            apply_merge(&mut self.object, &request.patch);
        }
        self.restart();
        requests.len()
    }

    /// Settles, and checks that all update handlers were called with the present value last.
    pub(super) fn settle_completely(&mut self, x: u8, ids: &[&str]) {
        self.settle_with_progress_removed(x);
        for id in ids {
            let last = self.calls.iter().rfind(|call| call.starts_with(&format!("{id} ")));
            assert_eq!(last, Some(&format!("{id} x={x}")), "{:?}", self.calls);
        }
    }

    fn settle_with_progress_removed(&mut self, x: u8) {
        self.settle_with(x);
        let records = self.object["status"]["progress"].as_object();
        assert!(records.is_none_or(serde_json::Map::is_empty), "{}", self.object);
    }
}

/// Progress in the status and the diff-base in an annotation, or vice versa.
const LAYOUTS: [fn(Scene) -> Scene; 2] =
    [Scene::with_progress_in_the_status, Scene::with_diffbase_in_the_status];

/// An object whose creation is handled, with update handlers that are called one by one.
fn handled(layout: fn(Scene) -> Scene, ids: &[&'static str]) -> Scene {
    let handlers: Vec<_> = ids.iter().map(|id| (*id, "update")).collect();
    let mut scene = layout(Scene::of(false, &handlers));
    scene.settle();
    scene
}

#[test]
fn outcomes_of_a_completed_handling_are_not_taken_for_those_of_the_next_one() {
    for layout in LAYOUTS {
        for (count, has_result) in (0..=3).flat_map(|count| [(count, true), (count, false)]) {
            let mut scene = handled(layout, &["u001"]);
            if has_result {
                scene.patches.insert("u001", json!({"status": {"u001": "done"}}));
            }
            scene.set(2);
            scene.fails = Some(0.0);
            scene.cycle(false, true);
            scene.fails = None;
            assert_eq!(scene.crash_after(count), 3, "{has_result}");
            scene.set(3);
            scene.settle_completely(3, &["u001"]);
        }
    }
}

#[test]
fn outcomes_of_a_rejected_write_are_written_with_it() {
    for (layout, count) in LAYOUTS.into_iter().flat_map(|layout| [(layout, 1), (layout, 2)]) {
        let mut scene = handled(layout, &["u001", "u0002"]);
        scene.set(2);
        scene.cycle(false, true);
        // The last outcome and the diff-base are not written, then only some of their requests.
        scene.cycle(false, false);
        scene.crash_after(count);
        scene.set(3);
        scene.settle_completely(3, &["u001", "u0002"]);
    }
}

#[test]
fn an_essence_that_only_the_last_handler_observed_is_stored_in_any_record() {
    let mut scene = Scene::of(false, &[("u001", "update"), ("u0002", "update")]);
    scene.settle();
    scene.set(3);
    // A sub-handler of the first handler has observed 2; the other record is used for that.
    let first =
        json!({"purpose": "update", "retries": 1, "delayed": "2030-01-01T00:00:00Z", "subrefs": ["u001/a"]});
    let second = json!({"purpose": "update", "retries": 0, "seen": r#"{"spec":{"x":2}}"#});
    for (id, record) in [("u001", first), ("u0002", second)] {
        scene.object["metadata"]["annotations"][format!("kopf.zalando.org/{id}")] = json!(record.to_string());
    }
    scene.restart();
    scene.cycle(false, true);
    scene.restart();
    scene.set(2);
    scene.now = Timestamp::parse("2030-01-01T00:00:00Z").unwrap();
    scene.settle_with(2);
    assert_eq!(scene.calls, ["u0002 x=3", "u001 x=2", "u001 x=2", "u0002 x=2"]);
}

#[test]
fn a_completed_handling_is_recognised_in_spite_of_an_earlier_observed_essence() {
    for count in 0..=3 {
        let handlers = [("c1", "create"), ("u001", "update"), ("u0002", "update")];
        let mut scene = Scene::of(false, &handlers).with_progress_in_the_status();
        scene.settle();
        scene.set(2);
        // The last creation handlers have observed 2.
        scene.object["status"]["progress"] = json!({"c1": {"retries": 0, "seen": r#"{"spec":{"x":2}}"#}});
        scene.restart();
        scene.settle_with_progress_removed(2);
        scene.object["status"]["progress"] = json!({"c1": {"retries": 0, "seen": r#"{"spec":{"x":3}}"#}});
        scene.set(3);
        scene.restart();
        scene.cycle(false, true);
        scene.cycle(false, true);
        scene.crash_after(count);
        scene.set(4);
        scene.settle_completely(4, &["u001", "u0002"]);
    }
}

#[test]
fn progress_in_the_status_is_known_after_the_removal_of_the_diffbase() {
    let handlers = [("c1", "create"), ("u001", "update"), ("u0002", "update")];
    let mut scene = Scene::of(false, &handlers).with_progress_in_the_status();
    // The creation is handled with 1, and the progress is not removed.
    scene.object["status"]["progress"] =
        json!({"c1": {"purpose": "create", "retries": 1, "success": true, "seen": r#"{"spec":{"x":1}}"#}});
    scene.object["metadata"]["annotations"] = json!({LAST: "{\"spec\":{\"x\":1}}\n"});
    scene.set(2);
    scene.view_age = ViewAge::Unknown;
    scene.cycle(false, true);
    scene.view_age = ViewAge::Consistent;
    scene.strip();
    scene.settle_completely(2, &["u001", "u0002"]);
}

#[test]
fn attempts_of_a_completed_handling_are_not_counted_in_the_next_one() {
    for layout in LAYOUTS {
        let mut scene = handled(layout, &["u001"]);
        scene.set(2);
        scene.fails = Some(0.0);
        scene.cycle(false, true);
        scene.fails = None;
        scene.crash_after(2);
        scene.set(3);
        scene.fails = Some(0.0);
        scene.cycle(false, true);
        scene.cycle(false, true);
        let object = Object::decode(&scene.object.to_string()).unwrap();
        let storage = &scene.config.settings.persistence.progress_storage;
        assert_eq!(storage.fetch(&object, "u001").unwrap().unwrap().retries, 1);
    }
}

#[test]
fn a_change_that_only_the_last_handler_observed_is_known_after_a_crash() {
    for (position, layout) in LAYOUTS.into_iter().enumerate() {
        for (count, next) in (0..=3).flat_map(|count| [(count, 2), (count, 3), (count, 4)]) {
            let mut scene = handled(layout, &["u001", "u0002"]);
            scene.set(2);
            scene.cycle(false, true);
            scene.set(3);
            assert_eq!(scene.crash_after(count), 3);
            let calls = scene.calls.len();
            scene.set(next);
            scene.settle_completely(next, &["u001", "u0002"]);
            // With progress in the status, the first request has the outcome.
            let again = scene.calls[calls..].iter().filter(|call| *call == "u0002 x=3").count();
            let is_written = count > 1 || (count == 1 && position == 0);
            assert!(!is_written || next != 3 || again == 1, "{count}: {:?}", scene.calls);
        }
    }
}

#[test]
fn a_reversal_is_known_after_a_crash_between_its_requests() {
    for layout in LAYOUTS {
        for (count, next) in (0..=3).flat_map(|count| [(count, 1), (count, 2), (count, 3)]) {
            let mut scene = handled(layout, &["u001", "u0002"]);
            scene.set(2);
            scene.cycle(false, true);
            // The first handler has observed 2; the object reverts to 1.
            scene.set(1);
            scene.fails = Some(0.0);
            assert_eq!(scene.crash_after(count), 3);
            scene.fails = None;
            scene.set(next);
            // An attempt with 1 that is not written counts as not made: then 2 is the last observed value.
            let ids: &[&str] = if (count, next) == (0, 2) { &["u0002"] } else { &["u001", "u0002"] };
            scene.settle_completely(next, ids);
        }
    }
}

#[test]
fn progress_from_before_a_second_reversal_is_not_taken_for_that_of_the_next_change() {
    for (count, next) in (0..=3).flat_map(|count| [(count, 1), (count, 2), (count, 3)]) {
        let handlers = [("c1", "create"), ("u001", "update"), ("u0002", "update")];
        let mut scene = Scene::of(false, &handlers).with_progress_in_the_status();
        scene.set(2);
        // After a reversal, one handler was called for the change from 2 to 1; then the object reverted to 2.
        scene.object["metadata"]["annotations"] = json!({LAST: "{\"spec\":{\"x\":2}}\n"});
        scene.object["status"]["progress"] = json!({
            "c1": {"retries": 0, "seen": r#"{"spec":{"x":1}}"#},
            "u001": {"purpose": "update", "retries": 1, "success": true},
            "u0002": {"purpose": "update", "retries": 0},
        });
        scene.fails = Some(0.0);
        assert_eq!(scene.crash_after(count), 3);
        scene.fails = None;
        scene.set(next);
        let ids: &[&str] = if count < 2 && next == 1 { &["u0002"] } else { &["u001", "u0002"] };
        scene.settle_completely(next, ids);
    }
}

#[test]
fn a_completed_handling_is_recognised_if_the_progress_of_its_first_handler_was_not_written() {
    for layout in LAYOUTS {
        for (count, next) in (2..=3).flat_map(|count| [(count, 1), (count, 2), (count, 3)]) {
            let mut scene = layout(Scene::new(false));
            scene.cycle(false, false);
            scene.set(2);
            assert_eq!(scene.crash_after(count), 3);
            assert_eq!(scene.calls, ["c1 x=1", "c02 x=2"]);
            scene.set(next);
            scene.settle_completely(next, &["u001", "u0002"]);
            let again = scene.calls.iter().filter(|call| **call == format!("u001 x={next}")).count();
            assert_eq!(again, 1, "{count} {:?}", scene.calls);
        }
    }
}

#[test]
fn the_observed_essence_includes_the_changes_of_handlers_that_were_rejected_before() {
    let mut scene = Scene::of(false, &[("u001", "update"), ("u0002", "update")]);
    scene.settle();
    scene.set(2);
    scene.patches.insert("u001", json!({"spec": {"own": 1}}));
    scene.cycle(false, false);
    scene.fails = Some(0.0);
    scene.cycle(true, true);
    assert_eq!(scene.object["spec"], json!({"x": 2, "own": 1}));
    scene.restart();
    scene.fails = None;
    scene.settle_with(2);
    assert_eq!(scene.calls, ["u001 x=2", "u0002 x=2", "u0002 x=2"]);
}

#[test]
fn progress_of_a_deletion_without_a_diffbase_is_known_after_its_removal() {
    let mut scene = Scene::of(false, &[("d1", "delete"), ("d02", "delete")]);
    let finalizer = scene.config.settings.persistence.finalizer.clone();
    scene.object["metadata"]["finalizers"] = json!([finalizer]);
    scene.object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    scene.cycle(false, true);
    scene.restart();
    scene.fails = Some(0.0);
    scene.cycle(false, true);
    scene.strip();
    scene.fails = None;
    scene.cycle(false, true);
    assert_eq!(scene.calls, ["d1 x=1", "d02 x=1", "d02 x=1"]);
}

#[test]
fn changes_of_handlers_are_known_after_a_lost_response_and_a_rejection() {
    let mut scene = Scene::of(false, &[("u001", "update"), ("u0002", "update")]);
    scene.settle();
    scene.set(2);
    scene.patches.insert("u001", json!({"spec": {"own": 1}}));
    // The write is applied, but its response is lost; then another client removes the annotations.
    let applied = scene.cycle(false, false).patch;
    apply_merge(&mut scene.object, &applied.0);
    scene.strip();
    scene.view_age = ViewAge::Unknown;
    scene.cycle(false, false);
    scene.view_age = ViewAge::Consistent;
    scene.settle();
    assert_eq!(scene.calls, ["u001 x=2", "u0002 x=2"]);
}

#[test]
fn the_final_progress_is_written_with_a_rejected_completion() {
    for layout in LAYOUTS {
        let mut scene = layout(Scene::new(false));
        // The creation is completed with 1 and 2, and nothing of it is written.
        scene.cycle(false, false);
        scene.set(2);
        scene.cycle(false, false);
        assert!(scene.crash_after(2) >= 3);
        scene.set(3);
        scene.settle_completely(3, &["u001", "u0002"]);
        let bases: Vec<_> = scene.calls.iter().filter(|call| call.ends_with("x=3")).collect();
        assert_eq!(bases, ["u001 x=3", "u0002 x=3"], "{:?}", scene.calls);
    }
}

#[test]
fn a_reversal_is_known_if_the_memory_was_dropped_while_a_cycle_ran() {
    let mut scene = Scene::of(false, &[("c1", "create"), ("u001", "update"), ("u0002", "update")]);
    scene.cycle(false, false);
    scene.set(2);
    let patch = scene.cycle(true, false).patch.0;
    assert_eq!(scene.calls, ["c1 x=1", "u001 x=2"]);
    scene.memory.invalidate();
    let object = Object::decode(&scene.object.to_string()).unwrap();
    let unwritten = Unwritten { patch, ..Unwritten::default() };
    let (status, settings) = (HandlingStatus::Before, Arc::clone(&scene.config.settings));
    scene.memory.failed(&object, unwritten, status, &settings, &scene.handlers);
    scene.set(1);
    scene.settle_with(1);
    assert_eq!(scene.calls[2..], ["u001 x=1", "u0002 x=1"]);
}

#[test]
fn the_diffbase_of_a_reversal_contains_the_changes_of_handlers_that_are_written_with_it() {
    let mut scene = Scene::of(false, &[("c1", "create"), ("u001", "update"), ("u0002", "update")]);
    scene.patches.insert("u001", json!({"spec": {"own": 1}}));
    // Neither the completion of the creation is written, nor the first part of the update.
    scene.cycle(false, false);
    scene.set(2);
    scene.cycle(true, false);
    scene.set(1);
    scene.cycle(true, true);
    assert_eq!(scene.calls, ["c1 x=1", "u001 x=2"]);
    assert_eq!(scene.object["spec"], json!({"x": 1, "own": 1}));
    assert_eq!(scene.last(), json!({"spec": {"x": 2, "own": 1}}));
    scene.settle();
    assert_eq!(scene.calls[2..], ["u001 x=1", "u0002 x=1"]);
}

#[test]
fn an_essence_observed_before_the_completed_handling_does_not_hide_one_observed_in_it() {
    let mut scene = Scene::new(false).with_progress_in_the_status();
    // u001 and u0002 were called with 2 during a change to 1. Then the operator crashed before it removed the progress, with the
    // essence that the last handler of the creation was called with.
    scene.set(1);
    let essence = |x: u8| json!({"spec": {"x": x}}).to_string();
    scene.object["metadata"]["annotations"] = json!({LAST: format!("{}\n", essence(1))});
    let finished = |x: u8| json!({"purpose": "update", "retries": 1, "success": true, "seen": essence(x)});
    scene.object["status"]["progress"] =
        json!({"c02": {"seen": essence(1)}, "u001": finished(2), "u0002": finished(1)});
    scene.settle_with_progress_removed(1);
    assert_eq!(scene.calls, ["u001 x=1", "u0002 x=1"]);
}

#[test]
fn a_new_creation_supersedes_what_handlers_of_changes_have_observed() {
    let mut scene = Scene::new(false);
    // The progress of a change is written after the removal of the diff-base, and the operator crashes.
    for (id, seen) in [("u001", 1), ("u0002", 2)] {
        let seen = format!(r#"{{"spec":{{"x":{seen}}}}}"#);
        let record = json!({"purpose": "update", "retries": 1, "success": true, "seen": seen});
        scene.object["metadata"]["annotations"][format!("kopf.zalando.org/{id}")] = json!(record.to_string());
    }
    scene.settle_with(1);
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=1"]);
}

#[test]
fn a_record_is_written_as_a_whole_after_a_lost_response() {
    let mut scene = handled(Scene::with_progress_in_the_status, &["u001", "u0002"]);
    scene.set(2);
    scene.cycle(false, true);
    scene.set(3);
    // The first request is applied, but the next cycle starts with the state before it.
    let mut actual = scene.object.clone();
    let (before, first) = (Object::decode(&actual.to_string()).unwrap(), scene.cycle(false, false));
    let again = scene.cycle(false, false);
    let persistence = &scene.config.settings.persistence;
    let requests = |decision: &Decision| {
        merge_requests(&before, &decision.patch.0, &decision.final_progress.0, persistence)
    };
    apply_merge(&mut actual, &requests(&first)[0].patch);
    assert_eq!(actual["status"]["progress"]["u0002"]["success"], json!(true));
    for request in requests(&again) {
        apply_merge(&mut actual, &request.patch);
    }
    // The first handler is called for the next change.
    assert_eq!(scene.calls, ["u001 x=2", "u0002 x=3", "u001 x=3"]);
    let record = &actual["status"]["progress"]["u0002"];
    assert_eq!((&record["success"], &record["seen"]), (&json!(false), &json!(r#"{"spec":{"x":3}}"#)));
    assert_eq!((&record["retries"], &record["stopped"]), (&json!(0), &Value::Null));
}

#[test]
fn records_of_the_next_handling_are_not_removed_with_those_of_a_completed_one() {
    for seen in [Some(r#"{"spec":{"x":2}}"#), None] {
        let handlers = [("c1", "create"), ("u001", "update"), ("u0002", "update")];
        let mut scene = Scene::of(false, &handlers).with_progress_in_the_status();
        scene.settle();
        scene.set(2);
        scene.object["status"]["progress"] = json!({
            "c1": {"purpose": "create", "retries": 2, "success": true, "seen": r#"{"spec":{"x":1}}"#},
            "u001": {"purpose": "update", "retries": 1, "success": true, "seen": seen},
        });
        scene.restart();
        scene.settle_completely(2, &["u0002"]);
        assert_eq!(scene.calls, ["c1 x=1", "u0002 x=2"]);
    }
}

#[test]
fn the_accepted_part_of_a_failed_patch_replaces_the_earlier_progress() {
    let mut scene = Scene::new(false);
    let (settings, handlers) = (Arc::clone(&scene.config.settings), Arc::clone(&scene.handlers));
    let object = Object::decode(&scene.object.to_string()).unwrap();
    let annotations = |value: Value| {
        let patch = json!({"metadata": {"annotations": {"kopf.zalando.org/c1": value}}});
        patch.as_object().unwrap().clone()
    };
    let (older, newer) = (annotations(json!("older")), annotations(json!("newer")));
    let ongoing = HandlingStatus::Ongoing(ObservedEssences::default());
    let accepted = Accepted { patch: &older, latest: Some(&object) };
    scene.memory.record_write(&object, accepted, ongoing.clone(), &settings, &handlers);
    let Value::Object(patch) = json!({"spec": {"y": 1}}) else { panic!("no patch") };
    let unwritten = Unwritten { patch: patch.clone(), ..Unwritten::default() };
    scene.memory.failed(&object, unwritten, ongoing, &settings, &handlers);
    let accepted = Accepted { patch: &newer, latest: Some(&object) };
    scene.memory.record_part(&object, accepted, &settings, &handlers);
    let pending_state = scene.memory.pending_state.as_ref().unwrap();
    assert_eq!((pending_state.progress(), &pending_state.unwritten.patch), (&newer, &patch));
}

#[test]
fn the_accepted_part_of_a_failed_patch_is_no_change_for_its_handlers() {
    let mut scene = Scene::new(false);
    let (settings, handlers) = (Arc::clone(&scene.config.settings), Arc::clone(&scene.handlers));
    let seen = |object: &Object| essence(object, &settings.persistence, &handlers.extra_fields);
    let object = Object::decode(&scene.object.to_string()).unwrap();
    let mut observed = ObservedEssences::default();
    observed.add(&Arc::new(seen(&object)));
    let Value::Object(patch) = json!({"status": {"c1": 1}}) else { panic!("no patch") };
    let unwritten = Unwritten { patch, ..Unwritten::default() };
    scene.memory.failed(&object, unwritten, HandlingStatus::Ongoing(observed), &settings, &handlers);
    // The handler's change of the spec was accepted before the rest failed.
    scene.object["spec"]["y"] = json!(1);
    let latest = Object::decode(&scene.object.to_string()).unwrap();
    let Value::Object(patch) = json!({"spec": {"y": 1}}) else { panic!("no patch") };
    let accepted = Accepted { patch: &patch, latest: Some(&latest) };
    scene.memory.record_part(&latest, accepted, &settings, &handlers);
    scene.set(2);
    let changed = Object::decode(&scene.object.to_string()).unwrap();
    let pending_state = scene.memory.pending_state.as_ref().unwrap();
    for present in [&latest, &changed] {
        let observed = pending_state.observed_essences(present, &settings.persistence, &handlers);
        assert_eq!(observed.first.as_deref(), Some(&seen(&latest)));
    }
}
