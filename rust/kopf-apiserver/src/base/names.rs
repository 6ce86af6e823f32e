//! Names of API groups, versions and resources.

/// `group/version`, or the version alone in the core group.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Splits an apiVersion into group and version.
pub(crate) fn split_api_version(text: &str) -> (&str, &str) {
    text.split_once('/').unwrap_or(("", text))
}

/// Resource and group in error messages and details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupResource<'n> {
    pub(crate) group: &'n str,
    pub(crate) resource: &'n str,
}

/// `plural.group`, or the plural alone in the core group.
impl std::fmt::Display for GroupResource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.resource)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}
