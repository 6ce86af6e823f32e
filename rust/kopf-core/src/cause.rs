//! The reason why Kopf acts on an object: an event is not a cause.
//!
//! Defines the reasons and the rule that detects the reason from the state of the object.

use serde::{Deserialize, Serialize};

/// The type of a watch event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// The object was in a list response. In Python, `None`.
    Listed,
    /// `ADDED`.
    Added,
    /// `MODIFIED`.
    Modified,
    /// `DELETED`.
    Deleted,
}

impl EventType {
    /// The type as Kubernetes writes it; none for listed objects.
    pub fn as_str(self) -> Option<&'static str> {
        match self {
            Self::Listed => None,
            Self::Added => Some("ADDED"),
            Self::Modified => Some("MODIFIED"),
            Self::Deleted => Some("DELETED"),
        }
    }
}

/// The reason for which Kopf acts. The first four call handlers; the others are only logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// The object has no last-handled configuration yet.
    Create,
    /// The essence of the object differs from the last handled one.
    Update,
    /// The deletion of the object is requested, and Kopf's finalizer blocks it.
    Delete,
    /// A previous run of the operator handled the object, and this run sees it for the first time.
    Resume,
    /// The essence of the object equals the last handled one.
    Noop,
    /// The deletion of the object is requested, and Kopf's finalizer does not block it.
    Free,
    /// The object is deleted.
    Gone,
}

impl Reason {
    /// The reasons that call handlers, in the order in which they are logged.
    pub const HANDLED: [Self; 4] = [Self::Create, Self::Update, Self::Delete, Self::Resume];

    /// The reason as in Python and in the `purpose` of persisted records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Resume => "resume",
            Self::Noop => "noop",
            Self::Free => "free",
            Self::Gone => "gone",
        }
    }

    /// The reason as a noun in log messages.
    pub fn title(self) -> &'static str {
        match self {
            Self::Create => "creation",
            Self::Update => "updating",
            Self::Delete => "deletion",
            Self::Resume => "resuming",
            Self::Noop => "noop",
            Self::Free => "free",
            Self::Gone => "gone",
        }
    }

    /// The noun at the beginning of a log message.
    pub fn capitalized(self) -> &'static str {
        match self {
            Self::Create => "Creation",
            Self::Update => "Updating",
            Self::Delete => "Deletion",
            Self::Resume => "Resuming",
            Self::Noop => "Noop",
            Self::Free => "Free",
            Self::Gone => "Gone",
        }
    }

    /// Whether handlers are called for this reason.
    pub fn is_handled(self) -> bool {
        Self::HANDLED.contains(&self)
    }
}

/// The result of the comparison of the essence with the last handled one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EssenceChange {
    /// There is no last handled essence.
    Unknown,
    /// The essences are equal.
    Same,
    /// The essences differ.
    Different,
}

/// The inputs of the cause detection, except for the essence: its comparison is expensive and not always needed.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent observations")]
pub struct CauseInput {
    /// The object is deleted.
    pub gone: bool,
    /// Its deletion is requested.
    pub deleting: bool,
    /// It has Kopf's finalizer.
    pub blocked: bool,
    /// It existed before this run of the operator, which has not fully handled it yet.
    pub initial: bool,
}

/// The reason to act: that of the first rule that applies.
pub fn reason(input: CauseInput, compare: impl FnOnce() -> EssenceChange) -> Reason {
    // A deleted object cannot be handled.
    if input.gone {
        return Reason::Gone;
    }
    // Kopf's finalizer does not block this deletion: other controllers' finalizers do.
    if input.deleting && !input.blocked {
        return Reason::Free;
    }
    // A blocked deletion has precedence over all other changes.
    if input.deleting {
        return Reason::Delete;
    }
    match compare() {
        // An object that was never handled counts as created, regardless of its age.
        EssenceChange::Unknown => Reason::Create,
        // The object was handled and is unchanged, but this run of the operator has not seen it yet.
        EssenceChange::Same if input.initial => Reason::Resume,
        // A change outside of the essence.
        EssenceChange::Same => Reason::Noop,
        EssenceChange::Different => Reason::Update,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // contract: engine 3.2
    #[test]
    fn each_state_has_its_reason() {
        use EssenceChange::{Different, Same, Unknown};
        //   gone   deleting blocked initial change   reason
        let table = [
            (true, true, true, true, Unknown, Reason::Gone),
            (true, false, false, false, Same, Reason::Gone),
            (false, true, false, true, Different, Reason::Free),
            (false, true, true, true, Unknown, Reason::Delete),
            (false, true, true, false, Same, Reason::Delete),
            (false, false, true, true, Unknown, Reason::Create),
            (false, false, false, false, Unknown, Reason::Create),
            (false, false, false, true, Same, Reason::Resume),
            (false, false, true, false, Same, Reason::Noop),
            (false, false, true, false, Different, Reason::Update),
            (false, false, true, true, Different, Reason::Update),
        ];
        for (gone, deleting, blocked, initial, change, expected) in table {
            let input = CauseInput { gone, deleting, blocked, initial };
            assert_eq!(reason(input, || change), expected, "{input:?} {change:?}");
        }
    }

    #[test]
    fn the_essence_is_compared_only_if_needed() {
        let input = CauseInput { gone: false, deleting: true, blocked: true, initial: true };
        assert_eq!(reason(input, || panic!("not needed")), Reason::Delete);
    }
}
