//! The state of the primaries whose functions the host evaluates.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use kopf_core::backoff::Backoff;
use kopf_core::time::Timestamp;

use super::event::{Listed, PrimaryEvent};

/// The delays before the functions that have failed for an object are called again.
const FAILURE_DELAYS: Backoff = Backoff::doubling(1.0, 300.0).with_jitter(0.2);

/// A primary whose functions are being called by the host.
pub(super) struct Inspected {
    /// The event whose state is inspected.
    pub(super) event: PrimaryEvent,
    /// The functions have failed for the same event before.
    pub(super) is_repeated: bool,
    /// The newest event since then.
    pub(super) pending: Option<PrimaryEvent>,
}

/// The objects whose functions have failed, with the times of the next attempts.
#[derive(Default)]
pub(super) struct FailedInspections {
    objects: HashMap<Arc<str>, FailedInspection>,
    due: BTreeSet<(Timestamp, Arc<str>)>,
}

#[derive(Default)]
struct FailedInspection {
    failures: u32,
    /// None while the functions are being called.
    next: Option<(Timestamp, PrimaryEvent)>,
}

impl PrimaryEvent {
    /// The event instead of an earlier one that was not processed. The trigger of the list after a pause is kept.
    pub(super) fn replacing(self, earlier: Option<&Self>) -> Self {
        let is_after_pause = earlier.is_some_and(|earlier| earlier.listed == Listed::AfterPause);
        Self { listed: if is_after_pause { Listed::AfterPause } else { self.listed }, ..self }
    }
}

impl FailedInspections {
    /// Records a failure.
    pub(super) fn add(&mut self, key: &Arc<str>, event: PrimaryEvent, now: Timestamp) {
        let failed = self.objects.entry(Arc::clone(key)).or_default();
        let delay = FAILURE_DELAYS.delay(failed.failures, None, fastrand::f64());
        failed.failures = failed.failures.saturating_add(1);
        let at = now.plus(delay.map_or(0.0, |delay| delay.seconds));
        failed.next = Some((at, event));
        self.due.insert((at, Arc::clone(key)));
    }

    /// Cancels the next attempt of an object. Returns the event to be inspected again.
    pub(super) fn take(&mut self, key: &Arc<str>) -> Option<PrimaryEvent> {
        let (at, event) = self.objects.get_mut(key)?.next.take()?;
        self.due.remove(&(at, Arc::clone(key)));
        Some(event)
    }

    /// Takes an event whose time has come.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Option<PrimaryEvent> {
        let (_, key) = self.due.first().filter(|(at, _)| *at <= now)?.clone();
        self.take(&key)
    }

    /// Forgets the failures of an object.
    pub(super) fn remove(&mut self, key: &Arc<str>) {
        self.take(key);
        self.objects.remove(key);
    }

    /// The time of the next attempt.
    pub(super) fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The event of an object that is inspected again later.
    pub(super) fn event(&self, key: &str) -> Option<&PrimaryEvent> {
        self.objects.get(key)?.next.as_ref().map(|(_, event)| event)
    }

    /// The keys of the objects.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.objects.keys()
    }
}
