"""Who may do what: denied actions, policies, locks, and the state of group and subscription."""

import fnmatch
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.support.arm.resources import World
from tests.support.arm.wire import Call, Json, Refusal, refusal


@dataclass
class Policy:
    """Refuses the bodies that `applies` to."""

    name: str
    applies: Callable[[Call], bool]


@dataclass
class Lock:
    """`CanNotDelete` or `ReadOnly` on a scope and all below it."""

    scope: str
    level: str = "CanNotDelete"


@dataclass
class Access:
    """What is allowed; everything, until a test says otherwise."""

    world: World
    denied: list[str] = field(default_factory=list)
    """Patterns of actions."""
    allowed: set[str] | None = None
    """When set, only these actions may be done (compared without case)."""
    used: set[str] = field(default_factory=set)
    """Every action that was asked for, directly or along with another."""
    policies: list[Policy] = field(default_factory=list)
    locks: list[Lock] = field(default_factory=list)
    deleting_groups: set[str] = field(default_factory=set)
    read_only_subscription: bool = False
    unregistered: set[str] = field(default_factory=set)
    """Resource providers that are not registered."""

    def unlisted(self, actions: Iterable[str]) -> set[str]:
        """The actions that were asked for and are not among these, compared without case."""
        listed = {each.lower() for each in actions}
        return {each for each in self.used if each.lower() not in listed}

    def check(self, call: Call, action: str) -> None:
        """All that ARM checks before a provider sees the call."""
        self.used.add(action)
        if not self._may(action):
            raise self._forbidden(call, action)
        if action.endswith("/read"):
            return
        self._check_state(call)
        self._check_locks(call)
        if call.method in {"PUT", "PATCH"}:
            self._check_policies(call)

    def check_linked(self, call: Call, primary: str, linked: Iterable[tuple[str, str]]) -> None:
        """Actions on other resources that go along with a write: pairs of action and scope."""
        refused = []
        for action, scope in linked:
            self.used.add(action)
            if not self._may(action):
                refused.append((action, scope))
        if not refused:
            return
        actions = ";".join(action for action, _ in refused)
        scopes = ";".join(scope for _, scope in refused)
        raise refusal(
            403,
            "LinkedAuthorizationFailed",
            f"The client '{call.principal}' with object id '{call.principal}' has permission to "
            f"perform action '{primary}' on scope '{call.path}'; however, it does not have "
            f"permission to perform action(s) '{actions}' on the linked scope(s) '{scopes}' "
            "(respectively) or the linked scope(s) are invalid.",
            gateway=True,
        )

    def _may(self, action: str) -> bool:
        lower = action.lower()
        if any(fnmatch.fnmatchcase(lower, each.lower()) for each in self.denied):
            return False
        return self.allowed is None or any(lower == each.lower() for each in self.allowed)

    def _forbidden(self, call: Call, action: str) -> Refusal:
        return refusal(
            403,
            "AuthorizationFailed",
            f"The client '{call.principal}' with object id '{call.principal}' does not have "
            f"authorization to perform action '{action}' over scope '{call.path}' or the scope is "
            "invalid. If access was recently granted, please refresh your credentials.",
            gateway=True,
        )

    def _check_state(self, call: Call) -> None:
        if self.read_only_subscription:
            raise refusal(
                409,
                "ReadOnlyDisabledSubscription",
                f"The subscription '{call.subscription}' is disabled and therefore marked as read "
                "only. You cannot perform any write actions on this subscription until it is "
                "re-enabled.",
                gateway=True,
            )
        if call.group and call.method != "DELETE" and call.group.lower() in self.deleting_groups:
            raise refusal(
                409,
                "ResourceGroupBeingDeleted",
                f"The resource group '{call.group}' is in deprovisioning state and cannot perform "
                "this operation.",
                gateway=True,
            )
        provider = _provider(call.path)
        unregistered = {each.lower() for each in self.unregistered}
        if provider.lower() in unregistered and call.route != "provider.register":
            code = "MissingSubscriptionRegistration"
            message = (
                f"The subscription is not registered to use namespace '{provider}'. See "
                "https://aka.ms/rps-not-found for how to register subscriptions."
            )
            raise refusal(
                409,
                code,
                message,
                details=[{"code": code, "target": provider, "message": message}],
                gateway=True,
            )

    def _check_locks(self, call: Call) -> None:
        verb = "delete" if call.method == "DELETE" else "write"
        for lock in self.locks:
            holds = lock.level == "ReadOnly" or verb == "delete"
            if holds and call.path.lower().startswith(lock.scope.lower()):
                raise refusal(
                    409,
                    "ScopeLocked",
                    f"The scope '{call.path}' cannot perform {verb} operation because following "
                    f"scope(s) are locked: '{lock.scope}'. Please remove the lock and try again.",
                    gateway=True,
                )

    def _check_policies(self, call: Call) -> None:
        for policy in self.policies:
            if policy.applies(call):
                raise _disallowed(call, policy)


def _disallowed(call: Call, policy: Policy) -> Refusal:
    scope = f"/subscriptions/{call.subscription}/providers/Microsoft.Authorization"
    info: Json = {
        "policyDefinitionDisplayName": policy.name,
        "policyDefinitionId": f"{scope}/policyDefinitions/{policy.name}",
        "policyAssignmentId": f"{scope}/policyAssignments/{policy.name}",
        "policyDefinitionEffect": "deny",
    }
    found = refusal(
        403,
        "RequestDisallowedByPolicy",
        f"Resource '{call.name}' was disallowed by policy. Policy identifiers: "
        f'\'[{{"policyAssignment":{{"name":"{policy.name}"}}}}]\'.',
        target=call.name,
        gateway=True,
    )
    body: Any = found.answer.body
    body["error"]["additionalInfo"] = [{"type": "PolicyViolation", "info": info}]
    return found


def _provider(path: str) -> str:
    # Tags and other extension resources name their own provider last.
    lower = path.lower()
    start = lower.rfind("/providers/")
    return path[start + len("/providers/") :].split("/", maxsplit=1)[0] if start >= 0 else ""
