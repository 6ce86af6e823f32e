//! Explanations of single obstacles, and their properties for random handlers and objects.

use serde_json::{Value, json};

use super::*;
use crate::activation::{Activation, Command, CommandResult, Completion, FilterResult};
use crate::cycle::{Cycle, CycleStart, Effect, QueuedEvent};
use crate::daemon::{self, DaemonDiff};
use crate::handler::filters::obstacle::Filter;
use crate::handler::lifecycle::Lifecycle;
use crate::handler::registry::Registry;
use crate::persistence::consistency::ViewAge;
use crate::persistence::memory::ObjectMemory;
use crate::settings::Settings;
use crate::testing::{ObjectBuilder, object};

const NOW: i64 = 1_767_225_600_000_000;
const PREFIX: &str = "kopf.zalando.org/";

/// A host whose functions match if the id of the handler does not contain this letter.
struct Letters {
    ids: Vec<Arc<str>>,
    mismatching: char,
}

impl Letters {
    fn matches(&self, handler: usize) -> bool {
        !self.ids[handler].contains(self.mismatching)
    }
}

impl Host for Letters {
    fn filter(&mut self, _: &Arc<Object>, _: Question<'_>, handlers: &[usize]) -> Vec<Answer> {
        let answer = |index: &usize| match self.ids[*index].as_ref() {
            id if id.contains('!') => Answer::Raised(format!("{id} has failed")),
            id if id.contains('?') => Answer::Unasked,
            _ if self.matches(*index) => Answer::Matches,
            _ => Answer::Mismatch {
                obstacle: Obstacle { filter: Filter::When, text: "when: no() is False".to_owned() },
                prematch: false,
            },
        };
        handlers.iter().map(answer).collect()
    }

    fn select(
        &mut self,
        _: &Arc<Object>,
        _: Option<&Arc<Change>>,
        handlers: &[(usize, u64)],
        _: &[(Arc<str>, Record)],
    ) -> Result<Vec<usize>, String> {
        Ok(handlers.iter().map(|(handler, _)| *handler).collect())
    }

    fn fetch(&mut self, _: &Arc<Object>, _: &[Arc<str>], _: &[FieldPath]) -> Result<FetchedState, String> {
        Err("no custom storages".to_owned())
    }
}

#[derive(Clone)]
struct Situation {
    handlers: Vec<Value>,
    object: ObjectBuilder,
    event: EventType,
    lifecycle: Lifecycle,
}

impl Situation {
    fn config(&self) -> (Arc<ResourceHandlers>, Arc<OperatorConfig>) {
        let handlers = serde_json::from_value(json!(self.handlers)).unwrap();
        let registry = Arc::new(Registry { handlers });
        let resource = json!({
            "group": "kopf.dev", "version": "v1", "plural": "ks", "kind": "K", "singular": "k",
            "shortcuts": [], "categories": [], "subresources": [], "verbs": [], "namespaced": true, "preferred": true,
        });
        let resource = Arc::new(serde_json::from_value(resource).unwrap());
        let selected = Arc::new(registry.handlers_of(&resource, &|_| true));
        let settings = Arc::new(Settings::default());
        (selected, Arc::new(OperatorConfig { registry, settings, lifecycle: self.lifecycle }))
    }

    fn host(&self) -> Letters {
        let ids = self.handlers.iter().map(|handler| Arc::from(handler["id"].as_str().unwrap()));
        Letters { ids: ids.collect(), mismatching: 'x' }
    }

    fn explain(&self) -> Explanation {
        let (handlers, config) = self.config();
        let object = self.object.clone().build();
        let subject = Subject { object, event: self.event, now: Timestamp::from_micros(NOW) };
        explain(&subject, &handlers, &config, &mut self.host())
    }

