//! What the hot path allocates. Time depends on the machine, and this does not: a regression is seen at once.
//!
//! The workloads are the commonest ones: an object that was handled before is seen again, and one is created. If a count has
//! grown for a good reason, raise its limit and say in the commit what it is worth.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "it is a test: it panics, and it tells the counts"
)]

mod sim;

use allocation_counter::{AllocationInfo, measure};
use kopf_core::activation::{Command, CommandResult, Completion};
use kopf_core::cause::EventType;
use kopf_core::cycle::{Cycle, CycleEvent, CycleInput, Effect, EffectResult, OperatorConfig};
use kopf_core::handler::lifecycle::Lifecycle;
use kopf_core::handler::registry::Registry;
use kopf_core::handling::attempt::CallResult;
use kopf_core::object::{Object, decode_page};
use kopf_core::persistence::memory::ObjectMemory;
use kopf_core::settings::Settings;
use serde_json::{Value, json};
use sim::World;
use std::sync::Arc;

/// A world with an object that was handled, of some kilobytes.
fn handled() -> World {
    let mut world = World::new();
    for (key, reason) in ["create", "update", "delete"].into_iter().enumerate() {
        world.declare(json!({"id": reason, "kind": "changing", "key": key, "reason": reason}));
    }
    let items: Vec<Value> = (0..20)
        .map(|i| json!({"name": format!("component-{i}"), "port": 8000 + i, "env": [{"name": "A", "value": "b"}]}))
        .collect();
    world.edit(&json!({"spec": {"items": items, "image": "example.com/app:v1"}}));
    for _ in 0..3 {
        world.cycle(EventType::Added);
    }
    world
}

fn expect(what: &str, info: &AllocationInfo, count: u64, bytes: u64) {
    println!("{what}: {} allocations, {} bytes", info.count_total, info.bytes_total);
    assert!(
        info.count_total <= count && info.bytes_total <= bytes,
        "{what}: {} allocations of {} bytes, where {count} of {bytes} are enough",
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
    let world = handled();
    let object = Arc::new(Object::decode(&world.body.to_string()).unwrap());
    let registry = Arc::new(Registry { handlers: world.handlers.clone() });
    let plan = Arc::new(registry.plan(&sim::resource(), &|_| true));
    let settings = Arc::new(Settings::default());
    let rules = Arc::new(OperatorConfig { registry, settings, lifecycle: Lifecycle::default() });
    let memory = ObjectMemory { fully_handled_once: true, ..ObjectMemory::default() };
    let info = measure(|| {
        let moment = CycleInput { now: world.now, entropy: 0, consistent: true };
        let observation =
            CycleEvent { event: EventType::Modified, object: Arc::clone(&object), requeued: false };
        let (_, next) = Cycle::open(observation, &memory, Arc::clone(&plan), Arc::clone(&rules), moment);
        assert!(matches!(next, Effect::Done(decision) if decision.patch.is_empty()));
    });
    expect("a cycle with nothing to do", &info, 6, 700);
}

#[test]
fn creations_are_handled_with_few_allocations() {
    let mut world = handled();
    // As it was before anybody has handled it.
    world.body["metadata"].as_object_mut().unwrap().remove("annotations");
    let object = Arc::new(Object::decode(&world.body.to_string()).unwrap());
    let registry = Arc::new(Registry { handlers: world.handlers.clone() });
    let plan = Arc::new(registry.plan(&sim::resource(), &|_| true));
    let settings = Arc::new(Settings::default());
    let rules = Arc::new(OperatorConfig { registry, settings, lifecycle: Lifecycle::default() });
    let info = measure(|| {
        let moment = CycleInput { now: world.now, entropy: 0, consistent: true };
        let observation =
            CycleEvent { event: EventType::Added, object: Arc::clone(&object), requeued: false };
        let (plan, rules) = (Arc::clone(&plan), Arc::clone(&rules));
        let (mut cycle, mut next) = Cycle::open(observation, &ObjectMemory::default(), plan, rules, moment);
        loop {
            let Effect::Run(script) = next else { break };
            let steps = script.steps.iter().map(|step| match step {
                Command::Handle { attempt } => {
                    CommandResult::Attempted(attempt.evaluate(&CallResult::Nothing, world.now).outcome)
                }
                _ => CommandResult::Skipped,
            });
            let reply = Completion { steps: steps.collect(), ..Completion::default() };
            next = cycle.resume(EffectResult::Completion(reply), world.now);
        }
        assert!(matches!(next, Effect::Done(decision) if !decision.patch.is_empty()));
    });
    expect("a creation", &info, 95, 6 * object.raw().len() as u64);
}
