//! The model: the cluster, the operator, and the acts that may happen between any two steps.

use crate::cluster::{Cluster, PRIMARIES};
use crate::injected_defects::Defect;
use crate::operator::Operator;
use crate::oracle::Oracle;
use kopf_core::schedule::{Call, ReconcileResult};

/// Something that may happen next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Act {
    /// Other clients.
    ChangePrimary(usize),
    ToggleMatch(usize),
    ToggleForeign(usize),
    DeletePrimary(usize),
    ChangeChild,
    MoveChild,
    DeleteChild,
    /// Watches and responses.
    DeliverPrimary,
    DeliverChild,
    Relist,
    ExecuteEdit(usize),
    Respond {
        is_lost: bool,
    },
    /// The operator.
    Step,
    Apply(usize),
    Finish(usize, ReconcileResult),
    Crash,
}

const RESULTS: [ReconcileResult; 5] = [
    ReconcileResult::Succeeded,
    ReconcileResult::Requeued(3.0),
    ReconcileResult::Failed(None),
    ReconcileResult::Failed(None),
    ReconcileResult::FailedPermanently,
];

#[derive(Clone, Debug)]
pub struct Model {
    pub cluster: Cluster,
    pub operator: Operator,
    pub oracle: Oracle,
    defect: Option<Defect>,
    now: f64,
}

impl Model {
    pub fn new(defect: Option<Defect>) -> Self {
        let (mut cluster, mut oracle) = (Cluster::new(), Oracle::default());
        let operator = Operator::start(defect, 0, &mut cluster, &mut oracle, 0.0);
        let mut model = Self { cluster, operator, oracle, defect, now: 0.0 };
        model.operator.establish(&mut model.cluster);
        model
    }

    /// The acts of the operator and of its connections.
    pub fn own_choices(&self) -> Vec<Act> {
        let mut acts = Vec::new();
        acts.extend((!self.cluster.primary_events.is_empty()).then_some(Act::DeliverPrimary));
        acts.extend((!self.cluster.child_events.is_empty()).then_some(Act::DeliverChild));
        acts.extend(self.operator.next_time().map(|_| Act::Step));
        for index in 0..PRIMARIES {
            acts.extend(self.cluster.edits[index].as_ref().map(|_| Act::ExecuteEdit(index)));
            acts.extend(self.operator.may_apply(index).then_some(Act::Apply(index)));
            let waits = self.operator.response.as_ref().is_some_and(|(writer, ..)| *writer == index);
            if self.operator.running[index].is_some() && !waits {
                acts.extend(RESULTS.map(|result| Act::Finish(index, result)));
            }
        }
        if self.operator.response.is_some() {
            acts.extend([Act::Respond { is_lost: false }, Act::Respond { is_lost: false }]);
            acts.push(Act::Respond { is_lost: true });
        }
        acts
    }

    /// All acts that may happen now.
    pub fn choices(&self) -> Vec<Act> {
        let mut acts = self.own_choices();
        acts.extend([Act::Relist, Act::Crash]);
        for (index, primary) in self.cluster.primaries.iter().enumerate() {
            let Some(primary) = primary else { continue };
            acts.extend([Act::ChangePrimary(index), Act::ToggleMatch(index)]);
            acts.extend((!primary.is_deleting).then_some(Act::DeletePrimary(index)));
            acts.extend((!primary.is_deleting || primary.has_foreign).then_some(Act::ToggleForeign(index)));
        }
        if self.cluster.child.is_some() {
            acts.extend([Act::ChangeChild, Act::ChangeChild, Act::MoveChild, Act::DeleteChild]);
        }
        acts
    }

    pub fn act(&mut self, act: Act) {
        let Self { cluster, operator, oracle, now, .. } = self;
        match act {
            Act::ChangePrimary(index) => {
                let content = cluster.version + 1;
                cluster.change(index, |primary| primary.content = content);
            }
            Act::ToggleMatch(index) => cluster.change(index, |primary| primary.matches = !primary.matches),
            Act::ToggleForeign(index) => {
                cluster.foreign[index] = !cluster.foreign[index];
                cluster.change(index, |primary| primary.has_foreign = !primary.has_foreign);
            }
            Act::DeletePrimary(index) => cluster.change(index, |primary| primary.is_deleting = true),
            Act::ChangeChild => {
                let content = cluster.version + 1;
                cluster.change_child(0, |child| child.content = content);
            }
            Act::MoveChild => {
                cluster.change_child(0, |child| child.owner = 1 - child.owner);
            }
            Act::DeleteChild => {
                cluster.delete_child();
                oracle.forget_writes();
            }
            Act::DeliverPrimary => {
                let (index, state) = cluster.primary_events.remove(0);
                operator.observe(index, state, oracle, false, *now);
            }
            Act::DeliverChild => {
                let event = cluster.child_events.remove(0);
                operator.receive(event, oracle, *now);
            }
            Act::Relist => operator.list(cluster, oracle, false, *now),
            Act::ExecuteEdit(index) => operator.edit(index, cluster, oracle, *now),
            Act::Respond { is_lost } => operator.respond(is_lost, oracle, *now),
            Act::Step => {
                if !operator.step(cluster, oracle, *now) {
                    *now = operator.next_time().unwrap_or(*now).max(*now);
                    operator.step(cluster, oracle, *now);
                }
            }
            Act::Apply(index) => operator.apply(index, cluster),
            Act::Finish(index, result) => operator.finish(index, result, oracle, *now),
            Act::Crash => {
                oracle.crash();
                let run = operator.run + 1;
                *operator = Operator::start(self.defect, run, cluster, oracle, *now);
            }
        }
        self.operator.establish(&mut self.cluster);
        self.oracle.check(&self.cluster);
    }

    /// Lets the operator continue without any interference until nothing is left to do, and checks the properties of that state.
    pub fn settle(&mut self) {
        for _ in 0..600 {
            if self.oracle.violation.is_some() {
                return;
            }
            let choices = self.own_choices();
            let is_calm = |act: &&Act| !matches!(act, Act::Apply(_) | Act::Respond { is_lost: true });
            let result =
                |act: &&Act| !matches!(act, Act::Finish(_, result) if *result != ReconcileResult::Succeeded);
            match choices.iter().filter(is_calm).find(result) {
                Some(act) => self.act(*act),
                None => return self.oracle.check_idle(&self.cluster),
            }
        }
        self.oracle.violate("the operator never becomes idle".to_owned());
    }

    /// Whether a deleting call is running.
    pub fn is_deleting(&self) -> bool {
        self.operator.running.iter().flatten().any(|running| running.call == Call::Deleting)
    }
}
