//! Properties that hold for any external input of the engine: kubeconfigs, credentials, error responses.
//!
//! As with `fuzzing` of the core, the coverage-guided targets in `fuzz/` call these functions, and so does a bounded
//! test. Files named in a kubeconfig are not read, and its commands are not run. Never part of a release.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a violated property ends the run"
)]

use kopf_core::backoff::parse_retry_after;
use kube::config::{Kubeconfig, KubeconfigError};

use crate::client::config::config_of;
use crate::client::redact::explained;
use crate::error::ApiError;
use crate::host::credentials::Credentials;
use crate::time::clock::system_time;

/// A marker of secrets, which must not occur in messages.
const PLANT: &str = "planted";

/// Kubeconfigs, credentials and error responses are parsed or rejected, and the messages do not quote their secrets.
pub fn kubeconfigs(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Kubeconfig::from_yaml(text) {
        Ok(config) => {
            let _ = serde_json::to_string(&config).expect("what was read can be written");
        }
        // Names of contexts may be shown.
        Err(error @ KubeconfigError::Parse(_)) => {
            assert!(!explained(&error).contains(PLANT), "the error of a kubeconfig");
        }
        Err(error) => drop(explained(&error)),
    }
    if let Ok(mut given) = serde_json::from_str::<Credentials>(text) {
        // Files are not part of this property.
        given.ca_path = None;
        assert!(
            given.server.contains(PLANT) || !format!("{given:?}").contains(PLANT),
            "the debug text of credentials"
        );
        if let Err(error) = config_of(&given) {
            let message = error.0;
            assert!(given.server.contains(PLANT) || !message.contains(PLANT), "the error of credentials");
        }
    }
    for status in [400, 409, 422, 500] {
        let error = ApiError::from_response(status, parse_retry_after(text, system_time()), data);
        assert!(error.retry_after.is_none_or(|pause| pause.is_finite() && pause >= 0.0), "a pause");
        let _ = error.to_string();
        let redacted = error.redacted();
        if matches!(status, 400 | 422) {
            assert!(!redacted.message.contains(PLANT), "the error of a secret");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEDS: [&str; 3] = [
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters:\n- name: c\n  cluster: {server: 'https://h:1', certificate-authority-data: cGxhbnRlZA==}\nusers:\n- name: u\n  user:\n    token: planted\n    exec: {apiVersion: client.authentication.k8s.io/v1, command: planted, args: [planted], env: [{name: a, value: planted}]}\ncontexts:\n- name: c\n  context: {cluster: c, user: u, namespace: n}\n",
        r#"{"server":"https://h:1","token":"planted","scheme":"Bearer","private_key_data":"planted","certificate_data":"planted","ca_data":"planted","proxy_url":"http://h:1","priority":5,"expiration":1e9}"#,
        r#"{"kind":"Status","code":422,"reason":"Invalid","message":"planted","details":{"retryAfterSeconds":1,"causes":[{"field":"data","message":"planted"}]}}"#,
    ];
    const PIECES: [&str; 20] = [
        "{",
        "}",
        "[",
        "]",
        "\"",
        "- ",
        ": ",
        "\n",
        "&a ",
        "*a",
        "!!binary ",
        "|",
        ">",
        "'",
        "#",
        "null",
        "-1",
        "1e999",
        "\t",
        "\u{feff}",
    ];

    /// Inserts each piece at each position, in place of none or of some characters: a bounded, constant number of
    /// inputs.
    #[test]
    fn any_kubeconfig_is_parsed_or_rejected_and_not_quoted() {
        let mut tried = 0;
        for seed in SEEDS {
            kubeconfigs(seed.as_bytes());
            for at in (0..seed.len()).step_by(3) {
                for (number, piece) in PIECES.iter().enumerate() {
                    let end = (at + number % 4).min(seed.len());
                    let mut text = seed.as_bytes().to_vec();
                    drop(text.splice(at..end, piece.bytes()));
                    kubeconfigs(&text);
                    tried += 1;
                }
            }
        }
        assert!(tried > 2_000, "{tried}");
    }
}
