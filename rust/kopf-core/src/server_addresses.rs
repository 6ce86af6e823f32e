//! The order of connection attempts to a server whose name has several addresses: "Happy Eyeballs", RFC 8305.
//!
//! Pure: the driver (`kopf-engine/src/client/happy_eyeballs.rs`) resolves the name, connects, and sleeps.

use std::net::SocketAddr;
use std::vec::IntoIter;

/// The delay in seconds before the next address is tried, too.
const ATTEMPT_DELAY: f64 = 0.25;

/// The addresses of a server that were not tried yet.
#[derive(Debug)]
pub struct UntriedAddresses(IntoIter<SocketAddr>);

impl UntriedAddresses {
    /// All addresses of the server, as its name was resolved. Their families alternate, beginning with that of the first address.
    pub fn new(addresses: Vec<SocketAddr>) -> Self {
        Self(alternating(addresses).into_iter())
    }

    /// The address of the next attempt, if there is one. It begins at once in the beginning and after each failure, otherwise after
    /// [`Self::delay`].
    pub fn next_attempt(&mut self) -> Option<SocketAddr> {
        self.0.next()
    }

    /// The seconds before the next attempt while no attempt has ended; none after the last one.
    pub fn delay(&self) -> Option<f64> {
        (self.0.len() > 0).then_some(ATTEMPT_DELAY)
    }
}

fn alternating(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let (count, is_ipv4) = (addresses.len(), addresses.first().is_some_and(SocketAddr::is_ipv4));
    let families: (Vec<_>, Vec<_>) = addresses.into_iter().partition(|one| one.is_ipv4() == is_ipv4);
    let (mut first, mut second) = (families.0.into_iter(), families.1.into_iter());
    let mut ordered = Vec::with_capacity(count);
    while ordered.len() < count {
        ordered.extend(first.next());
        ordered.extend(second.next());
    }
    ordered
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_families_of_the_addresses_alternate() {
        let given = addresses(&["[::1]:1", "[::2]:1", "[::3]:1", "1.1.1.1:1"]);
        assert_eq!(alternating(given), addresses(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "[::3]:1"]));
        let given = addresses(&["1.1.1.1:1", "2.2.2.2:1", "[::1]:1"]);
        assert_eq!(alternating(given), addresses(&["1.1.1.1:1", "[::1]:1", "2.2.2.2:1"]));
        assert!(alternating(vec![]).is_empty());
    }

    #[test]
    fn there_is_a_delay_unless_all_addresses_are_tried() {
        let mut untried = UntriedAddresses::new(addresses(&["1.1.1.1:1", "2.2.2.2:1"]));
        assert!(untried.next_attempt().is_some());
        assert_eq!(untried.delay(), Some(ATTEMPT_DELAY));
        assert!(untried.next_attempt().is_some());
        assert_eq!((untried.delay(), untried.next_attempt()), (None, None));
    }

    proptest! {
        /// Each address is tried once, and the first one first; the second attempt is of the other family if there is one.
        #[test]
        fn all_addresses_are_tried(families in proptest::collection::vec(any::<bool>(), 1..9)) {
            let given = families.iter().enumerate().map(|(number, is_ipv4)| {
                let port = u16::try_from(number).unwrap();
                if *is_ipv4 { SocketAddr::from(([127, 0, 0, 1], port)) } else { SocketAddr::from(([0_u16; 8], port)) }
            });
            let given: Vec<_> = given.collect();
            let mut untried = UntriedAddresses::new(given.clone());
            let mut tried: Vec<_> = std::iter::from_fn(|| untried.next_attempt()).collect();
            prop_assert_eq!(tried[0], given[0]);
            let has_both = families.contains(&true) && families.contains(&false);
            prop_assert!(!has_both || tried[0].is_ipv4() != tried[1].is_ipv4());
            tried.sort_by_key(SocketAddr::port);
            prop_assert_eq!(tried, given);
        }
    }
}
