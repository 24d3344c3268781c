"""Network interfaces and public addresses on their own, and whatever else was seeded."""

import copy

from tests.support.arm.cloud import Cloud
from tests.support.arm.conflicts import claim
from tests.support.arm.ledger import NIC, PUBLIC_IP
from tests.support.arm.operations import NETWORK
from tests.support.arm.parts import Parts, reserved
from tests.support.arm.resources import Nic, Resource, guid, missing, resource_id
from tests.support.arm.rules import ids_in
from tests.support.arm.tags import check_tags
from tests.support.arm.vm_lists import page
from tests.support.arm.wire import Answer, Call, Json, invalid, refusal


class Network:
    """See the module."""

    def __init__(self, cloud: Cloud, parts: Parts) -> None:
        self._cloud = cloud
        self._parts = parts

    def put_nic(self, call: Call) -> Answer:
        body = copy.deepcopy(call.json())
        properties = body.get("properties") or {}
        if not properties.get("ipConfigurations"):
            raise invalid("InvalidRequestFormat", "Cannot parse the request.")
        existing = self._find(call, NIC)
        self._cloud.world.demand_group(call.group)
        for identity in ids_in(properties):
            if not identity.lower().startswith((existing.key if existing else "\0") + "/"):
                self._cloud.require(identity, call.path)
        tags = check_tags(body.get("tags"), NIC)
        identity = resource_id(call.subscription, call.group, NIC, call.name)
        fresh = self._parts.models.nic(identity, self._cloud.location, properties, tags)
        if existing is None:
            self._cloud.world.add(fresh)
            self._bind(fresh)
            return Answer(201, nic_view(fresh))
        assert isinstance(existing, Nic)
        claim(self._cloud, existing, "PutNetworkInterfaceOperation")
        existing.properties = fresh.properties
        existing.retag(tags)
        self._bind(existing)
        return self._running(call, existing, "nic.put", 200)

    def put_address(self, call: Call) -> Answer:
        body = copy.deepcopy(call.json())
        self._cloud.world.demand_group(call.group)
        tags = check_tags(body.get("tags"), PUBLIC_IP)
        existing = self._find(call, PUBLIC_IP)
        identity = resource_id(call.subscription, call.group, PUBLIC_IP, call.name)
        fresh = self._parts.models.address(identity, self._cloud.location, body, tags)
        if existing is None:
            self._check_count()
            self._cloud.world.add(fresh)
            return self._running(call, fresh, "ip.put", 201)
        claim(self._cloud, existing, "PutPublicIpAddressOperation")
        kept = {"ipAddress", "resourceGuid"}
        existing.properties |= {k: v for k, v in fresh.properties.items() if k not in kept}
        existing.retag(tags)
        return self._running(call, existing, "ip.put", 200)

    def patch_tags(self, call: Call) -> Answer:
        """PATCH of an interface or an address: tags, and nothing else."""
        resource = self._demand(call, _type(call))
        resource.retag(check_tags(call.json().get("tags"), resource.type))
        return Answer(200, view(resource))

    def get(self, call: Call) -> Answer:
        resource = self._demand(call, _type(call))
        body = view(resource)
        return Answer(200, body, {"ETag": str(body["etag"])})

    def listed(self, call: Call) -> Answer:
        if call.group:
            self._cloud.world.demand_group(call.group)
        return page(self._cloud, call, _type(call), call.group or None, view)

    def delete_nic(self, call: Call) -> Answer:
        nic = self._find(call, NIC)
        if nic is None:
            self._cloud.world.demand_group(call.group)
            return Answer(204)
        assert isinstance(nic, Nic)
        if self._parts.is_reserved(nic):
            raise reserved(nic, by_network=True)
        if nic.vm is not None:
            raise refusal(
                400,
                "NicInUse",
                f"Network Interface {nic.id} is used by existing resource {nic.vm}. In order to "
                "delete the network interface, it must be dissociated from the resource. To learn "
                "more, see aka.ms/deletenic.",
                details=[],
            )
        claim(self._cloud, nic, "DeleteNetworkInterfaceOperation")
        return self._running(call, nic, "nic.delete", 202, finish=lambda: self._parts.end_nic(nic))

    def delete_address(self, call: Call) -> Answer:
        address = self._find(call, PUBLIC_IP)
        if address is None:
            self._cloud.world.demand_group(call.group)
            return Answer(204)
        holder = address.properties.get("ipConfiguration")
        if holder is not None:
            raise refusal(
                400,
                "PublicIPAddressCannotBeDeleted",
                f"Public IP address {address.id} can not be deleted since it is still allocated to "
                f"resource {holder['id']}. In order to delete the public IP, disassociate/detach "
                "the Public IP address from the resource.  To learn how to do this, see "
                "aka.ms/deletepublicip.",
                details=[],
            )
        claim(self._cloud, address, "DeletePublicIpAddressOperation")
        return self._running(
            call, address, "ip.delete", 202, finish=lambda: self._cloud.world.remove(address)
        )

    def get_seeded(self, call: Call) -> Answer:
        """Subnets, images, groups of rules, pools: as they were seeded."""
        resource = self._cloud.world.get(call.path.rstrip("/"))
        if resource is None:
            self._cloud.world.demand_group(call.group)
            names = [value for key, value in call.parameters.items() if key not in _NOT_NAMES]
            raise missing(call.group, _path_type(call), *names)
        return Answer(200, view(resource))

    def get_group(self, call: Call) -> Answer:
        group = self._cloud.world.demand_group(call.group)
        deleting = call.group.lower() in self._cloud.access.deleting_groups
        name = group.id.rsplit("/", 1)[-1]
        body: Json = {
            "id": group.id,
            "name": name,
            "type": group.type,
            "location": group.location,
            "properties": {"provisioningState": "Deleting" if deleting else "Succeeded"},
        }
        return Answer(200, body)

    def get_subscription(self, call: Call) -> Answer:
        warned = self._cloud.access.read_only_subscription
        body: Json = {
            "id": f"/subscriptions/{call.subscription}",
            "subscriptionId": call.subscription,
            "displayName": "fleet",
            "state": "Warned" if warned else "Enabled",
        }
        return Answer(200, body)

    def get_provider(self, call: Call) -> Answer:
        name = call.parameters["namespace"]
        missing_ones = {each.lower() for each in self._cloud.access.unregistered}
        state = "NotRegistered" if name.lower() in missing_ones else "Registered"
        body: Json = {
            "id": f"/subscriptions/{call.subscription}/providers/{name}",
            "namespace": name,
            "registrationPolicy": "RegistrationRequired",
            "resourceTypes": [],
            "registrationState": state,
        }
        return Answer(200, body)

    def register_provider(self, call: Call) -> Answer:
        """What nobody may do unasked; it works, so that a test can see that it was done."""
        name = call.parameters["namespace"].lower()
        unregistered = self._cloud.access.unregistered
        unregistered -= {each for each in unregistered if each.lower() == name}
        return self.get_provider(call)

    def _running(
        self,
        call: Call,
        resource: Resource,
        kind: str,
        status: int,
        finish: object = None,
    ) -> Answer:
        resource.state = "Deleting" if status == 202 else "Updating"

        def done() -> None:
            resource.state = "Succeeded"
            resource.etag += 1
            if callable(finish):
                finish()

        def failed(error: Json) -> None:
            resource.state = "Failed"

        operations = self._cloud.operations
        operation = operations.start(
            NETWORK,
            kind,
            resource,
            seconds=call.seconds(operations.durations.of(kind, resource.name)),
            finish=done,
            fail=failed,
            error=call.operation_error,
        )
        headers = operations.headers(operation, call, location=status == 202)
        return Answer(status, None if status == 202 else view(resource), headers)

    def _bind(self, nic: Nic) -> None:
        """Addresses named by an interface know which configuration holds them."""
        for each in nic.properties["ipConfigurations"]:
            named = each["properties"].get("publicIPAddress") or {}
            address = self._cloud.world.get(named.get("id", ""))
            if address is not None:
                nic.address_options[address.id] = named.get("deleteOption", "Detach")
                address.properties["ipConfiguration"] = {"id": each["id"]}

    def _check_count(self) -> None:
        limit = self._cloud.usages.limit("PublicIPAddresses")
        if self._cloud.usages.network_used()["PublicIPAddresses"] >= limit:
            raise refusal(
                400,
                "PublicIPCountLimitReached",
                f"Cannot create more than {limit} public IP addresses for this subscription in "
                "this region.",
                details=[],
            )

    def _find(self, call: Call, kind: str) -> Resource | None:
        return self._cloud.world.find(call.subscription, call.group, kind, call.name)

    def _demand(self, call: Call, kind: str) -> Resource:
        return self._cloud.world.demand(call.subscription, call.group, kind, call.name)


