//! A simulation of one operator and one object, for scenarios and properties. It executes the effects of the object's worker, applies
//! patches to the object, and returns prepared results in place of Python.

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(unreachable_pub, reason = "it is a module of several test binaries")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use bytes::Bytes;
use kopf_core::activation::log::LogMessage;
use kopf_core::activation::{
    Activation, Command, CommandResult, Completion, FetchedState, FilterResult, StoreRequest,
};
use kopf_core::cause::EventType;
use kopf_core::cycle::{Cycle, Decision, Effect, OperatorConfig};
use kopf_core::daemon::{self, DesiredDaemons, StopReasons};
use kopf_core::handler::Handler;
use kopf_core::handler::lifecycle::Lifecycle;
use kopf_core::handler::registry::Registry;
use kopf_core::handling::attempt::{Attempt, CallResult, Outcome};
use kopf_core::json::merge_patch::Patch;
use kopf_core::json::path::FieldPath;
use kopf_core::object::Object;
use kopf_core::object_worker::{DecisionResult, ObjectWorker, QueuedEvent, WorkerContext};
use kopf_core::persistence::Persistence;
use kopf_core::persistence::consistency::Consistency;
use kopf_core::persistence::essence::essence;
use kopf_core::persistence::finalizer::Edit;
use kopf_core::persistence::memory::ObjectMemory;
use kopf_core::request_error::{ApiError, RequestError};
use kopf_core::resource::Resource;
use kopf_core::settings::Settings;
use kopf_core::time::Timestamp;
use kopf_core::writes::{Action, Content, Request, WriteContext, Writing};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// One object, its operator, and the prepared results of handlers.
#[derive(Clone)]
#[allow(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub struct Simulation {
    pub handlers: Vec<Handler>,
    pub settings: Settings,
    pub lifecycle: Lifecycle,
    pub body: Value,
    pub exists: bool,
    pub version: u64,
    pub now: Timestamp,
    pub worker: ObjectWorker,
    /// Whether accepted writes are kept in memory, so that annotations removed by other clients are noticed.
    pub remembers: bool,
    pub entropy: u64,
    /// Results of the next calls, per handler id; with an empty queue, a handler succeeds.
    pub call_results: BTreeMap<String, VecDeque<CallResult>>,
    /// Changes of the patch by the next calls, per handler id.
    pub patches: BTreeMap<String, VecDeque<Value>>,
    /// Results of callable filters that do not match: prematch, full match.
    pub filter_results: BTreeMap<String, (bool, bool)>,
    /// Handler ids selected by the next calls of the lifecycle function.
    pub selections: VecDeque<Vec<String>>,
    /// Error of the next activation.
    pub activation_error: Option<String>,
    /// Set if the next cycle starts before the watch event of our last write; true if waiting ends with that event.
    pub inconsistent: Option<bool>,
    /// Running daemons and timers, as positions in `handlers`.
    pub running: Vec<usize>,
    /// Ids of daemons and timers that exited and are not to be restarted.
    pub ended: Vec<Arc<str>>,
    /// Seconds that daemons take to exit after a stop request; they exit at once if none.
    pub exit_delay: Option<f64>,
    /// Whether handlers leave transformation functions in the patch.
    pub fns: bool,
    /// The API server rejects the next JSON patch with a conflict, and the operator may not read the object.
    pub conflict: bool,
}

/// The results of one cycle.
#[derive(Default)]
pub struct Run {
    pub transcript: Vec<String>,
    pub activations: usize,
    /// Called change handlers: the id, the reason, and whether the outcome is final.
    pub calls: Vec<(String, &'static str, bool)>,
    pub decision: Decision,
    /// Whether the resource version has changed, so that a watch event follows.
    pub changed: bool,
}

impl Simulation {
    pub fn new() -> Self {
        Self {
            handlers: Vec::new(),
            settings: Settings::default(),
            lifecycle: Lifecycle::default(),
            body: json!({"apiVersion": "kopf.dev/v1", "kind": "KopfExample",
                         "metadata": {"name": "x", "namespace": "ns", "uid": "u", "resourceVersion": "100"}}),
            exists: true,
            version: 100,
            now: Timestamp::parse("2026-01-01T00:00:00Z").unwrap(),
            worker: ObjectWorker::default(),
            remembers: false,
            entropy: 0,
            call_results: BTreeMap::new(),
            patches: BTreeMap::new(),
            filter_results: BTreeMap::new(),
            selections: VecDeque::new(),
            activation_error: None,
            inconsistent: None,
            running: Vec::new(),
            ended: Vec::new(),
            exit_delay: None,
            fns: false,
            conflict: false,
        }
    }

