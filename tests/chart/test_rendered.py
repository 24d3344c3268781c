"""What the chart renders, over the matrix of ways to use it."""

import functools
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml
from kubernetes_validate import utils

from scripts import chart_values
from tests.chart.things import CHART, VALUES, Case, Release, helm

pytestmark = pytest.mark.deploy

OLDEST = "1.30"
NEWEST = kubernetes_validate.latest_version()

CUSTOM = {
    "Certificate": "cert-manager.io/v1",
    "ServiceMonitor": "monitoring.coreos.com/v1",
    "PrometheusRule": "monitoring.coreos.com/v1",
}
"""Kinds of operators, which Kubernetes has no schema for."""

# What Kubernetes says of it


@pytest.fixture(scope="module", autouse=True)
def schemas_read_once() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "schema_contents", functools.cache(utils.schema_contents))
        yield


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_manifest_is_one_of_kubernetes_without_unknown_fields(
    release: Release, version: str
) -> None:
    for document in release.documents:
        if document["kind"] in CUSTOM:
            assert document["apiVersion"] == CUSTOM[document["kind"]]
        else:
            kubernetes_validate.validate(document, version, strict=True)


def test_a_manifest_with_an_unknown_field_would_be_found(releases: dict[str, Release]) -> None:
    document = json.loads(json.dumps(releases["page"].one("Deployment")))
    document["spec"]["replica"] = 1
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(document, NEWEST, strict=True)


def test_the_readme_names_the_oldest_kubernetes() -> None:
    assert f"Kubernetes {OLDEST} or newer" in chart_values.README.read_text(encoding="utf-8")


def test_the_values_that_the_readme_shows_can_be_used(home: Path) -> None:
    readme = chart_values.README.read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for number, block in enumerate(blocks):
        path = home / f"readme-{number}.yaml"
        path.write_text(block, encoding="utf-8")
        own = {"bigfleet-azure-credentials": {"client-secret": b"hunter2"}}
        made = Case(values=("eastus.values",), own=own).render(home, f"--values={path}")
        assert made.settings().azure is not None


def test_the_matrix_has_every_kind_that_the_chart_can_make(releases: dict[str, Release]) -> None:
    kinds = Counter(each["kind"] for made in releases.values() for each in made.documents)
    assert set(kinds) == {
        "ConfigMap", "Deployment", "NetworkPolicy", "PersistentVolumeClaim", "Pod", "Secret",
        "Service", "ServiceAccount", *CUSTOM,
    }  # fmt: skip


def test_no_two_manifests_are_the_same_object(release: Release) -> None:
    assert len(release.names()) == len(release.documents)


def test_helm_finds_nothing_to_say_against_the_chart(home: Path) -> None:
    for case in ("eastus.values", "everything", "existing", "fake"):
        said = helm("lint", "--strict", str(CHART), f"--values={VALUES / case}.yaml", home=home)
        assert "1 chart(s) linted, 0 chart(s) failed" in said


# The pod


def test_the_pod_may_do_nothing_that_it_does_not_need(release: Release) -> None:
    pod, container = release.pod, release.container
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["securityContext"]["runAsUser"] == 65532
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["fsGroup"] == 65532
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    for account in release.all("ServiceAccount"):
        assert account["automountServiceAccountToken"] is False


def test_there_is_never_a_second_process_on_one_state(release: Release) -> None:
    spec = release.one("Deployment")["spec"]
    assert spec["strategy"] == {"type": "Recreate"}
    assert spec["replicas"] in (0, 1)


def test_secrets_are_readable_for_the_group_of_the_pod_only(release: Release) -> None:
    modes = {each["secret"]["defaultMode"] for each in release.pod["volumes"] if "secret" in each}
    assert modes <= {0o440}


def test_probes_ask_what_can_answer(releases: dict[str, Release]) -> None:
    def asked(case: str) -> list[Any]:
        container = releases[case].container
        probes = [container.get(f"{each}Probe") for each in ("startup", "liveness", "readiness")]
        return [each and (each.get("httpGet") or each.get("grpc")) for each in probes]

    assert asked("page") == [
        {"path": "/healthz", "port": "metrics"},
        {"path": "/healthz", "port": "metrics"},
        {"path": "/readyz", "port": "metrics"},
    ]
    assert asked("existing") == [{"port": 9000}] * 3
    assert asked("talos") == [None] * 3


