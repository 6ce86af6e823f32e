//! What a cycle has to say in logs: data, made into text only when somebody listens.

use crate::cause::Reason;
use crate::handling::change::Change;
use crate::json::diff;
use crate::json::value::python_repr;
use crate::log_level::Level;
use crate::object::Object;
use crate::object::redaction;
use crate::persistence::progress::Malformed;
use std::sync::Arc;

/// A log message of a cycle, formatted only if its level is enabled.
#[derive(Clone, Debug, PartialEq)]
pub enum LogMessage {
    /// Handling goes on for this reason.
    InProgress(Reason),
    /// What differs from the last handled state.
    Diff(Arc<Change>),
    /// All handlers are done.
    Processed {
        /// Of what.
        reason: Reason,
        /// How many did it.
        succeeded: usize,
        /// How many gave it up.
        failed: usize,
    },
    /// One handling gives way to another.
    Superseded {
        /// The one that was going on.
        old: Reason,
        /// The one that goes on instead.
        new: Reason,
        /// How many had done it.
        succeeded: usize,
        /// How many had given it up.
        failed: usize,
        /// How many were still at it.
        running: usize,
    },
    /// The object is no more.
    Gone,
    /// The object is being deleted without us.
    Free,
    /// The essence is as it was.
    Noop,
    /// Our finalizer is put on.
    FinalizerAdded,
    /// Our finalizer is taken off, since nobody needs it.
    FinalizerUnneeded,
    /// Our finalizer is taken off, since all is done.
    FinalizerReleased,
    /// There is nothing left to do.
    Finished,
    /// What is stored on the object cannot be read, and is taken for absent.
    Malformed(Malformed),
    /// Somebody has removed what we keep on the object; maybe it is known who has changed it last.
    Stripped(Option<String>),
}

impl LogMessage {
    /// How loud it is.
    pub fn level(&self) -> Level {
        match self {
            Self::Processed { .. } | Self::Superseded { .. } => Level::Info,
            Self::Malformed(_) | Self::Stripped(_) => Level::Warning,
            _ => Level::Debug,
        }
    }

    /// Its text.
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
            Self::Stripped(culprit) => {
                let who = culprit.as_deref().map_or_else(String::new, |who| {
                    format!(" The last change of the object was made by '{who}'.")
                });
                format!(
                    "Somebody has removed or changed the annotations that are kept on the object; going on with what is in \
                     memory.{who}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_that_people_search_for() {
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