    /// The change handlers and event handlers that a cycle calls.
    fn called(&self) -> Vec<usize> {
        let (handlers, config) = self.config();
        let object = self.object.clone().build();
        let mut memory =
            ObjectMemory { noticed_by_listing: self.event == EventType::Listed, ..ObjectMemory::default() };
        memory.observe(&object, &*config.settings, &handlers);
        let now = Timestamp::from_micros(NOW);
        let registry = Arc::clone(&config.registry);
        let event = QueuedEvent::of(self.event, object);
        let start = CycleStart { event, memory, view_age: ViewAge::Consistent, index_pass: None };
        let mut cycle = Cycle::open(start, handlers, config, 0, now);
        let host = self.host();
        let mut called = Vec::new();
        loop {
            match cycle.effect().unwrap() {
                Effect::Run(Activation { commands, .. }) => {
                    let mut results = Vec::new();
                    for command in commands {
                        results.push(match command {
                            Command::FilterHandlers { handlers } | Command::FilterDaemons { handlers } => {
                                let result = |index: &usize| {
                                    let matches = host.matches(*index);
                                    FilterResult { prematch: matches, full: matches }
                                };
                                CommandResult::Filtered(handlers.iter().map(result).collect())
                            }
                            Command::CallEventHandler { handler, guarded, .. } => {
                                if !guarded || host.matches(handler) {
                                    called.push(handler);
                                }
                                CommandResult::Skipped
                            }
                            Command::CallChangeHandler { attempt } => {
                                if attempt.precheck(now).is_none() {
                                    called.push(attempt.handler);
                                }
                                CommandResult::Skipped
                            }
                            _ => CommandResult::Skipped,
                        });
                    }
                    cycle.on_completion(Completion { results, ..Completion::default() }, now);
                }
                Effect::Spawn(desired) => {
                    let DaemonDiff { start, holds, .. } = daemon::diff(&desired, &[], &[], &registry, None);
                    called.extend(start);
                    cycle.on_daemons(None, holds, now);
                }
                Effect::AwaitConsistency => cycle.on_consistency(true, now),
                Effect::Done(decision) => {
                    assert_eq!(decision.error, None);
                    called.sort_unstable();
                    return called;
                }
            }
        }
    }
}

fn situation(handlers: &Value, object: ObjectBuilder) -> Situation {
    let handlers = handlers.as_array().unwrap().clone();
    Situation { handlers, object, event: EventType::Modified, lifecycle: Lifecycle::AllAtOnce }
}

fn verdicts(explanation: &Explanation) -> Vec<(&str, Verdict, Option<Code>)> {
    explanation.handlers.iter().map(|report| (&*report.id, report.verdict, report.code)).collect()
}

fn changing(id: &str, reason: &str, more: &Value) -> Value {
    let mut handler = json!({"id": id, "key": id.len(), "kind": "changing", "reason": reason});
    for (key, value) in more.as_object().unwrap() {
        handler[key] = value.clone();
    }
    handler
}

fn record(fields: &Value) -> String {
    let mut record = json!({"started": "2025-12-31T00:00:00Z", "purpose": "update", "retries": 7});
    for (key, value) in fields.as_object().unwrap() {
        record[key] = value.clone();
    }
    record.to_string()
}

#[test]
fn the_mock_up_of_an_update() {
    let object = object("home")
        .labelled("tier", "silver")
        .spec(json!({"domain": "old.example.com"}))
        .handled()
        .spec(json!({"domain": "new.example.com"}))
        .finalized()
        .annotated(
            &format!("{PREFIX}publish"),
            &record(&json!({"delayed": "2026-01-01T00:00:42Z", "message": "HTTP 503 from the CDN"})),
        )
        .annotated(
            &format!("{PREFIX}notify"),
            &record(&json!({"success": true, "stopped": "2025-12-31T23:54:00Z"})),
        );
    let situation = situation(
        &json!([
            changing("create_site", "create", &json!({})),
            changing("publish", "update", &json!({"field": ["spec", "domain"]})),
            changing("notify", "update", &json!({})),
            changing("archive", "update", &json!({"annotations": [["example.com/archive", {"present": true}]]})),
            changing("audit_x", "update", &json!({"when": true})),
            {"id": "keepalive", "kind": "daemon"},
            {"id": "refresh", "kind": "timer", "labels": [["tier", {"equal": "gold"}]]},
        ]),
        object,
    );
    let explanation = situation.explain();
    assert_eq!(explanation.reason, Some(crate::cause::Reason::Update));
    let fields: Vec<_> = explanation.changed.iter().map(|one| one.item.path.to_string()).collect();
    assert_eq!(fields, ["spec.domain"]);
    let expected = [
        ("create_site", Verdict::No, Some(Code::Reason)),
        ("publish", Verdict::Later, Some(Code::Delay)),
        ("notify", Verdict::Done, Some(Code::Done)),
        ("archive", Verdict::No, Some(Code::Annotation)),
        ("audit_x", Verdict::No, Some(Code::When)),
        ("keepalive", Verdict::Yes, None),
        ("refresh", Verdict::No, Some(Code::Label)),
    ];
    assert_eq!(verdicts(&explanation), expected);
    assert_eq!(explanation.handlers[1].record.as_ref().map(|record| record.retries), Some(7));
    assert_eq!(
        explanation.finalizer,
        FinalizerReport { verdict: "kept", handlers: vec!["keepalive".into()] }
    );
}

