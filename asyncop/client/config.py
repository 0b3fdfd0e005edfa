"""Where the API server is and who we are: a kubeconfig, or the service account of the Pod we run in.

Every fault of what the user gave becomes a ConfigError of one line. kubernetes_asyncio's loaders do the rest, but for
what they can't do: token files that are replaced (`sign_in`), exec plugins (`exec_plugin`), certificates without
temporary files (`tls`). Where proxies come from, `proxy` says.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asyncop.api.errors import ConfigError
from asyncop.client.door import open_door
from asyncop.client.kubeconfig import Context, Kubeconfig
from asyncop.client.proxy import checked, proxy_for
from asyncop.client.sign_in import Fixed, Identity, TokenFile
from asyncop.client.tls import check_certificate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from asyncop.client.sign_in import SignIn

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # where the kubelet mounts it
LOAD_TIMEOUT = 60.0  # an identity provider may have to be asked; that must not hang for ever


@dataclass(frozen=True, slots=True)
class Connection:
    """What is needed to talk to one API server as somebody."""

    server: str
    """Base URL without a slash at its end; may have a path, as behind a gateway."""
    configuration: Any = field(repr=False)
    """kubernetes_asyncio's `Configuration`: a fixed token, TLS files and settings. Don't change it."""
    namespace: str
    """Of the context or the service account; `default` where neither names one."""
    context: str
    """Name of the kubeconfig's context; empty in a cluster."""
    source: str
    """Where all this came from, for messages."""
    headers: tuple[tuple[str, str], ...] = ()
    """Sent with each request: whom to act as (`as`, `as-groups` of a kubeconfig)."""
    sign_in: SignIn | None = field(default=None, repr=False, compare=False)
    """Where credentials come from, now and later; None: what the configuration holds never changes."""
    authority: bytes = field(default=b"", repr=False)
    """The certificate authority in PEM, if it isn't a file that the configuration names."""
    proxy: str | None = field(default=None, repr=False)
    """URL of the proxy that leads to the server; it may hold a password."""


async def load_connection(kubeconfig: str | None = None, context: str | None = None) -> Connection:
    """Find out how to reach the API server.

    In this order: the file or the context given here, `$KUBECONFIG` (files with `:` between them), the service account
    if we run in a Pod, `~/.kube/config`.

    Raises:
        ConfigError: none is there, or what is there is wrong. The message says what to do.
    """
    paths = _kubeconfig_paths(kubeconfig, has_context=bool(context))
    return await _from_kubeconfig(paths, context) if paths else in_cluster(SERVICE_ACCOUNT)


def in_cluster(service_account: Path) -> Connection:
    """The connection of a Pod with its service account mounted at that directory.

    Raises:
        ConfigError: the token, the CA or the address of the API server isn't there.
    """
    open_door()
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config import ConfigException
    from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader

    token = service_account / "token"
    loader = InClusterConfigLoader(str(token), str(service_account / "ca.crt"), try_refresh_token=False)
    configuration = Configuration()
    try:
        loader.load_and_set(configuration)
        sign_in = TokenFile(token)
    except (ConfigException, ConfigError, OSError, ValueError) as error:  # the last: bytes that are no text
        raise ConfigError(f"in-cluster configuration from {service_account}: {_one_line(error)}") from error
    server = str(configuration.host)
    return Connection(
        server=server,
        configuration=configuration,
        namespace=_text(service_account / "namespace") or "default",
        context="",
        source="in-cluster",
        sign_in=sign_in,
        proxy=proxy_for(server, os.environ),
    )


async def _from_kubeconfig(paths: tuple[Path, ...], name: str | None) -> Connection:
    context = Kubeconfig(paths).context(name)
    configuration = await _configuration(context)

    async def reload() -> Identity:
        fresh = Kubeconfig(paths).context(context.name)
        return _identity(fresh, await _configuration(fresh))

    sign_in = await _sign_in(context, configuration, reload)
    check_certificate((await sign_in.current()).certificate, context.source)
    server = str(context.cluster["server"]).rstrip("/")
    return Connection(
        server=server,
        configuration=configuration,
        namespace=context.namespace,
        context=context.name,
        source=context.source,
        headers=_impersonation(context),
        sign_in=sign_in,
        authority=context.authority,
        proxy=_proxy(context, configuration) or proxy_for(server, os.environ),
    )