_NOT_NAMES = {"subscriptionId", "resourceGroupName", "namespace", "resourceType"}


def view(resource: Resource) -> Json:
    """As Network writes it, with an entity tag."""
    if isinstance(resource, Nic):
        return nic_view(resource)
    body = resource.view()
    tag = _entity_tag(resource)
    return {
        "name": body["name"],
        "id": body["id"],
        "etag": tag,
        **{key: value for key, value in body.items() if key not in {"name", "id"}},
    }


def nic_view(nic: Nic) -> Json:
    body = nic.view()
    tag = _entity_tag(nic)
    properties = dict(body["properties"])
    properties["ipConfigurations"] = [
        {
            "name": each["name"],
            "id": each["id"],
            "etag": tag,
            "type": each["type"],
            "properties": {**each["properties"], "provisioningState": nic.state},
        }
        for each in properties["ipConfigurations"]
    ]
    if nic.vm is not None:
        properties |= {
            "virtualMachine": {"id": nic.vm},
            "macAddress": "00-0D-3A-00-00-01",
            "primary": True,
        }
    return {
        "name": nic.name,
        "id": nic.id,
        "etag": tag,
        **({"tags": dict(nic.tags)} if nic.tags else {}),
        "properties": properties,
        "type": nic.type,
        "location": nic.location,
        "kind": "Regular",
    }


_TAGS: dict[tuple[str, int, int], str] = {}


def _entity_tag(resource: Resource) -> str:
    key = (resource.key, resource.number, resource.etag)
    return _TAGS.setdefault(key, f'W/"{guid()}"')


def _type(call: Call) -> str:
    return NIC if call.route.startswith("nic.") else PUBLIC_IP


def _path_type(call: Call) -> str:
    start = call.path.lower().rindex("/providers/") + len("/providers/")
    provider, *rest = call.path[start:].rstrip("/").split("/")
    return "/".join([provider, *rest[::2]])
