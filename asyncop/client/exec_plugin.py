"""Credentials from an exec plugin: the program that a kubeconfig's `users[].user.exec` names.

kubernetes_asyncio's own provider is not used: it has no time limit and leaves its process running when cancelled, runs
once when loaded without regard to the expiry, wants files for certificates, and knows neither relative commands nor
`installHint` nor `provideClusterInfo`.

Promises: the event loop never waits for the plugin; at most one runs at a time, with a time limit, and none outlives
`aclose`. It runs again shortly before its credentials expire, while they still serve, and at once when they are refused
(then at most every second, with growing pauses if it brings nothing new). No expiry means: until refused. So does an
expiry in the past, which only says that two clocks differ. Once they are had, our own monotonic clock counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from asyncop.aio.backoff import BackoffPolicy
from asyncop.api.errors import ConfigError, TransportError
from asyncop.client.log import log
from asyncop.client.sign_in import Identity

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST_TIME_LIMIT = 50.0  # seconds: at the start somebody may have to log in
TIME_LIMIT = 20.0  # less than a call has in all, so that the call can say what was wrong
EARLY = 300.0  # seconds before the expiry to renew; kubernetes_asyncio's for its providers
EARLY_PART = 0.2  # at most this part of the lifetime, for short ones
PAUSES = BackoffPolicy(initial=1.0, maximum=30.0)  # between runs that brought nothing new
_API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
KILL_LIMIT = 2.0  # seconds
_QUOTED = 300  # characters of what a plugin complains of


@dataclass(frozen=True, slots=True)
class Plugin:
    """What a kubeconfig says about a plugin, checked."""

    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    api_version: str
    install_hint: str
    interactive: str
    """`Never`, `IfAvailable` or `Always`: whether it may ask on the terminal."""
    cluster: Mapping[str, Any] | None
    """What the plugin is told of the cluster, if it wants to know."""
    source: str
    """For messages."""

    @classmethod
    def of(cls, spec: Any, cluster: Mapping[str, Any], source: str) -> Plugin:
        """From `exec` of a user and the cluster of its context.

        Raises:
            ConfigError: something is missing or of the wrong form.
        """
        if not isinstance(spec, dict):
            raise ConfigError(f"{source}: exec is not a mapping")
        arguments, entries = spec.get("args") or [], spec.get("env") or []
        if not isinstance(spec.get("command"), str) or not spec["command"]:
            raise ConfigError(f"{source}: exec has no command")
        if spec.get("apiVersion") not in _API_VERSIONS:
            raise ConfigError(f"{source}: exec: apiVersion must be {' or '.join(_API_VERSIONS)}")
        if not isinstance(arguments, list):
            raise ConfigError(f"{source}: exec: args is not a list")
        if not isinstance(entries, list) or not all(
            isinstance(e, dict) and {"name", "value"} <= e.keys() for e in entries
        ):
            raise ConfigError(f"{source}: exec: env is not a list of entries with name and value")
        interactive = spec.get("interactiveMode") or "IfAvailable"
        if interactive not in ("Never", "IfAvailable", "Always"):
            raise ConfigError(f"{source}: exec: interactiveMode must be Never, IfAvailable or Always")
        return cls(
            command=(spec["command"], *map(str, arguments)),
            environment=tuple((str(entry["name"]), str(entry["value"])) for entry in entries),
            api_version=spec["apiVersion"],
            install_hint=" ".join(str(spec.get("installHint") or "").split()),
            interactive=interactive,
            cluster=_told(cluster) if spec.get("provideClusterInfo") is True else None,
            source=source,
        )

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.source}: exec plugin {self.command[0]}"


class Credential(NamedTuple):
    """What one run has given."""

    identity: Identity
    expires_at: datetime | None


class ExecPlugin:
    """The credentials of a plugin; a `SignIn`."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin
        self._identity: Identity | None = None
        self._fault: ConfigError | None = None
        self._renew_at = self._expires_at = float("inf")
        self._not_before = float("-inf")
        self._fruitless = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Run it for the first time.

        Raises:
            ConfigError: it doesn't give credentials; the message is one line and says why.
        """
        await self._run(FIRST_TIME_LIMIT)
        if self._fault is not None:
            raise self._fault

    async def current(self) -> Identity:
        """The last that it gave, unless that has expired; then the next."""
        now = _now()
        if self._identity is None or now >= self._renew_at:
            task = self._begin(now)
            if task is not None and (self._identity is None or now >= self._expires_at):
                await asyncio.wait((task,))  # it goes on if we are cancelled: others wait for it too
        if self._identity is None or (self._fault is not None and _now() >= self._expires_at):
            raise TransportError(str(self._fault or f"{self._plugin.name} gave no credentials"))
        return self._identity

    async def renew(self) -> Identity:
        """The next, unless it has just run; then what came of that."""
        task = self._begin(_now())
        if task is not None:
            await asyncio.wait((task,))
        if self._fault is not None or self._identity is None:
            raise self._fault or ConfigError(f"{self._plugin.name} gave no credentials")
        return self._identity

    async def aclose(self) -> None:
        """Kill it if it is running."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _begin(self, now: float) -> asyncio.Task[None] | None:
        """The run that is going on, or a new one unless it is too early for that."""
        if self._task is None and now >= self._not_before:
            self._task = asyncio.create_task(self._run_again(), name="asyncop exec plugin")
        return self._task

    async def _run_again(self) -> None:
        try:
            await self._run(TIME_LIMIT)
        finally:
            self._task = None
        if self._fault is not None:
            log().warning("Could not renew credentials", err=str(self._fault))

    async def _run(self, limit: float) -> None:
        """Run it, and remember what it gave or what was wrong."""
        try:
            async with asyncio.timeout(limit):
                credential = _read(self._plugin, await _output(self._plugin))
        except TimeoutError:
            self._failed(ConfigError(f"{self._plugin.name} gave nothing within {limit:g} s, and was ended"))
        except ConfigError as error:
            self._failed(error)
        else:
            self._took(credential)

    def _failed(self, fault: ConfigError) -> None:
        self._fault = fault
        self._pause()

    def _took(self, credential: Credential) -> None:
        self._fault = None
        if credential.identity != self._identity:
            self._fruitless = 0
        self._pause()
        self._identity = credential.identity
        self._renew_at, self._expires_at = self._times_of(credential.expires_at)

    def _pause(self) -> None:
        self._not_before = _now() + PAUSES.delay(self._fruitless)
        self._fruitless += 1

    def _times_of(self, expires_at: datetime | None) -> tuple[float, float]:
        """When to renew, and when it is over, by the loop's clock."""
        if expires_at is None:
            return float("inf"), float("inf")
        lifetime = (expires_at - datetime.now(UTC)).total_seconds()
        if lifetime <= 0:
            log().warning(
                "An exec plugin's credentials are expired already; the clocks differ", plugin=self._plugin.name
            )
            return float("inf"), float("inf")
        now = _now()
        return now + lifetime - min(EARLY, EARLY_PART * lifetime), now + lifetime