type Row = (Value, ObjectBuilder, EventType, (Verdict, Option<Code>));

fn check_verdicts(table: Vec<Row>) {
    for (handler, object, event, expected) in table {
        let explanation = Situation { event, ..situation(&json!([handler]), object) }.explain();
        let report = &explanation.handlers[0];
        assert_eq!((report.verdict, report.code), expected, "{handler} {event:?}");
    }
}

#[test]
fn the_codes_of_change_handlers_that_depend_on_more_than_filters() {
    use EventType::{Deleted, Listed, Modified};
    let plain = || object("a").spec(json!({"f": 1}));
    let finalizing = json!({"requires_finalizer": true});
    let resume = json!({"reason": null, "initial": true});
    let limited = plain().annotated(
        &format!("{PREFIX}h"),
        &json!({"started": "2025-12-31T00:00:00Z", "purpose": "create", "retries": 3}).to_string(),
    );
    check_verdicts(vec![
        (changing("h", "create", &json!({})), plain(), Modified, (Verdict::Yes, None)),
        (changing("h", "update", &json!({})), plain().handled(), Modified, (Verdict::No, Some(Code::Reason))),
        (changing("h", "create", &finalizing), plain(), Modified, (Verdict::Later, Some(Code::Finalizer))),
        (
            changing("h", "delete", &json!({})),
            plain().deleting(),
            Modified,
            (Verdict::No, Some(Code::Finalizer)),
        ),
        (
            changing("h", "update", &json!({})),
            plain().deleting(),
            Modified,
            (Verdict::No, Some(Code::Deleted)),
        ),
        (
            changing("h", "delete", &finalizing),
            plain().finalized().deleting(),
            Modified,
            (Verdict::Yes, None),
        ),
        (changing("h", "create", &json!({})), plain(), Deleted, (Verdict::No, Some(Code::Deleted))),
        (changing("h", "create", &resume), plain().handled(), Modified, (Verdict::No, Some(Code::Initial))),
        (changing("h", "create", &resume), plain().handled(), Listed, (Verdict::Yes, None)),
        (
            changing("h", "create", &json!({"retries": 3})),
            limited.clone(),
            Modified,
            (Verdict::No, Some(Code::Limit)),
        ),
        (
            changing("h", "create", &json!({"timeout": 60})),
            limited,
            Modified,
            (Verdict::No, Some(Code::Limit)),
        ),
        (changing("h?", "create", &json!({"when": true})), plain(), Modified, (Verdict::Ask, None)),
    ]);
}

#[test]
fn the_codes_of_handlers_of_whole_objects() {
    use EventType::{Deleted, Modified};
    let plain = || object("a").spec(json!({"f": 1}));
    check_verdicts(vec![
        (
            json!({"id": "h", "kind": "daemon"}),
            plain().deleting(),
            Modified,
            (Verdict::No, Some(Code::Deleted)),
        ),
        (json!({"id": "h", "kind": "watching", "when": true}), plain(), Deleted, (Verdict::Yes, None)),
        (
            json!({"id": "hx", "kind": "watching", "when": true}),
            plain(),
            Modified,
            (Verdict::No, Some(Code::When)),
        ),
        (json!({"id": "h", "kind": "indexing"}), plain(), Modified, (Verdict::Yes, None)),
        (json!({"id": "h", "kind": "indexing"}), plain(), Deleted, (Verdict::No, Some(Code::Deleted))),
        (json!({"id": "h", "kind": "reconciling"}), plain(), Modified, (Verdict::Yes, None)),
        (
            json!({"id": "h", "kind": "reconciling"}),
            plain().deleting(),
            Modified,
            (Verdict::No, Some(Code::Deleted)),
        ),
        (
            json!({"id": "h", "kind": "reconciling", "deletion": true}),
            plain(),
            Modified,
            (Verdict::Later, Some(Code::Finalizer)),
        ),
    ]);
}

#[test]
fn an_error_of_a_filter_prevents_all_calls_after_it() {
    let handlers = json!([
        {"id": "event", "kind": "watching"},
        changing("a!", "create", &json!({"when": true})),
        changing("bb", "create", &json!({})),
    ]);
    let explanation = situation(&handlers, object("a")).explain();
    assert_eq!(explanation.error.as_deref(), Some("a! has failed"));
    let when = (Verdict::No, Some(Code::When));
    let expected = [("event", Verdict::Yes, None), ("a!", when.0, when.1), ("bb", when.0, when.1)];
    assert_eq!(verdicts(&explanation), expected);
}

