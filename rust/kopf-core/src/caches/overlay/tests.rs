//! Tables of the rules W1–W6.

use super::*;

fn at(seconds: f64) -> Timestamp {
    Timestamp::from_micros(0).plus(seconds)
}

fn state(uid: &str, version: &str) -> Version<()> {
    Version { uid: uid.into(), version: version.into(), body: () }
}

/// The object with version 5 of the uid `a`, while a write is being sent.
fn writing() -> CachedObject<()> {
    let mut object = CachedObject::default();
    object.deliver(state("a", "5"));
    object.start_write();
    object
}

fn respond(object: &mut CachedObject<()>, response: WriteResponse<()>) {
    object.finish_write(response, ListId(1), 5.0, at(0.0));
}

fn written(version: &str) -> CachedObject<()> {
    let mut object = writing();
    respond(&mut object, WriteResponse::Written(state("a", version)));
    object
}

fn shown(object: &CachedObject<()>) -> Option<&str> {
    object.read().map(|state| &*state.version)
}

/// Whether nothing is known of the object, so that it can be forgotten.
fn is_unknown(object: &CachedObject<()>) -> bool {
    object.is_undelivered() && object.is_settled()
}

#[test]
fn w1_the_response_is_shown_until_w2_its_event_or_a_later_one() {
    for event in ["7", "8", "10"] {
        let mut object = written("7");
        assert_eq!((shown(&object), object.deadline()), (Some("7"), Some(at(5.0))));
        object.deliver(state("a", "6"));
        assert_eq!(shown(&object), Some("7"), "s2.7.5: never a state before the own write");
        object.deliver(state("a", event));
        assert_eq!((shown(&object), object.deadline()), (Some(event), None));
    }
}

#[test]
fn w2_a_deletion_a_later_list_and_the_timeout_end_it() {
    let mut object = written("7");
    object.deliver_deletion("a");
    assert_eq!(shown(&object), None);
    let mut object = written("7");
    object.deliver_list(Some(state("a", "6")), ListId(1), "6");
    assert_eq!(shown(&object), Some("7"), "the list has started before the response");
    object.deliver_list(None, ListId(2), "6");
    assert_eq!((shown(&object), is_unknown(&object)), (None, true));
    let mut object = written("7");
    object.deliver_list(None, ListId(1), "8");
    assert_eq!(shown(&object), None, "the list has a later version");
    let mut object = written("7");
    assert!(!object.expire(at(4.9)) && object.expire(at(5.0)));
    assert_eq!(shown(&object), Some("5"));
}

#[test]
fn w2_versions_that_are_not_numbers_are_equal_or_not() {
    let mut object = written("x");
    object.deliver(state("a", "y"));
    assert_eq!(shown(&object), Some("x"));
    object.deliver(state("a", "x"));
    object.deliver(state("a", "z"));
    assert_eq!(shown(&object), Some("z"));
}

#[test]
fn w2_the_deletion_of_a_former_object_of_the_name_does_not_count() {
    let mut object = CachedObject::default();
    object.deliver(state("a", "5"));
    object.start_write();
    respond(&mut object, WriteResponse::Written(state("b", "7")));
    object.deliver_deletion("a");
    assert_eq!(shown(&object), Some("7"));
}

#[test]
fn w3_no_overlay_after_its_event_or_without_a_change() {
    let mut object = writing();
    object.deliver(state("a", "7"));
    respond(&mut object, WriteResponse::Written(state("a", "7")));
    assert_eq!(object.deadline(), None);
    assert_eq!(written("5").deadline(), None, "nothing has changed");
    let mut object = writing();
    object.deliver(state("a", "x"));
    object.deliver(state("a", "y"));
    respond(&mut object, WriteResponse::Written(state("a", "x")));
    assert_eq!(shown(&object), Some("y"), "versions that are not numbers are remembered");
    let mut object = writing();
    object.deliver(state("a", "7"));
    object.deliver_deletion("a");
    respond(&mut object, WriteResponse::Written(state("a", "7")));
    assert_eq!(shown(&object), None, "the object was deleted meanwhile");
}

#[test]
fn responses_may_arrive_in_another_order_than_their_writes() {
    let mut object = writing();
    object.start_write();
    respond(&mut object, WriteResponse::Written(state("a", "8")));
    respond(&mut object, WriteResponse::Written(state("a", "7")));
    assert_eq!(shown(&object), Some("8"));
}

#[test]
fn w4_a_deleted_object_is_absent_until_its_deletion_is_delivered() {
    let mut object = writing();
    respond(&mut object, WriteResponse::Gone("a".into()));
    assert_eq!(shown(&object), None);
    object.deliver(state("a", "6"));
    assert_eq!(shown(&object), None, "an earlier state");
    object.deliver_deletion("a");
    assert!(is_unknown(&object));
    let mut object = writing();
    respond(&mut object, WriteResponse::Gone("a".into()));
    object.deliver(state("b", "9"));
    assert_eq!(shown(&object), Some("9"), "another object of the name");
    let mut object = writing();
    object.deliver_deletion("a");
    respond(&mut object, WriteResponse::Gone("a".into()));
    assert!(is_unknown(&object));
    // The deleted object was not delivered yet: a former object of the name is not shown again.
    let mut object = writing();
    respond(&mut object, WriteResponse::Gone("b".into()));
    object.deliver(state("a", "6"));
    object.deliver_deletion("a");
    object.deliver(state("b", "7"));
    assert_eq!(shown(&object), None);
    object.deliver_deletion("b");
    assert!(is_unknown(&object));
}

#[test]
fn w6_no_overlay_without_a_response_but_w5_waits() {
    let mut object = writing();
    respond(&mut object, WriteResponse::Without);
    assert_eq!((shown(&object), object.deadline()), (Some("5"), None));
    let mut object = writing();
    respond(&mut object, WriteResponse::Uncertain);
    assert_eq!((shown(&object), object.deadline()), (Some("5"), Some(at(5.0))));
    object.deliver(state("a", "6"));
    object.deliver_list(Some(state("a", "6")), ListId(1), "6");
    assert_eq!(object.deadline(), Some(at(5.0)));
    let mut other = object.clone();
    object.deliver_list(Some(state("a", "6")), ListId(2), "6");
    assert_eq!(object.deadline(), None);
    other.expire(at(5.0));
    assert_eq!(other.deadline(), None);
}
