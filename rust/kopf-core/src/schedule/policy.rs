//! The settings of a reconciler's schedule: back-off, debounce, spacing, resync, limits.

use crate::handler::reconciling::{DeclaredDelays, Reconciling};

/// The smallest spacing of starts during a failure series whose delays are a number or a function, in seconds (A4).
const FAILURE_SPACING: f64 = 1.0;

/// The delays of a failure series: of `kopf.Backoff`.
///
/// Unlike [`crate::backoff::Backoff`], the exponent counts elapsed delays, and not failures (A7).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GrowingDelays {
    /// The first delay in seconds.
    pub first: f64,
    /// The growth from one delay to the next one.
    pub factor: f64,
    /// The longest delay in seconds, before jitter.
    pub most: f64,
    /// The share by which random numbers make a delay longer.
    pub jitter: f64,
}

impl Default for GrowingDelays {
    fn default() -> Self {
        Self { first: 1.0, factor: 2.0, most: 300.0, jitter: 0.2 }
    }
}

impl GrowingDelays {
    /// The delay in seconds after `elapsed` delays have fully elapsed. `chance` is a random number from 0 to 1.
    pub fn delay(&self, elapsed: u32, chance: f64) -> f64 {
        let exponent = i32::try_from(elapsed).unwrap_or(i32::MAX);
        let grown = sane(self.first) * sane(self.factor).powi(exponent);
        // `0 * inf` is not a number.
        let capped = if grown.is_nan() { 0.0 } else { grown.min(sane(self.most)) };
        capped * (1.0 + sane(self.jitter) * chance.clamp(0.0, 1.0))
    }
}

/// The argument `backoff` of a reconciler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Delays {
    /// Growing delays.
    Growing(GrowingDelays),
    /// The same delay each time, in seconds.
    Constant(f64),
    /// A function in Python: each failure comes with its delay.
    Computed,
}

impl Default for Delays {
    fn default() -> Self {
        Self::Growing(GrowingDelays::default())
    }
}

impl Delays {
    /// The delay of a failure that specifies none itself.
    pub(crate) fn delay(&self, elapsed: u32, chance: f64) -> f64 {
        match self {
            Self::Growing(delays) => delays.delay(elapsed, chance),
            Self::Constant(seconds) => sane(*seconds),
            Self::Computed => FAILURE_SPACING,
        }
    }

    /// The smallest time between two starts during a failure series (A4).
    pub(super) fn spacing(&self) -> f64 {
        match self {
            Self::Growing(delays) => sane(delays.first).min(FAILURE_SPACING),
            Self::Constant(_) | Self::Computed => FAILURE_SPACING,
        }
    }
}

/// The settings of the schedule of one reconciler. All times are in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SchedulePolicy {
    /// The delays of failures.
    pub delays: Delays,
    /// The window in which triggers of priority `changed` are merged; zero disables it.
    pub debounce: f64,
    /// The longest time from the first trigger to the start; by default, ten times `debounce`.
    pub debounce_limit: Option<f64>,
    /// The smallest time between two starts.
    pub min_interval: f64,
    /// The time from a success to the next reconciliation, if nothing else happens.
    pub resync: Option<f64>,
    /// The number of failures after which the reconciler gives up.
    pub retries: Option<u32>,
    /// The time since the first failure after which the reconciler gives up.
    pub timeout: Option<f64>,
}

impl From<&Reconciling> for SchedulePolicy {
    /// Without the limits, which are options of all handlers.
    fn from(options: &Reconciling) -> Self {
        let delays = match options.delays {
            DeclaredDelays::Growing { first, factor, most, jitter } => {
                Delays::Growing(GrowingDelays { first, factor, most, jitter })
            }
            DeclaredDelays::Constant(seconds) => Delays::Constant(seconds),
            DeclaredDelays::Computed => Delays::Computed,
        };
        Self {
            delays,
            debounce: options.debounce,
            debounce_limit: options.debounce_limit,
            min_interval: options.min_interval,
            resync: options.resync,
            retries: None,
            timeout: None,
        }
    }
}

impl SchedulePolicy {
    /// The longest time by which debouncing can postpone a start (A1).
    pub fn limit(&self) -> f64 {
        sane(self.debounce_limit.unwrap_or(self.debounce * 10.0))
    }

    /// The smallest time between two starts, in a failure series or outside of it (A4).
    pub(super) fn spacing(&self, is_failing: bool) -> f64 {
        let failing = if is_failing { self.delays.spacing() } else { 0.0 };
        sane(self.min_interval).max(failing)
    }
}

/// The seconds, with zero for negative and undefined ones.
pub(super) fn sane(seconds: f64) -> f64 {
    if seconds.is_nan() { 0.0 } else { seconds.max(0.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a7_delays_grow_up_to_the_longest_one() {
        let delays = GrowingDelays::default();
        let planned: Vec<_> = (0..10).map(|elapsed| delays.delay(elapsed, 0.0)).collect();
        assert_eq!(planned, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0]);
        assert_eq!([delays.delay(0, 1.0), delays.delay(u32::MAX, 7.0)].map(Some), [1.2, 360.0].map(Some));
        let odd = GrowingDelays { first: 0.0, factor: f64::INFINITY, most: 5.0, jitter: -1.0 };
        assert_eq!([odd.delay(0, 1.0), odd.delay(3, 1.0)].map(Some), [0.0, 0.0].map(Some));
    }

    #[test]
    fn a4_spacing_is_a_second_or_the_first_delay_if_that_is_less() {
        let growing = |first| Delays::Growing(GrowingDelays { first, ..GrowingDelays::default() });
        for (delays, expected) in
            [(growing(0.1), 0.1), (growing(5.0), 1.0), (Delays::Constant(0.1), 1.0), (Delays::Computed, 1.0)]
        {
            let policy = SchedulePolicy { delays, min_interval: 0.5, ..SchedulePolicy::default() };
            assert_eq!((policy.spacing(true), policy.spacing(false)), (f64::max(expected, 0.5), 0.5));
        }
    }

    #[test]
    fn a1_the_limit_is_ten_windows_by_default() {
        let policy = SchedulePolicy { debounce: 0.5, ..SchedulePolicy::default() };
        let shorter = SchedulePolicy { debounce_limit: Some(2.0), ..policy };
        assert_eq!([policy, shorter].map(|policy| Some(policy.limit())), [5.0, 2.0].map(Some));
    }
}
