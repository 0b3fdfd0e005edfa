"""etcd and kube-apiserver and, for a cluster with nodes, the controllers and the scheduler.

Without the controllers it is what a client needs to be tested against: every verb, watch, patch, RBAC and admission are
real, but nothing reacts: no garbage collection, namespaces stay Terminating, Pods stay Pending. Service accounts
aren't enforced then, since nobody would make the `default` one that a Pod needs.

etcd does not sync to the disk: speed matters, and the data is thrown away with the state directory.
"""

import json
import socket
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.testbed.api import Api, ApiError, Json
from tests.testbed.errors import TestbedError
from tests.testbed.pki import Pki
from tests.testbed.processes import Process, wait_until

SERVICE_CIDR = "10.96.0.0/24"
SERVICE_IP = "10.96.0.1"
"""Where Pods find the API server: the address of the Service `kubernetes`."""

_ATTEMPTS = 3
_START_TIMEOUT = 90.0
_IDENTITIES = {
    "admin": ("admin", "system:masters"),
    "kubelet-client": ("apiserver-kubelet-client", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", None),
    "scheduler": ("system:kube-scheduler", None),
}


@dataclass(frozen=True)
class Timings:
    """How fast the cluster notices a dead node. Far below Kubernetes' own defaults, which are in brackets."""

    status_update: int = 4
    """A kubelet reports its node's status at least this often [10 s]."""
    lease_duration: int = 8
    """Lifetime of a node's Lease; the kubelet renews it after a quarter of that [40 s]."""
    monitor_grace: int = 12
    """A node not heard of for so long becomes Unknown and gets the `unreachable` taints [50 s]."""
    monitor_period: int = 1
    """How often the node controller looks [5 s]."""


class ControlPlane:
    """The processes of one control plane; their data and records live in the state directory."""

    def __init__(self, state_dir: Path, binaries: Path, address: str = "127.0.0.1") -> None:
        self._state_dir = state_dir
        self._binaries = binaries
        self._address = address
        self.pki = Pki(state_dir / "pki")
        self.kubeconfig = state_dir / "kubeconfig"
        self.audit_log = state_dir / "audit.log"
        self._commands = state_dir / "commands"
        self.etcd = Process(state_dir, "etcd")
        self.apiserver = Process(state_dir, "kube-apiserver")
        self.controller_manager = Process(state_dir, "kube-controller-manager")
        self.scheduler = Process(state_dir, "kube-scheduler")

    @property
    def processes(self) -> tuple[Process, ...]:
        return (self.etcd, self.apiserver, self.controller_manager, self.scheduler)

    @property
    def server(self) -> str:
        """The URL that everybody uses, Pods excepted."""
        config = json.loads(self.kubeconfig.read_text())
        return str(config["clusters"][0]["cluster"]["server"])

    @property
    def api(self) -> Api:
        """As the administrator."""
        return Api.from_pki(self.server, self.pki)

    def start(self, *, controllers: bool, audit: bool = False, timings: Timings = Timings()) -> None:
        """Bring it up and return when the API server says that it is ready.

        Raises:
            TestbedError: a process ended or was not ready in time; the end of its log is in the message.
        """
        self._make_identities()
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._start_api(controllers=controllers, audit=audit)
                break
            except TestbedError as error:
                # Somebody took one of the ports between our asking for a free one and our using it.
                if "address already in use" not in str(error) or attempt == _ATTEMPTS:
                    raise
                self.apiserver.stop(grace=0)
                self.etcd.stop(grace=0)
        if controllers:
            self._start_controllers(timings)

    def _make_identities(self) -> None:
        self.pki.create()
        names = ["DNS:localhost", "DNS:kubernetes", "DNS:kubernetes.default", "DNS:kubernetes.default.svc"]
        names += [f"IP:{ip}" for ip in dict.fromkeys(("127.0.0.1", self._address, SERVICE_IP))]
        self.pki.issue("server", "kube-apiserver", alternative_names=names)
        for name, (user, group) in _IDENTITIES.items():
            self.pki.issue(name, user, group)

    def _start_api(self, *, controllers: bool, audit: bool) -> None:
        port, client_port, peer_port = _free_ports(self._address, "127.0.0.1", "127.0.0.1")
        self.pki.write_kubeconfig(self.kubeconfig, "admin", f"https://{self._address}:{port}")
        client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
        self.etcd.start(
            self._binaries / "etcd",
            f"--data-dir={self._state_dir}/etcd",
            "--unsafe-no-fsync",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            f"--quota-backend-bytes={4 << 30}",
            "--log-level=error",
        )
        arguments = [f"--etcd-servers={client}", f"--secure-port={port}", *self._api_arguments()]
        if not controllers:
            # Nothing can reach the Service without nodes, and a loopback address may not be its endpoint anyway.
            arguments += ["--endpoint-reconciler-type=none", "--disable-admission-plugins=ServiceAccount"]
        if audit:
            arguments += self._audit_arguments()
        self._run(self.apiserver, *arguments)
        self._wait_ready()

    def kill(self) -> None:
        """`kill -9` of everything but etcd, as when the machine of these is switched off. Safe to repeat."""
        for process in (self.controller_manager, self.scheduler, self.apiserver):
            process.stop(grace=0)

    def start_again(self) -> None:
        """Start what was killed as it was started before, on the same port, and return when the API server is ready.

        Controllers that had only lost their API server would ask for it again up to a minute later.

        Raises:
            TestbedError: it ended or was not ready in time; the end of its log is in the message.
        """
        server = urlsplit(self.server)
        address = (server.hostname or "", server.port or 0)
        for attempt in range(1, _ATTEMPTS + 1):
            # A client that asks for a port where nobody listens may be given that very one for its own side.
            wait_until(lambda: _is_free(address), _START_TIMEOUT)
            try:
                self.apiserver.start(*self._command(self.apiserver))
                self._wait_ready()
                break
            except TestbedError as error:
                if "address already in use" not in str(error) or attempt == _ATTEMPTS:
                    raise
        for process in (self.controller_manager, self.scheduler):
            if self._command(process):
                process.start(*self._command(process))

    def compact(self) -> None:
        """Make etcd forget every version but the newest of each object.

        kube-apiserver does so every five minutes, up to what is five minutes old; its watch cache remembers more.
        """
        words = self._command(self.apiserver)
        (etcd,) = [word.partition("=")[2] for word in words if word.startswith("--etcd-servers=")]
        revision = _ask(etcd, "/v3/kv/range", {"key": "AA=="})["header"]["revision"]
        _ask(etcd, "/v3/kv/compaction", {"revision": revision, "physical": True})

    def _run(self, process: Process, *arguments: str) -> None:
        """Start a program of Kubernetes and remember how."""
        words = [str(self._binaries / process.name), *arguments]
        self._commands.mkdir(exist_ok=True)
        (self._commands / process.name).write_text(json.dumps(words))
        process.start(*words)

    def _command(self, process: Process) -> list[str]:
        """How it was started; nothing if it wasn't."""
        recorded = self._commands / process.name
        words: list[str] = json.loads(recorded.read_text()) if recorded.exists() else []
        return words

    def _api_arguments(self) -> list[str]:
        pki = self.pki
        return [
            f"--bind-address={self._address}",
            f"--advertise-address={self._address}",
            f"--cert-dir={pki.path}",
            f"--tls-cert-file={pki.certificate('server')}",
            f"--tls-private-key-file={pki.key('server')}",
            f"--client-ca-file={pki.ca}",
            f"--kubelet-client-certificate={pki.certificate('kubelet-client')}",
            f"--kubelet-client-key={pki.key('kubelet-client')}",
            "--kubelet-preferred-address-types=InternalIP",
            f"--service-account-key-file={pki.service_account_public_key}",
            f"--service-account-signing-key-file={pki.service_account_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
        ]

    def _audit_arguments(self) -> list[str]:
        policy = self._state_dir / "audit-policy.json"
        rules = [{"level": "Metadata", "omitStages": ["RequestReceived"]}]
        policy.write_text(json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
        # Blocking: a line is there when the answer is.
        return [f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}", "--audit-log-mode=blocking"]

    def _wait_ready(self) -> None:
        api = self.api

        def is_ready() -> bool:
            self._check_alive(self.etcd, self.apiserver)
            try:
                return api.text("GET", "/readyz", timeout=2) == "ok"
            except (OSError, ApiError):
                return False

        if not wait_until(is_ready, _START_TIMEOUT):
            tail = self.apiserver.log_tail()
            raise TestbedError(f"kube-apiserver was not ready after {_START_TIMEOUT:.0f} s:\n{tail}")

    def _check_alive(self, *processes: Process) -> None:
        for process in processes:
            if not process.is_running:
                raise TestbedError(f"{process.name} ended:\n{process.log_tail()}")

    def _start_controllers(self, timings: Timings) -> None:
        pki, configs = self.pki, {}
        for name in ("controller-manager", "scheduler"):
            configs[name] = self._state_dir / f"{name}.kubeconfig"
            pki.write_kubeconfig(configs[name], name, self.server)
        common = ("--leader-elect=false", "--secure-port=0")
        self._run(
            self.controller_manager,
            f"--kubeconfig={configs['controller-manager']}",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={pki.service_account_key}",
            f"--root-ca-file={pki.ca}",
            f"--node-monitor-grace-period={timings.monitor_grace}s",
            f"--node-monitor-period={timings.monitor_period}s",
            *common,
        )
        self._run(self.scheduler, f"--kubeconfig={configs['scheduler']}", *common)


def _ask(etcd: str, path: str, body: Json) -> Json:
    """One call of etcd's JSON gateway; its keys are in base64, its numbers text."""
    request = urllib.request.Request(etcd + path, json.dumps(body).encode(), method="POST")
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
        return json.load(answer)  # type: ignore[no-any-return]


def _is_free(address: tuple[str, int]) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(address)
        except OSError:
            return False
        return True


def _free_ports(*addresses: str) -> list[int]:
    """A free TCP port on each address, all different; free at the moment of asking, that is."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in addresses]
        for sock, address in zip(sockets, addresses, strict=True):
            sock.bind((address, 0))
        return [sock.getsockname()[1] for sock in sockets]
