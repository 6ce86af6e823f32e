//! Namespace patterns: comma-separated globs, some of them negated.

use std::collections::BTreeSet;

use super::similarity::{distance, longest_distance};

/// Whether the name matches the pattern. Only names that match the first glob can match (all names, if it is negated);
/// later globs exclude some of them (with `!`) or include them again.
pub fn match_namespace(name: &str, pattern: &str) -> bool {
    let mut globs = pattern.split(',').map(str::trim).peekable();
    let only_negations = globs.peek().is_some_and(|glob| glob.starts_with('!'));
    let first = only_negations || globs.next().is_some_and(|glob| matches(name, glob));
    globs.fold(first, |matched, glob| match glob.strip_prefix('!') {
        Some(rest) => matched && !matches(name, rest.trim_start_matches('!')),
        None => matched || (first && matches(name, glob)),
    })
}

/// Whether the pattern is the name of one namespace.
pub fn is_exact_namespace(pattern: &str) -> bool {
    !pattern.contains(['!', '*', '?', ','])
}

/// A sentence for each pattern that none of the namespaces matches.
pub fn unmatched_namespaces(patterns: &[String], names: &BTreeSet<String>) -> Vec<String> {
    let unmatched =
        patterns.iter().filter(|pattern| !names.iter().any(|name| match_namespace(name, pattern)));
    let sentence = |pattern: &String| {
        let near = |name: &&String| distance(pattern, name) <= longest_distance(pattern);
        let nearest = names.iter().filter(near).min_by_key(|name| distance(pattern, name));
        let hint = nearest.filter(|_| is_exact_namespace(pattern));
        let end = hint.map_or_else(|| ".".to_owned(), |name| format!("; did you mean '{name}'?"));
        format!("No namespace matches '{pattern}' yet{end}")
    };
    unmatched.map(sentence).collect()
}

fn matches(name: &str, glob: &str) -> bool {
    let (name, glob): (Vec<char>, Vec<char>) = (name.chars().collect(), glob.chars().collect());
    glob_matches(&name, &glob)
}

/// Backtracks to the last star only, so that the time is bounded by the product of the lengths.
fn glob_matches(name: &[char], glob: &[char]) -> bool {
    let (mut n, mut g) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if glob.get(g) == Some(&'*') {
            star = Some((n, g + 1));
            g += 1;
            continue;
        }
        if n == name.len() && g == glob.len() {
            return true;
        }
        if let Some(next) = name.get(n).and_then(|c| one(*c, glob.get(g..)?)) {
            n += 1;
            g += next;
            continue;
        }
        match star {
            Some((at, after)) if at < name.len() => {
                star = Some((at + 1, after));
                (n, g) = (at + 1, after);
            }
            _ => return false,
        }
    }
}

/// The length of the glob's part that matches this character; `None` if it does not match.
fn one(c: char, glob: &[char]) -> Option<usize> {
    match glob.first()? {
        '?' => Some(1),
        '[' => match set_end(glob) {
            Some(end) => in_set(c, glob.get(1..end)?).then_some(end + 1),
            None => (c == '[').then_some(1),
        },
        literal => (c == *literal).then_some(1),
    }
}

/// The index of the closing bracket of a set; a bracket at its beginning belongs to the set.
fn set_end(glob: &[char]) -> Option<usize> {
    let negated = usize::from(glob.get(1) == Some(&'!'));
    let first = 1 + negated + usize::from(glob.get(1 + negated) == Some(&']'));
    glob.iter().skip(first).position(|c| *c == ']').map(|offset| first + offset)
}

fn in_set(c: char, set: &[char]) -> bool {
    let (negated, mut set) = match set.split_first() {
        Some(('!', rest)) => (true, rest),
        _ => (false, set),
    };
    let mut found = false;
    loop {
        set = match set {
            [] => return found != negated,
            [low, '-', high, rest @ ..] => {
                found |= (low..=high).contains(&&c);
                rest
            }
            [one, rest @ ..] => {
                found |= *one == c;
                rest
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // contract: engine 1.6
    #[test]
    fn patterns_match_as_recorded() {
        for (name, pattern, expected) in [
            ("default", "default", true),
            ("default", "!kube-*", true),
            ("kube-system", "!kube-*", false),
            ("a-b", "a-?,!a-c", true),
            ("a-c", "a-?,!a-c", false),
            ("x", "a,x", false),
            ("x", "a,*", false),
            ("myns-1", "myns-*, !*-secret, myns-secret", true),
            ("myns-secret", "myns-*, !*-secret, myns-secret", true),
            ("b", "[abc]", true),
            ("b", "[!abc]", false),
            ("-", "[a-]", true),
            ("]", "[]]", true),
            ("[x", "[x", true),
            ("b", "[c-a]", false),
            ("a", "!!b", true),
            ("a*", "a[*]", true),
            ("abcabd", "*a?d", true),
            ("abcabd", "a*b", false),
            ("", "*", true),
            ("a", "", false),
        ] {
            assert_eq!(match_namespace(name, pattern), expected, "{name} {pattern}");
        }
    }

    #[test]
    fn misspelled_names_are_suggested_and_patterns_are_not() {
        let names = ["default", "kube-system", "team-a"].map(str::to_owned).into();
        for (pattern, expected) in [
            ("default", None),
            ("team-*", None),
            ("!x", None),
            ("defualt", Some("No namespace matches 'defualt' yet; did you mean 'default'?")),
            ("teem-*", Some("No namespace matches 'teem-*' yet.")),
            ("other", Some("No namespace matches 'other' yet.")),
        ] {
            let found = unmatched_namespaces(&[pattern.to_owned()], &names);
            assert_eq!(found.first().map(String::as_str), expected, "{pattern}");
        }
    }

    #[test]
    fn exact_names_have_no_special_characters() {
        assert!(is_exact_namespace("default"));
        for pattern in ["a,b", "!a", "a*", "a?"] {
            assert!(!is_exact_namespace(pattern));
        }
    }
}
