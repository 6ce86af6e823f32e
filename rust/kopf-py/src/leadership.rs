//! `Election`: the part of an operator in a leader election, and `Term`, one term as handlers get it.

use std::sync::Arc;

use kopf_engine::leadership::Replica;
use kopf_engine::operator::Operator;
use pyo3::prelude::*;

/// The part of an operator in a leader election.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct Election {
    operator: Operator,
}

/// One term of this replica.
#[pyclass(frozen, module = "kopf._kopf")]
pub(crate) struct Term {
    replica: Arc<Replica>,
    #[pyo3(get)]
    number: i64,
}

impl Election {
    /// None without leader election.
    pub(crate) fn of(operator: &Operator) -> Option<Self> {
        operator.has_leader_election().then(|| Self { operator: operator.clone() })
    }
}

#[pymethods]
impl Election {
    /// Whether the call of a handler may begin; if not, the rejected call is counted. Callable in any thread.
    fn admits_call(&self) -> bool {
        self.operator.replica().is_some_and(|replica| replica.admits_call())
    }

    /// The present term; none if this replica does not lead.
    fn term(&self) -> Option<Term> {
        let replica = self.operator.replica()?;
        let number = replica.term()?;
        Some(Term { replica, number })
    }
}

#[pymethods]
impl Term {
    /// The name of the Lease.
    #[getter]
    fn name(&self) -> &str {
        self.replica.lease().1
    }

    /// The namespace of the Lease.
    #[getter]
    fn namespace(&self) -> &str {
        self.replica.lease().0
    }

    /// The identity of this process in the Lease.
    #[getter]
    fn identity(&self) -> &str {
        self.replica.identity()
    }

    /// The seconds until the term ends if the lease is not renewed; none if it has ended. Callable in any thread.
    fn expires_in(&self) -> Option<f64> {
        self.replica.expires_in(self.number)
    }
}
