//! Known defects of operators, injected into the model one at a time: the explorer must find each.
//!
//! The production code does not contain them. Each defect changes the inputs of the cycle or the execution of its decision as the
//! defect did. Numbers refer to the contract and to issues of Kopf and similar projects.

/// A defect to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Defect {
    NoWaiting,
    ExactVersion,
    AwaitsNoop,
    SkipsNext,
    KeepsOldest,
    MergesKinds,
    SleepsThrough,
    ExpectsEvent,
    ForgetsFailed,
    NeverSlows,
    NeverSlower,
    TrustsFailure,
    ForgetsHalf,
    ForgetsMissing,
    ResumesAgain,
    KeepsNoProgress,
    KeepsFreshest,
    ReleasesEarly,
    OverwritesFinalizers,
    ForgetsHandledDeletion,
    ForgetsFunctions,
    EndsUnnoticed,
    ForgetsSeen,
    ForgetsStripped,
    ForgetsHandledDeletionAfterPatch,
    TrustsFreshest,
    TakesOwnForOthers,
    RemovesFirst,
    SleepsThroughPause,
    ContinuesWithoutListing,
    ForgetsSubHandlers,
    LeavesSubHandlers,
    StoresNoProgress,
    ForgetsRejectedPart,
    ForgetsIdentity,
    ForgetsVersion,
    ForgetsUnwritten,
    ForgetsFinalProgress,
    RepeatsRefused,
    TakesMissingForSuccess,
    KeepsTransformed,
    ContinuesTerm,
    TakesUnservedForDeleted,
    BlocksOnce,
    BlocksDeletions,
    TakesConflictForSuccess,
    KeepsOneOutcome,
}

/// A defect, its origin, and the violations that it must cause.
pub struct Case {
    pub defect: Defect,
    /// The defect and where it occurred.
    pub history: &'static str,
    /// Names of scenarios, each with a part of the violation that must be found there.
    pub found: &'static [(&'static str, &'static str)],
}

const fn case(defect: Defect, history: &'static str, found: &'static [(&'static str, &'static str)]) -> Case {
    Case { defect, history, found }
}

