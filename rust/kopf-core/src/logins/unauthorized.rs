//! Responses and credentials: which statuses accept or reject those of the request, and what follows a 401.

/// A server's reaction to the credentials of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It accepts them, although it may reject the request.
    Accepted,
    /// It rejects them.
    Rejected,
    /// Unknown: a server that fails, or a load balancer without a server, may not have checked them.
    Unknown,
}

impl Verdict {
    /// The meaning of a response with this status.
    pub fn of_status(status: u16) -> Self {
        match status {
            401 => Self::Rejected,
            500.. => Self::Unknown,
            _ => Self::Accepted,
        }
    }
}

/// The reaction to a response with the status 401, as the caller of the request chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnauthorized {
    /// It is an error like others.
    Fail,
    /// The credentials are replaced.
    Replace,
    /// The credentials are replaced if the API server itself rejects them. It forwards some requests to aggregated APIs, kubelets,
    /// and services, whose 401 concerns only this request.
    Verify,
}

/// What follows a response with the status 401.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterUnauthorized {
    /// The response is the error of the request.
    Fail,
    /// The request is sent again with other credentials.
    Replace,
    /// The API server itself gets a request with these credentials. They are replaced only if it rejects them.
    Verify,
}

impl OnUnauthorized {
    /// What follows. `is_in_use` is whether the rejected credentials are still in use: if another request has replaced them, this one
    /// is sent with the new ones.
    pub fn next(self, is_in_use: bool) -> AfterUnauthorized {
        match self {
            Self::Fail => AfterUnauthorized::Fail,
            Self::Verify if is_in_use => AfterUnauthorized::Verify,
            Self::Replace | Self::Verify => AfterUnauthorized::Replace,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_accept_or_reject_credentials_unless_the_server_fails() {
        let table = [
            (200, Verdict::Accepted),
            (304, Verdict::Accepted),
            (400, Verdict::Accepted),
            (401, Verdict::Rejected),
            (403, Verdict::Accepted),
            (404, Verdict::Accepted),
            (409, Verdict::Accepted),
            (422, Verdict::Accepted),
            (429, Verdict::Accepted),
            (500, Verdict::Unknown),
            (502, Verdict::Unknown),
            (503, Verdict::Unknown),
            (504, Verdict::Unknown),
        ];
        for (status, expected) in table {
            assert_eq!(Verdict::of_status(status), expected, "{status}");
        }
    }

    #[test]
    fn credentials_in_use_are_verified_before_they_are_replaced() {
        use AfterUnauthorized::{Fail, Replace, Verify};
        let table = [
            (OnUnauthorized::Fail, true, Fail),
            (OnUnauthorized::Fail, false, Fail),
            (OnUnauthorized::Replace, true, Replace),
            (OnUnauthorized::Replace, false, Replace),
            (OnUnauthorized::Verify, true, Verify),
            (OnUnauthorized::Verify, false, Replace),
        ];
        for (reaction, is_in_use, expected) in table {
            assert_eq!(reaction.next(is_in_use), expected, "{reaction:?} {is_in_use}");
        }
    }
}
