//! Does a request fit the context, and in which pieces is its prompt computed? As nodes that cannot ask each
//! other must answer it: from the same few numbers.

use std::ops::Range;

use crate::error::{Error, ErrorKind, Result};

/// Tokens that an answer may have where a request does not say.
pub const DEFAULT_MAX_TOKENS: usize = 4096;

/// Tokens that an answer may have: what was `requested`, which must fit behind the prompt; else `default`,
/// or less where the context ends sooner. `limit` is the context's, prompt included; `None`: there is none
/// ([`Placement::context_limit`](super::Placement::context_limit)).
///
/// ```
/// use skulk::plan::{DEFAULT_MAX_TOKENS, admit_max_tokens};
/// assert_eq!(admit_max_tokens(10, None, DEFAULT_MAX_TOKENS, Some(100))?, 90);
/// assert!(admit_max_tokens(10, Some(91), DEFAULT_MAX_TOKENS, Some(100)).is_err());
/// # Ok::<(), skulk::Error>(())
/// ```
///
/// # Errors
/// `ContextOverflow`, with the tokens needed and available, when the prompt leaves no room, or less than was
/// requested.
pub fn admit_max_tokens(
    prompt: usize,
    requested: Option<usize>,
    default: usize,
    limit: Option<u64>,
) -> Result<usize> {
    let Some(limit) = limit else { return Ok(requested.unwrap_or(default)) };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let room = limit.saturating_sub(prompt);
    let overflow = |what: String, needed: usize| {
        Err(Error::new(ErrorKind::ContextOverflow, format!("expected at most {limit} tokens, found {what}"))
            .with_tokens(needed, limit)
            .with_hint("shorten the prompt, ask for fewer tokens, or load the model with a larger context"))
    };
    match requested {
        Some(n) if n > room || room == 0 => {
            overflow(format!("the prompt's {prompt} and max_tokens {n}"), prompt.saturating_add(n))
        }
        None if room == 0 => overflow(
            format!("the prompt's {prompt}, which leave no room for an answer"),
            prompt.saturating_add(1),
        ),
        _ => Ok(requested.unwrap_or(default.min(room))),
    }
}

/// The pieces in which a prompt of `tokens` tokens is computed: of `max` each, but never ending inside a
/// medium, as an image's positions attend to each other. The last token is left to the step that generates
/// the first new one. `max` of 0: one piece.
///
/// `media` are positions in the whole conversation, of which `offset` are already computed.
///
/// ```
/// use skulk::plan::prefill_chunks;
/// assert_eq!(prefill_chunks(100, 30, &[25..40], 0).collect::<Vec<_>>(), [40, 30, 29]);
/// ```
pub fn prefill_chunks(
    tokens: usize,
    max: usize,
    media: &[Range<usize>],
    offset: usize,
) -> impl Iterator<Item = usize> + use<> {
    let end_of_all = tokens.saturating_sub(1);
    let max = if max == 0 { end_of_all } else { max };
    let mut media = media.to_vec();
    media.sort_by_key(|medium| medium.start);
    let mut start = 0usize;
    std::iter::from_fn(move || {
        if start >= end_of_all {
            return None;
        }
        let mut end = start.saturating_add(max).min(end_of_all);
        let cut = offset.saturating_add(end);
        if let Some(medium) = media.iter().find(|medium| medium.start < cut && cut < medium.end) {
            end = (medium.end - offset.min(medium.end)).min(end_of_all);
        }
        let size = end - start;
        start = end;
        Some(size)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ContextDetail;

    #[test]
    fn no_piece_is_empty_and_all_are_the_prompt() {
        for (tokens, max, offset) in
            [(100, 7, 0), (100, 1, 50), (2, 0, 9), (usize::MAX, usize::MAX, usize::MAX)]
        {
            let media = [3..20, 18..30, 60..60, 140..usize::MAX];
            let pieces: Vec<usize> = prefill_chunks(tokens, max, &media, offset).collect();
            assert!(pieces.iter().all(|&n| n > 0), "{pieces:?}");
            assert_eq!(pieces.iter().sum::<usize>(), tokens - 1);
        }
    }

    #[test]
    fn refusals_say_how_much_is_missing() {
        let error = admit_max_tokens(50, Some(51), 4096, Some(100)).unwrap_err();
        let detail = error.detail::<ContextDetail>().unwrap();
        assert_eq!((detail.needed, detail.available), (101, 100));
        assert!(admit_max_tokens(usize::MAX, Some(usize::MAX), 1, Some(u64::MAX)).is_err());
    }
}
