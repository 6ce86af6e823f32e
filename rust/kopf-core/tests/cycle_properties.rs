//! Properties of the cycle: tests with random handlers, outcomes, changes and restarts.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod sim;

use kopf_core::cause::EventType;
use kopf_core::handler::lifecycle::Lifecycle;
use kopf_core::handling::attempt::CallResult;
use kopf_core::persistence::progress::ProgressStorage;
use proptest::prelude::*;
use serde_json::{Value, json};
use sim::{Run, Simulation};
use std::collections::BTreeSet;

/// More cycles than any generated sequence needs.
const MAX_CYCLES: usize = 600;

#[derive(Clone, Debug)]
struct Declared {
    kind: usize,
    retries: Option<u64>,
    timeout: Option<u32>,
    errors: usize,
    labelled: bool,
    has_callable: bool,
    matches: bool,
    raises: Vec<(usize, u32)>,
}

#[derive(Clone, Debug)]
enum Action {
    Edit(u32),
    Label(bool),
    Damage(usize),
    Restart,
    Wait(u32),
    Lag(bool),
    Look,
}

fn declared() -> impl Strategy<Value = Declared> {
    let limits = (proptest::option::of(0..4_u64), proptest::option::of(1..200_u32), 0..4_usize);
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.2), any::<bool>());
    (0..8_usize, limits, flags, prop::collection::vec((0..5_usize, 0..100_u32), 0..5)).prop_map(
        |(kind, (retries, timeout, errors), (labelled, has_callable, matches), raises)| Declared {
            kind,
            retries,
            timeout,
            errors,
            labelled,
            has_callable,
            matches,
            raises,
        },
    )
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => (0..3_u32).prop_map(Action::Edit),
        1 => any::<bool>().prop_map(Action::Label),
        1 => (0..9_usize).prop_map(Action::Damage),
        2 => Just(Action::Restart),
        3 => (1..100_u32).prop_map(Action::Wait),
        2 => any::<bool>().prop_map(Action::Lag),
        3 => Just(Action::Look),
    ]
}

fn lifecycle() -> impl Strategy<Value = Lifecycle> {
    use Lifecycle::{AllAtOnce, Asap, OneByOne, Randomized, Shuffled};
    prop::sample::select(vec![AllAtOnce, OneByOne, Randomized, Shuffled, Asap])
}

fn simulation(declared: &[Declared], lifecycle: Lifecycle) -> Simulation {
    let mut simulation = Simulation::new();
    simulation.lifecycle = lifecycle;
    for (index, one) in declared.iter().enumerate() {
        let id = format!("h{index}");
        let mut handler = json!({"id": id, "key": index, "kind": "changing", "when": one.has_callable});
        match one.kind {
            0 => handler["reason"] = json!("create"),
            1 => {
                handler["reason"] = json!("update");
                handler["field_needs_change"] = json!(true);
            }
            2 | 3 => {
                handler["reason"] = json!("delete");
                handler["requires_finalizer"] = json!(one.kind == 2);
            }
            4 | 5 => {
                handler["initial"] = json!(true);
                handler["deleted"] = json!(one.kind == 5);
            }
            6 => {
                handler["field"] = json!(["spec", "x"]);
                handler["field_needs_change"] = json!(true);
            }
            _ => handler["kind"] = json!("watching"),
        }
        handler["retries"] = json!(one.retries);
        handler["timeout"] = json!(one.timeout);
        handler["errors"] =
            [json!(null), json!("ignored"), json!("temporary"), json!("permanent")][one.errors].clone();
        if one.labelled {
            handler["labels"] = json!([["on", {"present": true}]]);
        }
        simulation.declare(handler);
        simulation.filter_results.insert(id.clone(), (one.matches, one.matches));
        let message = || "boo".to_owned();
        let raises = one.raises.iter().map(|(class, delay)| match class {
            0 => CallResult::Nothing,
            1 => CallResult::Temporary { message: message(), delay: Some(f64::from(*delay)) },
            2 => CallResult::Temporary { message: message(), delay: None },
            3 => CallResult::Permanent { message: message() },
            _ => CallResult::Arbitrary { message: message() },
        });
        simulation.call_results.insert(id, raises.collect());
    }
    simulation.edit(&json!({"spec": {"x": 0}}));
    simulation
}

/// Checks that finished handlers are not called again for the same change.
#[derive(Default)]
struct Watcher {
    reason: &'static str,
    finished: BTreeSet<String>,
}

impl Watcher {
    fn watch(&mut self, run: &Run) {
        // Superseding removes the progress: later calls belong to another change.
        if run.transcript.iter().any(|line| line.contains("is superseded by")) {
            self.finished.clear();
        }
        for (id, reason, is_final) in &run.calls {
            if self.reason != *reason {
                self.reason = reason;
                self.finished.clear();
            }
            assert!(!self.finished.contains(id), "{id} is called again: {:#?}", run.transcript);
            if *is_final {
                self.finished.insert(id.clone());
            }
        }
        if run.decision.delay.is_none() {
            self.finished.clear();
        }
    }

