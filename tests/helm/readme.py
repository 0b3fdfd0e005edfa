"""Keep the table of values in helm/README.md equal to helm/values.yaml.

A key is documented by a comment `# -- …` right above it; the comment may go on over further `#` lines. Keys without one
are not listed, but every key below a documented one is part of its default. `--check` writes nothing and exits with 1
when the file would change.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parents[2] / "helm"
BEGIN, END = "<!-- values -->", "<!-- /values -->"


def documented(text: str) -> Iterator[tuple[str, str]]:
    """(dotted path, description) of every documented key, in the file's order."""
    path: list[tuple[int, str]] = []
    words: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# -- "):
            words = [stripped.removeprefix("# -- ")]
        elif stripped.startswith("#"):
            words += [stripped.lstrip("# ")] if words else []
        elif stripped and not stripped.startswith("-"):
            indent = len(line) - len(line.lstrip())
            path = [(depth, key) for depth, key in path if depth < indent] + [(indent, stripped.partition(":")[0])]
            if words:
                yield ".".join(key for _, key in path), " ".join(words)
            words = []


def table(text: str) -> str:
    """The Markdown table; defaults are shown as JSON, since a cell has one line."""
    values = yaml.safe_load(text)
    rows = ["| value | default | meaning |", "|---|---|---|"]
    for path, meaning in documented(text):
        rows.append(f"| `{path}` | `{json.dumps(lookup(values, path))}` | {meaning.replace('|', chr(92) + '|')} |")
    return "\n".join(rows)


def lookup(values: Any, path: str) -> Any:
    for key in path.split("."):
        values = values[key]
    return values


def rendered(readme: str, values: str) -> str:
    """The README with its table made anew; what stands around the markers is left alone."""
    head, _, rest = readme.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table(values)}\n{END}{tail}"


def main(argv: list[str] | None = None) -> int:
    """Command line: 0 the README is (now) right, 1 it isn't and `--check` left it so."""
    parser = argparse.ArgumentParser(prog="readme", description="Write the table of values into helm/README.md.")
    parser.add_argument("--check", action="store_true", help="only say whether it is up to date")
    args = parser.parse_args(argv)
    target = CHART / "README.md"
    old = target.read_text()
    new = rendered(old, (CHART / "values.yaml").read_text())
    if old == new:
        return 0
    if args.check:
        print("helm/README.md is out of date: run `python -m tests.helm.readme`", file=sys.stderr)
        return 1
    target.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
