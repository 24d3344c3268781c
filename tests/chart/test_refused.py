"""Values that the chart refuses, and the words it finds for them."""

from pathlib import Path

import pytest

from tests.chart.things import Case

pytestmark = pytest.mark.deploy

PAGE = Case(values=("eastus.values",))


def refusal(home: Path, *values: str, case: Case = PAGE) -> str:
    """What Helm says instead of rendering."""
    with pytest.raises(AssertionError) as caught:
        case.render(home, *(f"--set={value}" for value in values))
    return str(caught.value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("unknown=1", "additional properties 'unknown' not allowed"),
        ("azure.subscriptionID=1", "additional properties 'subscriptionID' not allowed"),
        ("state.persistence.sise=2Gi", "additional properties 'sise' not allowed"),
        ("replicaCount=2", "at '/replicaCount': maximum: got 2, want 1"),
        ("priceRefresh=1x", "at '/priceRefresh': '1x' does not match pattern"),
        ("reconcileInterval=5", "at '/reconcileInterval': maximum: got 5, want 0"),
        ("timeouts.create=soon", "at '/timeouts/create'"),
        ("azureBackend=aws", "at '/azureBackend': value must be one of 'auto', 'azure', 'fake'"),
        ("azure.subnetId=nodes", "at '/azure/subnetId': 'nodes' does not match pattern"),
        ("azure.maxPods=2000", "at '/azure/maxPods': maximum: got 2,000, want 1,000"),
        ("azure.publicIp=perhaps", "at '/azure/publicIp': got string, want"),
        ("azure.tags.a=1\\,2", "at '/azure/tags/a': '1,2' does not match pattern"),
        ("image.digest=latest", "at '/image/digest'"),
        ("ports.grpc=70000", "at '/ports/grpc': maximum: got 70,000, want 65,535"),
        ("state.path=state.db", "at '/state/path'"),
        ("probes.type=tcp", "at '/probes/type'"),
        ("prices.discount=110", "at '/prices/discount'"),
        ("terminationGracePeriodSeconds=5", "at '/terminationGracePeriodSeconds'"),
        ("tls=null", "missing property 'tls'"),
    ],
)
def test_the_schema_refuses(home: Path, values: str, words: str) -> None:
    assert words in refusal(home, values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (["location="], "location is missing: name the Azure region"),
        (["location=null"], "location is missing: name the Azure region"),
        (["location=,azureBackend=azure"], "location is missing: name the Azure region"),
        (["azure.subscriptionId="], "azure.subscriptionId is missing: give the subscription"),
        (["azure.resourceGroup="], "azure.resourceGroup is missing: give the resource group"),
        (["azure.subnetId=null"], "azure.subnetId is missing: give the full id"),
        (["tls.enabled=true"], "tls.enabled needs a certificate"),
        (["tls.mtls=true"], "tls.mtls has no effect without TLS"),
        (["tls.certManager.enabled=true"], "tls.certManager.enabled has no effect without TLS"),
        (
            ["tls.enabled=true,tls.certManager.enabled=true"],
            "tls.certManager.issuerRef.name is missing",
        ),
        (["callback.enabled=true"], "callback.url is missing"),
        (
            ["probes.type=grpc,tls.enabled=true,tls.secretName=tls"],
            "probes.type=grpc cannot work with tls.enabled",
        ),
        (["metrics.enabled=false"], "probes.type=http needs the metrics listener"),
        (["ports.metrics=9000"], "two of the ports under ports are the same"),
        (["offerings.content=offerings.json"], "offerings.content is not a JSON array"),
        (
            ["offerings.content=[]", "offerings.existingConfigMap=mine"],
            "offerings.content and offerings.existingConfigMap are both given",
        ),
        (
            ["evictionToken=a", "evictionTokenSecret.existingSecret=mine"],
            "evictionToken and evictionTokenSecret.existingSecret are both given",
        ),
    ],
)
def test_a_sentence_tells_what_is_missing(home: Path, values: list[str], words: str) -> None:
    assert words in refusal(home, *values)


def test_everything_that_is_missing_is_told_at_once(home: Path) -> None:
    said = refusal(home, case=Case(values=()))
    for name in ("location", "azure.subscriptionId", "azure.resourceGroup", "azure.subnetId"):
        assert f"{name} is missing" in said


def test_the_simulated_region_needs_nothing(home: Path) -> None:
    made = Case(values=()).render(home, "--set=azureBackend=fake")
    assert made.settings().azure is None
