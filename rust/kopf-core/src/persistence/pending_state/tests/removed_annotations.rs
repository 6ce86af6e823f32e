//! Pauses and crashes while another client removes annotations.

use super::*;

#[test]
fn a_cycle_that_runs_on_through_a_pause_keeps_the_progress_that_it_knows() {
    let mut scene = Scene::of(false, &[("u1", "update"), ("u02", "update"), ("u003", "update")]);
    scene.settle();
    scene.set(2);
    scene.cycle(false, true);
    scene.is_paused_and_stripped = true;
    scene.cycle(false, true);
    scene.settle_with(2);
    assert_eq!(scene.calls, ["u1 x=2", "u02 x=2", "u003 x=2"]);
}

#[test]
fn a_completed_handling_is_recognised_if_progress_of_the_creation_is_left() {
    let handlers = [("c1", "create"), ("c02", "create"), ("u001", "update"), ("u0002", "update")];
    let mut scene = Scene::of(false, &handlers).with_progress_in_the_status();
    // The object was reverted from 2 to 1 when only u001 had observed 2, which is the diff-base by now. The progress is not removed,
    // and that of the creation was restored after another client had removed the diff-base.
    scene.object["metadata"]["annotations"] = json!({LAST: "{\"spec\":{\"x\":2}}\n"});
    scene.object["status"]["progress"] = json!({
        "c1": {"purpose": "create", "retries": 1, "success": true},
        "c02": {"retries": 0, "seen": r#"{"spec":{"x":1}}"#},
        "u001": {"purpose": "update", "retries": 1, "success": true, "seen": r#"{"spec":{"x":2}}"#},
        "u0002": {"purpose": "update", "retries": 0},
    });
    scene.settle_completely(1, &["u001", "u0002"]);
}
