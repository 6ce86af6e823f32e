//! Benchmarks of the most frequent paths: decoding, comparing two states of an object, a whole cycle.
//!
//! Durations are not comparable between machines. `tests/costs.rs` limits the number of allocations instead.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, missing_docs, reason = "a benchmark")]

#[path = "../tests/sim/mod.rs"]
mod sim;

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use kopf_core::cause::EventType;
use kopf_core::cycle::{Cycle, CycleEvent, CycleInput, OperatorConfig};
use kopf_core::handler::lifecycle::Lifecycle;
use kopf_core::handler::registry::Registry;
use kopf_core::json::diff::diff;
use kopf_core::object::{Object, decode_page};
use kopf_core::persistence::consistency::ViewAge;
use kopf_core::persistence::memory::ObjectMemory;
use kopf_core::settings::Settings;
use serde_json::{Value, json};
use sim::Simulation;

/// A simulation with a handled object of 5 kB, including the diff-base annotation.
fn handled() -> Simulation {
    let mut simulation = Simulation::new();
    for (key, reason) in ["create", "update", "delete"].into_iter().enumerate() {
        simulation.declare(json!({"id": reason, "kind": "changing", "key": key, "reason": reason}));
    }
    let items: Vec<Value> = (0..20)
        .map(|i| json!({"name": format!("part-{i}"), "port": 8000 + i, "env": [{"name": "LEVEL", "value": "info"}]}))
        .collect();
    simulation.edit(&json!({"spec": {"items": items, "image": "example.com/app:v1"}}));
    for _ in 0..3 {
        simulation.cycle(EventType::Added);
    }
    simulation
}

fn decoding(criterion: &mut Criterion) {
    let text = handled().body.to_string();
    criterion.bench_function("decode an object", |bencher| {
        bencher.iter(|| Object::decode(black_box(&text)).unwrap());
    });
    let items = [&*text; 100].join(",");
    let page = format!(r#"{{"kind":"XList","apiVersion":"v1","metadata":{{}},"items":[{items}]}}"#);
    criterion.bench_function("decode a page of 100 objects", |bencher| {
        bencher.iter(|| decode_page(black_box(page.as_bytes())).unwrap());
    });
}

fn comparing(criterion: &mut Criterion) {
    let old = handled().body;
    let mut new = old.clone();
    new["spec"]["items"][7]["port"] = json!(1);
    criterion.bench_function("diff of a changed object", |bencher| {
        bencher.iter(|| diff(black_box(Some(&old)), black_box(Some(&new))));
    });
}

fn cycling(criterion: &mut Criterion) {
    let simulation = handled();
    let registry = Arc::new(Registry { handlers: simulation.handlers.clone() });
    let resource_handlers = Arc::new(registry.handlers_of(&sim::resource(), &|_| true));
    let config = Arc::new(OperatorConfig {
        registry,
        settings: Arc::new(Settings::default()),
        lifecycle: Lifecycle::default(),
    });
    let mut changed = simulation.body.clone();
    changed["spec"]["image"] = json!("example.com/app:v2");
    for (title, body) in
        [("a cycle of a handled object", &simulation.body), ("the first step of an update", &changed)]
    {
        let object = Arc::new(Object::decode(&body.to_string()).unwrap());
        let memory = ObjectMemory { fully_handled_once: true, ..ObjectMemory::default() };
        criterion.bench_function(title, |bencher| {
            bencher.iter(|| {
                let moment = CycleInput { now: simulation.now, entropy: 0, view_age: ViewAge::Consistent };
                let observation =
                    CycleEvent { event: EventType::Modified, object: Arc::clone(&object), requeued: false };
                Cycle::open(observation, &memory, Arc::clone(&resource_handlers), Arc::clone(&config), moment)
            });
        });
    }
}

criterion_group!(benches, decoding, comparing, cycling);
criterion_main!(benches);
