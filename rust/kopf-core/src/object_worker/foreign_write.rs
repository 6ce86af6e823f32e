//! Recognition of another operator during the handling of an object: see `persistence::foreign_write`.

use super::{ObjectWorker, WorkerContext};
use crate::cause::EventType;
use crate::cycle::{Cycle, Decision};
use crate::persistence::consistency::contains;
use crate::persistence::foreign_write::{ForeignWrite, LocalOperator};
use crate::persistence::memory::HandlingStatus;

impl ObjectWorker {
    /// The write of another operator that was received while change handlers were running. To be called with the decision of the
    /// cycle before [`ObjectWorker::on_decision`]: nothing of the cycle is written yet.
    pub fn foreign_write(
        &self,
        running: &Cycle,
        decision: &Decision,
        context: WorkerContext<'_>,
    ) -> Option<ForeignWrite> {
        let latest = self.pending().last()?;
        let settings = &*context.startup_config.settings;
        let is_handling = decision.handling_status != HandlingStatus::Before;
        if !is_handling
            || latest.kind == EventType::Deleted
            || !self.memory.recognises_foreign_writes(settings)
        {
            return None;
        }
        let before = &running.event().object;
        let (version, latest_version) = (before.resource_version()?, latest.object.resource_version()?);
        if version == latest_version || !contains(version, latest_version) {
            return None;
        }
        let local = LocalOperator { persistence: &settings.persistence, handlers: context.resource_handlers };
        local.foreign_write_between(before, &latest.object)
    }
}
