//! A world of one object for stories and laws: a store that applies what cycles conclude, and a Python that answers as told.

#![allow(dead_code, reason = "stories and laws use different parts of it")]
#![allow(unreachable_pub, reason = "it is a module of several test binaries")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use kopf_core::activation::log::LogMessage;
use kopf_core::activation::{
    Activation, Command, CommandResult, Completion, FilterResult, LoadedState, StoreRequest,
};
use kopf_core::cause::EventType;
use kopf_core::cycle::{Cycle, CycleEvent, CycleInput, Decision, Effect, EffectResult, OperatorConfig};
use kopf_core::daemon::{self, DesiredDaemons, StopReasons};
use kopf_core::handler::Handler;
use kopf_core::handler::lifecycle::Lifecycle;
use kopf_core::handler::registry::{Registry, ResourceHandlers};
use kopf_core::handling::attempt::{Attempt, CallResult, Outcome};
use kopf_core::json::merge_patch::Patch;
use kopf_core::json::path::FieldPath;
use kopf_core::object::Object;
use kopf_core::persistence::Persistence;
use kopf_core::persistence::essence::essence;
use kopf_core::persistence::finalizer::{self, Edit};
use kopf_core::persistence::memory::Accepted;
use kopf_core::persistence::memory::ObjectMemory;
use kopf_core::resource::Resource;
use kopf_core::settings::Settings;
use kopf_core::time::Timestamp;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// One object, one operator.
#[derive(Clone)]
#[allow(clippy::struct_excessive_bools, reason = "they are independent facts")]
pub struct World {
    pub handlers: Vec<Handler>,
    pub settings: Settings,
    pub lifecycle: Lifecycle,
    pub body: Value,
    pub exists: bool,
    pub version: u64,
    pub now: Timestamp,
    pub memory: ObjectMemory,
    /// What was written is known afterwards, and what others have removed from that is missed.
    pub remembers: bool,
    pub entropy: u64,
    /// What the next calls of handlers raise; afterwards, nothing.
    pub raises: BTreeMap<String, VecDeque<CallResult>>,
    /// What the next calls of handlers put into the patch.
    pub patches: BTreeMap<String, VecDeque<Value>>,
    /// What callable filters say, if not yes: prematch, full.
    pub says: BTreeMap<String, (bool, bool)>,
    /// What the next calls of the user's lifecycle choose, by ids.
    pub picks: VecDeque<Vec<String>>,
    /// The next script raises this.
    pub script_error: Option<String>,
    /// The next cycle begins with an own write under way, and this is how waiting ends.
    pub inconsistent: Option<bool>,
    /// The daemons and timers that run, by their handlers.
    pub running: Vec<usize>,
    /// The ids of those that have ended for good.
    pub ended: Vec<Arc<str>>,
    /// Those that are asked to stop take so many seconds for it.
    pub lingering: Option<f64>,
    /// The handlers' patch will have transformation functions.
    pub fns: bool,
    /// Somebody changes the object before the next edit of the finalizers, which is refused therefore.
    pub outrun: bool,
}

