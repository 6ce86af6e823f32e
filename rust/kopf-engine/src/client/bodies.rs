//! The heads and bodies of requests, and the bodies of errors and of responses that are streams.

use bytes::Bytes;
use http::{Method, Response, header};
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use kopf_core::backoff::parse_retry_after;
use kopf_core::object::redaction::is_discreet_path;

use super::compression::read_whole;
use super::connection::{MAX_BODY, RequestHead};
use super::http1::ResponseBody;
use crate::error::{ApiError, RequestError};
use crate::time::clock::system_time;

/// Lists of objects with their metadata only, or full objects from servers that do not support that. Supporting servers
/// distinguish strictly between lists and single objects.
const ACCEPT_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
const ACCEPT_OBJECTS: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";

/// The resources of all groups in one document, or the list of groups from servers that do not support that.
pub(crate) const ACCEPT_DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// The body of a request with its content type.
#[derive(Debug, Clone, Copy)]
pub enum RequestBody<'a> {
    /// No body.
    None,
    /// No body; the response is to be a list with only the metadata of objects.
    PartialList,
    /// No body; the response is to be a stream of objects with only their metadata.
    PartialObjects,
    /// No body; the response is to be an aggregated discovery document.
    Discovery,
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
            Self::Discovery => ACCEPT_DISCOVERY,
            _ => "application/json",
        }
    }

    pub(super) fn bytes(self) -> &'a [u8] {
        match self {
            Self::None | Self::PartialList | Self::PartialObjects | Self::Discovery => b"",
            Self::Json(bytes) | Self::MergePatch(bytes) | Self::JsonPatch(bytes) => bytes,
        }
    }

    pub(super) fn content_type(self) -> Option<&'static str> {
        match self {
            Self::None | Self::PartialList | Self::PartialObjects | Self::Discovery => None,
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

/// The head of a request of the engine. The engine repeats patches after failures in any case; creations are not repeated, as
/// they are not idempotent.
pub(super) fn head_of<'r>(method: &'r Method, url: &'r str, payload: RequestBody<'_>) -> RequestHead<'r> {
    RequestHead {
        method,
        url,
        accept: payload.accept(),
        content_type: payload.content_type(),
        is_idempotent: matches!(*method, Method::GET | Method::PATCH),
        may_end_with_slash: false,
    }
}

/// The error that a response is.
pub(super) async fn read_error(
    response: Response<ResponseBody>,
    head: RequestHead<'_>,
) -> Result<ApiError, RequestError> {
    let status = response.status().as_u16();
    let header = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after = header.and_then(|text| parse_retry_after(text, system_time()));
    let response = read_whole(response, MAX_BODY).await?;
    let error = ApiError::from_response(status, retry_after, response.body());
    let error = error.of_request(head.method, head.url);
    Ok(if is_discreet_path(head.url) { error.redacted() } else { error })
}
