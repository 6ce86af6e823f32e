//! The `ApplySet` of an owner: its marks are widened before the children are applied, and narrowed after the pruned ones are gone.
//!
//! A crash at any request loses nothing, because the marks of the owner always cover all members.

use std::collections::BTreeSet;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use kopf_core::apply::{
    ChildKey, Fate, Link, Membership, Owner, PART_OF, PlannedChild, fate, foreign_tool, owner_patch,
};
use kopf_core::json::value::Value;
use kopf_core::user_request::{Class, Failure};
use serde_json::json;

use super::members::{self, Member};
use super::memory::OwnerState;
use super::outcome::{Applied, ApplyError, ObjectRef};
use super::requests::{Target, has_code};
use super::{PARALLEL, Run};
use crate::user_client::CallError;

/// How often a patch of the owner is repeated after conflicts.
const ATTEMPTS: usize = 10;

pub(super) struct ApplySet<'r> {
    run: &'r Run<'r>,
    state: &'r mut OwnerState,
    /// The newest known state of the owner.
    owner: Owner,
    /// The kinds and namespaces where members may be.
    membership: Membership,
}

impl<'r> ApplySet<'r> {
    /// The `ApplySet` of the owner.
    pub(super) fn open(run: &'r Run<'r>, state: &'r mut OwnerState) -> Result<Self, ApplyError> {
        let owner = run.owner.clone().newest(state.patched.clone());
        if let Some(tool) = foreign_tool(&owner) {
            let text = format!("The ApplySet of {} {} belongs to {tool}.", owner.kind, owner.name);
            return Err(ApplyError::OwnedByAnother(text));
        }
        if run.pauses.is_none() || state.pauses != run.pauses {
            // Another operator may have added some meanwhile.
            state.members = None;
            state.pauses = run.pauses;
        }
        let membership = Membership::of(&owner);
        Ok(Self { run, state, owner, membership })
    }

    /// Covers the children by the marks of the owner, and gives it the finalizer if one of them needs it.
    pub(super) async fn widen(&mut self, planned: &[PlannedChild]) -> Result<(), ApplyError> {
        for child in planned {
            self.membership.add(&child.key, &self.owner);
        }
        if let Some(members) = self.state.members.as_mut().filter(|_| !self.run.is_dry) {
            // Those of a call that fails or is cancelled are members, too.
            members.extend(planned.iter().map(|child| child.key.clone()));
        }
        let has_marked = planned.iter().any(|child| child.link == Link::Mark);
        self.write_widened(has_marked).await
    }

    /// Deletes the members that are not desired, and narrows the marks if they are gone.
    pub(super) async fn prune(&mut self, planned: &[PlannedChild], applied: &mut Applied) {
        let desired: BTreeSet<ChildKey> = planned.iter().map(|child| child.key.clone()).collect();
        let has_only_desired = |members: &BTreeSet<ChildKey>| members.is_subset(&desired);
        let mut narrowed = Membership::default();
        for child in planned {
            narrowed.add(&child.key, &self.owner);
        }
        if self.membership != narrowed || !self.state.members.as_ref().is_some_and(has_only_desired) {
            // Until this is complete, the next call lists the members again.
            self.state.members = None;
            match self.delete_others(&desired, &mut narrowed, applied).await {
                Ok(true) if !self.run.is_dry => self.state.members = Some(desired),
                Ok(_) => {}
                Err((key, error)) => return applied.failures.push((key, error.into())),
            }
        } else if !self.run.is_dry {
            self.state.members = Some(desired);
        }
        if !self.run.is_dry
            && let Err(error) = self.write_narrowed(&narrowed).await
        {
            let error = match error {
                ApplyError::Call(error) => error,
                // Its children will be gone, too.
                ApplyError::OwnerGone(_) | ApplyError::OwnedByAnother(_) => return,
            };
            let key = ChildKey::of_owner(&self.owner);
            applied.failures.push((key, error.into()));
        }
    }

