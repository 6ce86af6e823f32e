//! Crashes between the requests of one patch, if the progress and the diff-base are written by different requests.

use super::super::super::merge_requests::merge_requests;
use super::*;
use crate::cycle::Decision;

impl Scene {
    /// One cycle, of which only the first requests are written before the operator crashes. Returns their total number.
    fn crash_after(&mut self, count: usize) -> usize {
        let object = Object::decode(&self.object.to_string()).unwrap();
        let decision = self.cycle(false, false);
        let persistence = &self.rules.settings.persistence;
        let requests = merge_requests(&object, &decision.patch.0, &decision.outcomes.0, persistence);
        for request in requests.iter().take(count) {
            apply_merge(&mut self.object, &request.patch);
        }
        self.restart();
        requests.len()
    }

    /// Settles, and checks that all update handlers were called with the present value last.
    fn settle_completely(&mut self, x: u8, ids: &[&str]) {
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
        let storage = &scene.rules.settings.persistence.progress_storage;
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
    // An attempt with 1 that is not written counts as not made: then 2 is the last observed value.
    let cases = [(0, 1), (0, 3), (1, 1), (1, 3), (2, 1), (2, 2), (2, 3)];
    for (layout, (count, next)) in LAYOUTS.into_iter().flat_map(|layout| cases.map(|case| (layout, case))) {
        let mut scene = handled(layout, &["u001", "u0002"]);
        scene.set(2);
        scene.cycle(false, true);
        // The first handler has observed 2; the object reverts to 1.
        scene.set(1);
        scene.fails = Some(0.0);
        assert_eq!(scene.crash_after(count), 2);
        scene.fails = None;
        scene.set(next);
        scene.settle_completely(next, &["u001"]);
    }
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
    let persistence = &scene.rules.settings.persistence;
    let requests =
        |decision: &Decision| merge_requests(&before, &decision.patch.0, &decision.outcomes.0, persistence);
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
