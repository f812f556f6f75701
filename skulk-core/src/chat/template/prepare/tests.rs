//! Is what differs from Jinja 2 rewritten, and nothing else?

use super::*;

#[test]
fn what_differs_is_rewritten_and_nothing_else() {
    for (source, expected) in [
        ("{%- generation -%}a{%+ endgeneration +%}", "{%- with -%}a{%+ endwith +%}"),
        ("{% for x in xs %}", "{% for x in (xs)|__iterated %}"),
        (
            "{%- for k, v in d['in if'].items() if v -%}",
            "{%- for k, v in (d['in if'].items())|__iterated if v -%}",
        ),
        ("{% for x in (a if b else c) recursive %}", "{% for x in ((a if b else c))|__iterated recursive %}"),
        (
            "{{ 'a'|safe + b['+'] + c|f(1) -}}",
            "{{ ([('a'|safe), (b['+']), (c|f(1)), ]|__held)|__markup_sum -}}",
        ),
        ("{{- a + 'b' -}}", "{{- (a)|__held + 'b' -}}"),
        (
            "{% if x[1 + a] + f(b + -c | d) is string and g + h - i == '+' %}",
            "{% if (((x)|__paid)[(1 + (a)|__held)|__held])|__held + (f(((b)|__held + (-c | d)|__held)|__held) is string)|__held and (g)|__held + (h)|__held - i == '+' %}",
        ),
        ("{% set a = b + c|safe %}", "{% set a = ([(b), (c|safe), ]|__held)|__markup_sum %}"),
        ("{%- set a.b = c + 1 -%}", "{%- set a.b = ( ((c)|__held + 1)|__held )|__held -%}"),
        (
            "{% set a = b + c %}{{ (b + c) }}",
            "{% set a = ((b)|__held + (c)|__held)|__held %}{{ (((b)|__held + (c)|__held)|__held) }}",
        ),
        (
            "{{ a ~ [b] * 3 ~ c + '-' * d }}",
            "{{ (a ~ (([b]|__held) * 3)|__held ~ c)|__held + ('-' * d)|__held }}",
        ),
        (
            "{% if a == b or a < 'b' or not a.b >= c[0] %}",
            "{% if (a)|__held == b or a < 'b' or not (a.b)|__held >= ((c)|__paid)[0] %}",
        ),
        (
            "{% if a in b and c not in d and e in [f] and 'g' in h %}",
            "{% if (a)|__held in (b)|__held and (c)|__held not in (d)|__held and e in ([f]|__held) and 'g' in h %}",
        ),
        (
            "{{ a is in b or a is not in b or a is eq [1] }}",
            "{{ a is in b or a is not in b or a is eq [1] }}",
        ),
        (
            "{{ a.b[c]['d'][-1][1:d] + -e[f] }}",
            "{{ (((((((a.b)|__paid)[(c)|__held]['d'])|__paid)[-1])|__paid)[1:d])|__held + (-((e)|__paid)[(f)|__held])|__held }}",
        ),
        // A product's operators do not part sides, a sign behind one is no operator, and `is not` is one.
        ("{% set a = b + 1 % 2 %}", "{% set a = ((b)|__held + 1 % 2)|__held %}"),
        ("{{ 7 % a * b }}", "{{ (7 % a * b)|__held }}"),
        ("{{ a * -1 }}", "{{ (a * -1)|__held }}"),
        ("{{ a + 1 is not none }}", "{{ (a)|__held + (1 is not none)|__held }}"),
        // Arguments of tests stay as they are.
        ("{{ a is eq b['c'][d] }}", "{{ a is eq b['c'][(d)|__held] }}"),
        // Names are not put together.
        ("{{ a[3:]in b }}", "{{ (((a)|__paid)[3:])|__held in (b)|__held }}"),
        ("{{ a+'b'if c else d }}", "{{ (a)|__held+'b'if c else d }}"),
        ("{% set a, b = c, 1 %}", "{% set a, b = ( c, 1 )|__held %}"),
        (
            "{{ f([a, b['1'], (c, d), ('+')], {}, (e)) ~ {'a': []}['a'] }}",
            "{{ f(([a, b['1'], ((c, d)|__held), ('+')]|__held), ({}|__held), (e)) ~ ({'a': ([]|__held)}|__held)['a'] }}",
        ),
        ("{% for (a, b) in [c] %}", "{% for (a, b) in (([c]|__held))|__iterated %}"),
        ("{% set a = call['x'] + 1 %}", "{% set a = ((call['x'])|__held + 1)|__held %}"),
        ("{% call(a, b) f([c]) %}", "{% call(a, b) f(([c]|__held)) %}"),
    ] {
        assert_eq!(prepared(source).unwrap(), expected);
    }
    for same in [
        "",
        "{",
        "{{",
        "{%",
        "{% for x in 'a",
        "{{ 'a' + 'b' }}",
        "{{ a|safe ~ b - c }}",
        "{# {% generation %} {% for x in y %} #}",
        "{% raw %}{% for x in y %}{% generation %}{% endraw %}",
        "{% raw %}{% for x in y %}",
        "{% raw %}{{ [a] {%- endraw -%}",
        "{{ f(a, b) ~ x['1'] ~ (a) }}",
        "{% set for = generation %}",
        "{{ '{% for x in y %}' }} ü {% if 'ä' in x %}",
        "{ {% if a %} {",
    ] {
        assert_eq!(prepared(same).unwrap(), same);
    }
    // What is quadratic would not come to an end.
    for part in ["{{", "{%", "{{ '", "{% x ", "{ ", "{#", "{% raw %}{% ", "{{ (", "{% raw %}"] {
        let _ = prepared(&part.repeat(1 << 18));
    }
    assert!(prepared(&format!("{{{{ a{} }}}}", " ".repeat(1 << 20))).is_some());
    assert!(prepared(&format!("{{{{ {} }}}}", "a".repeat(NAME_MAX))).is_some());
    assert!(prepared(&format!("{{{{ b.{} }}}}", "a".repeat(NAME_MAX + 1))).is_none());
    assert!(prepared(&format!("{{{{ a{} }}}}", "+b".repeat(OPERATORS_MAX + 1))).is_none());
}
