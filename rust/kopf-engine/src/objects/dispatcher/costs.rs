//! Allocations on the path of an event through the engine: dispatching, the worker, the activation, the patch.
//!
//! Time depends on the machine, but allocations do not, so a regression shows at once. The core has its own limits
//! (`kopf-core/tests/costs.rs`): look there first. The API server and the handlers are test doubles and are not counted. The
//! HTTP client is the production client; its connections are in memory. If a count has grown for a good reason, raise its limit
//! and explain that in the commit.

#![allow(clippy::print_stdout, reason = "the counts are printed")]

use std::sync::{Arc, Mutex};

use allocation_counter::{AllocationInfo, measure, opt_out};
use kopf_core::activation::{Command, CommandResult, Completion};
use kopf_core::cause::EventType;
use kopf_core::cycle::OperatorConfig;
use kopf_core::handler::lifecycle::Lifecycle;
use kopf_core::handler::registry::Registry;
use kopf_core::handling::attempt::CallResult;
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::settings::Settings;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::Dispatcher;
use crate::client::connection::Connection;
use crate::client::credentials::CredentialStore;
use crate::client::http1::Connector;
use crate::host::{Host, HostTask, LogRecord};
use crate::testing::{connector, credential_store_options, lock, resource, shared};
use crate::time::clock::Clock;

/// Number of objects per measurement.
const OBJECTS: usize = 50;

/// Handlers that succeed at once.
struct SucceedingHost(Clock);

impl Host for SucceedingHost {
    fn submit(&self, task: HostTask) {
        let HostTask::Activation(task) = task else { return opt_out(|| drop(task)) };
        let mut reply = Completion::default();
        opt_out(|| {
            let call = |step: &Command| match step {
                Command::CallEventHandler { attempt, .. } | Command::CallChangeHandler { attempt } => {
                    CommandResult::Attempted(attempt.evaluate(&CallResult::Nothing, self.0.now()).outcome)
                }
                other => panic!("no handler of these tests needs {other:?}"),
            };
            reply.results = task.activation.commands.iter().map(call).collect();
        });
        task.reply.send(Some(reply));
    }

    fn log(&self, _: LogRecord) {}

    fn enabled(&self, _: Level) -> bool {
        false
    }
}

type Objects = Arc<Mutex<Vec<Value>>>;

/// A server that stores objects, by the numbers in their names.
fn server(objects: &Objects) -> Connector {
    let objects = Arc::clone(objects);
    connector(move |_, path, body| {
        let patch: Value = serde_json::from_slice(body).unwrap();
        let number: usize = path.rsplit('-').next().unwrap().parse().unwrap();
        let object = &mut lock(&objects)[number];
        object["metadata"]["resourceVersion"] = (1000 + number).to_string().into();
        object["metadata"]["annotations"] = patch["metadata"]["annotations"].clone();
        (200, Some(object.to_string().into_bytes()))
    })
}

fn object(number: usize) -> Value {
    let items: Vec<Value> = (0..20).map(|i| json!({"name": format!("part-{i}"), "port": 8000 + i})).collect();
    json!({
        "apiVersion": "example.com/v1", "kind": "Thing",
        "metadata": {"name": format!("thing-{number}"), "namespace": "default", "uid": format!("uid-{number}"),
            "resourceVersion": number.to_string()},
        "spec": {"items": items},
    })
}

/// An engine with handlers for things, in a single-threaded runtime: all its allocations are in this thread.
struct Bench {
    runtime: Runtime,
    dispatcher: Arc<Dispatcher>,
    objects: Objects,
}

impl Bench {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let objects: Objects = Arc::new(Mutex::new((0..OBJECTS).map(object).collect()));
        let dispatcher = runtime.block_on(async {
            let handlers = ["create", "update", "delete"].into_iter().enumerate().map(|(key, reason)| {
                let selector = json!({"group": "example.com", "version": "v1", "plural": "things"});
                let declared =
                    json!({"id": reason, "key": key, "kind": "changing", "reason": reason, "selector": selector});
                serde_json::from_value(declared).unwrap()
            });
            let registry = Arc::new(Registry { handlers: handlers.collect() });
            let resource_handlers = Arc::new(registry.handlers_of(&resource("example.com", "things", true), &|_| true));
            let settings: Settings = serde_json::from_value(json!({"posting": {"enabled": false}})).unwrap();
            let config = OperatorConfig { registry, settings: Arc::new(settings), lifecycle: Lifecycle::AllAtOnce };
            let host: Arc<dyn Host> = Arc::new(SucceedingHost(Clock::start()));
            let credential_store = CredentialStore::new(Arc::clone(&host), credential_store_options(), &[]).unwrap();
            credential_store.admit(Connection::fake("first", server(&objects)));
            Dispatcher::new(shared(config, Arc::new(credential_store), host), &crate::worker::Pool, resource_handlers, None)
        });
        Self { runtime, dispatcher, objects }
    }

    /// The objects as the server stores them.
    fn decoded(&self) -> Vec<Object> {
        lock(&self.objects).iter().map(|object| Object::decode(&object.to_string()).unwrap()).collect()
    }

    /// Dispatches these events one after another, each until all its work is done.
    fn run(&self, kind: EventType, objects: Vec<Object>) -> AllocationInfo {
        let dispatcher = &self.dispatcher;
        measure(|| {
            self.runtime.block_on(async {
                for object in objects {
                    dispatcher.dispatch(kind, Arc::new(object));
                    while !dispatcher.shared.workers.is_empty() {
                        tokio::task::yield_now().await;
                    }
                }
            });
        })
    }
}

fn expect(what: &str, info: &AllocationInfo, count: u64, bytes: u64) {
    let (found, size) = (info.count_total / OBJECTS as u64, info.bytes_total / OBJECTS as u64);
    println!("{what}: {found} allocations, {size} bytes");
    assert!(
        found <= count && size <= bytes,
        "{what}: {found} allocations of {size} bytes for each object, where {count} of {bytes} are enough. What of it is \
         the core's is limited in kopf-core/tests/costs.rs; else look for clones, formatting and tasks in \
         dispatch.rs, slots.rs, worker.rs, patching.rs, api.rs, in this order.",
    );
}

#[test]
fn events_of_handled_objects_allocate_little() {
    let bench = Bench::new();
    bench.run(EventType::Added, bench.decoded());
    let noted = bench.decoded();
    assert!(
        noted.iter().all(|object| object.raw().contains("last-handled-configuration")),
        "all objects are handled"
    );
    bench.run(EventType::Modified, noted);
    // Once more: an update that matches no handler, such as a write of another client.
    let again = bench.decoded();
    let info = bench.run(EventType::Modified, again);
    expect("an event of a handled object", &info, 9, 720);
    assert!(info.count_current <= 0, "{} allocations stay", info.count_current);
}

#[test]
fn creations_allocate_little_from_the_event_to_the_patch() {
    let bench = Bench::new();
    let fresh = bench.decoded();
    let info = bench.run(EventType::Added, fresh);
    assert!(bench.decoded().iter().all(|object| object.raw().contains("last-handled-configuration")));
    // A fifth of the bytes is the read buffer of the connection.
    expect("a creation", &info, 180, 39_000);
    let own_events = bench.decoded();
    expect("the watch event caused by our patch", &bench.run(EventType::Modified, own_events), 9, 720);
}