    /// Deletes the members that are not desired, in the reverse order of ranks. Returns whether all of them are gone; the marks of
    /// the others are added to `rest`.
    async fn delete_others(
        &self,
        desired: &BTreeSet<ChildKey>,
        rest: &mut Membership,
        applied: &mut Applied,
    ) -> Result<bool, (ChildKey, CallError)> {
        let run = self.run;
        let listed = members::list(&run.requests, &self.owner, &run.id, &self.membership, true).await;
        let listed = listed.map_err(|error| (ChildKey::of_owner(&self.owner), error))?;
        let mut others: Vec<(Fate, Member)> = listed
            .into_iter()
            .filter(|member| !desired.contains(&member.key))
            .map(|member| (fate(&member.object, &self.owner.uid, &run.id), member))
            .filter(|(fate, _)| *fate != Fate::Unrelated)
            .collect();
        let rank = |member: &Member| PlannedChild::rank_of(&member.key.group_kind());
        others.sort_by_key(|(_, member)| std::cmp::Reverse(rank(member)));
        let mut all_gone = true;
        for same in others.chunk_by(|a, b| rank(&a.1) == rank(&b.1)) {
            let running: Vec<BoxFuture<'_, _>> =
                same.iter().map(|(fate, member)| self.release(*fate, member).boxed()).collect();
            let results: Vec<_> = stream::iter(running).buffered(PARALLEL).collect().await;
            for ((fate, member), result) in same.iter().zip(results) {
                let remains = result.map_err(|error| (member.key.clone(), error))?;
                if *fate == Fate::Deleted {
                    let uid = Some(member.uid.clone());
                    applied.pruned.push(ObjectRef { key: member.key.clone(), uid });
                }
                if remains {
                    all_gone = false;
                    rest.add(&member.key, &self.owner);
                } else {
                    run.memory.forget_child(&member.key);
                }
            }
        }
        Ok(all_gone)
    }

    /// Deletes a member, or removes it from the `ApplySet`. Returns whether it still belongs to it.
    async fn release(&self, fate: Fate, member: &Member) -> Result<bool, CallError> {
        let requests = &self.run.requests;
        match fate {
            Fate::Unrelated => Ok(false),
            Fate::Leaving => Ok(true),
            Fate::Deleted => requests.delete(member.target(), &member.uid, "Background").await,
            Fate::Kept => {
                let patch = json!({"metadata": {"uid": member.uid, "labels": {PART_OF: null}}});
                match requests.merge(member.target(), &patch).await {
                    Err(error) if has_code(&error, 404) || has_code(&error, 409) => Ok(false),
                    patched => patched.map(|_| false),
                }
            }
        }
    }

    /// Covers the membership and that of the latest state by the marks of the owner.
    async fn write_widened(&mut self, finalizer: bool) -> Result<(), ApplyError> {
        if self.owner.resource_version.is_empty() {
            self.refresh().await?;
        }
        for _ in 0..ATTEMPTS {
            self.membership.widen(&Membership::of(&self.owner));
            if self.write(&self.membership.clone(), finalizer).await? {
                return Ok(());
            }
            self.refresh().await?;
        }
        let text = "the owner is changed all the time, so its marks cannot be written";
        let failure = Failure::unanswered(Class::Conflict, text);
        Err(CallError::Failed(Box::new(failure))
            .about(&format!("patch {} {}", self.owner.kind, self.owner.name))
            .into())
    }

    /// Narrows the marks, unless another process has widened them.
    async fn write_narrowed(&mut self, narrowed: &Membership) -> Result<(), ApplyError> {
        for _ in 0..ATTEMPTS {
            if !self.membership.covers(&Membership::of(&self.owner)) || self.write(narrowed, false).await? {
                break;
            }
            self.refresh().await?;
        }
        // The marks may be too wide now, but never too narrow.
        Ok(())
    }

    /// Writes the marks to the known state of the owner, if they differ. Returns whether that is still the latest state.
    async fn write(&mut self, membership: &Membership, finalizer: bool) -> Result<bool, ApplyError> {
        let version = &self.run.options.version;
        let Some(patch) = owner_patch(&self.owner, membership, version, finalizer) else { return Ok(true) };
        let kind = self.owner.kind_name();
        let target =
            Target { kind: &kind, namespace: self.owner.namespace.as_deref(), name: &self.owner.name };
        match self.run.requests.merge(target, &patch).await {
            Ok(_) if self.run.is_dry => Ok(true),
            Ok(patched) => {
                self.learn(&patched)?;
                Ok(true)
            }
            Err(error) if has_code(&error, 404) => Err(ApplyError::owner_gone(&self.owner)),
            Err(error) if has_code(&error, 409) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads the latest state of the owner.
    async fn refresh(&mut self) -> Result<(), ApplyError> {
        let kind = self.owner.kind_name();
        let target =
            Target { kind: &kind, namespace: self.owner.namespace.as_deref(), name: &self.owner.name };
        match self.run.requests.find(target, true).await? {
            Some(found)
                if found.pointer("/metadata/uid").and_then(Value::as_str) == Some(&self.owner.uid) =>
            {
                self.learn(&found)
            }
            _ => Err(ApplyError::owner_gone(&self.owner)),
        }
    }

    fn learn(&mut self, found: &Value) -> Result<(), ApplyError> {
        let mut found = found.clone();
        // Partial objects have another kind.
        found["apiVersion"] = self.owner.api_version.as_str().into();
        found["kind"] = self.owner.kind.as_str().into();
        self.owner = Owner::read(&found).map_err(CallError::Misuse)?;
        self.state.patched = Some(self.owner.clone());
        Ok(())
    }
}
