//! Splitting of a response body, received in chunks, into lines. Their content is not interpreted.

use bytes::Bytes;

/// Assembles lines from the chunks of a response body.
#[derive(Default)]
pub(crate) struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Bytes of the incomplete last line.
    pub(crate) fn pending(&self) -> usize {
        self.rest.len()
    }

    /// Passes complete lines to the function until it returns true.
    pub(crate) fn feed<E>(
        &mut self,
        data: &Bytes,
        mut each: impl FnMut(&[u8]) -> Result<bool, E>,
    ) -> Result<bool, E> {
        let mut data = &data[..];
        while let Some(end) = memchr::memchr(b'\n', data) {
            let (head, tail) = (&data[..end], &data[end + 1..]);
            data = tail;
            let enough = if self.rest.is_empty() {
                !head.trim_ascii().is_empty() && each(head)?
            } else {
                self.rest.extend_from_slice(head);
                let line = std::mem::take(&mut self.rest);
                !line.trim_ascii().is_empty() && each(&line)?
            };
            if enough {
                return Ok(true);
            }
        }
        self.rest.extend_from_slice(data);
        Ok(false)
    }

    /// Passes the last line, which has no line end; returns what the function returns. A line that was cut off is not a record and
    /// is dropped: the watch continues from the last version.
    pub(super) fn rest<E>(&mut self, mut each: impl FnMut(&[u8]) -> Result<bool, E>) -> Result<bool, E> {
        let line = std::mem::take(&mut self.rest);
        if line.trim_ascii().ends_with(b"}") && serde_json::from_slice::<serde::de::IgnoredAny>(&line).is_ok()
        {
            return each(&line);
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(pieces: &[&'static [u8]]) -> Vec<String> {
        let mut lines = Lines::default();
        let mut seen = vec![];
        let mut each = |line: &[u8]| {
            seen.push(String::from_utf8_lossy(line).into_owned());
            Ok::<_, ()>(false)
        };
        for piece in pieces {
            assert_eq!(lines.feed(&Bytes::from_static(piece), &mut each), Ok(false));
        }
        assert_eq!(lines.rest(&mut each), Ok(false));
        seen
    }

    #[test]
    fn lines_are_put_together_from_pieces() {
        assert_eq!(
            lines_of(&[b"{\"a\":1}\n{\"b\"", b":", b"2}\n\n{\"c\":3}\n"]),
            ["{\"a\":1}", "{\"b\":2}", "{\"c\":3}"]
        );
    }

    // contract: engine 1.8
    #[test]
    fn a_whole_record_without_an_end_of_line_counts_and_a_cut_one_does_not() {
        assert_eq!(lines_of(&[b"{\"a\":1}"]), ["{\"a\":1}"]);
        assert_eq!(lines_of(&[b"{\"a\":{\"b\":1}"]), Vec::<String>::new());
    }

    #[test]
    fn lines_stop_when_it_is_enough() {
        let mut lines = Lines::default();
        let enough = lines.feed(&Bytes::from_static(b"{}\n{}\n"), |_| Ok::<_, ()>(true));
        assert_eq!(enough, Ok(true));
    }
}
