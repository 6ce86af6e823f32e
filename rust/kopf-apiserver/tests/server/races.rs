//! Integration tests of requests that change the same object at the same time. A webhook makes them overlap.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use kopf_apiserver::Server;
use serde_json::{Value, json};

use crate::running::{plain, send};
use crate::support::webhook::Webhook;

const APPLY: &str = "application/apply-patch+yaml";
const MAP: &str = "/api/v1/namespaces/default/configmaps/one";
const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// A point at which the first of two parties waits for the second.
#[derive(Default)]
struct Meeting {
    arrived: Mutex<usize>,
    changed: Condvar,
}

impl Meeting {
    fn arrive(&self) {
        self.wait_for(2, 1);
    }

    /// Waits for a number of parties, after adding some.
    fn wait_for(&self, parties: usize, more: usize) {
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        *arrived += more;
        self.changed.notify_all();
        let limit = Duration::from_secs(30);
        drop(self.changed.wait_timeout_while(arrived, limit, |arrived| *arrived < parties));
    }
}

/// A server whose webhook lets two requests for a resource meet.
async fn server_with_meeting(group: &str, resource: &str) -> (Arc<Server>, Webhook, Arc<Meeting>) {
    let server = plain().await;
    let meeting = Arc::new(Meeting::default());
    let arriving = meeting.clone();
    let webhook = Webhook::start(move |_, _| {
        arriving.arrive();
        json!({"allowed": true})
    });
    let webhook = webhook.await;
    let hook = json!({"name": "slow.test.dev", "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 30,
        "clientConfig": webhook.client_config("/"),
        "rules": [{"apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": ["CREATE", "UPDATE"]}]});
    let body = json!({"metadata": {"name": "hooks"}, "webhooks": [hook]});
    server.create(CONFIGURATIONS, &body).await.expect("created");
    (Arc::new(server), webhook, meeting)
}

/// Starts a request.
fn spawn(
    server: &Arc<Server>,
    (method, path, media): (&'static str, String, &'static str),
    body: Value,
) -> tokio::task::JoinHandle<(u16, Value)> {
    let server = server.clone();
    tokio::spawn(async move {
        let answer = send(&server, method, &path, media, &body).await;
        (answer.code, serde_json::from_str(&answer.body).unwrap_or_default())
    })
}

fn map(key: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {key: "x"}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_two_applies_at_once_creates_the_object_and_the_other_updates_it() {
    let (server, _webhook, _meeting) = server_with_meeting("", "configmaps").await;
    let apply = |manager: &str| {
        spawn(&server, ("PATCH", format!("{MAP}?fieldManager={manager}"), APPLY), map(manager))
    };
    let (first, second) = (apply("a"), apply("b"));
    let mut codes = [first.await.expect("a response").0, second.await.expect("a response").0];
    codes.sort_unstable();
    assert_eq!(codes, [200, 201]);
    let found = server.get(MAP).await.expect("found");
    assert_eq!(found["data"], json!({"a": "x", "b": "x"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_apply_creates_an_object_that_is_deleted_meanwhile() {
    let (server, _webhook, meeting) = server_with_meeting("", "configmaps").await;
    let apply = |server: &Arc<Server>, key: &str| {
        spawn(server, ("PATCH", format!("{MAP}?fieldManager=a"), APPLY), map(key))
    };
    let created = apply(&server, "a");
    meeting.arrive();
    assert_eq!(created.await.expect("a response").0, 201);
    *meeting.arrived.lock().expect("the count") = 0;
    let applied = apply(&server, "b");
    meeting.wait_for(1, 0);
    assert_eq!(send(&server, "DELETE", MAP, "application/json", &Value::Null).await.code, 200);
    meeting.arrive();
    let (code, answer) = applied.await.expect("a response");
    assert_eq!((code, &answer["data"]), (201, &json!({"b": "x"})));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_scales_at_once_without_a_version_are_both_applied() {
    let (server, _webhook, _meeting) = server_with_meeting("apps", "replicasets/scale").await;
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let template =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "one"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}});
    server.create(sets, &set).await.expect("created");
    let scale = |replicas: u32| {
        let body = json!({"spec": {"replicas": replicas}});
        spawn(&server, ("PATCH", format!("{sets}/one/scale"), "application/merge-patch+json"), body)
    };
    let (first, second) = (scale(2), scale(3));
    for (response, replicas) in [(first, 2), (second, 3)] {
        let (code, answer) = response.await.expect("a response");
        assert_eq!((code, &answer["spec"]["replicas"]), (200, &json!(replicas)));
    }
}