    pub fn declare(&mut self, handler: Value) {
        self.handlers.push(serde_json::from_value(handler).unwrap());
    }

    /// A user changes the object by a merge patch.
    pub fn edit(&mut self, patch: &Value) {
        let mut body = self.body.clone();
        merge(&mut body, patch);
        self.put(body);
    }

    /// A user deletes the object: it is marked for deletion, and removed if it has no finalizers.
    pub fn delete(&mut self) {
        self.edit(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    }

    /// The operator restarts with empty memory, and lists the object.
    pub fn restart(&mut self) {
        self.worker = ObjectWorker::new(EventType::Listed);
        self.running.clear();
        self.ended.clear();
    }

    fn put(&mut self, body: Value) -> bool {
        if body == self.body {
            return false;
        }
        self.version += 1;
        self.body = body;
        self.body["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let metadata = &self.body["metadata"];
        let is_held = metadata.get("finalizers").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
        if metadata.get("deletionTimestamp").is_some() && !is_held {
            self.exists = false;
        }
        true
    }

    pub fn object(&self) -> Arc<Object> {
        Arc::new(Object::decode(&self.body.to_string()).unwrap())
    }

    /// Runs one cycle for the current object, and applies its decision.
    pub fn cycle(&mut self, event: EventType) -> Run {
        let mut run = Run::default();
        let registry = Arc::new(Registry { handlers: self.handlers.clone() });
        let resource_handlers = Arc::new(registry.handlers_of(&resource(), &|_| true));
        let settings = Arc::new(self.settings.clone());
        let config = Arc::new(OperatorConfig { registry, settings, lifecycle: self.lifecycle });
        let context = WorkerContext {
            resource_handlers: &resource_handlers,
            startup_config: &config,
            live_config: &config,
        };
        let consistency = self.inconsistent.take();
        self.worker.consistency = consistency.map(|_| {
            let mut unknown = Consistency::default();
            unknown.mark_unknown(5.0, self.now);
            Box::new(unknown)
        });
        // Without change handlers, nothing is loaded from the object into the memory.
        let none = Arc::new(Arc::new(Registry::default()).handlers_of(&resource(), &|_| true));
        let known =
            if self.remembers { context } else { WorkerContext { resource_handlers: &none, ..context } };
        let start = self.worker.prepare(QueuedEvent::of(event, self.object()), known, self.now);
        let mut running =
            Cycle::open(start, Arc::clone(&resource_handlers), Arc::clone(&config), self.entropy, self.now);
        let mut patch = Map::new();
        loop {
            for message in running.drain_log() {
                run.transcript.push(formatted(&message, &running.event().object));
            }
            match running.effect().unwrap() {
                Effect::Run(activation) => {
                    run.activations += 1;
                    let reply = self.complete(&activation, &mut patch, &mut run);
                    running.on_completion(reply, self.now);
                }
                Effect::AwaitConsistency => {
                    let arrived = consistency.unwrap();
                    run.transcript.push(format!("await consistency: {arrived}"));
                    self.worker.consistency = None;
                    running.on_consistency(arrived, self.now);
                }
                Effect::Spawn(desired) => {
                    let (delay, holds) = self.sync_daemons(&desired, &mut run);
                    running.on_daemons(delay, holds, self.now);
                }
                Effect::Done(decision) => {
                    run.decision = *decision;
                    break;
                }
            }
        }
        self.describe(&mut run);
        self.write(&mut run, &running, context);
        run
    }

    /// Reports the decision to the object's worker, and writes it, as the engine does.
    fn write(&mut self, run: &mut Run, running: &Cycle, context: WorkerContext<'_>) {
        let result = self.worker.on_decision(running, run.decision.clone(), context, self.now);
        if let DecisionResult::Write(mut write) = result {
            let before = self.version;
            let persistence = &context.live_config.settings.persistence;
            let keeps_state = !context.live_config.settings.compat && !persistence.has_custom_storage();
            let rules = WriteContext {
                resource: &context.resource_handlers.resource,
                finalizer: &persistence.finalizer,
                compat: context.live_config.settings.compat,
                is_versioned: false,
                release_cleanup: keeps_state.then_some((context.resource_handlers, persistence)),
                partial: write.may_be_partial.then_some(persistence),
                is_deleted: &|| false,
                is_verbose: false,
            };
            let request = std::mem::take(&mut write.request);
            let mut writing = Writing::new(Arc::clone(&write.object), request, &rules);
            while let Some(action) = writing.next(&rules) {
                match action {
                    Action::Send(request) => {
                        let response = self.respond(&request);
                        writing.on_response(response, &rules);
                    }
                    Action::Transform(latest) => {
                        let value = latest.to_value();
                        writing.on_transformed(Ok(value), &rules);
                    }
                    Action::Wait(_) => writing.on_waited(&rules),
                }
            }
            run.changed = self.version != before;
            self.worker.on_write_result(*write, writing.finish(), context, self.now);
        }
        // Each cycle of a scenario is started by its command, without sleeps.
        self.worker.release();
        self.worker.backoff = None;
        if !self.remembers {
            let ObjectMemory {
                noticed_by_listing, fully_handled_once, remaining_fns, deletion_handled, ..
            } = self.worker.memory;
            self.worker.memory = ObjectMemory {
                noticed_by_listing,
                fully_handled_once,
                remaining_fns,
                deletion_handled,
                ..ObjectMemory::default()
            };
        }
    }

    /// Starts and stops daemons and timers. They exit at once unless `exit_delay` is set.
    fn sync_daemons(&mut self, desired: &DesiredDaemons, run: &mut Run) -> (Option<f64>, bool) {
        let registry = Registry { handlers: self.handlers.clone() };
        let assessed = daemon::diff(desired, &self.running, &self.ended, &registry, None);
        for handler in assessed.start {
            run.transcript.push(format!("start {}", self.id(handler)));
            self.running.push(handler);
        }
        let mut delay = None;
        for (position, reason) in assessed.stop.into_iter().rev() {
            let id = self.id(self.running[position]);
            let why = if reason == StopReasons::RESOURCE_DELETED { "deletion" } else { "mismatch" };
            run.transcript.push(format!("stop {id} for {why}"));
            delay = self.exit_delay;
            if delay.is_none() {
                self.running.remove(position);
            }
        }
        if desired.reset {
            run.transcript.push("idle period restarts".to_owned());
        }
        (delay, assessed.holds)
    }

    /// Adds the decision to the transcript.
    fn describe(&self, run: &mut Run) {
        let decision = &run.decision;
        let mut lines = Vec::new();
        if let Some(error) = &decision.error {
            lines.push(format!("error {error}"));
        }
        if !decision.patch.is_empty() {
            lines.push(format!("patch {}", Value::Object(decision.patch.0.clone())));
        }
        if decision.fns {
            lines.push("patch functions".to_owned());
        }
        match decision.finalizer {
            Some(Edit::Block) => lines.push("finalizer block".to_owned()),
            Some(Edit::Allow) => lines.push("finalizer allow".to_owned()),
            None => {}
        }
        if let Some(delay) = decision.delay {
            lines.push(format!("delay {delay}"));
        }
        if decision.fully_handled_once && !self.worker.memory.fully_handled_once {
            lines.push("fully handled once".to_owned());
        }
        if lines.is_empty() {
            lines.push("nothing".to_owned());
        }
        run.transcript.append(&mut lines);
    }

    /// The response of the API server to a request of a write.
    fn respond(&mut self, request: &Request<'_>) -> Result<Bytes, RequestError> {
        if !self.exists {
            return Err(rejected(404));
        }
        let mut body = self.body.clone();
        match request.content {
            Content::List => {
                // The operator may not read the object, so it learns of the conflict by the watch.
                return Err(rejected(403));
            }
            Content::MergePatch(text) => {
                let mut patch: Value = serde_json::from_slice(text).unwrap();
                if let Some(Value::Object(metadata)) = patch.get_mut("metadata") {
                    metadata.shift_remove("uid");
                }
                merge(&mut body, &patch);
            }
            Content::JsonPatch(text) => {
                if std::mem::take(&mut self.conflict) {
                    return Err(rejected(422));
                }
                json_patch(&mut body, &serde_json::from_slice(text).unwrap());
            }
        }
        self.put(body);
        Ok(Bytes::from(self.body.to_string()))
    }

    fn id(&self, handler: usize) -> String {
        self.handlers[handler].id.to_string()
    }

    fn complete(
        &mut self,
        activation: &Activation,
        patch: &mut Map<String, Value>,
        run: &mut Run,
    ) -> Completion {
        if let Some(error) = self.activation_error.take() {
            return Completion { error: Some(error), ..Completion::default() };
        }
        let reason = activation.change.as_ref().map_or("", |change| change.reason.as_str());
        let results: Vec<_> =
            activation.commands.iter().map(|command| self.execute(command, reason, patch, run)).collect();
        let patch = (!patch.is_empty()).then(|| patch.clone());
        Completion { results, patch, fns: self.fns, ..Completion::default() }
    }

    fn execute(
        &mut self,
        step: &Command,
        reason: &'static str,
        patch: &mut Map<String, Value>,
        run: &mut Run,
    ) -> CommandResult {
        match step {
            Command::CallIndexers(_) => panic!("a cycle runs no index handlers"),
            Command::CallEventHandler { handler, guarded, attempt } => {
                let id = self.id(*handler);
                if *guarded && self.filter_results.get(&id).is_some_and(|result| !result.0) {
                    run.transcript.push(format!("skip {id}"));
                    CommandResult::Skipped
                } else {
                    run.transcript.push(format!("call {id}"));
                    CommandResult::Attempted(self.attempt(attempt, patch, run))
                }
            }
            Command::FilterDaemons { handlers } => self.filter(handlers, "spawning", run),
            Command::FilterHandlers { handlers } => self.filter(handlers, reason, run),
            Command::SelectHandlers { handlers, .. } => {
                let shown: Vec<String> = handlers
                    .iter()
                    .map(|(handler, retries)| format!("{}#{retries}", self.id(*handler)))
                    .collect();
                run.transcript.push(format!("pick from {}", shown.join(", ")));
                let picked = self.selections.pop_front().unwrap_or_default();
                let index =
                    |id: &String| self.handlers.iter().position(|handler| *handler.id == **id).unwrap();
                CommandResult::Selected(picked.iter().map(index).collect())
            }
            Command::FetchState { ids, extra_fields } => self.load_state(ids, extra_fields),
            Command::StoreState(keep) => {
                self.store_state(keep, patch);
                CommandResult::Skipped
            }
            Command::CallChangeHandler { attempt } => {
                let id = self.id(attempt.handler);
                let forbidden = attempt.precheck(self.now).is_some();
                let verb = if forbidden { "skip" } else { "call" };
                run.transcript.push(format!("{verb} {id} for {reason}, retry {}", attempt.retry));
                let outcome = self.attempt(attempt, patch, run);
                if !forbidden {
                    run.calls.push((id, reason, outcome.final_));
                }
                CommandResult::Attempted(outcome)
            }
        }
    }

    fn filter(&self, handlers: &[usize], reason: &str, run: &mut Run) -> CommandResult {
        let ids: Vec<String> = handlers.iter().map(|handler| self.id(*handler)).collect();
        run.transcript.push(format!("match {} for {reason}", ids.join(", ")));
        let result = |id: &String| self.filter_results.get(id).copied().unwrap_or((true, true));
        let answers = ids.iter().map(result).map(|(prematch, full)| FilterResult { prematch, full });
        CommandResult::Filtered(answers.collect())
    }

    /// Loads state as a storage implemented in Python. It is equivalent to the default storage, so that both can be compared.
    fn load_state(&self, ids: &[Arc<str>], extra_fields: &[FieldPath]) -> CommandResult {
        let (object, ours) = (self.object(), Persistence::default());
        let mut old = ours.diffbase_storage.fetch(&object).unwrap();
        if let Some(old) = &mut old {
            ours.progress_storage.clear(old);
        }
        let records = ids.iter().filter_map(|id| {
            let record = ours.progress_storage.fetch(&object, id).unwrap()?;
            Some((id.to_string(), Value::Object(record.to_map())))
        });
        let new = essence(&object, &ours, extra_fields);
        CommandResult::Fetched(Box::new(FetchedState { old, new, records: records.collect() }))
    }

    fn store_state(&mut self, keep: &StoreRequest, patch: &mut Map<String, Value>) {
        let (object, ours) = (self.object(), Persistence::default());
        let mut whole = Patch(std::mem::take(patch));
        for (id, record) in &keep.records {
            match record {
                Some(record) => ours.progress_storage.store(&object, &mut whole, id, record),
                None => ours.progress_storage.purge(&object, &mut whole, id),
            }
        }
        if keep.essence {
            let resource_handlers = Registry { handlers: self.handlers.clone() };
            let resource_handlers = Arc::new(resource_handlers).handlers_of(&resource(), &|_| true);
            let new = essence(&object, &ours, &resource_handlers.extra_fields);
            ours.diffbase_storage.store(&object, &mut whole, &new);
        }
        if !whole.is_empty() || keep.written {
            ours.progress_storage.touch(&object, &mut whole, None);
        }
        *patch = whole.0;
    }

    fn attempt(&mut self, attempt: &Attempt, patch: &mut Map<String, Value>, run: &mut Run) -> Outcome {
        let id = self.id(attempt.handler);
        let settled = attempt.precheck(self.now).unwrap_or_else(|| {
            if let Some(more) = self.patches.get_mut(&id).and_then(VecDeque::pop_front) {
                let mut whole = Value::Object(std::mem::take(patch));
                merge_kept(&mut whole, &more);
                *patch = whole.as_object().cloned().unwrap();
            }
            let raised =
                self.call_results.get_mut(&id).and_then(VecDeque::pop_front).unwrap_or(CallResult::Nothing);
            attempt.evaluate(&raised, self.now)
        });
        if let Some(line) = settled.log {
            run.transcript.push(format!("{} {}", line.level.as_str(), line.text));
        }
        settled.outcome
    }
}

fn formatted(message: &LogMessage, object: &Object) -> String {
    let text = message.text(object);
    // Whole bodies would make the scenarios unreadable.
    let text = match message {
        LogMessage::InProgress(_) => text.split('{').next().unwrap().to_owned() + "{...}",
        _ => text,
    };
    format!("{} {text}", message.level().as_str())
}

pub fn resource() -> Arc<Resource> {
    Arc::new(
        serde_json::from_value(json!({
            "group": "kopf.dev", "version": "v1", "plural": "kopfexamples", "kind": "KopfExample",
            "singular": "kopfexample", "shortcuts": [], "categories": [], "subresources": [], "verbs": [],
            "namespaced": true, "preferred": true,
        }))
        .unwrap(),
    )
}

fn rejected(status: u16) -> RequestError {
    RequestError::Api(Box::new(ApiError::from_response(status, None, b"no")))
}

/// Applies the operations of a JSON patch that a finalizer needs.
fn json_patch(body: &mut Value, operations: &Value) {
    for operation in operations.as_array().unwrap() {
        let path = operation["path"].as_str().unwrap();
        let (parent, key) = path.rsplit_once('/').unwrap();
        let key = key.replace("~1", "/").replace("~0", "~");
        match (operation["op"].as_str().unwrap(), body.pointer_mut(parent).unwrap()) {
            ("test", parent) => assert_eq!(parent.get(&key), operation.get("value")),
            ("remove", Value::Array(items)) => drop(items.remove(key.parse().unwrap())),
            ("remove", parent) => drop(parent.as_object_mut().unwrap().shift_remove(&key)),
            ("add", Value::Array(items)) if key == "-" => items.push(operation["value"].clone()),
            ("add", Value::Array(items)) => {
                items.insert(key.parse().unwrap(), operation["value"].clone());
            }
            (_, parent) => parent[key] = operation["value"].clone(),
        }
    }
}

/// Applies a merge patch as the API server does.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        let map = target.as_object_mut().unwrap();
        if value.is_null() {
            map.shift_remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Merges one patch into another: keeps nulls.
fn merge_kept(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge_kept(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}
