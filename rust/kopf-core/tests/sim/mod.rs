//! A world of one object for stories and laws: a store that applies what cycles conclude, and a Python that answers as told.

#![allow(dead_code, reason = "stories and laws use different parts of it")]
#![allow(unreachable_pub, reason = "it is a module of several test binaries")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use kopf_core::cause::EventType;
use kopf_core::cycle::{Answer, Conclusion, Cycle, Memory, Moment, Next, Observation, Rules};
use kopf_core::daemon::{self, Reasons, Wanted};
use kopf_core::essence::essence;
use kopf_core::finalizer::{self, Edit};
use kopf_core::handler::Handler;
use kopf_core::ledger::Accepted;
use kopf_core::lifecycle::Lifecycle;
use kopf_core::notes::{Level, Note};
use kopf_core::object::Object;
use kopf_core::outcome::{Attempt, Outcome, Raised};
use kopf_core::patch::Patch;
use kopf_core::path::FieldPath;
use kopf_core::registry::{Plan, Registry};
use kopf_core::resource::Resource;
use kopf_core::script::{Keep, Matched, Recalled, Reply, Script, Step, StepReply};
use kopf_core::settings::{Persistence, Settings};
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
    pub memory: Memory,
    /// What was written is known afterwards, and what others have removed from that is missed.
    pub remembers: bool,
    pub entropy: u64,
    /// What the next calls of handlers raise; afterwards, nothing.
    pub raises: BTreeMap<String, VecDeque<Raised>>,
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
    pub conclusion: Conclusion,
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
            memory: Memory::default(),
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
        self.memory = Memory { noticed_by_listing: true, ..Memory::default() };
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

    /// One cycle for the object as it is, and its conclusion applied to the object. Whether calls are foreseen makes no
    /// difference but for the crossings.
    pub fn cycle(&mut self, event: EventType) -> Run {
        let mut twin = self.clone();
        let run = self.live(event, false);
        let foreseen = twin.live(event, true);
        let is_loud = |line: &&String| !line.starts_with(Level::Debug.as_str());
        let loud = |run: &Run| run.transcript.iter().filter(is_loud).cloned().collect::<Vec<_>>();
        assert_eq!(loud(&foreseen), loud(&run));
        assert_eq!((&foreseen.calls, &foreseen.conclusion), (&run.calls, &run.conclusion));
        assert_eq!((&twin.body, twin.exists), (&self.body, self.exists));
        assert!(foreseen.crossings <= run.crossings);
        run
    }

    fn live(&mut self, event: EventType, foreseeing: bool) -> Run {
        let mut run = Run::default();
        let registry = Arc::new(Registry { handlers: self.handlers.clone() });
        let plan = Arc::new(registry.plan(&resource(), &|_| true));
        let settings = Arc::new(self.settings.clone());
        let known = (Arc::clone(&plan), Arc::clone(&settings));
        let rules = Arc::new(Rules { registry, settings, lifecycle: self.lifecycle });
        let object = self.object();
        let consistency = self.inconsistent.take();
        let moment = Moment { now: self.now, entropy: self.entropy, consistent: consistency.is_none() };
        let observation = Observation { event, object: Arc::clone(&object), woken: false };
        if self.remembers {
            self.memory.notice(&object, &known.1, &known.0);
        }
        let (mut cycle, mut next) = Cycle::open(observation, &self.memory, plan, rules, moment);
        let mut patch = Map::new();
        loop {
            for note in cycle.take_notes() {
                run.transcript.push(told(&note, &object));
            }
            if foreseeing {
                cycle.foresee(&mut next, |level| level != Level::Debug);
            }
            next = match next {
                Next::Run(script) => {
                    run.crossings += 1;
                    let reply = self.answer(&script, &mut patch, &mut run);
                    cycle.resume(Answer::Reply(reply), self.now)
                }
                Next::AwaitConsistency => {
                    let arrived = consistency.unwrap();
                    run.transcript.push(format!("await consistency: {arrived}"));
                    cycle.resume(Answer::Consistent(arrived), self.now)
                }
                Next::Spawn(wanted) => cycle.resume(self.staff(&wanted, &mut run), self.now),
                Next::Done(conclusion) => {
                    run.conclusion = *conclusion;
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
    fn remember(&mut self, run: &Run, object: &Object, (plan, settings): &(Arc<Plan>, Arc<Settings>)) {
        if run.conclusion.error.is_some() || !self.remembers {
            return;
        }
        self.memory.stripped |= run.conclusion.stripped;
        let (latest, patch) = (self.object(), &run.conclusion.patch.0);
        let accepted = Accepted { patch, latest: run.echoes.then_some(&*latest) };
        self.memory.wrote(object, accepted, run.conclusion.sequel.clone(), settings, plan);
    }

    /// Daemons and timers start at once, and stop at once if they do not linger.
    fn staff(&mut self, wanted: &Wanted, run: &mut Run) -> Answer {
        let registry = Registry { handlers: self.handlers.clone() };
        let assessed = daemon::assess(wanted, &self.running, &self.ended, &registry, None);
        for handler in assessed.start {
            run.transcript.push(format!("start {}", self.id(handler)));
            self.running.push(handler);
        }
        let mut delay = None;
        for (position, reason) in assessed.stop.into_iter().rev() {
            let id = self.id(self.running[position]);
            let why = if reason == Reasons::RESOURCE_DELETED { "deletion" } else { "mismatch" };
            run.transcript.push(format!("stop {id} for {why}"));
            delay = self.lingering;
            if delay.is_none() {
                self.running.remove(position);
            }
        }
        if wanted.reset {
            run.transcript.push("idling begins anew".to_owned());
        }
        Answer::Spawned { delay, holds: assessed.holds }
    }

    fn apply(&mut self, run: &mut Run) {
        let conclusion = &run.conclusion;
        let mut said = Vec::new();
        if let Some(error) = &conclusion.error {
            said.push(format!("error {error}"));
        }
        if !conclusion.patch.is_empty() {
            said.push(format!("patch {}", Value::Object(conclusion.patch.0.clone())));
        }
        if conclusion.fns {
            said.push("patch functions".to_owned());
        }
        match conclusion.finalizer {
            Some(Edit::Block) => said.push("finalizer block".to_owned()),
            Some(Edit::Allow) => said.push("finalizer allow".to_owned()),
            None => {}
        }
        if let Some(delay) = conclusion.delay {
            said.push(format!("delay {delay}"));
        }
        if conclusion.fully_handled_once && !self.memory.fully_handled_once {
            said.push("fully handled once".to_owned());
        }
        self.memory.fully_handled_once = conclusion.fully_handled_once;
        self.memory.parted = conclusion.parted;
        if self.exists {
            let mut body = self.body.clone();
            merge(&mut body, &Value::Object(conclusion.patch.0.clone()));
            if let Some(edit) = conclusion.finalizer.filter(|_| !std::mem::take(&mut self.outrun)) {
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

    fn answer(&mut self, script: &Script, patch: &mut Map<String, Value>, run: &mut Run) -> Reply {
        if let Some(error) = self.script_error.take() {
            return Reply { error: Some(error), ..Reply::default() };
        }
        let reason = script.change.as_ref().map_or("", |change| change.reason.as_str());
        let steps: Vec<_> = script.steps.iter().map(|step| self.step(step, reason, patch, run)).collect();
        let is_clean = patch.is_empty() && !self.fns && Reply::is_as_foreseen(&steps, 0.0);
        let then = (is_clean && !script.then.is_empty())
            .then(|| script.then.iter().map(|step| self.step(step, reason, patch, run)).collect());
        let patch = (!patch.is_empty()).then(|| patch.clone());
        Reply { steps, then, patch, fns: self.fns, ..Reply::default() }
    }

    fn step(
        &mut self,
        step: &Step,
        reason: &'static str,
        patch: &mut Map<String, Value>,
        run: &mut Run,
    ) -> StepReply {
        match step {
            Step::Index(_) => panic!("the indices are not the cycle's"),
            Step::Watch { handler, guarded, attempt } => {
                let id = self.id(*handler);
                if *guarded && self.says.get(&id).is_some_and(|says| !says.0) {
                    run.transcript.push(format!("skip {id}"));
                    StepReply::Skipped
                } else {
                    run.transcript.push(format!("call {id}"));
                    StepReply::Attempted(self.attempt(attempt, patch, run))
                }
            }
            Step::Spawn { handlers } => self.asked(handlers, "spawning", run),
            Step::Match { handlers } => self.asked(handlers, reason, run),
            Step::Pick { handlers } => {
                let shown: Vec<String> = handlers
                    .iter()
                    .map(|(handler, retries)| format!("{}#{retries}", self.id(*handler)))
                    .collect();
                run.transcript.push(format!("pick from {}", shown.join(", ")));
                let picked = self.picks.pop_front().unwrap_or_default();
                let index =
                    |id: &String| self.handlers.iter().position(|handler| *handler.id == **id).unwrap();
                StepReply::Picked(picked.iter().map(index).collect())
            }
            Step::Recall { ids, extra_fields } => self.recall(ids, extra_fields),
            Step::Keep(keep) => {
                self.keep(keep, patch);
                StepReply::Skipped
            }
            Step::Handle { attempt } => {
                let id = self.id(attempt.handler);
                let forbidden = attempt.precheck(self.now).is_some();
                let verb = if forbidden { "refuse" } else { "call" };
                run.transcript.push(format!("{verb} {id} for {reason}, retry {}", attempt.retry));
                let outcome = self.attempt(attempt, patch, run);
                if !forbidden {
                    run.calls.push((id, reason, outcome.final_));
                }
                StepReply::Attempted(outcome)
            }
        }
    }

    fn asked(&self, handlers: &[usize], reason: &str, run: &mut Run) -> StepReply {
        let ids: Vec<String> = handlers.iter().map(|handler| self.id(*handler)).collect();
        run.transcript.push(format!("ask {} for {reason}", ids.join(", ")));
        let says = |id: &String| self.says.get(id).copied().unwrap_or((true, true));
        let answers = ids.iter().map(says).map(|(prematch, full)| Matched { prematch, full });
        StepReply::Matched(answers.collect())
    }

    /// The user's storages do the same as ours, so that the two can be compared.
    fn recall(&self, ids: &[Arc<str>], extra_fields: &[FieldPath]) -> StepReply {
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
        StepReply::Recalled(Box::new(Recalled { old, new, records: records.collect() }))
    }

    fn keep(&mut self, keep: &Keep, patch: &mut Map<String, Value>) {
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
            let raised = self.raises.get_mut(&id).and_then(VecDeque::pop_front).unwrap_or(Raised::Nothing);
            attempt.settle(&raised, self.now)
        });
        if let Some(line) = settled.log {
            run.transcript.push(format!("{} {}", line.level.as_str(), line.text));
        }
        settled.outcome
    }
}

fn told(note: &Note, object: &Object) -> String {
    let text = note.text(object);
    // Whole bodies are no good prose.
    let text = match note {
        Note::InProgress(_) => text.split('{').next().unwrap().to_owned() + "{...}",
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
