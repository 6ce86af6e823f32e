//! Diff-bases that are too large for an annotation.

use super::*;
use crate::persistence::essence::{Comparison, compare};

#[test]
fn rejected_fields_are_not_in_a_condensed_diffbase() {
    let mut scene = Scene::handled();
    scene.object["spec"] = json!({"x": 1, "size": 1, "blob": "y".repeat(300_000)});
    let object = Object::decode(&scene.object.to_string()).unwrap();
    let persistence = &scene.config.settings.persistence;
    let mut own = Patch::default();
    persistence.diffbase_storage.store(&object, &mut own, &essence(&object, persistence, &[]));
    let rejected = Map::from_iter([("spec".to_owned(), json!({"size": -1}))]);
    let own = without_rejected(own.0, &rejected, &object, persistence, &scene.handlers);
    apply_merge(&mut scene.object, &own);
    let written = Object::decode(&scene.object.to_string()).unwrap();
    assert_eq!(compare(&written, persistence, &[]), Ok(Comparison::Same));
}
