//! Hooks for tests and benchmarks (feature `testing`): work injected in the engine's place.

mod completion;
pub(crate) mod inject;
