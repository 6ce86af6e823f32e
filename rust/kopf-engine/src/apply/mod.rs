//! Applying children: the requests of `kopf.apply`, pruning, and the deletion of marked children before their owner.
//!
//! The rules are in `kopf-core/src/apply`. Everything that must survive a crash is on the objects; the memory of a client only saves
//! requests.

mod apply_set;
mod cache;
mod child;
mod deleted_owners;
mod listing;
mod members;
mod memory;
mod outcome;
mod recreation;
mod requests;
mod teardown;

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use kopf_core::apply::{Child, ChildKey, ConflictPolicy, Owner, PlanOptions, PlannedChild};
use kopf_core::apply::{apply_set_id, declared_kinds, default_manager, plan, standing};
use kopf_core::json::value::Value;

use crate::user_client::{Api, CallError, CallOptions};

pub use cache::{CachedChild, ChildCache, NoCache};
pub use deleted_owners::DeletedOwners;
pub use memory::Memory;
pub use outcome::{Applied, AppliedObject, ApplyError, ChildError, ObjectRef};
pub(crate) use teardown::ChildrenDeletion;

use apply_set::ApplySet;
use requests::Requests;

/// The number of children of a rank that are applied at the same time.
const PARALLEL: usize = 8;

/// The options of a call.
#[derive(Clone, Debug)]
pub struct Options {
    /// The options of the plan.
    pub plan: PlanOptions,
    /// Whether objects with changed immutable fields are deleted and created again.
    pub recreate: bool,
    /// The managers whose fields are taken over before the first apply.
    pub takeover: Vec<String>,
    /// Whether objects of other owners are applied.
    pub share: bool,
    /// The version of this program, for the marks of owners.
    pub version: String,
}

/// A call: the owner and the children as JSON values.
#[derive(Clone, Debug)]
pub struct Request {
    /// The owner.
    pub owner: Value,
    /// The children.
    pub children: Vec<Value>,
    /// The options.
    pub options: Options,
}

/// The knowledge of a client that saves requests. Clones share everything.
#[derive(Clone)]
pub struct KnownState {
    /// The memory of applied children.
    pub memory: Arc<Memory>,
    /// The caches of the operator, if there are any.
    pub cache: Arc<dyn ChildCache>,
    /// The owners that are gone.
    pub deleted_owners: Arc<DeletedOwners>,
}

impl Default for KnownState {
    fn default() -> Self {
        Self { memory: Arc::default(), cache: Arc::new(NoCache), deleted_owners: Arc::default() }
    }
}

/// Applies children. Clones share everything.
#[derive(Clone)]
pub struct Applier {
    api: Api,
    known: KnownState,
}

/// One call.
struct Run<'a> {
    requests: Requests<'a>,
    memory: &'a Memory,
    cache: &'a dyn ChildCache,
    options: &'a Options,
    owner: &'a Owner,
    /// The id of the owner's `ApplySet`.
    id: String,
    manager: Arc<str>,
    /// The uid of the owner.
    uid: Arc<str>,
    /// The name of the owner.
    owner_key: Arc<ChildKey>,
    is_dry: bool,
    /// The number of pauses and terms at the start of the call; none during a pause.
    pauses: Option<u64>,
}

impl Applier {
    /// An applier that uses what is known.
    pub fn new(api: Api, known: KnownState) -> Self {
        Self { api, known }
    }

