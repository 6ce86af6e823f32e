//! Random runs of the model, and the reduction of findings.

use crate::injected_defects::Defect;
use crate::model::{Act, Model, PLACES};
use std::fmt::Write as _;

/// Histories that random runs rarely produce; the search begins with them.
const HISTORIES: &[&[Act]] = &[
    // A process receives the response to its acquisition late, and its renewal is lost. Another one takes over.
    &[
        Act::SetSynced(0, true),
        Act::Execute(0),
        Act::Deliver(0),
        Act::Advance(300),
        Act::Wake(0),
        Act::Execute(0),
        Act::SetSynced(2, true),
        Act::Execute(0),
        Act::Deliver(1),
        Act::Advance(10_000),
        Act::Deliver(0),
        Act::LoseRequest(0),
        Act::Advance(4_000),
        Act::Wake(2),
        Act::Execute(0),
        Act::Deliver(0),
        Act::Execute(0),
        Act::Deliver(0),
    ],
];

/// The result of a search. The terms, takeovers and releases are those before the periods without faults.
#[derive(Debug, Default)]
pub struct Report {
    pub runs: usize,
    pub acts: usize,
    pub terms: usize,
    pub takeovers: usize,
    pub releases: usize,
    /// The first violation, with the acts that lead to it.
    pub finding: Option<String>,
}

/// Explores random runs until the first violation with this text; others are ignored.
pub fn explore(defect: Option<Defect>, text: &str, seed: u64, runs: usize) -> Report {
    let (mut report, mut random) = (Report::default(), Random(seed));
    while report.runs < runs && report.finding.is_none() {
        let mut model = Model::new(defect);
        let acts = match HISTORIES.get(report.runs) {
            Some(history) => perform(&mut model, history),
            None => run(&mut model, &mut random),
        };
        report.runs += 1;
        report.acts += acts.len();
        report.terms += model.oracle.terms;
        report.takeovers += model.oracle.takeovers;
        report.releases += model.oracle.releases;
        model.settle();
        let violation = model.oracle.violation.filter(|violation| violation.contains(text));
        report.finding = violation.map(|violation| reduce(defect, acts, text, violation));
    }
    report
}

/// A random run.
fn run(model: &mut Model, random: &mut Random) -> Vec<Act> {
    let (length, mut acts) = (50 + random.below(400), Vec::new());
    prepare(model, &mut acts, random);
    // In half of the runs, requests are fast.
    let is_fast = random.below(2) > 0;
    let mut slow = None;
    while acts.len() < length && model.oracle.violation.is_none() {
        if random.below(60) == 0 {
            // A process that rarely gets CPU time, or whose connection is bad; or none.
            slow = Some(random.below(model.processes.len() + 1));
        }
        let act = choose(model, random);
        if !model.permits(act) {
            continue;
        }
        let is_delayed = match act {
            Act::Wake(number) | Act::Observe(number, _) => Some(number) == slow,
            Act::Execute(position) => Some(model.server.messages[position].process) == slow,
            Act::Deliver(position) => Some(model.server.replies[position].process) == slow,
            Act::Advance(millis) => is_fast && millis >= 1_000,
            _ => false,
        };
        if !is_delayed || random.below(8) == 0 {
            acts.push(act);
            model.act(act);
        }
    }
    acts
}

/// Most replicas are synced, and some watch the Lease.
fn prepare(model: &mut Model, acts: &mut Vec<Act>, random: &mut Random) {
    for number in 0..PLACES {
        let is_synced = (random.below(10) > 0).then_some(Act::SetSynced(number, true));
        let is_watching = (random.below(2) > 0).then_some(Act::SetWatching(number, true));
        for act in is_synced.into_iter().chain(is_watching) {
            acts.push(act);
            model.act(act);
        }
    }
}

/// An act that may be impossible now. Progress is more probable than a fault.
fn choose(model: &Model, random: &mut Random) -> Act {
    let number = random.below(model.processes.len());
    let message = random.below(model.server.messages.len().max(1));
    let reply = random.below(model.server.replies.len().max(1));
    let is_true = random.below(3) > 0;
    match random.below(300) {
        0..14 => Act::Advance([5, 50, 300][random.below(3)]),
        14..19 => Act::Advance([1_000, 2_000, 3_000][random.below(3)]),
        19..22 => Act::Advance([5_000, 8_000, 15_000][random.below(3)]),
        22 => Act::Advance(40_000),
        23..85 => Act::Wake(number),
        85..145 => Act::Execute(message),
        145..205 => Act::Deliver(reply),
        205..209 => Act::ExecuteTwice(message),
        209..213 => Act::LoseRequest(message),
        213..215 => Act::Reject(message),
        215..221 => Act::TimeOut(number),
        221..233 => Act::Observe(number, if is_true { 0 } else { random.below(3) }),
        233..236 => Act::SetWatching(number, is_true),
        236..239 => Act::SetHealthy(number, is_true),
        239..242 => Act::SetSynced(number, is_true),
        242..252 => Act::Call(number),
        252..262 => Act::Return(number),
        262..276 => Act::Drain(number),
        276..279 => Act::Stop(number),
        279..287 => Act::Continue(number),
        287..289 => Act::Crash(number),
        289..297 => Act::Replace(random.below(PLACES)),
        _ => Act::Release(number),
    }
}

/// Reduces a finding to as few acts as possible, and describes it.
fn reduce(defect: Option<Defect>, mut acts: Vec<Act>, searched: &str, mut violation: String) -> String {
    let mut position = acts.len();
    while position > 0 {
        position -= 1;
        let mut fewer = acts.clone();
        fewer.remove(position);
        if let Some(found) = replay(defect, &fewer).filter(|found| found.contains(searched)) {
            (acts, violation) = (fewer, found);
        }
    }
    let mut text = format!("{violation}\n");
    for act in acts {
        let _ = writeln!(text, "  {act:?}");
    }
    text
}

/// The violation after the acts.
fn replay(defect: Option<Defect>, acts: &[Act]) -> Option<String> {
    let mut model = Model::new(defect);
    perform(&mut model, acts);
    model.settle();
    model.oracle.violation
}

/// Performs the acts until a violation; those that are impossible are skipped. Returns the performed ones.
fn perform(model: &mut Model, acts: &[Act]) -> Vec<Act> {
    let mut performed = Vec::new();
    for act in acts {
        if model.oracle.violation.is_none() && model.permits(*act) {
            performed.push(*act);
            model.act(*act);
        }
    }
    performed
}

/// A random number generator, the same on all platforms.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }
}
