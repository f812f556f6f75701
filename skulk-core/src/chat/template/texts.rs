//! Which filters and methods make other texts in Jinja 2 than in minijinja?

use minijinja::value::{Kwargs, Rest, Value, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State};

use super::{cost, python};

/// More is no indentation.
const WIDTH_MAX: usize = 1 << 16;

/// Sets the filters.
pub(super) fn add(environment: &mut Environment<'_>) {
    environment.add_filter("string", string);
    environment.add_filter("indent", indent);
    environment.add_filter("escape", escape);
    environment.add_filter("e", escape);
}

/// `str(value)`; texts as they are.
pub(super) fn string(value: &Value) -> Result<Value, Error> {
    if value.as_str().is_some() {
        return Ok(value.clone());
    }
    let mut text = String::new();
    python::text(value, &mut text)?;
    Ok(text.into())
}

/// Python's `splitlines`.
pub(super) fn lines(text: &str, ends: bool) -> Vec<&str> {
    let (mut lines, mut from) = (Vec::new(), 0);
    let mut chars = text.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        if !is_end(char) {
            continue;
        }
        let mut end = at + char.len_utf8();
        if char == '\r' && chars.next_if(|(_, next)| *next == '\n').is_some() {
            end += 1;
        }
        lines.push(&text[from..if ends { end } else { at }]);
        from = end;
    }
    if from < text.len() {
        lines.push(&text[from..]);
    }
    lines
}

/// Whether a line ends with it in Python.
pub(super) fn is_end(char: char) -> bool {
    matches!(char, '\n'..='\r' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Python's `title`: each letter behind none is large, the others are small.
pub(super) fn title(text: &str) -> String {
    let (mut out, mut within) = (String::with_capacity(text.len()), false);
    for char in text.chars() {
        if within {
            out.extend(char.to_lowercase());
        } else {
            let mut large = char.to_uppercase();
            out.extend(large.next());
            out.extend(large.flat_map(char::to_lowercase));
        }
        within = char.is_lowercase() || char.is_uppercase();
    }
    out
}

/// `indent(text, width=4, first=False, blank=False)`.
fn indent(state: &State<'_, '_>, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let args: Vec<Value> = args.iter().map(|arg| arg.clone().into_value()).collect();
    let (value, width, first, blank, options): (&Value, Option<Value>, Option<Value>, Option<Value>, Kwargs) =
        from_args(&args)?;
    let failed = |message| Error::new(ErrorKind::InvalidOperation, message);
    let option = |given: Option<Value>, name: &str| match given {
        Some(value) => Ok(Some(value)),
        None => options.get::<Option<Value>>(name),
    };
    let is = |value: Option<Value>| value.is_some_and(|value| value.is_true());
    let (width, first) = (option(width, "width")?, is(option(first, "first")?));
    let blank = is(option(blank, "blank")?);
    options.assert_all_used()?;
    let text = value.as_str().ok_or_else(|| failed("indent: expected a text"))?;
    let width = width.unwrap_or_else(|| Value::from(4));
    let by = match (width.as_str(), width.as_usize()) {
        (Some(text), _) => text.to_owned(),
        (None, Some(spaces)) if spaces <= WIDTH_MAX => " ".repeat(spaces),
        _ => return Err(failed("indent: no such width")),
    };
    let breaks = text.chars().filter(|char| is_end(*char)).count();
    cost::afford(state, text.len().saturating_add((breaks + 1).saturating_mul(by.len())))?;
    cost::of_lines(state, text)?;
    // Behind a last break there is one more line.
    let text = format!("{text}\n");
    let mut out = String::new();
    for (at, line) in lines(&text, false).into_iter().enumerate() {
        out.push_str(if at == 0 { "" } else { "\n" });
        let indented = if at == 0 { first } else { blank || !line.is_empty() };
        out.push_str(if indented { &by } else { "" });
        out.push_str(line);
    }
    Ok(if value.is_safe() { Value::from_safe_string(out) } else { out.into() })
}

/// What markupsafe makes of a value, unless that is safe.
fn escape(value: &Value) -> Result<Value, Error> {
    if value.is_safe() {
        return Ok(value.clone());
    }
    let text = string(value)?;
    Ok(Value::from_safe_string(escaped(text.as_str().unwrap_or_default())))
}

pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            _ => out.push(char),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::{ChatTemplate, TemplateOptions};
    use super::*;
    use crate::chat::Message;

    /// What templates make of a variable `x`.
    fn made(source: &str, x: &str) -> String {
        let options = TemplateOptions::default().variable("x", x);
        ChatTemplate::new(source).unwrap().render(&[Message::user("")], &options).unwrap()
    }

    /// Expected values are Jinja's.
    #[test]
    fn lines_are_indented_as_in_jinja() {
        for (call, text, expected) in [
            ("indent", "", ""),
            ("indent", "a\n\nb\r\nc\n", "a\n\n    b\n    c\n"),
            ("indent(2)", "\n\na\u{2028}b\x0bc", "\n\n  a\n  b\n  c"),
            ("indent(4, first=true)", "{\n", "    {\n"),
            ("indent(4, true)", "", "    "),
            ("indent(width=1, blank=true)", "a\n\nb\n", "a\n \n b\n "),
            ("indent('> ', true, true)", "a\n", "> a\n> "),
        ] {
            assert_eq!(made(&format!("{{{{ x|{call} }}}}"), text), expected, "{call} {text:?}");
        }
    }

    /// Expected values are Python's.
    #[test]
    fn texts_are_cut_and_written_as_in_python() {
        assert_eq!(lines("a\r\nb\rc\n\n\x0c\x1cd", false), ["a", "b", "c", "", "", "", "d"]);
        assert_eq!(lines("a\r\nb\rc\u{85}", true), ["a\r\n", "b\r", "c\u{85}"]);
        assert!(lines("", true).is_empty());
        assert_eq!(made("{{ x.splitlines() }}", "a\rb\n"), "['a', 'b']");
        assert_eq!(made("{{ x.title() }}", "a,bC don't 2nd ßa 日x"), "A,Bc Don'T 2Nd Ssa 日X");
        assert_eq!(made("{{ '-'.join([1e16, [1.5e-5]]) }}", ""), "1e+16-[1.5e-05]");
        assert_eq!(made("{{ x|e }}{{ x|escape|e }}", "<'\"&"), "&lt;&#39;&#34;&amp;".repeat(2));
    }
}
