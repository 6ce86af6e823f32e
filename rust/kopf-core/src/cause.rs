//! Why we act on an object: events are not causes.
//!
//! Owns the reasons, and the ladder that finds the reason from what is known of the object. Knows neither handlers nor logs.

use serde::{Deserialize, Serialize};

/// What the stream said of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// It was in a listing; in Python, `None`.
    Listed,
    /// `ADDED`.
    Added,
    /// `MODIFIED`.
    Modified,
    /// `DELETED`.
    Deleted,
}

impl EventType {
    /// As Kubernetes writes it; none for listings.
    pub fn as_str(self) -> Option<&'static str> {
        match self {
            Self::Listed => None,
            Self::Added => Some("ADDED"),
            Self::Modified => Some("MODIFIED"),
            Self::Deleted => Some("DELETED"),
        }
    }
}

/// Why we act. The first four call handlers, the others are only told in logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reason {
    /// It was never handled.
    Create,
    /// Its essence differs from the last handled one.
    Update,
    /// Its deletion is requested, and waits for us.
    Delete,
    /// It was handled by an earlier operator, and this one sees it first.
    Resume,
    /// Its essence is the last handled one.
    Noop,
    /// Its deletion is requested, and does not wait for us.
    Free,
    /// It is no more.
    Gone,
}

impl Reason {
    /// The reasons that call handlers, in the order in which they are told.
    pub const HANDLED: [Self; 4] = [Self::Create, Self::Update, Self::Delete, Self::Resume];

    /// As in Python and in the persisted purposes.
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

    /// As a noun in logs.
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

    /// The noun at the beginning of a sentence.
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

    /// Whether handlers are called for it.
    pub fn is_handled(self) -> bool {
        Self::HANDLED.contains(&self)
    }
}

/// How the essence compares with the last handled one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EssenceChange {
    /// There is no last handled one.
    Unknown,
    /// There is no difference.
    Same,
    /// There is a difference.
    Different,
}

/// The inputs of the cause detection, except for the essence: comparing it is expensive and not always needed.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "they are independent observations")]
pub struct CauseInput {
    /// The object is no more.
    pub gone: bool,
    /// Its deletion is requested.
    pub deleting: bool,
    /// Our finalizer is on it.
    pub blocked: bool,
    /// It was there before this operator, which has not handled it in full yet.
    pub initial: bool,
}

/// The reason to act: the first rung that holds.
pub fn reason(signs: CauseInput, likeness: impl FnOnce() -> EssenceChange) -> Reason {
    // What is no more cannot be handled.
    if signs.gone {
        return Reason::Gone;
    }
    // A deletion that does not wait for us is not our business.
    if signs.deleting && !signs.blocked {
        return Reason::Free;
    }
    // A deletion that waits for us comes before everything else that may have changed.
    if signs.deleting {
        return Reason::Delete;
    }
    match likeness() {
        // Never handled is new, however old it is.
        EssenceChange::Unknown => Reason::Create,
        // Handled, unchanged, but not seen by this operator yet.
        EssenceChange::Same if signs.initial => Reason::Resume,
        // Something has changed that is not the author's intent.
        EssenceChange::Same => Reason::Noop,
        EssenceChange::Different => Reason::Update,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder() {
        use EssenceChange::{Different, Same, Unknown};
        //   gone   deleting blocked initial likeness   reason
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
        for (gone, deleting, blocked, initial, likeness, expected) in table {
            let signs = CauseInput { gone, deleting, blocked, initial };
            assert_eq!(reason(signs, || likeness), expected, "{signs:?} {likeness:?}");
        }
    }

    #[test]
    fn the_essence_is_looked_at_only_when_it_matters() {
        let signs = CauseInput { gone: false, deleting: true, blocked: true, initial: true };
        assert_eq!(reason(signs, || panic!("not needed")), Reason::Delete);
    }
}
