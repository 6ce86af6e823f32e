//! The operators to explore: their handlers, and how these behave.

use crate::cluster::Version;
use crate::flaws::Flaw;
use crate::model::Budget;
use kopf_core::cause::Reason;
use kopf_core::cycle::OperatorConfig;
use kopf_core::handler::filters::{self, FilterVerdict};
use kopf_core::handler::registry::{Registry, ResourceHandlers};
use kopf_core::handler::{ErrorsMode, Handler, Kind};
use kopf_core::handling::attempt::{Attempt, CallResult};
use kopf_core::handling::sub_handlers::SubHandler;
use kopf_core::object_worker::DecidedWrite;
use kopf_core::persistence::Persistence;
use kopf_core::persistence::diffbase::DiffBaseStorage;
use kopf_core::persistence::merge_requests::merge_requests;
use kopf_core::persistence::progress::ProgressStorage;
use kopf_core::resource::Resource;
use kopf_core::settings::Settings;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::sync::Arc;

/// The configuration of an operator, and the flaw injected into it.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct World {
    pub name: &'static str,
    pub rules: Arc<OperatorConfig>,
    pub plan: Arc<ResourceHandlers>,
    pub flaw: Option<Flaw>,
    /// Every watch event is processed, not only the newest.
    pub every_event: bool,
    /// Some handlers match only labelled objects.
    pub filtered: bool,
    /// Handlers that must be called before a creation, an update, or a deletion is finished.
    pub creators: Vec<Arc<str>>,
    pub updaters: Vec<Arc<str>>,
    pub deleters: Vec<Arc<str>>,
    /// Handlers that succeed at the second attempt, ten seconds later.
    flaky: Vec<&'static str>,
    /// Handlers that fail permanently.
    failing: Vec<&'static str>,
    /// Handlers that write the same status at each call.
    repetitive: Vec<&'static str>,
    /// Handlers that change a field of the essence by their patch.
    stamping: Vec<&'static str>,
    /// Handlers that change a field of the essence with another client.
    writing: Vec<&'static str>,
    /// Handlers that return a result.
    returning: Vec<&'static str>,
    /// Handlers with two sub-handlers, `ID/a` and `ID/b`; the second one succeeds at the second attempt.
    nested: Vec<&'static str>,
    /// The storages are implemented in Python.
    pub custom: bool,
    /// The API server may reject parts of a patch.
    pub partial: bool,
    /// The handler that leaves a patch function.
    pub leaves_function: Option<&'static str>,
}

impl World {
    fn new(name: &'static str, flaw: Option<Flaw>, handlers: Vec<Value>) -> Self {
        let mut all: Vec<Handler> = Vec::new();
        for (key, mut handler) in handlers.into_iter().enumerate() {
            if handler.get("key").is_none() {
                handler["key"] = json!(key);
            }
            if handler.get("kind").is_none() {
                handler["kind"] = json!("changing");
            }
            all.push(serde_json::from_value(handler).unwrap());
        }
        let unfiltered = |reason: Reason| {
            let matching = all
                .iter()
                .filter(|one| (one.labels.is_empty() && one.field.is_none()) || reason == Reason::Delete);
            let ids = matching.filter(|one| match &one.kind {
                Kind::Changing(it) => {
                    it.reason == Some(reason) && (reason != Reason::Delete || it.requires_finalizer)
                }
                _ => false,
            });
            ids.map(|one| Arc::clone(&one.id)).collect::<Vec<_>>()
        };
        let (creators, updaters, deleters) =
            (unfiltered(Reason::Create), unfiltered(Reason::Update), unfiltered(Reason::Delete));
        let every_event = all.iter().any(|one| matches!(one.kind, Kind::Watching));
        let filtered = all.iter().any(|one| !one.labels.is_empty());
        let registry = Arc::new(Registry { handlers: all });
        let plan = Arc::new(registry.plan(&resource(&[]), &|_| true));
        let settings = Arc::new(settings(flaw));
        let rules = Arc::new(OperatorConfig {
            registry,
            settings,
            lifecycle: kopf_core::handler::lifecycle::Lifecycle::Asap,
        });
        Self {
            name,
            rules,
            plan,
            flaw,
            every_event,
            filtered,
            creators,
            updaters,
            deleters,
            flaky: Vec::new(),
            failing: Vec::new(),
            repetitive: Vec::new(),
            stamping: Vec::new(),
            writing: Vec::new(),
            returning: Vec::new(),
            nested: Vec::new(),
            custom: false,
            partial: false,
            leaves_function: None,
        }
    }

