//! Effects of changes of the state: collected while it is locked, executed after the lock is released.

use std::sync::Arc;

use kopf_core::object::Object;
use kopf_core::persistence::finalizer::Edit;
use kopf_core::resource::Resource;

use super::Reconcilers;
use crate::daemons::ObjectOwner;
use crate::host::{HostTask, LogRecord};

/// The effects to execute.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) tasks: Vec<HostTask>,
    pub(super) records: Vec<LogRecord>,
    pub(super) edits: Vec<FinalizerEdit>,
    /// Objects whose handling cycles decide about the operator's finalizer.
    pub(super) wakes: Vec<Wake>,
    /// Objects whose functions are called by the host.
    pub(super) inspections: Vec<Inspect>,
    /// Objects that are gone, and have no handling cycles: the host drops their memos.
    pub(super) forgotten: Vec<Arc<str>>,
    pub(super) has_ended: bool,
}

/// An object, with its key and with the owner of its handling cycles.
pub(super) type Wake = (Arc<dyn ObjectOwner>, Arc<str>, Arc<Object>);

/// The edit of a finalizer of a primary.
pub(super) struct FinalizerEdit {
    pub(super) uid: Arc<str>,
    pub(super) resource: Arc<Resource>,
    pub(super) object: Arc<Object>,
    pub(super) finalizer: String,
    pub(super) edit: Edit,
}

/// A request to call the functions of a declaration for an object.
pub(super) struct Inspect {
    /// The position of the reconciler.
    pub(super) reconciler: usize,
    /// The position of the owned or watched kind; none for primaries.
    pub(super) related: Option<usize>,
    pub(super) handler: usize,
    pub(super) key: Arc<str>,
    pub(super) resource: Arc<Resource>,
    pub(super) object: Arc<Object>,
}

impl Effects {
    /// Takes the tasks for the host.
    pub(super) fn take_tasks(&mut self, reconcilers: &Arc<Reconcilers>) -> Vec<HostTask> {
        let inspections = self.inspections.drain(..).map(|inspect| reconcilers.inspection(inspect));
        let forgotten = self.forgotten.drain(..).map(HostTask::ObjectDeleted);
        self.tasks.drain(..).chain(inspections).chain(forgotten).collect()
    }

    /// Executes all effects. The tasks are those to be submitted now.
    pub(super) fn execute(self, reconcilers: &Arc<Reconcilers>, tasks: Vec<HostTask>) {
        for record in self.records {
            reconcilers.base.host.log(record);
        }
        reconcilers.submit(tasks);
        for edit in self.edits {
            reconcilers.edit_finalizer(edit);
        }
        if !self.wakes.is_empty() {
            let _entered = reconcilers.runtime.enter();
            for (owner, key, object) in self.wakes {
                owner.wake(&key, object);
            }
        }
        if self.has_ended {
            reconcilers.ended.notify_waiters();
        }
    }
}
