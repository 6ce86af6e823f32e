//! How the model is searched: everything within a budget, or lives at random; and how a finding is told.

use crate::model::{Act, Budget, Model};
use crate::worlds::World;
use std::collections::HashSet;
use std::fmt::Write as _;

/// What came of a search.
#[derive(Debug, Default)]
pub struct Report {
    /// Different states that were seen.
    pub states: usize,
    /// Acts that were tried.
    pub acts: usize,
    /// States in which nothing was left to do.
    pub rests: usize,
    /// Whether everything within the budget was seen.
    pub complete: bool,
    /// A broken law, and how it came to that.
    pub found: Option<Finding>,
}

/// A broken law.
#[derive(Debug)]
pub struct Finding {
    pub wrong: String,
    pub acts: Vec<Act>,
    pub told: String,
}

/// Tries everything that may happen within the budget, up to so many states.
pub fn exhaust(world: &World, budget: Budget, lag: f64, limit: usize) -> Report {
    let mut report = Report { complete: true, ..Report::default() };
    let mut seen = HashSet::new();
    let mut history: Vec<(usize, Option<Act>)> = vec![(0, None)];
    let mut stack = vec![(0, Model::new(budget, lag))];
    while let Some((position, model)) = stack.pop() {
        if !seen.insert(model.digest()) {
            continue;
        }
        report.states += 1;
        if report.states > limit {
            report.complete = false;
            break;
        }
        if let Some(wrong) = judge(world, &model, &mut report) {
            let acts = path(&history, position);
            report.found = Some(tell(world, budget, lag, &wrong, acts));
            break;
        }
        for act in model.choices(world) {
            let mut next = model.clone();
            next.act(world, act);
            report.acts += 1;
            history.push((position, Some(act)));
            stack.push((history.len() - 1, next));
        }
    }
    report
}

/// Lives so many lives at random, each with a budget of its own within the given one.
pub fn wander(world: &World, rich: Budget, lag: f64, seed: u64, lives: usize) -> Report {
    let mut report = Report::default();
    let mut chance = Chance(seed);
    for _ in 0..lives {
        let Life { budget, acts, wrong } = live(world, rich, lag, &mut chance, &mut report);
        if let Some(wrong) = wrong {
            report.found = Some(tell(world, budget, lag, &wrong, acts));
            break;
        }
    }
    report
}

/// Whether one of so many lives at random breaks a law in this way; other findings are ignored.
pub fn breaks(world: &World, rich: Budget, lag: f64, wrong: &str, lives: usize) -> bool {
    let (mut report, mut chance) = (Report::default(), Chance(0));
    (0..lives).any(|_| {
        let life = live(world, rich, lag, &mut chance, &mut report);
        life.wrong.is_some_and(|found| found.contains(wrong))
    })
}

/// One life, and the law that it breaks, if any.
struct Life {
    budget: Budget,
    acts: Vec<Act>,
    wrong: Option<String>,
}

fn live(world: &World, rich: Budget, lag: f64, chance: &mut Chance, report: &mut Report) -> Life {
    let budget = rich.map(|most| chance.up_to(most));
    let mut model = Model::new(budget, lag);
    let mut acts = Vec::new();
    for _ in 0..80 {
        // Mostly, things go on; interferences at each step would come to nothing.
        let own = model.own_choices(world);
        let choices = if chance.below(4) > 0 && !own.is_empty() { own } else { model.choices(world) };
        if choices.is_empty() || model.ghost.wrong.is_some() {
            break;
        }
        let act = choices[chance.below(choices.len())];
        acts.push(act);
        model.act(world, act);
        report.acts += 1;
    }
    report.states += 1;
    let wrong = judge(world, &model, report);
    Life { budget, acts, wrong }
}

/// Whether a law is broken, here or when all come to rest.
fn judge(world: &World, model: &Model, report: &mut Report) -> Option<String> {
    let mut last = model.clone();
    if last.ghost.wrong.is_none() && last.is_at_rest() {
        report.rests += 1;
        last.judge_rest(world);
    }
    if last.ghost.wrong.is_none() {
        last.come_to_rest(world);
    }
    last.ghost.wrong
}

fn path(history: &[(usize, Option<Act>)], position: usize) -> Vec<Act> {
    let mut acts = Vec::new();
    let mut at = position;
    while let (before, Some(act)) = history[at] {
        acts.push(act);
        at = before;
    }
    acts.reverse();
    acts
}

/// The same finding with as few acts as possible, told act by act.
fn tell(world: &World, budget: Budget, lag: f64, wrong: &str, mut acts: Vec<Act>) -> Finding {
    let mut wrong = wrong.to_owned();
    let mut position = 0;
    while position < acts.len() {
        let mut fewer = acts.clone();
        fewer.remove(position);
        match replay(world, budget, lag, &fewer) {
            Some((same, taken)) if taken == fewer => {
                (wrong, acts, position) = (same, fewer, 0);
            }
            _ => position += 1,
        }
    }
    let mut told = format!("In the world \"{}\": {wrong}\n", world.name);
    let mut model = Model::new(budget, lag);
    for act in &acts {
        let before = model.cluster.latest.number;
        model.act(world, *act);
        let latest = &model.cluster.latest;
        let body = if latest.number == before { String::new() } else { format!(" -> {}", latest.body) };
        let _ = writeln!(told, "  {act:?}{body}");
    }
    let _ = writeln!(told, "and then, up to its rest:");
    let _ = writeln!(told, "{}", model.end(world).join("\n"));
    Finding { wrong, acts, told }
}

/// Does the acts that are possible; tells what is wrong then, if anything, and which acts it took.
fn replay(world: &World, budget: Budget, lag: f64, acts: &[Act]) -> Option<(String, Vec<Act>)> {
    let mut model = Model::new(budget, lag);
    let mut taken = Vec::new();
    for act in acts {
        if !model.choices(world).contains(act) {
            return None;
        }
        model.act(world, *act);
        taken.push(*act);
    }
    judge(world, &model, &mut Report::default()).map(|wrong| (wrong, taken))
}

/// A small generator of chance, the same everywhere.
struct Chance(u64);

impl Chance {
    fn up_to(&mut self, most: u8) -> u8 {
        u8::try_from(self.below(usize::from(most) + 1)).unwrap()
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).unwrap()
    }
}
