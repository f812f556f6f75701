//! Do templates that loop, recurse, raise or are broken give typed errors, in little time and memory?

use std::time::{Duration, Instant};

use skulk::ErrorKind;
use skulk::chat::{ChatTemplate, Json, Message, TemplateOptions, Tool};

fn refused(source: &str) -> skulk::Error {
    let started = Instant::now();
    let (own, options) = (source.to_owned(), TemplateOptions::default());
    // Threads of hosts may have little stack.
    let rendering = std::thread::Builder::new()
        .stack_size(256 << 10)
        .spawn(move || ChatTemplate::new(own)?.render(&[Message::user("Hello")], &options));
    let error = rendering.unwrap().join().unwrap().expect_err(source);
    assert!(error.hint().is_some(), "{error}");
    assert!(started.elapsed() < Duration::from_secs(20), "{source}: {:?}", started.elapsed());
    error
}

#[test]
fn templates_without_end_are_ended() {
    for source in [
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% for a in range(100000) %}{% for b in range(100000) %}{{ messages }}{% endfor %}{% endfor %}",
        "{% set n = namespace(x='aaaaaaaaaaaaaaaa') %}{% for a in range(64) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% set n = namespace(x=['a']) %}{% for a in range(64) %}{% set n.x = n.x + n.x %}{% endfor %}{{ n.x }}",
        "{% for a in range(100000) %}{{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' * 1000 }}{% endfor %}",
        "{{ 'a' * 99999999999 }}",
        "{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}",
        "{{ 'a'.ljust(99999999999) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(x) %}{{ f([x]) }}{% endmacro %}{{ f(1) }}",
        "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
        "{% set n = namespace(x=[]) %}{% for a in range(1000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x }}",
        "{% set n = namespace(x=[]) %}{% for a in range(100000) %}{% for b in range(100000) %}{% set n.x = [n.x] %}{% endfor %}{% endfor %}",
        "{% set n = namespace(x=1) %}{% for a in range(100000) %}{% for b in range(100000) %}{% set n.x = {'a': n.x} %}{% endfor %}{% endfor %}",
        "{% set n = namespace(x=1) %}{% for a in range(100000) %}{% for b in range(100000) %}{% set n.x = namespace(y=n.x) %}{% endfor %}{% endfor %}",
        "{% set n = namespace(x=['a']) %}{% for a in range(64) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
        "{% set n = namespace(x=[]) %}{% for a in range(1000) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x | tojson }}",
    ] {
        assert_eq!(refused(source).kind(), ErrorKind::TemplateInvalid, "{source}");
    }
}

/// Values that hold themselves, or that share what they hold.
#[test]
fn values_without_end_are_refused() {
    for source in [
        "{% set a = namespace() %}{% set b = namespace() %}{% set a.x = b %}{% set b.x = a %}{{ a == b }}",
        "{% set a = namespace() %}{% set a.x = a %}{{ a ~ '' }}",
        "{% set a = namespace() %}{% set a.x = [a] %}{{ a ~ '' }}",
        "{% set a = namespace() %}{% set b = namespace(a=a) %}{{ [a, b] | sort }}",
        "{% set a = namespace() %}{% set c, a.x = (1, a) %}",
        "{% set a = namespace() %}{% set b = dict(a=a) %}",
        "{% for x in messages %}{% set a = [loop] %}{% endfor %}",
        "{% set a = {} %}{% set a = a | chain(a) %}",
        "{% set a = ['a'] %}{% set a = a | zip(a) %}",
        "{{ debug() }}",
    ] {
        assert_eq!(refused(source).kind(), ErrorKind::TemplateInvalid, "{source}");
    }
    let shared = [
        "{% set n = namespace(x=['a']) %}{% set m = namespace(x=['a']) %}{% for i in range(40) %}{% set n.x = [n.x, n.x] %}{% set m.x = [m.x, m.x] %}{% endfor %}".to_owned(),
        format!("{{% set n = {{'x': ['a']}} %}}{{% set m = n %}}{}", "{% set n = {'x': [n.x, n.x]} %}".repeat(40)),
        format!("{{% set n = {{'x': (1, 2)}} %}}{{% set m = n %}}{}", "{% set n = {'x': (n.x, n.x)} %}".repeat(40)),
        format!("{{% set a = 1 %}}{}{{% set n = {{'x': a}} %}}{{% set m = n %}}", "{% set a = a, a %}".repeat(40)),
        format!("{{% set a = [1] %}}{}{{% set n = {{'x': a}} %}}{{% set m = n %}}", "{% set a = a | batch(2, a) | list %}".repeat(40)),
        "{% macro f(a, i) %}{% if i %}{{ f((a, a), i - 1) }}{% else %}{{ a == (a, 1) }}{% endif %}{% endmacro %}{{ f(1, 30) }}{% set n = {} %}{% set m = n %}".to_owned(),
    ];
    for made in shared {
        for end in [
            "{{ n.x == m.x }}",
            "{{ n.x < m.x }}",
            "{{ m.x in n.x }}",
            "{{ n.x ~ '' }}",
            "{{ n.x | join }}",
            "{{ n.x | upper }}",
            "{{ '%s' | format(n.x) }}",
            "{{ n.x | unique }}",
            "{{ n.x | sort }}",
            "{{ {n.x: 1} }}",
        ] {
            assert_eq!(refused(&format!("{made}{end}")).kind(), ErrorKind::TemplateInvalid, "{made}{end}");
        }
    }
    // What is within bounds once, but not a hundred thousand times.
    let twice = "{% set a = range(60000) | list %}{% set n = namespace(x=[a]) %}{% set m = namespace(x=[a | list]) %}{% for i in range(100000) %}{% if n.x == m.x %}{% endif %}{% endfor %}";
    assert_eq!(refused(twice).kind(), ErrorKind::TemplateInvalid);
}

