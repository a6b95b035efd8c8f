"""How experiment files and overrides are read: plain decimals, words that stay words, and nothing that is costly."""

import time
from typing import Any

import pytest

from paftbench.experiment.overrides import parse_override
from paftbench.experiment.yaml_text import LONGEST, read_yaml, read_yaml_file

ODD_NUMBERS = [
    "012", "0x10", "1:30", "0b11", "0o14", "1_2:3", "1:30.5", "0b1_1", "+012", "-0x1", "007", "08", "00", "-00", "01.5",
    "190:20:30.15", "0X1F", "0B1", "0O7", "1__0", "1_", "1e5_0", "01e3", "00.5", "-1:30", "1.5_",
]  # fmt: skip


@pytest.mark.parametrize("text", ODD_NUMBERS)
@pytest.mark.parametrize("form", ["a: 1\nsteps: {}\n", "a:\n  {{b: [2, {}]}}\n", "- 1\n- {}\n", "a: 1\n{}: x\n"])
def test_a_number_that_is_not_plain_decimal_is_refused_with_its_line(text: str, form: str) -> None:
    content = form.format(text)
    line = next(i for i, row in enumerate(content.splitlines(), 1) if text in row)
    with pytest.raises(ValueError) as caught:
        read_yaml(content, "x.yaml")
    assert str(caught.value).startswith(f"x.yaml, line {line}: {text} is no plain decimal number")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ODD_NUMBERS)
def test_an_override_that_is_not_plain_decimal_is_refused_with_its_key(text: str) -> None:
    with pytest.raises(ValueError, match=r"^optimizer\.lr=.*: .* is no plain decimal number"):
        parse_override(f"optimizer.lr=1,{text}")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12), ("-7", -7), ("+12", 12), ("0", 0), ("1_000", 1000), ("1e-3", 0.001), ("1e3", 1000.0), ("1.", 1.0),
        (".5", 0.5), ("-.5e3", -500.0), ("1_000.5", 1000.5), ("1e-05", 1e-5), ("0.5", 0.5), ("1.5E+2", 150.0),
    ],
)  # fmt: skip
def test_plain_decimals_are_numbers(text: str, value: float) -> None:
    read = read_yaml(text, "x")
    assert read == value and type(read) is type(value)
    assert read_yaml(f"{{a: {text}}}", "x") == {"a": value}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'012'", "012"), ('"0x10"', "0x10"), ("'1:30'", "1:30"), ("'12'", "12"), ("1.2.3", "1.2.3"), ("1-2", "1-2"),
        ("2024-01-01", "2024-01-01"), ("2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00"), ("yes", "yes"),
        ("no", "no"), ("on", "on"), ("off", "off"), ("y", "y"), ("n", "n"), ("=", "="), ("_1", "_1"), ("1e", "1e"),
        ("inf", "inf"), ("nan", "nan"), ("0123abc", "0123abc"), ("a:1:30", "a:1:30"), ("true", True), ("FALSE", False),
        ("null", None), ("~", None), ("{on: 1, y: 2, no: 3}", {"on": 1, "y": 2, "no": 3}),
        ("{1: a, true: b}", {"1": "a", "True": "b"}),
    ],
)  # fmt: skip
def test_words_dates_and_quoted_texts_stay_what_they_are(text: str, value: Any) -> None:
    read = read_yaml(text, "x")
    assert read == value and type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1e999", "x, line 1: the number 1e999 is beyond 1.8e308"),
        ("a: " + "9" * 30, "x, line 1: the number 9999"),
        ("a: " + "9" * 5000, "x, line 1: the number 9999"),
        ("b: 1\na: {<<: {c: 1}}", "x, line 2: merge keys (<<) are not read"),
        ("b: &x {c: 1}\na: {<<: *x}", "x, line 1: anchors and aliases (& and *) are not read"),
        ("a: *x", "x, line 1: anchors and aliases (& and *) are not read"),
        ("a: &x [*x]", "x, line 1: anchors and aliases (& and *) are not read"),
        ("a: !!int 012", "x, line 1: tags (int) are not read"),
        ("a: !!python/name:os.system", "x, line 1: tags (python/name:os.system) are not read"),
        ("a: 1\nb: 2\na: 3", "x, line 3: duplicate key 'a'"),
        ("1: a\n'1': b", "x, line 2: duplicate key '1'"),
        ("? [1]\n: 2", "x, line 1: a key must be a word or a number, got [1]"),
        ("~: 2", "x, line 1: a key must be a word or a number, got None"),
        ('a: "\\e[31m"', "x, line 1: a text with the unprintable character '\\x1b'"),
        ('a: "\\ud800"', "x, line 1: a text with the unprintable character '\\ud800'"),
        ("a: [1", "x is not YAML: line 1, column 6: "),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_its_line(text: str, expected: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_yaml(text, "x")
    assert str(caught.value).startswith(expected) and "\n" not in str(caught.value) and len(str(caught.value)) < 300


LAUGHS = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(12)
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a: " + "[" * 500 + "]" * 500, "more than 40 mappings and lists inside each other", id="flow"),
        pytest.param("".join(" " * i + "a:\n" for i in range(300)), "line 40: more than 40 mappings", id="block"),
        pytest.param("- " * 500, "more than 40 mappings", id="dashes"),
        pytest.param("{a: " * 10_000, "more than 40 mappings", id="open"),
        pytest.param(LAUGHS, "anchors and aliases", id="laughs"),
        pytest.param("a: [" + "1, " * LONGEST + "]", "is too long: ", id="long"),
    ],
)
def test_what_would_cost_time_or_memory_is_refused_at_once(text: str, expected: str) -> None:
    start = time.process_time()
    with pytest.raises(ValueError, match=expected):
        read_yaml(text, "x")
    assert time.process_time() - start < 2


def test_of_a_huge_file_only_as_much_is_read_as_an_experiment_may_have(tmp_path: Any) -> None:
    with (tmp_path / "x.yaml").open("wb") as file:
        file.truncate(2**33)  # gigabytes of nothing, which take no room
    with pytest.raises(ValueError, match="is too long"):
        read_yaml_file(tmp_path / "x.yaml")
