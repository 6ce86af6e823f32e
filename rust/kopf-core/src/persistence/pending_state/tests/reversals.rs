//! Fields that are reverted during a handling, while other fields change.

use super::*;

/// A scene with a handler of each of these fields, between two handlers of all changes. They were called for the creation.
fn with_handlers_of(fields: &[&str]) -> Scene {
    let of_field = |(index, field): (usize, &&str)| json!({"id": format!("{field}{:0>1$}", 0, index + 1), "field": ["spec", field], "field_needs_change": true});
    let mut handlers = vec![json!({"id": "u", "reason": "update"})];
    handlers.extend(fields.iter().enumerate().map(of_field));
    handlers.push(json!({"id": "last-u", "reason": "update"}));
    let mut scene = Scene::declared(false, handlers);
    scene.settle();
    scene.calls.clear();
    scene
}

#[test]
fn a_handler_is_called_for_the_reversal_of_its_field_although_another_field_has_changed() {
    for restarts in [false, true] {
        let mut scene = with_handlers_of(&["x"]);
        for spec in [json!({"x": 1, "y": 1}), json!({"x": 2, "y": 1}), json!({"x": 1, "y": 2})] {
            scene.object["spec"] = spec;
            scene.cycle(false, true);
            scene.restart_if(restarts);
        }
        assert_eq!(scene.calls, ["u x=1", "x0 x=2", "last-u x=1"]);
        scene.settle_with(1);
        assert_eq!(scene.calls[3..], ["u x=1", "x0 x=1", "last-u x=1"], "{restarts}");
    }
}

#[test]
fn handlers_are_called_for_the_reversals_of_several_fields() {
    for restarts in [false, true] {
        let mut scene = with_handlers_of(&["x", "y"]);
        for spec in [
            json!({"x": 1, "y": 1, "z": 1}),
            json!({"x": 2, "y": 1, "z": 1}),
            json!({"x": 1, "y": 2, "z": 1}),
            json!({"x": 1, "y": 1, "z": 2}),
        ] {
            scene.object["spec"] = spec;
            scene.cycle(false, true);
            scene.restart_if(restarts);
        }
        assert_eq!(scene.calls, ["u x=1", "x0 x=2", "y00 x=1", "last-u x=1"]);
        scene.settle_with(1);
        assert_eq!(scene.calls[4..], ["u x=1", "x0 x=1", "y00 x=1", "last-u x=1"], "{restarts}");
    }
}
