//! What do chat templates find beside their variables? What transformers gives them, in bounds.

use std::error::Error as _;
use std::fmt;
use std::io;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error as Failure, ErrorKind as FailureKind, State};

use super::python::{self, Dumps};
use super::texts::{self, escaped};
use super::{clock, cost, generator, held, methods, prepare};
use crate::error::{Error, ErrorKind, Result};

/// Work of a rendering: about one for an instruction or for 64 bytes. A conversation of a thousand messages takes some
/// hundred thousand.
const FUEL: u64 = 3_000_000;
/// Longer than any template.
pub(super) const SOURCE_MAX: usize = 256 << 10;
/// What the template engine does to a template's nested parts, and to values that nest as deep as fuel lets a template
/// make them, takes the stack's depth without end in sight: up to some hundred bytes a level.
#[cfg(target_pointer_width = "64")]
const STACK: usize = 256 << 20;
#[cfg(not(target_pointer_width = "64"))]
const STACK: usize = 64 << 20;
/// Levels of blocks; a macro counts as several. Threads of hosts may have little stack.
const RECURSION: usize = 200;
/// What `tojson` writes between values, in bytes.
const SPACING_MAX: usize = 64;
/// Far more than any context.
const OUTPUT_MAX: usize = 64 << 20;

/// Tests that mean more values in Python than elsewhere.
const KINDS: [(&str, &[ValueKind]); 3] = [
    ("callable", &[ValueKind::Plain]),
    (
        "iterable",
        &[ValueKind::String, ValueKind::Seq, ValueKind::Iterable, ValueKind::Map, ValueKind::Undefined],
    ),
    ("number", &[ValueKind::Number, ValueKind::Bool]),
];
/// Those of Python's `sequence`: a slice of a list is a list.
const SEQUENCES: [ValueKind; 5] =
    [ValueKind::String, ValueKind::Seq, ValueKind::Iterable, ValueKind::Map, ValueKind::Undefined];

/// An environment as transformers sets Jinja 2 up.
pub(super) fn environment() -> Result<Environment<'static>> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(|e| {
        Error::new(ErrorKind::Internal, "the template engine refuses its syntax").with_source(e)
    })?);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(methods::call);
    environment.set_formatter(|out, _, value| match value.as_str() {
        Some(text) => Ok(out.write_str(text)?),
        None => {
            let mut text = String::new();
            python::text(value, &mut text)?;
            Ok(out.write_str(&text)?)
        }
    });
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION);
    environment.add_function("raise_exception", raise);
    environment.add_function("strftime_now", now);
    environment.add_filter("tojson", tojson);
    environment.add_filter(prepare::ITERATED, generator::iterated);
    environment.add_filter(prepare::MARKUP_SUM, markup_sum);
    environment.add_filter(prepare::HELD, held::held);
    // The engine charges for the texts that filters are given.
    environment.add_filter(prepare::PAID, |value: Value| value);
    generator::add_filters(&mut environment);
    held::add(&mut environment);
    texts::add(&mut environment);
    cost::add(&mut environment);
    for (name, kinds) in KINDS {
        environment.add_test(name, |value: &Value| kinds.contains(&value.kind()));
    }
    environment.add_test("sequence", |value: &Value| {
        SEQUENCES.contains(&value.kind()) && !generator::is_generator(value)
    });
    Ok(environment)
}

/// Does `work` on a thread whose stack is large enough for whatever a template says. Memory is taken as it is used.
pub(super) fn with_stack<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("skulk-template".to_owned()).stack_size(STACK);
        let thread = thread.spawn_scoped(scope, work).map_err(|e| {
            Error::new(ErrorKind::OutOfMemory, "no thread can be started for the chat template")
                .with_source(e)
        })?;
        thread.join().unwrap_or_else(|_| {
            Err(Error::new(ErrorKind::TemplateInvalid, "the template engine panicked over the chat template")
                .with_hint("the template is broken: use another one"))
        })
    })
}

/// What a template raised by itself.
#[derive(Debug)]
struct Raised(String);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Raised {}

/// The message that the template raised, if that is what failed.
pub(super) fn raised(error: &Failure) -> Option<&str> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(Raised(message)) = error.downcast_ref() {
            return Some(message);
        }
        source = error.source();
    }
    None
}

