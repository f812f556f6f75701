//! How does Python declare errors? As a class for each kind, below one that has what all of them have.

use crate::python::wrapped;

/// Python's own classes for the same situation, so that `except FileNotFoundError` works too.
const BUILTIN: [(&str, &str); 5] = [
    ("InvalidArgument", "ValueError, TypeError"),
    ("FileNotFound", "builtins.FileNotFoundError"),
    ("FileIo", "OSError"),
    ("OutOfMemory", "MemoryError"),
    ("DeadlineExceeded", "TimeoutError"),
];

/// In place of the fields of OSError, which would make the text and are not pickled.
const OF_FILES: &str = "    errno: int | None = None
    \"\"\"The system's number, where it is known.\"\"\"
    strerror: str | None = None
    \"\"\"The same as the message.\"\"\"
    filename: str | None = None
    \"\"\"The path, where it is known.\"\"\"
";

/// What only some kinds have.
const FIELDS: [(&str, &str); 5] = [
    ("FileNotFound", OF_FILES),
    ("FileIo", OF_FILES),
    (
        "CardInvalid",
        "    faults: list[CardFault]
    \"\"\"All that is wrong with the card; empty for a text that is none at all.\"\"\"

    def __init__(self, *args: object) -> None:
        \"\"\"An error with this text.\"\"\"
        super().__init__(*args)
        self.faults = []
",
    ),
    (
        "PlanNoFit",
        "    report: PlanReport | None = None
    \"\"\"Why there is none, and what would make it fit; `skulk.plan` always gives one.\"\"\"
",
    ),
    (
        "PlanPending",
        "    report: PlanReport | None = None
    \"\"\"What is missing; `skulk.plan` always gives one.\"\"\"
",
    ),
];

const HEAD: &str = "\"\"\"What can go wrong? A class for each kind of error.

Written by ``cargo run -p skulk-contract-generate`` from the library's own declarations.
\"\"\"

from __future__ import annotations

import builtins

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Literal

    from ._contract import CardFault
    from ._report import PlanReport


class Error(Exception):
    \"\"\"Base class of everything skulk raises on its own account.\"\"\"

    __module__ = \"skulk\"
    code: str
    \"\"\"The stable, dotted code of the kind, e.g. ``context.overflow``. A class has it too.\"\"\"
    message: str
    \"\"\"What was expected, what was found; without code, context or hint.\"\"\"
    hint: str | None
    \"\"\"What to do next, where the library knows.\"\"\"
    retry: Literal[\"never\", \"now\", \"after_replan\"]
    \"\"\"Whether trying again can help.\"\"\"
    context: dict[str, str]
    \"\"\"The places the error concerns: file, tensor, field, …; several of one name are separated by commas.\"\"\"
    detail: dict[str, Any] | None
    \"\"\"Typed facts where callers may branch on them: ``needed`` and ``available`` tokens of a context, the ``expected``
    and ``found`` shape of a tensor, the ``faults`` of a card or placement, or the ``report`` of a plan.\"\"\"

    def __init__(self, *args: object) -> None:
        \"\"\"An error with this text. Those of the library have more to say.\"\"\"
        super().__init__(*args)
        self.message = str(args[0]) if args else \"\"
        self.hint, self.retry, self.context, self.detail = None, \"never\", {}, None
";

/// The module, with its text.
pub(crate) fn files() -> Vec<(&'static str, String)> {
    let schema = schemars::schema_for!(skulk::ErrorKind);
    let docs = schema.as_value()["oneOf"].as_array().unwrap();
    let classes = skulk_contract::kinds().map(|(kind, code)| {
        let doc = docs.iter().find(|doc| doc["const"] == kind).and_then(|doc| doc["description"].as_str());
        class(kind, code, doc.unwrap())
    });
    vec![("skulk-py/python/skulk/_errors.py", HEAD.to_owned() + &classes.collect::<String>())]
}

fn class(kind: &str, code: &str, doc: &str) -> String {
    let of = |table: &[(&'static str, &'static str)]| {
        table.iter().find(|(name, _)| *name == kind).map(|(_, text)| *text)
    };
    let bases = of(&BUILTIN).map(|bases| format!(", {bases}")).unwrap_or_default();
    format!(
        "\n\nclass {kind}Error(Error{bases}):\n    \"\"\"{}\n\n    Its code is ``{code}``.\n    \"\"\"\n\n    __module__ = \"skulk\"\n    code = \"{code}\"\n{}",
        wrapped(doc, 4),
        of(&FIELDS).unwrap_or_default()
    )
}