#[test]
fn only_one_handler_per_cycle_is_called_by_default_and_a_function_once_per_id() {
    let mut same = changing("a", "create", &json!({}));
    let handlers = json!([same.clone(), same.take(), changing("bb", "create", &json!({}))]);
    let situation = Situation { lifecycle: Lifecycle::Asap, ..situation(&handlers, object("a")) };
    let expected = [
        ("a", Verdict::Yes, None),
        ("a", Verdict::No, Some(Code::Duplicate)),
        ("bb", Verdict::Later, Some(Code::Lifecycle)),
    ];
    assert_eq!(verdicts(&situation.explain()), expected);
}

#[test]
fn the_writer_of_a_changed_field_is_found() {
    let managers = json!([
        {"manager": "kopf", "time": "2026-01-01T00:00:09Z", "fieldsV1": {"f:metadata": {"f:annotations": {}}}},
        {"manager": "helm", "time": "2026-01-01T00:00:01Z", "fieldsV1": {"f:spec": {"f:f": {}}}},
        {"manager": "kubectl-edit", "time": "2026-01-01T00:00:05Z", "fieldsV1": {"f:spec": {"f:f": {}}}},
    ]);
    let object = object("a").spec(json!({"f": 1})).handled().spec(json!({"f": 2}));
    let object = object.with(&["metadata", "managedFields"], managers);
    let explanation = situation(&json!([changing("h", "update", &json!({}))]), object).explain();
    let value = explanation.to_value();
    let expected = json!({
        "operation": "change", "field": ["spec", "f"], "old": 1, "new": 2,
        "manager": "kubectl-edit", "time": "2026-01-01T00:00:05.000000+00:00",
    });
    assert_eq!(value["changed"], json!([expected]));
}

/// A generator of random situations: each seed is one of them.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn one_of<T: Clone>(&mut self, values: &[T]) -> T {
        values[usize::try_from(self.below(values.len() as u64)).unwrap()].clone()
    }

    fn handler(&mut self, number: usize) -> Value {
        let kind = self.one_of(&["changing", "changing", "changing", "changing", "watching", "daemon"]);
        let id =
            format!("{}{}", self.one_of(&["a", "b", "c", "dx"]), if kind == "changing" { "" } else { kind });
        let mut handler = json!({"id": id, "kind": kind, "key": self.one_of(&[1, number + 2])});
        if self.below(4) == 0 {
            handler["labels"] =
                json!([["l", self.one_of(&[json!({"equal": "1"}), json!({"absent": true})])]]);
        }
        if self.below(5) == 0 {
            handler["annotations"] =
                json!([["n", self.one_of(&[json!({"present": true}), json!({"callable": true})])]]);
        }
        if self.below(4) == 0 {
            handler["when"] = json!(true);
        }
        if self.below(3) == 0 {
            handler["field"] = json!(["spec", "f"]);
            handler["value"] = self.one_of(&[json!(null), json!({"equal": 1}), json!({"equal": 2})]);
        }
        if kind == "changing" {
            handler["reason"] =
                self.one_of(&[json!("create"), json!("update"), json!("delete"), json!(null), json!(null)]);
            handler["requires_finalizer"] = json!(handler["reason"] == "delete" && self.below(2) == 0);
            handler["initial"] = json!(handler["reason"].is_null() && self.below(3) == 0);
            handler["field_needs_change"] = json!(self.below(2) == 0);
            handler["retries"] = self.one_of(&[json!(null), json!(2), json!(5)]);
            if self.below(6) == 0 {
                handler["old"] = json!({"equal": 1});
            }
        }
        handler
    }

    fn object(&mut self) -> ObjectBuilder {
        let mut object = object("a").spec(self.one_of(&[json!({"f": 1}), json!({"f": 2}), json!({})]));
        if self.below(3) > 0 {
            object = object.handled();
        }
        if self.below(2) == 0 {
            object = object.spec(self.one_of(&[json!({"f": 1}), json!({"f": 2}), json!({"g": 2})]));
        }
        if self.below(2) == 0 {
            object = object.labelled("l", &self.below(3).to_string());
        }
        if self.below(2) == 0 {
            object = object.annotated("n", "1");
        }
        if self.below(2) == 0 {
            object = object.finalized();
        }
        if self.below(5) == 0 {
            object = object.deleting();
        }
        for id in ["a", "b", "c"] {
            let fields = [
                json!({"success": true}),
                json!({"failure": true}),
                json!({"delayed": "2026-01-01T00:00:42Z"}),
                json!({"delayed": "2025-12-31T00:00:42Z"}),
                json!({"retries": 2}),
            ];
            if self.below(5) == 0 {
                object = object.annotated(&format!("{PREFIX}{id}"), &record(&self.one_of(&fields)));
            }
        }
        object
    }

    fn situation(&mut self) -> Situation {
        let count = 1 + usize::try_from(self.below(5)).unwrap();
        Situation {
            handlers: (0..count).map(|number| self.handler(number)).collect(),
            object: self.object(),
            event: self.one_of(&[
                EventType::Listed,
                EventType::Modified,
                EventType::Modified,
                EventType::Deleted,
            ]),
            lifecycle: self.one_of(&[Lifecycle::AllAtOnce, Lifecycle::Asap]),
        }
    }
}

