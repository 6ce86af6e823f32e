//! Objects whose deletion event is late: the operator learns of the deletion by a write, and older states are still to be handled.

use kopf_apiserver::{Fault, Injection};
use kopf_core::handling::attempt::CallResult;
use serde_json::json;

use crate::fixture::{Fixture, handler};

/// Seconds that are longer than the consistency timeout.
const LATE: f64 = 30.0;

impl Fixture {
    /// Deletes an object whose handler is held, and ends the handler. The operator receives the deletion event later.
    async fn delete_unnoticed(&mut self, name: &str) {
        self.server.faults().inject(Injection::always(Fault::Silence).on_resource("widgets"));
        self.delete(name).await;
        self.host.release();
        self.settle().await;
        let codes: Vec<_> = self.asked("patch").iter().map(|entry| entry.code).collect();
        assert_eq!(codes.last(), Some(&404), "the write finds no object: {codes:?}");
    }

    /// The deletion event arrives at last.
    async fn notice_deletion(&self) {
        self.server.faults().clear();
        self.server.faults().cut_watches("widgets");
        self.pass_until("the deletion", 0.5, 60.0, |fixture| fixture.host.forgotten() == 1).await;
    }
}

#[tokio::test]
async fn no_handler_is_called_again_for_an_older_state_of_a_deleted_object() {
    let mut fixture = Fixture::new().await;
    fixture.serve(vec![handler("make", "create"), handler("change", "update")], |_| {}).await;
    fixture.host.hold();
    fixture.create("one", json!({"x": 1})).await;
    fixture.until("the call", |fixture| fixture.host.held() == 1).await;
    // This state waits until the handler has ended.
    fixture.patch("one", json!({"spec": {"x": 2}})).await;
    fixture.settle().await;
    fixture.delete_unnoticed("one").await;
    fixture.pass(LATE).await;
    assert_eq!(fixture.host.calls().len(), 1, "{:?}", fixture.host.calls());
    fixture.notice_deletion().await;
    assert_eq!(fixture.host.calls().len(), 1, "{:?}", fixture.host.calls());
    assert_eq!(fixture.asked("patch").len(), 1, "nothing else is written");
}

#[tokio::test]
async fn no_handler_is_called_for_an_older_state_that_arrives_shortly_before_the_deletion() {
    let mut fixture = Fixture::new().await;
    fixture.host.let_raise(0, [CallResult::Temporary { message: "later".to_owned(), delay: Some(2.0) }]);
    fixture.serve(vec![handler("make", "create"), handler("change", "update")], |_| {}).await;
    fixture.host.hold();
    fixture.create("one", json!({"x": 1})).await;
    fixture.until("the call", |fixture| fixture.host.held() == 1).await;
    fixture.server.faults().inject(Injection::always(Fault::Silence).on_resource("widgets"));
    fixture.patch("one", json!({"spec": {"x": 2}})).await;
    fixture.delete_unnoticed("one").await;
    fixture.pass(LATE).await;
    fixture.notice_deletion().await;
    assert_eq!(fixture.host.calls().len(), 1, "{:?}", fixture.host.calls());
}
