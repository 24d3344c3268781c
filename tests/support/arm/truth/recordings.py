"""The recorded exchanges, typed, from `data/wire`.

Every file form found there (recorded exchanges, single captured answers, vendor examples, quoted
errors) becomes a list of `Recorded`. Comparing is done in `shapes`, sending again in `replay`.
"""

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.support.arm.truth.routes import classify

WIRE = Path(__file__).parent / "data" / "wire"

TRAFFIC = "traffic"
"""Both halves of real HTTP traffic, headers included."""
CAPTURED = "captured"
"""A real body whose headers, or whose other entries, were not kept."""
EXAMPLE = "example"
"""Written by the service team: the keys are authoritative, the values are not."""
QUOTED = "quoted"
"""An error body as somebody quoted it; no request belongs to it."""

_SUBSCRIPTION = "/subscriptions/00000000-0000-0000-0000-000000000000"
_SKUS = f"{_SUBSCRIPTION}/providers/Microsoft.Compute/skus"
_VERSION = "api-version"

_AS_BYTES = re.compile(r"[b'\"\\]*(\{.*\})[\\'\"]*", re.DOTALL)

# Vendor examples name their operation in the file name only.
_EXAMPLES = {
    "VirtualMachine_Create_": ("PUT", "{vm}"),
    "VirtualMachine_Get.json": ("GET", "{vm}"),
    "VirtualMachine_Get_InstanceView": ("GET", "{vm}/instanceView"),
    "VirtualMachine_Delete_Force": ("DELETE", "{vm}"),
    "VirtualMachine_ListAll": (
        "GET",
        f"{_SUBSCRIPTION}/providers/Microsoft.Compute/virtualMachines",
    ),
    "VirtualMachineExtension_CreateOrUpdate": ("PUT", "{vm}/extensions/{name}"),
}


@dataclass(frozen=True)
class Recorded:
    """One exchange: what was asked, what Azure answered, and where that is known from."""

    method: str
    path: str
    query: Mapping[str, str]
    request: Any
    status: int
    headers: Mapping[str, str]
    response: Any
    file: str
    index: int
    fidelity: str

    @property
    def route(self) -> str:
        return classify(self.method, self.path)

    @property
    def where(self) -> str:
        return f"{self.file}[{self.index}]"

    @property
    def version(self) -> str:
        return self.query.get(_VERSION, "")


def lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    """Header names without regard to case; recordings spell them in four ways."""
    return {name.lower(): value for name, value in headers.items()}


def split_url(url: str) -> tuple[str, dict[str, str]]:
    """Split a URL into its path and its query keys; the host is of no interest."""
    parts = urlsplit(url)
    return parts.path, dict(parse_qsl(parts.query, keep_blank_values=True))


@functools.cache
def load() -> tuple[Recorded, ...]:
    """Read every file of `data/wire`, in the order of their names."""
    return tuple(
        exchange
        for path in sorted(WIRE.glob("*.json"))
        for exchange in read(path.name, json.loads(path.read_text(encoding="utf-8")))
    )


def of_file(name: str) -> tuple[Recorded, ...]:
    """The exchanges of one file, in their order."""
    return tuple(exchange for exchange in load() if exchange.file == name)


def read(file: str, document: Mapping[str, Any]) -> Iterator[Recorded]:
    """Turn one file into exchanges, whatever its form."""
    if "exchanges" in document:
        for index, item in enumerate(document["exchanges"]):
            yield _traffic(file, index, item)
    elif "examples" in document:
        for index, item in enumerate(document["examples"]):
            yield from _example(file, index, item)
    elif "errors" in document:
        for index, item in enumerate(document["errors"]):
            body = item.get("body", item.get("operation_body", {"error": item.get("error")}))
            status = item.get("status", 200)  # A failed operation is told in a poll, which is 200.
            yield Recorded("", "", {}, None, status, {}, body, file, index, QUOTED)
    else:
        yield _captured(file, document)


def _traffic(file: str, index: int, item: Mapping[str, Any]) -> Recorded:
    request, response = item["request"], item["response"]
    path, query = split_url(request["url"])
    return Recorded(
        method=request["method"],
        path=path,
        query=query,
        request=_parsed(request.get("body")),
        status=response["status"],
        headers=lower_names(response.get("headers", {})),
        response=response.get("body"),
        file=file,
        index=index,
        fidelity=TRAFFIC,
    )


def _parsed(body: Any) -> Any:
    """Two old recorders kept request bodies as the text of Python bytes; forms stay text."""
    if isinstance(body, str) and (
        match := re.fullmatch(r"[b'\"\\]*(\{.*\})[\\'\"]*", body, re.DOTALL)
    ):
        return json.loads(match.group(1))
    return body


def _captured(file: str, document: Mapping[str, Any]) -> Recorded:
    """SKU lists: cut to some entries, so their headers (the length above all) mean nothing."""
    url = document.get("request", {}).get("url", f"{_SKUS}?{_VERSION}=2021-07-01")
    path, query = split_url(url)
    response = document["response"]
    return Recorded(
        "GET", path, query, None, response["status"], {}, response["body"], file, 0, CAPTURED
    )


def _example(file: str, index: int, item: Mapping[str, Any]) -> Iterator[Recorded]:
    name = Path(item["file"]).name
    parameters = item["example"]["parameters"]
    body = parameters.get("parameters", parameters.get("extensionParameters"))
    called = next((call for start, call in _EXAMPLES.items() if name.startswith(start)), None)
    if called is None:
        return  # A run command: the double does not speak those.
    method, template = called
    path = template.format_map(
        {
            "vm": f"{_SUBSCRIPTION}/resourceGroups/{parameters.get('resourceGroupName')}"
            f"/providers/Microsoft.Compute/virtualMachines/{parameters.get('vmName')}",
            "name": parameters.get("vmExtensionName"),
        }
    )
    for status, response in item["example"]["responses"].items():
        yield Recorded(
            method=method,
            path=path,
            query={_VERSION: parameters[_VERSION]},
            request=body,
            status=int(status),
            headers={},
            response=response.get("body"),
            file=file,
            index=index,
            fidelity=EXAMPLE,
        )