def test_without_metrics_the_listener_is_off(releases: dict[str, Release]) -> None:
    made = releases["existing"]
    assert made.settings().metrics_addr is None
    assert [port["name"] for port in made.container["ports"]] == ["grpc", "callback"]


def test_workload_identity_is_asked_for_when_an_identity_is_given(
    releases: dict[str, Release], home: Path
) -> None:
    label = "azure.workload.identity/use"
    assert releases["page"].template["metadata"]["labels"][label] == "true"
    assert label not in releases["talos"].template["metadata"]["labels"]
    off = Case(values=("eastus.values",)).render(home, "--set=workloadIdentity.enabled=false")
    assert label not in off.template["metadata"]["labels"]
    assert "annotations" not in off.one("ServiceAccount")["metadata"]


def test_the_account_has_the_name_that_the_federation_was_made_for(
    releases: dict[str, Release],
) -> None:
    for case in ("page", "page with a ServiceAccount"):
        assert releases[case].pod["serviceAccountName"] == "bigfleet-azure-eastus"
    assert releases["existing"].pod["serviceAccountName"] == "mine"
    assert releases["existing"].all("ServiceAccount") == []


# Names


@pytest.mark.parametrize(
    ("release", "name"),
    [
        ("bigfleet-azure-eastus", "bigfleet-azure-eastus"),
        ("prod", "prod-bigfleet-azure"),
        ("a" * 53, "a" * 46),
    ],
)
def test_the_name_is_the_releases_when_it_contains_the_charts(
    home: Path, release: str, name: str
) -> None:
    made = Case(values=("everything",)).render(
        home, "--set=fullnameOverride=,nameOverride=", release=release
    )
    assert made.one("Deployment")["metadata"]["name"] == name
    assert max(len(each["metadata"]["name"]) for each in made.documents) <= 63


# Network


def test_the_service_keeps_its_address_while_probes_fail(release: Release) -> None:
    for service in release.all("Service"):
        assert service["spec"]["publishNotReadyAddresses"] is True


def test_the_service_finds_the_pod_and_its_ports(release: Release) -> None:
    labels = release.template["metadata"]["labels"]
    open_ports = {each["name"]: each["containerPort"] for each in release.container["ports"]}
    for service in release.all("Service"):
        assert service["spec"]["selector"].items() <= labels.items()
        for port in service["spec"]["ports"]:
            assert open_ports[port["targetPort"]] == port["port"]
    for pod in release.all("Pod"):
        assert not service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()


def test_prometheus_is_told_where_to_look(releases: dict[str, Release]) -> None:
    assert releases["page"].one("Service")["metadata"]["annotations"] == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": "9090",
        "prometheus.io/path": "/metrics",
    }
    silent = releases["upstream"].one("Service")["metadata"]["annotations"]
    assert silent == {"example.com/owner": "fleet"}


def test_machines_reach_the_callback_port_and_no_other(releases: dict[str, Release]) -> None:
    service = releases["everything"].one("Service", "-callback")
    assert [port["name"] for port in service["spec"]["ports"]] == ["callback"]
    internal = "service.beta.kubernetes.io/azure-load-balancer-internal"
    assert service["metadata"]["annotations"] == {internal: "true"}


def test_the_network_policy_lets_out_what_the_daemon_needs(releases: dict[str, Release]) -> None:
    def egress(case: str) -> set[tuple[int, str]]:
        rules = releases[case].one("NetworkPolicy")["spec"]["egress"]
        return {
            (port["port"], peer.get("ipBlock", {}).get("cidr", "everywhere"))
            for rule in rules
            for port in rule["ports"]
            for peer in rule.get("to", [{}])
        }

    needed = {(53, "everywhere"), (443, "everywhere"), (80, "169.254.169.254/32")}
    assert egress("in memory disk") == needed
    assert egress("everything") == needed | {(6443, "everywhere"), (8443, "10.9.0.0/16")}


def test_the_network_policy_lets_in_who_is_named_and_the_test_pod(
    releases: dict[str, Release],
) -> None:
    made = releases["everything"]
    rules = made.one("NetworkPolicy")["spec"]["ingress"]
    assert [rule["ports"][0]["port"] for rule in rules] == ["grpc", "metrics", "callback"]
    for rule in rules:
        last = rule["from"][-1]["podSelector"]["matchLabels"]
        assert last == made.one("Pod")["metadata"]["labels"]
    assert all(
        "from" not in each
        for each in releases["in memory disk"].one("NetworkPolicy")["spec"]["ingress"]
    )