    /// Applies the children of an owner. Failures of children are in the result; nothing is pruned then.
    ///
    /// Cancel safe: the next call continues.
    ///
    /// # Errors
    /// Nothing of the children was sent: the arguments are wrong, or the owner is gone, or it has an `ApplySet` of another tool.
    pub fn apply<'a>(
        &'a self,
        request: Request,
        call_options: &'a CallOptions,
    ) -> BoxFuture<'a, Result<Applied, ApplyError>> {
        self.execute(request, call_options).boxed()
    }

    async fn execute(&self, request: Request, call_options: &CallOptions) -> Result<Applied, ApplyError> {
        let owner = Owner::read(&request.owner).map_err(CallError::Misuse)?;
        let children: Result<Vec<_>, _> = request.children.into_iter().map(Child::read).collect();
        let children = children.map_err(CallError::Misuse)?;
        let manager = if let Some(manager) = &call_options.write.manager {
            manager.clone()
        } else {
            let resource = self.api.resolve(&owner.kind_name(), call_options).await?;
            default_manager(&resource.group, &resource.plural)
        };
        let mut call_options = call_options.clone();
        call_options.write.manager = Some(manager.clone());
        let requests = Requests::new(&self.api, &call_options);
        let scopes = scopes(&requests, &children).await?;
        let planned = plan(children, &owner, &scopes, &request.options.plan).map_err(CallError::Misuse)?;
        let id = apply_set_id(&owner);
        let is_dry = call_options.write.dry_run;
        if self.known.deleted_owners.has(&owner.uid) {
            return Err(ApplyError::owner_gone(&owner));
        }
        let (memory, cache) = (&*self.known.memory, &*self.known.cache);
        let (options, pauses) = (&request.options, cache.pauses());
        let run = Run {
            requests,
            memory,
            cache,
            options,
            owner: &owner,
            id,
            manager: manager.into(),
            uid: (&*owner.uid).into(),
            owner_key: Arc::new(ChildKey::of_owner(&owner)),
            is_dry,
            pauses,
        };
        let applied = run.execute(&planned).await;
        if self.known.deleted_owners.has(&owner.uid) {
            // It was deleted meanwhile, while the slots of its children were in use.
            memory.forget_owner(&owner.uid);
        }
        applied
    }
}

/// Whether the kinds of the children are namespaced. CRDs among the children may not be served yet.
async fn scopes(requests: &Requests<'_>, children: &[Child]) -> Result<Vec<bool>, CallError> {
    let declared = declared_kinds(children);
    let mut scopes = vec![];
    for child in children {
        scopes.push(match declared.get(&(child.group.clone(), child.kind.clone())) {
            Some(declared) => declared.is_namespaced,
            None => requests.resolve(&child.kind_name()).await?.namespaced,
        });
    }
    Ok(scopes)
}

impl Run<'_> {
    async fn execute(&self, planned: &[PlannedChild]) -> Result<Applied, ApplyError> {
        if !self.options.plan.prune {
            return Ok(self.apply_ranks(planned).await);
        }
        // Calls for the same owner would narrow each other's annotations.
        let state = self.memory.owner(&self.owner.uid);
        let mut state = state.lock().await;
        state.key = Some(Arc::clone(&self.owner_key));
        let mut apply_set = ApplySet::open(self, &mut state)?;
        apply_set.widen(planned).await?;
        let mut applied = self.apply_ranks(planned).await;
        if applied.failures.is_empty() {
            apply_set.prune(planned, &mut applied).await;
        }
        Ok(applied)
    }

    /// Applies rank by rank. After a failure, later ranks are not started.
    async fn apply_ranks(&self, planned: &[PlannedChild]) -> Applied {
        let mut applied = Applied::default();
        for rank in planned.chunk_by(|a, b| a.rank == b.rank) {
            let running: Vec<BoxFuture<'_, _>> =
                rank.iter().map(|child| self.apply_child(child).boxed()).collect();
            let results: Vec<_> = stream::iter(running).buffered(PARALLEL).collect().await;
            for (child, result) in rank.iter().zip(results) {
                applied.add(child, result);
            }
            if !applied.failures.is_empty() {
                break;
            }
        }
        applied
    }

    fn standing(&self, live: &Value) -> kopf_core::apply::Standing {
        standing(live, self.owner, &self.id)
    }

    fn policy(&self) -> &ConflictPolicy {
        &self.options.plan.conflict
    }
}

#[cfg(test)]
mod tests;
