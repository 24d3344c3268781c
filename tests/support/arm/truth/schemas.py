"""`Validator`: holds requests and answers to Microsoft's API descriptions.

Which description speaks for a call depends on the api-version sent: up to the one of the OpenAPI
files those; after that the official PUT-body schemas for requests and the SDK's models for answers.
Routes without any description are named, never guessed: their verdict has no source.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tests.support.arm.truth import handmade
from tests.support.arm.truth.allowed import allowance
from tests.support.arm.truth.documents import Document, document, operations
from tests.support.arm.truth.routes import UNSPOKEN, classify, provider_of
from tests.support.arm.truth.walker import (
    READ_ONLY,
    TYPE,
    UNKNOWN,
    VALUE,
    Fault,
    Walker,
)

_COMPUTE_SDK = "compute-sdk-39.0.0.schema.json"
_NETWORK_SDK = "network-sdk-33.1.0.schema.json"
_COMPUTE_PUT = "compute-2026-04-01.putbody-schema.json"
_NETWORK_PUT = "network-2025-09-01.putbody-schema.json"
_SKUS = "compute-skus-2021-07-01.openapi.json"
_OPENAPI = (
    ("compute-2024-07-01.openapi.json", "2024-07-01"),
    (_SKUS, "2021-07-01"),
    ("network-2024-05-01.openapi.json", "2024-05-01"),
    ("resourcegraph-2021-03-01.openapi.json", "9999-12-31"),  # No later description is at hand.
)

# Route: (file, pointer of what a request carries).
_REQUESTS: Mapping[str, tuple[str, str]] = {
    "vm.put": (_COMPUTE_PUT, "resourceDefinitions/virtualMachines"),
    "vm.patch": (_COMPUTE_SDK, "$defs/VirtualMachineUpdate"),
    "extension.put": (_COMPUTE_SDK, "$defs/VirtualMachineExtension"),
    "nic.put": (_NETWORK_PUT, "resourceDefinitions/networkInterfaces"),
    "nic.patch": (_NETWORK_SDK, "$defs/TagsObject"),
    "ip.put": (_NETWORK_PUT, "resourceDefinitions/publicIPAddresses"),
    "ip.patch": (_NETWORK_SDK, "$defs/TagsObject"),
}

# Family of routes: (file, model of one answered thing).
_ANSWERS: Mapping[str, tuple[str, str]] = {
    "vm": (_COMPUTE_SDK, "VirtualMachine"),
    "vm.instance-view": (_COMPUTE_SDK, "VirtualMachineInstanceView"),
    "extension": (_COMPUTE_SDK, "VirtualMachineExtension"),
    "compute.usages": (_COMPUTE_SDK, "Usage"),
    "skus": (_COMPUTE_SDK, "ResourceSku"),
    "nic": (_NETWORK_SDK, "NetworkInterface"),
    "ip": (_NETWORK_SDK, "PublicIPAddress"),
    "network.usages": (_NETWORK_SDK, "Usage"),
}
_LISTS = ("*.list", "*.list-*", "*.usages", "skus")
_WITH_BODY = ("*.put", "*.patch", "*.get", "*.list", "*.list-*", "*.usages", "skus", "*-view")
_BODILESS = ("vm.start", "vm.deallocate", "vm.power-off", "vm.restart", "vm.simulate-eviction")
_BODILESS_ASKS = ("GET", "DELETE", "HEAD")


@dataclass(frozen=True)
class Verdict:
    """What a description has to say about a body; without `source` there was none."""

    route: str
    source: str | None
    faults: tuple[Fault, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.faults

    def __str__(self) -> str:
        against = self.source or "no schema"
        return f"{self.route} against {against}: " + ("; ".join(map(str, self.faults)) or "good")


class Validator:
    """Holds single requests and answers to the descriptions in `data/openapi`."""

    def request(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Verdict:
        """Check the body that a client sends; unknown and read-only keys are faults."""
        route = classify(method, path)
        source = self._source(route, method, path, query, None)
        if source is None:
            asks = method.upper() in _BODILESS_ASKS or route in _BODILESS
            if asks and route != UNSPOKEN and body not in (None, {}, ""):
                return Verdict(route, "HTTP", (Fault(UNKNOWN, "$", "this call carries no body"),))
            return Verdict(route, None)
        doc, schema = source
        if body is None:
            return Verdict(route, doc.name, (Fault(TYPE, "$", "no body where one is described"),))
        walker = Walker(doc, request=True, explain=_read_only_places(route).get)
        return Verdict(route, doc.name, tuple(walker.faults(schema, body)))

    def query(self, method: str, path: str, query: Mapping[str, str]) -> Verdict:
        """Check the query keys against those that the SDK may send for this call."""
        route = classify(method, path)
        operation = _operation(method, path)
        if operation is None:
            return Verdict(route, None)
        faults = [
            Fault(UNKNOWN, f"?{key}", f"{operation['client_method']} does not send it")
            for key in query
            if key not in operation["query"] and key.lower() != "$skiptoken"
        ]
        if not re.fullmatch(r"\d{4}-\d\d-\d\d(-preview)?", query.get("api-version", "")):
            faults.append(Fault(VALUE, "?api-version", "missing or not a version"))
        return Verdict(route, operation["client_method"], tuple(faults))

    def response(
        self, method: str, path: str, query: Mapping[str, str], status: int, body: Any
    ) -> Verdict:
        """Check what a server answers; open enumerations are open, and nulls are faults."""
        route = classify(method, path)
        operation = _operation(method, path)
        faults: list[Fault] = []
        if operation is not None and status < 400 and status != 304:
            accepted = operation["accepted_first_status"]
            if status not in accepted:
                faults.append(Fault(VALUE, "status", f"{status} is none of {accepted}"))
        if status >= 400:
            if status >= 500 and isinstance(body, str):
                return Verdict(route, None)  # Whatever stood in front of ARM told this.
            return self.error(route, body)
        source = self._source(route, method, path, query, status)
        if source is None or (body is None and not _has_body(route)):
            return Verdict(route, None, tuple(faults))
        doc, schema = source
        found = Walker(doc, request=False).faults(schema, body)
        faults += (fault for fault in found if allowance(route, fault) is None)
        return Verdict(route, doc.name, tuple(faults))

    def error(self, route: str, body: Any) -> Verdict:
        """Check an error body: wrapped, as ARM documents it, or bare, or as the price list's."""
        if not isinstance(body, dict):
            return Verdict(route, "handmade", (Fault(TYPE, "$", "an error is an object"),))
        if isinstance(body.get("error"), str):
            model = "TokenError"
        elif "error" in body:
            model = "Error"
        elif "Error" in body:
            model = "PriceError"
        else:
            model = "ErrorBody"
        return self.handmade(route, model, body)

    def handmade(self, route: str, model: str, body: Any) -> Verdict:
        """Check a body against one of the hand-made schemas, by its name."""
        doc = handmade.HANDMADE
        faults = Walker(doc, request=False).faults(doc.model(f"definitions/{model}"), body)
        return Verdict(route, f"{doc.name} {model}", tuple(faults))

    def _source(
        self, route: str, method: str, path: str, query: Mapping[str, str], status: int | None
    ) -> tuple[Document, Mapping[str, Any]] | None:
        old = _openapi(method, path, query.get("api-version", ""), status)
        if old is not None:
            return old
        if status is None:
            if route in _REQUESTS:
                name, pointer = _REQUESTS[route]
                return document(name), document(name).model(pointer)
            return None
        if route in handmade.ANSWERS:
            return _handmade(route, query)
        known = _ANSWERS.get(route, _ANSWERS.get(route.partition(".")[0]))
        if known is None or not _has_body(route):
            return None
        doc = document(known[0])
        one = {"$ref": f"#/$defs/{known[1]}"}
        return doc, _page(known[1]) if _is(route, _LISTS) else one


