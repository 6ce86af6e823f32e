//! What is kept of the object: read from it and put into the patch; or, with storages that only Python knows, asked for in
//! one crossing before anything is decided, and told in another one when all is decided.

use super::comparison::EssenceComparison;
use super::{Cycle, Decision, Effect, Phase};
use crate::activation::log::LogMessage;
use crate::activation::{Activation, Command, CommandResult, LoadedState, StoreRequest};
use crate::json::merge_patch::Patch;
use crate::json::value::Value;
use crate::persistence::essence::serialize_raw;
use crate::persistence::pending_state;
use crate::persistence::progress::{Malformed, Record};
use crate::settings::Settings;
use std::sync::Arc;

/// The state of the exchange with the user's storages.
#[derive(Clone, Debug, Default)]
pub(super) struct CustomStorageState {
    records: Vec<(String, Value)>,
    keep: StoreRequest,
    decision: Option<Box<Decision>>,
}

impl Cycle {
    /// Whether the user's storages must be asked first: nobody else knows what was handled.
    pub(super) fn needs_load(&self) -> bool {
        self.rules.settings.persistence.is_foreign()
            && !self.plan.changing.is_empty()
            && self.is_labelled_for_anybody()
    }

    pub(super) fn load_state(&mut self) -> Effect {
        self.custom_storage = Some(Box::default());
        self.phase = Phase::Recalling;
        let (ids, extra_fields) = (self.plan.owned.clone(), self.plan.extra_fields.clone());
        Effect::Run(activation(Command::Load { ids, extra_fields }))
    }

    /// Takes what the storages have; none if it does not fit the question.
    pub(super) fn on_loaded(&mut self, replies: &mut [CommandResult]) -> Option<Effect> {
        let [CommandResult::Loaded(recalled)] = replies else {
            return None;
        };
        let LoadedState { old, new, records } = std::mem::replace(
            &mut **recalled,
            LoadedState { old: None, new: Value::Null, records: Vec::new() },
        );
        self.custom_storage.as_mut()?.records = records;
        self.comparison = Some(EssenceComparison::from_stored(old, new));
        Some(self.begin())
    }

    /// The record of a handler.
    pub(super) fn fetch_record(&self, id: &str) -> Result<Option<Record>, Malformed> {
        let Some(custom_storage) = &self.custom_storage else {
            return self.rules.settings.persistence.progress_storage.fetch(&self.object, id);
        };
        let Some((_, value)) = custom_storage.records.iter().find(|(known, _)| known == id) else {
            return Ok(None);
        };
        let malformed = |problem| Malformed { place: format!("record of {id}"), problem };
        Record::from_value(value).map(Some).map_err(malformed)
    }

    pub(super) fn store_record(&mut self, patch: &mut Patch, id: &Arc<str>, record: &Record) {
        match &mut self.custom_storage {
            Some(custom_storage) => custom_storage.keep.records.push((Arc::clone(id), Some(record.clone()))),
            None => {
                self.rules.settings.persistence.progress_storage.store(&self.object, patch, id, record);
            }
        }
    }

    pub(super) fn purge_record(&mut self, patch: &mut Patch, id: &Arc<str>) {
        match &mut self.custom_storage {
            Some(custom_storage) => custom_storage.keep.records.push((Arc::clone(id), None)),
            None => self.rules.settings.persistence.progress_storage.purge(&self.object, patch, id),
        }
    }

    /// The essence of now becomes the last handled one.
    pub(super) fn store_essence(&mut self, patch: &mut Patch) {
        if let Some(custom_storage) = &mut self.custom_storage {
            custom_storage.keep.essence = true;
            return;
        }
        let rules = Arc::clone(&self.rules);
        let persistence = &rules.settings.persistence;
        let storage = &persistence.diffbase_storage;
        if let Some(text) = serialize_raw(&self.object, persistence, &self.plan.extra_fields)
            && storage.store_text(&self.object, patch, &text)
        {
            return;
        }
        let Some(change) = self.change() else { return };
        let Some(new) = change.new_() else { return };
        if rules.settings.compat {
            storage.store_whole(&self.object, patch, new);
        } else {
            storage.store(&self.object, patch, new);
        }
    }

    /// Ends the cycle, after the user's storages have got what they are to keep.
    pub(super) fn finish_keeping(&mut self, decision: Decision) -> Effect {
        let is_written = decision.is_written();
        match &mut self.custom_storage {
            Some(custom_storage)
                if is_written || custom_storage.keep.essence || !custom_storage.keep.records.is_empty() =>
            {
                let mut keep = std::mem::take(&mut custom_storage.keep);
                keep.written = is_written;
                custom_storage.decision = Some(Box::new(decision));
                self.phase = Phase::Keeping;
                Effect::Run(activation(Command::Store(keep)))
            }
            Some(_) => self.finish_kept(decision),
            None => {
                let mut decision = decision;
                // Earlier operators woke themselves up with a dummy; it goes with the next write.
                if is_written {
                    let storage = &self.rules.settings.persistence.progress_storage;
                    storage.touch(&self.object, &mut decision.patch, None);
                }
                self.finish_kept(decision)
            }
        }
    }

    /// Takes the patch as the user's storages have left it.
    pub(super) fn on_stored(&mut self) -> Option<Effect> {
        let mut decision = *self.custom_storage.as_mut()?.decision.take()?;
        if !self.patch.is_empty() {
            decision.patch = std::mem::take(&mut self.patch);
        }
        decision.fns |= self.fns;
        Some(self.finish_kept(decision))
    }

    fn finish_kept(&mut self, decision: Decision) -> Effect {
        if decision.matched && !decision.is_written() && decision.delay.is_none() {
            self.log_messages.push(LogMessage::Finished);
        }
        Effect::Done(Box::new(decision))
    }
}

impl Decision {
    /// The new value of [`ObjectMemory::deletion_handled`](crate::persistence::memory::ObjectMemory::deletion_handled) if its writes fail: whether nothing of it is lost then.
    pub fn deletion_handled_after_failed_write(&self, settings: &Settings) -> bool {
        self.deletion_handled && (pending_state::is_kept(settings) || (self.patch.is_empty() && !self.fns))
    }

    pub(super) fn is_written(&self) -> bool {
        !self.patch.is_empty() || self.finalizer.is_some() || self.fns
    }
}

fn activation(step: Command) -> Activation {
    Activation { steps: vec![step], ..Activation::default() }
}
