//! The attribution of one primary's triggers to the writes of its calls. The rules are in `kopf_core::relations::Attribution`.

use std::sync::Arc;

use kopf_core::json::value::{self, Map, Value};
use kopf_core::object::Object;
use kopf_core::relations::{
    Attribution, EventOrigin, OwnWrite, TriggerDecision, TriggerEvent, WrittenFields, is_last_writer,
};
use kopf_core::schedule::{Delays, Priority};
use kopf_core::time::Timestamp;

use super::event::{ObjectEvent, Trigger, described};
use crate::object_key::key_of;

/// The triggers of a primary whose calls write, with those that wait for the end of a write.
#[derive(Default)]
pub(super) struct WriteTriggers {
    attribution: Attribution<Arc<str>>,
    waiting: Vec<WaitingTrigger>,
}

/// A trigger about which is decided when a write has ended.
pub(super) struct WaitingTrigger {
    /// The number of the event, in the order of arrival.
    number: u64,
    pub(super) event: ObjectEvent,
    pub(super) source: &'static str,
    pub(super) cause: Option<String>,
}

/// The known state when a write was sent.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenedWrite {
    /// The number of the next event.
    pub(super) number: u64,
    /// The position of the reconciler and the number of the primary whose call has sent it; none if there is none any more. The
    /// write can end after the call.
    pub(super) sender: Option<(usize, u64)>,
    /// The uid and the resource version of the primary.
    pub(super) primary: Option<(Arc<str>, Box<str>)>,
}

/// A write that has ended.
pub(super) struct EndedWrite<'w> {
    pub(super) opened: &'w OpenedWrite,
    /// The state in the response; none if it has failed, or if the object is gone.
    pub(super) response: Option<&'w Object>,
    pub(super) manager: &'w str,
    pub(super) request: Option<WrittenRequest<'w>>,
}

/// The body of a write. Most of them are never looked at.
#[derive(Clone, Copy)]
pub(super) enum WrittenRequest<'w> {
    /// A body as JSON.
    Json(&'w [u8]),
    /// A merge patch.
    Patch(&'w Map<String, Value>),
}

impl WrittenRequest<'_> {
    fn to_value(self) -> Option<Value> {
        match self {
            Self::Json(body) => value::parse(str::from_utf8(body).ok()?).ok(),
            Self::Patch(patch) => Some(Value::Object(patch.clone())),
        }
    }
}

impl WriteTriggers {
    /// Records the start of a call.
    pub(super) fn on_start(&mut self, now: Timestamp) {
        self.attribution.start(now);
    }

    /// Records the end of a call. Returns what a hot loop of `limit` calls changes, if one is detected now.
    pub(super) fn on_finish(&mut self, limit: usize) -> Option<Vec<String>> {
        self.attribution.finish(limit)
    }

    /// Whether nothing is remembered.
    pub(super) fn is_over(&self) -> bool {
        self.attribution.is_over() && self.waiting.is_empty()
    }

    /// Decides about a trigger. `number` is that of the event.
    pub(super) fn decide(&mut self, trigger: Trigger<'_>, delays: &Delays, number: u64) -> TriggerDecision {
        let event = trigger.event.filter(|_| trigger.priority == Priority::Changed);
        let Some(event) = event else {
            self.attribution.on_other_trigger();
            return TriggerDecision::Trigger;
        };
        let name = described(&event.resource, &event.object);
        let decision = self.attribution.on_event(&event.as_trigger(&name), delays, fastrand::f64());
        if decision == TriggerDecision::Keep {
            self.waiting.push(WaitingTrigger {
                number,
                event: event.clone(),
                source: trigger.source,
                cause: trigger.cause.map(str::to_owned),
            });
        }
        decision
    }

    /// Records the start of a write.
    pub(super) fn open_write(&mut self) {
        self.attribution.open_write();
    }

    /// Records the end of a write. Returns the triggers to decide about again. `version_of` is the known version of an object.
    pub(super) fn end_write(
        &mut self,
        ended: &EndedWrite<'_>,
        version_of: impl Fn(&str) -> Option<Box<str>>,
    ) -> Vec<WaitingTrigger> {
        let written = ended.response.map(|response| {
            let uid = key_of(response);
            // The version at the start of the write is that before the first event since then.
            let is_first = |it: &&WaitingTrigger| it.number >= ended.opened.number && it.event.uid == uid;
            let known = match (&ended.opened.primary, self.waiting.iter().find(is_first)) {
                (Some((primary, version)), _) if *primary == uid => Some(version.clone()),
                (_, Some(first)) => first.event.previous.clone(),
                _ => version_of(&uid),
            };
            let write = ended.as_write(response, known, self.attribution.needs_fields());
            (uid, write)
        });
        self.attribution.end_write(written);
        std::mem::take(&mut self.waiting)
    }
}

impl EndedWrite<'_> {
    fn as_write(&self, response: &Object, known: Option<Box<str>>, needs_fields: bool) -> OwnWrite {
        let request = self.request.filter(|_| needs_fields).and_then(WrittenRequest::to_value);
        OwnWrite {
            known,
            version: response.resource_version().unwrap_or_default().into(),
            is_last: is_last_writer(response, self.manager),
            fields: request.map(|request| WrittenFields::of(&request, response, self.manager)),
        }
    }
}

impl ObjectEvent {
    /// The event as a trigger, with the object as in log lines.
    fn as_trigger<'e>(&'e self, name: &'e str) -> TriggerEvent<'e, Arc<str>> {
        let version = self.object.resource_version().unwrap_or_default();
        let origin = EventOrigin { is_watched: self.is_watched, version, previous: self.previous.as_deref() };
        TriggerEvent {
            object: &self.uid,
            state: &self.object,
            origin,
            counts_own_writes: self.counts_own_writes,
            name,
        }
    }
}
