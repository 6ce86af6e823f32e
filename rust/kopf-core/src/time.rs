//! Moments in time.
use std::fmt;
/// Microseconds since the epoch, UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Timestamp(i64);
impl Timestamp {
    /// From microseconds.
    pub fn from_micros(micros: i64) -> Self {
        Self(micros)
    }
    /// To microseconds.
    pub fn micros(self) -> i64 {
        self.0
    }
    /// ISO-8601.
    pub fn parse(_text: &str) -> Option<Self> {
        todo!()
    }
    /// Later.
    pub fn plus(self, _seconds: f64) -> Self {
        todo!()
    }
    /// Elapsed.
    pub fn seconds_since(self, _earlier: Self) -> f64 {
        todo!()
    }
}
impl fmt::Display for Timestamp {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}