# State and keys


def test_volume_and_keys_stay_after_an_uninstall(releases: dict[str, Release]) -> None:
    kept = {
        (each["kind"], each["metadata"]["name"])
        for each in releases["everything"].documents
        if each["metadata"].get("annotations", {}).get("helm.sh/resource-policy") == "keep"
    }
    assert kept == {
        ("PersistentVolumeClaim", "capacity-eastus-state"),
        ("Secret", "capacity-eastus-state-key"),
        ("Secret", "capacity-eastus-callback-keys"),
    }
    for kind, name in kept - {("PersistentVolumeClaim", "capacity-eastus-state")}:
        assert releases["everything"].one(kind, name)["immutable"] is True


def test_what_the_user_has_is_not_made_again(releases: dict[str, Release]) -> None:
    for kind in ("Secret", "ConfigMap", "PersistentVolumeClaim"):
        assert releases["existing"].all(kind) == []


def test_a_disk_is_asked_for_by_default(releases: dict[str, Release]) -> None:
    page = releases["page"].one("PersistentVolumeClaim")["spec"]
    assert page == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    assert (
        releases["upstream"].one("PersistentVolumeClaim")["spec"]["storageClassName"]
        == releases["everything"].one("PersistentVolumeClaim")["spec"]["storageClassName"]
        == "managed-csi"
    )


def test_a_key_beside_the_state_needs_no_secret(releases: dict[str, Release]) -> None:
    made = releases["talos"]
    assert made.all("Secret") == []
    assert made.settings().state_key_file is None


# A change starts the pod anew


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("offerings", "offerings.content=[]"),
        ("prices", "prices.content=[]"),
        ("base-user-data", "baseUserData.content=other"),
        ("eviction-token", "evictionToken=other"),
        ("files", "azure.sshPublicKey=other"),
    ],
)
def test_a_changed_text_changes_its_checksum_and_no_other(
    home: Path, name: str, value: str
) -> None:
    case = Case(values=("everything",))
    before = case.render(home).template["metadata"]["annotations"]
    after = case.render(home, f"--set-string={value}").template["metadata"]["annotations"]
    assert {key for key in before if before[key] != after[key]} == {f"checksum/{name}"}


# What others wrote


def test_alerts_and_dashboard_are_those_of_the_files(releases: dict[str, Release]) -> None:
    files = CHART / "files"
    rules = yaml.safe_load((files / "alerts.yaml").read_text(encoding="utf-8"))
    made = releases["everything"]
    assert _without_runbooks(made.one("PrometheusRule")["spec"]) == _without_runbooks(rules)
    dashboard = made.one("ConfigMap", "-dashboard")["data"]["bigfleet-azure.json"]
    assert json.loads(dashboard) == json.loads((files / "dashboard.json").read_text())


def _without_runbooks(spec: Any) -> Any:
    copy = json.loads(json.dumps(spec))
    for group in copy["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]["runbook_url"]
    return copy


def test_alerts_link_the_page_that_the_values_name(releases: dict[str, Release]) -> None:
    groups = releases["everything"].one("PrometheusRule")["spec"]["groups"]
    found = [rule["annotations"]["runbook_url"] for group in groups for rule in group["rules"]]
    page = yaml.safe_load((VALUES / "everything.yaml").read_text())["metrics"]["prometheusRule"]
    assert len(found) > 30
    assert all(url.startswith(f"{page['runbookUrl']}#") for url in found)


def test_the_certificate_is_the_one_that_the_pod_mounts(releases: dict[str, Release]) -> None:
    made = releases["everything"]
    certificate = made.one("Certificate")["spec"]
    [tls] = [each for each in made.pod["volumes"] if each["name"] == "tls"]
    assert certificate["secretName"] == tls["secret"]["secretName"] == "capacity-eastus-tls"
    assert "capacity-eastus.bigfleet.svc" in certificate["dnsNames"]
    assert "fleet.example.com" in certificate["dnsNames"]


def test_the_service_monitor_finds_the_service(releases: dict[str, Release]) -> None:
    made = releases["everything"]
    monitor = made.one("ServiceMonitor")["spec"]
    service = made.one("Service", "capacity-eastus")
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}


def test_further_objects_are_templates(releases: dict[str, Release]) -> None:
    made = releases["everything"]
    assert made.one("ConfigMap", "more")["data"] == {"release": "bigfleet-azure-eastus"}
    assert made.one("ConfigMap", "text")
