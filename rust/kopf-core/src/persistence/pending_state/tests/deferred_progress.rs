//! The diff-base in a status that the API server rejects, and the progress that stays on the object until it is written.

use super::*;
use crate::json::path::FieldPath;

const CREATED: [&str; 2] = ["kopf.zalando.org/c1", "kopf.zalando.org/c02"];

/// An object whose creation is handled, but the status with the diff-base is rejected.
fn rejected() -> Scene {
    let mut scene = Scene::new(false).with_diffbase_in_the_status();
    scene.rejects_status = true;
    scene.cycle(false, true);
    scene.cycle(false, true);
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=1"]);
    scene
}

#[test]
fn a_rejected_status_does_not_block_the_next_handling() {
    let mut scene = rejected();
    assert!(scene.cycle(false, true).patch.is_empty());
    scene.set(2);
    for _ in 0..3 {
        scene.cycle(false, true);
    }
    assert_eq!(scene.calls[2..], ["u001 x=2", "u0002 x=2"], "the creation is over");
    assert!(scene.cycle(false, true).patch.is_empty());
}

#[test]
fn only_the_last_handler_is_called_again_after_a_crash_before_the_status_is_accepted() {
    let mut scene = rejected();
    scene.restart();
    scene.rejects_status = false;
    scene.settle_with(1);
    assert_eq!(scene.calls[2..], ["c02 x=1"], "its outcome was never on the object");
}

#[test]
fn the_progress_is_removed_with_the_diffbase() {
    let mut scene = rejected();
    scene.now = scene.now.plus(1.0);
    let due = scene.cycle(true, true).rejected_patch.unwrap();
    let annotations = due.0["metadata"]["annotations"].as_object().unwrap();
    assert!(CREATED.iter().all(|key| annotations[*key].is_null()) && due.0["status"]["base"].is_string());
    scene.accept(&due.0);
    assert_eq!(scene.memory.pending_state, None);
    scene.settle_with(1);
    assert_eq!(scene.calls.len(), 2);
}

#[test]
fn progress_of_the_next_handling_is_not_taken_for_that_which_is_to_be_removed() {
    let mut scene = Scene::of(false, &[("h", "create"), ("h", "update")]).with_diffbase_in_the_status();
    scene.rejects_status = true;
    scene.fails = Some(0.0);
    scene.cycle(false, true);
    scene.fails = None;
    scene.cycle(true, true);
    let kept = &scene.object["metadata"]["annotations"]["kopf.zalando.org/h"];
    assert!(kept.is_string(), "{}", scene.object);
    scene.set(2);
    scene.fails = Some(10.0);
    // The response to this write is lost.
    let written = scene.cycle(false, false);
    apply_merge(&mut scene.object, &written.patch.0);
    let called = scene.calls.clone();
    assert_eq!(called.last().unwrap(), "h x=2");
    let next = scene.cycle(true, true);
    assert_eq!(scene.calls, called, "the retry is not due");
    let rejected = next.rejected_patch.map_or_else(Map::new, |patch| patch.0);
    assert!(!rejected.contains_key("metadata"), "{rejected:?}");
    scene.fails = None;
    scene.now = scene.now.plus(10.0);
    scene.rejects_status = false;
    scene.settle_with(2);
    assert_eq!(scene.calls.len(), called.len() + 1);
}

#[test]
fn progress_that_the_server_does_not_store_is_no_change_by_another_client() {
    for is_pruned in [true, false] {
        let mut scene = Scene::new(false).with_progress_in_the_status();
        scene.prunes_progress = is_pruned;
        scene.cycle(false, true);
        if !is_pruned {
            scene.object.as_object_mut().unwrap().shift_remove("status");
        }
        scene.cycle(false, true);
        let pruned = LogMessage::Pruned(FieldPath::from_keys(["status", "progress"]));
        assert_eq!((scene.log.contains(&pruned), scene.warnings()), (is_pruned, usize::from(!is_pruned)));
        scene.cycle(false, true);
        assert_eq!(scene.calls, ["c1 x=1", "c02 x=1"]);
    }
}

#[test]
fn progress_in_the_status_is_known_if_only_the_response_to_its_write_was_lost() {
    let handlers = [("c1", "create"), ("c02", "create"), ("c003", "create")];
    let mut scene = Scene::of(false, &handlers).with_progress_in_the_status();
    scene.cycle(false, true);
    scene.rejects_status = true;
    scene.cycle(false, true);
    scene.rejects_status = false;
    let lost = scene.memory.pending_state.as_ref().unwrap().rejected_patch().patch().clone();
    assert!(!lost.is_empty());
    apply_merge(&mut scene.object, &lost);
    scene.settle_with(1);
    assert_eq!(scene.calls, ["c1 x=1", "c02 x=1", "c003 x=1"]);
}
