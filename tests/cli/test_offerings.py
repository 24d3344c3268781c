"""`bigfleet-azure offerings check`."""

import json
import re

import pytest

from bigfleet_azure.cli.exits import Exit

OFFERINGS = [
    {"vm_size": "Standard_D4s_v5", "zone": "westeurope-1", "count": 2},
    {"vm_size": "Standard_F8s_v2", "zone": "westeurope-2", "count": 3, "capacity_type": "spot"},
    {"vm_size": "Standard_D4s_v5", "zone": "westeurope-1", "count": 5},
]


@pytest.fixture
def check(run, tmp_path):
    """Write offerings and run `offerings check` on them."""

    def check(offerings, *flags, env=None):
        path = tmp_path / "offerings.json"
        path.write_text(json.dumps(offerings))
        return run("offerings", "check", str(path), *flags, env=env)

    return check


def test_check_shows_what_would_be_offered(check):
    result = check(OFFERINGS, "--location=westeurope")
    assert result.exit_code == Exit.OK
    assert [re.split("  +", line) for line in result.stdout.splitlines()] == [
        [
            "FIRST ID",
            "SIZE",
            "ZONE",
            "CAPACITY",
            "SLOTS",
            "USD/HOUR",
            "PRICE FROM",
            "EVICTED/HOUR",
            "QUOTA LEAVES",
            "CANNOT BE HAD",
        ],
        [
            "azure-westeurope-od-d4s-v5-1-000",
            "Standard_D4s_v5",
            "westeurope-1",
            "ON_DEMAND",
            "7",
            "0.19200",
            "table",
            "0",
            "-",
            "-",
        ],
        [
            "azure-westeurope-spot-f8s-v2-2-000",
            "Standard_F8s_v2",
            "westeurope-2",
            "SPOT",
            "3",
            "0.06760",
            "table",
            "7.50% (table)",
            "-",
            "-",
        ],
    ]
    assert result.stderr.endswith(": 2 offerings, 10 slots\n")


def test_check_takes_provider_and_location_as_the_daemon_does(check):
    env = {"BIGFLEET_AZURE_PROVIDER": "certify", "BIGFLEET_AZURE_LOCATION": "westeurope"}
    result = check(OFFERINGS, "-o", "name", env=env)
    assert result.stdout.splitlines()[0] == "certify-westeurope-od-d4s-v5-1-000"


def test_check_as_json_is_one_object_per_offering(check):
    rows = json.loads(check(OFFERINGS, "-o", "json").stdout)
    assert [(row["slots"], row["capacity_type"]) for row in rows] == [(7, "ON_DEMAND"), (3, "SPOT")]


def test_check_lists_every_fault_and_ends_with_the_code_of_bad_configuration(check):
    result = check([{"vm_size": "x y", "zone": "z", "count": -1, "extra": 1}])
    assert result.exit_code == Exit.USAGE
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 3
    assert all("offerings.json: [0]." in line for line in lines)


def test_check_names_every_size_that_cannot_exist(check):
    result = check([{**OFFERINGS[0], "vm_size": name} for name in ("foo", "bar")])
    assert result.exit_code == Exit.USAGE
    assert "'foo'" in result.stderr
    assert "'bar'" in result.stderr


def test_check_passes_warnings_on(check):
    result = check([{**OFFERINGS[0], "labels": {"zone": "x"}}])
    assert result.exit_code == Exit.OK
    assert "Warning: " in result.stderr
    assert "[0].labels.zone: must not be published" in result.stderr


def test_check_of_a_missing_file_says_so(run):
    result = run("offerings", "check", "/gone.json")
    assert result.exit_code == Exit.USAGE
    assert result.stderr == "Error: /gone.json: cannot be read: No such file or directory\n"
