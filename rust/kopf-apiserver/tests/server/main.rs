//! Integration tests of the server. They are one program, since each one links the whole server.

#![allow(clippy::disallowed_methods, reason = "sockets need real time")]
#![allow(clippy::expect_used, clippy::print_stdout, reason = "a test may stop, and prints measurements")]

mod admission;
mod authorization;
mod bindings;
mod conversion;
mod crds;
mod deletion;
mod faults;
mod protocol;
mod races;
mod running;
mod scales;
mod support;
mod workloads;
mod writes;
mod yaml;
