//! The host of the model: calls of handlers, with their results and their changes of the patch.

use crate::cluster::{Cluster, Version};
use crate::injected_defects::Defect;
use crate::oracle::Oracle;
use crate::scenarios::Scenario;
use kopf_core::activation::{Activation, Command, CommandResult, Completion, FetchedState, StoreRequest};
use kopf_core::handling::attempt::{Attempt, CallResult, Outcome};
use kopf_core::handling::change::Change;
use kopf_core::handling::sub_handlers::{SubHandler, SubHandlers};
use kopf_core::json::merge_patch::Patch;
use kopf_core::json::path::FieldPath;
use kopf_core::object::Object;
use kopf_core::persistence::Persistence;
use kopf_core::persistence::essence::essence;
use serde_json::{Map, Value};
use std::sync::Arc;

/// An activation of a cycle about one version.
pub struct Call<'a> {
    pub scenario: &'a Scenario,
    pub cluster: &'a mut Cluster,
    pub oracle: &'a mut Oracle,
    pub version: &'a Version,
    /// The object of the cycle: the version with unconfirmed writes applied.
    pub object: Arc<Object>,
    pub remaining_fns: bool,
}

impl Call<'_> {
    pub fn complete(&mut self, script: &Activation, patch: &mut Map<String, Value>) -> Completion {
        patch.extend(script.initial_patch.clone().unwrap_or_default());
        let mut fns = self.remaining_fns;
        let mut results: Vec<CommandResult> = Vec::new();
        for command in &script.commands {
            let attempt = match command {
                Command::CallEventHandler { attempt, .. } | Command::CallChangeHandler { attempt } => attempt,
                Command::FetchState { ids, extra_fields } => {
                    results.push(self.load_state(ids, extra_fields));
                    continue;
                }
                Command::StoreState(request) => {
                    self.store_state(request, patch);
                    results.push(CommandResult::Skipped);
                    continue;
                }
                _ => panic!("unexpected command: {command:?}"),
            };
            self.cluster.now = self.cluster.now.plus(self.cluster.call_time);
            let outcome = self.call(attempt, script.change.as_deref(), patch);
            let id = &self.scenario.config.registry.handlers[attempt.handler].id;
            if let (Command::CallChangeHandler { .. }, Some(change)) = (command, &script.change) {
                self.oracle.called(self.scenario, self.cluster, self.version, id, change, outcome.final_);
                if outcome.final_ {
                    fns |= self.oracle.leaves_function(self.scenario, self.version, id);
                }
            }
            let is_kept = results.is_empty() || self.scenario.defect != Some(Defect::KeepsOneOutcome);
            results.push(if is_kept { CommandResult::Attempted(outcome) } else { CommandResult::Skipped });
        }
        Completion {
            results,
            patch: (!patch.is_empty()).then(|| patch.clone()),
            fns,
            ..Completion::default()
        }
    }

    fn call(
        &mut self,
        attempt: &Attempt,
        change: Option<&Change>,
        patch: &mut Map<String, Value>,
    ) -> Outcome {
        let id = &self.scenario.config.registry.handlers[attempt.handler].id;
        let now = self.cluster.now;
        let outcome = match (attempt.precheck(now), self.scenario.children(id), change) {
            (Some(forbidden), ..) => forbidden.outcome,
            (None, Some(children), Some(change)) => self.call_children(attempt, children, change, patch),
            _ => attempt.evaluate(&self.scenario.raises(attempt), now).outcome,
        };
        if let Some(more) = self.scenario.patches(id) {
            patch.insert("status".to_owned(), more);
        }
        if let Some(more) = self.scenario.stamps(id, self.version) {
            patch.insert("spec".to_owned(), more);
        }
        if let Some(more) = self.scenario.writes(id, self.version)
            && self.cluster.exists
        {
            self.cluster.edit(&more);
        }
        outcome
    }

    /// Calls the due sub-handlers of a handler.
    fn call_children(
        &mut self,
        attempt: &Attempt,
        children: Vec<SubHandler>,
        change: &Change,
        patch: &mut Map<String, Value>,
    ) -> Outcome {
        let (storage, now) = (Persistence::default().progress_storage, self.cluster.now);
        let ids: Vec<Arc<str>> = children.iter().map(|child| Arc::clone(&child.id)).collect();
        let is_known = self.scenario.defect != Some(Defect::ForgetsSubHandlers);
        let known = ids.iter().filter(|_| is_known);
        let records = known
            .filter_map(|id| Some((Arc::clone(id), storage.fetch(&self.object, id).unwrap()?)))
            .collect::<Vec<_>>();
        let mut batch = SubHandlers::open(change.reason, records, children, now);
        for (index, _) in batch.due(now) {
            let child = batch.attempt(index).unwrap();
            let outcome = child.precheck(now).unwrap_or_else(|| {
                let raised = self.scenario.raises_child(&ids[index], child.retry);
                child.evaluate(&raised, now)
            });
            let is_final = outcome.outcome.final_;
            self.oracle.called(self.scenario, self.cluster, self.version, &ids[index], change, is_final);
            batch.record_outcome(&outcome.outcome);
        }
        let mut whole = Patch(std::mem::take(patch));
        for (id, record) in batch.changed() {
            storage.store(&self.object, &mut whole, id, record);
        }
        *patch = whole.0;
        let raised = if batch.is_done() {
            CallResult::Nothing
        } else {
            CallResult::Children { message: "unfinished".to_owned(), delay: batch.delay(now) }
        };
        let subrefs = if self.scenario.defect == Some(Defect::LeavesSubHandlers) {
            Vec::new()
        } else {
            ids.iter().map(ToString::to_string).collect()
        };
        Outcome { subrefs, ..attempt.evaluate(&raised, now).outcome }
    }

    /// Loads the state as a storage implemented in Python, with the format of the default storages.
    fn load_state(&self, ids: &[Arc<str>], extra_fields: &[FieldPath]) -> CommandResult {
        let ours = Persistence::default();
        let mut old = ours.diffbase_storage.fetch(&self.object).unwrap();
        if let Some(old) = &mut old {
            ours.progress_storage.clear(old);
        }
        let records = ids.iter().filter_map(|id| {
            let record = ours.progress_storage.fetch(&self.object, id).unwrap()?;
            Some((id.to_string(), Value::Object(record.to_map())))
        });
        let new = essence(&self.object, &ours, extra_fields);
        CommandResult::Fetched(Box::new(FetchedState { old, new, records: records.collect() }))
    }

    fn store_state(&self, request: &StoreRequest, patch: &mut Map<String, Value>) {
        let ours = Persistence::default();
        let mut whole = Patch(std::mem::take(patch));
        let is_kept = self.scenario.defect != Some(Defect::StoresNoProgress);
        for (id, record) in request.records.iter().filter(|_| is_kept) {
            match record {
                Some(record) => ours.progress_storage.store(&self.object, &mut whole, id, record),
                None => ours.progress_storage.purge(&self.object, &mut whole, id),
            }
        }
        if request.essence {
            let new = essence(&self.object, &ours, &self.scenario.resource_handlers.extra_fields);
            ours.diffbase_storage.store(&self.object, &mut whole, &new);
        }
        *patch = whole.0;
    }
}
