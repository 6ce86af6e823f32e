//! HTTP requests and responses, independent of connections.

pub(crate) mod accept;
pub(crate) mod partial;
pub(crate) mod render;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod route;
pub(crate) mod table;
