//! Defects of replicas, injected into the model one at a time: the explorer must find each.
//!
//! The production code does not contain them: each changes the inputs of the rules, or the execution of their actions.

/// A defect to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    FenceFromResponse,
    ReopensFence,
    SkipsConfirmation,
    DropsPrecondition,
    ReleasesBeforeDrain,
    AcquiresBeforeDrain,
    KeepsIdentity,
    CountsLostRenewals,
}

/// Each defect with its rule in part 4.3 of the specification, and a part of the violation that it must cause.
pub const CASES: &[(Defect, &str, &str)] = &[
    (Defect::FenceFromResponse, "the fence counts from the response (3)", "two open fences"),
    (Defect::ReopensFence, "a late response opens a closed fence again (4)", "opened again"),
    (Defect::SkipsConfirmation, "a takeover without a confirming read (2)", "confirming read"),
    (Defect::DropsPrecondition, "a write without the resource version (4.2)", "two open fences"),
    (Defect::ReleasesBeforeDrain, "the release precedes the end of the last call (9)", "released while"),
    (Defect::AcquiresBeforeDrain, "calls of the lost term still run in the next one (4)", "begins while"),
    (Defect::KeepsIdentity, "a process has the identity of its predecessor (4.1)", "two open fences"),
    (Defect::CountsLostRenewals, "a renewal without a response extends the fence (5)", "two open fences"),
];
