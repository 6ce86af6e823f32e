//! The properties of 1.3 over random events: each with 10,000 random inputs.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::schedule::{Delays, GrowingDelays};

#[derive(Clone, Copy, Debug)]
enum Event {
    Trigger(Priority),
    TriggerAfter(f64),
    Wait(f64),
    Finish(ReconcileResult),
    FinishWriting(ReconcileResult),
    Confirm,
    SetPaused(bool),
    Forget,
    HoldPermits(bool),
}

fn events() -> impl Strategy<Value = Event> {
    let seconds = || prop_oneof![Just(0.0), 0.0..3.0, 0.0..400.0];
    let result = || {
        prop_oneof![
            3 => Just(ReconcileResult::Succeeded),
            1 => seconds().prop_map(ReconcileResult::Requeued),
            3 => Just(ReconcileResult::Failed(None)),
            1 => seconds().prop_map(|delay| ReconcileResult::Failed(Some(delay))),
            1 => Just(ReconcileResult::FailedPermanently),
            1 => Just(ReconcileResult::Cancelled),
        ]
    };
    prop_oneof![
        6 => Just(Event::Trigger(Priority::Changed)),
        1 => Just(Event::Trigger(Priority::Initial)),
        1 => seconds().prop_map(Event::TriggerAfter),
        8 => seconds().prop_map(Event::Wait),
        8 => result().prop_map(Event::Finish),
        2 => result().prop_map(Event::FinishWriting),
        1 => Just(Event::Confirm),
        1 => any::<bool>().prop_map(Event::SetPaused),
        1 => Just(Event::Forget),
        1 => any::<bool>().prop_map(Event::HoldPermits),
    ]
}

fn policies() -> impl Strategy<Value = SchedulePolicy> {
    let delays = prop_oneof![
        2 => Just(Delays::default()),
        1 => Just(Delays::Growing(GrowingDelays { first: 0.3, factor: 3.0, most: 20.0, jitter: 0.0 })),
        1 => Just(Delays::Constant(2.5)),
        1 => Just(Delays::Computed),
    ];
    let debounce = prop_oneof![2 => Just(0.0), 1 => 0.1..2.0];
    let min_interval = prop_oneof![2 => Just(0.0), 1 => 0.1..5.0];
    let limits = (
        proptest::option::of(0.0..8.0),
        proptest::option::weighted(0.2, 1.0..60.0),
        proptest::option::weighted(0.2, 1_u32..4),
        proptest::option::weighted(0.2, 0.0..30.0),
    );
    (delays, debounce, min_interval, limits).prop_map(|(delays, debounce, min_interval, limits)| {
        let (debounce_limit, resync, retries, timeout) = limits;
        SchedulePolicy { delays, debounce, debounce_limit, min_interval, resync, retries, timeout }
    })
}

/// The entry with an independent record of what has happened.
struct Model {
    entry: ScheduleEntry,
    policy: SchedulePolicy,
    now: Timestamp,
    are_permits_held: bool,
    running: Option<Timestamp>,
    last_start: Option<Timestamp>,
    last_end: Timestamp,
    /// The state of the cluster, which each trigger announces; and the state that the last started reconciliation received.
    state: u32,
    received: u32,
    /// The last trigger that no reconciliation has received yet.
    open_trigger: Option<Timestamp>,
    starts: u32,
    triggers: u32,
    requests: u32,
    /// Of the current series: the end and the delay of each failure, and the start of the reconciliation that followed.
    failures: Vec<(Timestamp, f64, Option<Timestamp>)>,
}

const WRITES: f64 = 5.0;

impl Model {
    fn new(policy: SchedulePolicy) -> Self {
        let now = Timestamp::from_micros(0);
        Self {
            entry: ScheduleEntry::default(),
            policy,
            now,
            are_permits_held: false,
            running: None,
            last_start: None,
            last_end: now,
            state: 0,
            received: 0,
            open_trigger: None,
            starts: 0,
            triggers: 0,
            requests: 0,
            failures: Vec::new(),
        }
    }

    fn execute(&mut self, event: Event) {
        match event {
            Event::Trigger(priority) => {
                let before = self.due();
                self.entry.trigger(priority, &self.policy, self.now);
                self.record_trigger();
                if let (Some(before), Some(after)) = (before, self.due())
                    && self.policy.debounce == 0.0
                {
                    assert!(after <= before, "A3: a trigger makes the entry due later");
                }
            }
            Event::TriggerAfter(delay) => {
                self.entry.trigger_after(delay, self.now);
                self.triggers += 1;
            }
            Event::Wait(seconds) => self.wait_until(self.now.plus(seconds)),
            Event::Finish(result) => self.finish(result, None),
            Event::FinishWriting(result) => self.finish(result, Some(self.now.plus(WRITES))),
            Event::Confirm => self.entry.confirm_writes(),
            Event::SetPaused(is_paused) => {
                let ends = self.entry.is_paused() && !is_paused;
                self.entry.set_paused(is_paused);
                if ends {
                    self.execute(Event::Trigger(Priority::Changed));
                }
            }
            Event::Forget => {
                self.entry.forget();
                self.open_trigger = None;
                self.received = self.state;
                if self.running.is_none() {
                    self.failures.clear();
                }
            }
            Event::HoldPermits(are_held) => self.are_permits_held = are_held,
        }
        assert_eq!(
            self.running.is_some(),
            self.entry.is_running(),
            "property 1: the entry knows that it is running"
        );
        assert!(self.running.is_none() || self.due().is_none(), "property 1: a running entry is queued");
    }

