"""The hash-pinned locks: `python -m tests.lock` renews them, `--check` fails if they don't fit pyproject.toml.

`requirements.txt` is what the image installs, `requirements-build.txt` what builds the wheel, `requirements-dev.txt`
all that and what tests and linters need. They hold hashes and no addresses, so that any index or mirror serves.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GROUPS = ("test", "lint", "lock", "build")
LOCKS = {
    "requirements.txt": ("pyproject.toml",),
    "requirements-build.txt": ("--group", "build"),
    "requirements-dev.txt": ("pyproject.toml", *(part for group in GROUPS for part in ("--group", group))),
}
OPTIONS = ("--universal", "--generate-hashes", "--no-emit-index-url", "--no-header", "--python-version", "3.11", "-q")


def compile_lock(name: str, output: Path) -> None:
    """Resolve into `output`; what it already pins stays unless pyproject.toml no longer allows it."""
    command = [sys.executable, "-m", "uv", "pip", "compile", *OPTIONS, "-o", str(output)]
    subprocess.run([*command, *LOCKS[name]], cwd=ROOT, check=True)


def is_fresh(name: str) -> bool:
    """Whether resolving anew, from the present pins, changes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / name
        copy.write_text((ROOT / name).read_text())
        compile_lock(name, copy)
        return copy.read_text() == (ROOT / name).read_text()


def main() -> int:
    """Renew or check."""
    if sys.argv[1:] == ["--check"]:
        stale = [name for name in LOCKS if not is_fresh(name)]
        for name in stale:
            print(f"{name} does not fit pyproject.toml; run `make lock`", file=sys.stderr)
        return bool(stale)
    for name in LOCKS:
        compile_lock(name, ROOT / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
