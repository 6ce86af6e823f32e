//! The persisted state of the object. Built-in storages read it from the object and put it into the patch. Custom storages are
//! implemented in Python: [`Command::FetchState`] reads the state before the decision, [`Command::StoreState`] writes it after the decision.

use super::comparison::EssenceComparison;
use super::{Cycle, Decision, Effect, Phase};
use crate::activation::log::LogMessage;
use crate::activation::{Activation, Command, CommandResult, FetchedState, StoreRequest};
use crate::json::merge_patch::Patch;
use crate::json::value::Value;
use crate::persistence::essence::serialize_raw;
use crate::persistence::keeps_pending_state;
use crate::persistence::progress::{Malformed, Record};
use crate::settings::Settings;
use std::sync::Arc;

/// The state that is exchanged with the custom storages.
#[derive(Clone, Debug, Default)]
pub(super) struct CustomStorageState {
    records: Vec<(String, Value)>,
    request: StoreRequest,
    decision: Option<Box<Decision>>,
}

impl Cycle {
    /// Whether the state must be loaded from custom storages first: only they know the last handled state.
    pub(super) fn needs_load(&self) -> bool {
        self.config.settings.persistence.has_custom_storage()
            && !self.resource_handlers.changing.is_empty()
            && self.has_matching_metadata()
    }

    pub(super) fn load_state(&mut self) -> Effect {
        self.custom_storage = Some(Box::default());
        self.phase = Phase::Loading;
        let (ids, extra_fields) =
            (self.resource_handlers.owned.clone(), self.resource_handlers.extra_fields.clone());
        Effect::Run(activation(Command::FetchState { ids, extra_fields }))
    }

    /// Continues with the state that the storages have loaded; none if the results do not fit the command.
    pub(super) fn on_loaded(&mut self, results: &mut [CommandResult]) -> Option<Effect> {
        let [CommandResult::Fetched(loaded)] = results else {
            return None;
        };
        let FetchedState { old, new, records } = std::mem::replace(
            &mut **loaded,
            FetchedState { old: None, new: Value::Null, records: Vec::new() },
        );
        self.custom_storage.as_mut()?.records = records;
        self.comparison = Some(EssenceComparison::from_stored(old, new));
        Some(self.begin())
    }

    /// The progress record of a handler, as persisted.
    pub(super) fn fetch_record(&self, id: &str) -> Result<Option<Record>, Malformed> {
        let Some(custom_storage) = &self.custom_storage else {
            return self.config.settings.persistence.progress_storage.fetch(&self.object, id);
        };
        let Some((_, value)) = custom_storage.records.iter().find(|(known, _)| known == id) else {
            return Ok(None);
        };
        let malformed = |problem| Malformed { place: format!("record of {id}"), problem };
        Record::from_value(value).map(Some).map_err(malformed)
    }

    pub(super) fn store_record(&mut self, patch: &mut Patch, id: &Arc<str>, record: &Record) {
        match &mut self.custom_storage {
            Some(custom_storage) => {
                custom_storage.request.records.push((Arc::clone(id), Some(record.clone())));
            }
            None => {
                self.config.settings.persistence.progress_storage.store(&self.object, patch, id, record);
            }
        }
    }

    pub(super) fn purge_record(&mut self, patch: &mut Patch, id: &Arc<str>) {
        match &mut self.custom_storage {
            Some(custom_storage) => custom_storage.request.records.push((Arc::clone(id), None)),
            None => self.config.settings.persistence.progress_storage.purge(&self.object, patch, id),
        }
    }

    /// Stores the current essence as the diff-base.
    pub(super) fn store_essence(&mut self, patch: &mut Patch) {
        if let Some(custom_storage) = &mut self.custom_storage {
            custom_storage.request.essence = true;
            return;
        }
        let config = Arc::clone(&self.config);
        let persistence = &config.settings.persistence;
        let storage = &persistence.diffbase_storage;
        let change = self.change();
        let known = change.as_ref().and_then(|change| change.new_text());
        let copied = match known {
            Some(_) => None,
            None => serialize_raw(&self.object, persistence, &self.resource_handlers.extra_fields),
        };
        if let Some(text) = known.or(copied.as_deref())
            && storage.store_text(&self.object, patch, text)
        {
            return;
        }
        let Some(new) = change.as_ref().and_then(|change| change.new_()) else { return };
        if config.settings.compat {
            storage.store_whole(&self.object, patch, new);
        } else {
            storage.store(&self.object, patch, new);
        }
    }

    /// Finishes the cycle, after the custom storages have stored their state.
    pub(super) fn finish_storing(&mut self, decision: Decision) -> Effect {
        let is_written = decision.is_written();
        match &mut self.custom_storage {
            Some(custom_storage)
                if is_written
                    || custom_storage.request.essence
                    || !custom_storage.request.records.is_empty() =>
            {
                let mut request = std::mem::take(&mut custom_storage.request);
                request.written = is_written;
                custom_storage.decision = Some(Box::new(decision));
                self.phase = Phase::Storing;
                Effect::Run(activation(Command::StoreState(request)))
            }
            Some(_) => self.finish_stored(decision),
            None => {
                let mut decision = decision;
                // Kopf 1.45 triggers watch events with a dummy annotation. It is removed with the next write.
                if is_written {
                    let storage = &self.config.settings.persistence.progress_storage;
                    storage.touch(&self.object, &mut decision.patch, None);
                }
                self.finish_stored(decision)
            }
        }
    }

    /// Continues with the patch as the custom storages have left it.
    pub(super) fn on_stored(&mut self) -> Option<Effect> {
        let mut decision = *self.custom_storage.as_mut()?.decision.take()?;
        if !self.patch.is_empty() {
            decision.patch = std::mem::take(&mut self.patch);
        }
        decision.fns |= self.fns;
        Some(self.finish_stored(decision))
    }

    fn finish_stored(&mut self, decision: Decision) -> Effect {
        if decision.matched && !decision.is_written() && decision.delay.is_none() {
            self.log_messages.push(LogMessage::Finished);
        }
        Effect::Done(Box::new(decision))
    }
}

impl Decision {
    /// The new value of [`ObjectMemory::deletion_handled`](crate::persistence::memory::ObjectMemory::deletion_handled) if the
    /// writes fail: true only if that loses nothing.
    pub fn deletion_handled_after_failed_write(&self, settings: &Settings) -> bool {
        self.deletion_handled && (keeps_pending_state(settings) || (self.patch.is_empty() && !self.fns))
    }

    pub(super) fn is_written(&self) -> bool {
        !self.patch.is_empty() || self.finalizer.is_some() || self.fns
    }
}

fn activation(command: Command) -> Activation {
    Activation { commands: vec![command], ..Activation::default() }
}
