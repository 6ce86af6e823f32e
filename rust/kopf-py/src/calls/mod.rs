//! Calls of handlers as coroutines in native code: most calls need no frames of Python but those of their functions.

mod awaited;
mod coroutine_attributes;
pub(crate) mod handler_call;
mod settling;
pub(crate) mod task_coroutine;
