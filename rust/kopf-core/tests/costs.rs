//! Limits of the allocations on the hot path. Unlike durations, they do not depend on the machine, so tests can limit them.
//!
//! The workloads are the most frequent ones: a watch event of a handled object, and a creation. If a count has grown for a good
//! reason, raise its limit and give the reason in the commit message.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test panics, and prints the counts")]

mod sim;

use allocation_counter::{AllocationInfo, measure};
use kopf_core::activation::{Command, CommandResult, Completion};
use kopf_core::cause::EventType;
use kopf_core::cycle::{Cycle, CycleStart, Effect, OperatorConfig, QueuedEvent};
use kopf_core::handler::lifecycle::Lifecycle;
use kopf_core::handler::registry::Registry;
use kopf_core::handling::attempt::CallResult;
use kopf_core::object::{Object, decode_page};
use kopf_core::persistence::consistency::ViewAge;
use kopf_core::persistence::memory::ObjectMemory;
use kopf_core::settings::Settings;
use serde_json::{Value, json};
use sim::Simulation;
use std::sync::Arc;

/// A simulation with a handled object of a few kilobytes.
fn handled() -> Simulation {
    let mut simulation = Simulation::new();
    for (key, reason) in ["create", "update", "delete"].into_iter().enumerate() {
        simulation.declare(json!({"id": reason, "kind": "changing", "key": key, "reason": reason}));
    }
    let items: Vec<Value> = (0..20)
        .map(|i| json!({"name": format!("component-{i}"), "port": 8000 + i, "env": [{"name": "A", "value": "b"}]}))
        .collect();
    simulation.edit(&json!({"spec": {"items": items, "image": "example.com/app:v1"}}));
    for _ in 0..3 {
        simulation.cycle(EventType::Added);
    }
    simulation
}

fn expect(workload: &str, info: &AllocationInfo, count: u64, bytes: u64) {
    println!("{workload}: {} allocations, {} bytes", info.count_total, info.bytes_total);
    assert!(
        info.count_total <= count && info.bytes_total <= bytes,
        "{workload}: {} allocations of {} bytes exceed the limit of {count} of {bytes}",
        info.count_total,
        info.bytes_total,
    );
}

#[test]
fn objects_are_decoded_with_few_allocations() {
    let text = handled().body.to_string();
    let info = measure(|| drop(Object::decode(&text).unwrap()));
    expect("decoding", &info, 5, 3 * text.len() as u64);
    let page = format!(
        r#"{{"kind":"XList","apiVersion":"v1","metadata":{{}},"items":[{}]}}"#,
        [&*text; 100].join(",")
    );
    let info = measure(|| drop(decode_page(page.as_bytes()).unwrap()));
    expect("decoding a page of 100", &info, 420, 3 * page.len() as u64);
}

#[test]
fn handled_objects_are_recognised_with_few_allocations() {
    let simulation = handled();
    let object = Arc::new(Object::decode(&simulation.body.to_string()).unwrap());
    let registry = Arc::new(Registry { handlers: simulation.handlers.clone() });
    let resource_handlers = Arc::new(registry.handlers_of(&sim::resource(), &|_| true));
    let settings = Arc::new(Settings::default());
    let config = Arc::new(OperatorConfig { registry, settings, lifecycle: Lifecycle::default() });
    let memory = ObjectMemory { fully_handled_once: true, ..ObjectMemory::default() };
    let info = measure(|| {
        let event = QueuedEvent::of(EventType::Modified, Arc::clone(&object));
        let (resource_handlers, config) = (Arc::clone(&resource_handlers), Arc::clone(&config));
        let (memory, view_age) = (memory.clone(), ViewAge::Consistent);
        let start = CycleStart { event, memory, view_age, index_pass: None };
        let mut cycle = Cycle::open(start, resource_handlers, config, 0, simulation.now);
        assert!(matches!(cycle.effect(), Some(Effect::Done(decision)) if decision.patch.is_empty()));
    });
    expect("a cycle with nothing to do", &info, 6, 700);
}

#[test]
fn creations_are_handled_with_few_allocations() {
    let mut simulation = handled();
    // Without the diff-base, the object is not yet handled.
    simulation.body["metadata"].as_object_mut().unwrap().remove("annotations");
    let object = Arc::new(Object::decode(&simulation.body.to_string()).unwrap());
    let registry = Arc::new(Registry { handlers: simulation.handlers.clone() });
    let resource_handlers = Arc::new(registry.handlers_of(&sim::resource(), &|_| true));
    let settings = Arc::new(Settings::default());
    let config = Arc::new(OperatorConfig { registry, settings, lifecycle: Lifecycle::default() });
    let info = measure(|| {
        let event = QueuedEvent::of(EventType::Added, Arc::clone(&object));
        let (resource_handlers, config) = (Arc::clone(&resource_handlers), Arc::clone(&config));
        let (memory, view_age) = (ObjectMemory::default(), ViewAge::Consistent);
        let start = CycleStart { event, memory, view_age, index_pass: None };
        let mut cycle = Cycle::open(start, resource_handlers, config, 0, simulation.now);
        let mut next = cycle.effect();
        while let Some(Effect::Run(script)) = next {
            let results = script.commands.iter().map(|command| match command {
                Command::CallChangeHandler { attempt } => {
                    CommandResult::Attempted(attempt.evaluate(&CallResult::Nothing, simulation.now).outcome)
                }
                _ => CommandResult::Skipped,
            });
            let reply = Completion { results: results.collect(), ..Completion::default() };
            cycle.on_completion(reply, simulation.now);
            next = cycle.effect();
        }
        assert!(matches!(next, Some(Effect::Done(decision)) if !decision.patch.is_empty()));
    });
    expect("a creation", &info, 95, 6 * object.raw().len() as u64);
}
