//! Defects of drivers, injected into the model one at a time: the explorer must find each.
//!
//! The production code does not contain them: each changes the inputs of the slots, or the execution of their actions.

/// A defect to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    AbandonsPanicked,
    IgnoresGate,
    ForgetsGated,
    DropsUnparked,
    KeepsBytes,
    DropsAdopted,
    HandsOverBusy,
    NeverAdopts,
    IgnoresPause,
    SkipsListing,
    ForgetsEarly,
    KeepsGone,
    StartsTwice,
    IndexesNever,
    KeepsCycles,
}

/// Each defect with the thread or rule that it comes from, and a part of the violation that it must cause.
pub const CASES: &[(Defect, &str, &str)] = &[
    (Defect::AbandonsPanicked, "a cycle that panics is not ended", "has no holder"),
    (
        Defect::IgnoresGate,
        "events are handled before the objects are indexed",
        "while the index gate is closed",
    ),
    (
        Defect::ForgetsGated,
        "the events behind the index gate are not released",
        "the latest state is not handled",
    ),
    (Defect::DropsUnparked, "the events of an object that leaves the backlog are dropped", "not handled"),
    (Defect::KeepsBytes, "the bytes of a removed object stay in the backlog", "bytes"),
    (Defect::DropsAdopted, "the events that wait for a hand-over are dropped", "not handled"),
    (Defect::HandsOverBusy, "a busy object is handed over as an idle one", "two cycles"),
    (Defect::NeverAdopts, "the slot of a busy object is not handed over afterwards", ""),
    (Defect::IgnoresPause, "events are handled during a pause", "during a pause"),
    (Defect::SkipsListing, "no listing follows a pause", "the latest state is not handled"),
    (Defect::ForgetsEarly, "the host is notified of the end of a busy object at once", "notified"),
    (Defect::KeepsGone, "the slot of a removed object is not removed after its last cycle", "has a slot"),
    (Defect::StartsTwice, "an event of a busy object starts a cycle", "two cycles"),
    (Defect::IndexesNever, "a standby does not index a changed object", "not handled"),
    (Defect::KeepsCycles, "the cycle of a lost term is dropped without an end", "has no holder"),
];
