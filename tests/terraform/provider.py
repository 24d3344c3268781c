"""A stand-in for the azurerm provider: its real schema, and an Azure that takes everything.

terraform finds it through TF_REATTACH_PROVIDERS and speaks its plugin protocol with it, so `init`,
`validate`, `plan` and `apply` run without a registry. Names, types and nesting are checked as with
the real provider; what values Azure accepts is not.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.terraform.packed import UNKNOWN, Unknown, pack, unpack

HERE = Path(__file__).parent
SCHEMA = HERE / "azurerm-5.2.0.json"
"""What `terraform providers schema -json` says of azurerm 5.2.0, of the resources used here."""

SOURCE = "hashicorp/azurerm"
SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
TENANT = "22222222-2222-2222-2222-222222222222"
ISSUER = "https://eastus.oic.prod-aks.azure.com/22222222/33333333/"

GROUPS = {"bigfleet-eastus", "fleet", "kept", "net"}
"""Resource groups that are there already."""

_GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{{resource_group_name}}"
_NETWORK = f"{_GROUP}/providers/Microsoft.Network"
_IDS = {
    "availability_set": f"{_GROUP}/providers/Microsoft.Compute/availabilitySets/{{name}}",
    "lb": f"{_NETWORK}/loadBalancers/{{name}}",
    "lb_backend_address_pool": "{loadbalancer_id}/backendAddressPools/{name}",
    "lb_probe": "{loadbalancer_id}/probes/{name}",
    "lb_rule": "{loadbalancer_id}/loadBalancingRules/{name}",
    "nat_gateway": f"{_NETWORK}/natGateways/{{name}}",
    "network_security_group": f"{_NETWORK}/networkSecurityGroups/{{name}}",
    "public_ip": f"{_NETWORK}/publicIPAddresses/{{name}}",
    "resource_group": f"/subscriptions/{SUBSCRIPTION}/resourceGroups/{{name}}",
    "subnet": f"{_NETWORK}/virtualNetworks/{{virtual_network_name}}/subnets/{{name}}",
    "user_assigned_identity": (
        f"{_GROUP}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/{{name}}"
    ),
    "virtual_network": f"{_NETWORK}/virtualNetworks/{{name}}",
}
"""How Azure forms ids; the others are made up."""

_DATA = {
    "azurerm_client_config": {"subscription_id": SUBSCRIPTION, "tenant_id": TENANT},
    "azurerm_kubernetes_cluster": {"location": "westeurope", "oidc_issuer_url": ISSUER},
}
_EMPTY = {"string": "made-up", "number": 0, "bool": False, "list": [], "set": [], "map": {}}

Json = dict[str, Any]


class Azurerm:
    """The provider's answers. `resources` is what was applied, by type and id."""

    def __init__(self, messages: Callable[[str], Any]) -> None:
        self.resources: dict[tuple[str, str], Json] = {}
        self._messages = messages
        self._schema = json.loads(SCHEMA.read_text(encoding="utf-8"))

    def answer(self, method: str, request: Any) -> Any:
        """The answer to a call, by the name of the method."""
        asked = {
            "GetSchema": self._schemas,
            "PrepareProviderConfig": lambda _: {"prepared_config": request.config},
            "UpgradeResourceState": self._upgrade,
            "ReadResource": lambda _: {"new_state": request.current_state},
            "PlanResourceChange": self._plan,
            "ApplyResourceChange": self._apply,
            "ReadDataSource": self._data,
        }
        return asked.get(method, lambda _: {})(request)

    def _schemas(self, _: Any) -> Json:
        kinds = ("resource_schemas", "data_source_schemas")
        return {
            "provider": self._message(self._schema["provider"]),
            **{
                kind: {name: self._message(each) for name, each in self._schema[kind].items()}
                for kind in kinds
            },
        }

    def _message(self, schema: Json) -> Any:
        return self._messages("Schema")(
            version=schema["version"], block=self._block(schema["block"])
        )

    def _block(self, block: Json) -> Json:
        attributes = [
            {**each, "name": name, "type": json.dumps(each["type"]).encode()}
            for name, each in block.get("attributes", {}).items()
        ]
        nested = [
            {
                "type_name": name,
                "block": self._block(each["block"]),
                "nesting": each["nesting_mode"].upper(),
                **{bound: each[bound] for bound in ("min_items", "max_items") if bound in each},
            }
            for name, each in block.get("block_types", {}).items()
        ]
        return {"attributes": attributes, "block_types": nested}

    def _upgrade(self, request: Any) -> Json:
        return {"upgraded_state": _wrapped(json.loads(request.raw_state.json))}

    def _plan(self, request: Any) -> Json:
        value = unpack(request.proposed_new_state.msgpack)
        if value is not None:
            _fill(value, self._schema["resource_schemas"][request.type_name]["block"], _unknown)
        return {"planned_state": _wrapped(value)}

    def _apply(self, request: Any) -> Json:
        kind = request.type_name.removeprefix("azurerm_")
        value = unpack(request.planned_state.msgpack)
        if value is None:
            gone = unpack(request.prior_state.msgpack)
            del self.resources[kind, gone["id"]]
            return {"new_state": _wrapped(None)}
        if refused := self._refused(kind, value):
            diagnostic = {"severity": "ERROR", "summary": refused}
            return {"new_state": request.prior_state, "diagnostics": [diagnostic]}
        if isinstance(value["id"], Unknown):
            value["id"] = _IDS.get(kind, f"/made-up/{uuid.uuid4()}").format(**value)
        _fill(value, self._schema["resource_schemas"][request.type_name]["block"], _made_up)
        self.resources[kind, value["id"]] = value
        return {"new_state": _wrapped(value)}

    def _refused(self, kind: str, value: Json) -> str:
        """The code of Azure's refusal, where this Azure is as strict."""
        scope = re.search("/resourceGroups/([^/]+)", value.get("scope", ""))
        group = value.get("resource_group_name") or (scope and scope[1])
        made = {
            each["name"] for (kind, _), each in self.resources.items() if kind == "resource_group"
        }
        if group and group not in made | GROUPS:
            return "ResourceGroupNotFound"
        if kind == "role_assignment" and self._assigned(value):
            return "RoleAssignmentExists"
        return ""

    def _assigned(self, wanted: Json) -> bool:
        """Whether another assignment gives the same role on the same scope, which Azure refuses."""
        keys = ("scope", "principal_id", "role_definition_id", "role_definition_name")
        return any(
            kind == "role_assignment"
            and [str(each[key]).lower() for key in keys]
            == [str(wanted[key]).lower() for key in keys]
            for (kind, _), each in self.resources.items()
        )

    def _data(self, request: Any) -> Json:
        value = unpack(request.config.msgpack)
        value |= _DATA[request.type_name] | {"id": "read"}
        return {"state": _wrapped(value)}


