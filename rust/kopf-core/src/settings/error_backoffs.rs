//! The delays between the attempts of a request: a list, or values drawn from an iterable of the user.

use serde::Deserialize;

use crate::backoff::Backoff;

/// Seconds between attempts.
pub type Backoffs = Vec<f64>;

/// Seconds between the attempts of one request: the number of delays is the number of retries.
///
/// An iterable without a length is iterated over for each request in Kopf, and can be endless. Python draws several
/// series of its values in advance; requests use them in turn, so that their random delays differ.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(untagged)]
pub enum ErrorBackoffs {
    /// The same delays for all requests.
    Fixed(Backoffs),
    /// Values of an iterable without a length.
    Drawn {
        /// Each request uses the next series, in turn.
        series: Vec<Backoffs>,
        /// Whether the iterable has more values than were drawn: requests are retried without a limit.
        endless: bool,
    },
}

impl ErrorBackoffs {
    /// The retry policy of the request with this number.
    pub fn policy(&self, request: usize) -> Backoff<'_> {
        match self {
            Self::Fixed(delays) => Backoff::limited(delays),
            Self::Drawn { series, endless } => Backoff::series(series, request, *endless),
        }
    }
}

impl From<Backoffs> for ErrorBackoffs {
    fn from(delays: Backoffs) -> Self {
        Self::Fixed(delays)
    }
}
