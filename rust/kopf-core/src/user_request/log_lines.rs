//! The lines of a container's log, which continue after a broken connection: each line once.
//!
//! The log is requested with times. After a break, it is requested again from the time of the last line.

use jiff::Timestamp;

/// The longest line in bytes: longer ones are divided.
const MAX_LINE: usize = 1 << 20;

/// The state of a log that is read.
#[derive(Debug)]
pub struct LogLines {
    /// Whether the times are a part of the lines.
    with_times: bool,
    rest: Vec<u8>,
    /// The time of the last line, and the number of lines with this time.
    last: Option<(Timestamp, usize)>,
    /// After a break: the number of lines with the last time that are repeated.
    repeated: usize,
    is_resumed: bool,
}

impl LogLines {
    /// The start of a log. `with_times` is whether the times are a part of the lines.
    pub fn new(with_times: bool) -> Self {
        Self { with_times, rest: vec![], last: None, repeated: 0, is_resumed: false }
    }

    /// The complete lines after these bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<String> {
        self.rest.extend_from_slice(bytes);
        let mut lines = vec![];
        let mut start = 0;
        let rest = std::mem::take(&mut self.rest);
        while let Some(length) = rest[start..].iter().position(|byte| *byte == b'\n') {
            lines.extend(self.line(&rest[start..start + length]));
            start += length + 1;
        }
        self.rest = rest[start..].to_vec();
        if self.rest.len() > MAX_LINE {
            lines.extend(self.finish());
        }
        lines
    }

    /// The last line at the end of the log, if it has no line end.
    pub fn finish(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.rest);
        if rest.is_empty() { None } else { self.line(&rest) }
    }

    /// Records that the connection is broken. Returns the time from which on the log is to be requested; none if there was no line.
    pub fn resume(&mut self) -> Option<Timestamp> {
        self.rest.clear();
        let (time, count) = self.last?;
        self.repeated = count;
        self.is_resumed = true;
        Some(time)
    }

    /// A line; none if it was delivered before.
    fn line(&mut self, bytes: &[u8]) -> Option<String> {
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let text = String::from_utf8_lossy(bytes);
        let (prefix, content) = text.split_once(' ').unwrap_or((&text, ""));
        // Messages of the kubelet itself have no time.
        let Ok(time) = prefix.parse::<Timestamp>() else { return Some(text.into_owned()) };
        match &mut self.last {
            Some((last, _)) if self.is_resumed && time < *last => return None,
            Some((last, count)) if time == *last => {
                if self.repeated > 0 {
                    self.repeated -= 1;
                    self.is_resumed = self.repeated > 0;
                    return None;
                }
                *count += 1;
            }
            last => *last = Some((time, 1)),
        }
        self.is_resumed = false;
        Some(if self.with_times { text.into_owned() } else { content.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "2026-01-01T00:00:00.5Z a\n";
    const B: &str = "2026-01-01T00:00:00.5Z b\n";
    const C: &str = "2026-01-01T01:00:01.25+01:00 c c\n";

    #[test]
    fn lines_are_put_together_from_pieces() {
        let mut lines = LogLines::new(false);
        assert_eq!(lines.feed(&A.as_bytes()[..10]), [""; 0]);
        assert_eq!(lines.feed(&A.as_bytes()[10..]), ["a"]);
        assert_eq!(lines.feed(b"failed to read\r\n2026-01-01T00:00:03Z end"), ["failed to read"]);
        assert_eq!((lines.finish().as_deref(), lines.finish()), (Some("end"), None));
        assert_eq!(LogLines::new(true).feed(A.as_bytes()), [A.trim_end()]);
        assert_eq!(LogLines::new(false).feed(b"2026-01-01T00:00:00Z \n"), [""], "an empty line");
    }

    #[test]
    fn after_a_break_each_line_is_delivered_once() {
        let mut lines = LogLines::new(false);
        assert_eq!(lines.resume(), None);
        let all = [A, B, B, C].concat();
        // Interrupted within the second line with the same time.
        assert_eq!(lines.feed(&all.as_bytes()[..A.len() + B.len() + 3]), ["a", "b"]);
        assert_eq!(lines.resume().map(|time| time.to_string()).as_deref(), Some("2026-01-01T00:00:00.5Z"));
        let earlier = "2026-01-01T00:00:00.1Z earlier in the same second\n";
        assert_eq!(lines.feed(&[earlier, &all].concat().into_bytes()), ["b", "c c"]);
        assert!(lines.resume().is_some());
        assert_eq!(lines.feed(C.as_bytes()), [""; 0]);
        assert_eq!(lines.feed(A.as_bytes()), ["a"], "the clock of the node may go back");
    }

    #[test]
    fn long_lines_are_divided() {
        let mut lines = LogLines::new(false);
        let found = lines.feed(&vec![b'x'; MAX_LINE + 1]);
        assert_eq!(found.iter().map(String::len).collect::<Vec<_>>(), [MAX_LINE + 1]);
    }
}
