//! Random numbers, names and tokens, and uids.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;

static COUNTER: AtomicU64 = AtomicU64::new(0);

/// 64 random bits, unique in the process. Not for secrets.
pub(crate) fn random_bits() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    static STATE: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    let mut hasher = STATE.build_hasher();
    hasher.write_u64(COUNTER.fetch_add(1, Ordering::Relaxed));
    hasher.finish()
}

/// A new uid (a version 4 UUID).
pub(crate) fn uid() -> String {
    let (a, b) = (random_bits(), random_bits());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xfff,
        0x8000 | ((b >> 48) & 0x3fff),
        b & 0xffff_ffff_ffff
    )
}

/// Suffix of a generated name: five letters and digits without vowels.
pub(crate) fn name_suffix() -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut bits = random_bits();
    let mut out = String::new();
    for _ in 0..5 {
        let at = usize::try_from(bits % LETTERS.len() as u64).unwrap_or_default();
        out.push(char::from(LETTERS.get(at).copied().unwrap_or(b'x')));
        bits /= LETTERS.len() as u64;
    }
    out
}

pub(crate) fn random_token() -> String {
    use ring::rand::SecureRandom;
    let mut bytes = [0_u8; 24];
    if ring::rand::SystemRandom::new().fill(&mut bytes).is_err() {
        // Fallback if the system has no random generator.
        bytes.copy_from_slice(&[random_bits(), random_bits(), random_bits()].map(u64::to_le_bytes).concat());
    }
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_unique() {
        let uids: std::collections::BTreeSet<String> = (0..1000).map(|_| uid()).collect();
        assert_eq!(uids.len(), 1000);
        assert!(uids.iter().all(|u| u.len() == 36));
        assert_eq!(name_suffix().len(), 5);
    }
}
