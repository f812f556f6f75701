//! What do filters, tests and methods cost beside the text that they are given and the value that they make?
//!
//! The engine charges for those two, one fuel for 64 bytes. What is charged here is what else is read, how often values
//! are compared, and what is written of values that are given, before it is written.

use std::borrow::Cow;
use std::sync::Arc;

use minijinja::value::{Kwargs, Rest, StringInput, Value, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, filters, tests};

use super::held::{endless, size};
use super::{python, texts};

/// Bytes that cost one.
const BYTES: usize = 64;
/// Of an attribute's path, and of characters to strip.
const NAME_MAX: usize = 256;
/// What the widths and precisions of a format are together.
const FORMAT_MAX: usize = 65_535;
/// Bytes of a list's slot.
const SLOT: usize = 32;

type Arguments = Rest<ValueOrKwargs>;

/// Takes what `bytes` cost.
pub(super) fn pay(state: &State<'_, '_>, bytes: usize) -> Result<(), Error> {
    if bytes < BYTES { Ok(()) } else { state.consume_fuel((bytes / BYTES) as u64) }
}

/// An error where `bytes` could not be paid for when they are made.
pub(super) fn afford(state: &State<'_, '_>, bytes: usize) -> Result<(), Error> {
    let left = state.fuel_levels().map_or(0, |(_, left)| left);
    if (bytes / BYTES) as u64 >= left { Err(endless()) } else { Ok(()) }
}

/// Takes what reading all of `value` costs.
pub(super) fn of_all(state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    match value.as_str() {
        Some(text) => pay(state, text.len()),
        None if value.as_object().is_some() => pay(state, size(state, value)?.bytes),
        None => Ok(()),
    }
}

/// Takes what putting the items of `value` in order costs.
pub(super) fn of_order(state: &State<'_, '_>, value: &Value) -> Result<(), Error> {
    let size = size(state, value)?;
    let comparisons = usize::BITS - size.nodes.leading_zeros();
    pay(state, size.bytes.saturating_mul(comparisons as usize))
}

/// Takes what `arguments` cost that are read for each item of `value`.
pub(super) fn of_each(
    state: &State<'_, '_>,
    value: &Value,
    arguments: &[ValueOrKwargs],
) -> Result<(), Error> {
    let text = |value: &Value| value.as_str().map_or(0, str::len);
    let bytes = arguments.iter().map(|argument| {
        let value = argument.clone().into_value();
        let pairs = value.as_object().and_then(|object| object.try_iter_pairs()).into_iter().flatten();
        text(&value) + pairs.map(|(_, value)| text(&value)).sum::<usize>()
    });
    let bytes: usize = bytes.sum();
    pay(state, bytes.saturating_mul(value.len().unwrap_or(1)))
}

/// An error where no attribute is called so, and no characters are to be stripped.
pub(super) fn of_name(name: &str) -> Result<(), Error> {
    if name.len() > NAME_MAX { Err(endless()) } else { Ok(()) }
}

/// Likewise, of a filter's attribute.
pub(super) fn of_path(attribute: Option<&str>, options: &Kwargs) -> Result<(), Error> {
    let named = options.get::<Option<&str>>("attribute").ok().flatten();
    attribute.or(named).map_or(Ok(()), of_name)
}

/// Whether the pieces of `text` can be paid for: a list's slots take more than the text.
pub(super) fn of_pieces(
    state: &State<'_, '_>,
    text: &str,
    separator: Option<&str>,
    times: Option<usize>,
) -> Result<(), Error> {
    pay(state, separator.map_or(0, str::len))?;
    let all = match separator {
        Some(separator) => text.matches(separator).count(),
        None => text.split_whitespace().count(),
    };
    let pieces = times.map_or(all, |times| all.min(times)) + 1;
    afford(state, text.len().saturating_add(pieces.saturating_mul(SLOT)))
}

