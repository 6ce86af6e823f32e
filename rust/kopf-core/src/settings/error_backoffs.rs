//! The delays between the attempts of a request: a list, or values drawn from an iterable of the user.

use serde::Deserialize;

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
    /// The number of attempts of a request; `None` if it is not known in advance.
    pub fn attempts(&self) -> Option<usize> {
        match self {
            Self::Fixed(delays) => Some(delays.len() + 1),
            Self::Drawn { .. } => None,
        }
    }

    /// The delay after the attempt (counted from one) of the request with this number; `None` if it was the last one.
    ///
    /// After the drawn part of an endless series, the last values of all series follow in turn.
    pub fn delay(&self, request: usize, attempt: usize) -> Option<f64> {
        let position = attempt.saturating_sub(1);
        match self {
            Self::Fixed(delays) => delays.get(position).copied(),
            Self::Drawn { series, endless } => {
                let nth = |number: usize| series.get(number % series.len().max(1));
                let own = nth(request)?;
                let rest = || endless.then(|| nth(request.wrapping_add(position))?.last().copied()).flatten();
                own.get(position).copied().or_else(rest)
            }
        }
    }
}

impl From<Backoffs> for ErrorBackoffs {
    fn from(delays: Backoffs) -> Self {
        Self::Fixed(delays)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_backoffs_end_with_their_list() {
        let backoffs: ErrorBackoffs = serde_json::from_str("[1, 2.5]").unwrap();
        assert_eq!(backoffs.attempts(), Some(3));
        let delays: Vec<_> = (1..=3).map(|attempt| backoffs.delay(7, attempt)).collect();
        assert_eq!(delays, [Some(1.0), Some(2.5), None]);
        let none: ErrorBackoffs = serde_json::from_str("[]").unwrap();
        assert_eq!((none.attempts(), none.delay(0, 1)), (Some(1), None));
    }

    #[test]
    fn drawn_backoffs_differ_between_requests_and_may_have_no_end() {
        let text = r#"{"series": [[1, 2], [3, 4]], "endless": true}"#;
        let endless: ErrorBackoffs = serde_json::from_str(text).unwrap();
        assert_eq!(endless.attempts(), None);
        let delays =
            |request| (1..=5).filter_map(|attempt| endless.delay(request, attempt)).collect::<Vec<_>>();
        assert_eq!(delays(0), [1.0, 2.0, 2.0, 4.0, 2.0]);
        assert_eq!(delays(1), [3.0, 4.0, 4.0, 2.0, 4.0]);
        assert_eq!(delays(2), delays(0));
        assert_eq!(endless.delay(usize::MAX, usize::MAX), Some(4.0));

        let text = r#"{"series": [[1, 2], [3]], "endless": false}"#;
        let finite: ErrorBackoffs = serde_json::from_str(text).unwrap();
        assert_eq!((finite.delay(0, 2), finite.delay(0, 3)), (Some(2.0), None));
        assert_eq!((finite.delay(1, 1), finite.delay(1, 2)), (Some(3.0), None));

        let nothing: ErrorBackoffs = serde_json::from_str(r#"{"series": [[]], "endless": false}"#).unwrap();
        assert_eq!(nothing.delay(0, 1), None);
    }
}