    /// Runs cycles until the object is idle.
    fn run_until_idle(&mut self, simulation: &mut Simulation) {
        for _ in 0..MAX_CYCLES {
            if !simulation.exists {
                return;
            }
            let run = simulation.cycle(EventType::Modified);
            self.watch(&run);
            assert_eq!(run.decision.error, None);
            if run.changed {
                continue;
            }
            match run.decision.delay {
                Some(delay) => simulation.now = simulation.now.plus(delay),
                None => return,
            }
        }
        panic!("the object does not become idle");
    }
}

fn damage(simulation: &mut Simulation, which: usize) {
    let key = match which {
        8 => "kopf.zalando.org/last-handled-configuration".to_owned(),
        other => format!("kopf.zalando.org/h{other}"),
    };
    let annotations = json!({ key: "{oops" });
    simulation.edit(&json!({"metadata": {"annotations": annotations}}));
}

/// Performs the action, and returns the type of the following watch event.
fn act(simulation: &mut Simulation, action: &Action) -> EventType {
    match action {
        Action::Edit(value) => simulation.edit(&json!({"spec": {"x": value}})),
        Action::Label(on) => {
            let value = if *on { json!("") } else { Value::Null };
            simulation.edit(&json!({"metadata": {"labels": {"on": value}}}));
        }
        Action::Damage(which) => damage(simulation, *which),
        Action::Restart => {
            simulation.restart();
            return EventType::Listed;
        }
        Action::Wait(seconds) => simulation.now = simulation.now.plus(f64::from(*seconds)),
        Action::Lag(arrives) => simulation.inconsistent = Some(*arrives),
        Action::Look => {}
    }
    EventType::Modified
}

fn perform(simulation: &mut Simulation, watcher: &mut Watcher, actions: &[Action]) {
    for action in actions {
        let event = act(simulation, action);
        if matches!(action, Action::Damage(_)) {
            // Damage removes the progress of finished handlers.
            watcher.finished.clear();
        }
        simulation.entropy = simulation.entropy.wrapping_add(1);
        let run = simulation.cycle(event);
        simulation.inconsistent = None;
        watcher.watch(&run);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    // contract: engine 7.5
    /// From any state, the object becomes idle; a further cycle then changes nothing; and no deletion is blocked forever.
    #[test]
    fn objects_become_idle_and_deletions_complete(
        declared in prop::collection::vec(declared(), 0..6),
        lifecycle in lifecycle(),
        before in prop::collection::vec(action(), 0..20),
        after in prop::collection::vec(action(), 0..10),
    ) {
        let mut simulation = simulation(&declared, lifecycle);
        let mut watcher = Watcher::default();
        perform(&mut simulation, &mut watcher, &before);
        watcher.run_until_idle(&mut simulation);

        let run = simulation.cycle(EventType::Modified);
        prop_assert!(!run.changed && run.calls.is_empty(), "{:#?}", run.transcript);

        simulation.delete();
        if simulation.exists {
            perform(&mut simulation, &mut watcher, &after);
        }
        watcher.run_until_idle(&mut simulation);
        prop_assert!(!simulation.exists, "the deletion is blocked: {}", simulation.body);
        let run = simulation.cycle(EventType::Deleted);
        prop_assert!(run.calls.is_empty() && run.decision.patch.is_empty());
    }

    /// Cycles without handlers to call need no activation.
    #[test]
    fn idle_objects_need_no_activation(
        declared in prop::collection::vec(declared(), 0..6),
        before in prop::collection::vec(action(), 0..10),
    ) {
        let unguarded: Vec<Declared> = declared
            .into_iter()
            .filter(|one| one.kind != 7)
            .map(|one| Declared { has_callable: false, ..one })
            .collect();
        let mut simulation = simulation(&unguarded, Lifecycle::Asap);
        let mut watcher = Watcher::default();
        perform(&mut simulation, &mut watcher, &before);
        watcher.run_until_idle(&mut simulation);
        let run = simulation.cycle(EventType::Modified);
        prop_assert_eq!(run.activations, 0);
    }

    /// A storage implemented in Python that is equivalent to the default storage gives the same results, with at most two more
    /// activations. Extensions that help after a crash need the default storage, so both simulations use the compatibility mode.
    #[test]
    fn foreign_storages_give_the_same_results(
        declared in prop::collection::vec(declared(), 0..6),
        lifecycle in lifecycle(),
        actions in prop::collection::vec(action(), 0..20),
        deleted in any::<bool>(),
    ) {
        let mut ours = simulation(&declared, lifecycle);
        let mut theirs = simulation(&declared, lifecycle);
        theirs.settings.persistence.progress_storage = ProgressStorage::Custom;
        (ours.settings.compat, theirs.settings.compat) = (true, true);
        let actions = actions.iter().filter(|action| !matches!(action, Action::Damage(_)));
        for (step, action) in actions.enumerate() {
            let mut runs = Vec::new();
            for simulation in [&mut ours, &mut theirs] {
                if deleted && step == 10 {
                    simulation.delete();
                }
                let event = act(simulation, action);
                runs.push(simulation.cycle(event));
                simulation.inconsistent = None;
            }
            prop_assert_eq!(&runs[0].transcript, &runs[1].transcript);
            prop_assert_eq!(&ours.body, &theirs.body);
            prop_assert!(runs[1].activations <= runs[0].activations + 2);
        }
    }
}
