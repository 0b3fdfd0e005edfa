"""Every refusal of the server, worded as kube-apiserver words it, with its Status body.

Raised anywhere below the HTTP layer and answered there; nothing in between handles it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from asyncop.testing.schema import Obj


class RefusedError(Exception):
    """The answer is this Status instead of what was asked for."""

    def __init__(self, code: int, reason: str, message: str, details: Obj | None = None) -> None:
        super().__init__(message)
        self.warnings: list[str] = []
        """What the answer warns of besides."""
        self.code, self.reason, self.message, self.details = code, reason, message, details

    def status(self) -> Obj:
        """The body of the answer, also the object of an ERROR line."""
        body: Obj = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message}
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        return {**body, "code": self.code}

    def encode(self) -> bytes:
        """The body as the server writes it."""
        return msgspec.json.encode(self.status()) + b"\n"


class Who(NamedTuple):
    """What a refusal is about: an object of a resource."""

    group: str
    plural: str
    kind: str
    name: str = ""

    @property
    def qualified(self) -> str:
        """`pods`, `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def details(self, **more: Any) -> Obj:
        """The details that most refusals carry; what is empty is left out."""
        known = {"name": self.name, "group": self.group, "kind": self.plural, **more}
        return {key: value for key, value in known.items() if value}


class Fault(NamedTuple):
    """One field that makes an object invalid."""

    field: str
    reason: str
    """`FieldValueRequired`, `FieldValueInvalid` …"""
    message: str


def not_found(who: Who) -> RefusedError:
    """404: the object isn't there."""
    return RefusedError(404, "NotFound", f'{who.qualified} "{who.name}" not found', who.details())


def no_such_resource() -> RefusedError:
    """404: nothing is served there."""
    return RefusedError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> RefusedError:
    """405: what is served there has no such verb."""
    message = "the server does not allow this method on the requested resource"
    return RefusedError(405, "MethodNotAllowed", message, {})


def already_exists(who: Who) -> RefusedError:
    """409: the name is taken."""
    return RefusedError(409, "AlreadyExists", f'{who.qualified} "{who.name}" already exists', who.details())


def conflict(who: Who, why: str) -> RefusedError:
    """409: the object isn't what the request takes it for."""
    message = f'Operation cannot be fulfilled on {who.qualified} "{who.name}": {why}'
    return RefusedError(409, "Conflict", message, who.details())


def modified(who: Who) -> RefusedError:
    """409: the object has another version."""
    return conflict(who, "the object has been modified; please apply your changes to the latest version and try again")


def bad_request(message: str) -> RefusedError:
    """400: the request makes no sense."""
    return RefusedError(400, "BadRequest", message)


def forbidden(who: Who, why: str, causes: list[Obj] | None = None) -> RefusedError:
    """403: the server's own rules forbid it."""
    name = f' "{who.name}"' if who.name else ""
    message = f"{who.qualified}{name} is forbidden: {why}"
    return RefusedError(403, "Forbidden", message, who.details(causes=causes))


def invalid(who: Who, faults: list[Fault]) -> RefusedError:
    """422: the object breaks rules; the same text is told once, the causes all."""
    texts = [f"{fault.field}: {fault.message}" if fault.field else fault.message for fault in faults]
    texts = list(dict.fromkeys(texts))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    kind = f"{who.kind}.{who.group}" if who.group else who.kind
    causes = [{"reason": fault.reason, "message": fault.message, "field": fault.field} for fault in faults]
    details = {"name": who.name, "group": who.group, "kind": who.kind, "causes": causes}
    details = {key: value for key, value in details.items() if value}
    return RefusedError(422, "Invalid", f'{kind} "{who.name}" is invalid: {text}', details)


def expired(message: str) -> RefusedError:
    """410: the version's past is compacted."""
    return RefusedError(410, "Expired", message)


def required(path: str, detail: str = "") -> Fault:
    """A fault: there must be a value."""
    return Fault(path, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def invalid_value(path: str, value: Any, detail: str) -> Fault:
    """A fault: the value can't be."""
    return Fault(path, "FieldValueInvalid", f"Invalid value: {shown(value)}: {detail}")


def unsupported(path: str, value: Any, supported: list[str]) -> Fault:
    """A fault: the value isn't one of those that can be."""
    choices = ", ".join(f'"{choice}"' for choice in supported)
    return Fault(path, "FieldValueNotSupported", f"Unsupported value: {shown(value)}: supported values: {choices}")


def shown(value: Any) -> str:
    """A value as messages show it."""
    return msgspec.json.encode(value).decode()
