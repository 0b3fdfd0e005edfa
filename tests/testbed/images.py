"""Container images for the nodes, without a registry: docker-archives, which containerd loads from a file.

The pause image is both the sandbox that every Pod needs and the workload that tests use. It is one static binary, so
the archive is written right here and no image builder is needed for it.
"""

import hashlib
import io
import json
import tarfile
import tempfile
from pathlib import Path

from tests.testbed.binaries import architecture, cache_root, compile_program

PAUSE = "localhost/testbed/pause:1"
"""For Pods: with imagePullPolicy IfNotPresent or Never. Runs until SIGTERM, which ends it at once."""

_SOURCE = Path(__file__).with_name("pause.go")


def pause_archive() -> Path:
    """Return the pause image's archive from the cache, made if need be."""
    digest = hashlib.sha256(_SOURCE.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:16]
    target = cache_root() / f"pause-{digest}.tar"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            binary, archive = Path(scratch) / "pause", Path(scratch) / "pause.tar"
            compile_program(_SOURCE, binary)
            archive.write_bytes(single_binary_image(PAUSE, binary))
            archive.rename(target)
    return target


def single_binary_image(tag: str, binary: Path) -> bytes:
    """A docker-archive of an image that holds one static binary as /app and runs it."""
    layer = _tar({"app": binary.read_bytes()})
    config = {
        "architecture": architecture(),
        "os": "linux",
        "config": {"Entrypoint": ["/app"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]
    files = {"config.json": json.dumps(config), "manifest.json": json.dumps(manifest)}
    return _tar({"layer.tar": layer, **{name: text.encode() for name, text in files.items()}})


def _tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
