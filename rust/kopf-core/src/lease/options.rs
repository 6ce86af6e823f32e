//! The durations of an election, and whether they fit together.

use serde::Deserialize;

/// The longest timeout of a request to the Lease, in seconds.
const MAX_TIMEOUT: f64 = 5.0;

/// The ratio of `renew_deadline` and `retry_period` that must be exceeded, as in client-go.
const JITTER_FACTOR: f64 = 1.2;

/// The options of an election. Durations are in seconds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct Options {
    /// How long other replicas respect a record after its last change. A whole number.
    pub lease_duration: f64,
    /// How long a leader acts after the last acknowledged renewal was sent.
    pub renew_deadline: f64,
    /// The interval of renewals, and of reads if the Lease is not watched.
    pub retry_period: f64,
    /// How long cancelled coroutines may take to end when the term is lost.
    pub loss_grace: f64,
    /// Whether a candidate that is not synced leaves the lease to others. False if standbys do not keep up at all.
    pub warm: bool,
}

/// What follows the loss of the lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnLost {
    /// The replica stands by again.
    #[default]
    Standby,
    /// The operator ends with an error.
    Exit,
}

/// The leader election of an operator.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LeaderElection {
    /// The name of the Lease.
    pub name: String,
    /// The namespace of the Lease; that of the credentials if none.
    pub namespace: Option<String>,
    /// The identity of this process in the Lease.
    pub identity: String,
    /// The durations.
    pub options: Options,
    /// Whether the lease is released at the exit. Otherwise, it expires.
    pub release: bool,
    /// Whether patches contain the resource version of the object that they were decided for.
    pub preconditions: bool,
    /// What follows the loss of the lease.
    #[serde(default)]
    pub on_lost: OnLost,
}

impl Default for Options {
    fn default() -> Self {
        Self { lease_duration: 15.0, renew_deadline: 10.0, retry_period: 2.0, loss_grace: 3.0, warm: true }
    }
}

impl Options {
    /// Checks that the durations exclude two leaders at the same time.
    ///
    /// # Errors
    /// A message for the user, with the names of the settings.
    pub fn check(&self) -> Result<(), String> {
        let Self { lease_duration, renew_deadline, retry_period, loss_grace, .. } = *self;
        if lease_duration.fract() != 0.0 {
            return Err(format!("lease_duration must be a whole number of seconds, not {lease_duration}."));
        }
        if !(retry_period > 0.0 && loss_grace >= 0.0) {
            return Err("retry_period must be positive, and loss_grace must not be negative.".to_owned());
        }
        let least = renew_deadline + loss_grace;
        if !(lease_duration > least && lease_duration.is_finite()) {
            return Err(format!(
                "lease_duration ({lease_duration}) must exceed renew_deadline + loss_grace ({least})."
            ));
        }
        let least = JITTER_FACTOR * retry_period;
        if renew_deadline > least {
            return Ok(());
        }
        Err(format!(
            "renew_deadline ({renew_deadline}) must exceed {JITTER_FACTOR} times the retry_period ({least})."
        ))
    }

    /// The timeout of each request to the Lease in seconds: two attempts fit into the deadline.
    pub fn request_timeout(&self) -> f64 {
        (self.renew_deadline / 2.0).min(MAX_TIMEOUT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_client_go_and_are_valid() {
        let Options { lease_duration, renew_deadline, retry_period, .. } = Options::default();
        assert_eq!((lease_duration, renew_deadline, retry_period), (15.0, 10.0, 2.0));
        assert_eq!(Options::default().check(), Ok(()));
    }

    #[test]
    fn durations_that_permit_two_leaders_are_rejected() {
        let defaults = Options::default;
        for (options, part) in [
            (Options { lease_duration: 15.5, ..defaults() }, "whole number"),
            (Options { lease_duration: 13.0, ..defaults() }, "must exceed renew_deadline + loss_grace (13)"),
            (Options { lease_duration: f64::NAN, ..defaults() }, "lease_duration"),
            (Options { lease_duration: f64::INFINITY, ..defaults() }, "lease_duration"),
            (Options { renew_deadline: f64::NAN, ..defaults() }, "must exceed"),
            (Options { renew_deadline: 2.4, ..defaults() }, "renew_deadline (2.4)"),
            (Options { retry_period: 0.0, ..defaults() }, "retry_period must be positive"),
            (Options { loss_grace: -1.0, ..defaults() }, "loss_grace must not be negative"),
        ] {
            let error = options.check().unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(Options { lease_duration: 14.0, renew_deadline: 10.9, ..defaults() }.check(), Ok(()));
    }

    #[test]
    fn two_requests_fit_into_the_deadline() {
        let timeout = |renew_deadline| Options { renew_deadline, ..Options::default() }.request_timeout();
        assert_eq!((timeout(4.0), timeout(10.0), timeout(60.0)), (2.0, 5.0, 5.0));
    }
}
