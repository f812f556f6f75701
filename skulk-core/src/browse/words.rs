//! Is this token a word that says something? LARQL's rule, by which it lists what a model writes about.

/// Bytes and characters of a word at most, and characters at least.
const MOST_BYTES: usize = 30;
const CHARS: std::ops::RangeInclusive<usize> = 3..=25;

/// Words that say nothing, sorted.
const COMMON: &[&str] = &[
    "about", "after", "all", "also", "and", "are", "aux", "because", "been", "before", "being", "but", "can",
    "che", "could", "del", "did", "does", "each", "first", "for", "from", "get", "has", "have", "her", "his",
    "how", "into", "its", "just", "let", "like", "make", "may", "more", "most", "new", "not", "now", "old",
    "one", "only", "other", "our", "out", "over", "par", "say", "see", "she", "should", "some", "such",
    "take", "than", "that", "the", "their", "them", "there", "these", "they", "this", "those", "through",
    "too", "use", "very", "was", "way", "were", "what", "when", "where", "which", "who", "will", "with",
    "would", "you", "your",
];

/// Whether a token, without spaces around it, counts as a word: short, two thirds Latin letters, no capital behind a
/// small letter as in names of code, and not a common one.
pub(super) fn is_word(token: &str) -> bool {
    if token.len() > MOST_BYTES {
        return false;
    }
    let (mut n, mut letters, mut before, mut is_code) = (0, 0, ' ', false);
    for c in token.chars() {
        n += 1;
        letters += usize::from(c.is_ascii_alphabetic());
        is_code |= before.is_ascii_lowercase() && c.is_ascii_uppercase();
        before = c;
    }
    CHARS.contains(&n)
        && letters >= n * 2 / 3
        && !is_code
        && COMMON.binary_search(&token.to_lowercase().as_str()).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_can_be_searched() {
        assert!(COMMON.is_sorted());
        assert!(COMMON.iter().all(|word| CHARS.contains(&word.len())));
    }

    #[test]
    fn words_are_told_from_pieces() {
        for word in ["Paris", "new York", "Jean-Luc", "abc", "ab1", "c'est", "PARIS", "Ünicode"] {
            assert!(is_word(word), "{word}");
        }
        for other in ["", "ab", "The", "getValue", "12345", "1b2c3", "巴黎巴", "because", "\u{fffd}\u{fffd}a"]
        {
            assert!(!is_word(other), "{other}");
        }
        assert!(is_word(&"a".repeat(25)) && !is_word(&"a".repeat(26)));
        // Two of four are below two thirds, rounded down.
        assert!(is_word("ab12") && !is_word("a123"));
    }
}
