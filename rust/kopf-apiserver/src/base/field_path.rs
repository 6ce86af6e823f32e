//! Paths of fields, as messages write them.

/// Where a reader is in an object. Only complaints need it as text, and most objects give none.
#[derive(Clone, Copy)]
pub(crate) enum Place<'p> {
    Top,
    /// A field of a structure.
    Member(&'p Place<'p>, &'p str),
    /// A key of a map.
    Key(&'p Place<'p>, &'p str),
    Item(&'p Place<'p>, usize),
}

impl Place<'_> {
    pub(crate) fn show(&self) -> String {
        match self {
            Self::Top => String::new(),
            Self::Member(within, key) | Self::Key(within, key) => join(&within.show(), key),
            Self::Item(within, index) => format!("{}[{index}]", within.show()),
        }
    }
    /// Only the names of fields.
    pub(crate) fn fields(&self) -> String {
        match self {
            Self::Top => String::new(),
            Self::Member(within, key) => join(&within.fields(), key),
            Self::Key(within, _) | Self::Item(within, _) => within.fields(),
        }
    }
}

/// A field's path, as messages write it.
pub(crate) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
