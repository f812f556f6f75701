//! Which tokens may come next in a text that keeps to a constraint?

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use llguidance::Logger;
use llguidance::api::{GrammarInit, ParserLimits, TopLevelGrammar};
use llguidance::earley::Parser;
use llguidance::earley::perf::ParserPerfCounters;
use llguidance::toktrie::SimpleVob;
use serde_json::{Value, json};

use super::Constraint;
use super::vocabulary::Vocabulary;
use crate::error::{Error, ErrorKind, Result};
use crate::ids::TokenId;

/// A text that is being written.
pub(crate) struct Grammar {
    vocabulary: Arc<Vocabulary>,
    parser: Parser,
    /// The option that it came from.
    field: &'static str,
    /// Tokens that must come next.
    forced: VecDeque<TokenId>,
    /// The last token.
    last: Option<TokenId>,
    /// A space in front would be no part of the text.
    drops_space: bool,
    /// Nothing may follow.
    over: bool,
}

/// A reader of grammars recurses as deep as references go: for each of their bytes up to some 420, of eight that name another
/// rule. Memory is taken as it is used.
const STACK: [usize; 2] = [16 << 20, 1 << 10];

/// The bounds of what a constraint may take, in time and memory: half a second at most to read it, and for a token some
/// ten milliseconds.
fn limits() -> ParserLimits {
    ParserLimits {
        max_items_in_row: 2_000,
        initial_lexer_fuel: 1_000_000,
        step_lexer_fuel: 200_000,
        step_max_items: 50_000,
        max_lexer_states: 50_000,
        max_grammar_size: 200_000,
        precompute_large_lexemes: false,
        verbose_errors: false,
    }
}

impl Grammar {
    pub(super) fn new(
        constraint: &Constraint,
        vocabulary: Arc<Vocabulary>,
        drops_space: bool,
    ) -> Result<Self> {
        let field = constraint.field();
        let parser = read(constraint, &vocabulary)?;
        let mut grammar =
            Self { vocabulary, parser, field, forced: VecDeque::new(), last: None, drops_space, over: false };
        if grammar.set()?.is_zero() {
            let message =
                "expected a constraint that texts of the model's tokens satisfy, found one that none does";
            return Err(Error::argument(field, message).with_hint("correct the constraint, or leave it out"));
        }
        if grammar.guarded(|parser, _| !parser.can_advance())? {
            let message =
                "expected a constraint that some text satisfies, found one that only the empty text does";
            return Err(Error::argument(field, message).with_hint("correct the constraint, or leave it out"));
        }
        Ok(grammar)
    }

    /// Whether the token may come next.
    pub(crate) fn allows(&mut self, token: TokenId) -> Result<bool> {
        if self.is_dropped(token) {
            return Ok(false);
        }
        self.guarded(|parser, _| parser.validate_tokens(&[token.0]) == 1)
    }

    /// Lowers the logits of all tokens to -∞ that may not come next.
    pub(crate) fn narrow(&mut self, logits: &mut [f32]) -> Result<()> {
        let set = self.set()?;
        for (word, logits) in set.as_slice().iter().zip(logits.chunks_mut(u32::BITS as usize)) {
            match word {
                0 => logits.fill(f32::NEG_INFINITY),
                &u32::MAX => {}
                word => {
                    for (bit, logit) in logits.iter_mut().enumerate() {
                        if word >> bit & 1 == 0 {
                            *logit = f32::NEG_INFINITY;
                        }
                    }
                }
            }
        }
        // The embedding may have more rows than there are tokens.
        let known = self.vocabulary.trie().vocab_size().min(logits.len());
        logits[known..].fill(f32::NEG_INFINITY);
        Ok(())
    }

    /// Notes the next token, which is one of those that may come.
    pub(crate) fn take(&mut self, token: TokenId) -> Result<()> {
        let trie = Arc::clone(&self.vocabulary.env);
        let applied =
            self.guarded(|parser, _| parser.apply_token(&trie.tok_trie().decode_raw(&[token.0]), token.0))?;
        applied.map_err(|e| self.failed(&e.to_string()))?;
        self.last = Some(token);
        self.drops_space = false;
        self.over = self.guarded(|parser, _| {
            parser.currently_forced_bytes().is_empty() && parser.is_accepting() && !parser.can_advance()
        })?;
        Ok(())
    }

    /// The token that must come next, where the constraint leaves no choice.
    pub(crate) fn forced(&mut self) -> Result<Option<TokenId>> {
        if self.forced.is_empty() && !self.over {
            let (last, drops) = (self.last, self.drops_space);
            self.forced = self.guarded(|parser, vocabulary| certain(parser, vocabulary, last, drops))?;
        }
        Ok(self.forced.pop_front())
    }

    /// Whether the text is whole, and nothing may follow.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// All tokens that may come next.
    fn set(&mut self) -> Result<SimpleVob> {
        let mut set = self.guarded(|parser, vocabulary| {
            let begun = parser.currently_forced_bytes().to_vec();
            let mut set = parser.compute_bias(&*vocabulary.slicer, &begun);
            let ends = begun.is_empty() && parser.is_accepting();
            for &end in vocabulary.trie().eos_tokens() {
                if (end as usize) < vocabulary.trie().vocab_size() {
                    set.set(end as usize, ends);
                }
            }
            set
        })?;
        if self.drops_space {
            let trie = self.vocabulary.trie();
            let dropped: Vec<u32> = set.iter().filter(|id| trie.token(*id).first() == Some(&b' ')).collect();
            dropped.into_iter().for_each(|id| set.disallow_token(id));
        }
        Ok(set)
    }