/// What happened in one cycle.
#[derive(Default)]
pub struct Run {
    pub transcript: Vec<String>,
    pub crossings: usize,
    /// Which change handlers were really called, for which reason, and whether it was the last time.
    pub calls: Vec<(String, &'static str, bool)>,
    pub decision: Decision,
    /// The object has another version than before.
    pub echoes: bool,
}

impl World {
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
            memory: ObjectMemory::default(),
            remembers: false,
            entropy: 0,
            raises: BTreeMap::new(),
            patches: BTreeMap::new(),
            says: BTreeMap::new(),
            picks: VecDeque::new(),
            script_error: None,
            inconsistent: None,
            running: Vec::new(),
            ended: Vec::new(),
            lingering: None,
            fns: false,
            outrun: false,
        }
    }

    pub fn declare(&mut self, handler: Value) {
        self.handlers.push(serde_json::from_value(handler).unwrap());
    }

    /// The user changes the object.
    pub fn edit(&mut self, patch: &Value) {
        let mut body = self.body.clone();
        merge(&mut body, patch);
        self.put(body);
    }

    /// The user asks for the object's deletion.
    pub fn delete(&mut self) {
        self.edit(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    }

    /// The operator starts anew: it remembers nothing, and lists the object.
    pub fn restart(&mut self) {
        self.memory = ObjectMemory { noticed_by_listing: true, ..ObjectMemory::default() };
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

    /// One cycle for the object as it is, and its conclusion applied to the object.
    pub fn cycle(&mut self, event: EventType) -> Run {
        let mut run = Run::default();
        let registry = Arc::new(Registry { handlers: self.handlers.clone() });
        let plan = Arc::new(registry.plan(&resource(), &|_| true));
        let settings = Arc::new(self.settings.clone());
        let known = (Arc::clone(&plan), Arc::clone(&settings));
        let rules = Arc::new(OperatorConfig { registry, settings, lifecycle: self.lifecycle });
        let object = self.object();
        let consistency = self.inconsistent.take();
        let moment = CycleInput { now: self.now, entropy: self.entropy, consistent: consistency.is_none() };
        let observation = CycleEvent { event, object: Arc::clone(&object), requeued: false };
        if self.remembers {
            self.memory.observe(&object, &known.1, &known.0);
        }
        let (mut cycle, mut next) = Cycle::open(observation, &self.memory, plan, rules, moment);
        let mut patch = Map::new();
        loop {
            for note in cycle.drain_log() {
                run.transcript.push(told(&note, &object));
            }
            next = match next {
                Effect::Run(activation) => {
                    run.crossings += 1;
                    let reply = self.answer(&activation, &mut patch, &mut run);
                    cycle.resume(EffectResult::Completion(reply), self.now)
                }
                Effect::AwaitConsistency => {
                    let arrived = consistency.unwrap();
                    run.transcript.push(format!("await consistency: {arrived}"));
                    cycle.resume(EffectResult::Consistent(arrived), self.now)
                }
                Effect::Spawn(wanted) => cycle.resume(self.staff(&wanted, &mut run), self.now),
                Effect::Done(decision) => {
                    run.decision = *decision;
                    break;
                }
            };
        }
        let seen = Arc::clone(cycle.object());
        self.apply(&mut run);
        self.remember(&run, &seen, &known);
        run
    }

    /// What was written is known from then on.
    fn remember(
        &mut self,
        run: &Run,
        object: &Object,
        (plan, settings): &(Arc<ResourceHandlers>, Arc<Settings>),
    ) {
        if run.decision.error.is_some() || !self.remembers {
            return;
        }
        self.memory.annotations_removed |= run.decision.annotations_removed;
        let (latest, patch) = (self.object(), &run.decision.patch.0);
        let accepted = Accepted { patch, latest: run.echoes.then_some(&*latest) };
        self.memory.record_write(object, accepted, run.decision.handling_status.clone(), settings, plan);
    }

    /// Daemons and timers start at once, and stop at once if they do not linger.
    fn staff(&mut self, wanted: &DesiredDaemons, run: &mut Run) -> EffectResult {
        let registry = Registry { handlers: self.handlers.clone() };
        let assessed = daemon::diff(wanted, &self.running, &self.ended, &registry, None);
        for handler in assessed.start {
            run.transcript.push(format!("start {}", self.id(handler)));
            self.running.push(handler);
        }
        let mut delay = None;
        for (position, reason) in assessed.stop.into_iter().rev() {
            let id = self.id(self.running[position]);
            let why = if reason == StopReasons::RESOURCE_DELETED { "deletion" } else { "mismatch" };
            run.transcript.push(format!("stop {id} for {why}"));
            delay = self.lingering;
            if delay.is_none() {
                self.running.remove(position);
            }
        }
        if wanted.reset {
            run.transcript.push("idling begins anew".to_owned());
        }
        EffectResult::Spawned { delay, holds: assessed.holds }
    }

    fn apply(&mut self, run: &mut Run) {
        let decision = &run.decision;
        let mut said = Vec::new();
        if let Some(error) = &decision.error {
            said.push(format!("error {error}"));
        }
        if !decision.patch.is_empty() {
            said.push(format!("patch {}", Value::Object(decision.patch.0.clone())));
        }
        if decision.fns {
            said.push("patch functions".to_owned());
        }
        match decision.finalizer {
            Some(Edit::Block) => said.push("finalizer block".to_owned()),
            Some(Edit::Allow) => said.push("finalizer allow".to_owned()),
            None => {}
        }
        if let Some(delay) = decision.delay {
            said.push(format!("delay {delay}"));
        }
        if decision.fully_handled_once && !self.memory.fully_handled_once {
            said.push("fully handled once".to_owned());
        }
        self.memory.fully_handled_once = decision.fully_handled_once;
        self.memory.deletion_handled = decision.deletion_handled;
        if self.exists {
            let mut body = self.body.clone();
            merge(&mut body, &Value::Object(decision.patch.0.clone()));
            if let Some(edit) = decision.finalizer.filter(|_| !std::mem::take(&mut self.outrun)) {
                finalizer::edit(&mut body, &self.settings.persistence.finalizer, edit);
            }
            run.echoes = self.put(body);
        }
        if said.is_empty() {
            said.push("nothing".to_owned());
        }
        run.transcript.append(&mut said);
    }

    fn id(&self, handler: usize) -> String {
        self.handlers[handler].id.to_string()
    }

    fn answer(
        &mut self,
        activation: &Activation,
        patch: &mut Map<String, Value>,
        run: &mut Run,
    ) -> Completion {
        if let Some(error) = self.script_error.take() {
            return Completion { error: Some(error), ..Completion::default() };
        }
        let reason = activation.change.as_ref().map_or("", |change| change.reason.as_str());
        let steps: Vec<_> = activation.steps.iter().map(|step| self.step(step, reason, patch, run)).collect();
        let patch = (!patch.is_empty()).then(|| patch.clone());
        Completion { steps, patch, fns: self.fns, ..Completion::default() }
    }

    fn step(
        &mut self,
        step: &Command,
        reason: &'static str,
        patch: &mut Map<String, Value>,
        run: &mut Run,
    ) -> CommandResult {
        match step {
            Command::Index(_) => panic!("the indices are not the cycle's"),
            Command::Watch { handler, guarded, attempt } => {
                let id = self.id(*handler);
                if *guarded && self.says.get(&id).is_some_and(|says| !says.0) {
                    run.transcript.push(format!("skip {id}"));
                    CommandResult::Skipped
                } else {
                    run.transcript.push(format!("call {id}"));
                    CommandResult::Attempted(self.attempt(attempt, patch, run))
                }
            }
            Command::Spawn { handlers } => self.asked(handlers, "spawning", run),
            Command::Match { handlers } => self.asked(handlers, reason, run),
            Command::Pick { handlers } => {
                let shown: Vec<String> = handlers
                    .iter()
                    .map(|(handler, retries)| format!("{}#{retries}", self.id(*handler)))
                    .collect();
                run.transcript.push(format!("pick from {}", shown.join(", ")));
                let picked = self.picks.pop_front().unwrap_or_default();
                let index =
                    |id: &String| self.handlers.iter().position(|handler| *handler.id == **id).unwrap();
                CommandResult::Picked(picked.iter().map(index).collect())
            }
            Command::Load { ids, extra_fields } => self.recall(ids, extra_fields),
            Command::Store(keep) => {
                self.keep(keep, patch);
                CommandResult::Skipped
            }
            Command::Handle { attempt } => {
                let id = self.id(attempt.handler);
                let forbidden = attempt.precheck(self.now).is_some();
                let verb = if forbidden { "refuse" } else { "call" };
                run.transcript.push(format!("{verb} {id} for {reason}, retry {}", attempt.retry));
                let outcome = self.attempt(attempt, patch, run);
                if !forbidden {
                    run.calls.push((id, reason, outcome.final_));
                }
                CommandResult::Attempted(outcome)
            }
        }
    }

    fn asked(&self, handlers: &[usize], reason: &str, run: &mut Run) -> CommandResult {
        let ids: Vec<String> = handlers.iter().map(|handler| self.id(*handler)).collect();
        run.transcript.push(format!("ask {} for {reason}", ids.join(", ")));
        let says = |id: &String| self.says.get(id).copied().unwrap_or((true, true));
        let answers = ids.iter().map(says).map(|(prematch, full)| FilterResult { prematch, full });
        CommandResult::Matched(answers.collect())
    }

    /// The user's storages do the same as ours, so that the two can be compared.
    fn recall(&self, ids: &[Arc<str>], extra_fields: &[FieldPath]) -> CommandResult {
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
        CommandResult::Loaded(Box::new(LoadedState { old, new, records: records.collect() }))
    }

    fn keep(&mut self, keep: &StoreRequest, patch: &mut Map<String, Value>) {
        let (object, ours) = (self.object(), Persistence::default());
        let mut whole = Patch(std::mem::take(patch));
        for (id, record) in &keep.records {
            match record {
                Some(record) => ours.progress_storage.store(&object, &mut whole, id, record),
                None => ours.progress_storage.purge(&object, &mut whole, id),
            }
        }
        if keep.essence {
            let plan = Registry { handlers: self.handlers.clone() };
            let plan = Arc::new(plan).plan(&resource(), &|_| true);
            let new = essence(&object, &ours, &plan.extra_fields);
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
                self.raises.get_mut(&id).and_then(VecDeque::pop_front).unwrap_or(CallResult::Nothing);
            attempt.evaluate(&raised, self.now)
        });
        if let Some(line) = settled.log {
            run.transcript.push(format!("{} {}", line.level.as_str(), line.text));
        }
        settled.outcome
    }
}

fn told(note: &LogMessage, object: &Object) -> String {
    let text = note.text(object);
    // Whole bodies are no good prose.
    let text = match note {
        LogMessage::InProgress(_) => text.split('{').next().unwrap().to_owned() + "{...}",
        _ => text,
    };
    format!("{} {text}", note.level().as_str())
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

/// As the API server merges.
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

/// As one patch is merged into another: nulls are kept.
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
