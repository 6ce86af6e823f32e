//! The operators to explore: their handlers, and how these behave.

use crate::cluster::Version;
use crate::injected_defects::Defect;
use crate::model::Budget;
use kopf_core::cause::Reason;
use kopf_core::cycle::OperatorConfig;
use kopf_core::handler::filters::{self, FilterVerdict};
use kopf_core::handler::lifecycle::Lifecycle;
use kopf_core::handler::registry::{Registry, ResourceHandlers};
use kopf_core::handler::{ErrorsMode, Handler, Kind};
use kopf_core::handling::attempt::{Attempt, CallResult};
use kopf_core::handling::sub_handlers::SubHandler;
use kopf_core::persistence::Persistence;
use kopf_core::persistence::diffbase::DiffBaseStorage;
use kopf_core::persistence::progress::ProgressStorage;
use kopf_core::resource::Resource;
use kopf_core::settings::Settings;
use kopf_core::writes::WriteContext;
use serde_json::{Value, json};
use std::sync::Arc;

/// The configuration of an operator, and the defect injected into it.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct Scenario {
    pub name: &'static str,
    pub config: Arc<OperatorConfig>,
    pub resource_handlers: Arc<ResourceHandlers>,
    pub defect: Option<Defect>,
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
    /// The API server has no status subresource any more, although the operator has discovered it.
    pub lacks_subresource: bool,
    /// Patches have the resource version, as with leader election.
    pub versioned: bool,
    /// The handler that leaves a patch function.
    pub leaves_function: Option<&'static str>,
}

impl Scenario {
    fn new(name: &'static str, defect: Option<Defect>, handlers: Vec<Value>) -> Self {
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
        let resource_handlers = Arc::new(registry.handlers_of(&resource(&[]), &|_| true));
        let settings = Arc::new(settings(defect));
        let config = Arc::new(OperatorConfig { registry, settings, lifecycle: Lifecycle::Asap });
        Self {
            name,
            config,
            resource_handlers,
            defect,
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
            lacks_subresource: false,
            versioned: false,
            leaves_function: None,
        }
    }

    /// All scenarios with the same defect.
    pub fn all(defect: Option<Defect>) -> Vec<Self> {
        vec![
            Self::plain(defect),
            Self::retrying(defect),
            Self::resuming(defect),
            Self::filtered(defect),
            Self::noisy(defect),
            Self::background(defect),
            Self::transforming(defect),
            Self::stamping(defect),
            Self::writing(defect),
            Self::in_status(defect, false),
            Self::in_status(defect, true),
            Self::nested(defect),
            Self::custom(defect),
            Self::results(defect),
            Self { name: "no subresource", lacks_subresource: true, ..Self::results(defect) },
            Self { name: "versioned", versioned: true, ..Self::plain(defect) },
            Self { name: "versioned results", versioned: true, ..Self::results(defect) },
            Self::at_once(defect),
            Self::built_in(defect),
        ]
    }

    /// One handler of each kind.
    fn plain(defect: Option<Defect>) -> Self {
        Self::new(
            "plain",
            defect,
            vec![
                json!({"id": "c", "reason": "create"}),
                json!({"id": "u", "reason": "update"}),
                json!({"id": "d", "reason": "delete", "requires_finalizer": true}),
            ],
        )
    }

    /// Two handlers of each kind, one after another, with retries.
    fn retrying(defect: Option<Defect>) -> Self {
        let scenario = Self::new(
            "retrying",
            defect,
            vec![
                json!({"id": "c1", "reason": "create"}),
                json!({"id": "c2", "reason": "create"}),
                json!({"id": "u1", "reason": "update"}),
                json!({"id": "u2", "reason": "update"}),
                json!({"id": "d1", "reason": "delete", "requires_finalizer": true}),
                json!({"id": "d2", "reason": "delete"}),
            ],
        );
        Self { flaky: vec!["c1", "u2", "d1"], failing: vec!["d2"], ..scenario }
    }

    /// Handlers for several reasons; no finalizer.
    fn resuming(defect: Option<Defect>) -> Self {
        let scenario = Self::new(
            "resuming",
            defect,
            vec![
                json!({"id": "c", "key": 1, "reason": "create"}),
                json!({"id": "r", "initial": true}),
                json!({"id": "r2", "initial": true, "deleted": true}),
                json!({"id": "f", "field": ["spec", "x"], "field_needs_change": true}),
                json!({"id": "o", "reason": "delete"}),
            ],
        );
        Self { flaky: vec!["r"], ..scenario }
    }

    /// Some handlers match only labelled objects; an event handler requires every event.
    fn filtered(defect: Option<Defect>) -> Self {
        let on = json!([["on", {"present": true}]]);
        let scenario = Self::new(
            "filtered",
            defect,
            vec![
                json!({"id": "e", "kind": "watching"}),
                json!({"id": "c", "reason": "create"}),
                json!({"id": "u", "reason": "update"}),
                json!({"id": "l", "reason": "update", "labels": on}),
                json!({"id": "d", "reason": "delete", "requires_finalizer": true, "labels": on}),
            ],
        );
        Self { flaky: vec!["u"], repetitive: vec!["e"], ..scenario }
    }