/// Whether what `format` makes of `values` can be paid for; `field` begins what stands for one.
pub(super) fn of_format(
    state: &State<'_, '_>,
    field: char,
    format: &str,
    values: &[Value],
) -> Result<(), Error> {
    let (mut fields, mut widths) = (0_usize, 0_usize);
    for part in format.split(field).skip(1) {
        fields += 1;
        let end = match field {
            '{' => part.find('}'),
            _ => part.find(|char: char| char.is_ascii_alphabetic()),
        };
        let digits = part[..end.unwrap_or(part.len())].split(|char: char| !char.is_ascii_digit());
        for number in digits.filter(|digits| !digits.is_empty()) {
            widths = widths.saturating_add(number.parse().unwrap_or(usize::MAX));
        }
    }
    if widths > FORMAT_MAX {
        return Err(Error::new(ErrorKind::InvalidOperation, "the width is too large"));
    }
    let mut longest = 0;
    for value in values {
        let size = size(state, value)?;
        // Texts within others are quoted.
        let quoted = if value.as_str().is_some() { 1 } else { 4 };
        longest = longest.max(size.bytes.saturating_mul(quoted) + size.nodes * SLOT);
    }
    afford(state, format.len() + widths + fields.saturating_mul(longest))
}

/// `separator.join(items)`.
pub(super) fn joined(
    state: &State<'_, '_>,
    items: impl Iterator<Item = Result<Value, Error>>,
    separator: &str,
) -> Result<String, Error> {
    let mut out = String::new();
    for (at, item) in items.enumerate() {
        let (item, separator) = (item?, if at == 0 { "" } else { separator });
        let bytes = separator.len() + item.as_str().map_or(0, str::len);
        state.consume_fuel(1)?;
        afford(state, out.len() + bytes)?;
        out.push_str(separator);
        match item.as_str() {
            Some(text) => out.push_str(text),
            None => python::text(&item, &mut out)?,
        }
    }
    Ok(out)
}

/// Whether the lines of `text` can be paid for.
pub(super) fn of_lines(state: &State<'_, '_>, text: &str) -> Result<(), Error> {
    let lines = text.chars().filter(|char| texts::is_end(*char)).count() + 1;
    afford(state, text.len().saturating_add(lines.saturating_mul(SLOT)))
}

fn replace(state: &State<'_, '_>, args: Arguments) -> Result<String, Error> {
    let args: Vec<Value> = args.iter().map(|arg| arg.clone().into_value()).collect();
    let (text, from, to, count, options): (
        StringInput<'_>,
        StringInput<'_>,
        StringInput<'_>,
        Option<i64>,
        Kwargs,
    ) = from_args(&args)?;
    let count = match count {
        Some(count) => Some(count),
        None => options.get::<Option<i64>>("count")?,
    };
    options.assert_all_used()?;
    replaced(state, text.as_str(), from.as_str(), to.as_str(), count)
}

/// `text.replace(from, to, count)`.
pub(super) fn replaced(
    state: &State<'_, '_>,
    text: &str,
    from: &str,
    to: &str,
    count: Option<i64>,
) -> Result<String, Error> {
    pay(state, from.len() + to.len())?;
    let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    let longer = to.len().saturating_sub(from.len());
    if longer > 0 {
        let found = text.matches(from).take(count).count();
        afford(state, text.len().saturating_add(found.saturating_mul(longer)))?;
    }
    Ok(text.replacen(from, to, count))
}

/// Sets filters and tests that pay.
pub(super) fn add(environment: &mut Environment<'_>) {
    add_tests(environment);
    add_orders(environment);
    add_texts(environment);
}