def default_version(method: str, path: str) -> str | None:
    """The api-version that the SDK sends with a call, where it knows the call."""
    operation = _operation(method, path)
    return None if operation is None else operation["default_api_version"]


def _is(route: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(route, pattern) for pattern in patterns)


def _has_body(route: str) -> bool:
    return _is(route, _WITH_BODY) or route in handmade.ANSWERS


def _handmade(route: str, query: Mapping[str, str]) -> tuple[Document, Mapping[str, Any]] | None:
    if "monitor" in query:
        return None  # The Location form of an operation answers with the result itself.
    return handmade.HANDMADE, handmade.HANDMADE.model(f"definitions/{handmade.ANSWERS[route]}")


@functools.cache
def _page(model: str) -> Mapping[str, Any]:
    item = {"$ref": f"#/$defs/{model}"}
    return {
        "type": "object",
        "properties": {"value": {"type": "array", "items": item}, "nextLink": {"type": "string"}},
        "required": ["value"],
    }


@functools.cache
def _template(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{[^}]+\}", template)
    return re.compile("[^/]+".join(map(re.escape, parts)), re.IGNORECASE)


def _operation(method: str, path: str) -> Mapping[str, Any] | None:
    for operation in operations():
        same = operation["http"] == method.upper()
        if same and _template(operation["path"]).fullmatch(path):
            return operation
    return None


def _openapi(
    method: str, path: str, version: str, status: int | None
) -> tuple[Document, Mapping[str, Any]] | None:
    """The OpenAPI's schema for a call, if the call is not newer than the description."""
    for name, newest in _OPENAPI:
        if not version or version > newest:
            continue
        doc = document(name)
        for template, verbs in doc.content["paths"].items():
            if method.lower() in verbs and _template(template).fullmatch(path):
                schema = _operation_schema(verbs[method.lower()], status)
                return None if schema is None else (doc, schema)
    return None


def _operation_schema(operation: Mapping[str, Any], status: int | None) -> Mapping[str, Any] | None:
    if status is not None:
        answer = operation["responses"].get(str(status), {})
        return answer.get("schema")
    for parameter in operation.get("parameters", ()):
        if parameter.get("in") == "body":
            return parameter["schema"]
    return None


@functools.cache
def _read_only_places(route: str) -> Mapping[str, str]:
    """Places that a PUT-body schema leaves out because only Azure may fill them."""
    known = _ANSWERS.get(route.partition(".")[0])
    if known is None or provider_of(route) == "other":
        return {}
    doc = document(known[0])
    places: dict[str, str] = {}

    def collect(schema: Mapping[str, Any], place: str, depth: int) -> None:
        if depth > 8:  # Network models refer back to each other without end.
            return
        flat = doc.flat(schema)
        if flat.items is not None:
            collect(flat.items, place + "[]", depth + 1)
        for key, inner in flat.properties.items():
            if doc.flat(inner).read_only:
                places[f"{place}.{key}"] = READ_ONLY
            else:
                collect(inner, f"{place}.{key}", depth + 1)

    collect(doc.model(f"$defs/{known[1]}"), "$", 0)
    return places
