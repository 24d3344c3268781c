"""The way to Azure Resource Manager and back: the SDK's clients, the pace of calls, and refusals.

JSON in, JSON out, `ArmError` for whatever goes wrong on the way. Which calls there are is
`clients`'; what a failure means is `errors`'.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bigfleet_azure import __version__
from bigfleet_azure.backends.azure import answers, errors
from bigfleet_azure.backends.azure.arm import ArmError, Failure
from bigfleet_azure.backends.azure.credentials import CredentialTrouble, open_credential
from bigfleet_azure.backends.azure.options import AzureOptions
from bigfleet_azure.backends.azure.throttle import Throttle
from bigfleet_azure.kit.clock import Clock
from bigfleet_azure.telemetry.metrics import Metrics

if TYPE_CHECKING:
    import aiohttp
    from azure.core.credentials_async import AsyncTokenCredential
    from azure.core.rest import AsyncHttpResponse
    from azure.mgmt.compute.aio import ComputeManagementClient
    from azure.mgmt.network.aio import NetworkManagementClient

logger = logging.getLogger(__name__)

Json = dict[str, Any]

CLOUDS = {
    "public": ("AZURE_PUBLIC_CLOUD", "https://management.azure.com"),
    "usgov": ("AZURE_US_GOVERNMENT", "https://management.usgovcloudapi.net"),
    "china": ("AZURE_CHINA_CLOUD", "https://management.chinacloudapi.cn"),
}
"""By our name: the SDK's name of the cloud, and its ARM endpoint (azure-core `AzureClouds`)."""

CONNECT_SECONDS = 10
READ_SECONDS = 60
"""Waits for one answer. A lost answer costs a try, never the operation."""

