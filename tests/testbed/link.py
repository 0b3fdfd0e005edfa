"""A network link between one client and the API server that a test can cut.

What passes is not looked at, TLS included, so the server sees the client's own identity. After a cut nothing passes and
nobody is told, as when a cable is pulled; new connections are taken and stay silent. What was on its way is lost, and
the connections of before the cut end when the link is mended.
"""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

_CHUNK_BYTES = 1 << 16


class Link:
    """One link; `kubeconfig` leads through it."""

    def __init__(self, upstream: tuple[str, int], listener: socket.socket, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self._upstream, self._listener = upstream, listener
        self._is_cut = False
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()

    def cut(self) -> None:
        """Nothing passes from now on. Safe to repeat."""
        self._is_cut = True

    def mend(self) -> None:
        """New connections pass again; the old ones end. Safe to repeat."""
        self.end_connections()
        self._is_cut = False

    def end_connections(self) -> None:
        """End what is open, without a cut."""
        with self._lock:
            connections, self._open = self._open, []
        for connection in connections:
            with contextlib.suppress(OSError):  # the other side was quicker
                connection.shutdown(socket.SHUT_RDWR)

    def serve(self) -> None:
        """Take connections until the listener is shut down."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._upstream, timeout=5) as server:
            server.settimeout(None)
            with self._lock:
                self._open += [client, server]
            back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
            back.start()
            self._pump(client, server)
            back.join()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        """Carry bytes one way; the end of one side is the end of the other, but no cut lets it through."""
        with contextlib.suppress(OSError):
            while chunk := source.recv(_CHUNK_BYTES):
                if not self._is_cut:
                    target.sendall(chunk)
        if not self._is_cut:
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def linked(kubeconfig: Path, target: Path) -> Iterator[Link]:
    """A link before the API server of `kubeconfig`; a copy of that which leads through it is written to `target`.

    The server's certificate must name 127.0.0.1.
    """
    config = json.loads(kubeconfig.read_text())
    address = urlsplit(config["clusters"][0]["cluster"]["server"])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{listener.getsockname()[1]}"
        target.touch(mode=0o600)
        target.write_text(json.dumps(config))
        link = Link((str(address.hostname), address.port or 443), listener, target)
        server = threading.Thread(target=link.serve, name="link", daemon=True)
        server.start()
        try:
            yield link
        finally:
            listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
            link.end_connections()
            server.join()
