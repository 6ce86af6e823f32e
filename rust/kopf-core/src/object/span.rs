//! Ranges in an object's text.

use std::ops::Range;

/// Marks offsets into the names kept aside, until their position in the final text is known.
pub(super) const ASIDE: u32 = 1 << 31;

/// A range in the text, in bytes. An end of zero means "absent", because no part of an object ends there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl Span {
    /// A range whose offsets are known to fit into `u32`.
    pub(super) fn new(start: usize, end: usize) -> Self {
        Self { start: Self::offset(start), end: Self::offset(end) }
    }

    /// An offset that is known to fit into `u32`.
    pub(super) fn offset(at: usize) -> u32 {
        u32::try_from(at).unwrap_or(u32::MAX)
    }

    /// The range without the quotes.
    pub(super) fn inner(self) -> Self {
        Self { start: self.start + 1, end: self.end - 1 }
    }

    /// The range after its text was moved: `to` maps the start.
    pub(super) fn moved(self, to: impl Fn(u32) -> u32) -> Self {
        let Self { start, end } = self;
        if self.is_present() { Self { start: to(start), end: to(start) + (end - start) } } else { self }
    }

    pub(super) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    pub(super) fn is_present(self) -> bool {
        self.end != 0
    }

    /// The range in the final text: `by` bytes were inserted at the beginning, and names kept aside start at `length`.
    pub(super) fn settled(self, by: u32, length: u32) -> Self {
        let settle = |at: u32| if at & ASIDE == 0 { at + by } else { (at ^ ASIDE) + length };
        if self.is_present() { Self { start: settle(self.start), end: settle(self.end) } } else { self }
    }
}
