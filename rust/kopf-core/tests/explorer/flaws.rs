//! Defects that operators have had, put into the model's operator one at a time: the explorer must find each.
//!
//! The production code knows nothing of them. They change what the cycle is told or what is made of its conclusion, as the
//! defect once did. Rows and issues are those of Kopf and its kin.

/// One defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    NoWaiting,
    ExactVersion,
    AwaitsNoop,
    SkipsNext,
    KeepsOldest,
    MergesKinds,
    SleepsThrough,
    TrustsEcho,
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
    ForgetsParting,
    ForgetsFunctions,
    EndsUnnoticed,
    ForgetsSeen,
    ForgetsStripped,
    ForgetsParted,
    TrustsFreshest,
    TakesOwnForOthers,
    RemovesFirst,
}

/// A defect as it was, and as the explorer must find it.
pub struct Case {
    pub flaw: Flaw,
    /// What it was, and where.
    pub history: &'static str,
    /// The worlds in which it shows, and how: a part of what the witness says.
    pub found: &'static [(&'static str, &'static str)],
}

const fn case(flaw: Flaw, history: &'static str, found: &'static [(&'static str, &'static str)]) -> Case {
    Case { flaw, history, found }
}

/// All of them.
pub const CASES: &[Case] = &[
    case(
        Flaw::NoWaiting,
        "handling goes on at once after an own write, with whatever state comes (of the family of nolar/kopf#729, #732, #784, #844)",
        &[("plain", "that is handled"), ("patient", ""), ("resuming", "")],
    ),
    case(
        Flaw::ExactVersion,
        "only the very version that was written ends the wait, though a later state may come in its stead (the same family; contract 2.3)",
        &[("plain", "an own write is awaited that will never be told")],
    ),
    case(
        Flaw::AwaitsNoop,
        "the echo of a write that has changed nothing is awaited, by its very version (contract 2.6)",
        &[("noisy", "an own write is awaited that will never be told")],
    ),
    case(
        Flaw::SkipsNext,
        "the next event after an own write is taken for its echo, whatever it tells (the same family; operator-framework/java-operator-sdk#2944)",
        &[("plain", ""), ("patient", "")],
    ),
    case(
        Flaw::KeepsOldest,
        "of the events that wait, the first one is kept, not the last (the same family: an update is swallowed)",
        &[("plain", "a change is lost")],
    ),
    case(
        Flaw::MergesKinds,
        "events that are merged keep the kind of the first: a deletion is missed",
        &[("plain", "an object that is no more is remembered")],
    ),
    case(
        Flaw::SleepsThrough,
        "a sleep for delayed handlers is not interrupted by new changes (zalando-incubator/kopf#161)",
        &[("background", "a deletion is held for ever")],
    ),
    case(
        Flaw::TrustsEcho,
        "an event is expected after any write, even if the write has changed nothing (contract 7.7; observed 2)",
        &[("filtered", "a change is lost")],
    ),
    case(
        Flaw::ForgetsFailed,
        "an object whose write has failed waits for its next change (contract 12)",
        &[("plain", "a deletion is held for ever"), ("patient", "a change is lost")],
    ),
    case(
        Flaw::NeverSlows,
        "a refused write is tried again at once, and again (zalando-incubator/kopf#346, #350, #351)",
        &[("plain", "without growing pauses")],
    ),
    case(
        Flaw::NeverSlower,
        "each refused write is taken for the first one: the pauses do not grow (ours, found here)",
        &[("plain", "without growing pauses")],
    ),
    case(
        Flaw::TrustsFailure,
        "a write whose answer is lost is taken for refused, and the state before it for the last one (ours, found here)",
        &[("noisy", "that is handled"), ("transforming", "has not seen the last change")],
    ),
    case(
        Flaw::ForgetsHalf,
        "if the second of two writes fails, the echo of the first one is not awaited (ours, found here)",
        &[("filtered", "others are blamed"), ("plain", "is let go again")],
    ),
    case(
        Flaw::ForgetsMissing,
        "the last states of an object that does not exist any more are handled (zalando-incubator/kopf#139, #160)",
        &[("resuming", "called again"), ("transforming", "called again")],
    ),
    case(
        Flaw::ResumesAgain,
        "listed again is taken for started again (of the family of zalando-incubator/kopf#60, #223, #230; nolar/kopf#783)",
        &[("resuming", "another look at what is done makes work")],
    ),
    case(
        Flaw::KeepsNoProgress,
        "progress is remembered in memory only: a restart begins anew (the same family)",
        &[("patient", "")],
    ),
    case(
        Flaw::KeepsFreshest,
        "what is kept as handled is the state at the time of the write, not the one that was handled (the same family)",
        &[("plain", "a state is taken for handled that no handler has seen")],
    ),
    case(
        Flaw::ReleasesEarly,
        "a deletion is let go though handlers wait for their retries, or daemons still run",
        &[("patient", "a deletion is let go before d1 is done"), ("background", "while a daemon runs")],
    ),
    case(
        Flaw::OverwritesFinalizers,
        "the list of finalizers is written as it was seen (nolar/kopf#1106, #798, #1236, #1252; kube#964)",
        &[("plain", "a finalizer of somebody else has come or gone")],
    ),
    case(
        Flaw::ForgetsParting,
        "a release that was refused since somebody was faster makes the handlers start again (ours, found here; observed 4)",
        &[("plain", "d is called again for the same deletion"), ("background", "d is called again")],
    ),
    case(
        Flaw::ForgetsFunctions,
        "functions whose write was refused since somebody was faster are forgotten (contract 8.4)",
        &[("transforming", "a function is lost")],
    ),
    case(
        Flaw::EndsUnnoticed,
        "nobody looks after daemons that are still stopping",
        &[("background", "a deletion is let go while a daemon runs")],
    ),
    case(
        Flaw::ForgetsSeen,
        "what the first handlers have seen is forgotten while the others are called: they miss the change in between (observed 1)",
        &[("patient", "has not seen the last change")],
    ),
    case(
        Flaw::ForgetsStripped,
        "the object is believed, whoever has removed from it what was handled (as in Kopf 1.45)",
        &[("plain", "what was handled is taken for new"), ("patient", "what was handled is taken for new")],
    ),
    case(
        Flaw::ForgetsParted,
        "a refused write of more than the end of a deletion makes its handlers start again (ours, found here)",
        &[("plain", "d is called again for the same deletion")],
    ),
    case(
        Flaw::TrustsFreshest,
        "a finalizer that nobody needed is taken off a state that nobody has looked at (ours, found here)",
        &[("filtered", "a deletion is let go before d is done")],
    ),
    case(
        Flaw::TakesOwnForOthers,
        "what handlers write between two handlers of one sequence is taken for a change of others: updates follow without end (ours)",
        &[
            ("stamping", "is called for what handlers have written"),
            ("writing", "is called for what handlers have written"),
        ],
    ),
    case(
        Flaw::RemovesFirst,
        "progress in the status is removed before the last handled state is written (ours)",
        &[("progress in the status", "from a state that it has not reached")],
    ),
];
