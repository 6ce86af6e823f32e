//! Crashes between the requests of one patch: the progress is in the status, and the diff-base in an annotation.

use super::super::super::merge_requests::merge_requests;
use super::*;

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

/// An object whose creation is handled, with update handlers that are called one by one.
fn handled(ids: &[&'static str]) -> Scene {
    let handlers: Vec<_> = ids.iter().map(|id| (*id, "update")).collect();
    let mut scene = Scene::of(false, &handlers).with_progress_in_the_status();
    scene.settle();
    scene
}

#[test]
fn outcomes_of_a_completed_handling_are_not_taken_for_those_of_the_next_one() {
    for has_result in [true, false] {
        for count in 0..=3 {
            let mut scene = handled(&["u001"]);
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
    let mut scene = handled(&["u001"]);
    scene.set(2);
    scene.fails = Some(0.0);
    scene.cycle(false, true);
    scene.fails = None;
    scene.crash_after(2);
    scene.set(3);
    scene.fails = Some(0.0);
    scene.cycle(false, true);
    scene.cycle(false, true);
    assert_eq!(scene.object["status"]["progress"]["u001"]["retries"], json!(1));
}

#[test]
fn the_last_observed_essence_is_not_written_before_the_diffbase() {
    for count in 0..=3 {
        for next in [2, 3, 4] {
            let mut scene = handled(&["u001", "u0002"]);
            scene.set(2);
            scene.cycle(false, true);
            scene.set(3);
            scene.crash_after(count);
            let calls = scene.calls.len();
            scene.set(next);
            scene.settle_completely(next, &["u001", "u0002"]);
            let again = scene.calls[calls..].iter().filter(|call| *call == "u0002 x=3").count();
            assert!(count == 0 || next != 3 || again == 1, "{count}: {:?}", scene.calls);
        }
    }
}

#[test]
fn a_reversal_is_known_after_a_crash_between_its_requests() {
    // An attempt with 1 that is not written counts as not made: then 2 is the last observed value.
    for (count, values) in [(0, vec![1, 3]), (1, vec![1, 3]), (2, vec![1, 2, 3])] {
        for next in values {
            let mut scene = handled(&["u001", "u0002"]);
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
