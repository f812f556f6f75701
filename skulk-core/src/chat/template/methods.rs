//! Which methods do Python's strings, lists and dictionaries have? Those that read; what changes a value is refused, as
//! transformers' sandbox does.

use minijinja::value::{Tuple, Value, ValueKind, from_args};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat;

use super::held::held;
use super::{cost, texts};

/// Longer paddings are not made.
const WIDTH_MAX: usize = 1 << 20;

pub(super) fn call(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    let texts = args.iter().chain([value]).filter_map(Value::as_str);
    cost::pay(state, texts.map(str::len).sum())?;
    let own = match (value.kind(), value.as_str()) {
        (_, Some(text)) => match of_bounds(state, text, method, args)? {
            None => of_string(text, method, args)?,
            made => made,
        },
        (ValueKind::Seq, _) => of_list(state, value, method, args)?,
        (ValueKind::Map, _) if method == "copy" => Some(value.clone()),
        _ => None,
    };
    match own {
        Some(result) => Ok(result),
        None => pycompat::unknown_method_callback(state, value, method, args),
    }
}

/// Those that make far more than what they are given, or read it often; else whether `method` can be paid for.
fn of_bounds(
    state: &State<'_, '_>,
    text: &str,
    method: &str,
    args: &[Value],
) -> Result<Option<Value>, Error> {
    match method {
        "format" => cost::of_format(state, '{', text, args)?,
        "join" => {
            let (values,): (&Value,) = from_args(args)?;
            return Ok(Some(cost::joined(state, values.try_iter()?.checked(), text)?.into()));
        }
        "replace" => {
            let (from, to, count): (&str, &str, Option<i64>) = from_args(args)?;
            return Ok(Some(cost::replaced(state, text, from, to, count)?.into()));
        }
        "splitlines" => cost::of_lines(state, text)?,
        "split" | "rsplit" => {
            let separator = args.first().and_then(Value::as_str);
            let times = args.get(1).and_then(Value::as_usize);
            cost::of_pieces(state, text, separator, times)?;
        }
        "strip" | "lstrip" | "rstrip" => {
            args.iter().filter_map(Value::as_str).try_for_each(cost::of_name)?;
        }
        "startswith" | "endswith" => args.iter().try_for_each(|affix| cost::of_all(state, affix))?,
        _ => {}
    }
    Ok(None)
}

/// Those that `pycompat` lacks.
fn of_string(text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    Ok(Some(match method {
        "removeprefix" | "removesuffix" => {
            let (affix,): (&str,) = from_args(args)?;
            let prefix = method == "removeprefix";
            let rest = if prefix { text.strip_prefix(affix) } else { text.strip_suffix(affix) };
            rest.unwrap_or(text).into()
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let first = method == "partition";
            let found = if first { text.split_once(separator) } else { text.rsplit_once(separator) };
            let parts = match found {
                Some((before, after)) => [before, separator, after],
                None if first => [text, "", ""],
                None => ["", "", text],
            };
            Value::from_object(Tuple::from(parts.map(Value::from)))
        }
        "rsplit" => {
            let (separator, times): (Option<&str>, Option<usize>) = from_args(args)?;
            let Some(separator) = separator else { return Ok(None) };
            let mut parts: Vec<&str> = match times {
                Some(times) => text.rsplitn(times.saturating_add(1), separator).collect(),
                None => text.rsplit(separator).collect(),
            };
            parts.reverse();
            parts.into_iter().map(Value::from).collect()
        }
        "index" => {
            let (part,): (&str,) = from_args(args)?;
            let at = text.find(part).ok_or_else(|| failed("substring not found"))?;
            text[..at].chars().count().into()
        }
        "splitlines" => {
            let (ends,): (Option<bool>,) = from_args(args)?;
            texts::lines(text, ends.unwrap_or(false)).into_iter().map(Value::from).collect()
        }
        "title" => {
            let () = from_args(args)?;
            texts::title(text).into()
        }
        "casefold" => text.to_lowercase().into(),
        "ljust" | "rjust" | "zfill" => {
            let (width, fill): (usize, Option<char>) = from_args(args)?;
            let missing = width.saturating_sub(text.chars().count());
            if missing > WIDTH_MAX {
                return Err(failed("the width is too large"));
            }
            let fill = if method == "zfill" { '0' } else { fill.unwrap_or(' ') };
            let padding: String = std::iter::repeat_n(fill, missing).collect();
            let signed = text.starts_with(['-', '+']) && method == "zfill";
            match method {
                "ljust" => format!("{text}{padding}"),
                _ if signed => format!("{}{padding}{}", &text[..1], &text[1..]),
                _ => format!("{padding}{text}"),
            }
            .into()
        }
        _ => return Ok(None),
    }))
}

fn of_list(
    state: &State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Option<Value>, Error> {
    // What is compared with each item pays.
    let items = || held(state, value.clone())?.try_iter();
    Ok(match method {
        "copy" => Some(value.clone()),
        "count" => {
            let (wanted,): (&Value,) = from_args(args)?;
            let items: Vec<Value> = items()?.checked().collect::<Result<_, _>>()?;
            Some(items.iter().filter(|item| *item == wanted).count().into())
        }
        "index" => {
            let (wanted,): (&Value,) = from_args(args)?;
            let at = items()?.position(|item| item == *wanted);
            Some(at.ok_or_else(|| failed("value not in list"))?.into())
        }
        _ => None,
    })
}

fn failed(message: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}
