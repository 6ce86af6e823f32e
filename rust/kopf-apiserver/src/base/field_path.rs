//! Paths of fields, as messages write them.

/// Where a reader is in an object. Only complaints need it as text, and most objects give none.
#[derive(Clone, Copy)]
pub(crate) enum FieldPath<'p> {
    Root,
    /// A field of a structure.
    Member(&'p FieldPath<'p>, &'p str),
    /// A key of a map.
    Key(&'p FieldPath<'p>, &'p str),
    Item(&'p FieldPath<'p>, usize),
}

impl FieldPath<'_> {
    pub(crate) fn to_text(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Member(within, key) | Self::Key(within, key) => join(&within.to_text(), key),
            Self::Item(within, index) => format!("{}[{index}]", within.to_text()),
        }
    }
    /// Only the names of fields.
    pub(crate) fn fields(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Member(within, key) => join(&within.fields(), key),
            Self::Key(within, _) | Self::Item(within, _) => within.fields(),
        }
    }
}

/// A field's path, as messages write it.
pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