    /// All worlds with the same flaw.
    pub fn all(flaw: Option<Flaw>) -> Vec<Self> {
        vec![
            Self::plain(flaw),
            Self::retrying(flaw),
            Self::resuming(flaw),
            Self::filtered(flaw),
            Self::noisy(flaw),
            Self::background(flaw),
            Self::transforming(flaw),
            Self::stamping(flaw),
            Self::writing(flaw),
            Self::in_status(flaw, false),
            Self::in_status(flaw, true),
            Self::nested(flaw),
            Self::custom(flaw),
            Self::results(flaw),
        ]
    }

    /// One handler of each kind.
    fn plain(flaw: Option<Flaw>) -> Self {
        Self::new(
            "plain",
            flaw,
            vec![
                json!({"id": "c", "reason": "create"}),
                json!({"id": "u", "reason": "update"}),
                json!({"id": "d", "reason": "delete", "requires_finalizer": true}),
            ],
        )
    }

    /// Two handlers of each kind, one after another, with retries.
    fn retrying(flaw: Option<Flaw>) -> Self {
        let world = Self::new(
            "retrying",
            flaw,
            vec![
                json!({"id": "c1", "reason": "create"}),
                json!({"id": "c2", "reason": "create"}),
                json!({"id": "u1", "reason": "update"}),
                json!({"id": "u2", "reason": "update"}),
                json!({"id": "d1", "reason": "delete", "requires_finalizer": true}),
                json!({"id": "d2", "reason": "delete"}),
            ],
        );
        Self { flaky: vec!["c1", "u2", "d1"], failing: vec!["d2"], ..world }
    }

    /// Handlers for several reasons; no finalizer.
    fn resuming(flaw: Option<Flaw>) -> Self {
        let world = Self::new(
            "resuming",
            flaw,
            vec![
                json!({"id": "c", "key": 1, "reason": "create"}),
                json!({"id": "r", "initial": true}),
                json!({"id": "r2", "initial": true, "deleted": true}),
                json!({"id": "f", "field": ["spec", "x"], "field_needs_change": true}),
                json!({"id": "o", "reason": "delete"}),
            ],
        );
        Self { flaky: vec!["r"], ..world }
    }

    /// Some handlers match only labelled objects; an event handler requires every event.
    fn filtered(flaw: Option<Flaw>) -> Self {
        let on = json!([["on", {"present": true}]]);
        let world = Self::new(
            "filtered",
            flaw,
            vec![
                json!({"id": "e", "kind": "watching"}),
                json!({"id": "c", "reason": "create"}),
                json!({"id": "u", "reason": "update"}),
                json!({"id": "l", "reason": "update", "labels": on}),
                json!({"id": "d", "reason": "delete", "requires_finalizer": true, "labels": on}),
            ],
        );
        Self { flaky: vec!["u"], repetitive: vec!["e"], ..world }
    }

    /// An event handler writes the same status repeatedly, while the object has a label.
    fn noisy(flaw: Option<Flaw>) -> Self {
        let on = json!([["on", {"present": true}]]);
        let world = Self::new(
            "noisy",
            flaw,
            vec![
                json!({"id": "e", "kind": "watching", "labels": on}),
                json!({"id": "c", "reason": "create"}),
                json!({"id": "u", "reason": "update"}),
            ],
        );
        Self { repetitive: vec!["e"], filtered: true, ..world }
    }

    /// A daemon.
    fn background(flaw: Option<Flaw>) -> Self {
        Self::new(
            "background",
            flaw,
            vec![
                json!({"id": "b", "kind": "daemon"}),
                json!({"id": "u", "reason": "update"}),
                json!({"id": "d", "reason": "delete", "requires_finalizer": true}),
            ],
        )
    }

    /// A patch function, applied to the latest version.
    fn transforming(flaw: Option<Flaw>) -> Self {
        let world = Self::new(
            "transforming",
            flaw,
            vec![json!({"id": "c", "reason": "create"}), json!({"id": "u", "reason": "update"})],
        );
        Self { leaves_function: Some("u"), ..world }
    }

    /// Several handlers for each reason; the first ones change the essence by their patch.
    fn stamping(flaw: Option<Flaw>) -> Self {
        Self { stamping: vec!["c1", "u1"], flaky: vec!["u2"], ..Self::three("stamping", flaw) }
    }

    /// As `stamping`, but with another client.
    fn writing(flaw: Option<Flaw>) -> Self {
        Self { writing: vec!["c1", "u1"], flaky: vec!["c2"], ..Self::three("writing", flaw) }
    }

