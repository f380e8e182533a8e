"""runtime.jsontext against the module json: the same values and the same texts."""

from __future__ import annotations

import json
import math
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.jsontext import Decoder, IncompleteError, dumps
from tests.support.bootstrap import PYTHON, ROOT

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_written_and_read_as_json_does(value: Any) -> None:
    text = dumps(value)
    assert text == json.dumps(value, separators=(",", ":")) and text.isascii()
    assert Decoder().whole(f" \n{text}\t\r") == json.loads(text) == value
    assert Decoder().first(text + "{") == (value, len(text)) if text[0] in '{["' else True


def test_tuples_are_lists_and_surrogates_stay() -> None:
    assert dumps({"a": (1, (2,)), "b": "\udc80é"}) == '{"a":[1,[2]],"b":"\\udc80\\u00e9"}'


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, {"x": [math.nan]}])
def test_no_number_that_is_not_json(value: object) -> None:
    with pytest.raises(ValueError, match="compliant"):
        dumps(value)


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x", {"x": {("a",): 1}}])
def test_nothing_that_is_not_json(value: object) -> None:
    with pytest.raises(TypeError):
        dumps(value)


@pytest.mark.parametrize("text", ["", " ", "{", "[", '"', '{"a"', "[1,", "tru", "]", "x", "'a'", '{"a":1,}', "[01]", "\x00", '"\n"'])
def test_broken(text: str) -> None:
    with pytest.raises(IncompleteError):
        Decoder().first(text)
    with pytest.raises(ValueError):
        json.loads(text)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "1 2", "{}x", "1" * 5000])
def test_refused(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        Decoder().whole(text)
    assert type(caught.value) is ValueError


def test_too_deep() -> None:
    with pytest.raises(RecursionError):
        Decoder().whole("[" * 100000)


def test_pairs() -> None:
    assert Decoder(list).whole('{"a":1,"a":[{}]}') == [("a", 1), ("a", [[]])]


def test_it_loads_no_regular_expressions() -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); from runtime.jsontext import Decoder, dumps\n"
        "Decoder().whole(dumps({'a': [1, 2.5, None]}))\n"
        "print([name for name in ('json', 're', 'enum', 'functools', 'typing') if name in sys.modules])"
    )
    ran = subprocess.run([PYTHON, "-IS", "-c", program, str(ROOT)], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


@pytest.mark.parametrize("text", ["{", '{"a":1,}', "[1,", '"\n"', "x"])
def test_broken_for_a_hook(text: str) -> None:
    """Which has not loaded the module json: nor is it needed for the error."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from runtime.jsontext import Decoder, IncompleteError\n"
        f"try: Decoder().first({text!r})\n"
        "except IncompleteError: print('incomplete', 'json' in sys.modules)"
    )
    done = subprocess.run(["/usr/bin/python3", "-IS", "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("incomplete False\n", "")
