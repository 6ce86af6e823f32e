//! Random runs of the model, and the reduction of findings.

use crate::injected_defects::Defect;
use crate::model::{Act, Model};
use std::fmt::Write as _;

/// The result of a search.
#[derive(Debug, Default)]
pub struct Report {
    pub runs: usize,
    /// The number of started reconciliations.
    pub starts: usize,
    /// The number of runs with a deleting call.
    pub deletions: usize,
    /// The first violation, with the acts that lead to it.
    pub finding: Option<String>,
}

/// Explores random runs until the first violation with this text; others are ignored.
pub fn explore(defect: Option<Defect>, text: &str, seed: u64, runs: usize) -> Report {
    let (mut report, mut random) = (Report::default(), Random(seed));
    while report.runs < runs && report.finding.is_none() {
        let length = 10 + random.below(60);
        let (mut model, mut acts, mut has_deleting) = (Model::new(defect), Vec::new(), false);
        while acts.len() < length && model.oracle.violation.is_none() {
            // Mostly the operator continues; interference at each step would leave no progress.
            let own = model.own_choices();
            let choices = if random.below(3) > 0 && !own.is_empty() { own } else { model.choices() };
            let act = choices[random.below(choices.len())];
            acts.push(act);
            model.act(act);
            has_deleting |= model.is_deleting();
        }
        model.settle();
        report.runs += 1;
        report.starts += model.oracle.starts;
        report.deletions += usize::from(has_deleting);
        let violation = model.oracle.violation.filter(|violation| violation.contains(text));
        report.finding = violation.map(|violation| reduce(defect, acts, text, violation));
    }
    report
}

/// Reduces a finding to as few acts as possible, and describes it.
fn reduce(defect: Option<Defect>, mut acts: Vec<Act>, searched: &str, mut violation: String) -> String {
    let mut position = 0;
    while position < acts.len() {
        let mut fewer = acts.clone();
        fewer.remove(position);
        match replay(defect, &fewer) {
            Some(found) if found.contains(searched) => (acts, violation, position) = (fewer, found, 0),
            _ => position += 1,
        }
    }
    let mut text = format!("{violation}\n");
    for act in acts {
        let _ = writeln!(text, "  {act:?}");
    }
    text
}

fn replay(defect: Option<Defect>, acts: &[Act]) -> Option<String> {
    let mut model = Model::new(defect);
    for act in acts {
        if !model.choices().contains(act) {
            return None;
        }
        model.act(*act);
    }
    model.settle();
    model.oracle.violation
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
