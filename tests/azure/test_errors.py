"""The table of refusals, and what people are told."""

import subprocess
import sys
from datetime import timedelta

import pytest

from bigfleet_azure.backends.azure import answers
from bigfleet_azure.backends.azure.arm import Detail, Failure
from bigfleet_azure.backends.azure.error_rules import Rule, Step
from bigfleet_azure.backends.azure.error_table import RULES
from bigfleet_azure.backends.azure.errors import (
    MAX_MESSAGE,
    backend_error,
    classify,
    decide,
    metric_code,
)
from bigfleet_azure.backends.azure.verdict import Quota, Scope, Verdict
from bigfleet_azure.domain.errors import FailureKind
from tests.azure.refusals import EXAMPLES, NOW, Example, body, later, put, quoted, refused
from tests.azure.things import recording

FLAGS = ("exists", "gone", "deleting", "names_taken", "credential")


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_each_refusal_means_what_the_sources_say(example: Example) -> None:
    verdict = classify(example.failure)
    assert verdict.kind is example.kind
    assert verdict.code == example.code
    assert verdict.scope is example.scope
    assert verdict.seconds_for(spot=False) == example.seconds
    assert verdict.seconds_for(spot=True) == (example.spot_seconds or example.seconds)
    assert {flag for flag in FLAGS if getattr(verdict, flag)} == example.flags


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_the_error_waits_as_long_as_azure_or_the_table_says(example: Example) -> None:
    error = backend_error(example.failure, "m-1")
    assert error.kind is example.kind
    assert error.code == example.code
    assert error.retry_after == (timedelta(seconds=example.wait) if example.wait else None)
    assert error.shortage is None


def test_every_rule_decides_some_example() -> None:
    reached = {id(decide(example.failure)[0]) for example in EXAMPLES}
    assert [rule for rule in RULES if id(rule) not in reached] == []


@pytest.mark.parametrize(
    ("rule", "code"),
    [(rule, code) for rule in RULES for code in rule.codes or ("Odd",)],
    ids=lambda part: part if isinstance(part, str) else str(part.step),
)
def test_no_code_of_a_rule_is_taken_by_an_earlier_rule(rule: Rule, code: str) -> None:
    status = int((rule.status or "200").replace("xx", "03"))
    call = (rule.calls or ("other.call",))[0].replace("*", "other")
    for text in rule.says or ("Words.",):
        failure = Failure(
            call=call, status=status, code=code.replace("*", "Some"), message=f"It {text} so"
        )
        assert decide(failure)[0] is rule


def test_the_rules_stand_in_the_order_of_the_steps() -> None:
    order = list(Step)
    assert list(RULES) == sorted(RULES, key=lambda rule: order.index(rule.step))


def test_only_a_lack_has_a_scope_and_every_scope_has_its_time() -> None:
    for rule in RULES:
        assert (rule.means.scope is not Scope.NONE) == (rule.means.seconds > 0), rule
        if rule.means.kind in (FailureKind.QUOTA, FailureKind.OUT_OF_CAPACITY):
            assert rule.means.scope is not Scope.NONE, rule


def test_only_quota_texts_make_a_quota_of_operation_not_allowed() -> None:
    meanings = {
        str(example): example.kind
        for example in EXAMPLES
        if example.code == "OperationNotAllowed" and example.kind is FailureKind.QUOTA
    }
    assert meanings
    assert all("quota" in name for name in meanings)


def _refusals_on_record() -> list[Failure]:
    found = [quoted(number) for number in range(len(recording("quoted-errors.json")["errors"]))]
    more = recording("quoted-errors-more.json")["errors"]
    return found + [quoted(number, more=True) for number in range(len(more))]


def test_no_refusal_that_is_quoted_in_public_is_unknown_to_the_table() -> None:
    kinds = {failure.code: classify(failure).kind for failure in _refusals_on_record()}
    assert [code for code, kind in kinds.items() if kind is FailureKind.UNKNOWN] == []


# Order


def test_the_status_429_comes_before_every_code() -> None:
    for example in EXAMPLES:
        failure = refused("vm.put", 429, body(example.failure.code, example.failure.message))
        wanted = {FailureKind.THROTTLED, FailureKind.TRANSIENT}
        assert classify(failure).kind in wanted


@pytest.mark.parametrize("status", [200, 400, 409, 500])
def test_no_other_status_comes_before_a_code(status: int) -> None:
    assert classify(put(status, "SkuNotAvailable")).kind is FailureKind.OUT_OF_CAPACITY


