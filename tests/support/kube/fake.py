"""A fake API server: Nodes, pods and evictions as far as the backend asks, and troubles to order.

The real one proves the same paths in `tests/kubernetes`; this one is quick and can misbehave.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

Json = dict[str, Any]

TOKEN = "let-me-in"


@dataclass
class Trouble:
    """An answer to order, for calls that begin with `call`, such as `PATCH /api/v1/nodes`.

    Attributes:
        times: how often still; -1 for always.
    """

    call: str
    status: int
    body: Any
    times: int = -1


@dataclass
class FakeCluster:
    """The cluster's objects, and the troubles that its server makes.

    Attributes:
        blocked: names of pods whose eviction a budget forbids.
        lingering: names of pods that stay, terminating, after they were told to leave.
        calls: every call, as method and path, in order.
        watches: how many watches were opened.
        evictions: the bodies of evictions that were allowed.
        deletions: the bodies of deletions, by name.
    """

    token: str = TOKEN
    nodes: dict[str, Json] = field(default_factory=dict)
    pods: dict[str, Json] = field(default_factory=dict)
    blocked: set[str] = field(default_factory=set)
    lingering: set[str] = field(default_factory=set)
    troubles: list[Trouble] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    watches: int = 0
    evictions: list[Json] = field(default_factory=list)
    deletions: dict[str, Json] = field(default_factory=dict)
    url: str = ""
    version: int = 10
    _history: list[Json] = field(default_factory=list)
    _oldest: int = 10
    _streams: set[asyncio.Queue[Json | None]] = field(default_factory=set)
    seen: Callable[[str], None] = lambda call: None

    # What a test does

    def put_node(self, document: Json, *, created: float | None = None) -> Json:
        """Make a Node, or change it while it stays the same one."""
        name = document["metadata"]["name"]
        old = self.nodes.get(name)
        kept = old["metadata"] if old else {}
        moment = datetime.fromtimestamp(created or 0, UTC).isoformat()
        document["metadata"]["uid"] = kept.get("uid") or str(uuid.uuid4())
        document["metadata"]["creationTimestamp"] = kept.get("creationTimestamp") or moment
        self.nodes[name] = document
        self._tell("MODIFIED" if old else "ADDED", document)
        return document

    def drop_node(self, name: str) -> None:
        self._tell("DELETED", self.nodes.pop(name))

    def put_pod(self, document: Json) -> Json:
        document["metadata"]["uid"] = str(uuid.uuid4())
        self.pods[document["metadata"]["name"]] = document
        return document

    def break_watches(self) -> None:
        """Cut every watch off in the middle."""
        for stream in self._streams:
            stream.put_nowait(None)

    def forget(self) -> None:
        """Compact: no watch can go on from a version of before."""
        self._history.clear()
        self._oldest = self.version + 1
        self.version += 1

    def bookmark(self) -> None:
        """Tell every watch that wants to know it the version that it may go on from."""
        metadata = {"resourceVersion": str(self.version)}
        event = {"type": "BOOKMARK", "object": {"kind": "Node", "metadata": metadata}}
        for stream in self._streams:
            stream.put_nowait(event)

    def refuse(self, call: str, status: int, body: Any = "", times: int = -1) -> Trouble:
        if isinstance(body, str):
            body = {"kind": "Status", "message": body, "code": status}
        self.troubles.append(Trouble(call, status, body, times))
        return self.troubles[-1]

    def count(self, call: str) -> int:
        return sum(each.startswith(call) for each in self.calls)

    # What the server does

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["FakeCluster"]:
        app = web.Application(middlewares=[self._guard])
        pod = "/api/v1/namespaces/{namespace}/pods/{name}"
        app.add_routes(
            [
                web.get("/api/v1/nodes", self._list_nodes),
                web.get("/api/v1/nodes/{name}", self._get_node),
                web.patch("/api/v1/nodes/{name}", self._patch_node),
                web.delete("/api/v1/nodes/{name}", self._delete_node),
                web.get("/api/v1/pods", self._list_pods),
                web.post(f"{pod}/eviction", self._evict),
                web.delete(pod, self._delete_pod),
            ]
        )
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        try:
            yield self
        finally:
            self.break_watches()
            await runner.cleanup()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        call = f"{request.method} {request.path}"
        self.calls.append(call)
        self.seen(call)
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return _status(401, "Unauthorized")
        for trouble in self.troubles:
            if call.startswith(trouble.call) and trouble.times:
                trouble.times -= 1
                return web.json_response(trouble.body, status=trouble.status)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _list_nodes(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await self._watch(request)
        limit = int(request.query.get("limit", 0)) or len(self.nodes)
        begin = int(request.query.get("continue", 0))
        names = sorted(self.nodes)
        metadata: Json = {"resourceVersion": str(self.version)}
        if names[begin + limit :]:
            metadata["continue"] = str(begin + limit)
        items = [self.nodes[name] for name in names[begin : begin + limit]]
        return web.json_response({"metadata": metadata, "items": items})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watches += 1
        since = int(request.query["resourceVersion"])
        if since < self._oldest:
            error = {"kind": "Status", "metadata": {}, "code": 410, "message": "too old"}
            return web.json_response({"type": "ERROR", "object": error})
        response = web.StreamResponse()
        await response.prepare(request)
        stream: asyncio.Queue[Json | None] = asyncio.Queue()
        for event in self._history:
            if int(event["object"]["metadata"]["resourceVersion"]) > since:
                stream.put_nowait(event)
        self._streams.add(stream)
        try:
            while event := await stream.get():  # type: ignore[assignment]
                if (
                    event["type"] != "BOOKMARK"
                    or request.query.get("allowWatchBookmarks") == "True"
                ):
                    await response.write(json.dumps(event).encode() + b"\n")
            await response.write(b'{"type": "MODIFIED", "obj')
            assert request.transport is not None
            request.transport.abort()
        finally:
            self._streams.discard(stream)
        return response

    async def _get_node(self, request: web.Request) -> web.Response:
        node = self.nodes.get(request.match_info["name"])
        return _status(404, "not found") if node is None else web.json_response(node)

    async def _patch_node(self, request: web.Request) -> web.Response:
        node = self.nodes.get(request.match_info["name"])
        if node is None:
            return _status(404, "not found")
        body = await request.json()
        if body["metadata"].pop("uid") != node["metadata"]["uid"]:
            return _status(409, "the UID in the precondition does not match")
        _merge(node, body)
        self._tell("MODIFIED", node)
        return web.json_response(node)

    async def _delete_node(self, request: web.Request) -> web.Response:
        node = self.nodes.get(request.match_info["name"])
        if node is None:
            return _status(404, "not found")
        if (await request.json())["preconditions"]["uid"] != node["metadata"]["uid"]:
            return _status(409, "the UID in the precondition does not match")
        self.drop_node(node["metadata"]["name"])
        return _status(200, "")

    async def _list_pods(self, request: web.Request) -> web.Response:
        node = request.query["fieldSelector"].removeprefix("spec.nodeName=")
        items = [pod for pod in self.pods.values() if pod["spec"]["nodeName"] == node]
        return web.json_response({"metadata": {}, "items": items})

    async def _evict(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self.pods:
            return _status(404, "not found")
        if name in self.blocked:
            return _status(429, "Cannot evict pod as it would violate the pod's disruption budget.")
        body = await request.json()
        self.evictions.append(body)
        self._leave(name)
        return _status(201, "")

    async def _delete_pod(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        body = await request.json()
        self.deletions[name] = body
        if body.get("gracePeriodSeconds") == 0:
            self.lingering.discard(name)
        self._leave(name)
        return _status(200, "")

    def _leave(self, name: str) -> None:
        if name in self.lingering:
            self.pods[name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        else:
            self.pods.pop(name, None)

    def _tell(self, kind: str, node: Json) -> None:
        self.version += 1
        node["metadata"]["resourceVersion"] = str(self.version)
        event = {"type": kind, "object": json.loads(json.dumps(node))}
        self._history.append(event)
        for stream in self._streams:
            stream.put_nowait(event)


def _status(code: int, message: str) -> web.Response:
    body = {"kind": "Status", "metadata": {}, "code": code, "message": message}
    return web.json_response(body, status=code)


def _merge(target: Json, patch: Json) -> None:
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = value
