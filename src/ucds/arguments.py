"""Refuses arguments of public functions that are of another kind than their annotations name.

Python accepts any value for any argument. The error would come later, after some work, and would name neither
the argument nor the call. The annotations say what is right; so no function checks this by itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from types import UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from ucds.errors import InputError, brief

P = ParamSpec("P")
R = TypeVar("R")

_ACCEPTED: dict[Any, Any] = {int: Integral, float: Real, str: (str, PathLike), Path: (str, PathLike)}
"""Further classes that are accepted for a kind: numbers of NumPy are numbers, and a path may be a text."""
_WORDS = {
    "int": "an integer",
    "float": "a number",
    "bool": "True or False",
    "str": "a text",
    "Path": "a path",
    "NoneType": "None",
    "Sized": "a collection",
    "tuple": "a tuple",
    "ndarray": "an array",
    "Callable": "a function",
}
"""Words for the kinds by their names: not every process that checks arguments needs NumPy."""


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that raises ``InputError`` for an argument that is not of its annotated kind."""
    signature = inspect.signature(function)

    @wraps(function)
    def run(*given: P.args, **named: P.kwargs) -> R:
        bound = signature.bind(*given, **named)
        require_kinds(get_type_hints(function), bound.arguments)
        bound.arguments.update({name: _plain(value) for name, value in bound.arguments.items()})
        return function(*bound.args, **bound.kwargs)

    return run


def require_kinds(kinds: Mapping[str, Any], given: Mapping[str, object]) -> None:
    """Make sure that values are of their kinds: annotations, by the names of the arguments."""
    for name, value in given.items():
        allowed = _alternatives(kinds.get(name, Any))  # `self` has no annotation
        if not any(_is(value, kind) for kind in allowed):
            words = " or ".join(dict.fromkeys(map(_told, allowed)))
            raise InputError(f"`{name}` must be {words}, not {brief(value)}")


def require_fields(options: object) -> None:
    """Make sure that the fields of a dataclass are of their kinds, and make numbers those of Python."""
    require_kinds(get_type_hints(type(options)), vars(options))
    for name, value in list(vars(options).items()):
        object.__setattr__(options, name, _plain(value))


def _plain(value: Any) -> Any:
    """Return a number of NumPy as one of Python, which files of JSON can hold; other values as they are."""
    if isinstance(value, int | float) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def _alternatives(kind: Any) -> tuple[Any, ...]:
    if kind is Any:
        return (object,)
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _is(value: object, kind: Any) -> bool:
    origin = get_origin(kind) or kind
    if origin is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if isinstance(value, bool):
        return origin is bool
    if isinstance(value, str) and get_args(kind):  # of many that are wanted, each letter would be one
        return False
    return isinstance(value, _ACCEPTED.get(origin, origin))


def _told(kind: Any) -> str:
    origin = get_origin(kind) or kind
    if origin is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if origin.__name__ not in _WORDS and get_args(kind) and issubclass(origin, Iterable):
        return "a mapping" if issubclass(origin, Mapping) else "a sequence"
    return str(_WORDS.get(origin.__name__, origin.__name__))