CONNECTIONS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer that says yes.

    Attributes:
        status: HTTP status.
        body: the JSON object, {} when there is none.
        url: where the accepted operation is reported on; "" when it is over already.
        retry_after: when to ask there first; None when the answer does not say.
    """

    status: int
    body: Json = field(default_factory=dict)
    url: str = ""
    retry_after: timedelta | None = None


class Connection:
    """Open it before the first one, close it after the last.

    Args:
        options: which subscription and group, which endpoint, which credential.
        credential_trouble: told what is wrong with our credential, and None when it works again.
    """

    def __init__(
        self,
        options: AzureOptions,
        *,
        clock: Clock,
        throttle: Throttle,
        metrics: Metrics,
        credential_trouble: Callable[[str | None], None],
    ) -> None:
        self._options = options
        self._clock = clock
        self._throttle = throttle
        self._metrics = metrics
        self._credential_trouble = credential_trouble
        self.endpoint = (options.arm_endpoint or CLOUDS[options.cloud][1]).rstrip("/")
        self._session: aiohttp.ClientSession | None = None
        self._credential: AsyncTokenCredential | None = None
        self._compute_client: ComputeManagementClient | None = None
        self._network_client: NetworkManagementClient | None = None

    async def open(self) -> None:
        """Load the SDK and make its clients; nothing is sent yet."""
        if self._compute_client is not None:
            return
        await asyncio.to_thread(_load_sdk)
        # It logs each request for a token, and each refusal, which is a condition of ours.
        logging.getLogger("azure").setLevel(logging.ERROR)
        from azure.mgmt.compute.aio import ComputeManagementClient

        self._session = self._session or _session(self._options)
        self._credential = open_credential(self._options, self._credential_trouble)
        self._compute_client = ComputeManagementClient(**self._client_arguments())

    async def close(self) -> None:
        """Close clients, credential and connections."""
        for opened in (self._network_client, self._compute_client, self._credential):
            if opened is not None:
                await opened.close()
        if self._session is not None:
            await self._session.close()
        self._compute_client = self._network_client = None
        self._credential = self._session = None

    # Any call

    async def read(self, call: str, path: str, version: str) -> Json | None:
        """Any resource by its id; None when it does not exist."""

        async def send() -> "AsyncHttpResponse":
            return await self._raw_request("GET", path, {"api-version": version}, None)

        return await self._found(call, path, send)

    @property
    def _compute(self) -> "ComputeManagementClient":
        assert self._compute_client is not None, "open() was not awaited"
        return self._compute_client

    def _client_arguments(self) -> dict[str, Any]:
        from azure.core import AzureClouds
        from azure.core.pipeline.transport import AioHttpTransport

        assert self._session is not None
        assert self._credential is not None
        cloud = AzureClouds[CLOUDS[self._options.cloud][0]]
        return {
            "credential": self._credential,
            "subscription_id": self._options.subscription_id,
            "base_url": self.endpoint,
            "cloud_setting": cloud,
            "policies": _policies(self._credential, cloud),
            "transport": AioHttpTransport(
                session=self._session,
                session_owner=False,
                connection_timeout=CONNECT_SECONDS,
                read_timeout=READ_SECONDS,
            ),
        }

    async def _send(
        self,
        call: str,
        method: str,
        path: str,
        version: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
    ) -> Reply:
        parameters = {"api-version": version, **(query or {})}

        async def send() -> "AsyncHttpResponse":
            return await self._raw_request(method, path, parameters, body)

        return await self._call(call, path, send)

    async def _raw_request(
        self, method: str, path: str, parameters: Mapping[str, str], body: Json | None
    ) -> "AsyncHttpResponse":
        from azure.core.rest import HttpRequest

        url = path if path.startswith("https://") else self.endpoint + path
        request = HttpRequest(method, url, params=dict(parameters), json=body)
        # Read already; the SDK refuses to read an empty body a second time.
        return await self._compute.send_request(request)

    async def _pages(self, call: str, path: str, version: str, **query: str) -> AsyncIterator[Json]:
        """Items of all pages. A list that ends in an error gives none of them to trust."""
        reply = await self._send(call, "GET", path, version, query=query)
        read: set[str] = set()
        while True:
            items = reply.body.get("value")
            if not isinstance(items, list):
                raise self._failed(answers.no_answer(call, "UnreadableAnswer", "no list in it"))
            for item in items:
                if isinstance(item, dict):
                    yield item
            following = reply.body.get("nextLink")
            if not following:
                return
            if urlsplit(following).netloc.lower() != urlsplit(self.endpoint).netloc.lower():
                message = "the next page's address is not on the ARM endpoint"
                raise ArmError(answers.no_answer(call, "ForeignNextLink", message))
            if following in read:
                message = "the list leads back to a page that was read"
                raise ArmError(answers.no_answer(call, "EndlessList", message))
            read.add(following)

            async def send(url: str = following) -> "AsyncHttpResponse":
                return await self._raw_request("GET", url, {}, None)

            reply = await self._call(call, path, send)

    async def _found(
        self, call: str, resource: str, send: Callable[[], "Awaitable[AsyncHttpResponse]"]
    ) -> Json | None:
        try:
            body = (await self._call(call, resource, send)).body
        except ArmError as error:
            if answers.absent(error.failure):
                return None
            raise
        if not body.get("id"):  # an answer that lost its body must not pass for a strange resource
            raise self._failed(answers.no_answer(call, "UnreadableAnswer", "no resource in it"))
        return body

    async def _deleted(
        self, call: str, resource: str, send: Callable[[], "Awaitable[AsyncHttpResponse]"]
    ) -> Reply | None:
        try:
            reply = await self._call(call, resource, send)
        except ArmError as error:
            if answers.absent(error.failure):
                return None
            raise
        return reply if reply.status != 204 else None

    async def _call(
        self, call: str, resource: str, send: Callable[[], "Awaitable[AsyncHttpResponse]"]
    ) -> Reply:
        reply, _ = await self._answer(call, resource, send)
        return reply

    async def _answer(
        self, call: str, resource: str, send: Callable[[], "Awaitable[AsyncHttpResponse]"]
    ) -> tuple[Reply, Mapping[str, str]]:
        """Wait for the call's turn, send it, and learn from what came back."""
        async with self._throttle.turn(call, resource):
            try:
                response = await send()
            except CredentialTrouble as trouble:
                raise self._failed(answers.no_answer(call, "Credential", str(trouble))) from trouble
            except Exception as error:  # the SDK raises many classes; one may be a bug of theirs
                raise self._failed(self._understood(call, resource, error)) from error
            status, headers = response.status_code, response.headers
            self._throttle.learn(call, status, headers, resource)
        now = self._clock.now()
        if status >= 400:
            raise self._failed(answers.refused(call, status, headers, response.content, now))
        body = answers.json_object(response.content)
        if body is None:
            message = f"status {status} without JSON"
            raise self._failed(answers.no_answer(call, "UnreadableAnswer", message))
        self._metrics.arm_calls.labels(call, "success").inc()
        reply = Reply(
            status=status,
            body=body,
            url=headers.get("Azure-AsyncOperation") or headers.get("Location") or "",
            retry_after=answers.retry_after(headers, now),
        )
        return reply, headers

    def _understood(self, call: str, resource: str, error: Exception) -> Failure:
        """What an exception of the SDK says: a refusal, or that no answer came."""
        response = getattr(error, "response", None)
        if response is None or not getattr(response, "status_code", 0):
            return answers.no_answer(call, type(error).__name__, str(error))
        self._throttle.learn(call, response.status_code, response.headers, resource)
        return answers.refused(
            call, response.status_code, response.headers, _content(response), self._clock.now()
        )

    @contextmanager
    def measured(self, op: str) -> Iterator[None]:
        """Count and time a step that is no method of the Backend protocol (contract section 16)."""
        outcome = "error"
        try:
            with self._metrics.api_duration.labels(op).time():
                yield
            outcome = "success"
        finally:
            self._metrics.api_calls.labels(op, outcome).inc()

    def count(self, failure: Failure) -> None:
        """Show a refusal or a failed operation in the metrics."""
        code = errors.metric_code(errors.classify(failure))
        self._metrics.arm_failures.labels(failure.call, code).inc()

    def _failed(self, failure: Failure) -> ArmError:
        verdict = errors.classify(failure)
        self._metrics.arm_calls.labels(failure.call, "success" if verdict.gone else "error").inc()
        if not verdict.gone:
            self.count(failure)
        logger.debug(
            "ARM refused a call",
            extra={
                "call": failure.call,
                "status": failure.status,
                "code": failure.code,
                "request_id": failure.request_id,
                "correlation_id": failure.correlation_id,
            },
        )
        return ArmError(failure)


