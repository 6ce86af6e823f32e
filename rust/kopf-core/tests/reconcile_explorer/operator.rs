//! The operator: drives the core's rules for one reconciler with `deletion=True`, and executes their decisions.

use crate::cluster::{Child, ChildEvent, Cluster, Edit, PRIMARIES, Primary};
use crate::injected_defects::Defect;
use crate::oracle::Oracle;
use kopf_core::caches::{CachedObject, ListId, Version, WriteResponse};
use kopf_core::persistence::finalizer::Edit as FinalizerEdit;
use kopf_core::relations::{Affected, EventOrigin, OwnWrite, OwnWrites, Related, RelationMemory};
use kopf_core::schedule::{
    Call, Conclusion, PrimarySchedule, PrimaryState, Priority, ReconcileResult, SchedulePolicy, WorkQueue,
};
use kopf_core::time::Timestamp;
use std::collections::BTreeSet;

/// Seconds until an own write is taken for visible.
const TIMEOUT: f64 = 5.0;

#[derive(Clone, Debug)]
pub struct Operator {
    defect: Option<Defect>,
    pub run: u32,
    policy: SchedulePolicy,
    schedules: [Option<PrimarySchedule>; PRIMARIES],
    known: [Option<Primary>; PRIMARIES],
    queue: WorkQueue<usize>,
    memory: RelationMemory<(), usize>,
    cache: CachedObject<Child>,
    /// The state of the secondary object that the watch has delivered last.
    delivered: Option<Child>,
    own: [OwnWrites<()>; PRIMARIES],
    /// The newest own write of each primary: for a defect.
    newest_write: [u64; PRIMARIES],
    pub running: [Option<Running>; PRIMARIES],
    /// The response to the write of a primary, on its way; with the state that was known when it was sent.
    pub response: Option<(usize, Child, Option<Child>)>,
    lists: u64,
}

#[derive(Clone, Debug)]
pub struct Running {
    pub call: Call,
    /// The state of the primary that the call has received.
    pub body: Primary,
    has_written: bool,
}

fn at(now: f64) -> Timestamp {
    Timestamp::from_micros(0).plus(now)
}

fn version(child: &Child) -> Version<Child> {
    Version {
        uid: child.uid.to_string().into(),
        version: child.version.to_string().into(),
        body: child.clone(),
    }
}

impl Operator {
    /// Starts with the lists of both kinds.
    pub fn start(
        defect: Option<Defect>,
        run: u32,
        cluster: &mut Cluster,
        oracle: &mut Oracle,
        now: f64,
    ) -> Self {
        let mut operator = Self {
            defect,
            run,
            policy: SchedulePolicy::default(),
            schedules: [None, None],
            known: [None, None],
            queue: WorkQueue::new(PRIMARIES),
            memory: RelationMemory::default(),
            cache: CachedObject::default(),
            delivered: None,
            own: [OwnWrites::default(), OwnWrites::default()],
            newest_write: [0; PRIMARIES],
            running: [None, None],
            response: None,
            lists: 0,
        };
        operator.list(cluster, oracle, true, now);
        operator
    }

    /// Lists both kinds: at the start, or after a gap of the watch.
    pub fn list(&mut self, cluster: &mut Cluster, oracle: &mut Oracle, is_initial: bool, now: f64) {
        cluster.primary_events.clear();
        cluster.child_events.clear();
        self.lists += 1;
        let state = cluster.child.as_ref().map(version);
        self.cache.deliver_list(state, ListId(self.lists), &cluster.version.to_string());
        self.delivered.clone_from(&cluster.child);
        let affected = match &cluster.child {
            Some(child) => self.memory.observe((), child.version, related(child), is_initial),
            None if self.is(Defect::ForgetsGap) => Affected::default(),
            None => self.memory.finish_relist(|()| false),
        };
        for index in 0..PRIMARIES {
            if self.is(Defect::RunsTwice) && self.running[index].is_some() {
                self.schedules[index] = None;
                self.known[index] = None;
            }
            self.observe(index, cluster.primaries[index].clone(), oracle, is_initial, now);
        }
        self.trigger(&affected, &[], oracle, now);
        self.confirm_writes();
    }

