//! An operator with its memory and one object, in which writes fail, annotations disappear, and operators restart.

use super::super::*;
use super::LAST;
use crate::activation::log::LogMessage;
use crate::activation::{Command, CommandResult, Completion};
use crate::cause::EventType;
use crate::cycle::{Cycle, CycleStart, Decision, Effect, OperatorConfig, QueuedEvent};
use crate::handler::lifecycle::Lifecycle;
use crate::handler::registry::Registry;
use crate::handling::attempt::CallResult;
use crate::persistence::memory::{Accepted, HandlingStatus, ObjectMemory};
use crate::persistence::merge_requests::deferred_progress;
use crate::persistence::unwritten_patch::Unwritten;
use crate::settings::Settings;
use crate::time::Timestamp;
use serde_json::json;
use std::collections::HashMap;

/// An operator with two creation and two update handlers, called one by one; its memory, and the object on the API server.
pub(super) struct Scene {
    pub(super) config: Arc<OperatorConfig>,
    pub(super) handlers: Arc<ResourceHandlers>,
    pub(super) memory: ObjectMemory,
    pub(super) object: Value,
    pub(super) calls: Vec<String>,
    pub(super) log: Vec<LogMessage>,
    pub(super) view_age: ViewAge,
    /// The patches of handlers, by their ids.
    pub(super) patches: HashMap<&'static str, Value>,
    /// The writes of handlers with other clients, by their ids; with the field manager.
    pub(super) writes: HashMap<&'static str, (&'static str, Value)>,
    /// Called handlers fail with a temporary error and this delay in seconds.
    pub(super) fails: Option<f64>,
    /// The API server rejects the status, but not the rest of a patch.
    pub(super) rejects_status: bool,
    /// The API server does not store the progress in the status.
    pub(super) prunes_progress: bool,
    /// Another client removes the annotations during the next cycle, and a pause of the operator begins and ends.
    pub(super) is_paused_and_stripped: bool,
    pub(super) now: Timestamp,
}

impl Scene {
    pub(super) fn new(compat: bool) -> Self {
        let handlers = [("c1", "create"), ("c02", "create"), ("u001", "update"), ("u0002", "update")];
        Self::of(compat, &handlers)
    }

    pub(super) fn of(compat: bool, handlers: &[(&str, &str)]) -> Self {
        let handlers = handlers.iter().map(
            |(id, reason)| json!({"id": id, "reason": reason, "requires_finalizer": *reason == "delete"}),
        );
        Self::declared(compat, handlers.collect())
    }

