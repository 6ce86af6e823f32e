//! The log messages of a cycle, as data: their texts are formatted only if the level is enabled.

use crate::cause::Reason;
use crate::handling::change::Change;
use crate::json::diff;
use crate::json::path::FieldPath;
use crate::json::value::python_repr;
use crate::log_level::Level;
use crate::object::Object;
use crate::object::redaction;
use crate::persistence::foreign_write::ForeignWrite;
use crate::persistence::progress::Malformed;
use std::sync::Arc;

/// A log message of a cycle, formatted only if its level is enabled.
#[derive(Clone, Debug, PartialEq)]
pub enum LogMessage {
    /// The handling for this reason starts or continues.
    InProgress(Reason),
    /// The difference from the last handled state.
    Diff(Arc<Change>),
    /// All handlers are finished.
    Processed {
        /// The reason of the handling.
        reason: Reason,
        /// The number of succeeded handlers.
        succeeded: usize,
        /// The number of failed handlers.
        failed: usize,
    },
    /// The handling for one reason is superseded by that for another one.
    Superseded {
        /// The superseded reason.
        old: Reason,
        /// The new reason.
        new: Reason,
        /// The number of handlers of the old reason that have succeeded.
        succeeded: usize,
        /// The number of those that have failed.
        failed: usize,
        /// The number of those that are not finished.
        running: usize,
    },
    /// The object is deleted.
    Gone,
    /// The object is being deleted, and Kopf's finalizer does not block it.
    Free,
    /// The essence has not changed.
    Noop,
    /// Kopf's finalizer is added.
    FinalizerAdded,
    /// Kopf's finalizer is removed, because no handler requires it.
    FinalizerUnneeded,
    /// Kopf's finalizer is removed, because all handlers are finished.
    FinalizerReleased,
    /// The cycle is finished, and no other one is scheduled.
    Finished,
    /// The persisted state on the object is unreadable, and counts as absent.
    Malformed(Malformed),
    /// Another client has removed Kopf's annotations; with the last field manager of the object, if it is known.
    Stripped(Option<String>),
    /// The API server does not store this field with Kopf's state.
    Pruned(FieldPath),
    /// Another operator handles the object at the same time. To be logged once per resource.
    AnotherOperator(ForeignWrite),
}

impl LogMessage {
    /// The level of the message.
    pub fn level(&self) -> Level {
        match self {
            Self::Processed { .. } | Self::Superseded { .. } => Level::Info,
            Self::Malformed(_) | Self::Stripped(_) | Self::Pruned(_) | Self::AnotherOperator(_) => {
                Level::Warning
            }
            _ => Level::Debug,
        }
    }

    /// The text of the message.
    pub fn text(&self, object: &Object) -> String {
        match self {
            Self::InProgress(reason) => {
                format!(
                    "{} is in progress: {}",
                    reason.capitalized(),
                    python_repr(&redaction::shown(object, &object.to_value()))
                )
            }
            Self::Diff(change) => {
                let items = redaction::shown_diff(object, change.diff());
                format!("{} diff: {}", change.reason.capitalized(), diff::python_repr(&items))
            }
            Self::Processed { reason, succeeded, failed } => {
                format!("{} is processed: {succeeded} succeeded; {failed} failed.", reason.capitalized())
            }
            Self::Superseded { old, new, succeeded, failed, running } => format!(
                "{} is superseded by {}: {succeeded} succeeded; {failed} failed; {running} left to the moment.",
                old.capitalized(),
                new.title(),
            ),
            Self::Gone => "Deleted, really deleted, and we are notified.".to_owned(),
            Self::Free => "Deletion, but we are done with it, and we do not care.".to_owned(),
            Self::Noop => {
                "Something has changed, but we are not interested (the essence is the same).".to_owned()
            }
            Self::FinalizerAdded => "Adding the finalizer, thus preventing the actual deletion.".to_owned(),
            Self::FinalizerUnneeded => {
                "Removing the finalizer, as there are no handlers requiring it.".to_owned()
            }
            Self::FinalizerReleased => {
                "Removing the finalizer, thus allowing the actual deletion.".to_owned()
            }
            Self::Finished => "Handling cycle is finished, waiting for new changes.".to_owned(),
            Self::Malformed(what) => {
                format!("Ignoring the state kept on the object, as it cannot be read: {what}")
            }
            Self::Stripped(manager) => {
                let who = manager.as_deref().map_or_else(String::new, |who| {
                    format!(" The last change of the object was made by '{who}'.")
                });
                format!(
                    "Another client has removed or changed Kopf's annotations on the object; continuing with the state in \
                     memory.{who}"
                )
            }
            Self::Pruned(field) => {
                format!(
                    "The API server does not store {field}, where Kopf keeps its state: the schema has no such field. Kopf \
                     continues with the state in memory, and after a restart, it calls handlers again. Set \
                     x-kubernetes-preserve-unknown-fields: true for the status in the CRD, or store the state in annotations \
                     (settings.persistence)."
                )
            }
            Self::AnotherOperator(write) => another_operator(write, object),
        }
    }
}

fn another_operator(write: &ForeignWrite, object: &Object) -> String {
    let kind = object.kind().unwrap_or("this kind");
    let what = match write {
        ForeignWrite::Progress(id) => format!("the progress of the handler '{id}'"),
        ForeignWrite::DiffBase => "the last handled configuration".to_owned(),
    };
    format!(
        "Another operator handles objects of {kind}, too: it has written {what} of this object while this operator was handling \
         it. Handlers can be called twice, or miss changes. Run one instance, or set up peering; different operators need \
         different prefixes of their storages. During a rolling update, it can be the previous instance; it can also be a \
         client that edits Kopf's annotations. This is logged once per kind. See docs/peering.md."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    // contract: engine 3.6, api A
    #[test]
    fn texts_are_those_of_kopf() {
        let object = crate::testing::object("x").build();
        let superseded = LogMessage::Superseded {
            old: Reason::Create,
            new: Reason::Delete,
            succeeded: 1,
            failed: 2,
            running: 3,
        };
        assert_eq!(superseded.level(), Level::Info);
        assert_eq!(
            superseded.text(&object),
            "Creation is superseded by deletion: 1 succeeded; 2 failed; 3 left to the moment."
        );
        let processed = LogMessage::Processed { reason: Reason::Update, succeeded: 3, failed: 0 };
        assert_eq!(processed.text(&object), "Updating is processed: 3 succeeded; 0 failed.");
        let text = LogMessage::InProgress(Reason::Resume).text(&object);
        assert!(text.starts_with("Resuming is in progress: {"), "{text}");
        assert_eq!(LogMessage::Gone.level(), Level::Debug);
    }
}
