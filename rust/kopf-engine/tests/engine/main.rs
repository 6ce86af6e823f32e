//! The whole engine against the embedded API server, in virtual time, with scripted handlers.
//!
//! A test changes objects, lets time pass, and asserts on the calls, the objects, and the server's request log. It does not
//! sleep: days pass in milliseconds (`world.rs`).

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
