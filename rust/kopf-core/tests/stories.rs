//! Stories: executable prose. Each file in `stories/` explains one behaviour, and shows it in blocks fenced as `story`.
//!
//! Lines that begin with `> ` are what the world does; the lines after them are what comes of it, and must be exactly so.
//! `STORIES=write cargo test --test stories` writes what comes of it into the files: read the difference before believing it.
//!
//! Declaring: `create|update|delete|resume|field|event|daemon|timer ID [KEY=JSON]...`; `set KEY=JSON...`; `object JSON`.
//! Telling the future: `ID raises arbitrary|permanent|temporary|children [DELAY]`, `ID patches JSON`, `ID says no|yes|unchanged`,
//! `ID lingers SECONDS` (when it is asked to stop), `ID exits`, `ID ends` (on its own),
//! `pick ID...`, `script raises TEXT`, `outrun` (somebody is faster than the next edit of the finalizers), `inconsistent, the write arrives|something else comes`, `functions yes|no`.
//! Happening: `listed|added|modified|deleted` (one cycle), `edit JSON`, `delete`, `wait SECONDS`, `restart`, `show PATH`.

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
fn all_stories_come_true() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stories");
    let mut count = 0;
    let mut broken = String::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        count += 1;
        let told = fs::read_to_string(&path).unwrap();
        let lived = live(&told);
        if told == lived {
            continue;
        }
        if std::env::var("STORIES").is_ok_and(|wish| wish == "write") {
            fs::write(&path, lived).unwrap();
        } else {
            let (line, (told, lived)) = told
                .lines()
                .zip(lived.lines())
                .enumerate()
                .find(|(_, (a, b))| a != b)
                .unwrap_or((0, ("", "(longer)")));
            writeln!(broken, "{}:{}:\n  told:  {told}\n  lived: {lived}", path.display(), line + 1).unwrap();
        }
    }
    assert!(count >= 12, "the stories are lost: only {count} were found");
    assert!(broken.is_empty(), "{broken}");
}

/// The story as it really happens. Every block begins in a new world.
fn live(told: &str) -> String {
    let mut lived = String::new();
    let mut world: Option<World> = None;
    for line in told.lines() {
        match &mut world {
            None => {
                writeln!(lived, "{line}").unwrap();
                if line == "```story" {
                    world = Some(World { remembers: true, ..World::new() });
                }
            }
            Some(_) if line == "```" => {
                writeln!(lived, "{line}").unwrap();
                world = None;
            }
            Some(world) => {
                if line.is_empty() || line.starts_with("# ") {
                    writeln!(lived, "{line}").unwrap();
                }
                if let Some(command) = line.strip_prefix("> ") {
                    writeln!(lived, "{line}").unwrap();
                    for happened in act(world, command) {
                        writeln!(lived, "{happened}").unwrap();
                    }
                }
            }
        }
    }
    lived
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
        "outrun" => world.outrun = true,
        "functions" => {
            world.fns = rest == "yes";
            world.memory.remaining_fns = world.fns;
        }
        "listed" => return world_cycle(world, EventType::Listed),
        "added" => return world_cycle(world, EventType::Added),
        "modified" => return world_cycle(world, EventType::Modified),
        "deleted" => return world_cycle(world, EventType::Deleted),
        "show" => return vec![show(world, rest)],
        id => foretell(world, id, rest),
    }
    Vec::new()
}

fn world_cycle(world: &mut World, event: EventType) -> Vec<String> {
    if event == EventType::Listed && world.memory == kopf_core::persistence::memory::ObjectMemory::default() {
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

fn foretell(world: &mut World, id: &str, rest: &str) {
    assert!(
        world.handlers.iter().any(|handler| *handler.id == *id),
        "unknown command or handler: {id} {rest}"
    );
    let (verb, what) = rest.split_once(' ').unwrap_or((rest, ""));
    match verb {
        "lingers" => world.lingering = what.parse().ok(),
        "exits" | "ends" => {
            world.lingering = None;
            world.running.retain(|handler| *world.handlers[*handler].id != *id);
            if verb == "ends" {
                world.ended.push(id.into());
            }
        }
        "raises" => world.raises.entry(id.to_owned()).or_default().push_back(raised(what)),
        "patches" => world.patches.entry(id.to_owned()).or_default().push_back(parsed(what)),
        "says" => {
            world.says.insert(id.to_owned(), (what != "no", what == "yes"));
        }
        other => panic!("unknown verb {other}"),
    }
}

fn raised(what: &str) -> CallResult {
    let (class, delay) = what.split_once(' ').unwrap_or((what, ""));
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
