//! The whole engine against an API server in memory, in virtual time, with handlers that do as they are told.
//!
//! A test says what happens, lets time pass, and looks at the calls, at the objects, and at the server's journal.
//! Nothing sleeps: days pass in milliseconds (`world.rs`).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::field_reassign_with_default, reason = "options of the server cannot be written as literals")]

mod containment;
mod delays;
mod departures;
mod endings;
mod load;
mod refusals;
mod stage;
mod streams;
mod world;
mod writes;
