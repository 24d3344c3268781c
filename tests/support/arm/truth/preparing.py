"""Works out what a plan needs before its first step, and in which order.

Groups and networks are put up by the stage; addresses and network interfaces that nobody in the
recording makes, and what the plan says must exist, are made over the wire. Nothing is sent here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.arm.truth.plans import Plan
from tests.support.arm.truth.recordings import of_file
from tests.support.arm.truth.seeding import as_request, ids_in, ip_body, kind_of_id, nic_body

_OVER_THE_WIRE = ("publicIPAddresses", "networkInterfaces")


@dataclass(frozen=True)
class Prepared:
    """What comes first."""

    seeds: tuple[str, ...]
    """Ids that the stage puts up: groups, then subnets, security groups and the like."""
    parts: tuple[tuple[str, dict[str, Any]], ...]
    """Addresses and network interfaces that the bodies mention: path and body."""
    things: tuple[tuple[str, dict[str, Any], str | None], ...]
    """What the plan says must exist: path, body, and the operation it stands for."""


def prepare(plan: Plan) -> Prepared:
    """Find everything that the plan's requests take for granted."""
    things: list[tuple[str, dict[str, Any], str | None]] = []
    things += ((made.path, dict(made.body), made.operation) for made in plan.made)
    for index in plan.exists:
        answer = of_file(plan.file)[index].response
        shown = answer.get("value", [answer])
        things += ((thing["id"], as_request(thing), None) for thing in shown)
    steps = plan.steps()
    bodies = [body for _path, body, _operation in things] + [step.request for step in steps]
    paths = [path for path, _body, _operation in things] + [step.path for step in steps]
    made = {path.lower() for path, _body, _operation in things}
    made |= {step.path.lower() for step in steps if step.method == "PUT"}

    named = dict.fromkeys(arm_id for body in bodies for arm_id in ids_in(body))
    mentioned = [arm_id for arm_id in named if not _is_absent(arm_id, plan)]
    seeds = [each for each in mentioned if kind_of_id(each) not in _OVER_THE_WIRE]
    missing = [arm_id for arm_id in mentioned if arm_id.lower() not in made]
    location = _location_of(plan, bodies)
    parts = [
        (arm_id, ip_body(location))
        for arm_id in missing
        if kind_of_id(arm_id) == "publicIPAddresses"
    ]
    for arm_id in missing:
        if kind_of_id(arm_id) == "networkInterfaces":
            subnet = f"{group_of(arm_id)}/providers/Microsoft.Network/virtualNetworks/replay"
            seeds.append(f"{subnet}/subnets/default")
            parts.append((arm_id, nic_body(location, seeds[-1])))
    groups = [group_of(path) for path in (*paths, *named)]
    present = [group for group in groups if group is not None and not _is_absent(group, plan)]
    return Prepared(tuple(dict.fromkeys((*present, *seeds))), tuple(parts), tuple(things))


def group_of(path: str) -> str | None:
    """The group that a path lies in, as an id."""
    match = re.match(r"/subscriptions/[^/]+/resourceGroups/[^/]+", path, re.IGNORECASE)
    return match.group(0) if match else None


def _is_absent(path: str, plan: Plan) -> bool:
    return any(part.lower() in path.lower() for part in plan.absent)


def _location_of(plan: Plan, bodies: Sequence[Any]) -> str:
    for body in bodies:
        if isinstance(body, dict) and "location" in body:
            return body["location"]
    for step in plan.steps():
        if match := re.search(r"/locations/([^/]+)/", step.path):
            return match.group(1)
    return "eastus"
