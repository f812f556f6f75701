//! How does a host read an error? With options called as it calls them.

use skulk::{Error, ErrorKind};

use crate::by_hand::PlacementOptions;
use crate::chat::{ChatOptions, RenderOptions, ToolOptions};
use crate::failure::FailureDetail;
use crate::given::Spelling;
use crate::options::{
    DescribeOptions, EmbedOptions, EmbeddingOptions, ExtractOptions, GenerateOptions, LinkOptions,
    LoadOptions, NearestOptions, PlanOptions, ProfileOptions, RelationsOptions, RingsOptions, SelectOptions,
    ServeOptions, SliceOptions, VerifyOptions, WalkOptions,
};
use crate::price::PriceOptions;

/// What options are called, by function.
const NAMES: [fn() -> Vec<&'static str>; 22] = [
    LoadOptions::names,
    ServeOptions::names,
    LinkOptions::names,
    GenerateOptions::names,
    RenderOptions::names,
    ChatOptions::names,
    ToolOptions::names,
    EmbeddingOptions::names,
    EmbedOptions::names,
    PlanOptions::names,
    PriceOptions::names,
    PlacementOptions::names,
    RingsOptions::names,
    ProfileOptions::names,
    ExtractOptions::names,
    SliceOptions::names,
    VerifyOptions::names,
    NearestOptions::names,
    WalkOptions::names,
    DescribeOptions::names,
    SelectOptions::names,
    RelationsOptions::names,
];

/// Options of loading that the library calls otherwise than [`LoadOptions`].
const RENAMED: [(&str, &str); 7] = [
    ("address", "ffn_at"),
    ("engine_name", "engine"),
    ("identity", "peer_identity"),
    ("key", "peer_key"),
    ("roots", "peer_roots"),
    ("rows_q8k", "peer_rows_q8k"),
    ("timeout", "peer_timeout"),
];

/// Marks an error whose options are none of loading's.
struct Named;

/// Marks an error whose names a host wrote.
struct Written;

/// An error about what a host wrote, with its own names.
pub(crate) fn as_written(error: Error) -> Error {
    error.with_detail(Written)
}

/// An error of a function that calls its options as the library does, or that names them as hosts do already.
pub fn keep_names(error: Error) -> Error {
    // Those with facts are about files, which no host calls otherwise.
    match FailureDetail::of(&error) {
        None if error.detail::<Written>().is_none() => error.with_detail(Named),
        _ => error,
    }
}

/// The error as a host is told of it, without what caused it and without details.
pub(crate) fn told(error: &Error, spelling: Spelling) -> Error {
    let written = error.detail::<Written>().is_some();
    let words = Words {
        spelling: if written { Spelling::Snake } else { spelling },
        loading: !written && error.detail::<Named>().is_none(),
        of_node: error.context().iter().any(|(place, _)| *place == "node"),
    };
    let argument = error.kind() == ErrorKind::InvalidArgument;
    let named = Error::new(error.kind(), words.options(error.message()));
    let named = error.context().iter().fold(named, |named, (place, text)| match *place {
        "field" => named.with(place, words.field(text, argument)),
        _ => named.with(place, text),
    });
    match error.hint() {
        Some(hint) => named.with_hint(words.alone(&words.options(hint))),
        None => named,
    }
}

struct Words {
    spelling: Spelling,
    /// Options are called as those of loading.
    loading: bool,
    /// What is wrong concerns a node, whose address is among those of nodes.
    of_node: bool,
}

impl Words {
    /// What a host calls the library's option of this name.
    fn own(&self, name: &str) -> String {
        let renamed = RENAMED.iter().find(|(library, _)| self.loading && *library == name);
        self.spelling.of(match renamed {
            Some(("address", _)) if self.of_node => "addresses",
            found => found.map_or(name, |(_, own)| own),
        })
    }

    /// A field, or a place in one. Of arguments all names are options'; elsewhere some are a file's.
    fn field(&self, field: &str, argument: bool) -> String {
        let own = self.own(field);
        if own != self.spelling.of(field) {
            return own;
        }
        retold(field, |before, name, _| {
            let first = !before.ends_with(['.', '[', ']']);
            (first && (argument || is_option(name))).then(|| self.spelling.of(name))
        })
    }

    /// A text with what stands behind the word option.
    fn options(&self, text: &str) -> String {
        retold(text, |before, name, _| before.ends_with("option ").then(|| self.own(name)))
    }

    /// A text with names of options that are no part of another name, as of a member or a file.
    fn alone(&self, text: &str) -> String {
        retold(text, |before, name, after| {
            let alone = !before.ends_with(['.', '[']) && !after.starts_with('.');
            (alone && name.contains('_') && is_option(name)).then(|| self.spelling.of(name))
        })
    }
}

fn is_option(name: &str) -> bool {
    NAMES.iter().any(|names| names().contains(&name))
}

/// A text with words said otherwise: `say` has each, with what is before it and behind it.
fn retold(text: &str, say: impl Fn(&str, &str, &str) -> Option<String>) -> String {
    let of_word = |letter: char| letter == '_' || letter.is_alphanumeric();
    let (mut told, mut at) = (String::with_capacity(text.len()), 0);
    while let Some(start) = text[at..].find(of_word) {
        let start = at + start;
        let end = text[start..].find(|letter| !of_word(letter)).map_or(text.len(), |length| start + length);
        let word = &text[start..end];
        told.push_str(&text[at..start]);
        told.push_str(say(&text[..start], word, &text[end..]).as_deref().unwrap_or(word));
        at = end;
    }
    told + &text[at..]
}
