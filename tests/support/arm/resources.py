"""The resources that exist, found by id without regard to case, and how ids are written."""

import itertools
import re
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tests.support.arm.clock import Timeline
from tests.support.arm.ledger import Entry, Ledger
from tests.support.arm.wire import Json, refusal

if TYPE_CHECKING:
    from tests.support.arm.operations import Operation

GRAVE_KEPT = 3600.0
"""Seconds for which a list that lags can still show what was deleted."""
_ID = re.compile(
    r"/subscriptions/(?P<subscription>[^/]+)/resourceGroups/(?P<group>[^/]+)"
    r"/providers/(?P<provider>[^/]+)/(?P<rest>.+)",
    re.IGNORECASE,
)


def resource_id(subscription: str, group: str, kind: str, *names: str) -> str:
    """`kind` is like Microsoft.Network/virtualNetworks/subnets, with one name for each part."""
    provider, *kinds = kind.split("/")
    path = "/".join(f"{each}/{name}" for each, name in zip(kinds, names, strict=True))
    return f"/subscriptions/{subscription}/resourceGroups/{group}/providers/{provider}/{path}"


def group_of(identity: str) -> str:
    found = _ID.fullmatch(identity)
    return found["group"] if found else ""


def type_of(identity: str) -> str:
    """The type in an id, as written there."""
    found = _ID.fullmatch(identity)
    if found is None:
        return ""
    return "/".join([found["provider"], *found["rest"].split("/")[::2]])


def name_of(identity: str) -> str:
    return identity.rstrip("/").rsplit("/", 1)[-1]


def guid() -> str:
    return str(uuid.uuid4())


@dataclass(eq=False)
class Resource:
    """One resource. `properties` are what its provider answers, `extra` the keys beside them."""

    id: str
    type: str
    location: str
    tags: dict[str, str] = field(default_factory=dict)
    properties: Json = field(default_factory=dict)
    extra: Json = field(default_factory=dict)
    state: str = "Succeeded"
    created: float = 0.0
    number: int = 0
    etag: int = 1
    operation: "Operation | None" = None
    """The write that is running on it."""

    @cached_property
    def name(self) -> str:
        return name_of(self.id)

    @cached_property
    def group(self) -> str:
        return group_of(self.id)

    @cached_property
    def key(self) -> str:
        return self.id.lower()

    def retag(self, tags: dict[str, str]) -> None:
        """Replace all tags, where they are: the ledger looks at the same ones."""
        self.tags.clear()
        self.tags.update(tags)

    def view(self) -> Json:
        """The body of a GET; kinds with more to say have their own."""
        body: Json = {
            "name": self.name,
            "id": self.id,
            "type": self.type,
            "location": self.location,
        }
        if self.tags:
            body["tags"] = dict(self.tags)
        body["properties"] = {"provisioningState": self.state, **self.properties}
        return {**body, **self.extra}


@dataclass(eq=False)
class Nic(Resource):
    """A network interface, and what it remembers of its VM."""

    configuration: str = ""
    """The name in the VM's body; the interface itself is called otherwise."""
    vm: str | None = None
    reserved_for: str | None = None
    reserved_until: float = 0.0
    address_options: dict[str, str] = field(default_factory=dict)
    """Public IP id -> its deleteOption."""


@dataclass(frozen=True)
class Grave:
    """What a lagging list still shows of a deleted resource."""

    resource: Resource
    body: Json
    deleted: float


class World:
    """Everything that exists in one subscription."""

    def __init__(self, timeline: Timeline, ledger: Ledger, subscription: str) -> None:
        self.timeline = timeline
        self.ledger = ledger
        self.subscription = subscription
        self.groups: dict[str, Resource] = {}
        self.graves: deque[Grave] = deque()
        self.watchers: list[Callable[[Resource, int], None]] = []
        """Told of every birth (1) and end (-1)."""
        self._resources: dict[str, Resource] = {}
        self._by_type: dict[str, dict[str, Resource]] = {}
        self._numbers = itertools.count(1)

    def now(self) -> float:
        return self.timeline.now()

    def add_group(self, name: str, location: str) -> Resource:
        group = Resource(
            id=f"/subscriptions/{self.subscription}/resourceGroups/{name}",
            type="Microsoft.Resources/resourceGroups",
            location=location,
        )
        self.groups[name.lower()] = group
        return group

    def add(
        self, resource: Resource, *, seeded: bool = False, parent: str | None = None
    ) -> Resource:
        """Let it exist from now on."""
        resource.created = self.now()
        resource.number = next(self._numbers)
        self._resources[resource.key] = resource
        self._by_type.setdefault(resource.type.lower(), {})[resource.key] = resource
        entry = Entry(
            id=resource.id,
            type=resource.type,
            name=resource.name,
            tags=resource.tags,
            created=resource.created,
            seeded=seeded,
            parent=parent,
        )
        self.ledger.born(entry)
        for watch in self.watchers:
            watch(resource, 1)
        return resource

    def remove(self, resource: Resource) -> None:
        """End it. Its tags in the ledger stay as they were."""
        if self._resources.pop(resource.key, None) is None:
            return
        del self._by_type[resource.type.lower()][resource.key]
        for watch in self.watchers:
            watch(resource, -1)
        now = self.now()
        while self.graves and self.graves[0].deleted < now - GRAVE_KEPT:
            self.graves.popleft()
        self.graves.append(Grave(resource, resource.view(), now))
        self.ledger.died(resource.id, now)

    def get(self, identity: str) -> Resource | None:
        return self._resources.get(identity.lower())

    def find(self, subscription: str, group: str, kind: str, *names: str) -> Resource | None:
        return self.get(resource_id(subscription, group, kind, *names))

    def demand(self, subscription: str, group: str, kind: str, *names: str) -> Resource:
        """It, or the 404 that ARM itself gives."""
        found = self.find(subscription, group, kind, *names)
        if found is None:
            self.demand_group(group)
            raise missing(group, kind, *names)
        return found

    def demand_group(self, name: str) -> Resource:
        group = self.groups.get(name.lower())
        if group is None:
            raise refusal(
                404,
                "ResourceGroupNotFound",
                f"Resource group '{name}' could not be found.",
                gateway=True,
            )
        return group

    def of_type(self, kind: str) -> Iterator[Resource]:
        """All of one type, in order of birth."""
        return iter(list(self._by_type.get(kind.lower(), {}).values()))

    def count(self, kind: str) -> int:
        """How many there are of one type."""
        return len(self._by_type.get(kind.lower(), {}))

    def recently_deleted(self, identity: str, seconds: float) -> bool:
        since = self.now() - seconds
        for each in reversed(self.graves):
            if each.deleted < since:
                return False
            if each.resource.key == identity.lower():
                return True
        return False


def missing(group: str, kind: str, *names: str) -> Exception:
    """The 404 of a resource that ARM does not know."""
    provider, *kinds = kind.split("/")
    path = "/".join(f"{each}/{name}" for each, name in zip(kinds, names, strict=True))
    return refusal(
        404,
        "ResourceNotFound",
        f"The Resource '{provider}/{path}' under resource group '{group}' was not found. "
        "For more details please go to https://aka.ms/ARMResourceNotFoundFix",
        gateway=True,
    )
