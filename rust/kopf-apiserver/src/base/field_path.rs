//! Field paths in messages.

/// Path of a field as a linked list on the stack. It is formatted for messages only.
#[derive(Clone, Copy)]
pub(crate) enum FieldPath<'p> {
    Root,
    /// Field of a struct.
    Member(&'p FieldPath<'p>, &'p str),
    /// Embedded structs, whose names are among the fields only.
    Embedded(&'p FieldPath<'p>, &'p str),
    /// Key of a map.
    Key(&'p FieldPath<'p>, &'p str),
    Item(&'p FieldPath<'p>, usize),
}

impl FieldPath<'_> {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Member(within, key) | Self::Key(within, key) => join(&within.text(), key),
            Self::Embedded(within, _) => within.text(),
            Self::Item(within, index) => format!("{}[{index}]", within.text()),
        }
    }
    /// Names of struct fields only, without keys and indices.
    pub(crate) fn fields(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Member(within, key) | Self::Embedded(within, key) => join(&within.fields(), key),
            Self::Key(within, _) | Self::Item(within, _) => within.fields(),
        }
    }
}

/// Appends a field name to a path.
pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