    fn three(name: &'static str, flaw: Option<Flaw>) -> Self {
        let handlers =
            [("c1", "create"), ("c2", "create"), ("u1", "update"), ("u2", "update"), ("u3", "update")];
        Self::new(name, flaw, handlers.map(|(id, reason)| json!({"id": id, "reason": reason})).to_vec())
    }

    /// The progress is stored in the status, which needs a separate request; optionally also the diff-base.
    fn in_status(flaw: Option<Flaw>, whole: bool) -> Self {
        let name = if whole { "all in the status" } else { "progress in the status" };
        let handlers = vec![
            json!({"id": "c1", "reason": "create"}),
            json!({"id": "c2", "reason": "create"}),
            json!({"id": "u1", "reason": "update"}),
            json!({"id": "u2", "reason": "update"}),
            json!({"id": "d1", "reason": "delete", "requires_finalizer": true}),
            json!({"id": "d2", "reason": "delete"}),
        ];
        let mut world = Self::new(name, flaw, handlers);
        let mut settings = settings(flaw);
        let progress =
            json!({"type": "Status", "field": ["status", "progress"], "touch_field": ["status", "dummy"]});
        settings.persistence.progress_storage = serde_json::from_value(progress).unwrap();
        if whole {
            let diffbase = json!({"type": "Status", "field": ["status", "base"]});
            settings.persistence.diffbase_storage = serde_json::from_value(diffbase).unwrap();
        }
        let OperatorConfig { registry, lifecycle, .. } = &*world.rules;
        let plan = registry.plan(&resource(&["status"]), &|_| true);
        let rules = OperatorConfig {
            registry: Arc::clone(registry),
            settings: Arc::new(settings),
            lifecycle: *lifecycle,
        };
        (world.plan, world.rules) = (Arc::new(plan), Arc::new(rules));
        Self { flaky: vec!["u2", "d1"], returning: vec!["c2", "u1"], ..world }
    }

    /// Handlers with sub-handlers.
    fn nested(flaw: Option<Flaw>) -> Self {
        let world = Self::new(
            "nested",
            flaw,
            vec![
                json!({"id": "c", "reason": "create"}),
                json!({"id": "u", "reason": "update"}),
                json!({"id": "u2", "reason": "update"}),
            ],
        );
        Self { nested: vec!["c", "u"], ..world }
    }

    /// Storages implemented in Python. Unwritten state is not kept in memory then, and removed annotations are lost.
    fn custom(flaw: Option<Flaw>) -> Self {
        let handlers = vec![
            json!({"id": "c", "reason": "create"}),
            json!({"id": "u", "reason": "update"}),
            json!({"id": "d", "reason": "delete", "requires_finalizer": true}),
        ];
        let mut world = Self::new("custom storages", flaw, handlers);
        let mut settings = settings(flaw);
        settings.persistence.progress_storage = ProgressStorage::Foreign;
        settings.persistence.diffbase_storage = DiffBaseStorage::Foreign;
        let OperatorConfig { registry, lifecycle, .. } = &*world.rules;
        world.rules = Arc::new(OperatorConfig {
            registry: Arc::clone(registry),
            settings: Arc::new(settings),
            lifecycle: *lifecycle,
        });
        Self { flaky: vec!["c", "u"], custom: true, ..world }
    }

    /// Handlers that return results, which are written to the status; the API server may reject them.
    fn results(flaw: Option<Flaw>) -> Self {
        let handlers = vec![json!({"id": "c", "reason": "create"}), json!({"id": "u", "reason": "update"})];
        let mut world = Self::new("results", flaw, handlers);
        world.plan = Arc::new(world.rules.registry.plan(&resource(&["status"]), &|_| true));
        Self { returning: vec!["c", "u"], partial: true, ..world }
    }

    /// The part of a budget that the laws allow for: see [`World::custom`].
    pub fn within(&self, budget: Budget) -> Budget {
        if self.custom {
            return Budget { strips: 0, rejections: 0, lost_replies: 0, ..budget };
        }
        budget
    }

    /// The storage of the progress, as the oracle reads it.
    pub fn progress_storage(&self) -> ProgressStorage {
        if self.custom {
            return Persistence::default().progress_storage;
        }
        self.rules.settings.persistence.progress_storage.clone()
    }

