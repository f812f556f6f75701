//! What does a chat template tell about its model? Whether it reasons, whether that can be turned off, whether it
//! calls tools.

use std::collections::BTreeSet;

/// Markers between which models reason.
const MARKERS: [&str; 2] = ["<think>", "</think>"];
/// Variables by which requests turn reasoning on and off.
const SWITCHES: [&str; 2] = ["enable_thinking", "thinking"];

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct TemplateFacts {
    /// It writes or removes reasoning.
    pub(super) thinking: bool,
    /// Reasoning stands between markers.
    pub(super) delimited: bool,
    /// A variable turns reasoning on and off.
    pub(super) toggle: bool,
    /// It takes tools.
    pub(super) tools: bool,
}

impl TemplateFacts {
    /// Reads a Jinja template, or several, one after the other.
    pub(super) fn read(template: &str) -> Self {
        let variables = variables(template);
        let delimited = MARKERS.iter().any(|marker| template.contains(marker));
        let toggle = SWITCHES.iter().any(|name| variables.contains(name));
        Self { thinking: delimited || toggle, delimited, toggle, tools: variables.contains("tools") }
    }
}

/// Every name in the template's code that is neither an attribute nor part of a string.
fn variables(template: &str) -> BTreeSet<&str> {
    let bytes = template.as_bytes();
    let at = |i: usize| bytes.get(i).copied().unwrap_or(0);
    let mut found = BTreeSet::new();
    let (mut i, mut code, mut attribute) = (0, false, false);
    while i < bytes.len() {
        let start = i;
        i += 1;
        match (at(start), at(start + 1)) {
            (b'{', b'{' | b'%') if !code => (code, attribute, i) = (true, false, start + 2),
            (b'}' | b'%', b'}') if code => (code, i) = (false, start + 2),
            (quote @ (b'\'' | b'"'), _) if code => {
                while i < bytes.len() && at(i) != quote {
                    i += if at(i) == b'\\' { 2 } else { 1 };
                }
                (attribute, i) = (false, i + 1);
            }
            (b'a'..=b'z' | b'A'..=b'Z' | b'_', _) if code => {
                while at(i).is_ascii_alphanumeric() || at(i) == b'_' {
                    i += 1;
                }
                if !attribute {
                    found.extend(template.get(start..i));
                }
                attribute = false;
            }
            (b'.', _) => attribute = true,
            (byte, _) if !byte.is_ascii_whitespace() => attribute = false,
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_variables_only_in_code() {
        let template = "tools {{ 'tools' + \"to\\\"ols\" }} {{ message.tools }} {% if a . tools %} {%- for x in xs | list %}";
        let found: Vec<_> = variables(template).into_iter().collect();
        assert_eq!(found, ["a", "for", "if", "in", "list", "message", "x", "xs"]);
        for unfinished in ["{{ 'tools", "{% tools", "{{ \"\\", "{{", "{{ tools.", "ä{{ ä }}"] {
            variables(unfinished);
        }
    }

    #[test]
    fn tools_and_reasoning_are_recognised() {
        let qwen3 = "{%- if tools %}{{ '<tool_call>' }}{%- endif %}{% if enable_thinking is defined %}<think>{% endif %}";
        let expected = TemplateFacts { thinking: true, delimited: true, toggle: true, tools: true };
        assert_eq!(TemplateFacts::read(qwen3), expected);
        let always = "{{ content.split('</think>')[-1] }}";
        assert_eq!(
            TemplateFacts::read(always),
            TemplateFacts { thinking: true, delimited: true, ..TemplateFacts::default() }
        );
        let plain = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{{ m.thinking }}{% endfor %}";
        assert_eq!(TemplateFacts::read(plain), TemplateFacts::default());
    }
}
