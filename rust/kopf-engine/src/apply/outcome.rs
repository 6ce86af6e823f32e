//! The results of calls.

use std::sync::Arc;

use kopf_core::apply::{ChildKey, Owner, PlannedChild};
use kopf_core::object::Object;

use crate::user_client::CallError;

/// The reason why nothing of the children was sent.
#[derive(Clone, Debug)]
pub enum ApplyError {
    /// The arguments are wrong, or a request has failed.
    Call(CallError),
    /// The owner does not exist any more: a `LookupError`.
    OwnerGone(String),
    /// The owner has an `ApplySet` of another tool.
    OwnedByAnother(String),
}

impl ApplyError {
    pub(super) fn owner_gone(owner: &Owner) -> Self {
        Self::OwnerGone(format!(
            "The owner {} {} (uid {}) does not exist any more.",
            owner.kind, owner.name, owner.uid
        ))
    }
}

impl From<CallError> for ApplyError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// The reason why a child was not applied.
#[derive(Clone, Debug)]
pub enum ChildError {
    /// A request has failed.
    Call(CallError),
    /// It belongs to another owner.
    OwnedByAnother(String),
    /// It is being deleted: it can be applied when it is gone.
    Leaving(String),
}

impl From<CallError> for ChildError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// A reference to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRef {
    /// The identity.
    pub key: ChildKey,
    /// The uid, if it is known.
    pub uid: Option<String>,
}

/// How an apply has changed an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Created,
    Changed,
    Unchanged,
    Recreated,
}

/// An applied child.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub(super) change: Change,
    pub(super) has_yielded: bool,
    pub(super) object: Arc<Object>,
}

/// An object as it is after the call.
#[derive(Clone, Debug)]
pub struct AppliedObject {
    /// The identity.
    pub key: ChildKey,
    /// The object.
    pub object: Arc<Object>,
}

/// The result of a call.
#[derive(Clone, Debug, Default)]
pub struct Applied {
    /// The objects that did not exist.
    pub created: Vec<ObjectRef>,
    /// The objects that have changed.
    pub changed: Vec<ObjectRef>,
    /// The objects that have not changed.
    pub unchanged: Vec<ObjectRef>,
    /// The objects of which other managers keep some fields. They are in one of the other lists, too.
    pub yielded: Vec<ObjectRef>,
    /// The objects that were deleted and created again.
    pub recreated: Vec<ObjectRef>,
    /// The deleted members of the `ApplySet`.
    pub pruned: Vec<ObjectRef>,
    /// The applied objects.
    pub objects: Vec<AppliedObject>,
    /// The failures.
    pub failures: Vec<(ChildKey, ChildError)>,
}

impl Applied {
    pub(super) fn add(&mut self, child: &PlannedChild, result: Result<Done, ChildError>) {
        let done = match result {
            Ok(done) => done,
            Err(error) => return self.failures.push((child.key.clone(), error)),
        };
        let uid = done.object.uid().map(str::to_owned);
        let reference = ObjectRef { key: child.key.clone(), uid };
        if done.has_yielded {
            self.yielded.push(reference.clone());
        }
        let list = match done.change {
            Change::Created => &mut self.created,
            Change::Changed => &mut self.changed,
            Change::Unchanged => &mut self.unchanged,
            Change::Recreated => &mut self.recreated,
        };
        list.push(reference);
        self.objects.push(AppliedObject { key: child.key.clone(), object: done.object });
    }
}