    /// An event handler writes the same status repeatedly, while the object has a label.
    fn noisy(defect: Option<Defect>) -> Self {
        let on = json!([["on", {"present": true}]]);
        let scenario = Self::new(
            "noisy",
            defect,
            vec![
                json!({"id": "e", "kind": "watching", "labels": on}),
                json!({"id": "c", "reason": "create"}),
                json!({"id": "u", "reason": "update"}),
            ],
        );
        Self { repetitive: vec!["e"], filtered: true, ..scenario }
    }

    /// A daemon.
    fn background(defect: Option<Defect>) -> Self {
        Self::new(
            "background",
            defect,
            vec![
                json!({"id": "b", "kind": "daemon"}),
                json!({"id": "u", "reason": "update"}),
                json!({"id": "d", "reason": "delete", "requires_finalizer": true}),
            ],
        )
    }

    /// A patch function, applied to the latest version.
    fn transforming(defect: Option<Defect>) -> Self {
        let scenario = Self::new(
            "transforming",
            defect,
            vec![json!({"id": "c", "reason": "create"}), json!({"id": "u", "reason": "update"})],
        );
        Self { leaves_function: Some("u"), ..scenario }
    }

    /// Several handlers for each reason; the first ones change the essence by their patch.
    fn stamping(defect: Option<Defect>) -> Self {
        Self { stamping: vec!["c1", "u1"], flaky: vec!["u2"], ..Self::three("stamping", defect) }
    }

    /// As `stamping`, but with another client.
    fn writing(defect: Option<Defect>) -> Self {
        Self { writing: vec!["c1", "u1"], flaky: vec!["c2"], ..Self::three("writing", defect) }
    }

    fn three(name: &'static str, defect: Option<Defect>) -> Self {
        let handlers =
            [("c1", "create"), ("c2", "create"), ("u1", "update"), ("u2", "update"), ("u3", "update")];
        Self::new(name, defect, handlers.map(|(id, reason)| json!({"id": id, "reason": reason})).to_vec())
    }

    /// The progress is stored in the status, which needs a separate request; optionally also the diff-base.
    fn in_status(defect: Option<Defect>, whole: bool) -> Self {
        let name = if whole { "all in the status" } else { "progress in the status" };
        let handlers = vec![
            json!({"id": "c1", "reason": "create"}),
            json!({"id": "c2", "reason": "create"}),
            json!({"id": "u1", "reason": "update"}),
            json!({"id": "u2", "reason": "update"}),
            json!({"id": "d1", "reason": "delete", "requires_finalizer": true}),
            json!({"id": "d2", "reason": "delete"}),
        ];
        let mut scenario = Self::new(name, defect, handlers);
        let mut settings = settings(defect);
        let progress =
            json!({"type": "Status", "field": ["status", "progress"], "touch_field": ["status", "dummy"]});
        settings.persistence.progress_storage = serde_json::from_value(progress).unwrap();
        if whole {
            let diffbase = json!({"type": "Status", "field": ["status", "base"]});
            settings.persistence.diffbase_storage = serde_json::from_value(diffbase).unwrap();
        }
        let OperatorConfig { registry, lifecycle, .. } = &*scenario.config;
        let resource_handlers = registry.handlers_of(&resource(&["status"]), &|_| true);
        let config = OperatorConfig {
            registry: Arc::clone(registry),
            settings: Arc::new(settings),
            lifecycle: *lifecycle,
        };
        (scenario.resource_handlers, scenario.config) = (Arc::new(resource_handlers), Arc::new(config));
        Self { flaky: vec!["u2", "d1"], returning: vec!["c2", "u1"], ..scenario }
    }

    /// Handlers with sub-handlers.
    fn nested(defect: Option<Defect>) -> Self {
        let scenario = Self::new(
            "nested",
            defect,
            vec![
                json!({"id": "c", "reason": "create"}),
                json!({"id": "u", "reason": "update"}),
                json!({"id": "u2", "reason": "update"}),
            ],
        );
        Self { nested: vec!["c", "u"], ..scenario }
    }

    /// Storages implemented in Python. Unwritten state is not kept in memory then, and removed annotations are lost.
    fn custom(defect: Option<Defect>) -> Self {
        let handlers = vec![
            json!({"id": "c", "reason": "create"}),
            json!({"id": "u", "reason": "update"}),
            json!({"id": "d", "reason": "delete", "requires_finalizer": true}),
        ];
        let mut scenario = Self::new("custom storages", defect, handlers);
        let mut settings = settings(defect);
        settings.persistence.progress_storage = ProgressStorage::Custom;
        settings.persistence.diffbase_storage = DiffBaseStorage::Custom;
        let OperatorConfig { registry, lifecycle, .. } = &*scenario.config;
        scenario.config = Arc::new(OperatorConfig {
            registry: Arc::clone(registry),
            settings: Arc::new(settings),
            lifecycle: *lifecycle,
        });
        Self { flaky: vec!["c", "u"], custom: true, ..scenario }
    }

