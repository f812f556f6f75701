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

/// What makes long texts or many values out of few.
#[test]
fn what_is_made_is_paid_for_before_it_is() {
    for source in [
        "{{ '{:100000000000}'.format(1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:.1000000000f}'.format(1.5) }}",
        "{{ '{:>1000000000}'.format('a') }}",
        "{{ ('{:60000}' * 1000000).format(1) }}",
        "{% set x = 'a' * 16000000 %}{{ ('{0}' * 100000).format(x) }}",
        "{% set x = 'a' * 16000000 %}{{ ('{0[0]}' * 100000).format([x]) }}",
        "{% set x = 'a' * 16000000 %}{{ ('%(x)s' * 100000) | format(x=x) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ '%.1000000000f' | format(1) }}",
        "{{ ''.join(['a' * 16000000] * 1000000) }}",
        "{{ (['a' * 16000000] * 1000000) | join }}",
        "{{ (['a' * 16000000] * 1000) | list | pprint }}",
        "{{ (['a' * 1000000] * 2000) ~ 'x' }}",
        "{{ ['a' * 1000000] * 2000 ~ 'x' }}",
        "{% set x = ['a' * 60000000] %}{% set y = x + x + x + x + x + x + x + x %}{{ y ~ 'x' }}",
        "{% set x = ['a' * 60000000] %}{{ (x + x + x + x) | upper }}",
        "{{ ('a' * 16000000).split('a') }}",
        "{{ ('a' * 16000000) | split('a') }}",
        "{{ ('\\n' * 16000000).splitlines() }}",
        "{{ ('\\n' * 16000000) | lines }}",
        "{{ ('a' * 16000000) | batch(1) }}",
        "{{ ('a' * 16000000) | slice(16000000) }}",
        "{{ ('a' * 16000000) | list }}",
        "{{ (['a' * 1000000] * 1000) | groupby('a') }}",
        "{{ ('a' * 1000000) | replace('a', 'b' * 1000000) }}",
        "{{ ['a'] | sort(attribute='a,' * 1000000) }}",
        "{{ (['a'] * 100000) | map(attribute='a.' * 10000000) | list }}",
        "{{ ('a' * 16000000).strip('b' * 16000000 ~ 'a') }}",
        "{{ ('a' * 16000000) | trim('b' * 16000000 ~ 'a') }}",
    ] {
        let error = refused(source);
        assert_eq!(error.kind(), ErrorKind::TemplateInvalid, "{source}");
        let says = format!("{error} {:?}", error.context());
        let bounds = ["computes without end", "the width is too large"];
        assert!(bounds.iter().any(|bound| says.contains(bound)), "{source}: {says}");
    }
}

