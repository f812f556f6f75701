//! What do words and escapes of programming languages mean?

use serde_json::Value;

/// What a character stands for behind a backslash.
pub(super) enum Escaped {
    Text(&'static str),
    Itself,
    /// As many hexadecimal digits of a character's number follow.
    Digits(u8),
    /// It is no escape, and the backslash is one.
    Nothing,
}

pub(super) fn escaped(c: char) -> Escaped {
    match c {
        'n' => Escaped::Text("\n"),
        't' => Escaped::Text("\t"),
        'r' => Escaped::Text("\r"),
        'b' => Escaped::Text("\u{8}"),
        'f' => Escaped::Text("\u{c}"),
        '\n' => Escaped::Text(""),
        '\\' | '\'' | '"' | '/' => Escaped::Itself,
        'x' => Escaped::Digits(2),
        'u' => Escaped::Digits(4),
        'U' => Escaped::Digits(8),
        _ => Escaped::Nothing,
    }
}

/// The JSON of a word without quotes: a number, a constant, or text.
pub(super) fn word(word: &str) -> String {
    match word {
        "True" => "true".to_owned(),
        "False" => "false".to_owned(),
        "None" => "null".to_owned(),
        _ if serde_json::from_str::<Value>(word).is_ok() => word.to_owned(),
        _ => Value::from(word).to_string(),
    }
}
