"""What a resource of the API is called, and how people name one.

`Resource` is the full descriptor that URLs are built from. `ResourceSelector` is what a user writes (`"pods"`,
`"deployments.apps"`, `"apps/v1/deployments"`, an `Object` class); discovery turns it into a Resource.
"""

from __future__ import annotations

import re
from urllib.parse import quote

import msgspec


class Resource(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One resource type as the API server serves it.

    Equal if they are served at the same place, however much else of it is known: discovery, and a class that says its
    plural itself, must come to the same watch.
    """

    group: str = ""
    """Empty for the core group."""
    version: str
    plural: str
    kind: str
    namespaced: bool
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Resource) and self._place == other._place

    def __hash__(self) -> int:
        return hash(self._place)

    @property
    def _place(self) -> tuple[str, str, str]:
        return self.group, self.version, self.plural

    @property
    def api_version(self) -> str:
        """`v1`, `apps/v1` …, as objects carry it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> str:
        """`pods`, `deployments.apps` …: the name that logs, metrics and rights use."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """URL path of the collection, of one object, or of its subresource.

        For a namespaced resource an empty namespace is the collection of all namespaces.
        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/" + "/".join(parts)


_VERSION = re.compile(r"v\d+((alpha|beta)\d+)?")


class ResourceSelector(msgspec.Struct, frozen=True):
    """What is known of a resource before discovery: some of group, version and a name."""

    name: str
    """Plural, singular, kind or short name, compared without regard to case."""
    group: str | None = None
    """None: any group, the core group first."""
    version: str | None = None
    """None: the version the server prefers."""

    @classmethod
    def parse(cls, text: str | tuple[str, ...]) -> ResourceSelector:
        """Read the forms that Kopf has: `pods`, `deployments.apps`, `apps/v1/deployments`, a tuple of those parts.

        Raises:
            ValueError: it has none of these forms.
        """
        parts = tuple(text) if isinstance(text, tuple) else tuple(text.split("/"))
        if not all(isinstance(part, str) for part in parts) or not parts or not parts[-1].strip():
            raise ValueError(f"{text!r} names no resource; write 'pods', 'deployments.apps' or 'apps/v1/deployments'")
        match parts:
            case (group, version, name):
                return cls(name, group, version)
            case (left, name):
                return cls(name, "", left) if _VERSION.fullmatch(left) else cls(name, left)
            case (name,):
                return cls._dotted(name)
        raise ValueError(f"{text!r} has too many parts; write group/version/plural")

    @classmethod
    def _dotted(cls, name: str) -> ResourceSelector:
        plural, _, rest = name.partition(".")
        if not rest:
            return cls(name)
        version, _, group = rest.partition(".")
        if _VERSION.fullmatch(version):  # kubectl's deployments.v1.apps
            return cls(plural, group, version)
        return cls(plural, rest)

    def matches(self, resource: Resource) -> bool:
        """Whether `resource` is one that this names."""
        if self.group is not None and self.group != resource.group:
            return False
        if self.version is not None and self.version != resource.version:
            return False
        name = self.name.lower()
        return name in (resource.plural, resource.singular, resource.kind.lower()) or name in resource.short_names

    def __str__(self) -> str:
        return "/".join(part for part in (self.group, self.version, self.name) if part)