    /// Receives the newest state of a primary, or its deletion.
    pub fn observe(
        &mut self,
        index: usize,
        state: Option<Primary>,
        oracle: &mut Oracle,
        is_listed: bool,
        now: f64,
    ) {
        let Some(primary) = state else {
            self.known[index] = None;
            if let Some(schedule) = &mut self.schedules[index] {
                schedule.remove();
            }
            return;
        };
        let known = self.known[index].as_ref();
        if known.is_some_and(|known| known.version >= primary.version) {
            return;
        }
        let is_new = known.is_none();
        let has_changed = known.is_some_and(|known| known.content != primary.content);
        let is_initial = is_new && !primary.is_deleting;
        let priority = if is_listed { Priority::Initial } else { Priority::Changed };
        let trigger = if has_changed { Some(Priority::Changed) } else { is_initial.then_some(priority) };
        let trigger = trigger.filter(|_| !(self.is(Defect::LosesTrigger) && self.running[index].is_some()));
        let pretends = self.is(Defect::SkipsFinalizer) && !primary.is_deleting;
        let state = PrimaryState {
            matches: primary.matches,
            is_deleting: primary.is_deleting,
            has_finalizer: primary.has_finalizer || pretends,
        };
        let forgets = self.is(Defect::ForgetsDeletion) && is_new && primary.is_deleting;
        let schedule = self.schedules[index].get_or_insert_default();
        if forgets {
            let unfinished = PrimaryState { has_finalizer: false, ..state };
            schedule.observe(unfinished, None, true, &self.policy, at(now));
        }
        schedule.observe(state, trigger, true, &self.policy, at(now));
        let (has_given_up, is_failing) = (schedule.entry().has_given_up(), schedule.entry().is_failing());
        oracle.primaries[index].has_given_up &= has_given_up;
        if !is_failing {
            oracle.end_series(index);
        }
        self.known[index] = Some(primary);
    }

    /// Receives an event of the secondary object by the watch.
    pub fn receive(&mut self, event: ChildEvent, oracle: &mut Oracle, now: f64) {
        let before = self.delivered.take();
        let mut explained = Vec::new();
        let affected = match event {
            ChildEvent::Deleted(uid) => {
                self.cache.deliver_deletion(&uid.to_string());
                self.memory.remove(&())
            }
            ChildEvent::State(child) => {
                let number = child.version.to_string();
                let previous = before.map(|before| before.version.to_string());
                let origin =
                    EventOrigin { is_watched: true, version: &number, previous: previous.as_deref() };
                explained.extend((0..PRIMARIES).filter(|index| {
                    if self.is(Defect::SuppressesByVersion) {
                        child.version <= self.newest_write[*index]
                    } else {
                        self.own[*index].explains(&(), origin)
                    }
                }));
                if self.is(Defect::DropsOverlay) {
                    self.cache = CachedObject::default();
                }
                self.cache.deliver(version(&child));
                if self.is(Defect::KeepsOneEnd) {
                    self.memory.remove(&());
                }
                let affected = self.memory.observe((), child.version, related(&child), false);
                self.delivered = Some(child);
                affected
            }
        };
        self.trigger(&affected, &explained, oracle, now);
        self.confirm_writes();
    }

    /// The time at which the operator has something to do; none if it waits for events only.
    pub fn next_time(&self) -> Option<f64> {
        let deadline = self.cache.deadline().filter(|_| self.queue.next_due().is_some());
        let next = [self.queue.next_due(), deadline].into_iter().flatten().min()?;
        Some(next.seconds_since(at(0.0)))
    }

