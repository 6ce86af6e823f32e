//! Which of several credentials are used: by the sources of a login without login handlers, by the usable ones among those found, and by
//! priority for each request.

/// A source of credentials if no login handler is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The service account of the pod.
    ServiceAccount,
    /// The kubeconfig.
    Kubeconfig,
}

/// The sources that exist.
#[derive(Clone, Copy, Debug)]
pub struct Sources {
    /// The process runs in a pod with a service account.
    pub has_service_account: bool,
    /// There is a kubeconfig: at the default path, or named by `KUBECONFIG`, though it may not exist.
    pub has_kubeconfig: bool,
    /// A kubeconfig that `KUBECONFIG` names exists.
    pub has_named_kubeconfig: bool,
}

impl Sources {
    /// The sources that a login uses, in this order. A kubeconfig named by `KUBECONFIG` excludes the service account, as in kubectl;
    /// Kopf 1.45 prefers the service account.
    pub fn in_order(self, compat: bool) -> impl Iterator<Item = Source> {
        let uses_account = self.has_service_account && (compat || !self.has_named_kubeconfig);
        let account = uses_account.then_some(Source::ServiceAccount);
        account.into_iter().chain(self.has_kubeconfig.then_some(Source::Kubeconfig))
    }
}

/// The usable ones of the found credentials. Those with a failure are skipped, unless there are no others.
///
/// # Errors
/// The failure, if there are no others.
pub fn usable<T, E>(found: Vec<T>, failure: Option<E>) -> Result<Vec<T>, E> {
    match failure {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// Credentials that a request may use.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Those with a higher priority are used first.
    pub priority: i64,
    /// The end of validity, in seconds since the epoch.
    pub expiration: Option<f64>,
}

impl Candidate {
    /// Whether the credentials have not expired yet. The clock is read only if necessary.
    pub fn is_valid(self, now: impl FnOnce() -> f64) -> bool {
        self.expiration.is_none_or(|moment| moment > now())
    }
}

/// The position of the credentials for a request: the valid ones with the highest priority. Several of them take turns, to spread the
/// load; `turn` counts their requests. None if none are valid.
pub fn best(
    candidates: impl Iterator<Item = Candidate> + Clone,
    now: impl Fn() -> f64,
    turn: impl FnOnce() -> usize,
) -> Option<usize> {
    let valid = candidates.enumerate().filter(|(_, candidate)| candidate.is_valid(&now));
    let highest = valid.clone().map(|(_, candidate)| candidate.priority).max()?;
    let mut equals = valid.filter(|(_, candidate)| candidate.priority == highest);
    let count = equals.clone().count();
    let turn = if count > 1 { turn() % count } else { 0 };
    equals.nth(turn).map(|(position, _)| position)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::request_error::LoginError;

    #[test]
    fn a_kubeconfig_that_is_named_excludes_the_service_account() {
        use Source::{Kubeconfig, ServiceAccount};
        let both: &[Source] = &[ServiceAccount, Kubeconfig];
        let table: [([bool; 3], &[Source], &[Source]); 6] = [
            ([false, false, false], &[], &[]),
            ([true, false, false], &[ServiceAccount], &[ServiceAccount]),
            ([false, true, false], &[Kubeconfig], &[Kubeconfig]),
            ([true, true, false], both, both),
            ([true, true, true], &[Kubeconfig], both),
            ([false, true, true], &[Kubeconfig], &[Kubeconfig]),
        ];
        for (facts, expected, compatible) in table {
            let [has_service_account, has_kubeconfig, has_named_kubeconfig] = facts;
            let sources = Sources { has_service_account, has_kubeconfig, has_named_kubeconfig };
            assert_eq!(sources.in_order(false).collect::<Vec<_>>(), expected, "{facts:?}");
            assert_eq!(sources.in_order(true).collect::<Vec<_>>(), compatible, "{facts:?}");
        }
    }

    #[test]
    fn a_failure_counts_only_if_there_is_nothing_else() {
        let failure = || Some(LoginError("no such file".to_owned()));
        assert_eq!(usable(vec![1], failure()), Ok(vec![1]));
        assert_eq!(usable::<u8, LoginError>(vec![], None), Ok(vec![]));
        assert_eq!(usable::<u8, _>(vec![], failure()), Err(LoginError("no such file".to_owned())));
    }

    fn chosen(candidates: &[(i64, Option<f64>)], turn: usize) -> Option<usize> {
        let candidates = candidates
            .iter()
            .map(|(priority, expiration)| Candidate { priority: *priority, expiration: *expiration });
        best(candidates, || 100.0, || turn)
    }

    #[test]
    fn valid_credentials_of_the_highest_priority_take_turns() {
        let table: [(&[_], [Option<usize>; 3]); 5] = [
            (&[], [None; 3]),
            (&[(1, Some(100.0))], [None; 3]),
            (&[(1, None), (9, Some(99.0)), (5, Some(101.0))], [Some(2); 3]),
            (&[(9, None), (1, None), (9, None)], [Some(0), Some(2), Some(0)]),
            (&[(-1, None), (-2, None)], [Some(0); 3]),
        ];
        for (candidates, expected) in table {
            assert_eq!([0, 1, 2].map(|turn| chosen(candidates, turn)), expected, "{candidates:?}");
        }
    }

    proptest! {
        /// Valid credentials are found if there are any; none of the others that are valid has a higher priority.
        #[test]
        fn the_best_credentials_are_valid_and_no_others_have_a_higher_priority(
            candidates in proptest::collection::vec((any::<i64>(), proptest::option::of(0.0..200.0_f64)), 0..6),
            turn: usize,
        ) {
            let is_valid = |(_, expiration): &(i64, Option<f64>)| expiration.is_none_or(|moment| moment > 100.0);
            match chosen(&candidates, turn) {
                None => prop_assert!(!candidates.iter().any(is_valid)),
                Some(position) => {
                    let best = candidates[position];
                    prop_assert!(is_valid(&best));
                    prop_assert!(candidates.iter().filter(|one| is_valid(one)).all(|one| one.0 <= best.0));
                }
            }
        }
    }
}