def _wrapped(value: object) -> Json:
    return {"msgpack": pack(value)}


def _unknown(_: str, value: Any, attribute: Json) -> Any:
    return UNKNOWN if value is None and attribute.get("computed") else value


def _made_up(name: str, value: Any, attribute: Json) -> Any:
    if not isinstance(value, Unknown):
        return value
    if name in {"client_id", "principal_id"}:
        return str(uuid.uuid4())
    kind = attribute["type"]
    return _EMPTY[kind if isinstance(kind, str) else kind[0]]


def _fill(value: Json, block: Json, filled: Callable[[str, Any, Json], Any]) -> None:
    for name, attribute in block.get("attributes", {}).items():
        value[name] = filled(name, value[name], attribute)
    for name, nested in block.get("block_types", {}).items():
        inside = value[name] or []
        for each in [inside] if isinstance(inside, dict) else inside:
            _fill(each, nested["block"], filled)


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    with tempfile.TemporaryDirectory() as scratch:
        compiled = Path(scratch) / "plugin.pb"
        options = [f"--proto_path={HERE}", f"--descriptor_set_out={compiled}", "plugin.proto"]
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(compiled.read_bytes()).file
    for file in files:
        pool.Add(file)
    return pool


@contextmanager
def serving(scratch: Path) -> Iterator[tuple[Azurerm, dict[str, str]]]:
    """The provider on a socket in `scratch`, and the environment in which terraform finds it."""
    pool = _pool()

    def message(name: str) -> Any:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"tfplugin5.{name}"))

    provider = Azurerm(message)

    def handler(method: Any) -> grpc.RpcMethodHandler:
        reply = message(method.output_type.name)
        return grpc.unary_unary_rpc_method_handler(
            lambda request, _: reply(**provider.answer(method.name, request)),
            request_deserializer=message(method.input_type.name).FromString,
            response_serializer=reply.SerializeToString,
        )

    service = pool.FindServiceByName("tfplugin5.Provider")
    server = grpc.server(ThreadPoolExecutor(8))
    handlers = {method.name: handler(method) for method in service.methods}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service.full_name, handlers),)
    )
    socket = scratch / "plugin.sock"
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    reattach = {
        "Protocol": "grpc",
        "ProtocolVersion": 5,
        "Pid": os.getpid(),
        # Otherwise terraform ends this process when it is done.
        "Test": True,
        "Addr": {"Network": "unix", "String": str(socket)},
    }
    try:
        yield provider, {"TF_REATTACH_PROVIDERS": json.dumps({SOURCE: reattach})}
    finally:
        server.stop(grace=None).wait()