    /// The sub-handlers of a handler.
    pub fn children(&self, id: &str) -> Option<Vec<SubHandler>> {
        let child = |name: &str| SubHandler {
            id: Arc::from(format!("{id}/{name}")),
            label: format!("Handler '{id}/{name}'").into(),
            errors: ErrorsMode::Temporary,
            timeout: None,
            retries: None,
            backoff: 10.0,
        };
        self.nested.contains(&id).then(|| ["a", "b"].map(child).into())
    }

    /// The ids of all sub-handlers.
    pub fn all_children(&self) -> impl Iterator<Item = Arc<str>> {
        self.nested.iter().filter_map(|id| self.children(id)).flatten().map(|child| child.id)
    }

    /// The result of calling a sub-handler.
    #[expect(clippy::unused_self, reason = "a part of the world's behaviour")]
    pub fn raises_child(&self, id: &str, retry: u64) -> CallResult {
        if id.ends_with("/b") && retry == 0 {
            return CallResult::Temporary { message: "boo".to_owned(), delay: Some(10.0) };
        }
        CallResult::Nothing
    }

    /// Whether the handler returns a result.
    pub fn returns(&self, id: &str) -> bool {
        self.partial && self.returning.contains(&id)
    }

    /// The merge patches of a decision.
    pub fn requests(&self, write: &DecidedWrite) -> VecDeque<Value> {
        let DecidedWrite { patch, outcomes, object, .. } = write;
        if !self.plan.resource.has_subresource("status") || patch.is_empty() {
            return (!patch.is_empty()).then(|| Value::Object(patch.0.clone())).into_iter().collect();
        }
        if self.flaw == Some(Flaw::RemovesFirst) {
            let (status, rest): (Map<_, _>, Map<_, _>) =
                patch.0.clone().into_iter().partition(|(key, _)| key == "status");
            return [status, rest].into_iter().filter(|part| !part.is_empty()).map(Value::Object).collect();
        }
        let requests = merge_requests(object, &patch.0, &outcomes.0, &self.rules.settings.persistence);
        requests.into_iter().map(|request| Value::Object(request.patch)).collect()
    }

    /// Whether the handler requires the deletion of this version to be blocked.
    pub fn holds_deletion(&self, id: &str, version: &Version) -> bool {
        let handler = self.rules.registry.handlers.iter().find(|one| &*one.id == id);
        handler.is_some_and(|it| filters::metadata(it, &version.object) == FilterVerdict::Yes)
    }

    pub fn is_repetitive(&self) -> bool {
        !self.repetitive.is_empty()
    }

    pub fn is_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    pub fn patches(&self, id: &str) -> Option<Value> {
        let is_writing = self.repetitive.contains(&id) || self.returning.contains(&id);
        is_writing.then(|| json!({ id: "seen" }))
    }

    /// The change of the spec by the patch of the handler.
    pub fn stamps(&self, id: &str, version: &Version) -> Option<Value> {
        self.stamping.contains(&id).then(|| stamp(version))
    }

    /// The change by another client in the handler, with the managed fields that the API server sets.
    pub fn writes(&self, id: &str, version: &Version) -> Option<Value> {
        let managed = json!([{"manager": "python-requests", "fieldsV1": {"f:spec": {"f:stamp": {}}}}]);
        self.writing
            .contains(&id)
            .then(|| json!({"spec": stamp(version), "metadata": {"managedFields": managed}}))
    }

    pub fn raises(&self, attempt: &Attempt) -> CallResult {
        let id = &*self.rules.registry.handlers[attempt.handler].id;
        let message = "boo".to_owned();
        if self.failing.contains(&id) {
            return CallResult::Permanent { message };
        }
        if self.flaky.contains(&id) && attempt.retry == 0 {
            return CallResult::Temporary { message, delay: Some(10.0) };
        }
        CallResult::Nothing
    }
}

fn settings(flaw: Option<Flaw>) -> Settings {
    let mut settings = Settings::default();
    let is_flawed = flaw == Some(Flaw::NeverSlows);
    settings.queueing.error_delays = if is_flawed { vec![0.0] } else { vec![1.0, 2.0, 3.0] };
    settings
}

fn stamp(version: &Version) -> Value {
    json!({"stamp": version.body.pointer("/spec/x")})
}

fn resource(subresources: &[&str]) -> Arc<Resource> {
    let resource = json!({
        "group": "kopf.dev", "version": "v1", "plural": "kopfexamples", "kind": "KopfExample",
        "singular": "kopfexample", "shortcuts": [], "categories": [], "subresources": subresources, "verbs": [],
        "namespaced": true, "preferred": true,
    });
    Arc::new(serde_json::from_value(resource).unwrap())
}