def _content(response: Any) -> bytes:
    """The body of a refusal, which the SDK may have consumed already (field case B19)."""
    try:
        content = response.content
    except Exception:  # the fallback keeps status and request id
        return b""
    return content if isinstance(content, bytes) else b""


def _policies(credential: "AsyncTokenCredential", cloud: Any) -> list[Any]:
    """What a call goes through: the SDK's own policies, without those that act by themselves.

    No retries, whose sleeps nobody would see: the executor waits and tries again. No registration
    of resource providers, which is the operator's to decide. No log line for each call.
    """
    from azure.core.pipeline import policies
    from azure.mgmt.core.policies import AsyncARMChallengeAuthenticationPolicy
    from azure.mgmt.core.tools import get_arm_endpoints

    return [
        policies.RequestIdPolicy(),
        policies.HeadersPolicy(),
        policies.UserAgentPolicy(f"bigfleet-azure/{__version__}"),
        policies.ProxyPolicy(),
        policies.ContentDecodePolicy(),
        AsyncARMChallengeAuthenticationPolicy(
            credential, *get_arm_endpoints(cloud)["credential_scopes"]
        ),
    ]


def _load_sdk() -> None:
    """Import what takes longest, off the event loop."""
    import azure.identity.aio
    import azure.mgmt.compute.aio  # noqa: F401


def _session(options: AzureOptions) -> "aiohttp.ClientSession":
    """One session for all clients, with the SDK's own settings (azure-facts section 1.3)."""
    import aiohttp

    context = ssl.create_default_context(cafile=str(options.arm_ca) if options.arm_ca else None)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context, limit=CONNECTIONS),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=True,
        auto_decompress=False,
    )
