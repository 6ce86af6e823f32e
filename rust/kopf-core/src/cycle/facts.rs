//! What the object's essence says, read as late and as little as possible.

use super::Rules;
use crate::cause::{Change, Likeness, Reason};
use crate::diff::{DiffItem, diff};
use crate::essence::{Comparison, compare, essence};
use crate::notes::Note;
use crate::object::Object;
use crate::registry::Plan;
use crate::value::Value;

/// The essence against the last handled one.
#[derive(Debug)]
pub(super) struct Facts {
    known: bool,
    differs: bool,
    diff: Vec<DiffItem>,
    /// Only if it differs from the new one.
    old: Option<Value>,
    /// Built when needed.
    new: Option<Value>,
}

impl Facts {
    /// Reads them. A last handled essence that cannot be read is none.
    pub(super) fn read(object: &Object, plan: &Plan, rules: &Rules, notes: &mut Vec<Note>) -> Self {
        match compare(object, &rules.settings.persistence, &plan.extra_fields) {
            Ok(Comparison::Same) => {
                Self { known: true, differs: false, diff: Vec::new(), old: None, new: None }
            }
            Ok(Comparison::Different { old, new }) => {
                let diff = diff(Some(&old), Some(&new));
                Self { known: true, differs: true, diff, old: Some(old), new: Some(new) }
            }
            Ok(Comparison::Absent) => Self::unknown(),
            Err(malformed) => {
                notes.push(Note::Malformed(malformed));
                Self::unknown()
            }
        }
    }

    fn unknown() -> Self {
        Self { known: false, differs: true, diff: Vec::new(), old: None, new: None }
    }

    /// Unequal essences may have no difference that counts: nulls are as good as absent.
    pub(super) fn likeness(&self) -> Likeness {
        match (self.known, self.diff.is_empty()) {
            (false, _) => Likeness::Unknown,
            (true, true) => Likeness::Same,
            (true, false) => Likeness::Different,
        }
    }

    /// Whether the essence is to be remembered anew.
    pub(super) fn differs(&self) -> bool {
        self.differs
    }

    /// The old one and the new one.
    pub(super) fn essences(
        &mut self,
        object: &Object,
        plan: &Plan,
        rules: &Rules,
    ) -> (Option<&Value>, Option<&Value>) {
        let new = &*self
            .new
            .get_or_insert_with(|| essence(object, &rules.settings.persistence, &plan.extra_fields));
        let old = if self.known && !self.differs { Some(new) } else { self.old.as_ref() };
        (old, Some(new))
    }

    /// The same as a cause for handlers.
    pub(super) fn change(
        &mut self,
        object: &Object,
        plan: &Plan,
        rules: &Rules,
        reason: Reason,
        initial: bool,
    ) -> Change {
        let (old, new) = self.essences(object, plan, rules);
        let (old, new) = (old.cloned(), new.cloned());
        let diff = if self.known { self.diff.clone() } else { diff(None, new.as_ref()) };
        // An object that was never handled is created, not resumed.
        let initial = initial && reason != Reason::Create;
        Change { reason, initial, old, new, diff }
    }
}
