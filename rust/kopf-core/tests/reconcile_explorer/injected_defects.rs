//! Defects of operators, injected into the model one at a time: the explorer must find each.
//!
//! The production code does not contain them: each changes the inputs of the rules, or the execution of their decisions.

/// A defect to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    LosesTrigger,
    RunsTwice,
    CountsFailures,
    DropsOverlay,
    StartsEarly,
    SuppressesByVersion,
    RecordsNoops,
    KeepsOneEnd,
    ForgetsGap,
    SkipsFinalizer,
    ReleasesOnRequeue,
    OverwritesFinalizers,
    RepeatsEdit,
    ForgetsDeletion,
    WakesByTime,
}

/// Each defect with the thread or rule that it comes from, and a part of the violation that it must cause.
pub const CASES: &[(Defect, &str, &str)] = &[
    (Defect::LosesTrigger, "a trigger of a running entry is dropped (A2)", "a change is lost"),
    (Defect::RunsTwice, "a relist creates the entry of a running reconciliation again (0.3.2)", "overlap"),
    (
        Defect::CountsFailures,
        "the exponent counts failures: kubernetes/kubernetes#132805 (A7)",
        "grows early",
    ),
    (
        Defect::DropsOverlay,
        "any event ends an overlay: kubernetes-sigs/controller-runtime#1622 (W2)",
        "older than",
    ),
    (Defect::StartsEarly, "a start does not wait for the writes of the previous one (A9)", "older than"),
    (
        Defect::SuppressesByVersion,
        "own events are recognised by a later version: operator-framework/java-operator-sdk#3398 (1.7)",
        "a change is lost",
    ),
    (
        Defect::RecordsNoops,
        "a write that changed nothing explains the event of another client: operator-framework/java-operator-sdk#3484 (1.7)",
        "a change is lost",
    ),
    (
        Defect::KeepsOneEnd,
        "only the new end of a relation is triggered: kube-rs/kube#1682 (1.7)",
        "a change is lost",
    ),
    (Defect::ForgetsGap, "a disappearance during a gap is not noticed (1.7)", "a change is lost"),
    (
        Defect::SkipsFinalizer,
        "a reconciliation starts before the finalizer is shown (F1)",
        "without the finalizer",
    ),
    (Defect::ReleasesOnRequeue, "any return of a deleting call releases the object (F3)", "released before"),
    (
        Defect::OverwritesFinalizers,
        "finalizers are replaced without a test of the version (F6)",
        "other finalizer",
    ),
    (
        Defect::RepeatsEdit,
        "after a conflict, an edit is repeated without another decision (F7)",
        "released before",
    ),
    (
        Defect::ForgetsDeletion,
        "a deletion that was not finished before a crash has no trigger (1.11.3)",
        "never ends",
    ),
    (Defect::WakesByTime, "a resync wakes an entry that was given up (A8)", "after giving up"),
];
