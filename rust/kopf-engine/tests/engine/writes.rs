//! Writes that are refused, or overtaken by somebody else's.

use kopf_apiserver::{Fault, Injection};
use serde_json::json;

use crate::world::{World, handler};

#[tokio::test]
async fn a_release_that_is_outrun_does_not_call_the_deletion_handlers_again() {
    let mut world = World::new().await;
    world.serve(vec![handler("clean", "delete")], |_| {}).await;
    world.create("contended", json!({})).await;
    world.settle().await;
    world.stage.hold();
    world.delete("contended").await;
    world.until("the deletion", |world| world.stage.held() == 1).await;
    world.patch("contended", json!({"metadata": {"labels": {"somebody": "was-here"}}})).await;
    world.settle().await;
    world.stage.release();
    world.settle().await;
    world.pass(20.0).await;
    assert!(world.find("contended").await.is_none(), "it is let go nevertheless");
    assert_eq!(world.stage.called(0), 1);
}

#[tokio::test]
async fn refused_writes_are_repeated_with_growing_pauses() {
    let mut world = World::new().await;
    world.serve(vec![handler("make", "create")], |_| {}).await;
    let injection = Injection::always(Fault::Conflict).on_verb("patch").on_resource("widgets").times(4);
    world.server.faults().inject(injection);
    let start = tokio::time::Instant::now();
    world.create("refused", json!({})).await;
    world.pass_until("the last attempt", 0.1, 60.0, |world| world.stage.called(0) >= 5).await;
    world.settle().await;
    assert!(world.is_handled("refused").await);
    let seconds = start.elapsed().as_secs_f64();
    assert!((6.9..9.0).contains(&seconds), "1 + 1 + 2 + 3 seconds are usual, not {seconds}");
}
