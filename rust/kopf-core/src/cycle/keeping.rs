//! What is kept of the object: read from it and put into the patch; or, with storages that only Python knows, asked for in
//! one crossing before anything is decided, and told in another one when all is decided.

use super::facts::Facts;
use super::{Conclusion, Cycle, Next, Phase};
use crate::essence::transcribed;
use crate::ledger;
use crate::notes::Note;
use crate::patch::Patch;
use crate::progress::{Malformed, Record};
use crate::script::{Keep, Recalled, Script, Step, StepReply};
use crate::settings::Settings;
use crate::value::Value;
use std::sync::Arc;

/// The exchange with the user's storages.
#[derive(Clone, Debug, Default)]
pub(super) struct Foreign {
    records: Vec<(String, Value)>,
    keep: Keep,
    conclusion: Option<Box<Conclusion>>,
}

impl Cycle {
    /// Whether the user's storages must be asked first: nobody else knows what was handled.
    pub(super) fn needs_recall(&self) -> bool {
        self.rules.settings.persistence.is_foreign()
            && !self.plan.changing.is_empty()
            && self.is_labelled_for_anybody()
    }

    pub(super) fn recall(&mut self) -> Next {
        self.foreign = Some(Box::default());
        self.phase = Phase::Recalling;
        let (ids, extra_fields) = (self.plan.owned.clone(), self.plan.extra_fields.clone());
        Next::Run(script(Step::Recall { ids, extra_fields }))
    }

    /// Takes what the storages have; none if it does not fit the question.
    pub(super) fn recalled(&mut self, replies: &mut [StepReply]) -> Option<Next> {
        let [StepReply::Recalled(recalled)] = replies else {
            return None;
        };
        let Recalled { old, new, records } =
            std::mem::replace(&mut **recalled, Recalled { old: None, new: Value::Null, records: Vec::new() });
        self.foreign.as_mut()?.records = records;
        self.facts = Some(Facts::told(old, new));
        Some(self.begin())
    }

    /// The record of a handler.
    pub(super) fn fetch_record(&self, id: &str) -> Result<Option<Record>, Malformed> {
        let Some(foreign) = &self.foreign else {
            return self.rules.settings.persistence.progress_storage.fetch(&self.object, id);
        };
        let Some((_, value)) = foreign.records.iter().find(|(known, _)| known == id) else {
            return Ok(None);
        };
        let malformed = |problem| Malformed { place: format!("record of {id}"), problem };
        Record::from_value(value).map(Some).map_err(malformed)
    }

    pub(super) fn store_record(&mut self, patch: &mut Patch, id: &Arc<str>, record: &Record) {
        match &mut self.foreign {
            Some(foreign) => foreign.keep.records.push((Arc::clone(id), Some(record.clone()))),
            None => {
                self.rules.settings.persistence.progress_storage.store(&self.object, patch, id, record);
            }
        }
    }

    pub(super) fn purge_record(&mut self, patch: &mut Patch, id: &Arc<str>) {
        match &mut self.foreign {
            Some(foreign) => foreign.keep.records.push((Arc::clone(id), None)),
            None => self.rules.settings.persistence.progress_storage.purge(&self.object, patch, id),
        }
    }

    /// The essence of now becomes the last handled one.
    pub(super) fn store_essence(&mut self, patch: &mut Patch) {
        if let Some(foreign) = &mut self.foreign {
            foreign.keep.essence = true;
            return;
        }
        let rules = Arc::clone(&self.rules);
        let persistence = &rules.settings.persistence;
        let storage = &persistence.diffbase_storage;
        if let Some(text) = transcribed(&self.object, persistence, &self.plan.extra_fields)
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
    pub(super) fn finish_keeping(&mut self, conclusion: Conclusion) -> Next {
        let is_written = conclusion.is_written();
        match &mut self.foreign {
            Some(foreign) if is_written || foreign.keep.essence || !foreign.keep.records.is_empty() => {
                let mut keep = std::mem::take(&mut foreign.keep);
                keep.written = is_written;
                foreign.conclusion = Some(Box::new(conclusion));
                self.phase = Phase::Keeping;
                Next::Run(script(Step::Keep(keep)))
            }
            Some(_) => self.finish_kept(conclusion),
            None => {
                let mut conclusion = conclusion;
                // Earlier operators woke themselves up with a dummy; it goes with the next write.
                if is_written {
                    let storage = &self.rules.settings.persistence.progress_storage;
                    storage.touch(&self.object, &mut conclusion.patch, None);
                }
                self.finish_kept(conclusion)
            }
        }
    }

    /// Takes the patch as the user's storages have left it.
    pub(super) fn kept(&mut self) -> Option<Next> {
        let mut conclusion = *self.foreign.as_mut()?.conclusion.take()?;
        if !self.patch.is_empty() {
            conclusion.patch = std::mem::take(&mut self.patch);
        }
        conclusion.fns |= self.fns;
        Some(self.finish_kept(conclusion))
    }

    fn finish_kept(&mut self, conclusion: Conclusion) -> Next {
        if conclusion.matched && !conclusion.is_written() && conclusion.delay.is_none() {
            self.notes.push(Note::Finished);
        }
        Next::Done(Box::new(conclusion))
    }
}

impl Conclusion {
    /// The new value of [`Memory::parted`](super::Memory::parted) if its writes fail: whether nothing of it is lost then.
    pub fn stays_parted(&self, settings: &Settings) -> bool {
        self.parted && (ledger::is_kept(settings) || (self.patch.is_empty() && !self.fns))
    }

    pub(super) fn is_written(&self) -> bool {
        !self.patch.is_empty() || self.finalizer.is_some() || self.fns
    }
}

fn script(step: Step) -> Script {
    Script { steps: vec![step], ..Script::default() }
}