async def _sign_in(context: Context, configuration: Any, reload: Callable[[], Awaitable[Identity]]) -> SignIn:
    user = context.user
    if "exec" in user and "auth-provider" not in user:
        from asyncop.client.exec_plugin import ExecPlugin, Plugin

        plugin = ExecPlugin(Plugin.of(user["exec"], context.cluster, context.source))
        await plugin.start()
        return plugin
    if "tokenFile" in user and "auth-provider" not in user:
        return TokenFile(Path(user["tokenFile"]), context.certificate)
    return Fixed(_identity(context, configuration), reload)


def _identity(context: Context, configuration: Any) -> Identity:
    token = configuration.api_key.get("BearerToken") or ""
    return Identity(token.strip(), context.certificate)


def _proxy(context: Context, configuration: Any) -> str | None:
    return checked(configuration.proxy, f"{context.source}: proxy-url") if configuration.proxy else None


async def _configuration(context: Context) -> Any:
    open_door()
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config import ConfigException, load_kube_config_from_dict

    configuration = Configuration()
    try:
        async with asyncio.timeout(LOAD_TIMEOUT):
            with _quiet("kubernetes_asyncio.config.kube_config"):  # it logs what it raises
                await load_kube_config_from_dict(context.for_loader(), client_configuration=configuration)
    except TimeoutError as error:
        raise ConfigError(f"{context.source}: no credentials within {LOAD_TIMEOUT:g} s") from error
    except (ConfigException, OSError, ValueError, TypeError, KeyError, AssertionError) as error:
        # the loader takes the shape of users and plugins on trust, so rubbish in them shows as any of these
        raise ConfigError(f"{context.source}: {_one_line(error)}") from error
    return configuration


@contextmanager
def _quiet(logger_name: str) -> Iterator[None]:
    logger = logging.getLogger(logger_name)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _impersonation(context: Context) -> tuple[tuple[str, str], ...]:
    """The headers that make us act as somebody else; dropping them silently would act with other rights."""
    user = context.user
    if not user.get("as"):
        if user.keys() & {"as-groups", "as-uid", "as-user-extra"}:
            raise ConfigError(f"{context.source}: as-groups, as-uid and as-user-extra need as")
        return ()
    headers = [("Impersonate-User", str(user["as"]))]
    if user.get("as-uid"):
        headers.append(("Impersonate-Uid", str(user["as-uid"])))
    headers += [("Impersonate-Group", group) for group in _texts(user.get("as-groups"), context, "as-groups")]
    extra = user.get("as-user-extra") or {}
    if not isinstance(extra, dict):
        raise ConfigError(f"{context.source}: as-user-extra is not a mapping")
    for key, values in extra.items():
        headers += [(f"Impersonate-Extra-{key}", text) for text in _texts(values, context, "as-user-extra")]
    return tuple(headers)


def _texts(values: Any, context: Context, what: str) -> list[str]:
    """A list of texts that fit into headers; a single text would be taken apart letter by letter."""
    if values is None:
        return []
    if not isinstance(values, list) or not all(isinstance(text, str) and text.isprintable() for text in values):
        raise ConfigError(f"{context.source}: {what} is not a list of texts of one line")
    return values


def _kubeconfig_paths(kubeconfig: str | None, *, has_context: bool) -> tuple[Path, ...]:
    """The kubeconfig files to use; none if it is the service account's turn."""
    listed = os.environ.get("KUBECONFIG", "")
    if kubeconfig:
        return (Path(os.path.expanduser(kubeconfig)),)
    if listed.strip(os.pathsep):
        return _existing(listed)
    if not has_context and os.environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").exists():
        return ()
    home = Path(os.path.expanduser("~")) / ".kube" / "config"  # stays as it is for a user without a home
    if home.exists():
        return (home,)
    raise ConfigError(_nothing_found(home))


def _existing(listed: str) -> tuple[Path, ...]:
    """The files of $KUBECONFIG that are there; kubectl passes over the others too."""
    paths = tuple(Path(os.path.expanduser(path)) for path in listed.split(os.pathsep) if path)
    found = tuple(path for path in paths if path.exists())
    if not found:
        raise ConfigError(f"KUBECONFIG={listed}: no such file; correct it, unset it, or give --kubeconfig")
    return found


def _nothing_found(home: Path) -> str:
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return (
            f"no credentials: this is a Pod without a service account token at {SERVICE_ACCOUNT}; "
            "set automountServiceAccountToken: true, or give --kubeconfig"
        )
    return f"no cluster to talk to: {home} does not exist; give --kubeconfig FILE, or set KUBECONFIG"


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
