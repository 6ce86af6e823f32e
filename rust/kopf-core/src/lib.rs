//! The rules of a Kopf operator, as pure functions.
//!
//! This crate reads no clock, environment, file, network or randomness, and never sees Python: time and chance are arguments.
//! Whatever can be a rule is here, so that the semantics run as tables and stories in microseconds.
