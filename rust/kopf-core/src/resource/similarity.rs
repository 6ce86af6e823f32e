//! Similarity of names, to suggest the probable one for a misspelled one.

/// The number of letters to insert, remove, or replace (Levenshtein distance).
pub fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.chars().enumerate() {
        let mut next = vec![line + 1];
        for (known, pair) in other.iter().zip(row.windows(2)) {
            let [diagonal, above] = pair else { continue };
            let left = next.last().copied().unwrap_or_default();
            next.push((diagonal + usize::from(letter != *known)).min(above + 1).min(left + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

/// The maximum distance of a name for which this one can be misspelled.
pub fn longest_distance(name: &str) -> usize {
    1 + name.chars().count() / 5
}
