//! The id of a cause, which connects the log lines of one handling.

use blake2::digest::consts::U4;
use blake2::{Blake2s, Digest};

use crate::cause::Reason;
use crate::time::Timestamp;

/// One handling of an object: from the first selection of its change handlers until all of them have finished, over restarts of
/// the operator and changes of its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handling {
    /// The reason.
    pub reason: Reason,
    /// When it began: the earliest start in the progress of its handlers, which is kept on the object.
    pub began: Timestamp,
}

impl Handling {
    /// The id of the cause in logs: eight hexadecimal digits of a hash of the object's uid, the reason, and the beginning as the
    /// progress has it. So it is the same after a restart, and in another replica.
    pub fn cause_id(&self, uid: &str) -> String {
        let text = format!("{uid}/{}/{}", self.reason.as_str(), self.began);
        let hash: [u8; 4] = Blake2s::<U4>::digest(text).into();
        format!("{:08x}", u32::from_be_bytes(hash))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handling(reason: Reason, began: &str) -> Handling {
        Handling { reason, began: Timestamp::parse(began).unwrap() }
    }

    /// The expected value is that of `hashlib.blake2s(b"u-1/update/2026-01-02T03:04:05.000006+00:00", digest_size=4)`.
    #[test]
    fn the_id_is_the_hash_of_uid_reason_and_beginning() {
        let update = handling(Reason::Update, "2026-01-02T03:04:05.000006+00:00");
        assert_eq!(update.cause_id("u-1"), "8a772ef4");
        assert_ne!(update.cause_id("u-2"), update.cause_id("u-1"));
        let others = [
            handling(Reason::Create, "2026-01-02T03:04:05.000006+00:00"),
            handling(Reason::Update, "2026-01-02T03:04:05.000007+00:00"),
        ];
        assert!(others.iter().all(|other| other.cause_id("u-1") != update.cause_id("u-1")));
    }
}