    /// Establishes what the rules require: positions in the queue, and edits of finalizers.
    pub fn establish(&mut self, cluster: &mut Cluster) {
        for index in 0..PRIMARIES {
            let Some(schedule) = &self.schedules[index] else { continue };
            let next = schedule.next(true, &self.policy);
            self.queue.set(index, next.position);
            if let (Some(edit), None, Some(base)) = (next.edit, &cluster.edits[index], &self.known[index]) {
                let adds = edit == FinalizerEdit::Block;
                cluster.edits[index] = Some(Edit { adds, base: base.clone(), run: self.run });
            }
            if next.is_over {
                self.schedules[index] = None;
            }
        }
    }

    /// Starts a reconciliation, if one is due.
    pub fn step(&mut self, cluster: &Cluster, oracle: &mut Oracle, now: f64) -> bool {
        self.cache.expire(at(now));
        self.confirm_writes();
        let Some(grant) = self.queue.grant(at(now)) else { return false };
        let (index, body) = (grant.key, self.known[grant.key].clone());
        let schedule = self.schedules[index].as_mut();
        let started = schedule.and_then(|schedule| schedule.start(true, at(now)));
        let (Some((call, _)), Some(body)) = (started, body) else {
            self.queue.release();
            return true;
        };
        let child = self.cache.read().map(|state| state.body.clone());
        let owned = child.as_ref().filter(|child| child.owner == index).map(|child| child.content);
        let oldest = child.map(|child| child.version).min(self.delivered.as_ref().map(|child| child.version));
        let view = (body.content, owned.filter(|content| *content > 0));
        let is_deleting = call == Call::Deleting;
        oracle.start(index, is_deleting, view, oldest, cluster, now);
        self.own[index].start();
        self.running[index] = Some(Running { call, body, has_written: false });
        true
    }

    /// The function applies the secondary object: with the content of its primary. The server executes it at once.
    pub fn apply(&mut self, index: usize, cluster: &mut Cluster) {
        let Some(running) = &mut self.running[index] else { return };
        running.has_written = true;
        let applied = running.body.content;
        let child = cluster.change_child(index, |child| child.applied = applied);
        self.cache.start_write();
        self.response = Some((index, child, self.delivered.clone()));
    }

    /// The response to the write arrives, or is lost.
    pub fn respond(&mut self, is_lost: bool, oracle: &mut Oracle, now: f64) {
        let Some((index, child, known)) = self.response.take() else { return };
        let response =
            if is_lost { WriteResponse::Uncertain } else { WriteResponse::Written(version(&child)) };
        self.cache.finish_write(response, ListId(self.lists), TIMEOUT, at(now));
        oracle.written(index, child.uid, child.version, now + TIMEOUT);
        if is_lost {
            return;
        }
        self.newest_write[index] = child.version;
        // The owned fields show whether the write has changed anything.
        let has_changed = known.as_ref().is_none_or(|known| known.applied != child.applied);
        let write = OwnWrite {
            known: known.map(|known| known.version.to_string().into()),
            version: child.version.to_string().into(),
            is_last: has_changed || self.is(Defect::RecordsNoops),
            fields: None,
        };
        self.own[index].record((), write);
    }

