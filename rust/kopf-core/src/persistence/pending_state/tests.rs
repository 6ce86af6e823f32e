//! Pending state over several cycles: failed writes, removed annotations, crashes, and changes between handlers.

use super::super::memory::{Accepted, HandlingStatus};
use super::super::stored_state::stale_progress;
use super::super::unwritten_patch::Unwritten;
use super::*;
use crate::activation::log::LogMessage;
use serde_json::json;

const LAST: &str = "kopf.zalando.org/last-handled-configuration";

mod condensed;
mod crashes;
mod deferred_progress;
mod other_operators;
mod removed_annotations;
mod reversals;
mod scene;

use scene::Scene;

#[test]
fn handlers_are_not_called_again_when_their_outcomes_could_not_be_written() {
    let mut scene = Scene::new(false);
    scene.cycle(false, false);
    scene.cycle(false, false);
    scene.cycle(false, false);
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=1"]);
    assert_eq!(scene.memory.pending_state.as_ref().unwrap().rejections(), 3);
    scene.settle_with(1);
    assert_eq!(scene.calls.len(), 2);
    assert_eq!(scene.memory.pending_state, None);
}

#[test]
fn a_write_that_was_applied_despite_an_error_is_recognized() {
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
fn a_final_write_that_was_applied_despite_an_error_is_recognized() {
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
fn a_state_from_before_our_last_write_confirms_no_unwritten_patch() {
    let unwritten = json!({"status": {"note": null, "done": 1}});
    for (view_age, repeated) in [
        (ViewAge::Outdated, unwritten.clone()),
        (ViewAge::Unknown, json!({})),
        (ViewAge::Consistent, json!({})),
    ] {
        let mut scene = Scene::handled();
        // Our last write has set the note; it is not in this state.
        scene.object["status"] = json!({"done": 1});
        let object = Object::decode(&scene.object.to_string()).unwrap();
        let Value::Object(patch) = unwritten.clone() else { panic!("no patch") };
        let unwritten = Unwritten { patch, ..Unwritten::default() };
        let settings = Arc::clone(&scene.config.settings);
        scene.memory.failed(&object, unwritten, HandlingStatus::Before, &settings, &scene.handlers);
        scene.view_age = view_age;
        assert_eq!(Value::Object(scene.cycle(true, true).patch.0), repeated, "{view_age:?}");
        assert_eq!(scene.memory.pending_state, None);
    }
}

#[test]
fn annotations_removed_while_our_write_is_awaited_are_restored_later() {
    let mut scene = Scene::new(false);
    scene.settle();
    scene.strip();
    scene.view_age = ViewAge::Unknown;
    let conclusion = scene.cycle(false, true);
    assert_eq!((conclusion.delay, conclusion.patch.is_empty(), scene.warnings()), (Some(5.0), true, 0));
    scene.view_age = ViewAge::Consistent;
    scene.cycle(true, true);
    assert_eq!((scene.last(), scene.warnings()), (json!({"spec": {"x": 1}}), 1));
    assert_eq!(scene.calls.len(), 2);
}

#[test]
fn the_first_observed_essence_is_cleared_when_it_becomes_the_diffbase() {
    let mut scene = Scene::new(false);
    scene.settle();
    scene.set(2);
    scene.cycle(false, true);
    assert!(scene.memory.pending_state.as_ref().unwrap().observed.first.is_some());
    // The change is reverted; the other handler was not called with it.
    scene.set(1);
    scene.fails = Some(0.0);
    scene.cycle(true, true);
    assert_eq!(scene.last(), json!({"spec": {"x": 2}}));
    let seen = ObservedEssences { first: None, later: Some(Arc::new(json!({"spec": {"x": 1}}))) };
    assert_eq!(scene.memory.pending_state.as_ref().unwrap().observed, seen);
}

#[test]
fn a_change_is_compared_with_an_unwritten_diffbase() {
    let mut scene = Scene::new(false);
    scene.cycle(false, true);
    scene.cycle(false, false);
    scene.set(2);
    scene.settle_with(2);
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=1", "u001 x=2", "u0002 x=2"]);
}

#[test]
fn a_change_between_two_handlers_is_followed_by_an_update() {
    for restarts in [false, true] {
        let mut scene = Scene::new(false);
        scene.cycle(false, true);
        scene.restart_if(restarts);
        scene.set(2);
        scene.settle_with(2);
        assert_eq!(scene.calls, ["c1 x=1", "c02 x=2", "u001 x=2", "u0002 x=2"]);
    }
}

#[test]
fn a_crash_between_two_handlers_without_a_change_causes_no_update() {
    let mut scene = Scene::new(false);
    scene.cycle(false, true);
    scene.restart();
    scene.settle_with(1);
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=1"]);
}

#[test]
fn an_observed_essence_of_a_completed_handling_is_ignored() {
    let mut scene = Scene::new(false);
    scene.settle();
    let record = json!({"purpose": "update", "retries": 0, "seen": "{\"spec\":{\"x\":7}}"});
    scene.object["metadata"]["annotations"]["kopf.zalando.org/u001"] = json!(record.to_string());
    scene.restart();
    scene.set(2);
    scene.settle_with(2);
    assert_eq!(scene.calls[2..], ["u001 x=2", "u0002 x=2"]);
}

#[test]
fn progress_of_a_completed_handling_is_removed_before_the_next_one_starts() {
    for (reason, restarts) in [("update", false), ("update", true), ("delete", false), ("delete", true)] {
        let handlers = [("c1", "create"), ("c02", "create"), ("h001", reason), ("h0002", reason)];
        let mut scene = Scene::of(false, &handlers).with_progress_in_the_status();
        if reason == "delete" {
            scene.object["metadata"]["finalizers"] = json!(["kopf.zalando.org/KopfFinalizerMarker"]);
        }
        scene.cycle(false, true);
        // The operator crashes after the diff-base is written, and before the progress is removed.
        let status = scene.object["status"].clone();
        scene.cycle(false, true);
        scene.object["status"] = status;
        scene.restart();
        scene.set(2);
        if reason == "delete" {
            scene.object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let cycles = [(); 3].map(|()| {
            scene.restart_if(restarts);
            scene.cycle(false, true)
        });
        let released = cycles.map(|conclusion| conclusion.finalizer.is_some());
        assert_eq!(released, [false, false, reason == "delete"]);
    }
}

#[test]
fn in_compatibility_mode_a_change_between_two_handlers_is_absorbed() {
    let mut scene = Scene::new(true);
    scene.cycle(false, true);
    scene.set(2);
    scene.settle_with(2);
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=2"]);
}

#[test]
fn a_change_reverted_between_two_handlers_calls_the_first_one_again() {
    for restarts in [false, true] {
        let mut scene = Scene::handled();
        scene.set(2);
        scene.cycle(false, true);
        scene.restart_if(restarts);
        scene.set(1);
        scene.settle_with(1);
        assert_eq!(scene.calls, ["u001 x=2", "u001 x=1", "u0002 x=1"]);
    }
}

#[test]
fn a_change_after_a_reversal_that_is_written_late_calls_all_handlers() {
    let mut scene = Scene::handled();
    scene.set(2);
    scene.cycle(false, true);
    scene.set(1);
    scene.cycle(false, false);
    // It is written by a cycle that calls no handler.
    scene.view_age = ViewAge::Unknown;
    scene.cycle(false, true);
    scene.view_age = ViewAge::Consistent;
    scene.set(3);
    scene.settle_with(3);
    assert_eq!(scene.calls, ["u001 x=2", "u001 x=1", "u0002 x=3", "u001 x=3", "u0002 x=3"]);
}

/// The first handler was called with 2, the last one with 3, and then the value is 2 again.
fn the_last_handler_observed_a_newer_essence() -> Scene {
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
fn a_reverted_change_that_only_the_last_handler_observed_calls_all_handlers() {
    for restarts in [false, true] {
        let mut scene = the_last_handler_observed_a_newer_essence();
        scene.restart_if(restarts);
        scene.settle_with(2);
        assert_eq!(scene.calls[2..], ["u001 x=2", "u0002 x=2"]);
    }
}

#[test]
fn a_lasting_change_that_only_the_last_handler_observed_calls_all_handlers() {
    for restarts in [false, true] {
        let mut scene = the_last_handler_observed_a_newer_essence();
        scene.set(3);
        scene.restart_if(restarts);
        scene.settle_with(3);
        assert_eq!(scene.calls[2..], ["u001 x=3", "u0002 x=3"]);
    }
}

#[test]
fn a_reverted_change_that_only_the_middle_handler_observed_calls_all_handlers() {
    for restarts in [false, true] {
        let mut scene = Scene::of(false, &[("u001", "update"), ("u0002", "update"), ("u00003", "update")]);
        scene.settle();
        for x in [2, 3, 2] {
            scene.set(x);
            scene.cycle(false, true);
            scene.restart_if(restarts);
        }
        scene.settle_with(2);
        assert_eq!(scene.calls[..3], ["u001 x=2", "u0002 x=3", "u00003 x=2"]);
        assert_eq!(scene.calls[3..], ["u001 x=2", "u0002 x=2", "u00003 x=2"]);
    }
}

#[test]
fn a_reversal_whose_restart_could_not_be_written_is_handled_once() {
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
fn a_reversal_is_handled_even_if_the_diffbase_is_removed() {
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
fn removed_progress_is_restored_from_memory() {
    let mut scene = Scene::new(false);
    scene.cycle(false, true);
    scene.object["metadata"]["managedFields"] = json!([
        {"manager": "kopf", "time": "2026-01-01T00:00:00Z"}, {"manager": "vandal", "time": "2026-01-02T00:00:00Z"},
    ]);
    scene.strip();
    scene.settle();
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=1"]);
    assert_eq!(scene.warnings(), 1);
    assert!(scene.log.contains(&LogMessage::Stripped(Some("vandal".to_owned()))));
}

#[test]
fn a_removed_diffbase_is_known_and_is_written_again_when_the_object_is_idle() {
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
    // From now on, the whole diff-base is kept in memory.
    scene.strip();
    scene.set(2);
    scene.settle();
    assert_eq!(scene.calls[2..], ["u001 x=2", "u0002 x=2"]);
}

#[test]
fn after_a_takeover_the_object_is_authoritative() {
    let mut scene = Scene::new(false);
    scene.settle();
    scene.strip();
    scene.memory.invalidate();
    scene.settle();
    assert_eq!(scene.calls.len(), 4);
}

#[test]
fn a_diffbase_that_is_removed_during_an_update_is_known() {
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
fn progress_written_by_a_previous_operator_is_known_after_its_removal() {
    let mut scene = Scene::of(false, &[("u001", "update"), ("u0002", "update"), ("u00003", "update")]);
    scene.settle();
    scene.set(2);
    scene.cycle(false, true);
    scene.restart();
    scene.cycle(false, true);
    scene.strip();
    scene.settle();
    assert_eq!(scene.calls, ["u001 x=2", "u0002 x=2", "u00003 x=2"]);
}

#[test]
fn an_object_without_annotations_stays_new_even_if_it_reverts() {
    let mut scene = Scene::handled();
    scene.strip();
    scene.set(2);
    scene.cycle(false, true);
    scene.set(1);
    scene.settle_with(1);
    assert_eq!(scene.calls, ["c1 x=2", "c02 x=1", "u001 x=1", "u0002 x=1"]);
}

#[test]
fn a_change_that_is_reverted_and_repeated_is_not_missed() {
    for restarts in [false, true] {
        let mut scene = Scene::handled();
        scene.set(2);
        scene.cycle(false, true);
        scene.set(1);
        scene.fails = Some(0.0);
        scene.cycle(false, true);
        scene.fails = None;
        scene.restart_if(restarts);
        scene.set(2);
        scene.settle_with(2);
        assert_eq!(scene.calls, ["u001 x=2", "u001 x=1", "u001 x=2", "u0002 x=2"]);
    }
}

#[test]
fn a_state_from_before_our_write_causes_no_reversal_but_another_cycle() {
    let mut scene = Scene::handled();
    scene.set(2);
    scene.cycle(false, true);
    scene.set(1);
    scene.view_age = ViewAge::Unknown;
    let conclusion = scene.cycle(true, true);
    assert_eq!((conclusion.patch.is_empty(), conclusion.delay), (true, Some(5.0)));
    // The state was outdated: the current one has the same value as before.
    scene.view_age = ViewAge::Consistent;
    scene.set(2);
    scene.settle();
    assert_eq!(scene.calls, ["u001 x=2", "u0002 x=2"]);
}

#[test]
fn the_last_observed_essence_is_restored_with_the_progress() {
    let mut scene = Scene::new(false);
    scene.cycle(false, true);
    scene.set(2);
    // The creation is completed, and the first update handler has succeeded.
    scene.cycle(false, true);
    scene.cycle(false, true);
    scene.fails = Some(60.0);
    scene.cycle(false, true);
    scene.fails = None;
    scene.strip();
    scene.cycle(true, true);
    scene.restart();
    scene.now = scene.now.plus(60.0);
    scene.set(1);
    scene.settle_with(1);
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=2", "u001 x=2", "u0002 x=2", "u001 x=1", "u0002 x=1"]);
}

fn status(value: Value) -> Map<String, Value> {
    std::iter::once(("status".to_owned(), value)).collect()
}

impl Scene {
    /// The API server rejects this part of a patch; the other part is written.
    fn reject(&mut self, rejected: Map<String, Value>) -> Option<f64> {
        let settings = Arc::clone(&self.config.settings);
        self.memory.rejected(rejected, self.now, &settings)
    }
}

#[test]
fn a_rejected_part_waits_for_its_delay_or_for_the_next_patch() {
    let mut scene = Scene::handled();
    let rejected = status(json!({"c1": 1}));
    assert_eq!(scene.reject(rejected.clone()), Some(1.0));
    let idle = scene.cycle(false, true);
    assert!(idle.rejected_patch.is_none() && idle.patch.is_empty());
    assert_eq!(idle.delay, Some(1.0));
    scene.now = scene.now.plus(1.0);
    assert_eq!(scene.cycle(true, true).rejected_patch.unwrap().0, rejected);
    assert_eq!(scene.reject(rejected.clone()), Some(2.0));
    scene.set(2);
    let written = scene.cycle(false, true);
    assert!(!written.patch.is_empty() && !written.patch.0.contains_key("status"));
    assert_eq!(written.rejected_patch.unwrap().0, rejected);
}

#[test]
fn a_rejected_status_is_visible_to_handlers() {
    let mut scene = Scene::handled();
    scene.reject(status(json!({"c1": 1})));
    let object = Arc::new(Object::decode(&scene.object.to_string()).unwrap());
    let amended = scene
        .memory
        .overlay(&object, ViewAge::Consistent, &scene.config.settings, &scene.handlers, &mut None)
        .unwrap();
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
    assert!(conclusion.rejected_patch.is_none() && conclusion.delay.is_none());
}

#[test]
fn rejected_parts_are_not_kept_in_compatibility_mode() {
    let mut scene = Scene::new(true);
    let settings = Arc::clone(&scene.config.settings);
    assert_eq!(scene.memory.rejected(status(json!({"c1": 1})), scene.now, &settings), None);
    assert_eq!(scene.memory.pending_state, None);
}

#[test]
fn the_patch_of_the_first_handler_causes_no_update() {
    for (restarts, written) in [(false, true), (true, true), (false, false)] {
        let mut scene = Scene::new(false);
        scene.patches.insert("c1", json!({"spec": {"own": 1}, "metadata": {"labels": {"own": "yes"}}}));
        scene.patches.insert("u001", json!({"spec": {"own": 2}}));
        scene.cycle(false, written);
        scene.restart_if(restarts);
        scene.settle_with(1);
        assert_eq!(scene.calls, ["c1 x=1", "c02 x=1"]);
        scene.set(2);
        scene.cycle(false, written);
        scene.restart_if(restarts);
        scene.settle_with(2);
        assert_eq!(scene.calls[2..], ["u001 x=2", "u0002 x=2"]);
    }
}

#[test]
fn a_concurrent_change_by_others_is_an_update_with_their_change_only() {
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
fn a_write_of_a_handler_with_another_client_causes_no_update() {
    for written in [true, false] {
        let mut scene = Scene::new(false);
        scene.writes.insert("c1", ("OpenAPI-Generator", json!({"spec": {"own": 1}})));
        scene.cycle(false, written);
        scene.settle_with(1);
        assert_eq!(scene.calls, ["c1 x=1", "c02 x=1"]);
    }
}

#[test]
fn a_change_by_others_while_a_handler_runs_is_an_update() {
    let mut scene = Scene::new(false);
    scene.writes.insert("c1", ("kubectl-edit", json!({"spec": {"own": 1}})));
    scene.cycle(false, true);
    scene.settle_with(1);
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=1", "u001 x=1", "u0002 x=1"]);
}

#[test]
fn a_write_of_a_daemon_between_two_handlers_causes_no_update() {
    let mut scene = Scene::new(false);
    scene.cycle(false, true);
    let Value::Object(patch) = json!({"spec": {"own": 1}}) else { panic!() };
    apply_merge(&mut scene.object, &patch);
    let latest = Object::decode(&scene.object.to_string()).unwrap();
    let accepted = Accepted { patch: &patch, latest: Some(&latest) };
    scene.memory.record_daemon_write(accepted, &scene.config.settings, &scene.handlers);
    scene.settle_with(1);
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=1"]);
}

#[test]
fn an_object_held_by_a_finalizer_of_others_is_not_handled_after_the_release() {
    let mut scene = Scene::of(false, &[("d1", "delete")]);
    scene.object["metadata"]["finalizers"] =
        json!(["kopf.zalando.org/KopfFinalizerMarker", "example.com/other"]);
    scene.object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    scene.patches.insert("d1", json!({"metadata": {"annotations": {"bye": "1"}}}));
    let conclusion = scene.cycle(false, true);
    assert_eq!((scene.calls.len(), conclusion.finalizer.is_some()), (1, true));
    // The finalizer and the progress are removed by one request.
    let object = Object::decode(&scene.object.to_string()).unwrap();
    let stale = stale_progress(&object, &scene.config.settings.persistence, &scene.handlers);
    assert!(!stale.is_empty());
    apply_merge(&mut scene.object, &stale.0);
    scene.object["metadata"]["finalizers"] = json!(["example.com/other"]);
    let conclusion = scene.cycle(true, true);
    assert!(conclusion.patch.is_empty() && conclusion.delay.is_none());
    assert_eq!((scene.calls.len(), scene.warnings()), (1, 0));
}

#[test]
fn rejected_fields_are_not_in_the_diffbase() {
    let scene = Scene::handled();
    let object = Object::decode(&scene.object.to_string()).unwrap();
    let persistence = &scene.config.settings.persistence;
    let rejected = json!({"spec": {"strict": "x"}, "status": {"c1": 1}});
    let mut patch = Patch::default();
    let predicted = json!({"spec": {"x": 1, "strict": "x", "other": 2}});
    persistence.diffbase_storage.store(&object, &mut patch, &predicted);
    let own = without_rejected(patch.0, rejected.as_object().unwrap(), &object, persistence, &scene.handlers);
    let written = Object::decode(&Value::Object(own).to_string()).unwrap();
    let base = persistence.diffbase_storage.fetch(&written).unwrap();
    assert_eq!(base, Some(json!({"spec": {"x": 1, "other": 2}})));
}
