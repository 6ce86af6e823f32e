//! The texts of connection errors for the log, without credentials.
//!
//! Parsers quote their input, which may be the output of a plugin or a file with tokens: only the position of such
//! errors is shown. All other errors are shown with their whole chain of sources, as the outermost error alone rarely
//! explains the failure.

use std::error::Error;

use kube::client::AuthError;
use kube::config::KubeconfigError;

/// The error and its sources, in one line.
pub(crate) fn explained(error: &(dyn Error + 'static)) -> String {
    if let Some(text) = chain(error).find_map(redacted) {
        return text;
    }
    let mut text = error.to_string();
    for cause in chain(error).skip(1) {
        let next = cause.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
    }
    text
}

/// The replacement for an error that quotes secrets.
fn redacted(error: &(dyn Error + 'static)) -> Option<String> {
    match error.downcast_ref() {
        Some(KubeconfigError::Parse(error)) => {
            return Some(format!("failed to parse kubeconfig YAML{}", place(error.location())));
        }
        Some(KubeconfigError::ReadConfig(error, path)) => {
            return Some(format!("failed to read {}: {error}", path.display()));
        }
        _ => {}
    }
    match error.downcast_ref()? {
        AuthError::AuthExecRun { out, .. } => {
            let hint = "run it by hand to see its output";
            Some(format!("the command of the auth plugin failed with {}: {hint}", out.status))
        }
        AuthError::AuthExecParse(error) => {
            Some(format!("the output of the auth plugin cannot be parsed{}", place(error.location())))
        }
        AuthError::ParseTokenKey(_) => Some("the token-key of the auth provider cannot be parsed".to_owned()),
        _ => None,
    }
}

pub(crate) fn place(location: Option<serde_saphyr::Location>) -> String {
    location.map_or_else(String::new, |it| format!(" at line {}, column {}", it.line(), it.column()))
}

/// The error and its sources.
fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        // `source()` of an I/O error skips the wrapped error and returns that one's source.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        wrapped.map_or_else(|| error.source(), |wrapped| Some(wrapped))
    })
}

/// Whether one side rejects the other's certificate.
pub(crate) fn is_about_certificates(error: &(dyn Error + 'static)) -> bool {
    chain(error).find_map(<dyn Error>::downcast_ref).is_some_and(|error| {
        matches!(error, rustls::Error::InvalidCertificate(_) | rustls::Error::AlertReceived(_))
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn sources_of_io_errors_are_found() {
        let inner = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let outer = io::Error::other(io::Error::other(inner));
        assert!(is_about_certificates(&outer));
        assert!(explained(&outer).contains("UnknownIssuer"));
        assert!(!is_about_certificates(&io::Error::other(rustls::Error::HandshakeNotComplete)));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named_once_and_without_quotes() {
        let error = KubeconfigError::ReadConfig(io::Error::from(io::ErrorKind::NotFound), "/no/file".into());
        assert_eq!(explained(&error), "failed to read /no/file: entity not found");
    }

    #[test]
    fn quotes_of_parsers_are_not_shown() {
        let parse = |text: &str| serde_saphyr::from_str::<u8>(text).err().map(Box::new).unwrap();
        for error in [
            Box::new(KubeconfigError::Parse(parse("[planted]"))) as Box<dyn Error>,
            Box::new(io::Error::other(AuthError::AuthExecParse(parse("[planted]")))),
        ] {
            let text = explained(error.as_ref());
            assert!(!text.contains("planted") && text.contains("line 1"), "{text}");
        }
    }
}