    /// With these declarations of change handlers.
    pub(super) fn declared(compat: bool, handlers: Vec<Value>) -> Self {
        let handler = |mut handler: Value| {
            handler["key"] = json!(handler["id"].as_str().unwrap().len());
            handler["kind"] = json!("changing");
            handler["selector"] = json!({"group": "kopf.dev", "version": "v1", "plural": "kopfexamples"});
            serde_json::from_value(handler).unwrap()
        };
        let handlers = handlers.into_iter().map(handler).collect();
        let registry = Arc::new(Registry { handlers });
        let resource = json!({
            "group": "kopf.dev", "version": "v1", "plural": "kopfexamples", "kind": "KopfExample",
            "singular": "kopfexample", "shortcuts": [], "categories": [], "subresources": [], "verbs": [],
            "namespaced": true, "preferred": true,
        });
        let resource: crate::resource::Resource = serde_json::from_value(resource).unwrap();
        let handlers = Arc::new(registry.handlers_of(&Arc::new(resource), &|_| true));
        let settings = Arc::new(Settings { compat, ..Settings::default() });
        let config = Arc::new(OperatorConfig { registry, settings, lifecycle: Lifecycle::OneByOne });
        let object = json!({
            "apiVersion": "kopf.dev/v1", "kind": "KopfExample", "spec": {"x": 1},
            "metadata": {"name": "n", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
        });
        Self {
            config,
            handlers,
            memory: ObjectMemory::default(),
            object,
            calls: vec![],
            log: vec![],
            view_age: ViewAge::Consistent,
            patches: HashMap::new(),
            writes: HashMap::new(),
            fails: None,
            rejects_status: false,
            prunes_progress: false,
            is_paused_and_stripped: false,
            now: Timestamp::from_micros(0),
        }
    }

    /// With progress in the status, which is a subresource.
    pub(super) fn with_progress_in_the_status(self) -> Self {
        let storage =
            json!({"type": "Status", "field": ["status", "progress"], "touch_field": ["status", "dummy"]});
        self.with_the_status(|persistence| {
            persistence.progress_storage = serde_json::from_value(storage).unwrap();
        })
    }

    /// With the diff-base in the status, which is a subresource.
    pub(super) fn with_diffbase_in_the_status(self) -> Self {
        let storage = json!({"type": "Status", "field": ["status", "base"]});
        self.with_the_status(|persistence| {
            persistence.diffbase_storage = serde_json::from_value(storage).unwrap();
        })
    }

    fn with_the_status(mut self, configure: impl FnOnce(&mut Persistence)) -> Self {
        let OperatorConfig { registry, settings, lifecycle } = &*self.config;
        let mut settings = Settings::clone(settings);
        configure(&mut settings.persistence);
        let mut resource = serde_json::to_value(&*self.handlers.resource).unwrap();
        resource["subresources"] = json!(["status"]);
        let resource: crate::resource::Resource = serde_json::from_value(resource).unwrap();
        self.handlers = Arc::new(registry.handlers_of(&Arc::new(resource), &|_| true));
        let (registry, settings) = (Arc::clone(registry), Arc::new(settings));
        self.config = Arc::new(OperatorConfig { registry, settings, lifecycle: *lifecycle });
        self
    }

    /// One cycle. Its patch is written, or the write is rejected.
    pub(super) fn cycle(&mut self, requeued: bool, written: bool) -> Decision {
        let object = Arc::new(Object::decode(&self.object.to_string()).unwrap());
        let now = self.now;
        let event = QueuedEvent { requeued, ..QueuedEvent::of(EventType::Modified, Arc::clone(&object)) };
        let settings = Arc::clone(&self.config.settings);
        let temporary = |delay| CallResult::Temporary { message: "boo".to_owned(), delay: Some(delay) };
        let raised = self.fails.map_or(CallResult::Nothing, temporary);
        self.memory.observe(&object, &settings, &self.handlers);
        let (handlers, config) = (Arc::clone(&self.handlers), Arc::clone(&self.config));
        let (memory, view_age) = (self.memory.clone(), self.view_age);
        let start = CycleStart { event, memory, view_age, index_pass: None };
        let mut cycle = Cycle::open(start, handlers, config, 0, now);
        let object = Arc::clone(cycle.object());
        loop {
            match cycle.effect().unwrap() {
                Effect::Run(script) => {
                    let (mut results, mut patch) = (vec![], Patch::default());
                    for command in &script.commands {
                        let Command::CallChangeHandler { attempt } = command else { panic!("{command:?}") };
                        let id = &self.config.registry.handlers[attempt.handler].id;
                        self.calls.push(format!("{id} x={}", cycle.object().to_value()["spec"]["x"]));
                        results.push(CommandResult::Attempted(attempt.evaluate(&raised, now).outcome));
                        if let Some(Value::Object(more)) = self.patches.get(&**id) {
                            patch.merge(more.clone());
                        }
                        if let Some((manager, Value::Object(more))) = self.writes.get(&**id) {
                            apply_merge(&mut self.object, more);
                            let fields = json!({"f:spec": {"f:own": {}}});
                            self.object["metadata"]["managedFields"] =
                                json!([{"manager": manager, "fieldsV1": fields}]);
                        }
                    }
                    let patch = (!patch.is_empty()).then_some(patch.0);
                    cycle.on_completion(Completion { results, patch, ..Completion::default() }, now);
                }
                Effect::Done(conclusion) => {
                    self.log.extend(cycle.drain_log());
                    self.memory.annotations_removed |= conclusion.annotations_removed;
                    if std::mem::take(&mut self.is_paused_and_stripped) {
                        self.strip();
                        self.memory.invalidate();
                    }
                    let (patch, handling_status) =
                        (conclusion.patch.0.clone(), conclusion.handling_status.clone());
                    if written {
                        let (patch, rejected) = self.split(&object, patch);
                        let latest = self.store(&patch);
                        let accepted = Accepted { patch: &patch, latest: Some(&latest) };
                        self.memory.record_write(
                            &object,
                            accepted,
                            handling_status,
                            &settings,
                            &self.handlers,
                        );
                        self.memory.accepted(&patch);
                        self.memory.rejected(rejected, now, &settings);
                    } else {
                        self.memory.failed(
                            &object,
                            Unwritten {
                                patch,
                                final_progress: conclusion.final_progress.0.clone(),
                                is_rejected: true,
                            },
                            handling_status,
                            &settings,
                            &self.handlers,
                        );
                    }
                    return *conclusion;
                }
                Effect::AwaitConsistency => cycle.on_consistency(false, now),
                other @ Effect::Spawn(_) => panic!("{other:?}"),
            }
        }
    }

    /// Applies an accepted patch. Returns the object in the response.
    fn store(&mut self, patch: &Map<String, Value>) -> Object {
        apply_merge(&mut self.object, patch);
        if self.prunes_progress
            && let Some(Value::Object(status)) = self.object.get_mut("status")
        {
            status.shift_remove("progress");
        }
        Object::decode(&self.object.to_string()).unwrap()
    }

    /// The part of a patch that is written, and the one that is not, as its status is rejected.
    fn split(&self, object: &Object, patch: Map<String, Value>) -> (Map<String, Value>, Map<String, Value>) {
        let status = status_of(&patch);
        if !self.rejects_status || status.is_empty() {
            return (patch, Map::new());
        }
        let body = subtract(patch, &status);
        let progress = deferred_progress(object, &body, &status, &self.config.settings.persistence);
        let mut rejected = Patch(status);
        rejected.merge(progress.clone());
        (subtract(body, &progress), rejected.0)
    }

    /// The API server accepts what it has rejected before.
    pub(super) fn accept(&mut self, rejected: &Map<String, Value>) {
        apply_merge(&mut self.object, rejected);
        let latest = Object::decode(&self.object.to_string()).unwrap();
        let (accepted, settings) =
            (Accepted { patch: rejected, latest: Some(&latest) }, Arc::clone(&self.config.settings));
        self.memory.record_write(&latest, accepted, HandlingStatus::Before, &settings, &self.handlers);
        self.memory.accepted(rejected);
    }

    /// Runs cycles until one writes nothing.
    pub(super) fn settle(&mut self) {
        for _ in 0..20 {
            let conclusion = self.cycle(false, true);
            if conclusion.patch.is_empty() && conclusion.delay.is_none() {
                return;
            }
        }
        panic!("cycles do not end: {:?}", self.calls);
    }

    pub(super) fn strip(&mut self) {
        self.object["metadata"].as_object_mut().unwrap().shift_remove("annotations");
    }

    /// An object whose creation is handled, with an empty list of calls.
    pub(super) fn handled() -> Self {
        let mut scene = Self::new(false);
        scene.settle();
        scene.calls.clear();
        scene
    }

    pub(super) fn set(&mut self, x: u8) {
        self.object["spec"]["x"] = json!(x);
    }

    /// The operator crashes, and another one takes over.
    pub(super) fn restart(&mut self) {
        self.memory = ObjectMemory::default();
    }

    pub(super) fn restart_if(&mut self, restarts: bool) {
        if restarts {
            self.restart();
        }
    }

    /// Settles, and checks that the diff-base has this value and no progress is left.
    pub(super) fn settle_with(&mut self, x: u8) {
        self.settle();
        assert_eq!(self.last()["spec"]["x"], json!(x));
        let object = Object::decode(&self.object.to_string()).unwrap();
        let persistence = &self.config.settings.persistence;
        assert!(equal(&self.last(), &essence(&object, persistence, &self.handlers.extra_fields)));
        let annotations = self.object["metadata"]["annotations"].as_object();
        assert!(annotations.is_none_or(|all| all.keys().all(|key| key == LAST)), "{}", self.object);
    }

    pub(super) fn last(&self) -> Value {
        let text = self.object["metadata"]["annotations"][LAST].as_str();
        let text = text.or_else(|| self.object["status"]["base"].as_str());
        serde_json::from_str(text.unwrap_or("null")).unwrap()
    }

    pub(super) fn warnings(&self) -> usize {
        self.log.iter().filter(|message| matches!(message, LogMessage::Stripped(_))).count()
    }
}
