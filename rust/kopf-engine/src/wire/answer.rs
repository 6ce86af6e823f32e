//! The answer to a request as it comes in: HTTP/1.1 from bytes.
//!
//! Owns: where the head ends, how long the body is, and whether another request may follow on the same connection.
//! Must not know: where the bytes come from. Rules: RFC 9112, as far as a client meets them.

use bytes::{Buf as _, Bytes, BytesMut};
use memchr::{memchr, memmem};

/// Heads of answers are short; whoever sends more than this does not speak HTTP.
const MAX_HEAD: usize = 64 * 1024;
/// Beyond any object, and any page of them.
const MAX_BODY: usize = 1 << 30;

/// A whole answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The header `Retry-After`, as it is.
    pub retry_after: Option<String>,
    /// The body.
    pub body: Bytes,
}

/// Why the bytes are no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("the answer is not HTTP: {0}")]
    Malformed(&'static str),
    #[error("connection closed before the answer was complete")]
    Cut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Exact(usize),
    Chunked,
    ToTheEnd,
}

#[derive(Debug)]
struct Head {
    status: u16,
    length: Length,
    retry_after: Option<String>,
    keeps: bool,
}

/// What has come so far.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// What is not taken yet. Whoever reads puts it there.
    pub(super) buffer: BytesMut,
    head: Option<Head>,
    chunks: BytesMut,
}

impl Incoming {
    /// Whether the head is there.
    pub(super) fn has_head(&self) -> bool {
        self.head.is_some()
    }

    /// Takes what is there. Once all of it is: the answer, and whether the connection may be used again.
    pub(super) fn advance(&mut self, ended: bool) -> Result<Option<(Answer, bool)>, Fault> {
        while self.head.is_none() {
            let Some(end) = memmem::find(&self.buffer, b"\r\n\r\n") else {
                let is_too_long = self.buffer.len() > MAX_HEAD;
                return if is_too_long { Err(Fault::Malformed("no end of the head")) } else { cut_if(ended) };
            };
            let head = self.buffer.split_to(end + 4);
            let head = read_head(head.get(..end).unwrap_or_default())?;
            // What is said in between does not matter.
            self.head = Some(head).filter(|head| !(100..200).contains(&head.status));
        }
        let length = self.head.as_ref().map_or(Length::ToTheEnd, |head| head.length);
        let body = match length {
            Length::Exact(length) if self.buffer.len() >= length => self.buffer.split_to(length),
            Length::Exact(length) => {
                self.buffer.reserve(length - self.buffer.len());
                return cut_if(ended);
            }
            Length::ToTheEnd if ended => std::mem::take(&mut self.buffer),
            Length::ToTheEnd => return Ok(None),
            Length::Chunked if self.take_chunks()? => std::mem::take(&mut self.chunks),
            Length::Chunked => return cut_if(ended),
        };
        let Some(Head { status, retry_after, keeps, .. }) = self.head.take() else { return Ok(None) };
        // Something that nobody has asked for may come next: better not to wait for it.
        let is_reusable = keeps && !ended && self.buffer.is_empty();
        Ok(Some((Answer { status, retry_after, body: body.freeze() }, is_reusable)))
    }

    /// Takes all chunks that are there as a whole; true if it was the last one.
    fn take_chunks(&mut self) -> Result<bool, Fault> {
        loop {
            let Some(end) = memchr(b'\n', &self.buffer) else { return Ok(false) };
            let line = self.buffer.get(..end).unwrap_or_default();
            let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
            let size =
                str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|it| it.is_ascii_hexdigit()));
            let size = size.and_then(|digits| usize::from_str_radix(digits, 16).ok());
            let size =
                size.filter(|size| *size <= MAX_BODY).ok_or(Fault::Malformed("a chunk without its size"))?;
            if size == 0 {
                return Ok(self.take_trailers(end + 1));
            }
            let whole = end + 1 + size + 2;
            if self.buffer.len() < whole {
                self.buffer.reserve(whole - self.buffer.len());
                return Ok(false);
            }
            if self.buffer.get(whole - 2..whole) != Some(b"\r\n") {
                return Err(Fault::Malformed("a chunk without its end"));
            }
            let mut chunk = self.buffer.split_to(whole);
            chunk.advance(end + 1);
            chunk.truncate(size);
            if self.chunks.is_empty() {
                self.chunks = chunk;
            } else {
                self.chunks.extend_from_slice(&chunk);
            }
        }
    }

    /// Takes the lines after the last chunk, up to the empty one.
    fn take_trailers(&mut self, mut at: usize) -> bool {
        while let Some(end) = self.buffer.get(at..).and_then(|rest| memchr(b'\n', rest)) {
            let is_last = end == 0 || (end == 1 && self.buffer.get(at) == Some(&b'\r'));
            at += end + 1;
            if is_last {
                drop(self.buffer.split_to(at));
                return true;
            }
        }
        false
    }
}

fn cut_if<T>(ended: bool) -> Result<Option<T>, Fault> {
    if ended { Err(Fault::Cut) } else { Ok(None) }
}