    /// All due handlers are called in the same cycle.
    fn at_once(defect: Option<Defect>) -> Self {
        let mut scenario = Self { name: "at once", flaky: vec!["c1", "u2"], ..Self::retrying(defect) };
        let OperatorConfig { registry, settings, .. } = &*scenario.config;
        scenario.config = Arc::new(OperatorConfig {
            registry: Arc::clone(registry),
            settings: Arc::clone(settings),
            lifecycle: Lifecycle::AllAtOnce,
        });
        scenario
    }

    /// As `results`, of a resource that the API server itself implements.
    fn built_in(defect: Option<Defect>) -> Self {
        let mut scenario = Self { name: "built-in", ..Self::results(defect) };
        let resource = resource_of_group("apps", &["status"]);
        scenario.resource_handlers = Arc::new(scenario.config.registry.handlers_of(&resource, &|_| true));
        scenario
    }

    /// Handlers that return results, which are written to the status; the API server may reject them.
    fn results(defect: Option<Defect>) -> Self {
        let handlers = vec![json!({"id": "c", "reason": "create"}), json!({"id": "u", "reason": "update"})];
        let mut scenario = Self::new("results", defect, handlers);
        scenario.resource_handlers =
            Arc::new(scenario.config.registry.handlers_of(&resource(&["status"]), &|_| true));
        Self { returning: vec!["c", "u"], partial: true, ..scenario }
    }

    /// The part of a budget that the invariants allow for: see also [`Scenario::custom`].
    pub fn within(&self, budget: Budget, lag: f64) -> Budget {
        // The operator learns of changes by clients in handlers from watch events, or from the responses to its writes.
        if self.is_writing() && lag > 0.0 {
            return Budget { rejections: 0, lost_replies: 0, ..budget };
        }
        if self.custom {
            return Budget { strips: 0, rejections: 0, lost_replies: 0, conflicts: 0, outages: 0, ..budget };
        }
        budget
    }

    /// The storage of the progress, as the oracle reads it.
    pub fn progress_storage(&self) -> ProgressStorage {
        if self.custom {
            return Persistence::default().progress_storage;
        }
        self.config.settings.persistence.progress_storage.clone()
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
    #[expect(clippy::unused_self, reason = "a part of the scenario's behaviour")]
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

    /// Whether the API server itself implements the resource.
    pub fn is_built_in(&self) -> bool {
        self.resource_handlers.resource.group == "apps"
    }

    /// Whether the status is a subresource, as far as the operator knows.
    pub fn has_subresource(&self) -> bool {
        self.resource_handlers.resource.has_subresource("status")
    }

    /// The rules of writes, as the engine sets them.
    pub fn write_context<'a>(
        &'a self,
        may_be_partial: bool,
        is_deleted: &'a (dyn Fn() -> bool + Send + Sync),
    ) -> WriteContext<'a> {
        let persistence = &self.config.settings.persistence;
        let is_careless = matches!(self.defect, Some(Defect::RemovesFirst | Defect::TrustsFreshest));
        WriteContext {
            resource: &self.resource_handlers.resource,
            finalizer: &persistence.finalizer,
            compat: false,
            is_versioned: self.versioned,
            release_cleanup: (!self.custom && !is_careless)
                .then_some((&*self.resource_handlers, persistence)),
            partial: may_be_partial.then_some(persistence),
            is_deleted,
            is_verbose: false,
        }
    }

    /// Whether the handler requires the deletion of this version to be blocked.
    pub fn holds_deletion(&self, id: &str, version: &Version) -> bool {
        let handler = self.config.registry.handlers.iter().find(|one| &*one.id == id);
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
        let id = &*self.config.registry.handlers[attempt.handler].id;
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

fn settings(defect: Option<Defect>) -> Settings {
    let mut settings = Settings::default();
    let is_defective = defect == Some(Defect::NeverSlows);
    settings.queueing.error_delays = if is_defective { vec![0.001] } else { vec![1.0, 2.0, 3.0] };
    settings
}

fn stamp(version: &Version) -> Value {
    json!({"stamp": version.body.pointer("/spec/x")})
}

fn resource(subresources: &[&str]) -> Arc<Resource> {
    resource_of_group("kopf.dev", subresources)
}

fn resource_of_group(group: &str, subresources: &[&str]) -> Arc<Resource> {
    let resource = json!({
        "group": group, "version": "v1", "plural": "kopfexamples", "kind": "KopfExample",
        "singular": "kopfexample", "shortcuts": [], "categories": [], "subresources": subresources, "verbs": [],
        "namespaced": true, "preferred": true,
    });
    Arc::new(serde_json::from_value(resource).unwrap())
}
