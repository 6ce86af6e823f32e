//! The writes of reconcilers' calls, and hot loops.

use std::sync::Arc;

use kopf_core::json::value::{Map, Value};
use kopf_core::log_level::Level;
use kopf_core::object::Object;
use kopf_core::relations::TriggerDecision;
use kopf_core::resource::Resource;
use kopf_core::schedule::{Delays, Priority};
use kopf_core::time::Timestamp;

use super::Reconcilers;
use super::effects::Effects;
use super::event::{Listed, ObjectEvent, PrimaryEvent, Trigger};
use super::state::{Primary, Reconciler, State};
use super::write_triggers::{EndedWrite, OpenedWrite, WrittenRequest};
use crate::host::{LogRecord, RunId};
use crate::object_key::key_of;
use crate::user_client::{StartedWrite, WriteObserver, WriteOutcome, WrittenObject};

/// The field manager of the engine's patches.
const OWN_MANAGER: &str = "kopf";

impl Primary {
    /// Records the start of a call.
    pub(super) fn on_start(&mut self, now: Timestamp) {
        if let Some(triggers) = &mut self.write_triggers {
            triggers.on_start(now);
        }
    }

    /// Records the end of a call. Returns what a hot loop of `limit` calls changes, if one is detected now.
    pub(super) fn on_finish(&mut self, limit: usize) -> Option<Vec<String>> {
        let found = self.write_triggers.as_mut()?.on_finish(limit);
        self.write_triggers.take_if(|triggers| triggers.is_over());
        found
    }

    /// Decides about a trigger. `number` is that of the event.
    pub(super) fn decide(&mut self, trigger: Trigger<'_>, delays: &Delays, number: u64) -> TriggerDecision {
        let triggers = self.write_triggers.as_mut();
        triggers.map_or(TriggerDecision::Trigger, |triggers| triggers.decide(trigger, delays, number))
    }

    /// Decides about an event of this object, which is a trigger.
    pub(super) fn decide_about_event(
        &mut self,
        (key, event): (&Arc<str>, &PrimaryEvent),
        priority: Priority,
        delays: &Delays,
        number: u64,
    ) -> TriggerDecision {
        let own = self.write_triggers.is_some().then(|| ObjectEvent {
            uid: Arc::clone(key),
            is_watched: event.listed == Listed::No,
            previous: None,
            counts_own_writes: true,
            resource: Arc::clone(&event.resource),
            object: Arc::clone(&event.object),
        });
        self.decide(Trigger { priority, source: "primary", cause: None, event: own.as_ref() }, delays, number)
    }
}

impl State {
    /// Records that the call sends a write. None if there is no such call.
    pub(super) fn open_write(&mut self, run: RunId) -> Option<OpenedWrite> {
        let number = self.next_number();
        let entry = self.runs.get(&run)?;
        let primary = self.reconcilers[entry.reconciler].primaries.get_mut(&entry.uid)?;
        primary.write_triggers.get_or_insert_default().open_write();
        let sender = Some((entry.reconciler, primary.number));
        let version = primary.object.resource_version();
        let primary = version.map(|version| (Arc::clone(&entry.uid), version.into()));
        Some(OpenedWrite { number, sender, primary })
    }

    /// Records the end of the patch of a call.
    pub(super) fn end_patch(
        &mut self,
        (opened, patch): (&OpenedWrite, &Map<String, Value>),
        response: Option<&Object>,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let request = Some(WrittenRequest::Patch(patch));
        let ended = EndedWrite { opened, response, manager: OWN_MANAGER, request };
        self.end_write(&ended, now, effects);
    }

    fn end_write(&mut self, ended: &EndedWrite<'_>, now: Timestamp, effects: &mut Effects) {
        let Some((index, number)) = ended.opened.sender else { return };
        let Reconciler { primaries, numbers, relations, .. } = &mut self.reconcilers[index];
        let Some(key) = numbers.get(&number).cloned() else { return };
        let triggers = primaries.get_mut(&key).and_then(|primary| primary.write_triggers.as_mut());
        let Some(triggers) = triggers else { return };
        let version_of = |uid: &str| relations.iter().find_map(|relation| relation.version_of(uid));
        for waiting in triggers.end_write(ended, version_of) {
            let trigger = Trigger {
                priority: Priority::Changed,
                source: waiting.source,
                cause: waiting.cause.as_deref(),
                event: Some(&waiting.event),
            };
            self.trigger(index, &key, trigger, now, effects);
        }
    }

    /// Records the state in the response to a write of a call, if it is that of the primary: the next call gets it (0.3.8).
    fn record_response(
        &mut self,
        sender: Option<(usize, u64)>,
        (resource, response): (&Resource, &Arc<Object>),
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let Some((index, number)) = sender else { return };
        let Reconciler { primaries, numbers, .. } = &self.reconcilers[index];
        let Some(key) = numbers.get(&number).cloned() else { return };
        let is_of_kind = primaries.get(&key).is_some_and(|primary| *primary.resource == *resource);
        if is_of_kind && key_of(response) == key {
            self.on_response(index, &key, Some(response), now);
            self.establish(index, &key, now, effects);
        }
    }

    /// Logs a hot loop.
    pub(super) fn report_hot_loop(
        &mut self,
        index: usize,
        key: &str,
        changes: &[String],
        effects: &mut Effects,
    ) {
        let Reconciler { primaries, label, options, measured, .. } = &mut self.reconcilers[index];
        measured.loops += 1;
        let Some(primary) = primaries.get(key) else { return };
        let text = format!(
            "{label} was called {} times in a row because of its writes: {}. Calls for this reason are delayed from now on, \
             until something else triggers it.",
            options.hot_loop,
            changes.join("; "),
        );
        effects.records.push(LogRecord::local(Level::Warning, &primary.object, text));
    }
}

/// Observes the writes of calls by their clients.
pub struct CallWrites(pub Arc<Reconcilers>);

/// A write of a call.
struct CallWrite {
    reconcilers: Arc<Reconcilers>,
    opened: OpenedWrite,
    resource: Arc<Resource>,
    manager: String,
    request: Option<Box<[u8]>>,
    is_over: bool,
}

impl WriteObserver for CallWrites {
    fn start(&self, write: WrittenObject<'_>) -> Option<Box<dyn StartedWrite>> {
        let run = write.run?;
        let opened = self.0.state().open_write(run)?;
        Some(Box::new(CallWrite {
            reconcilers: Arc::clone(&self.0),
            opened,
            resource: Arc::clone(write.resource),
            manager: write.manager.unwrap_or(OWN_MANAGER).to_owned(),
            request: write.body.map(Box::from),
            is_over: false,
        }))
    }
}

impl CallWrite {
    fn end(&mut self, response: Option<&Arc<Object>>) {
        self.is_over = true;
        let Self { opened, resource, manager, request, .. } = &*self;
        let request = request.as_deref().map(WrittenRequest::Json);
        let ended = EndedWrite { opened, response: response.map(Arc::as_ref), manager, request };
        self.reconcilers.with_state(|state, now, effects| {
            state.end_write(&ended, now, effects);
            if let Some(response) = response {
                state.record_response(opened.sender, (resource, response), now, effects);
            }
        });
    }
}

impl StartedWrite for CallWrite {
    fn finish(mut self: Box<Self>, outcome: WriteOutcome<'_>) {
        let object = match outcome {
            WriteOutcome::Accepted { object, is_deletion: false } => object,
            _ => None,
        };
        self.end(object.filter(|object| object.kind() != Some("Status")));
    }
}

impl Drop for CallWrite {
    fn drop(&mut self) {
        if !self.is_over {
            self.end(None);
        }
    }
}