#[test]
fn values_that_hold_others_are_as_ever() {
    for (source, expected) in [
        (
            "{% set call, print = {'a': 1}, [2] %}{% set x = call['a'] %}{{ x + call['a'] }}{{ print[0] }}",
            "22",
        ),
        ("{% macro f(a) %}{{ a }}{% endmacro %}{% set fs = {'f': f} %}{{ fs.f(1) }}{{ fs['f'](2) }}", "12"),
        (
            "{% set n = namespace(x=[], y={'a': 1}) %}{% for i in range(40) %}{% set n.x = n.x + [i] %}{% endfor %}{{ n.x[39] }}{{ n.x | length }}{{ n.y }}",
            "3940{'a': 1}",
        ),
        (
            "{{ [1, (2, 3), {'a': [4]}] }}{{ (1, 2)[1] }}{{ {'a': 1}.a }}{{ [1] + [2] == [1, 2] }}",
            "[1, (2, 3), {'a': [4]}]21True",
        ),
        (
            "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}{{ [3, 1] | sort }}{{ {'b': 1, 'a': 2} | dictsort }}",
            "123[1, 3][('a', 2), ('b', 1)]",
        ),
        (
            "{% set a, b = 1, [2] %}{{ a }}{{ b }}{{ {'a': [1]} | tojson }}{{ [] is sequence }}{{ {} is mapping }}{{ [] or 'none' }}",
            "1[2]{\"a\": [1]}TrueTruenone",
        ),
        (
            "{{ [1, 2, 3][1:] }}{{ [1, 2] | map('string') | join('-') }}{{ [1, 2, 3] | batch(2) | list }}{{ '%s %s' | format('a', 1) }}",
            "[2, 3]1-2[[1, 2], [3]]a 1",
        ),
        (
            "{% macro f(a=[1], b=(1, 2)) %}{{ a }}{{ b }}{{ caller('x') }}{% endmacro %}{% call(y) f() %}{{ [y] }}{% endcall %}",
            "[1](1, 2)['x']",
        ),
    ] {
        let template = ChatTemplate::new(source).unwrap();
        assert_eq!(template.render(&[], &TemplateOptions::default()).unwrap(), expected, "{source}");
    }
}

#[test]
fn broken_templates_say_where() {
    for source in [
        "{% for",
        "{{ messages",
        "{% if x %}",
        "{{ 1 +* 2 }}",
        "{% generation %}",
        &format!("{{{{ {} }}}}", "(".repeat(100_000)),
        &format!("{{{{ {}1{} }}}}", "[".repeat(100_000), "]".repeat(100_000)),
        &"{% if x %}".repeat(100_000),
        &format!("{{{{ {}x.y.z }}}}", "not ".repeat(60_000)),
        &format!("{{{{ x{} }}}}", "|a".repeat(100_000)),
        &format!("{{{{ x{} }}}}", ".a".repeat(100_000)),
        &format!("{{{{ x{} }}}}", "[0]".repeat(80_000)),
        &format!("{{{{ x.y{} }}}}", "+1".repeat(20_000)),
        &format!("{{% if x %}}{}{{% endif %}}{{{{ x.y }}}}", "{% elif x %}".repeat(20_000)),
        &"a".repeat(1 << 20),
        &"{{".repeat(1 << 17),
        &"{% raw %}{% ".repeat(20_000),
        "\n\n{{ nothing.more }}",
        "{{ messages.append(1) }}",
        "{{ messages | nofilter }}",
        "{{ tools | length }}",
        "{{ strftime_now('%Q') }}",
        "{% for x in none %}{% endfor %}",
        "{{ messages[0].content + 1 }}",
        "{{ 1 / 0 }}",
        "{{ [1] | tojson(indent='x' * 65) }}",
        "{{ [1] | tojson(separators=('x' * 65, ':')) }}",
        "{{ [1] | tojson(separators=(1, 2)) }}",
        "{% include 'x' %}",
    ] {
        assert_eq!(refused(source).kind(), ErrorKind::TemplateInvalid, "{:.80}", source);
    }
    let error = refused("\n\n{{ nothing.more }}");
    assert!(error.context().iter().any(|(key, value)| *key == "line" && value == "3"), "{error}");
}

