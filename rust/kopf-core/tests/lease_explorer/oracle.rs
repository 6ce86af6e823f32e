//! The observer of all processes: it checks the properties after each act.

use crate::process::Process;
use std::collections::BTreeSet;

#[derive(Clone, Debug, Default)]
pub struct Oracle {
    /// The first violation.
    pub violation: Option<String>,
    pub terms: usize,
    pub takeovers: usize,
    pub releases: usize,
    highest: Option<i64>,
    /// The processes and terms whose fences were seen closed after they were open.
    closed: BTreeSet<(usize, i64)>,
}

impl Oracle {
    /// A term begins.
    pub fn begin(&mut self, term: i64, process: &Process) {
        self.terms += 1;
        if Some(term) <= self.highest {
            self.report(format!("term {term} begins after {:?}", self.highest));
        }
        self.highest = self.highest.max(Some(term));
        if !process.calls.is_empty() {
            self.report(format!("term {term} begins while calls of {:?} are running", process.calls));
        }
    }

    /// A release is sent.
    pub fn release(&mut self, process: &Process) {
        self.releases += 1;
        if !process.calls.is_empty() {
            self.report(format!("the lease is released while calls of {:?} are running", process.calls));
        }
    }

    /// A write over the record of another process is sent.
    pub fn take_over(&mut self, is_confirmed: bool) {
        self.takeovers += 1;
        if !is_confirmed {
            self.report("a record is replaced without a confirming read".to_owned());
        }
    }

    /// Checks the fences of all processes.
    pub fn check(&mut self, processes: &[Process], now: i64) {
        let mut open = Vec::new();
        for process in processes {
            let Some(term) = process.term else { continue };
            if !process.is_open(now) {
                self.closed.insert((process.number, term));
                continue;
            }
            open.push((process.number, term));
            if self.closed.contains(&(process.number, term)) {
                self.report(format!("the fence of term {term} has opened again"));
            }
        }
        if open.len() > 1 {
            self.report(format!("two open fences: {open:?}"));
        }
    }

    pub fn report(&mut self, violation: String) {
        self.violation.get_or_insert(violation);
    }
}