/// What is long costs more to compare, to look up and to look at than what is short.
#[test]
fn what_is_long_is_not_compared_without_end() {
    let texts = "{% set x = 'a' * 16000000 %}{% set y = 'a' * 16000000 %}{% set u = 'ü' * 8000000 %}{% set d = {x: 1} %}{% set l = [x] %}{% set m = [y] | list %}";
    for what in [
        "{% if x == y %}{% endif %}",
        "{% if not x != y %}{% endif %}",
        "{% if x < y %}{% endif %}",
        "{% if 'b' ~ x in l or x in m %}{% endif %}",
        "{% if x not in [y] %}{% endif %}",
        "{% if l == m %}{% endif %}",
        "{% if (x, y) == (y, x) %}{% endif %}",
        "{% if x is eq y %}{% endif %}",
        "{% if x is in m %}{% endif %}",
        "{% if x is lower %}{% endif %}",
        "{% if u[7999999] %}{% endif %}",
        "{% if u[-1] %}{% endif %}",
        "{% if u[7999998:7999999] %}{% endif %}",
        "{% if d[x] %}{% endif %}",
        "{% if d | attr(x) %}{% endif %}",
        "{% if d.get(x) %}{% endif %}",
        "{% set e = {x: 1} %}",
        "{% if x.find('b') %}{% endif %}",
        "{% if x.isalpha() %}{% endif %}",
        "{% if x.startswith((y ~ 'b', 'c')) %}{% endif %}",
        "{% if m.count(x) %}{% endif %}",
        "{% if m.index(x) %}{% endif %}",
        "{% if [x, y] | sort %}{% endif %}",
        "{% if [x, y] | unique %}{% endif %}",
        "{% if [x, y] | max %}{% endif %}",
        "{% if m | select('eq', x) | list %}{% endif %}",
    ] {
        let source = format!(
            "{texts}{{% for i in range(100000) %}}{{% for j in range(100000) %}}{what}{{% endfor %}}{{% endfor %}}"
        );
        let error = refused(&source);
        assert_eq!(error.kind(), ErrorKind::TemplateInvalid, "{what}");
        assert!(error.to_string().contains("computes without end"), "{what}: {error}");
    }
    for source in [
        "{{ (['a' * 16000000] * 100000) == (['a' * 16000000] * 100000) }}".to_owned(),
        "{{ (['a' * 16000000] * 100000) | sort }}".to_owned(),
        "{{ ((['a' * 16000000] | list) * 100000) | unique }}".to_owned(),
        format!("{{{{ messages[0].{} }}}}", "a".repeat(100_000)),
    ] {
        assert_eq!(refused(&source).kind(), ErrorKind::TemplateInvalid, "{:.80}", source);
    }
}

/// Bounds are for what templates make, not for what they are given.
#[test]
fn long_messages_pass_whole() {
    let source = "{% for m in messages %}{{ '<' ~ m.role ~ '>' + m.content | trim + '\\n' }}{% if m.content == messages[0].content and 'b' not in m.content %}{{ m.content[0] }}{% endif %}{% endfor %}";
    let long = "a".repeat(5 << 20);
    let rendered = ChatTemplate::new(source)
        .unwrap()
        .render(&[Message::user(long.as_str()), Message::user("c")], &TemplateOptions::default());
    assert!(rendered.unwrap() == format!("<user>{long}\na<user>c\n"));
    let lines = "a line\n".repeat(200_000);
    let source = "{% set n = namespace(x=[]) %}{% for m in messages %}{% set n.x = n.x + [m.content] %}{% endfor %}{{ n.x | join }}{{ ''.join(n.x) }}{{ messages[0].content.split('\\n') | length }}";
    let rendered = ChatTemplate::new(source)
        .unwrap()
        .render(&[Message::user(lines.as_str())], &TemplateOptions::default());
    assert!(rendered.unwrap() == format!("{lines}{lines}200001"));
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
            "{{ '{:>5}|{:.2f}|{a}'.format('x', 1.5, a=[1]) }}{{ '-'.join(['a', 'b']) }}{{ 'aXbX'.replace('X', '--', 1) }}{{ 'aXbX' | replace('X', '') }}{{ ['a', 'b', 'a'].count('a') }}",
            "    x|1.50|[1]a-ba--bXab2",
        ),
        (
            "{% set x, y, d = 'üb', 'b', {'b': [1, 2]} %}{{ x[0] }}{{ x[-1] == y }}{{ x[1:] }}{{ d[y][-1] }}{{ y in d }}{{ y not in x }}{{ 'x' in y }}{{ d[y] == [1] * 2 }}{{ ([1] * 3) | length }}",
            "üTrueb2TrueFalseFalseFalse3",
        ),
        (
            "{{ [3, 1] | sort(reverse=true) }}{{ [{'a': 2}, {'a': 1}] | map(attribute='a') | max }}{{ ['b', 'a'] | unique | list }}{{ 'a b' | split | last }}{{ [1] | pprint }}{{ 1 is in [1] }}{{ [1, 2] | select('gt', 1) | list }}{{ [1, 2] | sum }}",
            "[3, 1]2['b', 'a']b[1]True[2]3",
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