/// The situation without the obstacle of a handler; none if the obstacle is the state of the object itself.
fn without_obstacle(situation: &Situation, report: &HandlerReport) -> Option<Situation> {
    let mut changed = situation.clone();
    let handler = &mut changed.handlers[report.handler];
    let key = format!("{PREFIX}{}", report.id);
    match report.code? {
        Code::Label => handler["labels"] = json!([]),
        Code::Annotation => handler["annotations"] = json!([]),
        Code::Field | Code::Value => {
            handler["field"] = Value::Null;
            handler["value"] = Value::Null;
        }
        Code::Old => handler["old"] = Value::Null,
        Code::When => {
            handler["when"] = json!(false);
            handler["annotations"] = json!([]);
        }
        Code::Duplicate => {
            handler["key"] = json!(99);
            handler["id"] = json!("unique");
        }
        Code::Lifecycle => changed.lifecycle = Lifecycle::AllAtOnce,
        Code::Limit => handler["retries"] = Value::Null,
        Code::Delay | Code::Failed => {
            changed.object = changed.object.with(&["metadata", "annotations", &key], json!("{}"));
        }
        Code::Done if report.verdict == Verdict::Done => {
            changed.object = changed.object.with(&["metadata", "annotations", &key], json!("{}"));
        }
        Code::Finalizer if report.verdict == Verdict::Later => {
            let is_present = changed.object.clone().build().has_finalizer(crate::testing::FINALIZER);
            changed.object = if is_present {
                changed.object.with(&["metadata", "finalizers"], json!([]))
            } else {
                changed.object.finalized()
            };
        }
        Code::Initial if situation.event != EventType::Listed => handler["initial"] = json!(false),
        _ => return None,
    }
    Some(changed)
}

#[test]
fn each_handler_that_is_not_called_has_one_code_and_the_verdicts_equal_the_calls_of_a_cycle() {
    // CLI-2
    let mut codes: Vec<(Code, bool)> = Vec::new();
    for seed in 0..4000 {
        let situation = Random(seed).situation();
        let explanation = situation.explain();
        let yes: Vec<usize> = explanation
            .handlers
            .iter()
            .filter(|report| report.verdict == Verdict::Yes)
            .map(|report| report.handler)
            .collect();
        let context = || {
            format!("{seed}: {:#?} {} {:?}", situation.handlers, situation.object.value(), situation.event)
        };
        assert_eq!(yes, situation.called(), "{}", context());
        assert_eq!(explanation.handlers.len(), situation.handlers.len());
        for report in &explanation.handlers {
            // There are no completed handlings among the objects.
            assert!((report.verdict, report.code) != (Verdict::Later, Some(Code::Done)), "{}", context());
            assert_eq!(report.code.is_none(), report.verdict == Verdict::Yes, "{report:?} {}", context());
            let Some(without) = without_obstacle(&situation, report) else { continue };
            let other = &without.explain().handlers[report.handler];
            let parts = |it: &HandlerReport| (it.verdict, it.code, it.text.clone());
            assert_ne!(parts(report), parts(other), "{report:?} {}", context());
            codes.push((report.code.unwrap(), other.verdict == Verdict::Yes));
        }
    }
    for code in [
        Code::Label,
        Code::Annotation,
        Code::Field,
        Code::Value,
        Code::Old,
        Code::When,
        Code::Duplicate,
        Code::Lifecycle,
        Code::Limit,
        Code::Delay,
        Code::Failed,
        Code::Done,
        Code::Finalizer,
        Code::Initial,
    ] {
        assert!(
            codes.iter().any(|(found, is_called)| *found == code && *is_called),
            "{code:?} is not covered"
        );
    }
}