async def _output(plugin: Plugin) -> bytes:
    """What it prints. Cancelled, it is killed with all that it has started.

    Raises:
        ConfigError: it can't be run, or fails.
    """
    is_interactive = _may_ask(plugin)
    try:
        process = await asyncio.create_subprocess_exec(
            *plugin.command,
            env=_environment(plugin, is_interactive),
            stdin=None if is_interactive else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=not is_interactive,  # its own group can be killed whole, but may not ask
        )
    except FileNotFoundError:
        raise ConfigError(f"{plugin.name} is not there{_hint(plugin)}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{plugin.name} can't be run: {getattr(error, 'strerror', None) or error}") from error
    try:
        output, complaint = await process.communicate()
    except BaseException:
        await _end(process, is_group=not is_interactive)
        raise
    if process.returncode:
        raise ConfigError(f"{plugin.name} failed with exit code {process.returncode}{_said(complaint)}{_hint(plugin)}")
    return output


async def _end(process: asyncio.subprocess.Process, *, is_group: bool) -> None:
    with contextlib.suppress(ProcessLookupError):
        if is_group:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with contextlib.suppress(TimeoutError):  # what it has started elsewhere may keep its pipes open for ever
        await asyncio.wait_for(process.wait(), KILL_LIMIT)


def _may_ask(plugin: Plugin) -> bool:
    has_terminal = sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive == "Always" and not has_terminal:
        raise ConfigError(f"{plugin.name} wants to ask on a terminal (interactiveMode: Always), and there is none")
    return has_terminal and plugin.interactive != "Never"


