//! The error of decoding JSON.

/// The reason why a text cannot be decoded as an object. Retrying gives the same error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The text is not JSON of the expected form.
    #[error("malformed JSON: {problem} at byte {at}")]
    Json {
        /// The problem.
        problem: &'static str,
        /// The offset of the problem in bytes.
        at: usize,
    },
    /// The text is not a list of objects.
    #[error("it is no list: a list has items, and a kind that ends with List or a resource version")]
    NotList,
    /// A value is nested more deeply than handlers and their patches can work with.
    #[error("nested too deeply: more than {limit} levels at byte {at}", limit = super::MAX_DEPTH)]
    Depth {
        /// The offset in bytes where it becomes too deep.
        at: usize,
    },
    /// The text is not UTF-8.
    #[error("the text is not UTF-8 after byte {at}")]
    Encoding {
        /// The number of valid bytes before the error.
        at: usize,
    },
    /// The text is longer than any object in the API.
    #[error("the text is too long: {length} bytes")]
    Size {
        /// The length of the text in bytes.
        length: usize,
    },
}
