"""What is a model told of a function? What its signature, its annotations and its docstring say, and nothing else."""

from __future__ import annotations

import inspect
import json
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

_SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def described(function: Callable[..., object]) -> dict[str, Any]:
    """A tool of OpenAI's shape. Raises TypeError for what cannot be told of a function."""
    name = getattr(function, "__name__", "")
    if not name.isidentifier() or isinstance(function, type):
        raise TypeError(f"expected a function with a name, found {function!r}: give its tool as a dictionary")
    hint = "annotate it, or give the tool as a dictionary"
    try:
        signature = inspect.signature(function)
        hints = get_type_hints(function, include_extras=True)
    except (TypeError, ValueError, NameError) as error:
        raise TypeError(f"expected a function with a signature, found `{name}`: {error}; {hint}") from error
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in signature.parameters.values():
        where = f"`{parameter.name}` of `{name}`"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"expected arguments that can be given by name, found {where}; {hint}")
        if parameter.name not in hints:
            raise TypeError(f"expected arguments with types, found {where} without one; {hint}")
        schema = _schema(hints[parameter.name], where)
        if parameter.default is parameter.empty:
            required.append(parameter.name)
        elif _is_plain(parameter.default):
            schema["default"] = parameter.default
        properties[parameter.name] = schema
    told: dict[str, Any] = {"name": name}
    doc = inspect.getdoc(function)
    if doc:
        told["description"] = doc
    told["parameters"] = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": told}


def _is_plain(value: object) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _schema(hint: Any, where: str) -> dict[str, Any]:
    """The JSON Schema of a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return {}
    if hint is None or (isinstance(hint, type) and hint in _SIMPLE):
        return {"type": _SIMPLE[hint or type(None)]}
    if origin is Annotated:
        # The first text says what it is.
        texts = [text for text in arguments[1:] if isinstance(text, str)]
        return _schema(arguments[0], where) | ({"description": texts[0]} if texts else {})
    if origin is Literal and all(type(value) in _SIMPLE for value in arguments):
        kinds = list(dict.fromkeys(_SIMPLE[type(value)] for value in arguments))
        return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(one, where) for one in arguments]}
    kind = origin or hint
    if kind in (list, Sequence) and len(arguments) <= 1:
        return {"type": "array"} | ({"items": _schema(arguments[0], where)} if arguments else {})
    if kind in (dict, Mapping) and arguments[:1] in ((), (str,)):
        return {"type": "object"} | ({"additionalProperties": _schema(arguments[1], where)} if arguments else {})
    raise TypeError(f"expected a type that JSON Schema has, found {hint!r} for {where}: give the tool as a dictionary")
