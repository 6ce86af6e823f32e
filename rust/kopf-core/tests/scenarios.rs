//! Scenarios: executable specifications. Each file in `scenarios/` explains one behaviour and shows it in code blocks fenced as
//! `scenario`.
//!
//! Lines that begin with `> ` are commands. The lines after a command are its transcript, which must match exactly.
//! `SCENARIOS=write cargo test --test scenarios` rewrites the transcripts in the files: review the diff.
//!
//! * Declarations: `create|update|delete|resume|field|event|daemon|timer ID [KEY=JSON]...`; `set KEY=JSON...`; `object JSON`.
//! * Results of later calls: `ID raises arbitrary|permanent|temporary|children [DELAY]`, `ID patches JSON`, `ID matches
//!   no|yes|unchanged` (callable filters), `ID lingers SECONDS` (exits so long after a stop request), `ID exits` (after a stop
//!   request), `ID ends` (without a stop request), `pick ID...`, `script raises TEXT`, `conflict` (the API server rejects the
//!   next edit of the finalizers), `inconsistent, the write arrives|something else comes`, `functions yes|no`.
//! * Events: `listed|added|modified|deleted` (one cycle), `edit JSON`, `delete`, `wait SECONDS`, `restart`, `show PATH`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]
#![allow(clippy::disallowed_methods, reason = "the scenarios are files")]

mod sim;

use kopf_core::cause::EventType;
use kopf_core::handling::attempt::CallResult;
use serde_json::{Map, Value, json};
use sim::Simulation;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

// contract: engine 16
#[test]
fn scenarios_match_their_transcripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut count = 0;
    let mut mismatches = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        count += 1;
        let expected = fs::read_to_string(&path).unwrap();
        let actual = run_scenario(&expected);
        if expected == actual {
            continue;
        }
        if std::env::var("SCENARIOS").is_ok_and(|mode| mode == "write") {
            fs::write(&path, actual).unwrap();
        } else {
            let (line, (expected, actual)) = expected
                .lines()
                .zip(actual.lines())
                .enumerate()
                .find(|(_, (a, b))| a != b)
                .unwrap_or((0, ("", "(longer)")));
            writeln!(
                mismatches,
                "{}:{}:\n  expected: {expected}\n  actual:   {actual}",
                path.display(),
                line + 1
            )
            .unwrap();
        }
    }
    assert!(count >= 12, "only {count} scenarios were found");
    assert!(mismatches.is_empty(), "{mismatches}");
}

/// Runs a scenario and returns it with its actual transcripts. Every block starts with a new simulation.
fn run_scenario(expected: &str) -> String {
    let mut actual = String::new();
    let mut simulation: Option<Simulation> = None;
    for line in expected.lines() {
        match &mut simulation {
            None => {
                writeln!(actual, "{line}").unwrap();
                if line == "```scenario" {
                    simulation = Some(Simulation { remembers: true, ..Simulation::new() });
                }
            }
            Some(_) if line == "```" => {
                writeln!(actual, "{line}").unwrap();
                simulation = None;
            }
            Some(simulation) => {
                if line.is_empty() || line.starts_with("# ") {
                    writeln!(actual, "{line}").unwrap();
                }
                if let Some(command) = line.strip_prefix("> ") {
                    writeln!(actual, "{line}").unwrap();
                    for result in act(simulation, command) {
                        writeln!(actual, "{result}").unwrap();
                    }
                }
            }
        }
    }
    actual
}

fn act(simulation: &mut Simulation, command: &str) -> Vec<String> {
    let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
    match verb {
        "create" | "update" | "delete" | "resume" | "field" | "event" | "daemon" | "timer"
            if !rest.is_empty() =>
        {
            declare(simulation, verb, rest);
        }
        "set" => set(simulation, rest),
        "object" | "edit" => simulation.edit(&parsed(rest)),
        "delete" => simulation.delete(),
        "wait" => simulation.now = simulation.now.plus(rest.parse().unwrap()),
        "restart" => simulation.restart(),
        "pick" => {
            simulation
                .selections
                .push_back(rest.split(' ').filter(|id| !id.is_empty()).map(str::to_owned).collect());
        }
        "script" => simulation.activation_error = Some(rest.strip_prefix("raises ").unwrap().to_owned()),
        "inconsistent," => simulation.inconsistent = Some(rest == "the write arrives"),
        "conflict" => simulation.conflict = true,
        "functions" => {
            simulation.fns = rest == "yes";
            simulation.worker.memory.remaining_fns = simulation.fns;
        }
        "listed" => return run_cycle(simulation, EventType::Listed),
        "added" => return run_cycle(simulation, EventType::Added),
        "modified" => return run_cycle(simulation, EventType::Modified),
        "deleted" => return run_cycle(simulation, EventType::Deleted),
        "show" => return vec![show(simulation, rest)],
        id => prepare(simulation, id, rest),
    }
    Vec::new()
}

