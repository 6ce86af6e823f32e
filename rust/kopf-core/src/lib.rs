//! The pure rules of a Kopf operator.
//!
//! This crate reads no clock, environment, file, network or randomness: time and entropy are arguments. It never sees Python.
//! Every rule that can be a pure function is in this crate, so that its tests run in microseconds.
//!
//! Modules import downwards: [`slot`] decides who works on an object, [`object_worker`] handles its events, and its [`cycle`]
//! decides about one of them; [`writes`] sends the decision. They use the commands to the host ([`activation`]), the rules of
//! daemons ([`daemon`]) and of attempts ([`handling`]), the persisted state of an object ([`persistence`]), handlers and their
//! filters ([`handler`]), causes ([`cause`]), resources ([`resource`]), objects ([`object`]), and JSON ([`json`]). The checks of the
//! operator itself are in [`health`].
//!
//! [`inspection`] describes the state of an object's handling for people, and [`explaining`] why handlers are called or not.
//!
//! The rules of reconcilers are [`schedule`], [`relations`], [`predicate`], [`conditions`], [`readiness`], and [`selectors`]; those of
//! readable caches are [`caches`]. Those of leader election are [`lease`]; those of watch-streams
//! are [`stream`], and those of logins are [`logins`]. Those of the client are [`request_retry`], [`tokens`], and [`server_addresses`].

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail loudly")
)]

pub mod activation;
pub mod admission;
pub mod apply;
pub mod backoff;
pub mod caches;
pub mod cause;
pub mod conditions;
pub mod cycle;
pub mod daemon;
pub mod durations;
pub mod explaining;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod handler;
pub mod handling;
pub mod health;
pub mod indexing;
pub mod inspection;
pub mod json;
pub mod k8s_event;
pub mod lease;
pub mod log_level;
pub mod logins;
pub mod object;
pub mod object_worker;
pub mod peering;
pub mod persistence;
pub mod predicate;
pub mod readiness;
pub mod relations;
pub mod request_error;
pub mod request_retry;
pub mod resource;
pub mod schedule;
pub mod selectors;
pub mod server_addresses;
pub mod settings;
pub mod slot;
pub mod stream;
#[cfg(feature = "testing")]
pub mod testing;
pub mod time;
pub mod tokens;
pub mod user_request;
pub mod writes;
