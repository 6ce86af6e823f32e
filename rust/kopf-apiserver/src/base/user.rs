//! The user of a request.

/// An authenticated user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The user's name.
    pub name: String,
    /// Groups of the user.
    pub groups: Vec<String>,
}