fn run_cycle(simulation: &mut Simulation, event: EventType) -> Vec<String> {
    if event == EventType::Listed
        && simulation.worker.memory == kopf_core::persistence::memory::ObjectMemory::default()
    {
        simulation.restart();
    }
    simulation.cycle(event).transcript
}

fn show(simulation: &Simulation, path: &str) -> String {
    let found = path.split(' ').try_fold(&simulation.body, |value, key| value.get(key));
    found.map_or("absent".to_owned(), Value::to_string)
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn pairs(text: &str) -> Map<String, Value> {
    let mut pairs = Map::new();
    for pair in text.split(' ').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, "true"));
        pairs.insert(key.to_owned(), parsed(value));
    }
    pairs
}

fn declare(simulation: &mut Simulation, verb: &str, rest: &str) {
    let (id, options) = rest.split_once(' ').unwrap_or((rest, ""));
    let mut handler = json!({"id": id, "kind": "changing", "key": simulation.handlers.len()});
    match verb {
        "create" | "update" | "delete" => handler["reason"] = json!(verb),
        "resume" => handler["initial"] = json!(true),
        "event" => handler["kind"] = json!("watching"),
        "daemon" | "timer" => handler["kind"] = json!(verb),
        _ => {}
    }
    handler["requires_finalizer"] = json!(verb == "delete");
    handler["field_needs_change"] = json!(verb == "update" || verb == "field");
    for (key, value) in pairs(options) {
        if key == "optional" {
            handler["requires_finalizer"] = json!(false);
        } else {
            handler[key] = value;
        }
    }
    simulation.declare(handler);
}

fn set(simulation: &mut Simulation, rest: &str) {
    for (key, value) in pairs(rest) {
        match key.as_str() {
            "lifecycle" => simulation.lifecycle = serde_json::from_value(value).unwrap(),
            "entropy" => simulation.entropy = value.as_u64().unwrap(),
            "default_backoff" => simulation.settings.execution.default_backoff = value.as_f64().unwrap(),
            "progress_storage" => {
                simulation.settings.persistence.progress_storage = serde_json::from_value(value).unwrap();
            }
            other => panic!("unknown setting {other}"),
        }
    }
}

fn prepare(simulation: &mut Simulation, id: &str, rest: &str) {
    assert!(
        simulation.handlers.iter().any(|handler| *handler.id == *id),
        "unknown command or handler: {id} {rest}"
    );
    let (verb, argument) = rest.split_once(' ').unwrap_or((rest, ""));
    match verb {
        "lingers" => simulation.exit_delay = argument.parse().ok(),
        "exits" | "ends" => {
            simulation.exit_delay = None;
            simulation.running.retain(|handler| *simulation.handlers[*handler].id != *id);
            if verb == "ends" {
                simulation.ended.push(id.into());
            }
        }
        "raises" => simulation.call_results.entry(id.to_owned()).or_default().push_back(raised(argument)),
        "patches" => simulation.patches.entry(id.to_owned()).or_default().push_back(parsed(argument)),
        "matches" => {
            simulation.filter_results.insert(id.to_owned(), (argument != "no", argument == "yes"));
        }
        other => panic!("unknown verb {other}"),
    }
}

fn raised(argument: &str) -> CallResult {
    let (class, delay) = argument.split_once(' ').unwrap_or((argument, ""));
    let delay = delay.parse().ok();
    let message = "boo".to_owned();
    match class {
        "arbitrary" => CallResult::Arbitrary { message },
        "permanent" => CallResult::Permanent { message },
        "temporary" => CallResult::Temporary { message, delay },
        "children" => CallResult::Children { message: "None".to_owned(), delay },
        other => panic!("unknown exception {other}"),
    }
}