    /// Whether the token's text would not be all that it spells.
    fn is_dropped(&self, token: TokenId) -> bool {
        self.drops_space && self.vocabulary.trie().token(token.0).first() == Some(&b' ')
    }

    /// Does some work with the parser, which says when its limits are reached, and panics over what it did not expect.
    fn guarded<T>(&mut self, work: impl FnOnce(&mut Parser, &Vocabulary) -> T) -> Result<T> {
        let Self { parser, vocabulary, .. } = self;
        let (done, error) = catch_unwind(AssertUnwindSafe(|| {
            let done = work(parser, vocabulary);
            (done, parser.get_error())
        }))
        .map_err(|_| panicked())?;
        match error {
            None => Ok(done),
            Some(error) => Err(self.failed(&error.message())),
        }
    }

    fn failed(&self, message: &str) -> Error {
        refused(self.field, message)
    }
}

/// Reads a constraint, on a thread with room for its depth.
fn read(constraint: &Constraint, vocabulary: &Vocabulary) -> Result<Parser> {
    let field = constraint.field();
    let grammar = match constraint {
        Constraint::JsonSchema(schema) => TopLevelGrammar::from_json_schema(spaced(schema.clone())),
        Constraint::JsonObject => TopLevelGrammar::from_json_schema(spaced(Constraint::object())),
        Constraint::Regex(text) => TopLevelGrammar::from_regex(text),
        Constraint::Lark(text) => TopLevelGrammar::from_lark(text.clone()),
    };
    let (env, extra) = (Arc::clone(&vocabulary.env), vocabulary.slicer.extra_lexemes());
    let work = move || {
        let init = GrammarInit::Serialized(grammar);
        let grammar = init.to_cgrammar(Some(Arc::clone(&env)), &mut Logger::new(0, 0), limits(), extra)?;
        Parser::new(env, grammar, limits(), Arc::new(ParserPerfCounters::default()))
    };
    let stack = STACK[0] + constraint.bytes() * STACK[1];
    let reader = std::thread::Builder::new().name("skulk-grammar".into()).stack_size(stack);
    let reader = reader.spawn(work).map_err(|e| {
        Error::new(ErrorKind::EngineFailed, "cannot start the thread that reads grammars").with_source(e)
    })?;
    // It panics where there are more than some 65,000 symbols.
    let read = reader.join().map_err(|_| refused(field, "it has too many parts"))?;
    read.map_err(|e| refused(field, &format!("{e:#}")))
}

/// White space between JSON's parts: a space, or a new line with what it is indented by. Without a bound, models that begin
/// with it may go on with it for ever.
const WHITE_SPACE: &str = r"\x20|\r?\n[\x20\t]{0,64}";

/// The schema with a bound for white space, unless it says itself how JSON is written.
fn spaced(mut schema: Value) -> Value {
    if schema == Value::Bool(true) {
        schema = json!({});
    }
    if let Value::Object(members) = &mut schema {
        members.entry("x-guidance").or_insert_with(|| json!({"whitespace_pattern": WHITE_SPACE}));
    }
    schema
}

/// The tokens that spell what must come, as far as they are certain: what the last ones spell may be part of a longer one.
fn certain(
    parser: &mut Parser,
    vocabulary: &Vocabulary,
    last: Option<TokenId>,
    drops_space: bool,
) -> VecDeque<TokenId> {
    if parser.grammar().lexer_spec().no_forcing {
        return VecDeque::new();
    }
    let bytes = parser.force_bytes().to_vec();
    let Ok(text) = std::str::from_utf8(&bytes) else { return VecDeque::new() };
    if text.is_empty() || drops_space && text.starts_with(' ') {
        return VecDeque::new();
    }
    let trie = vocabulary.trie();
    let spells = |tokens: &[u32], bytes: &[u8]| !tokens.is_empty() && trie.decode_raw(tokens) == bytes;
    let cut = |text: &str| -> Vec<u32> {
        let tokens = vocabulary.tokenizer.encode_text(text).unwrap_or_default();
        tokens.into_iter().map(|id| id.0).collect()
    };
    let behind = |before: &str| {
        let tokens = cut(&format!("{before}{text}"));
        let rest = tokens.strip_prefix(cut(before).as_slice())?;
        spells(rest, &bytes).then(|| rest.to_vec())
    };
    // Behind the last token, if it is text, for the sake of rules that look at what is in front. At the beginning of a text
    // some rules put a space.
    let last = last.filter(|id| !trie.is_special_token(id.0));
    let before = last.and_then(|id| std::str::from_utf8(trie.token(id.0)).ok()).unwrap_or_default();
    let tokens = behind(before).or_else(|| behind("")).or_else(|| behind("\n"));
    let Some(mut tokens) = tokens else { return VecDeque::new() };
    let (uncertain, _) = parser.with_recognizer(|recognizer| trie.chop_tokens(recognizer, &tokens));
    tokens.truncate(tokens.len() - uncertain);
    tokens.into_iter().map(TokenId).collect()
}

fn refused(field: &'static str, message: &str) -> Error {
    Error::argument(field, format!("expected a constraint that can be enforced: {}", message.trim()))
        .with_hint("correct the constraint, or make it simpler")
}

fn panicked() -> Error {
    Error::new(ErrorKind::Internal, "what reads grammars panicked")
}