/// All known defects.
pub const CASES: &[Case] = &[
    case(
        Defect::NoWaiting,
        "handling continues right after a write, with any state that arrives (similar to nolar/kopf#729, #732, #784, #844)",
        &[("plain", "already handled"), ("retrying", ""), ("resuming", "")],
    ),
    case(
        Defect::ExactVersion,
        "only the exact version of the write ends the wait, although a later state may arrive instead (similar to the previous; contract 2.3)",
        &[("plain", "the operator waits for a watch event that cannot come")],
    ),
    case(
        Defect::AwaitsNoop,
        "after a write that changed nothing, its watch event is awaited by its exact version (contract 2.6)",
        &[("noisy", "the operator waits for a watch event that cannot come")],
    ),
    case(
        Defect::SkipsNext,
        "the next event after a write is taken for the event of this write, regardless of its content (operator-framework/java-operator-sdk#2944)",
        &[("plain", ""), ("retrying", "")],
    ),
    case(
        Defect::KeepsOldest,
        "of the queued events, the oldest is kept instead of the newest: an update is lost",
        &[("plain", "a change is lost")],
    ),
    case(
        Defect::MergesKinds,
        "merged events keep the type of the first: a deletion is missed",
        &[("plain", "a deleted object is kept in memory")],
    ),
    case(
        Defect::SleepsThrough,
        "a sleep for delayed handlers is not interrupted by new changes (zalando-incubator/kopf#161)",
        &[("background", "a deletion is blocked forever")],
    ),
    case(
        Defect::ExpectsEvent,
        "an event is expected after any write, even one that changed nothing (contract 7.7; observed 2)",
        &[("filtered", "a change is lost")],
    ),
    case(
        Defect::ForgetsFailed,
        "after a failed write, the object is not processed until its next change (contract 12)",
        &[("plain", "a deletion is blocked forever"), ("retrying", "a change is lost")],
    ),
    case(
        Defect::NeverSlows,
        "rejected writes are retried without delay (zalando-incubator/kopf#346, #350, #351)",
        &[("plain", "without growing delays")],
    ),
    case(
        Defect::NeverSlower,
        "each rejected write is taken for the first one: the delays do not grow (ours, found here)",
        &[("plain", "without growing delays")],
    ),
    case(
        Defect::TrustsFailure,
        "a write whose response is lost is taken for rejected, and the state before it for the latest (ours, found here)",
        &[("noisy", "already handled"), ("transforming", "has not observed the last change")],
    ),
    case(
        Defect::ForgetsHalf,
        "if the second of two writes fails, the watch event of the first one is not awaited (ours, found here)",
        &[("filtered", "other clients are blamed"), ("plain", "is released again")],
    ),
    case(
        Defect::ForgetsMissing,
        "events of an object that no longer exists are handled (zalando-incubator/kopf#139, #160)",
        &[("resuming", "called again"), ("transforming", "called again")],
    ),
    case(
        Defect::ResumesAgain,
        "a relist is taken for a restart (similar to zalando-incubator/kopf#60, #223, #230; nolar/kopf#783)",
        &[("resuming", "a relist of a handled object causes work")],
    ),
    case(
        Defect::KeepsNoProgress,
        "progress is kept in memory only: a restart begins from the start (similar to the previous)",
        &[("retrying", "")],
    ),
    case(
        Defect::KeepsFreshest,
        "the diff-base is the state at the time of the write, not the handled one (similar to the previous)",
        &[("plain", "a state is stored as handled that no handler has observed")],
    ),
    case(
        Defect::ReleasesEarly,
        "a deletion is released although handlers wait for retries, or daemons still run",
        &[
            ("retrying", "a deletion is released before d1 has finished"),
            ("background", "while a daemon runs"),
        ],
    ),
    case(
        Defect::OverwritesFinalizers,
        "the whole list of finalizers is overwritten (nolar/kopf#1106, #798, #1236, #1252; kube#964)",
        &[("plain", "a finalizer of another controller was added or removed")],
    ),
    case(
        Defect::ForgetsHandledDeletion,
        "after a conflict on the release, the deletion handlers start again (ours, found here; observed 4)",
        &[("plain", "d is called again for the same deletion"), ("background", "d is called again")],
    ),
    case(
        Defect::ForgetsFunctions,
        "patch functions are lost after a conflict (contract 8.4)",
        &[("transforming", "a patch function is lost")],
    ),
    case(
        Defect::EndsUnnoticed,
        "no cycle follows the exit of stopping daemons",
        &[("background", "a deletion is released while a daemon runs")],
    ),
    case(
        Defect::ForgetsSeen,
        "the states observed by the first handlers are forgotten while the others are called: they miss the change in between (observed 1)",
        &[("retrying", "has not observed the last change")],
    ),
    case(
        Defect::ForgetsStripped,
        "the object is trusted even if another client has removed its diff-base (as in Kopf 1.45)",
        &[
            ("plain", "a handled object is taken for a new one"),
            ("retrying", "a handled object is taken for a new one"),
        ],
    ),
    case(
        Defect::ForgetsHandledDeletionAfterPatch,
        "after a rejected write of a release with other changes, the deletion handlers start again (ours, found here)",
        &[("plain", "d is called again for the same deletion")],
    ),
    case(
        Defect::TrustsFreshest,
        "a finalizer is removed from a version that no cycle has checked (ours, found here)",
        &[("filtered", "a deletion is released before d has finished")],
    ),
    case(
        Defect::TakesOwnForOthers,
        "changes made by handlers during a handling are taken for changes of other clients: updates follow without end (ours)",
        &[
            ("stamping", "is called for a change made by handlers"),
            ("writing", "is called for a change made by handlers"),
        ],
    ),
    case(
        Defect::RemovesFirst,
        "progress in the status is removed before the diff-base is stored (ours)",
        &[("progress in the status", "is removed before its change is stored as handled")],
    ),
    case(
        Defect::SleepsThroughPause,
        "delayed handlers are called although the operator is paused, and others may handle the object",
        &[("retrying", "is handled during a pause")],
    ),
    case(
        Defect::ContinuesWithoutListing,
        "after a pause, the watch continues with new events, without a listing",
        &[("plain", "")],
    ),
    case(
        Defect::ForgetsSubHandlers,
        "a handler calls its finished sub-handlers again with each retry (similar to zalando-incubator/kopf#163)",
        &[("nested", "is called again for the same")],
    ),
    case(
        Defect::LeavesSubHandlers,
        "a handler does not report its sub-handlers: their progress stays on the handled object",
        &[("nested", "progress is left on a handled object")],
    ),
    case(Defect::StoresNoProgress, "a custom storage drops the progress", &[("custom storages", "")]),
    case(
        Defect::ForgetsRejectedPart,
        "the rejected part of a patch is dropped, when the rest is written (as in Kopf 1.45)",
        &[("results", "a result is lost")],
    ),
    case(
        Defect::ForgetsIdentity,
        "a status is written without the uid of its object: into a successor of the same name (ours)",
        &[("results", "another object of the same name is changed")],
    ),
    case(
        Defect::ForgetsVersion,
        "a JSON patch does not test the version that it is computed from",
        &[("plain", "a finalizer of another controller was added or removed")],
    ),
    case(
        Defect::ForgetsUnwritten,
        "after a failed request, the outcome of the write does not contain what is unwritten",
        &[("plain", "is called again for the same")],
    ),
    case(
        Defect::ForgetsFinalProgress,
        "after a failed write, the final progress is not written with the repeated patch (ours, found here)",
        &[("progress in the status", "other clients are blamed for our changes")],
    ),
    case(
        Defect::RepeatsRefused,
        "a rejected part is sent again and again",
        &[("results", "a write sends requests without end")],
    ),
    case(
        Defect::TakesMissingForSuccess,
        "a missing status subresource is taken for a written status",
        &[("no subresource", "a result is lost")],
    ),
    case(
        Defect::KeepsTransformed,
        "after a conflict, the functions are not called with the fresh object",
        &[("transforming", "a change of another client is undone")],
    ),
    case(
        Defect::ContinuesTerm,
        "a write goes on after the lease is lost",
        &[("versioned", "a replica that does not lead writes to the object")],
    ),
    case(
        Defect::TakesUnservedForDeleted,
        "a 404 that does not name the object is taken for its deletion",
        &[("plain", "")],
    ),
    case(
        Defect::BlocksOnce,
        "the finalizer is not added again, when another client has removed it",
        &[("plain", "a deletion would not be blocked")],
    ),
    case(
        Defect::BlocksDeletions,
        "the finalizer is added to an object that is being deleted, which the server rejects",
        &[("plain", "")],
    ),
    case(
        Defect::TakesConflictForSuccess,
        "a conflict is taken for a written patch",
        &[("results", "a result is lost"), ("plain", "")],
    ),
    case(
        Defect::KeepsOneOutcome,
        "of several handlers that finish in one cycle, only the first outcome is kept",
        &[("at once", "is called again for the same")],
    ),
];
