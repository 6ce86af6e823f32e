//! Stories: executable specifications. Each file in `stories/` explains one behaviour and shows it in code blocks fenced as
//! `story`.
//!
//! Lines that begin with `> ` are commands. The lines after a command are its transcript, which must match exactly.
//! `STORIES=write cargo test --test stories` rewrites the transcripts in the files: review the diff.
//!
//! * Declarations: `create|update|delete|resume|field|event|daemon|timer ID [KEY=JSON]...`; `set KEY=JSON...`; `object JSON`.
//! * Results of later calls: `ID raises arbitrary|permanent|temporary|children [DELAY]`, `ID patches JSON`, `ID matches
//!   no|yes|unchanged` (callable filters), `ID lingers SECONDS` (exits so long after a stop request), `ID exits` (after a stop
//!   request), `ID ends` (without a stop request), `pick ID...`, `script raises TEXT`, `conflict` (the API server rejects the
//!   next edit of the finalizers), `inconsistent, the write arrives|something else comes`, `functions yes|no`.
//! * Events: `listed|added|modified|deleted` (one cycle), `edit JSON`, `delete`, `wait SECONDS`, `restart`, `show PATH`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]
#![allow(clippy::disallowed_methods, reason = "the stories are files")]

mod sim;

use kopf_core::cause::EventType;
use kopf_core::handling::attempt::CallResult;
use serde_json::{Map, Value, json};
use sim::World;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

#[test]
fn stories_match_their_transcripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories");
    let mut count = 0;
    let mut mismatches = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        count += 1;
        let expected = fs::read_to_string(&path).unwrap();
        let actual = run_story(&expected);
        if expected == actual {
            continue;
        }
        if std::env::var("STORIES").is_ok_and(|mode| mode == "write") {
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
    assert!(count >= 12, "only {count} stories were found");
    assert!(mismatches.is_empty(), "{mismatches}");
}

/// Runs a story and returns it with its actual transcripts. Every block starts with a new world.
fn run_story(expected: &str) -> String {
    let mut actual = String::new();
    let mut world: Option<World> = None;
    for line in expected.lines() {
        match &mut world {
            None => {
                writeln!(actual, "{line}").unwrap();
                if line == "```story" {
                    world = Some(World { remembers: true, ..World::new() });
                }
            }
            Some(_) if line == "```" => {
                writeln!(actual, "{line}").unwrap();
                world = None;
            }
            Some(world) => {
                if line.is_empty() || line.starts_with("# ") {
                    writeln!(actual, "{line}").unwrap();
                }
                if let Some(command) = line.strip_prefix("> ") {
                    writeln!(actual, "{line}").unwrap();
                    for result in act(world, command) {
                        writeln!(actual, "{result}").unwrap();
                    }
                }
            }
        }
    }
    actual
}

fn act(world: &mut World, command: &str) -> Vec<String> {
    let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
    match verb {
        "create" | "update" | "delete" | "resume" | "field" | "event" | "daemon" | "timer"
            if !rest.is_empty() =>
        {
            declare(world, verb, rest);
        }
        "set" => set(world, rest),
        "object" | "edit" => world.edit(&parsed(rest)),
        "delete" => world.delete(),
        "wait" => world.now = world.now.plus(rest.parse().unwrap()),
        "restart" => world.restart(),
        "pick" => {
            world.picks.push_back(rest.split(' ').filter(|id| !id.is_empty()).map(str::to_owned).collect());
        }
        "script" => world.script_error = Some(rest.strip_prefix("raises ").unwrap().to_owned()),
        "inconsistent," => world.inconsistent = Some(rest == "the write arrives"),
        "conflict" => world.conflict = true,
        "functions" => {
            world.fns = rest == "yes";
            world.worker.memory.remaining_fns = world.fns;
        }
        "listed" => return world_cycle(world, EventType::Listed),
        "added" => return world_cycle(world, EventType::Added),
        "modified" => return world_cycle(world, EventType::Modified),
        "deleted" => return world_cycle(world, EventType::Deleted),
        "show" => return vec![show(world, rest)],
        id => prepare(world, id, rest),
    }
    Vec::new()
}

fn world_cycle(world: &mut World, event: EventType) -> Vec<String> {
    if event == EventType::Listed
        && world.worker.memory == kopf_core::persistence::memory::ObjectMemory::default()
    {
        world.restart();
    }
    world.cycle(event).transcript
}

fn show(world: &World, path: &str) -> String {
    let found = path.split(' ').try_fold(&world.body, |value, key| value.get(key));
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

fn declare(world: &mut World, verb: &str, rest: &str) {
    let (id, options) = rest.split_once(' ').unwrap_or((rest, ""));
    let mut handler = json!({"id": id, "kind": "changing", "key": world.handlers.len()});
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
    world.declare(handler);
}

fn set(world: &mut World, rest: &str) {
    for (key, value) in pairs(rest) {
        match key.as_str() {
            "lifecycle" => world.lifecycle = serde_json::from_value(value).unwrap(),
            "entropy" => world.entropy = value.as_u64().unwrap(),
            "default_backoff" => world.settings.execution.default_backoff = value.as_f64().unwrap(),
            "progress_storage" => {
                world.settings.persistence.progress_storage = serde_json::from_value(value).unwrap();
            }
            other => panic!("unknown setting {other}"),
        }
    }
}

fn prepare(world: &mut World, id: &str, rest: &str) {
    assert!(
        world.handlers.iter().any(|handler| *handler.id == *id),
        "unknown command or handler: {id} {rest}"
    );
    let (verb, argument) = rest.split_once(' ').unwrap_or((rest, ""));
    match verb {
        "lingers" => world.lingering = argument.parse().ok(),
        "exits" | "ends" => {
            world.lingering = None;
            world.running.retain(|handler| *world.handlers[*handler].id != *id);
            if verb == "ends" {
                world.ended.push(id.into());
            }
        }
        "raises" => world.raises.entry(id.to_owned()).or_default().push_back(raised(argument)),
        "patches" => world.patches.entry(id.to_owned()).or_default().push_back(parsed(argument)),
        "matches" => {
            world.filter_results.insert(id.to_owned(), (argument != "no", argument == "yes"));
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