fn add_tests(environment: &mut Environment<'_>) {
    macro_rules! compared {
        ($($function:ident: $($name:literal)*;)*) => {
            $($(environment.add_test($name, |state: &State<'_, '_>, value: &Value, other: &Value| {
                of_all(state, value)?;
                of_all(state, other)?;
                Ok::<bool, Error>(tests::$function(value, other))
            });)*)*
        };
    }
    compared! {
        is_eq: "eq" "equalto" "==";
        is_ne: "ne" "!=";
        is_lt: "lt" "lessthan" "<";
        is_le: "le" "<=";
        is_gt: "gt" "greaterthan" ">";
        is_ge: "ge" ">=";
        is_sameas: "sameas";
    }
    environment.add_test("in", |state: &State<'_, '_>, value: &Value, other: &Value| {
        of_all(state, value)?;
        of_all(state, other)?;
        tests::is_in(state, value, other)
    });
    macro_rules! read {
        ($($name:literal $function:ident)*) => {
            $(environment.add_test($name, |state: &State<'_, '_>, value: &Value| {
                of_all(state, value)?;
                Ok::<bool, Error>(tests::$function(value))
            });)*
        };
    }
    read!("lower" is_lower "upper" is_upper);
    macro_rules! affixed {
        ($($name:literal $function:ident)*) => {
            $(environment.add_test($name, |state: &State<'_, '_>, text: Cow<'_, str>, affix: Cow<'_, str>| {
                pay(state, affix.len())?;
                Ok::<bool, Error>(tests::$function(text, affix))
            });)*
        };
    }
    affixed!("startingwith" is_startingwith "endingwith" is_endingwith);
}

fn add_orders(environment: &mut Environment<'_>) {
    macro_rules! ordered {
        ($($name:ident)*) => {
            $(environment.add_filter(
                stringify!($name),
                |state: &State<'_, '_>, value: Value, options: Kwargs| {
                    of_order(state, &value)?;
                    of_path(None, &options)?;
                    filters::$name(state, value, options)
                },
            );)*
        };
    }
    ordered!(sort unique min max);
    environment.add_filter("dictsort", |state: &State<'_, '_>, value: &Value, options: Kwargs| {
        of_order(state, value)?;
        state.consume_fuel(value.len().unwrap_or_default() as u64)?;
        filters::dictsort(value, options)
    });
    environment.add_filter(
        "sum",
        |state: &State<'_, '_>,
         value: Value,
         attribute: Option<&str>,
         start: Option<Value>,
         options: Kwargs| {
            of_path(attribute, &options)?;
            filters::sum(state, value, attribute, start, options)
        },
    );
}

fn add_texts(environment: &mut Environment<'_>) {
    environment.add_filter("replace", replace);
    environment.add_filter("pprint", |value: &Value| {
        let mut out = String::new();
        python::repr(value, &mut out, 0).map(|()| out)
    });
    environment.add_filter("attr", |state: &State<'_, '_>, value: &Value, key: &Value| {
        of_all(state, key)?;
        filters::attr(value, key)
    });
    environment.add_filter("trim", |text: StringInput<'_>, chars: Option<Cow<'_, str>>| {
        chars.as_deref().map_or(Ok(()), of_name)?;
        Ok::<Value, Error>(filters::trim(text, chars))
    });
    environment.add_filter("lines", |state: &State<'_, '_>, value: &Value| {
        of_pieces(state, value.as_str().unwrap_or_default(), Some("\n"), None)?;
        filters::lines(value)
    });
    environment.add_filter(
        "split",
        |state: &State<'_, '_>, value: &Value, separator: Option<Arc<str>>, times: Option<i64>| {
            let most = times.and_then(|times| usize::try_from(times).ok());
            of_pieces(state, value.as_str().unwrap_or_default(), separator.as_deref(), most)?;
            filters::split(value, separator, times)
        },
    );
    environment.add_filter("format", |state: &mut State<'_, '_>, format: &Value, values: Arguments| {
        let all: Vec<Value> = values.iter().map(|value| value.clone().into_value()).collect();
        of_format(state, '%', format.as_str().unwrap_or_default(), &all)?;
        filters::format(state, format, values)
    });
    environment.add_filter(
        "join",
        |state: &mut State<'_, '_>,
         value: &Value,
         separator: Option<StringInput<'_>>,
         attribute: Option<&str>,
         options: Kwargs| {
            of_path(attribute, &options)?;
            filters::join(state, value, separator, attribute, options)
        },
    );
}
