"""The settings of the Azure backend: what is needed, what is refused, and what they come to."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from bigfleet_azure.backends.azure.options import (
    AzureOptions,
    BootstrapMethod,
    Choice,
    Credentials,
    GuestMethod,
    MarketOptions,
    Reservation,
    VmProfile,
)
from bigfleet_azure.daemon.options import AZURE_OPTIONS
from tests.daemon_settings.azure import (
    ASG,
    ENCRYPTION,
    IDENTITY,
    NSG,
    POOL,
    RESERVATION,
    SCOPE,
    SET,
    SUBNET,
    SUBSCRIPTION,
    azure_of,
    faults_of,
    resolved,
)

TENANT = "11111111-1111-1111-1111-111111111111"
CLIENT = "22222222-2222-2222-2222-222222222222"


def public_line(key: Any) -> str:
    line: bytes = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return line.decode()


ED25519 = ed25519.Ed25519PrivateKey.generate()


# Which backend


@pytest.mark.behaviour(90)
def test_a_location_selects_azure_with_the_defaults_of_the_go_provider() -> None:
    assert azure_of() == AzureOptions(
        subscription_id=SUBSCRIPTION,
        resource_group="bigfleet-eastus",
        location="eastus",
        owner="azure/eastus",
        profile=VmProfile(subnet_id=SUBNET),
        market=MarketOptions(endpoint="https://prices.azure.com/api/retail/prices"),
    )
    profile = azure_of().profile
    assert profile.image == "Canonical:ubuntu-24_04-lts:server:latest"
    assert profile.admin_username == "bigfleet"
    assert azure_of().bootstrap_hook == "/opt/bigfleet/bootstrap"


def test_the_backend_can_be_named_and_the_region_written_as_people_do() -> None:
    azure = azure_of("--azure-backend=azure", location="East US", provider="azure-eastus")
    assert azure.location == "eastus"
    assert azure.owner == "azure-eastus/eastus"


@pytest.mark.parametrize("flag", ["--use-fake-backend", "--azure-backend=fake"])
def test_the_simulated_region_takes_the_same_settings_and_says_that_they_are_idle(
    flag: str,
) -> None:
    settings = resolved(flag, env={"AZURE_TENANT_ID": "not even a tenant"})
    assert settings.azure is None
    assert settings.cluster_id == ""
    (warning,) = settings.warnings
    assert warning.startswith("without effect on the simulated region: ")
    assert "--resource-group=bigfleet-eastus" in warning
    assert "TENANT" not in warning


def test_settings_of_the_simulated_region_are_idle_on_azure_and_its_faults_are_refused() -> None:
    assert resolved("--fake-latency=1s").warnings == (
        "without effect on real machines: --fake-latency=1s",
    )
    assert faults_of("--fake-faults") == [
        "--fake-faults=true is for the simulated region only; remove it"
    ]


# What is needed


@pytest.mark.behaviour(93)
def test_what_azure_needs_is_asked_for_in_one_sentence() -> None:
    assert faults_of(subscription_id="-", resource_group="-", subnet_id="-") == [
        "--location=eastus selects the azure backend, which needs --subscription-id "
        "(or AZURE_SUBSCRIPTION_ID), --resource-group and --subnet-id; add what is missing, or use "
        "--use-fake-backend for the simulated region"
    ]
    assert faults_of("--azure-backend=azure", location="-", subnet_id="-") == [
        "--azure-backend=azure needs --location and --subnet-id; add what is missing, or use "
        "--use-fake-backend for the simulated region"
    ]


@pytest.mark.behaviour(90)
def test_the_subscription_may_come_from_azures_own_variable() -> None:
    other = "AAAAAAAA-0000-0000-0000-000000000000"
    azure = azure_of(env={"AZURE_SUBSCRIPTION_ID": other}, subscription_id="-")
    assert azure.subscription_id == other.lower()
    assert azure_of(env={"AZURE_SUBSCRIPTION_ID": other}).subscription_id == SUBSCRIPTION


@pytest.mark.behaviour(93)
def test_all_faults_are_told_at_once_each_with_its_source() -> None:
    faults = faults_of(
        "--nsg-id=nsg",
        "--image=ubuntu",
        "--admin-username=root",
        "--ssh-public-key=gone.pub",
        "--base-user-data=big",
        "--tags=a/b=1,a_B=2",
        "--bootstrap-method=none",
        "--credential=service-principal",
        "--zone-a=westus-1",
        "--seed-count=many",
        "--arm-ca=rubbish",
        env={"BIGFLEET_AZURE_CLUSTER_ID": "a/b", "AZURE_SUBSCRIPTION_ID": "mine"},
        files={"big": b"x" * 65_536, "rubbish": "no PEM"},
        subscription_id="-",
        resource_group="ends.with.",
        subnet_id="-",
    )
    for number, part in enumerate(
        (
            "--seed-count=many is not",
            "--resource-group=ends.with. is not the name of a resource group",
            "--admin-username=root is a name that Azure refuses",
            "--tags=a/b=1,a_B=2 has the tags 'a/b' and 'a_B', which are one to Azure",
            "--nsg-id=nsg is not the id of a network security group; write it as",
            "BIGFLEET_AZURE_CLUSTER_ID=a/b is no plain name",
            "AZURE_SUBSCRIPTION_ID=mine is no id",
            "--image=ubuntu: 'ubuntu' is no image",
            "--arm-ca=rubbish holds no certificates",
            "--ssh-public-key=gone.pub cannot be read: No such file or directory",
            "--base-user-data=big has 65536 bytes; the most that Azure takes is 65535",
            "--location=eastus selects the azure backend, which needs --subnet-id;",
            "--credential=service-principal needs --tenant-id (or AZURE_TENANT_ID), "
            "--client-id (or AZURE_CLIENT_ID) and the variable AZURE_CLIENT_SECRET",
            "the built-in mix, which is offered without --offerings: zone 'westus-1'",
        )
    ):
        assert faults[number].startswith(part), (number, faults[number])
    assert len(faults) == number + 1


# Single values


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("resource-group", ["a", "G_r-1(x).y", "größe", "x" * 90], ["a/b", "x.", "x" * 91, "a b"]),
        ("subnet-id", [SUBNET, SUBNET.upper()], ["nodes", NSG, f"{SUBNET}/", SUBNET[1:]]),
        ("subscription-id", [SUBSCRIPTION], ["x", SUBSCRIPTION[1:], f"{SUBSCRIPTION}0"]),
        ("nsg-id", [NSG, ""], [ASG, SUBNET]),
        ("asg-ids", [ASG, f"{ASG},{ASG}2", ""], [f"{ASG},", f"{ASG},{NSG}"]),
        ("lb-backend-pool-ids", [POOL], [f"{SCOPE}/Microsoft.Network/loadBalancers/lb"]),
        ("identity-ids", [IDENTITY], [SET]),
        ("capacity-reservation-group-id", [RESERVATION], [SET]),
        ("disk-encryption-set-id", [ENCRYPTION], [SET]),
        (
            "image",
            [
                "Canonical:ubuntu-24_04-lts:server:latest",
                f"{SCOPE}/Microsoft.Compute/images/talos-v1-12-5",
                f"{SCOPE}/Microsoft.Compute/galleries/g/images/talos-linux/versions/1.12.5",
            ],
            ["", "a:b:c", "talos", f"{SCOPE}/Microsoft.Compute/galleries/g/images/i/versions/new"],
        ),
        ("plan", ["p:product:name", ""], ["name"]),
        (
            "admin-username",
            ["talos", "azureUser", "_x", "a.b-c", "x" * 64],
            ["Administrator", "admin2", "1", "-a", "a-", "a b", "x" * 65, "", "ä", "$x", "1a"],
        ),
        ("bootstrap-hook", ["/opt/x y"], ["bootstrap", "", "/opt/", "/a\nb"]),
        ("owner-id", ["eastus blue", "x" * 256], ["x" * 257, " x", "a\tb", "\U0001f600" * 129]),
        ("price-refresh", ["0", "30m"], ["-1h", "often"]),
        ("republish-threshold", ["0", "20", "12.5%", "100%"], ["-1", "101%", "x", "", "nan"]),
        ("price-discount", ["0", "99.9%"], ["100%", "-5", "x"]),
        ("reserved-term", ["none", "1y", "3y"], ["2y", ""]),
        ("eviction-rate-basis", ["hour", "month"], ["day"]),
        (
            "prices-endpoint",
            ["", "https://prices.azure.com/api/retail/prices", "https://[::1]:8443/p"],
            ["http://prices", "prices", "https://h/p?x=1", "https://u@h/"],
        ),
        (
            "callback-url",
            ["", "https://bigfleet.test:9443", "http://10.0.0.4:9443/base"],
            ["bigfleet.test", "ftp://h", "https://h/?x=1", "https://h/ x"],
        ),
        ("callback-addr", [""], ["9443", ":x"]),
        ("arm-endpoint", ["https://127.0.0.1:8443", "https://[::1]:1/", ""], ["http://x", "x"]),
        ("spot-max-price", ["-1", "0.05", "2"], ["0", "-2", "x", "nan", "1e9", ""]),
        ("os-disk-gib", ["0", "4095"], ["-1", "4096", "30G"]),
        ("os-disk-type", ["premium_lrs", "StandardSSD_ZRS"], ["UltraSSD_LRS", "ssd"]),
        ("security-type", ["trustedlaunch"], ["secure"]),
        ("reserved-cpu", ["500m", "0", ""], ["-1", "half"]),
        ("reserved-memory", ["1Gi"], ["1 GB"]),
        ("azure-zone", ["", "1", "2", "3", "none"], ["0", "4", "eastus-1"]),
        ("max-pods", ["30"], ["0"]),
        ("cloud", ["usgov", "China"], ["germany"]),
        ("authority-host", ["https://login.microsoftonline.com/"], ["login.microsoftonline.com"]),
        ("tenant-id", [TENANT, "contoso.onmicrosoft.com"], ["contoso", "a b.c"]),
        ("client-id", [CLIENT], ["my-app"]),
    ],
)
def test_a_value_is_judged_before_anything_is_started(
    name: str, good: list[str], bad: list[str]
) -> None:
    for text in good:
        azure_of(f"--{name}={text}")
    for text in bad:
        faults = faults_of(f"--{name}={text}")
        assert [fault for fault in faults if fault.startswith(f"--{name}=")], (text, faults)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a", "has 'a', which is no tag; write it as key=value"),
        ("=x", "whose name is not of 1 to 512"),
        ("a?=x", "must not contain ?"),
        ("a<b>=x", "must not contain < >"),
        (f"{'k' * 513}=x", "whose name is not of 1 to 512"),
        (f"k={'v' * 257}", "whose value is not of at most 256"),
        ("Azure-x=1", "begin with azure are Azure's own"),
        ("MICROSOFT=1", "begin with microsoft are Azure's own"),
        ("windows.x=1", "begin with windows are Azure's own"),
        ("BigFleet-owner=me", "begin with bigfleet- are this daemon's own"),
        ("team=a,Team=b", "'team' and 'Team', which are one to Azure"),
        (",".join(f"k{n}=v" for n in range(41)), "there are 41 tags"),
        (",".join(f"k{n}={'v' * 250}" for n in range(5)), "the tags have 1260 characters in all"),
    ],
)
def test_tags_that_azure_would_refuse_are_refused_at_start(text: str, part: str) -> None:
    (fault,) = faults_of(f"--tags={text}")
    assert part in fault


def test_a_slash_in_the_name_of_a_tag_becomes_an_underscore_and_values_stay() -> None:
    tags = azure_of("--tags=butler.butlerlabs.dev/team=Dev/Test, empty=,eq=a=b").profile.tags
    assert tags == {"butler.butlerlabs.dev_team": "Dev/Test", "empty": "", "eq": "a=b"}


# Every option


SAMPLES: dict[str, tuple[str, Any]] = {
    "subscription-id": (TENANT, TENANT),
    "resource-group": ("other", "other"),
    "owner-id": ("me", "me"),
    "cloud": ("china", "china"),
    "arm-endpoint": ("https://localhost:8443/", "https://localhost:8443"),
    "arm-ca": ("ca.pem", Path("ca.pem")),
    "prices-endpoint": ("https://mirror.test/prices/", "https://mirror.test/prices"),
    "price-file": ("prices.json", Path("prices.json")),
    "price-discount": ("12.5%", 0.125),
    "reserved-term": ("3y", "3y"),
    "eviction-rate-basis": ("month", "month"),
    "credential": ("cli", "cli"),
    "tenant-id": (TENANT, TENANT),
    "client-id": (CLIENT, CLIENT),
    "client-secret": ("planted", b"planted"),
    "federated-token-file": ("token", Path("token")),
    "authority-host": ("https://login.test", "https://login.test"),
    "image": ("a:b:c:1.2.3", "a:b:c:1.2.3"),
    "plan": ("a:b:c", "a:b:c"),
    "admin-username": ("talos", "talos"),
    "ssh-public-key": ("id.pub", public_line(ED25519)),
    "base-user-data": ("data", b"\x00\xff#cloud-config\r\n"),
    "security-type": ("ConfidentialVM", "ConfidentialVM"),
    "azure-zone": ("None", "none"),
    "availability-set-id": (SET, SET),
    "identity-ids": (IDENTITY, (IDENTITY,)),
    "tags": ("a=b", {"a": "b"}),
    "encryption-at-host": ("true", True),
    "boot-diagnostics": ("false", False),
    "subnet-id": (f"{SUBNET}-2", f"{SUBNET}-2"),
    "nsg-id": (NSG, NSG),
    "asg-ids": (f"{ASG}, {ASG}2,{ASG.upper()}", (ASG, f"{ASG}2")),
    "lb-backend-pool-ids": (POOL, (POOL,)),
    "public-ip": ("true", True),
    "ip-forwarding": ("true", True),
    "accelerated-networking": ("off", Choice.OFF),
    "os-disk-gib": ("128", 128),
    "os-disk-type": ("standard_lrs", "Standard_LRS"),
    "ephemeral-os-disk": ("auto", Choice.AUTO),
    "disk-controller": ("nvme", "NVMe"),
    "disk-encryption-set-id": (ENCRYPTION, ENCRYPTION),
    "spot-eviction-policy": ("deallocate", "Deallocate"),
    "spot-max-price": ("0.25", 0.25),
    "capacity-reservation-group-id": (RESERVATION, RESERVATION),
    "bootstrap-method": ("none", BootstrapMethod.NONE),
    "bootstrap-hook": ("/hook", "/hook"),
    "readiness": ("kubernetes", GuestMethod.KUBERNETES),
    "drain-method": ("kubernetes", GuestMethod.KUBERNETES),
    "kubeconfig-dir": ("kube", Path("kube")),
    "cluster-id": ("talos", "talos"),
    "reserved-cpu": ("0.5", 500),
    "reserved-memory": ("1Gi", 2**30),
    "reserved-ephemeral-storage": ("10Gi", 10 * 2**30),
    "max-pods": ("30", 30),
}

FIELDS = {
    "owner-id": "owner",
    "prices-endpoint": "endpoint",
    "price-discount": "discount",
    "eviction-rate-basis": "rate_basis",
    "authority-host": "authority",
    "credential": "method",
    "federated-token-file": "token_file",
    "lb-backend-pool-ids": "lb_pool_ids",
    "spot-eviction-policy": "eviction_policy",
    "spot-max-price": "max_price",
    "cluster-id": "cluster",
    "reserved-cpu": "cpu_millicores",
    "reserved-memory": "memory_bytes",
    "reserved-ephemeral-storage": "ephemeral_storage_bytes",
    "max-pods": "pods",
}

BESIDE: dict[str, dict[str, str]] = {
    "cluster-id": {"bootstrap-method": "none"},
    "availability-set-id": {"offerings": "offerings.json"},
}


def every_value(azure: AzureOptions) -> dict[str, Any]:
    parts = (azure, azure.profile, azure.credentials, azure.reservation, azure.market)
    kinds = (AzureOptions, VmProfile, Credentials, Reservation, MarketOptions)
    return {
        f.name: getattr(part, f.name) for part in parts for f in fields(kinds[parts.index(part)])
    }


@pytest.mark.behaviour(90)
@pytest.mark.parametrize("option", AZURE_OPTIONS, ids=lambda option: option.name)
def test_every_option_is_read_from_its_variable_and_reaches_the_backend(option: Any) -> None:
    text, expected = SAMPLES[option.name]
    beside = BESIDE.get(option.name, {})
    if option.name in ("bootstrap-method", "cluster-id"):
        beside = {"bootstrap-method": "none", "cluster-id": "c"} | beside
    kubernetes = {"readiness": "kubernetes", "drain-method": "kubernetes", "kubeconfig-dir": "kube"}
    if option.name in (*kubernetes, "bootstrap-method", "cluster-id"):
        beside = kubernetes | beside
    if option.name in ("client-secret", "federated-token-file"):
        beside = {"tenant-id": TENANT, "client-id": CLIENT}
    flags = [f"--{name}={value}" for name, value in beside.items() if name != option.name]
    given = {option.name.replace("-", "_"): "-"}
    files: dict[str, str | bytes] = {
        "id.pub": public_line(ED25519) + "\n",
        "data": b"\x00\xff#cloud-config\r\n",
        "ca.pem": trustme.CA().cert_pem.bytes(),
        "prices.json": '{"Standard_D4s_v5": {"on_demand": 0.1}}',
    }
    azure = azure_of(*flags, env={option.env: text}, files=files, **given)
    found = every_value(azure)[FIELDS.get(option.name, option.field)]
    assert (found.reveal() if option.name == "client-secret" else found) == expected
    for alias in option.env_aliases:
        again = azure_of(*flags, env={alias: text}, files=files, **given)
        assert again == azure


def test_every_value_that_the_backend_takes_can_be_set() -> None:
    settable = {FIELDS.get(o.name, o.field) for o in AZURE_OPTIONS} | {"location"}
    taken = set(every_value(azure_of())) - {"profile", "credentials", "reservation", "market"}
    # What only an offering decides, and what is in the price file.
    assert taken - settable == {"base_user_data_file", "prices"}


# Files


@pytest.mark.parametrize(
    "key",
    [ED25519, rsa.generate_private_key(public_exponent=65537, key_size=2048)],
    ids=["ed25519", "rsa"],
)
def test_a_public_key_of_a_kind_that_azure_takes_is_taken_with_its_comment(key: Any) -> None:
    line = f"{public_line(key)} me@host"
    azure = azure_of("--ssh-public-key=k", files={"k": f"\n{line}\r\n"})
    assert azure.profile.ssh_public_key == line


PRIVATE = ED25519.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (PRIVATE, "holds a private key"),
        ("", "and has 0 lines"),
        (f"{public_line(ED25519)}\n{public_line(ED25519)}", "and has 2 lines"),
        ("ssh-rsa rubbish", "is no SSH public key"),
        (b"\xff\xfe", "is no SSH public key"),
        (public_line(ec.generate_private_key(ec.SECP256R1())), "of a type that Azure does not"),
        (
            public_line(rsa.generate_private_key(public_exponent=65537, key_size=1024)),
            "is an RSA key of 1024 bits",
        ),
    ],
)
def test_what_is_no_such_key_is_refused_and_never_shown(content: str | bytes, part: str) -> None:
    (fault,) = faults_of("--ssh-public-key=k", files={"k": content})
    assert fault.startswith("--ssh-public-key=k ")
    assert part in fault
    text = content if isinstance(content, str) else content.decode(errors="replace")
    assert not [word for word in text.split() if len(word) > 20 and word in fault]


def test_user_data_of_the_greatest_size_is_taken_and_never_shown() -> None:
    azure = azure_of("--base-user-data=d", files={"d": b"planted" + b"\x00" * 65_528})
    assert len(azure.profile.base_user_data) == 65_535
    assert "planted" not in repr(azure)


# Credentials


@pytest.mark.parametrize(
    ("env", "fault"),
    [
        (
            {"AZURE_FEDERATED_TOKEN_FILE": "/t", "AZURE_CLIENT_ID": CLIENT},
            "AZURE_FEDERATED_TOKEN_FILE=/t selects workload-identity, which needs --tenant-id "
            "(or AZURE_TENANT_ID)",
        ),
        (
            {"AZURE_CLIENT_SECRET": "planted"},
            "AZURE_CLIENT_SECRET=*** selects service-principal, which needs --tenant-id "
            "(or AZURE_TENANT_ID) and --client-id (or AZURE_CLIENT_ID)",
        ),
        (
            {"BIGFLEET_AZURE_CREDENTIAL": "workload-identity", "AZURE_CLIENT_ID": CLIENT},
            "BIGFLEET_AZURE_CREDENTIAL=workload-identity needs --tenant-id (or AZURE_TENANT_ID) "
            "and --federated-token-file (or AZURE_FEDERATED_TOKEN_FILE)",
        ),
        (
            {"AZURE_TENANT_ID": "x", "AZURE_CLIENT_SECRET": "planted"},
            "AZURE_TENANT_ID=x is no tenant; give its id, such as "
            "0b1f6471-1bf0-4dda-aec3-cb9272f09590, or its domain name",
        ),
    ],
)
def test_what_a_credential_lacks_is_told(env: dict[str, str], fault: str) -> None:
    assert faults_of(env=env) == [fault]


@pytest.mark.parametrize("method", ["auto", "managed-identity", "cli"])
def test_an_identity_of_the_machine_and_the_command_line_need_nothing(method: str) -> None:
    assert azure_of(f"--credential={method}").credentials == Credentials(method=method)


def test_the_secret_is_no_flag_and_is_never_shown() -> None:
    assert "set BIGFLEET_AZURE_CLIENT_SECRET" in faults_of("--client-secret=planted")[0]
    env = {
        "AZURE_CLIENT_SECRET": "planted",
        "AZURE_TENANT_ID": TENANT,
        "AZURE_CLIENT_ID": CLIENT,
    }
    assert "planted" not in repr(resolved(env=env))


# What goes together


TALOS = (
    "--bootstrap-method=none",
    "--readiness=kubernetes",
    "--drain-method=kubernetes",
    "--cluster-id=talos",
    "--kubeconfig-dir=/kube",
)


def test_an_image_that_joins_by_itself_serves_one_cluster() -> None:
    settings = resolved(*TALOS)
    assert settings.cluster_id == "talos"
    assert settings.azure is not None
    assert settings.azure.bootstrap_method is BootstrapMethod.NONE


@pytest.mark.behaviour(93)
@pytest.mark.parametrize("left_out", range(1, 5))
def test_without_a_bootstrap_the_rest_is_needed(left_out: int) -> None:
    flags = [flag for number, flag in enumerate(TALOS) if number != left_out]
    lacking = TALOS[left_out].partition("=")[0] if left_out > 2 else TALOS[left_out]
    assert faults_of(*flags) == [f"--bootstrap-method=none needs {lacking}"]


@pytest.mark.behaviour(93)
def test_kubernetes_needs_kubeconfigs_and_a_cluster_id_needs_no_bootstrap() -> None:
    assert faults_of("--readiness=kubernetes", "--drain-method=kubernetes", "--cluster-id=c") == [
        "--readiness=kubernetes and --drain-method=kubernetes cannot work without --kubeconfig-dir",
        "--cluster-id=c has a use only with --bootstrap-method=none: else a machine joins the "
        "cluster that it is told; remove it",
    ]
    azure_of("--readiness=kubernetes", "--kubeconfig-dir=/kube")


def test_a_faulty_value_does_not_drag_further_faults_behind_it() -> None:
    assert len(faults_of("--bootstrap-method=nun", "--cluster-id=c")) == 1
    assert len(faults_of("--credential=me", env={"AZURE_CLIENT_SECRET": "s"})) == 1
    assert len(faults_of(location="East/US")) == 1


@pytest.mark.behaviour(93)
def test_the_built_in_mix_has_zones_and_spot_and_so_no_availability_set() -> None:
    faults = faults_of(f"--availability-set-id={SET}")
    assert any("a Spot machine cannot be in an availability set" in fault for fault in faults)
    assert any("cannot be in zone 1 and in an availability set" in fault for fault in faults)
    azure_of(f"--availability-set-id={SET}", "--offerings=o.json")
