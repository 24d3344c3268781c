"""The HTTP side: one handler that understands a call, guards it, dispatches it and records it.

Order of a call: scripted faults, token, api-version, subscription, ARM's buckets, rights, policies
and locks, the provider's buckets, and last the provider.
"""

import json
import re
import traceback
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web

from tests.support.arm.cloud import Cloud
from tests.support.arm.faults import AFTER, BEFORE, Fault
from tests.support.arm.identity import Identity
from tests.support.arm.ledger import LedgerCall
from tests.support.arm.linked import linked_actions
from tests.support.arm.resources import guid
from tests.support.arm.routes import OUTSIDE_ARM, Route, find, known_path
from tests.support.arm.wire import Answer, Call, Exchange, Refusal, fault_body, refusal

Handler = Callable[[Call], Answer]
_KIND = {"GET": "reads", "DELETE": "deletes"}
_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}(-preview)?")
_COMMON = {
    "Cache-Control": "no-cache",
    "Pragma": "no-cache",
    "Expires": "-1",
    "Strict-Transport-Security": "max-age=31536000; includeSubDomains",
    "X-Content-Type-Options": "nosniff",
    "X-Cache": "CONFIG_NOCACHE",
}
_UNKNOWN = Route("unknown", "*", "/{path}")


class Server:
    """See the module."""

    def __init__(
        self, cloud: Cloud, identity: Identity, handlers: dict[str, Handler], *, record: bool
    ) -> None:
        self.exchanges: list[Exchange] = []
        self.crashes: list[str] = []
        """Faults of the double itself, which end a test that uses it."""
        self._cloud = cloud
        self._identity = identity
        self._handlers = handlers
        self._record = record

    def application(self) -> web.Application:
        application = web.Application(client_max_size=8 * 1024 * 1024)
        application.router.add_route("*", "/{tail:.*}", self._handle)
        return application

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        route, call = await self._understand(request)
        faults = self._cloud.faults.strike(call)
        with self._cloud.ledger.under_way(route.name):
            for fault in faults:
                await self._cloud.clock.sleep(fault.delay)
        charged: list[str] = []
        dropped = any(fault.drop == BEFORE for fault in faults)
        answer = Answer(0)
        if not dropped:
            answer = self._answer(route, call, faults, charged)
            dropped = any(fault.drop == AFTER for fault in faults)
        if route.name not in OUTSIDE_ARM:
            answer.headers = self._headers(route) | answer.headers
        if answer.body is not None and not isinstance(answer.body, str):
            answer.headers["Content-Type"] = "application/json; charset=utf-8"
        self._write_down(route, call, answer, charged, dropped)
        if dropped:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return _response(answer)

    def _answer(self, route: Route, call: Call, faults: list[Fault], charged: list[str]) -> Answer:
        headers: dict[str, str] = {}
        for fault in faults:
            call.operation_error = fault.operation or call.operation_error
            if fault.seconds is not None:
                call.operation_seconds = fault.seconds
            call.leave |= frozenset(fault.leave)
        try:
            self._cloud.timeline.settle()
            if route is _UNKNOWN:
                raise self._unknown(call)
            if route.name not in OUTSIDE_ARM:
                self._guard(route, call, headers, charged)
            elif route.bucket is not None:
                charged.append(route.bucket)
            scripted = next((fault.answer for fault in faults if fault.answer), None)
            if scripted is not None:
                answer = Answer(scripted.status, scripted.body, dict(scripted.headers))
            else:
                answer = self._handlers[route.name](call)
        except Refusal as refused:
            answer = refused.answer
        except Exception:
            self.crashes.append(traceback.format_exc())
            answer = Answer(500, fault_body("DoubleCrashed", traceback.format_exc()))
        else:
            _disguise(answer, faults)
        if "x-ms-failure-cause" in answer.headers:
            headers.pop("x-ms-ratelimit-remaining-resource", None)
        return Answer(answer.status, answer.body, headers | answer.headers)

    def _guard(self, route: Route, call: Call, headers: dict[str, str], charged: list[str]) -> None:
        """All that stands before the provider; what is charged is added to both records."""
        call.principal = self._identity.principal(call.headers)
        _check_version(call)
        if call.subscription.lower() not in {"", self._cloud.subscription}:
            raise refusal(
                404,
                "SubscriptionNotFound",
                f"The subscription '{call.subscription}' could not be found.",
                gateway=True,
            )
        subscription = self._cloud.subscription
        kind = route.bucket or _KIND.get(call.method, "writes")
        charged.append(kind)
        if route.bucket is None:
            headers |= self._cloud.buckets.charge_arm(kind, subscription, call.principal)
        if route.action is not None:
            self._cloud.access.check(call, route.action)
            self._cloud.access.check_linked(call, route.action, linked_actions(call))
        if route.policy is not None:
            charged.append(route.policy)
            resource = call.parameters.get("operationId") or f"{call.group}/{call.vm_name}"
            headers |= self._cloud.buckets.charge_compute(route.policy, subscription, resource)
        if route.network:
            write = call.method != "GET"
            charged.append("NetworkWrites" if write else "NetworkReads")
            self._cloud.buckets.charge_network(write, subscription)

    async def _understand(self, request: web.Request) -> tuple[Route, Call]:
        found = find(request.method, request.path)
        route, parameters = found if found is not None else (_UNKNOWN, {})
        body: Any = None
        if request.can_read_body:
            text = await request.text()
            body = _parse(text, request.content_type) if text else None
        call = Call(
            method=request.method,
            route=route.name,
            path=request.path,
            parameters=parameters,
            query=dict(request.query),
            headers=request.headers,
            body=body,
        )
        return route, call

    def _unknown(self, call: Call) -> Refusal:
        self._identity.principal(call.headers)
        if known_path(call.path):
            message = f"The http method '{call.method}' is not supported for this resource."
            return refusal(405, "MethodNotAllowed", message, gateway=True)
        return refusal(
            404,
            "InvalidResourceType",
            f"The double does not speak {call.method} {call.path}.",
            gateway=True,
        )

    def _headers(self, route: Route) -> dict[str, str]:
        request = guid()
        headers = _COMMON | {
            "x-ms-request-id": request,
            "x-ms-correlation-request-id": request,
            "x-ms-routing-request-id": f"EASTUS:20261201T000000Z:{request}",
        }
        if route.network:
            headers["x-ms-arm-service-request-id"] = guid()
        return headers

    def _write_down(
        self, route: Route, call: Call, answer: Answer, charged: list[str], dropped: bool
    ) -> None:
        now = self._cloud.clock.now()
        self._cloud.ledger.calls.append(
            LedgerCall(now, call.principal, route.name, call.method, answer.status, tuple(charged))
        )
        if not self._record:
            return
        hidden = {"Authorization", "Host"}
        self.exchanges.append(
            Exchange(
                at=now,
                principal=call.principal,
                method=call.method,
                route=route.name,
                template=route.template,
                path=call.path,
                query=call.query,
                request_headers={k: v for k, v in call.headers.items() if k not in hidden},
                request=call.body,
                status=0 if dropped else answer.status,
                headers=answer.headers,
                response=answer.body,
                parameters=call.parameters,
            )
        )


def _disguise(answer: Answer, faults: list[Fault]) -> None:
    """What faults do to a good answer."""
    for fault in faults if answer.status < 400 else ():
        if fault.rewrite is not None:
            answer.body = fault.rewrite(answer.body)
        answer.headers |= fault.headers


def _response(answer: Answer) -> web.Response:
    if answer.body is None:
        return web.Response(status=answer.status, headers=answer.headers)
    if isinstance(answer.body, str):
        return web.Response(status=answer.status, text=answer.body, headers=answer.headers)
    body = answer.text().encode()
    return web.Response(status=answer.status, body=body, headers=answer.headers)


def _parse(text: str, kind: str) -> Any:
    if kind == "application/x-www-form-urlencoded":
        return dict(parse_qsl(text))
    try:
        return json.loads(text)
    except ValueError:
        return text


def _check_version(call: Call) -> None:
    if not call.api_version:
        raise refusal(
            400,
            "MissingApiVersionParameter",
            "The api-version query parameter (?api-version=) is required for all requests.",
            gateway=True,
        )
    if not _VERSION.fullmatch(call.api_version):
        raise refusal(
            400,
            "InvalidApiVersionParameter",
            f"The api-version '{call.api_version}' is invalid.",
            gateway=True,
        )