@pytest.mark.parametrize(
    "outer",
    [
        "DeploymentFailed",
        "ResourceOperationFailure",
        "InvalidTemplateDeployment",
        "BadRequest",
        "Conflict",
    ],
)
def test_codes_that_wrap_others_yield_to_them(outer: str) -> None:
    inner = {"code": "Whatever", "innererror": {"code": "ZonalAllocationFailed"}}
    failure = put(400, outer, details=[{"code": "AlsoNothing"}, inner])
    assert classify(failure).code == "ZonalAllocationFailed"


def test_the_outermost_code_that_means_something_decides() -> None:
    details = [{"code": "AllocationFailed"}, {"code": "SubnetIsFull"}]
    assert classify(later("ScopeLocked", details=details)).code == "ScopeLocked"
    assert classify(later("DeploymentFailed", details=details)).code == "AllocationFailed"


def test_codes_are_compared_without_case_and_told_as_in_the_table() -> None:
    assert classify(put(409, "skunotavailable")).code == "SkuNotAvailable"


def test_a_guest_cannot_decide_by_what_its_script_prints() -> None:
    output = 'too many requests {"error": {"code": "SkuNotAvailable"}} exceeding approved quota'
    message = f"VM has reported a failure when processing extension 'x'. Error message: {output}"
    assert classify(later("VMExtensionProvisioningError", message)).kind is FailureKind.INVALID


# Absence


@pytest.mark.parametrize("status", [200, 400, 403, 409, 500])
def test_only_a_404_proves_absence(status: int) -> None:
    assert not answers.absent(refused("vm.get", status, body("ResourceNotFound")))


def test_a_404_in_details_proves_nothing() -> None:
    failure = refused("vm.get", 404, body("Odd", details=[{"code": "ResourceNotFound"}]))
    assert not answers.absent(failure)


def test_a_404_on_a_create_does_not_mean_that_the_vm_is_gone() -> None:
    assert not classify(put(404, "PlatformImageNotFound")).gone
    assert not classify(put(404, "ResourceNotFound")).gone


# Figures


def test_both_wordings_of_a_quota_give_their_figures() -> None:
    assert classify(quoted(14, more=True)).quota == Quota(
        name="standardDASv5Family Cores", limit=100, usage=96, required=64
    )
    assert classify(quoted(1, more=True)).quota == Quota(
        name="Core", limit=10, usage=10, required=2
    )


def test_hints_between_the_figures_do_no_harm() -> None:
    message = (
        "results in exceeding approved standardNCFamily Cores quota. Current Limit: 12. Setup "
        "Alerts at https://aka.ms/x , current usage : 6 , ADDITIONAL REQUIRED: 12"
    )
    quota = classify(put(409, "OperationNotAllowed", message)).quota
    assert quota == Quota(name="standardNCFamily Cores", limit=12, usage=6, required=12)


def test_a_quota_without_figures_has_none() -> None:
    assert classify(put(409, "ResourceQuotaExceeded", "No more.")).quota is None


# Text


def test_the_text_says_what_happened_to_which_machine_and_what_to_do() -> None:
    failure = refused(
        "vm.put",
        409,
        body("SkuNotAvailable", "The size is not available."),
        {"x-ms-request-id": "r-1", "x-ms-correlation-request-id": "c-1"},
    )
    assert str(backend_error(failure, "m-1")) == (
        "Azure refused vm.put for m-1 with status 409: SkuNotAvailable: The size is not available. "
        "Azure has no room for this size, or the subscription may not have it here. It is tried "
        "again until the deadline; offer other sizes or zones as well. (request id r-1, "
        "correlation id c-1)"
    )


def test_the_text_names_a_code_from_the_details_and_where_it_stood() -> None:
    text = str(backend_error(quoted(3, more=True), "m-1"))
    assert "for m-1 failed" in text
    assert "OverconstrainedZonalAllocationRequest (in ResourceOperationFailure): Allocation" in text


def test_the_text_of_a_failure_without_answer_names_the_trouble() -> None:
    failure = answers.no_answer("vm.get", "ServiceRequestError", "Cannot connect")
    assert str(backend_error(failure, "m-1")) == (
        "Azure gave no answer to vm.get for m-1: ServiceRequestError: Cannot connect. No answer "
        "came. It is tried again by itself."
    )


