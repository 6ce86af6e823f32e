//! The bodies of requests, and of responses that are streams.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Frame;

use super::http1::ResponseBody;

/// Lists of objects with their metadata only, or full objects from servers that do not support that. Supporting servers
/// distinguish strictly between lists and single objects.
const ACCEPT_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const ACCEPT_OBJECTS: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// The body of a request with its content type.
#[derive(Debug, Clone, Copy)]
pub enum RequestBody<'a> {
    /// No body.
    None,
    /// No body; the response is to be a list with only the metadata of objects.
    PartialList,
    /// No body; the response is to be a stream of objects with only their metadata.
    PartialObjects,
    /// A new object.
    Json(&'a [u8]),
    /// A merge patch, RFC 7386.
    MergePatch(&'a [u8]),
    /// A JSON patch, RFC 6902.
    JsonPatch(&'a [u8]),
}

impl<'a> RequestBody<'a> {
    pub(super) fn accept(self) -> &'static str {
        match self {
            Self::PartialList => ACCEPT_LIST,
            Self::PartialObjects => ACCEPT_OBJECTS,
            _ => "application/json",
        }
    }

    pub(super) fn bytes(self) -> &'a [u8] {
        match self {
            Self::None | Self::PartialList | Self::PartialObjects => b"",
            Self::Json(bytes) | Self::MergePatch(bytes) | Self::JsonPatch(bytes) => bytes,
        }
    }

    pub(super) fn content_type(self) -> Option<&'static str> {
        match self {
            Self::None | Self::PartialList | Self::PartialObjects => None,
            Self::Json(_) => Some("application/json"),
            Self::MergePatch(_) => Some("application/merge-patch+json"),
            Self::JsonPatch(_) => Some("application/json-patch+json"),
        }
    }
}

/// The body of a watch or of a log, read piece by piece.
pub struct StreamBody(pub(super) ResponseBody);

impl StreamBody {
    /// The next piece; none at the end.
    ///
    /// # Errors
    /// The connection failed.
    pub async fn frame(&mut self) -> Option<Result<Frame<Bytes>, hyper::Error>> {
        self.0.frame().await
    }
}
