"""The chart's README tells the truth about its values."""

from typing import Any

import pytest

from tests.helm import readme


def test_the_table_is_up_to_date() -> None:
    assert readme.main(["--check"]) == 0


def test_a_changed_default_is_noticed() -> None:
    text = (readme.CHART / "README.md").read_text()
    values = (readme.CHART / "values.yaml").read_text()

    assert readme.rendered(text, values) == text
    assert readme.rendered(text, values.replace("maxDeletionsPerMinute: 10", "maxDeletionsPerMinute: 11")) != text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# -- Says what\nkey: 1\n", [("key", "Says what")]),
        ("# -- One line\n# and more\nkey: 1\n", [("key", "One line and more")]),
        ("# no marker\nkey: 1\n", []),
        ("outer:\n  # -- Inner\n  inner:\n    - a: b\nnext: 1\n", [("outer.inner", "Inner")]),
        ("a:\n  # -- First\n  b: 1\n# -- Second\nc: 2\n", [("a.b", "First"), ("c", "Second")]),
    ],
)
def test_a_comment_belongs_to_the_key_right_below_it(text: str, expected: list[tuple[str, str]]) -> None:
    assert list(readme.documented(text)) == expected


def test_a_default_is_shown_as_it_would_be_set() -> None:
    shown: Any = readme.table("# -- Keys | more\ntaints:\n  - a\n  - b\n").splitlines()[-1]

    assert shown == '| `taints` | `["a", "b"]` | Keys \\| more |'
