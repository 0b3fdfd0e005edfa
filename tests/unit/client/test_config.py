"""Where the API server is and who we are, and one clear line for each way to get that wrong."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from asyncop.api.errors import ConfigError, TransportError
from asyncop.client import Connection, connect
from asyncop.client.config import in_cluster, load_connection
from tests.testbed.pki import Pki
from tests.unit.client.server import Server, ok

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.asyncio

RUBBISH = base64.b64encode(b"certificate").decode()


def kubeconfig(**changes: Any) -> dict[str, Any]:
    config = {
        "current-context": "blue",
        "contexts": [
            {"name": "blue", "context": {"cluster": "c", "user": "u", "namespace": "shop"}},
            {"name": "green", "context": {"cluster": "c", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": "https://c.example:6443/"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    return config | changes


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


def written(path: Path, content: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return str(path)


async def authorization(connection: Connection, *, is_renewed: bool = False) -> str:
    """The header that requests get, at first or after a 401."""
    assert connection.sign_in is not None
    identity = await (connection.sign_in.renew() if is_renewed else connection.sign_in.current())
    return identity.authorization


async def refused(path: str | None = None, context: str | None = None) -> str:
    """The message of the ConfigError, one line."""
    with pytest.raises(ConfigError) as caught:
        await load_connection(path, context)
    message = str(caught.value)
    assert "\n" not in message
    return message


# -- what is found


async def test_the_current_context_of_a_given_file(tmp_path: Path) -> None:
    path = written(tmp_path / "config", kubeconfig())
    connection = await load_connection(path)
    assert connection.server == "https://c.example:6443"
    assert (connection.context, connection.namespace) == ("blue", "shop")
    assert connection.source == f"kubeconfig {path}, context 'blue'"
    assert await authorization(connection) == "Bearer secret"


async def test_another_context_has_the_namespace_default(tmp_path: Path) -> None:
    connection = await load_connection(written(tmp_path / "config", kubeconfig()), "green")
    assert (connection.context, connection.namespace) == ("green", "default")


async def test_what_is_shown_of_a_connection_holds_no_secret(tmp_path: Path) -> None:
    assert "secret" not in repr(await load_connection(written(tmp_path / "config", kubeconfig())))


async def test_the_order_is_given_file_then_environment_then_home(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(home / ".kube" / "config", kubeconfig(**{"current-context": "green"}))
    assert (await load_connection()).context == "green"
    monkeypatch.setenv("KUBECONFIG", written(tmp_path / "environment", kubeconfig()))
    assert (await load_connection()).context == "blue"
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    given = written(tmp_path / "given", kubeconfig(**{"current-context": "green"}))
    assert (await load_connection(given)).source == f"kubeconfig {given}, context 'green'"


async def test_listed_files_are_merged_as_kubectl_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = kubeconfig(clusters=None, users=[{"name": "u", "user": {"tokenFile": "token"}}])
    second = kubeconfig(
        **{"current-context": "green"},
        users=[{"name": "u", "user": {"token": "loses"}}],
        contexts=[{"name": "red", "context": {"cluster": "c", "user": "u"}}],
    )
    written(tmp_path / "a" / "token", "wins\n")
    listed = [written(tmp_path / "a" / "config", first), str(tmp_path / "missing"), written(tmp_path / "b", second)]
    monkeypatch.setenv("KUBECONFIG", ":".join(listed))
    connection = await load_connection()
    assert connection.context == "blue"
    assert await authorization(connection) == "Bearer wins"  # beside the file that names it
    assert (await load_connection(context="red")).context == "red"


async def test_an_empty_file_in_the_list_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [written(tmp_path / "empty", ""), written(tmp_path / "config", kubeconfig())]
    monkeypatch.setenv("KUBECONFIG", ":".join(files))
    assert (await load_connection()).context == "blue"


async def test_certificates_are_handed_on_as_files_or_as_they_are(tmp_path: Path) -> None:
    pki = Pki(tmp_path / "pki")
    pki.create()
    pki.issue("jane", "jane")
    certificate, key = pki.certificate("jane").read_bytes(), pki.key("jane").read_bytes()
    written(tmp_path / "ca.crt", "authority")
    cluster = {
        "server": "https://c",
        "certificate-authority": "ca.crt",
        "tls-server-name": "api",
        "proxy-url": "http://p",
    }
    user = {"client-certificate-data": base64.b64encode(certificate).decode(), "client-key": "pki/jane.key"}
    config = kubeconfig(clusters=[{"name": "c", "cluster": cluster}], users=[{"name": "u", "user": user}])
    connection = await load_connection(written(tmp_path / "config", config))
    assert connection.configuration.ssl_ca_cert == str(tmp_path / "ca.crt")
    assert (connection.configuration.tls_server_name, connection.proxy) == ("api", "http://p")
    assert connection.sign_in is not None
    assert (await connection.sign_in.current()).certificate == certificate + b"\n" + key + b"\n"


async def test_a_context_without_a_user_is_anonymous(tmp_path: Path) -> None:
    config = kubeconfig(contexts=[{"name": "blue", "context": {"cluster": "c"}}], users=[])
    connection = await load_connection(written(tmp_path / "config", config))
    assert await authorization(connection) == ""


async def test_verification_is_off_only_if_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path / "config", kubeconfig())
    assert (await load_connection(path)).configuration.verify_ssl
    cluster = {"server": "https://c", "insecure-skip-tls-verify": True}
    path = written(tmp_path / "config", kubeconfig(clusters=[{"name": "c", "cluster": cluster}]))
    assert not (await load_connection(path)).configuration.verify_ssl


async def test_name_and_password_become_basic_authorization(tmp_path: Path) -> None:
    config = kubeconfig(users=[{"name": "u", "user": {"username": "jane", "password": "pw"}}])
    connection = await load_connection(written(tmp_path / "config", config))
    assert await authorization(connection) == "Basic " + base64.b64encode(b"jane:pw").decode()


async def test_impersonation_becomes_headers(tmp_path: Path) -> None:
    user = {"token": "t", "as": "jane", "as-groups": ["a", "b"], "as-user-extra": {"team": ["x"]}}
    connection = await load_connection(written(tmp_path / "config", kubeconfig(users=[{"name": "u", "user": user}])))
    assert connection.headers == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-team", "x"),
    )


async def test_connect_closes_what_it_opened(tmp_path: Path, server: Server) -> None:
    server.then(ok(b"v1"))
    cluster = [{"name": "c", "cluster": {"server": server.url}}]
    async with connect(written(tmp_path / "config", kubeconfig(clusters=cluster)), user_agent="me/1") as client:
        assert await client.raw("GET", "/version") == b"v1"
    assert server.received[0].headers["User-Agent"] == "me/1"
    assert server.received[0].headers["Authorization"] == "Bearer secret"
    with pytest.raises(TransportError, match="is closed"):
        await client.raw("GET", "/version")


# -- what is wrong


async def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert await refused(str(tmp_path / "nope")) == f"kubeconfig {tmp_path}/nope does not exist"


async def test_a_directory_is_not_a_kubeconfig(tmp_path: Path) -> None:
    assert await refused(str(tmp_path)) == f"kubeconfig {tmp_path} can't be read: Is a directory"


async def test_a_list_of_files_of_which_none_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a:{tmp_path}/b")
    assert (
        await refused()
        == f"KUBECONFIG={tmp_path}/a:{tmp_path}/b: no such file; correct it, unset it, or give --kubeconfig"
    )


async def test_nothing_at_all_says_what_to_give(home: Path) -> None:
    message = await refused()
    assert (
        message
        == f"no cluster to talk to: {home}/.kube/config does not exist; give --kubeconfig FILE, or set KUBECONFIG"
    )


async def test_a_pod_without_a_token_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert "set automountServiceAccountToken: true" in await refused()


async def test_an_unknown_context_names_its_neighbour_and_the_others(tmp_path: Path) -> None:
    path = written(tmp_path / "config", kubeconfig())
    message = await refused(path, "bleu")
    assert message == f"kubeconfig {path} has no context 'bleu'; did you mean 'blue'? It has: blue, green"
    assert await refused(path, "xyz") == f"kubeconfig {path} has no context 'xyz'; it has: blue, green"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("a: [", "is not YAML: "),
        ("\x00\x01", "is not YAML: "),
        ("- a\n- b\n", "is not a kubeconfig: it holds a list, not a mapping"),
        ("just text", "is not a kubeconfig: it holds a text, not a mapping"),
        ("", "has no current-context; give --context, one of: (none)"),
        (kubeconfig(**{"current-context": ""}), "has no current-context; give --context, one of: blue, green"),
        (kubeconfig(contexts={"a": 1}), "contexts is a mapping, not a list"),
        (kubeconfig(users=["x"]), "an entry of users has no name"),
        (kubeconfig(clusters=[{"cluster": {}}]), "an entry of clusters has no name"),
        (kubeconfig(users=[{"name": "u", "user": "text"}]), "users 'u' is not a mapping"),
        (kubeconfig(contexts=[{"name": "blue", "context": {}}]), "context 'blue' names no cluster"),
        (kubeconfig(clusters=[]), "context 'blue' names cluster 'c', which isn't there"),
        (kubeconfig(users=[]), "context 'blue' names user 'u', which isn't there"),
        (kubeconfig(clusters=[{"name": "c", "cluster": {}}]), "cluster 'c' has no server"),
        ("when: 2020-13-45", "is not YAML: month must be in 1..12"),
        (kubeconfig(contexts=[{"name": "blue", "context": {"cluster": ["c"]}}]), "cluster is a list, not a name"),
        (
            kubeconfig(contexts=[{"name": "blue", "context": {"cluster": "c", "namespace": 5}}]),
            "context 'blue': namespace 5 is not a text",
        ),
        *(
            (kubeconfig(clusters=[{"name": "c", "cluster": {"server": "https://c.example", **cluster}}]), complaint)
            for cluster, complaint in [
                ({"server": "https://[::1"}, "server 'https://[::1' is not a URL: "),
                ({"server": "https://c.example:99999"}, "server 'https://c.example:99999' is not a URL: "),
                ({"server": "https://:6443"}, "server 'https://:6443' names no host"),
                ({"server": "https://c..example"}, "server: 'c..example' is not a host's name"),
                ({"proxy-url": "http://p..example"}, "proxy-url: 'p..example' is not a host's name"),
                ({"tls-server-name": "a\0b"}, "tls-server-name: 'a\\x00b' is not a host's name"),
                ({"tls-server-name": 5}, "tls-server-name: 5 is not a host's name"),
            ]
        ),
        *(
            (kubeconfig(users=[{"name": "u", "user": user}]), complaint)
            for user, complaint in [
                ({"token": "one\ntwo"}, "user 'u': token is not a text of one line"),
                ({"as": "one\r\ntwo"}, "user 'u': as is not a text of one line"),
                ({"as": "a", "as-groups": "abc"}, "as-groups is not a list of texts"),
                ({"as": "a", "as-user-extra": [1]}, "as-user-extra is not a mapping"),
            ]
        ),
        (
            kubeconfig(clusters=[{"name": "c", "cluster": {"server": "c.example"}}]),
            "cluster 'c': server 'c.example' does not begin with https:// or http://",
        ),
        (
            kubeconfig(clusters=[{"name": "c", "cluster": {"server": "https://c", "certificate-authority": "ca.crt"}}]),
            r"cluster 'c': certificate-authority .*/ca\.crt does not exist",
        ),
        (
            kubeconfig(clusters=[{"name": "c", "cluster": {"server": "https://c", "certificate-authority-data": "x"}}]),
            "cluster 'c': certificate-authority-data is not base64",
        ),
        (
            kubeconfig(users=[{"name": "u", "user": {"client-certificate": "jane.crt"}}]),
            r"user 'u': client-certificate .*/jane\.crt does not exist",
        ),
        (
            kubeconfig(users=[{"name": "u", "user": {"client-certificate-data": RUBBISH, "client-key-data": RUBBISH}}]),
            "context 'blue': the client certificate or its key can't be read: ",
        ),
        (kubeconfig(users=[{"name": "u", "user": {"tokenFile": "t"}}]), r"user 'u': tokenFile .*/t does not exist"),
        (kubeconfig(users=[{"name": "u", "user": {"auth-provider": {"name": "oidc"}}}]), "oidc: missing configuration"),
        (
            kubeconfig(users=[{"name": "u", "user": {"as-groups": ["a"]}}]),
            "as-groups, as-uid and as-user-extra need as",
        ),
    ],
)
async def test_each_fault_of_a_kubeconfig_is_one_line_that_names_it(
    tmp_path: Path, content: Any, complaint: str
) -> None:
    path = written(tmp_path / "config", content)
    message = await refused(path)
    assert message.startswith(f"kubeconfig {path}")
    assert re.search(complaint if ".*" in complaint else re.escape(complaint), message), message


# -- in a Pod


@pytest.fixture
def service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    folder = tmp_path / "serviceaccount"
    written(folder / "token", "t1")
    written(folder / "ca.crt", "authority")
    written(folder / "namespace", "operators\n")
    return folder


async def test_a_service_account_is_read_from_its_folder(service_account: Path) -> None:
    connection = in_cluster(service_account)
    assert (connection.server, connection.namespace) == ("https://10.0.0.1:443", "operators")
    assert (connection.source, connection.context) == ("in-cluster", "")
    assert await authorization(connection) == "Bearer t1"
    assert connection.configuration.ssl_ca_cert == str(service_account / "ca.crt")


async def test_a_new_token_is_read_on_reload(service_account: Path) -> None:
    connection = in_cluster(service_account)
    written(service_account / "token", "t2")
    assert await authorization(connection, is_renewed=True) == "Bearer t2"


async def test_a_token_file_of_rubbish_is_told(service_account: Path) -> None:
    (service_account / "token").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match=f"in-cluster configuration from {service_account}: "):
        in_cluster(service_account)


@pytest.mark.parametrize("name", ["token", "ca.crt"])
async def test_a_missing_part_of_the_service_account_is_told(service_account: Path, name: str) -> None:
    (service_account / name).unlink()
    with pytest.raises(ConfigError, match=f"in-cluster configuration from {service_account}: Service "):
        in_cluster(service_account)
