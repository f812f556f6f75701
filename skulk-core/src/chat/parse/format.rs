//! What can the markup of tool calls consist of?

/// How calls are written.
#[derive(Debug, Clone)]
pub(super) struct Format {
    /// What begins calls; any of these.
    pub(super) starts: &'static [&'static str],
    /// What ends them; empty where nothing does.
    pub(super) close: &'static str,
    /// What may lie between: the first that fits its beginning.
    pub(super) bodies: &'static [Body],
    /// Markup that is neither text nor call.
    pub(super) dropped: &'static [&'static str],
    /// The model calls while it reasons.
    pub(super) in_reasoning: bool,
    /// An answer that begins as JSON may be a call.
    pub(super) bare: bool,
    /// Every message has a header.
    pub(super) channels: Option<&'static Channels>,
}

/// What lies between the markers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Body {
    Json(Json),
    Named(&'static Named),
    Tagged(&'static Tags),
    Literal(&'static Dialect),
    Nested(&'static Nested),
}

/// Objects with name and arguments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Json {
    /// An object's only key is the function, its value the arguments.
    pub(super) name_is_key: bool,
    /// The start marker includes the bracket of a list.
    pub(super) in_list: bool,
    /// Objects follow each other without being a list.
    pub(super) sequence: bool,
}

/// A header with the name, then arguments in JSON.
#[derive(Debug)]
pub(super) struct Named {
    /// What begins each call; empty where the start marker does.
    pub(super) call: &'static str,
    /// What ends each call; empty where the close marker does, or nothing.
    pub(super) end: &'static str,
    pub(super) header: Header,
}

/// What lies before the arguments.
#[derive(Debug, Clone, Copy)]
pub(super) enum Header {
    /// `functions.NAME:0` and a marker.
    Kimi,
    /// The name, or a type and the name, with `<｜tool▁sep｜>`.
    DeepSeek,
    /// The name, `[CALL_ID]` and an id, `[ARGS]`.
    Mistral,
    /// Id and name.
    Solar,
    /// The name and this.
    Until(&'static str),
}

/// An element for the call, one for each argument.
#[derive(Debug)]
pub(super) struct Tags {
    /// Before the name; empty where the start marker is.
    pub(super) call: &'static str,
    /// Behind the name. Where the name is an attribute, other attributes may lie between.
    pub(super) name_end: &'static str,
    /// Before an argument's name; where `name_end` is empty, behind the function's, too.
    pub(super) key: &'static str,
    pub(super) key_end: &'static str,
    /// Before the value, where anything is.
    pub(super) value: &'static str,
    pub(super) value_end: &'static str,
    /// Behind all arguments; empty where the close marker is.
    pub(super) call_end: &'static str,
    /// Around all arguments as one JSON text, where that may be.
    pub(super) whole: Option<(&'static str, &'static str)>,
    pub(super) values: Values,
}

/// What an argument is whose type nothing says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Values {
    /// Its text, between line breaks.
    Lines,
    /// Its text.
    Text,
    /// JSON where it is, else its text.
    Json,
}

/// Function calls in the manner of a programming language.
#[derive(Debug)]
pub(super) struct Dialect {
    /// Before each name.
    pub(super) call: &'static str,
    /// Around arguments.
    pub(super) open: char,
    /// Behind an argument's name.
    pub(super) assign: char,
    /// Around strings; empty: quotes, with escapes.
    pub(super) quote: &'static str,
    /// Left out at the end of names.
    pub(super) suffix: &'static str,
}

/// Elements named after arguments, values as elements.
#[derive(Debug)]
pub(super) struct Nested {
    /// Before each tag.
    pub(super) prefix: &'static str,
    pub(super) call: &'static str,
    pub(super) call_end: &'static str,
}

/// Messages with headers that say whom they are for.
#[derive(Debug)]
pub(super) struct Channels {
    /// What begins a header.
    pub(super) opens: &'static [&'static str],
    /// What ends it.
    pub(super) message: &'static str,
    /// What ends a message.
    pub(super) ends: &'static [&'static str],
    pub(super) addressing: Addressing,
}

/// How headers name a channel or a recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Addressing {
    /// `role to=recipient<|channel|>channel to=recipient <|constrain|>type`.
    Harmony,
    /// `role to=recipient`; the reasoning is to `self`.
    Recipient,
    /// The recipient alone; the answer is to `all`.
    Line,
}

impl Format {
    /// All markers, for which of them are special tokens.
    pub(super) fn markers(&self) -> Vec<&str> {
        let mut all = [self.starts, self.dropped].concat();
        all.push(self.close);
        for body in self.bodies {
            match body {
                Body::Json(_) => {}
                Body::Named(named) => all.extend([named.call, named.end]),
                Body::Tagged(tags) => {
                    let Tags { call, name_end, key, key_end, value, value_end, call_end, whole, .. } = **tags;
                    all.extend([call, name_end, key, key_end, value, value_end, call_end]);
                    all.extend(whole.into_iter().flat_map(|(open, end)| [open, end]));
                }
                Body::Literal(dialect) => all.extend([dialect.call, dialect.quote]),
                Body::Nested(nested) => all.extend([nested.prefix, nested.call, nested.call_end]),
            }
        }
        if let Some(channels) = self.channels {
            all.extend(channels.opens.iter().chain(channels.ends));
            all.push(channels.message);
        }
        all.retain(|marker| !marker.is_empty());
        all
    }
}
