//! The lifecycles: the selection among the handlers that are due.

use serde::{Deserialize, Serialize};

/// The selection of handlers for one cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// All handlers, in their order.
    AllAtOnce,
    /// The first handler.
    OneByOne,
    /// A random handler.
    Randomized,
    /// All handlers, in a random order.
    Shuffled,
    /// The handler with the fewest attempts; the first one of several.
    #[default]
    Asap,
    /// A function of the user, called by the host.
    Custom,
}

impl Lifecycle {
    /// The selected handlers among the due ones, which are pairs of a handler and its number of attempts.
    ///
    /// `entropy` is a random number. For `Custom`, all handlers are returned.
    pub fn choose(self, due: &[(usize, u64)], entropy: u64) -> Vec<usize> {
        let all = || due.iter().map(|(handler, _)| *handler);
        match self {
            Self::AllAtOnce | Self::Custom => all().collect(),
            Self::OneByOne => all().take(1).collect(),
            Self::Randomized => {
                let mut chance = SplitMix64(entropy);
                all().nth(chance.below(due.len())).into_iter().collect()
            }
            Self::Shuffled => {
                let mut chance = SplitMix64(entropy);
                let mut shuffled: Vec<usize> = all().collect();
                for last in (1..shuffled.len()).rev() {
                    shuffled.swap(last, chance.below(last + 1));
                }
                shuffled
            }
            // `min_by_key` returns the first of several minima.
            Self::Asap => {
                due.iter().min_by_key(|(_, retries)| *retries).map(|(h, _)| *h).into_iter().collect()
            }
        }
    }
}

/// The `SplitMix64` generator of pseudo-random numbers.
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below the bound; zero if the bound is zero.
    #[expect(clippy::cast_possible_truncation, reason = "the result is below a usize")]
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % (bound.max(1) as u64)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAKENED: [(usize, u64); 4] = [(4, 2), (5, 1), (6, 1), (7, 3)];

    // contract: engine 6.4
    #[test]
    fn deterministic_lifecycles() {
        assert_eq!(Lifecycle::AllAtOnce.choose(&AWAKENED, 0), [4, 5, 6, 7]);
        assert_eq!(Lifecycle::OneByOne.choose(&AWAKENED, 0), [4]);
        assert_eq!(Lifecycle::Asap.choose(&AWAKENED, 0), [5]);
    }

    // contract: engine 6.4
    #[test]
    fn random_lifecycles() {
        let mut seen = std::collections::BTreeSet::new();
        for entropy in 0..100 {
            let one = Lifecycle::Randomized.choose(&AWAKENED, entropy);
            assert_eq!(one.len(), 1);
            seen.insert(one[0]);
            let mut all = Lifecycle::Shuffled.choose(&AWAKENED, entropy);
            all.sort_unstable();
            assert_eq!(all, [4, 5, 6, 7]);
        }
        assert_eq!(seen.len(), 4);
    }

    #[test]
    fn without_due_handlers_none_is_selected() {
        for lifecycle in [Lifecycle::AllAtOnce, Lifecycle::Randomized, Lifecycle::Shuffled, Lifecycle::Asap] {
            assert!(lifecycle.choose(&[], 1).is_empty());
        }
    }
}