    /// A call ends with this result, which is as after its writes.
    pub fn finish(&mut self, index: usize, result: ReconcileResult, oracle: &mut Oracle, now: f64) {
        let Some(running) = self.running[index].take() else { return };
        self.queue.release();
        let is_deleting = running.call == Call::Deleting;
        let is_requeued = matches!(result, ReconcileResult::Requeued(_));
        let releases = self.is(Defect::ReleasesOnRequeue) && is_deleting && is_requeued;
        let given = if releases { ReconcileResult::Succeeded } else { self.counted(index, result) };
        let deadline = self.cache.deadline().filter(|_| running.has_written && !self.is(Defect::StartsEarly));
        let gives_up = self.is(Defect::WakesByTime);
        let Some(schedule) = &mut self.schedules[index] else {
            oracle.finish(index, false);
            return;
        };
        let conclusion = schedule.finish(given, deadline, &self.policy, at(now), 0.0);
        let is_over = !is_requeued
            && matches!(conclusion, Conclusion::Succeeded { is_final: true } | Conclusion::GaveUp);
        oracle.finish(index, is_deleting && is_over);
        match conclusion {
            Conclusion::Retried(delay) => oracle.fail(index, delay, now),
            Conclusion::Cancelled => {}
            Conclusion::Succeeded { .. } | Conclusion::GaveUp => oracle.end_series(index),
        }
        if !schedule.entry().is_failing() {
            oracle.end_series(index);
        }
        oracle.primaries[index].has_given_up = schedule.entry().has_given_up();
        if gives_up && conclusion == Conclusion::GaveUp {
            schedule.trigger_after(60.0, true, at(now));
        }
    }

    /// The server executes an edit of the finalizer. The response shows the new state; that to a conflict, the latest one.
    pub fn edit(&mut self, index: usize, cluster: &mut Cluster, oracle: &mut Oracle, now: f64) {
        let Some(edit) = cluster.edits[index].take() else { return };
        let latest = cluster.primaries[index].clone();
        let holds = latest.as_ref().is_some_and(|latest| latest.version == edit.base.version);
        if let Some(latest) = &latest
            && (holds || self.is(Defect::OverwritesFinalizers) || self.is(Defect::RepeatsEdit))
            && !(edit.adds && latest.is_deleting)
        {
            let (base, overwrites) = (edit.base.has_foreign, self.is(Defect::OverwritesFinalizers));
            oracle.edited(index, edit.adds, latest.matches);
            cluster.change(index, |primary| {
                primary.has_finalizer = edit.adds;
                if overwrites {
                    primary.has_foreign = base;
                }
            });
        }
        if edit.run == self.run {
            // Without a response body, the deletion arrives by the watch.
            if let Some(state) = cluster.primaries[index].clone() {
                self.observe(index, Some(state), oracle, false, now);
            }
        }
    }

    /// Whether a call may apply the secondary object: it is the primary's, or there is none.
    pub fn may_apply(&self, index: usize) -> bool {
        let is_own = self.cache.read().is_none_or(|state| state.body.owner == index);
        let running = self.running[index].as_ref();
        is_own && self.response.is_none() && running.is_some_and(|running| running.call == Call::Ordinary)
    }

    fn trigger(&mut self, affected: &Affected<usize>, explained: &[usize], oracle: &mut Oracle, now: f64) {
        let all: BTreeSet<usize> = (0..PRIMARIES).collect();
        let primaries = match affected {
            Affected::Everything => &all,
            Affected::These(primaries) => primaries,
        };
        for index in primaries.iter().copied().filter(|index| !explained.contains(index)) {
            let is_lost = self.is(Defect::LosesTrigger) && self.running[index].is_some();
            if let Some(schedule) = self.schedules[index].as_mut().filter(|_| !is_lost) {
                schedule.trigger(Priority::Changed, true, &self.policy, at(now));
                oracle.primaries[index].has_given_up &= schedule.entry().has_given_up();
            }
        }
    }

    fn confirm_writes(&mut self) {
        if self.cache.deadline().is_none() {
            self.schedules.iter_mut().flatten().for_each(PrimarySchedule::confirm_writes);
        }
    }

    fn counted(&self, index: usize, result: ReconcileResult) -> ReconcileResult {
        let failures = self.schedules[index].as_ref().map_or(0, |schedule| schedule.entry().failures());
        match result {
            ReconcileResult::Failed(None) if self.is(Defect::CountsFailures) => {
                ReconcileResult::Failed(Some(2_f64.powi(i32::try_from(failures).unwrap()).min(300.0)))
            }
            other => other,
        }
    }

    fn is(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }
}

fn related(child: &Child) -> Related<usize> {
    Related::To(BTreeSet::from([child.owner]))
}
