//! Helpers of integration tests.
#![allow(dead_code, reason = "each test uses some of them")]

pub(crate) mod client;
pub(crate) mod webhook;
