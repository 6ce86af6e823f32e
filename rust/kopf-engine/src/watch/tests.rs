//! A stream and a server that answers as told, in virtual time.

use serde_json::json;

use super::*;
use crate::testing::{Got, Stage, resource};

struct Counting(Vec<&'static str>);

impl Sink for Counting {
    fn event(&mut self, _: EventType, _: Object) {
        self.0.push("event");
    }

    fn listing(&mut self) {
        self.0.push("listing");
    }

    fn listed(&mut self) {
        self.0.push("listed");
    }

    async fn room(&self) {}

    fn insists(&self, _: &ApiError) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn a_paused_stream_asks_for_nothing_and_begins_with_a_listing_afterwards() {
    let stage = Stage::new(&json!({}), |got: &Got| {
        let list = json!({"metadata": {"resourceVersion": "5"}, "items": [{"metadata": {"name": "n"}}]});
        (200, (!got.path.contains("watch=true")).then_some(list))
    });
    let pause = Arc::clone(&stage.shared.pause);
    let stream = Stream {
        api: stage.shared.api.clone(),
        resource: resource("kopf.dev", "kopfexamples", true),
        namespace: Some("ns".to_owned()),
        projection: Projection::Whole,
        selectors: vec![],
        derived: None,
        settings: Arc::clone(&stage.shared.rules.settings),
        invoker: Arc::clone(&stage.shared.invoker),
        health: Arc::clone(&stage.shared.health),
        pause: Some(Arc::clone(&pause)),
    };
    pause.turn("b", true);
    pause.turn("a", true);
    let mut sink = Counting(vec![]);
    let script = async {
        // Never in the moment when the stream itself does something.
        let minute = || sleep(seconds(59.3));
        minute().await;
        assert_eq!(stage.requests().len(), 0);
        pause.turn("a", false);
        pause.turn("b", false);
        minute().await;
        pause.turn("a", true);
        let before = stage.requests().len();
        minute().await;
        assert_eq!(stage.requests().len(), before);
        pause.turn("a", false);
        sleep(seconds(1.0)).await;
        // Shorter than anybody needs to notice it.
        pause.turn("a", true);
        pause.turn("a", false);
        sleep(seconds(1.0)).await;
    };
    tokio::select! {
        _ = stream.follow(&mut sink) => {}
        () = script => {}
    }
    drop(stream);
    assert_eq!(sink.0, ["listing", "event", "listed"].repeat(3));
    let what = "the watch-stream for kopfexamples.v1.kopf.dev in 'ns'";
    assert_eq!(
        stage.lines("watch-stream"),
        [
            format!("DEBUG Starting {what} (paused)."),
            format!("DEBUG Pausing {what} (blockers: a, b)."),
            format!("DEBUG Resuming {what}."),
            format!("DEBUG Pausing {what} (blockers: a)."),
            format!("DEBUG Resuming {what}."),
            format!("DEBUG Stopping {what}."),
        ]
    );
}
