"""Lists of VMs: pages of fifty with nextLink, run-time status only, and lists that lie."""

import functools
import itertools
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlencode

from tests.support.arm.cloud import Cloud
from tests.support.arm.ledger import VM
from tests.support.arm.resources import Resource
from tests.support.arm.vms import Vm
from tests.support.arm.wire import Answer, Call, Json, refusal


class VmLists:
    """The lists of a group, of the subscription and of a location."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def of_group(self, call: Call) -> Answer:
        self._check(call)
        self._cloud.world.demand_group(call.group)
        return self._answer(call, group=call.group)

    def of_subscription(self, call: Call) -> Answer:
        self._check(call)
        return self._answer(call)

    def of_location(self, call: Call) -> Answer:
        if call.parameters["location"].lower() != self._cloud.location:
            return Answer(200, {"value": []})
        return self._answer(call)

    def _check(self, call: Call) -> None:
        if "$expand" in call.query and "$filter" not in call.query:
            raise refusal(
                400,
                "BadRequest",
                "The expand expression can only be specified if a valid filter option is "
                "specified.",
                target="$expand",
            )

    def _answer(self, call: Call, group: str | None = None) -> Answer:
        status_only = call.query.get("statusOnly", "").lower() == "true"
        if "$filter" in call.query:
            # The only filter is by scale set, and there are none.
            return Answer(200, {"value": []})
        return page(
            self._cloud,
            call,
            VM,
            group,
            _status_only if status_only else _listed,
        )


def _listed(vm: Resource) -> Json:
    """The model; extensions are named by their ids only (recorded)."""
    body = vm.view()
    if "resources" in body:
        body["resources"] = [{"id": each["id"]} for each in body["resources"]]
    return body


def _status_only(vm: Resource) -> Json:
    """Run-time status: the instance view, and no tags."""
    assert isinstance(vm, Vm)
    return {
        "name": vm.name,
        "id": vm.id,
        "type": VM,
        "location": vm.location,
        "properties": {
            "vmId": vm.vm_id,
            "provisioningState": vm.state,
            "instanceView": vm.instance_view(),
        },
    }


def page(cloud: Cloud, call: Call, kind: str, group: str | None, view: Any = None) -> Answer:
    """One page of resources in order of birth; the token is the number of the last one."""
    after = int(call.query.get("$skiptoken", "0"))
    visible = _visible(cloud, kind, group, after, view or Resource.view)
    # The dead, which come last, belong between the living.
    ordered = sorted(visible, key=lambda entry: entry[0]) if cloud.lists.lag else visible
    entries = list(itertools.islice(ordered, cloud.lists.page + 1))
    shown, rest = entries[: cloud.lists.page], entries[cloud.lists.page :]
    value = [body() for _, body in shown]
    if group is None and cloud.lists.capital_groups:
        value = [_capitals(body) for body in value]
    answer: Json = {"value": value}
    if rest:
        query = {**call.query, "$skiptoken": str(shown[-1][0])}
        answer["nextLink"] = f"{cloud.operations.endpoint}{call.path}?{urlencode(query)}"
    return Answer(200, answer)


def _visible(
    cloud: Cloud, kind: str, group: str | None, after: int, view: Any
) -> Iterable[tuple[int, Callable[[], Json]]]:
    lag, now = cloud.lists.lag, cloud.world.now()
    wanted = None if group is None else group.lower()

    def chosen(resource: Resource) -> bool:
        if resource.number <= after:
            return False
        here = wanted is None or resource.group.lower() == wanted
        return here and cloud.lists.shows(resource.name) and resource.created <= now - lag

    for each in cloud.world.of_type(kind):
        if chosen(each):
            yield each.number, functools.partial(view, each)
    if not lag:
        return
    for grave in cloud.world.graves:
        dead = grave.resource
        if dead.type.lower() == kind.lower() and chosen(dead) and grave.deleted > now - lag:
            yield dead.number, functools.partial(dict, grave.body)


def _capitals(body: Json) -> Json:
    parts = str(body["id"]).split("/")
    parts[4] = parts[4].upper()
    return {**body, "id": "/".join(parts)}