fn raise(message: Value) -> Result<Value, Failure> {
    let mut text = String::new();
    python::text(&message, &mut text)?;
    Err(Failure::new(FailureKind::InvalidOperation, text.clone()).with_source(Raised(text)))
}

fn now(state: &State<'_, '_>, format: &str) -> Result<String, Failure> {
    let seconds = state.lookup(clock::VARIABLE).and_then(|seconds| seconds.as_i64());
    clock::strftime(seconds.unwrap_or_default(), format)
}

/// The sum of texts, some of which are safe: beside those, others are escaped, as markupsafe does.
fn markup_sum(summands: Vec<Value>) -> Result<Value, Failure> {
    let texts: Option<Vec<(&str, bool)>> =
        summands.iter().map(|value| Some((value.as_str()?, value.is_safe()))).collect();
    let texts = texts
        .ok_or_else(|| Failure::new(FailureKind::InvalidOperation, "only texts can be added to safe ones"))?;
    let (mut sum, mut safe) = (String::new(), false);
    for (i, (text, marked)) in texts.into_iter().enumerate() {
        if marked && !safe && i > 0 {
            sum = escaped(&sum);
        }
        safe |= marked;
        sum.push_str(&if safe && !marked { escaped(text) } else { text.to_owned() });
    }
    Ok(if safe { Value::from_safe_string(sum) } else { sum.into() })
}

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`, `json.dumps` of transformers.
fn tojson(
    state: &State<'_, '_>,
    value: &Value,
    ensure_ascii: Option<Value>,
    indent: Option<Value>,
    options: Kwargs,
) -> Result<Value, Failure> {
    let option = |given: Option<Value>, name: &str| match given {
        Some(value) => Ok(Some(value)),
        None => options.get::<Option<Value>>(name),
    };
    let is = |value: Option<Value>| value.is_some_and(|value| value.is_true());
    let ensure_ascii = is(option(ensure_ascii, "ensure_ascii")?);
    let sort_keys = is(option(None, "sort_keys")?);
    let indent = match option(indent, "indent")?.filter(|indent| !indent.is_none()) {
        None => None,
        Some(indent) => Some(match (indent.as_str(), indent.as_usize()) {
            (Some(text), _) => text.to_owned(),
            (None, Some(spaces)) if spaces <= SPACING_MAX => " ".repeat(spaces),
            _ => return Err(Failure::new(FailureKind::InvalidOperation, "tojson: no such indent")),
        }),
    };
    let separators = match option(None, "separators")?.filter(|separators| !separators.is_none()) {
        None => ((if indent.is_some() { "," } else { ", " }).to_owned(), ": ".to_owned()),
        Some(pair) => match &pair.try_iter()?.checked().collect::<Result<Vec<_>, _>>()?[..] {
            [item, key] => match (item.as_str(), key.as_str()) {
                (Some(item), Some(key)) => (item.to_owned(), key.to_owned()),
                _ => return Err(Failure::new(FailureKind::InvalidOperation, "tojson: separators are texts")),
            },
            _ => return Err(Failure::new(FailureKind::InvalidOperation, "tojson: expected two separators")),
        },
    };
    options.assert_all_used()?;
    let given = [indent.as_deref().unwrap_or_default(), &separators.0, &separators.1];
    if given.iter().any(|text| text.len() > SPACING_MAX) {
        return Err(Failure::new(FailureKind::InvalidOperation, "tojson: such long texts are no spacing"));
    }
    let dumps = Dumps { ensure_ascii, indent, sort_keys, separators };
    let mut out = String::new();
    dumps.write(value, &mut out)?;
    state.consume_fuel(out.len() as u64 / 8)?;
    Ok(out.into())
}

/// What a rendering writes, up to a bound.
#[derive(Debug, Default)]
pub(super) struct Bounded {
    bytes: Vec<u8>,
    full: bool,
}

impl Bounded {
    /// Whether more was to be written than is allowed.
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    pub(super) fn into_string(self) -> Result<String> {
        String::from_utf8(self.bytes)
            .map_err(|e| Error::new(ErrorKind::Internal, "a template wrote broken text").with_source(e))
    }
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.full = bytes.len() > OUTPUT_MAX - self.bytes.len();
        if self.full {
            return Err(io::Error::other("too much output"));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