fn read_head(head: &[u8]) -> Result<Head, Fault> {
    let head = str::from_utf8(head).map_err(|_| Fault::Malformed("a head that is no text"))?;
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let (version, rest) = line.split_once(' ').unwrap_or_default();
    let status = rest.get(..3).and_then(|status| status.parse().ok());
    let status: u16 = status.ok_or(Fault::Malformed("no status"))?;
    let mut keeps = match version {
        "HTTP/1.1" => true,
        "HTTP/1.0" => false,
        _ => return Err(Fault::Malformed("an unknown version")),
    };
    let (mut length, mut retry_after) = (Length::ToTheEnd, None);
    for line in lines {
        let Some((name, value)) = line.split_once(':') else {
            return Err(Fault::Malformed("a broken header"));
        };
        let value = value.trim_matches([' ', '\t']);
        match name.len() {
            14 if name.eq_ignore_ascii_case("content-length") && length != Length::Chunked => {
                let exact = value.parse().ok().filter(|exact| *exact <= MAX_BODY);
                length = Length::Exact(exact.ok_or(Fault::Malformed("an unknown length"))?);
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                if !value.eq_ignore_ascii_case("chunked") {
                    return Err(Fault::Malformed("an unknown encoding"));
                }
                length = Length::Chunked;
            }
            10 if name.eq_ignore_ascii_case("connection") => {
                let says = |word: &str| value.split(',').any(|one| one.trim().eq_ignore_ascii_case(word));
                keeps = (keeps || says("keep-alive")) && !says("close");
            }
            11 if name.eq_ignore_ascii_case("retry-after") => retry_after = Some(value.to_owned()),
            _ => {}
        }
    }
    if matches!(status, 100..200 | 204 | 304) {
        length = Length::Exact(0);
    }
    Ok(Head { status, length, retry_after, keeps })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that comes of a text, whether it comes as a whole or byte by byte.
    fn read(text: &str, ended: bool) -> Result<Option<(Answer, bool)>, Fault> {
        let mut whole = Incoming::default();
        whole.buffer.extend_from_slice(text.as_bytes());
        let expected = whole.advance(ended);
        let mut slow = Incoming::default();
        let mut outcome = Ok(None);
        for (index, byte) in text.bytes().enumerate() {
            slow.buffer.extend_from_slice(&[byte]);
            outcome = slow.advance(ended && index + 1 == text.len());
            if !matches!(outcome, Ok(None)) && index + 1 < text.len() {
                // The rest was not asked for.
                assert!(expected.is_err() || matches!(&expected, Ok(Some((_, false)))), "{text:?}");
                return expected;
            }
        }
        assert_eq!(outcome, expected, "{text:?}");
        expected
    }

    fn answer(status: u16, body: &'static str) -> Answer {
        Answer { status, retry_after: None, body: Bytes::from_static(body.as_bytes()) }
    }

    #[test]
    fn bodies_end_where_they_should() {
        for (text, body, reusable) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody", "body", true),
            ("HTTP/1.1 200 OK\r\ncontent-length:0\r\n\r\n", "", true),
            (
                "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nbod\r\n1;x=y\r\ny\r\n0\r\n\r\n",
                "body",
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nA: b\r\nC: d\r\n\r\n",
                "body",
                true,
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n0\r\n\r\n", "", true),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n.", ".", true),
            ("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n.", ".", false),
            ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n.", ".", false),
            ("HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\n.", ".", true),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n.unasked", ".", false),
        ] {
            assert_eq!(read(text, false), Ok(Some((answer(200, body), reusable))), "{text:?}");
        }
        assert_eq!(read("HTTP/1.1 200 OK\r\n\r\nbody", true), Ok(Some((answer(200, "body"), false))));
        assert_eq!(read("HTTP/1.1 204 No Content\r\n\r\n", false), Ok(Some((answer(204, ""), true))));
    }

    #[test]
    fn refusals_say_when_to_come_back() {
        let text = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n";
        let Ok(Some((answer, true))) = read(text, false) else { panic!() };
        assert_eq!((answer.status, answer.retry_after.as_deref()), (429, Some("5")));
    }

    #[test]
    fn what_is_cut_is_no_answer() {
        for text in [
            "",
            "HTTP/1.1 200",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbod",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n",
        ] {
            let mut incoming = Incoming::default();
            incoming.buffer.extend_from_slice(text.as_bytes());
            assert_eq!(incoming.advance(false), Ok(None), "{text:?}");
            assert_eq!(incoming.advance(true), Err(Fault::Cut), "{text:?}");
        }
    }

    #[test]
    fn what_is_not_http_is_refused() {
        for text in [
            "SSH-2.0-x\r\n\r\n",
            "HTTP/2 200\r\n\r\n",
            "HTTP/1.1 abc\r\n\r\n",
            "HTTP/1.1 200 OK\r\nbroken\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        ] {
            assert!(matches!(read(text, false), Err(Fault::Malformed(_))), "{text:?}");
        }
        let mut endless = Incoming::default();
        endless.buffer.extend_from_slice(&vec![b'x'; MAX_HEAD + 1]);
        assert!(matches!(endless.advance(false), Err(Fault::Malformed(_))));
    }
}
