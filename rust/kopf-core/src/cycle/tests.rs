//! What stories cannot tell: answers that do not fit, and what is asked in which crossing.

use super::*;
use crate::notes::Level;
use crate::outcome::Raised;
use crate::path::FieldPath;
use crate::script::{Keep, Matched, Recalled, Step, StepReply};
use crate::testing::object;
use serde_json::{Value, json};

const NOW: i64 = 1_767_225_600_000_000;

fn open(handlers: Value, lifecycle: Lifecycle) -> (Cycle, Next) {
    open_with(handlers, lifecycle, Settings::default())
}

fn open_with(handlers: Value, lifecycle: Lifecycle, settings: Settings) -> (Cycle, Next) {
    let registry = Arc::new(Registry { handlers: serde_json::from_value(handlers).unwrap() });
    let resource = json!({
        "group": "kopf.dev", "version": "v1", "plural": "ks", "kind": "K", "singular": "k", "shortcuts": [],
        "categories": [], "subresources": [], "verbs": [], "namespaced": true, "preferred": true,
    });
    let plan = Arc::new(registry.plan(&Arc::new(serde_json::from_value(resource).unwrap()), &|_| true));
    let rules = Arc::new(Rules { registry, settings: Arc::new(settings), lifecycle });
    let observation = Observation {
        event: EventType::Added,
        object: object("x").spec(json!({"a": 1})).build(),
        woken: false,
    };
    let moment = Moment { now: Timestamp::from_micros(NOW), entropy: 0, consistent: true };
    Cycle::open(observation, &Memory::default(), plan, rules, moment)
}

fn answer(cycle: &mut Cycle, steps: Vec<StepReply>) -> Next {
    let reply = Reply { steps, ..Reply::default() };
    cycle.resume(Answer::Reply(reply), Timestamp::from_micros(NOW))
}

fn error(next: Next) -> Option<String> {
    match next {
        Next::Done(conclusion) => conclusion.error,
        other => panic!("{other:?}"),
    }
}

fn steps(next: Next) -> Vec<Step> {
    match next {
        Next::Run(script) => script.steps,
        other => panic!("{other:?}"),
    }
}

#[test]
fn answers_that_do_not_fit_are_errors() {
    let guarded = || json!([{"id": "c", "kind": "changing", "when": true}]);
    let misfits: [Vec<StepReply>; 4] = [
        vec![],
        vec![StepReply::Skipped],
        vec![StepReply::Matched(vec![])],
        vec![StepReply::Matched(vec![Matched::default()]), StepReply::Skipped],
    ];
    for misfit in misfits {
        let (mut cycle, _) = open(guarded(), Lifecycle::Asap);
        assert!(error(answer(&mut cycle, misfit.clone())).is_some(), "{misfit:?}");
    }
    let (mut cycle, _) = open(json!([{"id": "c", "kind": "changing"}]), Lifecycle::Custom);
    assert!(error(answer(&mut cycle, vec![StepReply::Skipped])).is_some());
    let (mut cycle, _) = open(json!([{"id": "c", "kind": "changing"}]), Lifecycle::Asap);
    assert!(error(answer(&mut cycle, vec![])).is_some());
}

#[test]
fn waits_are_answered_only_when_asked_for() {
    let (mut cycle, _) = open(json!([{"id": "c", "kind": "changing"}]), Lifecycle::Asap);
    assert!(error(cycle.resume(Answer::Consistent(true), Timestamp::from_micros(NOW))).is_some());
}

#[test]
fn a_lifecycle_cannot_choose_strangers() {
    let handlers =
        json!([{"id": "c", "kind": "changing"}, {"id": "d", "kind": "changing", "reason": "delete"}]);
    let (mut cycle, _) = open(handlers, Lifecycle::Custom);
    let called = steps(answer(&mut cycle, vec![StepReply::Picked(vec![1, 0, 0, 99])]));
    assert!(matches!(&called[..], [Step::Handle { attempt }] if attempt.handler == 0), "{called:?}");
}

