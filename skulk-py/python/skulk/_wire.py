"""How does data cross to the native module? As JSON: dataclasses with snake_case, objects with camelCase fields."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import Field, fields, is_dataclass
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Spell = Callable[[str], str]

_KNOWN_HINTS: dict[type[Any], dict[str, Any]] = {}


def camel(name: str) -> str:
    """A field's name in camelCase."""
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


def dumps(value: object, spell: Spell = camel) -> str:
    """A dataclass as JSON, its fields spelled so."""
    return json.dumps(_plain(value, spell))


def loads(cls: type[T], text: str, spell: Spell = camel) -> T:
    """The dataclass that JSON stands for. Fields that are not there have their defaults."""
    made: T = _made(cls, json.loads(text), spell)
    return made


def _plain(value: Any, spell: Spell) -> Any:
    if is_dataclass(value):
        data: dict[str, Any] = {}
        for field in fields(value):
            member = getattr(value, field.name)
            tag = field.metadata.get("tags", {}).get(type(member))
            # One of several kinds of data stands among its owner's fields, with its tag.
            plain = _plain(member, spell)
            data |= {_key(field, spell): plain} if tag is None else {"type": tag} | plain
        return data
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item, spell) for item in value]
    if isinstance(value, Mapping):
        return {key: _plain(item, spell) for key, item in value.items()}
    return value


def _made(hint: Any, value: Any, spell: Spell) -> Any:
    if value is None:
        return None
    origin, members = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _made(next(member for member in members if member is not type(None)), value, spell)
    if origin in (list, tuple, set):
        return origin(_made(members[0], item, spell) for item in value)
    if isinstance(hint, type) and is_dataclass(hint):
        found = {}
        for field in fields(hint):
            for kind, tag in field.metadata.get("tags", {}).items():
                if value["type"] == tag:
                    found[field.name] = _made(kind, value, spell)
            key = _key(field, spell)
            if key in value:
                found[field.name] = _made(_hints(hint)[field.name], value[key], spell)
        return hint(**found)
    return value


def _key(field: Field[Any], spell: Spell) -> str:
    key: str = field.metadata.get("key") or spell(field.name)
    return key


def _hints(cls: type[Any]) -> dict[str, Any]:
    if cls not in _KNOWN_HINTS:
        _KNOWN_HINTS[cls] = get_type_hints(cls)
    return _KNOWN_HINTS[cls]
