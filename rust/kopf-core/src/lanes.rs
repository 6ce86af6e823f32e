//! How many requests there may be at once: a few; more of them while answers take long because the server is far away, not
//! because it is busy.
//!
//! A state without a clock: who counts the seconds, and who waits, is not known here.

/// How many there are to begin with. Each holds a connection of about 100 kB, and a server that is near queues them anyway.
pub const FEW: usize = 24;
/// How many there may become.
pub const MANY: usize = 100;
/// From so many seconds on, it is the way that takes them, and lanes stand empty for most of the time.
const SLOW: f64 = 0.05;
/// Answers that take so many times what they need at least, are waiting for something in the server.
const CROWDED: f64 = 2.0;

/// What is to be done with the lanes after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// One more.
    Widen,
    /// As they are.
    Keep,
    /// One less: that of this answer.
    Narrow,
}

/// How many lanes there are, and what is known of the way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lanes {
    width: usize,
    shortest: f64,
}

impl Default for Lanes {
    fn default() -> Self {
        Self { width: FEW, shortest: f64::INFINITY }
    }
}

impl Lanes {
    /// How many there are.
    pub fn width(&self) -> usize {
        self.width
    }

    /// An answer took so many seconds; others were waiting for a lane meanwhile, or not.
    pub fn answered(&mut self, seconds: f64, is_awaited: bool) -> Step {
        if !is_awaited {
            // The time when little is to do is the best that can be had, now that routes and servers may have changed.
            if self.width == FEW {
                self.shortest = seconds;
            }
            return self.narrow();
        }
        self.shortest = self.shortest.min(seconds);
        let is_crowded = seconds > self.shortest * CROWDED;
        if seconds < SLOW || is_crowded {
            self.narrow()
        } else if self.width < MANY {
            self.width += 1;
            Step::Widen
        } else {
            Step::Keep
        }
    }

    /// There was no answer, or the server has asked for a pause.
    pub fn refused(&mut self) -> Step {
        self.narrow()
    }

    fn narrow(&mut self) -> Step {
        if self.width == FEW {
            return Step::Keep;
        }
        self.width -= 1;
        Step::Narrow
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The width after so many rounds, in each of which all lanes are answered after so many seconds.
    fn after(lanes: &mut Lanes, rounds: usize, is_awaited: bool, seconds: impl Fn(usize) -> f64) -> usize {
        for _ in 0..rounds {
            for _ in 0..lanes.width() {
                lanes.answered(seconds(lanes.width()), is_awaited);
            }
        }
        lanes.width()
    }

    #[test]
    fn a_server_that_is_far_away_gets_more_lanes_within_a_few_rounds() {
        let mut lanes = Lanes::default();
        let widths: Vec<usize> = (0..4).map(|_| after(&mut lanes, 1, true, |_| 0.1)).collect();
        assert_eq!(widths, [48, 96, MANY, MANY]);
    }

    #[test]
    fn nobody_needs_more_lanes_if_nobody_waits() {
        assert_eq!(after(&mut Lanes::default(), 5, false, |_| 0.1), FEW);
    }

    #[test]
    fn a_server_that_is_near_keeps_few() {
        assert_eq!(after(&mut Lanes::default(), 5, true, |_| 0.01), FEW);
    }

    #[test]
    fn a_near_server_that_stalls_gets_no_more() {
        let mut lanes = Lanes::default();
        after(&mut lanes, 1, true, |_| 0.005);
        assert_eq!(after(&mut lanes, 3, true, |_| 2.0), FEW);
    }

    #[test]
    fn a_server_that_takes_the_longer_the_more_it_is_asked_is_not_asked_more_and_more() {
        let mut lanes = Lanes::default();
        let at_its_limit = |width: usize| {
            let crowd = u32::try_from(width.saturating_sub(30)).unwrap();
            0.06 + f64::from(crowd) * 0.01
        };
        let width = after(&mut lanes, 20, true, at_its_limit);
        assert!((FEW..=40).contains(&width), "{width}");
    }

    #[test]
    fn lanes_go_when_the_way_is_short_or_nobody_waits_or_the_server_refuses() {
        let ends: [fn(&mut Lanes) -> Step; 3] =
            [|lanes| lanes.answered(0.01, true), |lanes| lanes.answered(0.1, false), Lanes::refused];
        for end in ends {
            let mut lanes = Lanes::default();
            assert_eq!(after(&mut lanes, 4, true, |_| 0.1), MANY);
            assert_eq!((0..MANY).filter(|_| end(&mut lanes) == Step::Narrow).count(), MANY - FEW);
            assert_eq!(lanes.width(), FEW);
        }
    }

    #[test]
    fn a_way_that_has_become_longer_is_known_when_there_was_little_to_do() {
        let mut lanes = Lanes::default();
        after(&mut lanes, 1, true, |_| 0.02);
        assert_eq!(after(&mut lanes, 1, true, |_| 0.2), FEW);
        lanes.answered(0.2, false);
        assert_eq!(after(&mut lanes, 1, true, |_| 0.2), 2 * FEW);
    }

    proptest! {
        #[test]
        fn there_are_never_too_few_or_too_many_and_each_step_is_told(
            answers in proptest::collection::vec((0.0_f64..10.0, any::<bool>(), any::<bool>()), 0..500)
        ) {
            let (mut lanes, mut told) = (Lanes::default(), FEW);
            for (seconds, is_awaited, is_refused) in answers {
                let step = if is_refused { lanes.refused() } else { lanes.answered(seconds, is_awaited) };
                match step {
                    Step::Widen => told += 1,
                    Step::Keep => {}
                    Step::Narrow => told -= 1,
                }
                prop_assert_eq!(lanes.width(), told);
                prop_assert!((FEW..=MANY).contains(&told));
            }
        }
    }
}
