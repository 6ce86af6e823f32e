//! The whole engine against the embedded API server, in virtual time, with scripted handlers.
//!
//! A test changes objects, lets time pass, and asserts on the calls, the objects, and the server's request log. It does not
//! sleep: days pass in milliseconds (`fixture.rs`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::field_reassign_with_default, reason = "options of the server cannot be written as literals")]

mod delays;
mod deselection;
mod discovery;
mod election;
mod fixture;
mod hand_overs;
mod late_deletions;
mod load;
mod other_operators;
mod panics;
mod peerings;
mod rejected_patches;
mod replaced;
mod scripted_host;
mod shutdown;
mod streams;
mod writes;