    fn record_trigger(&mut self) {
        self.state += 1;
        self.triggers += 1;
        self.open_trigger = Some(self.now);
    }

    fn due(&self) -> Option<Timestamp> {
        self.entry.position(&self.policy).map(|position| position.due)
    }

    /// Starts what becomes due until then, unless all permits are held.
    fn wait_until(&mut self, time: Timestamp) {
        if let Some(due) = self.due().filter(|due| *due <= time && !self.are_permits_held) {
            self.now = self.now.max(due);
            self.start();
        }
        self.now = self.now.max(time);
    }

    fn start(&mut self) {
        let start = self.entry.start(self.now).expect("a queued entry starts");
        assert_eq!(usize::try_from(start.retry).unwrap(), self.failures.len(), "A12");
        if let Some(last) = self.last_start {
            let spacing = self.policy.spacing(!self.failures.is_empty());
            assert!(self.now >= last.plus(spacing), "A4: the starts are too close");
        }
        if let Some(failure) = self.failures.last_mut() {
            failure.2.get_or_insert(self.now);
        }
        self.running = Some(self.now);
        self.last_start = Some(self.now);
        self.received = self.state;
        self.open_trigger = None;
        self.starts += 1;
    }

    fn finish(&mut self, result: ReconcileResult, writes: Option<Timestamp>) {
        if self.running.take().is_none() {
            return;
        }
        let was_gone = matches!(&self.entry.state, State::Running(running) if running.is_gone);
        let conclusion = self.entry.finish(result, writes, &self.policy, self.now, 0.0);
        self.last_end = self.now;
        match conclusion {
            Conclusion::Cancelled => {
                // The series goes on; the interrupted reconciliation was none.
                if let Some(failure) = self.failures.last_mut() {
                    failure.2 = None;
                }
            }
            Conclusion::Succeeded { .. } => {
                self.failures.clear();
                let is_requeued = matches!(result, ReconcileResult::Requeued(_));
                self.requests += u32::from(is_requeued || self.policy.resync.is_some());
            }
            Conclusion::GaveUp => self.failures.clear(),
            Conclusion::Retried(delay) => {
                let has_elapsed = |failure: &(Timestamp, f64, Option<Timestamp>)| {
                    failure.2.is_some_and(|start| start >= failure.0.plus(failure.1))
                };
                let elapsed = self.failures.iter().filter(|failure| has_elapsed(failure)).count();
                if matches!(result, ReconcileResult::Failed(None)) {
                    let expected = self.policy.delays.delay(u32::try_from(elapsed).unwrap(), 0.0);
                    assert!((delay - expected).abs() < 1e-9, "A7: {delay} instead of {expected}");
                }
                self.failures.push((self.now, delay, None));
                self.requests += 1;
            }
        }
        if was_gone {
            self.failures.clear();
        }
    }

    /// After the last trigger: ends what is running, and follows the entry until it is idle.
    fn settle(&mut self, result: ReconcileResult) {
        self.execute(Event::HoldPermits(false));
        self.execute(Event::SetPaused(false));
        self.finish(result, None);
        let delay = match self.failures.last() {
            Some((end, delay, None)) => end.plus(*delay).seconds_since(self.now).max(0.0),
            _ => 0.0,
        };
        if let Some(trigger) = self.open_trigger {
            let bound = [self.policy.limit(), delay, self.policy.spacing(self.entry.is_failing()), WRITES];
            let bound = bound.into_iter().fold(0.0, f64::max);
            let latest = trigger.max(self.last_end).max(self.now).plus(bound);
            assert!(
                self.due().is_some_and(|due| due <= latest),
                "property 2: the last trigger is not served in time"
            );
        }
        for _ in 0..3 {
            let Some(due) = self.due() else { break };
            self.wait_until(due);
            self.finish(ReconcileResult::Succeeded, None);
        }
        assert_eq!(self.received, self.state, "property 3: a trigger is lost");
        let is_idle = self.entry.is_idle();
        assert!(
            is_idle || self.policy.resync.is_some(),
            "property 4: there is nothing to do, but {:?}",
            self.entry
        );
        let most = self.triggers + self.requests;
        assert!(self.starts <= most, "property 5: {} reconciliations of at most {most}", self.starts);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn properties_of_1_3(policy in policies(), events in vec(events(), 1..40), fails in any::<bool>()) {
        let mut model = Model::new(policy);
        for event in events {
            model.execute(event);
        }
        model.settle(if fails { ReconcileResult::Failed(None) } else { ReconcileResult::Succeeded });
    }
}