#[test]
fn events_and_questions_share_a_crossing() {
    let (mut cycle, next) = open(
        json!([
            {"id": "c", "kind": "changing", "when": true},
            {"id": "u", "kind": "changing", "reason": "update", "when": true},
            {"id": "e", "kind": "watching"},
            {"id": "f", "kind": "changing", "reason": "delete"},
        ]),
        Lifecycle::Asap,
    );
    // The update handler is not for this, and somebody else is interested for sure.
    let asked = steps(next);
    assert!(matches!(&asked[0], Step::Watch { handler: 2, guarded: false, .. }), "{asked:?}");
    assert_eq!(asked[1], Step::Match { handlers: vec![0] });
    assert!(cycle.take_notes().is_empty());
    let matched = StepReply::Matched(vec![Matched { prematch: true, full: true }]);
    let called = steps(answer(&mut cycle, vec![StepReply::Skipped, matched]));
    assert!(matches!(&called[..], [Step::Handle { attempt }] if attempt.handler == 0), "{called:?}");
    assert_eq!(cycle.take_notes(), [Note::InProgress(Reason::Create)]);
}

#[test]
fn limits_and_modes_come_with_the_attempt() {
    let declared = json!([{"id": "c", "kind": "changing", "timeout": 5, "retries": 3}]);
    let called = steps(open(declared, Lifecycle::Asap).1);
    let [Step::Handle { attempt }] = &called[..] else { panic!("{called:?}") };
    assert_eq!((attempt.timeout, attempt.retries, attempt.retry), (Some(5.0), Some(3), 0));
    assert_eq!(
        (attempt.started, attempt.backoff.to_string()),
        (Timestamp::from_micros(NOW), "60".to_owned())
    );
    assert_eq!(&*attempt.label, "Handler 'c'");
}

#[test]
fn storages_of_users_are_asked_first_and_told_last() {
    let mut settings = Settings::default();
    settings.persistence.diffbase_storage = crate::diffbase::DiffBaseStorage::Foreign;
    let declared =
        json!([{"id": "c", "kind": "changing", "field": ["status", "x"], "field_needs_change": false}]);
    let (mut cycle, next) = open_with(declared.clone(), Lifecycle::Asap, settings.clone());
    let extra_fields = vec![FieldPath::parse("status.x")];
    assert_eq!(steps(next), [Step::Recall { ids: vec!["c".into()], extra_fields }]);
    let recalled = |new: Value| StepReply::Recalled(Box::new(Recalled { old: None, new, records: vec![] }));
    let called = steps(answer(&mut cycle, vec![recalled(json!({"status": {"x": 1}}))]));
    let [Step::Handle { attempt }] = &called[..] else { panic!("{called:?}") };
    let outcome = attempt.settle(&crate::outcome::Raised::Nothing, Timestamp::from_micros(NOW)).outcome;
    let kept = steps(answer(&mut cycle, vec![StepReply::Attempted(outcome)]));
    let records = vec![("c".into(), None)];
    assert_eq!(kept, [Step::Keep(Keep { records, essence: true, written: false })]);
    let Next::Done(conclusion) = answer(&mut cycle, vec![StepReply::Skipped]) else { panic!() };
    assert!(conclusion.error.is_none() && conclusion.patch.is_empty() && conclusion.fully_handled_once);

    // Nobody is interested in what they have: they are not asked. What does not fit, is an error.
    let labelled = json!([{"id": "c", "kind": "changing", "labels": [["absent", {"present": true}]]}]);
    assert!(matches!(open_with(labelled, Lifecycle::Asap, settings.clone()).1, Next::Done(_)));
    let (mut cycle, _) = open_with(declared, Lifecycle::Asap, settings);
    assert!(error(answer(&mut cycle, vec![StepReply::Skipped])).is_some());
}

