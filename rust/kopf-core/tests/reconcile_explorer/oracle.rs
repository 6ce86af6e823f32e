//! The properties: an observer of the cluster and of the calls, which shares no code with the operator.

use crate::cluster::{Cluster, PRIMARIES};

/// The observations about one primary.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Calls that are running now.
    pub running: usize,
    /// The last started reconciliation of this run of the operator: the content of the primary, and the content of the secondary
    /// object if it is related.
    pub received: Option<(u64, Option<u64>)>,
    /// An ordinary call has started since the finalizer was removed last.
    must_clean_up: bool,
    /// A call with `deleting=True` has started in this run of the operator.
    has_deleting_started: bool,
    /// A call of the deletion has returned without `Requeue`, or the reconciler has given up.
    pub may_release: bool,
    /// The newest version of the secondary object that an own reconciliation has written, and the end of the wait for it.
    own_write: Option<(u64, u64, f64)>,
    /// The failures of the current series: end, delay, and the start that followed.
    failures: Vec<(f64, f64, Option<f64>)>,
    /// The reconciler has given up, and no trigger has arrived since.
    pub has_given_up: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Oracle {
    pub primaries: [Observed; PRIMARIES],
    pub violation: Option<String>,
    pub starts: usize,
}

impl Oracle {
    pub fn violate(&mut self, text: String) {
        self.violation.get_or_insert(text);
    }

    /// A reconciliation starts with this view: the contents of the primary and of its secondary object. `child` is the oldest
    /// version of the secondary object that is delivered or shown.
    pub fn start(
        &mut self,
        index: usize,
        is_deleting: bool,
        view: (u64, Option<u64>),
        child: Option<u64>,
        cluster: &Cluster,
        now: f64,
    ) {
        self.starts += 1;
        let observed = &mut self.primaries[index];
        observed.running += 1;
        observed.received = Some(view);
        if let Some(failure) = observed.failures.last_mut() {
            failure.2.get_or_insert(now);
        }
        let mut found = None;
        if observed.running > 1 {
            found = Some("two reconciliations of one primary overlap".to_owned());
        }
        if observed.has_given_up {
            found = Some("a reconciliation starts without a trigger after giving up (A8)".to_owned());
        }
        if let Some((uid, version, until)) = observed.own_write
            && cluster.child.as_ref().is_some_and(|present| present.uid == uid)
            && now < until
            && child.is_none_or(|child| child < version)
        {
            found = Some(format!("the cache is older than the own write {version} at the next start (W5)"));
        }
        if is_deleting {
            observed.has_deleting_started = true;
        } else {
            let has_finalizer = cluster.primaries[index].as_ref().is_none_or(|primary| primary.has_finalizer);
            if !has_finalizer {
                found = Some("an ordinary reconciliation starts without the finalizer (F1)".to_owned());
            }
            if observed.has_deleting_started {
                found = Some("an ordinary reconciliation starts after a deleting one (F2)".to_owned());
            }
            observed.must_clean_up = true;
        }
        if let Some(text) = found {
            self.violate(text);
        }
    }

    /// A write of the secondary object has a response, or none.
    pub fn written(&mut self, index: usize, uid: u64, version: u64, until: f64) {
        let known = self.primaries[index].own_write.map_or(0, |(_, version, _)| version);
        if version > known {
            self.primaries[index].own_write = Some((uid, version, until));
        }
    }

    /// The secondary object may be older again: it was deleted.
    pub fn forget_writes(&mut self) {
        self.primaries.iter_mut().for_each(|observed| observed.own_write = None);
    }

    /// A reconciliation has ended.
    pub fn finish(&mut self, index: usize, is_final: bool) {
        let observed = &mut self.primaries[index];
        observed.running -= 1;
        observed.may_release |= is_final;
    }

    /// A failure is retried after this delay, of delays that double and start with a second (A7).
    pub fn fail(&mut self, index: usize, delay: f64, now: f64) {
        let failures = &mut self.primaries[index].failures;
        let elapsed =
            failures.iter().filter(|(end, delay, start)| start.is_some_and(|start| start >= end + delay));
        let expected = 2_f64.powi(i32::try_from(elapsed.count()).unwrap()).min(300.0);
        failures.push((now, delay, None));
        if delay > expected + 1e-6 {
            self.violate(format!("the back-off grows early: {delay} s instead of {expected} s"));
        }
    }

    pub fn end_series(&mut self, index: usize) {
        self.primaries[index].failures.clear();
    }

    /// The server has executed an edit of the finalizer.
    pub fn edited(&mut self, index: usize, adds: bool, matches: bool) {
        let observed = &mut self.primaries[index];
        if adds {
            return;
        }
        if matches && observed.must_clean_up && !observed.may_release {
            self.violate("an object is released before a deleting call has returned (F3)".to_owned());
        }
        self.primaries[index].must_clean_up = false;
    }

    /// The operator has crashed.
    pub fn crash(&mut self) {
        for observed in &mut self.primaries {
            *observed = Observed {
                must_clean_up: observed.must_clean_up,
                may_release: observed.may_release,
                ..Observed::default()
            };
        }
    }

    /// Laws of each state of the cluster.
    pub fn check(&mut self, cluster: &Cluster) {
        for index in 0..PRIMARIES {
            match &cluster.primaries[index] {
                None if self.primaries[index].must_clean_up => {
                    self.violate("an object is gone before it was cleaned up (F1)".to_owned());
                }
                Some(primary) if primary.has_foreign != cluster.foreign[index] => {
                    self.violate("the operator has changed the other finalizer (F6)".to_owned());
                }
                _ => {}
            }
        }
    }

    /// Laws of the state in which nothing is left to do.
    pub fn check_idle(&mut self, cluster: &Cluster) {
        for index in 0..PRIMARIES {
            let Some(primary) = &cluster.primaries[index] else { continue };
            if primary.is_deleting && primary.has_finalizer {
                self.violate(format!("the deletion of primary {index} never ends"));
            }
            if !primary.matches || primary.is_deleting {
                continue;
            }
            let child = cluster.child.as_ref().filter(|child| child.owner == index);
            // The operator itself creates the object, with the content 0.
            let child = child.map(|child| child.content).filter(|content| *content > 0);
            let latest = Some((primary.content, child));
            if self.primaries[index].received != latest {
                let received = self.primaries[index].received;
                self.violate(format!(
                    "a change is lost: primary {index} has received {received:?} instead of {latest:?}"
                ));
            }
        }
    }
}