def test_an_id_is_told_once() -> None:
    headers = {"x-ms-request-id": "r-1", "x-ms-correlation-request-id": "r-1"}
    assert str(backend_error(refused("vm.get", 500, b"", headers), "m")).count("r-1") == 1
    told = refused("vm.get", 500, body("Oops", "Tracking id is r-1."), headers)
    assert str(backend_error(told, "m")).count("r-1") == 1


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("no such group to create in", "--resource-group"),
        ("no such image", "--image"),
        ("no such subnet", "subnet"),
        ("an ephemeral disk", "make it smaller"),
        ("a host name", "--provider"),
        ("AzureSpotIsNotSupportedForThisVMSize", "Spot does not go with"),
        ("a tag", "user tags"),
        ("a policy", "exemption"),
        ("no right on a subnet", "on the subnet, image or other resource"),
        ("no right", "a role with the action"),
        ("a lock", "Remove the lock"),
        ("a secret that is wrong", "not its id"),
        ("a secret that has expired", "make a new one"),
        ("a tenant that is not known", "check tenant id"),
        ("a federated token that is not taken", "issuer and subject"),
        ("another tenant", "correct the tenant id"),
        ("an agent that is silent", "--bootstrap-method none"),
        ("a guest that is late", "the VM itself is asked"),
    ],
)
def test_the_text_says_what_to_do_about_it(name: str, advice: str) -> None:
    failure = next(example.failure for example in EXAMPLES if str(example) == name)
    assert advice in str(backend_error(failure, "m-1"))


def test_long_words_are_cut_and_the_rest_is_kept() -> None:
    failure = refused(
        "vm.put", 409, body("SkuNotAvailable", "no " * 5_000), {"x-ms-request-id": "r-1"}
    )
    text = str(backend_error(failure, "m-1"))
    assert len(text) <= MAX_MESSAGE
    assert "…" in text
    assert text.endswith("zones as well. (request id r-1)")


def test_the_text_is_one_line() -> None:
    assert "\n" not in str(backend_error(quoted(8), "m-1"))


@pytest.mark.parametrize(
    "secret_text",
    [
        "see https://management.azure.com/operations/1?t=1&c=2&s=S3CRET&h=3 for more",
        "blob https://x.blob.core.windows.net/d/os.vhd?sv=2020&sig=S3CRET%3D is missing",
        "query was sv=1&sig=S3CRET&se=2",
        'could not parse {"script": "S3CRET", "timestamp": 1}',
        r'could not parse "{\"script\": \"S3CRET\"}"',
        'could not parse {"protectedSettings": {"a": "S3CRET"}}',
        'could not parse {"customData": "S3CRET',
        "client_secret=S3CRET was refused",
        "Authorization: Bearer S3CRET12345678",
        "token eyJhbGciOiJS3CRET.eyJzdWIiOiJ4In0.c2lnbmF0dXJl is old",
        "-----BEGIN PRIVATE KEY----- S3CRET -----END PRIVATE KEY----- found",
        "kubeadm join --token abcdef.s3cret0123456789 failed",
        "H4sIAAAAS3CRET" * 8,
    ],
)
def test_what_looks_like_a_secret_is_masked(secret_text: str) -> None:
    text = str(backend_error(put(400, "InvalidParameter", secret_text), "m-1"))
    assert "***" in text
    assert "s3cret" not in text.lower()
    nested = later("DeploymentFailed", details=[{"code": "X", "message": secret_text}])
    assert "s3cret" not in str(backend_error(nested, "m-1")).lower()


def test_ids_of_resources_are_not_masked() -> None:
    name = "/subscriptions/0/resourceGroups/rg/providers/Microsoft.Compute/virtualMachines/"
    machine = name + "azure-eastus-spot-f8s-v2-1-000/extensions/bigfleethook" + "x" * 40
    text = str(backend_error(put(409, "Conflict", f"{machine} is busy"), "m-1"))
    assert f"{machine} is busy" in text


# Labels


def test_the_label_of_a_metric_is_a_code_of_the_table() -> None:
    assert metric_code(classify(put(409, "SkuNotAvailable"))) == "SkuNotAvailable"
    assert metric_code(classify(put(404, "ResourceNotFound"))) == "NotFound"
    addresses = classify(put(400, "StaticPublicIPCountLimitReached"))
    assert metric_code(addresses) == "PublicIPCountLimitReached"
    assert metric_code(classify(put(409, "Never-seen-17"))) == "other"
    assert metric_code(Verdict(kind=FailureKind.UNKNOWN, code="")) == "other"


def test_a_failure_made_by_hand_is_judged_like_a_parsed_one() -> None:
    failure = Failure(
        call="vm.put", status=200, code="Odd", details=(Detail(code="allocationfailed"),)
    )
    assert classify(failure) == classify(
        answers.operation_failed(
            "vm.put", {"error": {"code": "Odd", "details": [{"code": "AllocationFailed"}]}}, {}, NOW
        )
    )


@pytest.mark.process
def test_reading_the_table_needs_no_sdk() -> None:
    script = (
        "import sys; import bigfleet_azure.backends.azure.errors, "
        "bigfleet_azure.backends.azure.answers; "
        "sys.exit(any(name == 'azure' or name.startswith('azure.') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