#[test]
fn the_last_script_of_a_cycle_says_so() {
    let last = |handlers: Value| match open(handlers, Lifecycle::Asap).1 {
        Next::Run(script) => script.last,
        other => panic!("{other:?}"),
    };
    let event = json!({"id": "e", "kind": "watching"});
    assert!(last(json!([event])));
    // It is a creation: if anybody handles those, another script follows.
    let changing = json!({"id": "c", "kind": "changing", "key": 1});
    assert!(!last(json!([event, changing])));
    let daemon = json!({"id": "d", "kind": "daemon", "key": 2});
    assert!(!last(json!([event, daemon])));
}

fn foreseen(handlers: Value, lifecycle: Lifecycle) -> (Cycle, Vec<Step>) {
    let (mut cycle, mut next) = open(handlers, lifecycle);
    cycle.take_notes();
    cycle.foresee(&mut next, |level| level != Level::Debug);
    let Next::Run(script) = next else { panic!("{next:?}") };
    assert_eq!(script.change.is_some(), !script.then.is_empty());
    (cycle, script.then)
}

fn watched_and_created() -> Value {
    json!([{"id": "e", "kind": "watching"}, {"id": "c", "kind": "changing"}])
}

#[test]
fn a_call_is_foreseen_and_comes_true() {
    let (mut cycle, then) = foreseen(watched_and_created(), Lifecycle::Asap);
    let [Step::Handle { attempt }] = &then[..] else { panic!("{then:?}") };
    let outcome = attempt.settle(&Raised::Nothing, Timestamp::from_micros(NOW)).outcome;
    let then = Some(vec![StepReply::Attempted(outcome)]);
    let reply = Reply { steps: vec![StepReply::Skipped], then, ..Reply::default() };
    let next = cycle.resume(Answer::Reply(reply), Timestamp::from_micros(NOW));
    let Next::Done(conclusion) = next else { panic!("{next:?}") };
    assert!(conclusion.error.is_none() && conclusion.matched && !conclusion.patch.is_empty());
}

#[test]
fn what_is_not_done_of_the_foreseen_is_asked_for() {
    let (mut cycle, then) = foreseen(watched_and_created(), Lifecycle::Asap);
    assert_eq!(steps(answer(&mut cycle, vec![StepReply::Skipped])), then);
}

#[test]
fn calls_of_other_numbers_than_foreseen_are_errors() {
    let (mut cycle, _) = foreseen(watched_and_created(), Lifecycle::Asap);
    let reply = Reply { steps: vec![StepReply::Skipped], then: Some(vec![]), ..Reply::default() };
    assert!(error(cycle.resume(Answer::Reply(reply), Timestamp::from_micros(NOW))).is_some());
    let (mut cycle, _) = open(watched_and_created(), Lifecycle::Asap);
    let reply = Reply { steps: vec![StepReply::Skipped], then: Some(vec![]), ..Reply::default() };
    assert!(error(cycle.resume(Answer::Reply(reply), Timestamp::from_micros(NOW))).is_some());
}

#[test]
fn nothing_is_foreseen_behind_a_choice_or_daemons_or_words() {
    assert_eq!(foreseen(watched_and_created(), Lifecycle::Custom).1, vec![]);
    let with_daemon = json!([{"id": "e", "kind": "watching"}, {"id": "c", "kind": "changing"},
        {"id": "d", "kind": "daemon"}]);
    assert_eq!(foreseen(with_daemon, Lifecycle::Asap).1, vec![]);
    let (mut cycle, mut next) = open(watched_and_created(), Lifecycle::Asap);
    cycle.foresee(&mut next, |_| true);
    assert!(matches!(next, Next::Run(script) if script.then.is_empty()));
}

#[test]
fn what_was_foreseen_follows_soon_and_on_consent_only() {
    let says = |prematch, full| [StepReply::Skipped, StepReply::Matched(vec![Matched { prematch, full }])];
    assert!(Reply::is_as_foreseen(&says(true, true), 0.05));
    assert!(!Reply::is_as_foreseen(&says(true, true), 0.2));
    assert!(
        !Reply::is_as_foreseen(&says(true, false), 0.0) && !Reply::is_as_foreseen(&says(false, false), 0.0)
    );
}
