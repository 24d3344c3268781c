"""Tags: the tags API, and the limits that hold wherever tags are written.

The limits are documented; the codes of their refusals are not on record (see README.md).
"""

from collections.abc import Mapping

from tests.support.arm.cloud import Cloud
from tests.support.arm.conflicts import claim
from tests.support.arm.ledger import VM
from tests.support.arm.resources import Resource
from tests.support.arm.wire import Answer, Call, Json, Refusal, refusal

MAX_COUNT = 50
MAX_NAME = 512
MAX_VALUE = 256
MAX_ALL_ON_VM = 2048
"""Characters of all names and values together, on a VM."""
_FORBIDDEN = set("<>%&\\?/")
_RESERVED = ("microsoft", "azure", "windows")
_SUFFIX = "/providers/Microsoft.Resources/tags/default"


def check_tags(tags: object, kind: str) -> dict[str, str]:
    """The tags as they will be stored, or the refusal that they get."""
    if tags is None:
        return {}
    if not isinstance(tags, dict) or not all(
        isinstance(key, str) and isinstance(value, str) for key, value in tags.items()
    ):
        raise _refused("InvalidRequestContent", "Tags must be an object of strings.")
    if len(tags) > MAX_COUNT:
        raise _refused(
            "InvalidTagCount", f"The resource has {len(tags)} tags, the maximum is {MAX_COUNT}."
        )
    lowered = {key.lower() for key in tags}
    if len(lowered) < len(tags):
        raise _refused("InvalidTagNames", "Tag names differ only in case.")
    for key, value in tags.items():
        _check_name(key)
        if len(value) > MAX_VALUE:
            raise _refused(
                "TagValueTooLong",
                f"Tag value too large. Maximum allowed length for tag value - '{MAX_VALUE}' "
                "characters.",
            )
    together = sum(len(key) + len(value) for key, value in tags.items())
    if kind == VM and together > MAX_ALL_ON_VM:
        raise _refused(
            "InvalidTagsLength",
            f"All tags together have {together} characters, the maximum is {MAX_ALL_ON_VM}.",
        )
    return dict(tags)


class Tags:
    """GET, PUT, PATCH and DELETE of `<scope>/providers/Microsoft.Resources/tags/default`."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def get(self, call: Call) -> Answer:
        return Answer(200, self._body(call, self._resource(call)))

    def put(self, call: Call) -> Answer:
        return self._write(call, "Replace", self._sent(call))

    def delete(self, call: Call) -> Answer:
        return self._write(call, "Replace", {})

    def patch(self, call: Call) -> Answer:
        operation = call.json().get("operation")
        if operation not in {"Merge", "Replace", "Delete"}:
            raise _refused("InvalidRequestContent", f"The operation '{operation}' is unknown.")
        return self._write(call, operation, self._sent(call))

    def _sent(self, call: Call) -> dict[str, str]:
        properties = call.json().get("properties") or {}
        found: dict[str, str] = properties.get("tags") or {}
        return found

    def _write(self, call: Call, operation: str, sent: Mapping[str, str]) -> Answer:
        resource = self._resource(call)
        after = check_tags(_changed(resource.tags, operation, sent), resource.type)
        claim(self._cloud, resource, "tags")

        def finish() -> None:
            resource.retag(after)
            resource.extra["tagged"] = True
            resource.etag += 1

        if self._cloud.quirks.tags == 200 and call.operation_error is None:
            finish()
            return Answer(200, self._body(call, resource))
        kind = "tags.patch"
        running = self._cloud.operations.start(
            "Microsoft.Compute",
            kind,
            resource,
            seconds=call.seconds(self._cloud.operations.durations.of(kind, resource.name)),
            finish=finish,
            fail=lambda error: None,
            error=call.operation_error,
        )
        headers = self._cloud.operations.headers(running, call, location=True)
        del headers["Azure-AsyncOperation"]
        return Answer(202, None, headers)

    def _body(self, call: Call, resource: Resource) -> Json:
        return {
            "id": resource.id + _SUFFIX,
            "name": "default",
            "type": "Microsoft.Resources/tags",
            "properties": {"tags": dict(resource.tags)},
        }

    def _resource(self, call: Call) -> Resource:
        scope = call.path[: call.path.lower().rindex(_SUFFIX.lower())]
        resource = self._cloud.world.get(scope)
        if resource is None:
            raise refusal(
                404,
                "ResourceNotFound",
                f"The resource '{scope}' was not found.",
                gateway=True,
            )
        return resource


def _changed(now: Mapping[str, str], operation: str, sent: Mapping[str, str]) -> dict[str, str]:
    """Names are compared without case; the spelling that was there first stays."""
    if operation == "Replace":
        return dict(sent)
    spelling = {key.lower(): key for key in now}
    after = dict(now)
    for key, value in sent.items():
        known = spelling.get(key.lower())
        if operation == "Merge":
            after[known or key] = value
        elif known is not None:
            del after[known]
    return after


def _check_name(name: str) -> None:
    if not name or len(name) > MAX_NAME:
        raise _refused(
            "TagNameTooLong", f"Tag names have 1 to {MAX_NAME} characters, not {len(name)}."
        )
    if _FORBIDDEN & set(name):
        raise _refused(
            "InvalidTagNameCharacters",
            f"The tag names '{name}' have reserved characters '<,>,%,&,\\,?,/' or control "
            "characters.",
        )
    if name.lower().startswith(_RESERVED):
        raise _refused(
            "ReservedTagName",
            f"The tag name '{name}' begins with a prefix that is reserved for internal use.",
        )


def _refused(code: str, message: str) -> Refusal:
    return refusal(400, code, message, gateway=True)
