//! The bindings of the testing kit: the embedded API server, and virtual time. Only `kopf._testing` uses them.

pub(crate) mod apiserver;
mod asyncio_bridge;
pub(crate) mod virtual_time;