def _environment(plugin: Plugin, is_interactive: bool) -> dict[str, str]:
    spec: dict[str, Any] = {"interactive": is_interactive}
    if plugin.cluster is not None:
        spec["cluster"] = plugin.cluster
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    return {**os.environ, **dict(plugin.environment), "KUBERNETES_EXEC_INFO": json.dumps(info)}


def _told(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The cluster as ExecCredential has it."""
    keys = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
    told = {key: cluster[key] for key in keys if key in cluster}
    for extension in cluster.get("extensions") or ():
        if isinstance(extension, dict) and extension.get("name") == "client.authentication.k8s.io/exec":
            told["config"] = extension.get("extension")
    return told


def _read(plugin: Plugin, output: bytes) -> Credential:
    """The credential in what it printed, of which messages quote nothing: it is secret."""
    try:
        answer = json.loads(output)
    except ValueError:
        raise ConfigError(f"{plugin.name} printed something that is no JSON") from None
    if not isinstance(answer, dict) or answer.get("kind") != "ExecCredential":
        raise ConfigError(f"{plugin.name} printed no ExecCredential")
    if answer.get("apiVersion") != plugin.api_version:
        raise ConfigError(
            f"{plugin.name} speaks {answer.get('apiVersion')}, and the kubeconfig says {plugin.api_version}"
        )
    status = answer.get("status")
    if not isinstance(status, dict):
        raise ConfigError(f"{plugin.name} printed an ExecCredential without a status")
    return Credential(_identity(plugin, status), _expiry(plugin, status.get("expirationTimestamp")))


def _identity(plugin: Plugin, status: dict[str, Any]) -> Identity:
    token, certificate, key = (status.get(part) or "" for part in ("token", "clientCertificateData", "clientKeyData"))
    if not all(isinstance(part, str) for part in (token, certificate, key)) or not token.strip().isprintable():
        raise ConfigError(f"{plugin.name}: the token, certificate or key that it printed is not a text")
    if bool(certificate) != bool(key):
        raise ConfigError(f"{plugin.name} printed only one of clientCertificateData and clientKeyData")
    if not token.strip() and not certificate:
        raise ConfigError(f"{plugin.name} printed neither token nor clientCertificateData")
    pem = f"{certificate}\n{key}\n" if certificate else ""
    return Identity(f"Bearer {token.strip()}" if token.strip() else "", pem.encode())


def _expiry(plugin: Plugin, text: Any) -> datetime | None:
    if not text:
        return None
    try:
        expires_at = datetime.fromisoformat(text)
        return expires_at.replace(tzinfo=UTC) if expires_at.tzinfo is None else expires_at
    except (ValueError, TypeError):
        raise ConfigError(f"{plugin.name} printed an expirationTimestamp that is no time: {text!r}") from None


def _said(complaint: bytes) -> str:
    text = " ".join(complaint.decode("utf-8", "replace").split())
    return f": {text[:_QUOTED]}" if text else ""


def _hint(plugin: Plugin) -> str:
    return f"; {plugin.install_hint}" if plugin.install_hint else ""


def _now() -> float:
    return asyncio.get_running_loop().time()
