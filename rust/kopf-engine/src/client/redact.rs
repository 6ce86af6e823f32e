//! What errors of connections say, and what they do not: whoever reads logs must not learn credentials from them.
//!
//! Parsers quote what they cannot read, and that may be the output of a plugin or a file with tokens: of those errors, only the
//! place is told. All others are shown with their whole chain of causes: the outermost one alone rarely says what is wrong.

use std::error::Error;

use kube::client::AuthError;
use kube::config::KubeconfigError;

/// The error and its causes, in one line.
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

/// What is said instead of an error that quotes secrets.
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
            let hint = "run it by hand to see what it says";
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

/// The error and what it comes from.
fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        // What an error of I/O wraps is not its source: that one's source is.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        wrapped.map_or_else(|| error.source(), |wrapped| Some(wrapped))
    })
}

/// Whether it is the certificate of one side that the other one does not accept.
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
    fn causes_are_found_within_errors_of_io_too() {
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
    fn what_parsers_quote_is_not_told() {
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
