//! Progress that another operator replaces between two cycles.

use super::scene::Scene;
use crate::activation::log::LogMessage;
use crate::persistence::foreign_write::ForeignWrite;
use crate::time::Timestamp;
use serde_json::json;

const RECORD: &str = "kopf.zalando.org/c1";

/// An object whose first handler has finished at second 10, and its next cycle with a record that began at this second.
fn replaced_at(second: f64, prepare: impl FnOnce(&mut Scene)) -> Scene {
    let mut scene = Scene::new(false);
    scene.now = Timestamp::from_micros(0).plus(10.0);
    scene.cycle(false, true);
    assert_eq!(scene.calls.len(), 1);
    let started = Timestamp::from_micros(0).plus(second).to_string();
    let record = json!({"started": started, "purpose": "create", "retries": 1, "success": false});
    scene.object["metadata"]["annotations"][RECORD] = json!(record.to_string());
    prepare(&mut scene);
    scene.cycle(false, true);
    scene
}

fn recognised(scene: &Scene) -> Vec<&ForeignWrite> {
    let writes = scene.log.iter().filter_map(|message| match message {
        LogMessage::AnotherOperator(write) => Some(write),
        _ => None,
    });
    writes.collect()
}

#[test]
fn younger_progress_is_from_another_operator() {
    let scene = replaced_at(10.5, |_| {});
    assert_eq!(recognised(&scene), [&ForeignWrite::Progress("c1".into())]);
    assert_eq!(scene.warnings(), 0, "one warning is enough");
    let calls: Vec<_> = scene.calls.iter().map(|call| &call[..3]).collect();
    assert_eq!(calls, ["c1 ", "c02"], "finished handlers are not called again");
}

#[test]
fn older_or_unknown_progress_can_be_ours() {
    let older = replaced_at(9.5, |_| {});
    assert_eq!((recognised(&older).len(), older.warnings()), (0, 1));
    let same = replaced_at(10.0, |_| {});
    assert_eq!(recognised(&same).len(), 0, "the progress of the same handling");
    let unknown = replaced_at(10.5, |scene| scene.memory.has_unknown_writes = true);
    assert_eq!((recognised(&unknown).len(), unknown.warnings()), (0, 1));
}

#[test]
fn progress_that_users_have_edited_is_theirs() {
    let scene = replaced_at(10.5, |scene| {
        let fields = json!({"f:metadata": {"f:annotations": {format!("f:{RECORD}"): {}}}});
        scene.object["metadata"]["managedFields"] = json!([{"manager": "kubectl-edit", "fieldsV1": fields}]);
    });
    assert_eq!((recognised(&scene).len(), scene.warnings()), (0, 1));
}

#[test]
fn progress_of_the_previous_operator_is_continued() {
    let scene = replaced_at(10.5, Scene::restart);
    assert_eq!((recognised(&scene).len(), scene.warnings()), (0, 0));
}
