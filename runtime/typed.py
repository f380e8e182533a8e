"""Give the hooks what they use of the modules typing and functools, without their price: named tuples, and a type checker's names.

Importing typing costs a hook a sixth of its time, and each typing.NamedTuple 0.14 ms more, since the standard library compiles a
constructor for each class; the hooks load a hundred classes. A type checker sees typing's own here: it takes the name TYPE_CHECKING for
true wherever it comes from.
"""

from __future__ import annotations

__all__ = ["TYPE_CHECKING", "NamedTuple", "Protocol", "cast", "lru_cache"]

TYPE_CHECKING = False

if TYPE_CHECKING:
    from functools import lru_cache
    from typing import NamedTuple, Protocol, cast
else:
    from _collections import _tuplegetter
    from _functools import _lru_cache_wrapper

    Protocol = object

    def cast(_kind, value):
        return value

    def lru_cache(maxsize):
        return lambda function: _lru_cache_wrapper(function, maxsize, False, None)

    class Row(tuple):
        """What collections.namedtuple gives its classes; the fields and their defaults are the class's own."""

        __slots__ = ()
        _fields = ()
        _field_defaults = {}  # noqa: RUF012 - as in the standard library

        _rest = {}  # noqa: RUF012 - what follows so many values where nothing is named
        _field_set = frozenset()

        def __new__(cls, *values, **named):
            if not named:
                rest = cls._rest.get(len(values))
                if rest is not None:
                    return tuple.__new__(cls, values + rest)
            elif len(named) == len(cls._fields) and not values and named.keys() == cls._field_set:
                return tuple.__new__(cls, map(named.__getitem__, cls._fields))
            return tuple.__new__(cls, cls._complete(values, named))

        @classmethod
        def _complete(cls, values, named):
            fields, defaults = cls._fields, cls._field_defaults
            try:
                rest = [named.pop(name) if name in named else defaults[name] for name in fields[len(values) :]]
            except KeyError as error:
                raise TypeError(f"{cls.__name__} without {error.args[0]}") from None
            if named or len(values) > len(fields):
                raise TypeError(f"{cls.__name__} with {', '.join(named) or 'too many values'}")
            return (*values, *rest)

        @classmethod
        def _make(cls, values):
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"{cls.__name__} of {len(made)} values, not {len(cls._fields)}")
            return made

        def _replace(self, **changes):
            fields = self._fields
            made = tuple.__new__(type(self), [changes.pop(name, value) for name, value in zip(fields, self)])  # noqa: B905
            if changes:
                raise ValueError(f"{type(self).__name__} with {', '.join(changes)}")
            return made

        def _asdict(self):
            return dict(zip(self._fields, self))  # noqa: B905 - as many values as fields

        def __repr__(self):
            return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

        def __getnewargs__(self):
            return tuple(self)

    class _Maker(type):
        """Makes the class that the statement ``class X(NamedTuple)`` asks for: a plain one, below Row."""

        def __new__(cls, name, bases, space):
            fields = tuple(space.get("__annotations__", ()))
            defaults = {field: space[field] for field in fields if field in space}
            if list(defaults) != list(fields[len(fields) - len(defaults) :]):
                raise TypeError(f"{name}: a field without a default after one that has one")
            space.update((field, _tuplegetter(position, None)) for position, field in enumerate(fields))
            given = tuple(defaults.values())
            rest = {len(fields) - left: given[len(given) - left :] for left in range(len(given) + 1)}
            space.update(__slots__=(), __match_args__=fields, _fields=fields, _field_defaults=defaults)
            space.update(_rest=rest, _field_set=frozenset(fields))
            return type(name, (Row,), space)

    NamedTuple = type.__new__(_Maker, "NamedTuple", (), {})