#[test]
fn what_a_template_raises_is_told() {
    let error = refused("{{ raise_exception('Roles must ' ~ 'alternate') }}");
    assert_eq!(error.kind(), ErrorKind::ChatInvalid);
    assert!(error.context().contains(&("says", "Roles must alternate".to_owned())), "{error}");
    let template = ChatTemplate::new("{{ messages }}").unwrap();
    let error = template.render(&[], &TemplateOptions::default().variable("messages", 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn names_and_depths_are_bounded() {
    let named = |count: usize| (0..count).map(|i| (i.to_string(), String::new()));
    assert!(ChatTemplate::named(named(64)).is_ok());
    assert_eq!(ChatTemplate::named(named(65)).unwrap_err().kind(), ErrorKind::TemplateInvalid);
    let twice = [("default".to_owned(), "a".to_owned()), ("default".to_owned(), "b".to_owned())];
    let twice = ChatTemplate::named(twice).unwrap();
    assert_eq!(twice.source(&TemplateOptions::default()).unwrap(), "b");
    assert_eq!(twice.render(&[], &TemplateOptions::default()).unwrap(), "b");
    let nested = |levels: usize| (0..levels).fold(Json::Null, |json, _| Json::Array(vec![json]));
    let fields = |levels: usize| {
        Json::Object(vec![("role".to_owned(), "user".into()), ("x".to_owned(), nested(levels))])
    };
    assert!(Message::try_from(fields(127)).is_ok());
    assert_eq!(Message::try_from(fields(128)).unwrap_err().kind(), ErrorKind::ChatInvalid);
    let template = ChatTemplate::new("{{ x }}").unwrap();
    for options in [
        TemplateOptions::default().variable("x", nested(1000)),
        TemplateOptions::default().documents([nested(1000)]),
    ] {
        assert_eq!(template.render(&[], &options).unwrap_err().kind(), ErrorKind::ChatInvalid);
    }
}

#[test]
fn malformed_messages_name_the_field() {
    for (json, field) in [
        ("{}", "messages"),
        ("[3]", "messages[0]"),
        ("[{}]", "messages[0].role"),
        (r#"[{"role": 3}]"#, "messages[0].role"),
        (r#"[{"role": "user"}, {"role": "user", "content": 3}]"#, "messages[1].content"),
        (r#"[{"role": "user", "content": ["x"]}]"#, "messages[0].content[0]"),
        (r#"[{"role": "user", "content": [{"text": "x"}]}]"#, "messages[0].content[0].type"),
        (r#"[{"role": "user", "content": [{"type": "text"}]}]"#, "messages[0].content[0].text"),
        (r#"[{"role": "assistant", "reasoning_content": 1}]"#, "messages[0].reasoning_content"),
        (r#"[{"role": "assistant", "tool_calls": {}}]"#, "messages[0].tool_calls"),
        (r#"[{"role": "assistant", "tool_calls": [{}]}]"#, "messages[0].tool_calls[0].function"),
        (
            r#"[{"role": "assistant", "tool_calls": [{"function": {}}]}]"#,
            "messages[0].tool_calls[0].function.name",
        ),
        (
            r#"[{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 1}}]}]"#,
            "messages[0].tool_calls[0].function.arguments",
        ),
        (r#"[{"role": "assistant", "tool_calls": [{"type": "x"}]}]"#, "messages[0].tool_calls[0].type"),
        (r#"[{"role": "tool", "tool_call_id": 1}]"#, "messages[0].tool_call_id"),
    ] {
        let error = Message::list_from_json(json).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ChatInvalid);
        assert_eq!(error.context()[0], ("field", field.to_owned()), "{json}");
    }
    for json in ["", "[", "[{]", &"[".repeat(100_000)] {
        assert_eq!(Message::list_from_json(json).unwrap_err().kind(), ErrorKind::ChatInvalid);
        assert_eq!(Tool::list_from_json(json).unwrap_err().kind(), ErrorKind::ChatInvalid);
    }
    for (json, field) in [
        (r#"[{"type": "function"}]"#, "tools[0].function"),
        (r#"[{"type": "web", "function": {"name": "f"}}]"#, "tools[0].type"),
        (r#"[{"function": {"name": "f", "parameters": []}}]"#, "tools[0].function.parameters"),
    ] {
        assert_eq!(Tool::list_from_json(json).unwrap_err().context()[0].1, field);
    }
}
