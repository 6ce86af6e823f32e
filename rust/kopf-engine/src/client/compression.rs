//! Compressed responses (`settings.networking.compression`). Streams are never compressed.

use std::io::Read as _;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::{HeaderMap, HeaderValue, Response, header};

use super::ResponseBody;
use super::connection::{read_body, too_long};
use crate::blocking::{SHORT, process};
use crate::error::RequestError;

const GZIP: &str = "gzip";
/// How many times longer the content of a listing is than its compressed form, at most, unless the objects hardly differ.
const LARGEST_USUAL_RATIO: usize = 16;

/// The headers of a request whose response may be compressed.
pub(super) fn accepting(headers: &HeaderMap) -> HeaderMap {
    let mut all = headers.clone();
    all.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(GZIP));
    all
}

/// Reads a response to its end, and decompresses it.
///
/// # Errors
/// The connection failed, or the body is damaged, or longer than the limit.
pub(super) async fn read_whole(
    response: Response<ResponseBody>,
    limit: usize,
) -> Result<Response<Bytes>, RequestError> {
    let (mut parts, body) = response.into_parts();
    let mut bytes = read_body(body, limit).await?;
    if parts.headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding == GZIP) {
        bytes = process(bytes, SHORT / LARGEST_USUAL_RATIO, move |bytes| decompressed(bytes, limit)).await?;
        parts.headers.remove(header::CONTENT_ENCODING);
        parts.headers.remove(header::CONTENT_LENGTH);
    }
    Ok(Response::from_parts(parts, bytes))
}

fn decompressed(bytes: &[u8], limit: usize) -> Result<Bytes, RequestError> {
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let mut content = vec![];
    let read = GzDecoder::new(bytes).take(most).read_to_end(&mut content);
    read.map_err(|error| RequestError::Transport(format!("the compressed response is damaged: {error}")))?;
    if content.len() > limit { Err(too_long(limit)) } else { Ok(content.into()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn compressed(content: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(vec![], Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn compressed_bodies_are_limited_and_checked() {
        let body = compressed(&[b'x'; 1000]);
        assert_eq!(decompressed(&body, 1000).unwrap().len(), 1000);
        assert!(decompressed(&body, 999).unwrap_err().to_string().contains("chunk_size"));
        let damaged = decompressed(&body[..body.len() - 4], 1000).unwrap_err();
        assert!(damaged.to_string().contains("damaged"), "{damaged}");
    }
}
