//! The error of decoding JSON.

/// Why a text cannot be decoded as an object. Trying again gives the same error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is not JSON of the expected form.
    #[error("malformed JSON: {problem} at byte {at}")]
    Json {
        /// What is wrong.
        problem: &'static str,
        /// Where it is wrong.
        at: usize,
    },
    /// It is not a list of objects.
    #[error("it is no list: a list has a kind that ends with List, and items")]
    NotList,
    /// A value is nested more deeply than handlers and their patches can work with.
    #[error("nested too deeply: more than {limit} levels at byte {at}", limit = super::MAX_DEPTH)]
    Depth {
        /// Where it becomes too deep.
        at: usize,
    },
    /// The text is not UTF-8.
    #[error("the text is not UTF-8 after byte {at}")]
    Encoding {
        /// How much of it is.
        at: usize,
    },
    /// The text is beyond any size that the API knows.
    #[error("the text is too long: {length} bytes")]
    Size {
        /// Its length.
        length: usize,
    },
}
