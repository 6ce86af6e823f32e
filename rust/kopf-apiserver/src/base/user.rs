//! The user of a request.

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The user's name.
    pub name: String,
    /// The groups that the user is in.
    pub groups: Vec<String>,
}
