//! The rules of a Kopf operator, as pure functions.
//!
//! This crate reads no clock, environment, file, network or randomness, and never sees Python: time and chance are arguments.
//! Whatever can be a rule is here, so that the semantics run as tables and stories in microseconds.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail loudly")
)]

pub mod admission;
pub mod backoff;
pub mod cause;
pub mod consistency;
pub mod conventions;
pub mod cycle;
pub mod daemon;
pub mod derivation;
pub mod diff;
pub mod diffbase;
pub mod discretion;
pub mod essence;
pub mod filters;
pub mod finalizer;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod handler;
pub mod ids;
pub mod indexing;
pub mod jsonpatch;
pub mod ledger;
pub mod lifecycle;
pub mod notes;
pub mod object;
pub mod outcome;
pub mod patch;
pub mod path;
pub mod peering;
pub mod pending;
pub mod posting;
pub mod progress;
pub mod projection;
pub mod registry;
pub mod resource;
mod scan;
pub mod script;
pub mod selection;
pub mod settings;
mod state;
pub mod subhandling;
#[cfg(feature = "testing")]
pub mod testing;
pub mod throttle;
pub mod time;
pub mod value;
