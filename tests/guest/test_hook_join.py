"""The bootstrap hook joins a node: what it takes, what it waits for, what it says."""

import time

import pytest

from bigfleet_azure.backends.azure import guest_script
from tests.guest.machines import BLOB, NODE, NOT_READY, READY, TOKEN, Machine

pytestmark = pytest.mark.process

OTHER = BLOB.replace("10.0.0.4", "10.9.9.9")
SCRIPT = '#!/usr/bin/env bash\necho "$0 $-" >"$FAKE/ran"; : >"$DISK/etc/kubernetes/kubelet.conf"\n'
JOIN = f"kubeadm join --config {{blob}} --node-name {NODE}"


def test_a_join_configuration_is_given_to_kubeadm_and_the_node_is_waited_for(
    machine: Machine,
) -> None:
    machine.registered(NOT_READY, NOT_READY, READY)
    joined = machine.join()
    assert joined.returncode == 0, joined.stderr
    assert machine.changes() == [
        JOIN.format(blob=machine.memory / "blob"),
        f"uncordon {NODE}",
    ]
    assert (machine.fake / "config").read_text() == BLOB
    assert sum("jsonpath" in call for call in machine.calls("kubectl")) == 3
    assert joined.stderr.splitlines()[-1] == f"bigfleet-bootstrap: {NODE} is Ready"


def test_the_blob_stays_in_the_memory_file_that_it_came_in(machine: Machine) -> None:
    assert machine.join().returncode == 0
    assert machine.files_with(TOKEN) == []
    assert TOKEN not in str(machine.calls())


@pytest.mark.parametrize(
    "blob",
    [
        BLOB.replace("kind: JoinConfiguration", 'kind: "JoinConfiguration" # v1.34'),
        BLOB.replace("\n", "\r\n"),
        '{"apiVersion":"kubeadm.k8s.io/v1beta4","kind":"JoinConfiguration","discovery":{}}',
        "kind: KubeletConfiguration\n---\n" + BLOB,
    ],
)
def test_a_join_configuration_may_be_written_in_several_ways(machine: Machine, blob: str) -> None:
    assert machine.join(blob).returncode == 0
    assert len(machine.calls("kubeadm")) == 1


def test_pods_are_kept_from_the_wire_server_before_the_node_joins(machine: Machine) -> None:
    assert machine.join().returncode == 0
    rules = (machine.fake / "rules").read_text().splitlines()
    assert rules == [
        f"FORWARD -d 168.63.129.16/32 -p tcp -m tcp --dport {port} -j DROP" for port in (80, 32526)
    ]
    order = [call.split()[0] for call in machine.calls("iptables", "kubeadm")]
    assert order.index("kubeadm") == len(order) - 1
    assert machine.run("--firewall").returncode == 0
    assert (machine.fake / "rules").read_text().splitlines() == rules


def test_without_the_firewall_nothing_joins(machine: Machine) -> None:
    machine.put("no-netfilter")
    joined = machine.join()
    assert joined.returncode == 74
    assert "168.63.129.16" in joined.stderr
    machine.remove("iptables")
    assert machine.join().returncode == 69
    assert machine.calls("kubeadm") == []


def test_a_node_that_is_not_ready_in_time_fails_with_its_kubelets_words(machine: Machine) -> None:
    machine.set(BIGFLEET_JOIN_SECONDS=1)
    machine.registered(NOT_READY)
    joined = machine.join()
    assert joined.returncode == 71
    assert joined.stderr.splitlines()[-1] == (
        f"bigfleet-bootstrap: {NODE} is not Ready within 1 s: KubeletNotReady: container runtime "
        "network not ready: cni plugin not initialized"
    )


def test_what_an_earlier_life_said_does_not_count(machine: Machine) -> None:
    machine.set(BIGFLEET_JOIN_SECONDS=1)
    machine.registered(READY.replace("NOW", "2026-01-01T00:00:00Z"))
    joined = machine.join()
    assert joined.returncode == 71
    assert "from before the join" in joined.stderr


def test_an_api_server_that_does_not_answer_is_named(machine: Machine) -> None:
    machine.set(BIGFLEET_JOIN_SECONDS=1)
    machine.put("kubeadm-join", ': >"$FAKE/no-api"')
    joined = machine.join()
    assert joined.returncode == 71
    assert "connection refused" in joined.stderr


def test_a_second_run_does_not_join_again(machine: Machine) -> None:
    assert machine.join().returncode == 0
    assert machine.join().returncode == 0
    assert len(machine.calls("kubeadm")) == 1


def test_a_run_after_one_that_timed_out_goes_on_waiting(machine: Machine) -> None:
    machine.set(BIGFLEET_JOIN_SECONDS=1)
    machine.registered(NOT_READY)
    assert machine.join().returncode == 71
    machine.put("node", READY)
    assert machine.join().returncode == 0
    assert len(machine.calls("kubeadm")) == 1


@pytest.mark.parametrize("gone", [True, False])
def test_a_node_of_another_cluster_leaves_that_first(machine: Machine, gone: bool) -> None:
    assert machine.join().returncode == 0
    if gone:
        (machine.fake / "node").unlink()
    joined = machine.join(BLOB if gone else OTHER)
    assert joined.returncode == 0
    assert [call.split()[1] for call in machine.calls("kubeadm")] == ["join", "reset", "join"]
    assert (machine.fake / "config").read_text() == (BLOB if gone else OTHER)


def test_the_rest_of_a_join_that_failed_is_removed_before_the_next(machine: Machine) -> None:
    rest = machine.disk / "etc" / "kubernetes" / "bootstrap-kubelet.conf"
    machine.put("kubeadm-join", f'echo "token {TOKEN}" >"{rest}"; : >"{rest}.d"; exit 1')
    assert machine.join().returncode == 70
    assert not rest.exists()
    assert machine.files_with(TOKEN) == []
    (machine.disk / "etc" / "kubernetes" / "pki").mkdir()
    (machine.disk / "etc" / "kubernetes" / "pki" / "ca.crt").touch()
    machine.put("kubeadm-join", "")
    assert machine.join().returncode == 0
    assert [call.split()[1] for call in machine.calls("kubeadm")] == ["join", "reset", "join"]


def test_a_failure_is_told_by_its_last_lines_and_without_secrets(machine: Machine) -> None:
    noise = "; ".join(f"echo noise-{number}" for number in range(50))
    machine.put(
        "kubeadm-join",
        noise,
        "cat $FAKE/config >&2",
        f"echo 'token: {TOKEN}, other zyxwvu.fedcba9876543210' >&2",
        "echo 'couldn''t reach https://10.0.0.4:6443: connection refused' >&2",
        "exit 1",
    )
    joined = machine.join()
    lines = joined.stderr.splitlines()
    assert joined.returncode == 70
    assert joined.stdout == ""
    assert lines[-1] == "bigfleet-bootstrap: kubeadm join failed with exit 1"
    assert lines[-2] == "couldnt reach https://10.0.0.4:6443: connection refused"
    assert lines[-3] == "token: ***, other ***"
    for secret in (TOKEN, "0123456789abcdef", "fedcba9876543210", "0f1e2d3c4b5a69788796"):
        assert secret not in joined.stderr
    assert "noise-40" not in joined.stderr
    assert len(joined.stderr) < 1000


def test_a_join_that_hangs_is_ended(machine: Machine) -> None:
    machine.set(BIGFLEET_JOIN_SECONDS=1)
    machine.put("kubeadm-join", "while :; do sleep 1; done")
    began = time.monotonic()
    joined = machine.join()
    assert joined.returncode == 70
    assert "did not end within 1 s" in joined.stderr
    assert time.monotonic() - began < 8


def test_a_script_is_run_by_what_its_first_line_names(machine: Machine) -> None:
    machine.put("node", READY)
    joined = machine.join(SCRIPT.replace("bash\n", "-S bash -e\n", 1))
    assert joined.returncode == 0, joined.stderr
    name, options = (machine.fake / "ran").read_text().split()
    assert name == str(machine.memory / "blob")
    assert "e" in options
    assert machine.calls("kubeadm") == []


def test_a_script_that_fails_is_told_without_what_stands_in_it(machine: Machine) -> None:
    secret = "correct-horse-battery-staple"
    joined = machine.join(f"#!/bin/sh\nset -x\nlogin --password={secret}\nexit 7\n")
    assert joined.returncode == 70
    assert secret not in joined.stderr
    assert joined.stderr.splitlines()[-1].endswith("the script failed with exit 7")


def test_a_script_that_leaves_no_kubeconfig_is_not_believed(machine: Machine) -> None:
    joined = machine.join("#!/bin/sh\nexit 0\n")
    assert joined.returncode == 70
    assert "BIGFLEET_NODE_KUBECONFIG" in joined.stderr


def test_another_kubeconfig_can_be_named(machine: Machine) -> None:
    path = machine.disk / "k3s.yaml"
    machine.set(BIGFLEET_NODE_KUBECONFIG=path)
    machine.put("node", READY)
    assert machine.join(f"#!/bin/sh\n: >{path}\n").returncode == 0
    assert all(f"--kubeconfig {path}" in call for call in machine.calls("kubectl"))


@pytest.mark.parametrize(
    ("blob", "code"),
    [
        ("", 66),
        ("kind: ClusterConfiguration\n", 65),
        ("# kind of JoinConfiguration\n", 65),
        ("#!\n", 65),
        (b"\0\xff" * 100, 65),
    ],
)
def test_what_is_no_blob_is_refused(machine: Machine, blob: str | bytes, code: int) -> None:
    assert machine.join(blob).returncode == code
    assert machine.calls("kubeadm") == []


def test_a_blob_on_a_disk_is_refused(machine: Machine) -> None:
    # A stand-in, since the folder of a test may be in memory itself.
    machine.remove("stat")
    machine.stand_in("stat", "echo ext2/ext3")
    joined = machine.join()
    assert joined.returncode == 66
    assert "memory file system" in joined.stderr
    assert machine.run(str(machine.disk / "nothing")).returncode == 66


@pytest.mark.parametrize(
    "arguments", [[], [""], ["--drain"], ["--drain", "--grace=x"], ["--grace=5"], ["--help"]]
)
def test_other_arguments_are_refused(machine: Machine, arguments: list[str]) -> None:
    refused = machine.run(*arguments)
    assert refused.returncode == 64
    assert "usage" in refused.stderr


def test_cloud_init_is_waited_for_and_asked_why_a_program_is_missing(machine: Machine) -> None:
    machine.remove("kubeadm")
    machine.stand_in("cloud-init", "echo status: error")
    joined = machine.join()
    assert joined.returncode == 69
    assert "kubeadm is not installed; cloud-init: status: error" in joined.stderr
    assert machine.calls()[0] == "cloud-init status --wait"


def test_what_the_hook_says_reaches_the_last_error(machine: Machine) -> None:
    machine.put("kubeadm-join", "echo the cluster is full >&2", "exit 1")
    text = guest_script.configure_script(
        hook=str(machine.hook),
        blob="a2luZDogSm9pbkNvbmZpZ3VyYXRpb24K",
        machine_id="m-1",
        operation_id="op-a1-5",
        deadline=time.time() + 60,
    )
    text = text.replace(guest_script.STATE_FILE, str(machine.disk / "operations"))
    text = text.replace(f"'{guest_script.MEMORY_PLACES}'", f"'{machine.memory}'")
    script = machine.disk / "script.sh"
    script.write_text(text)
    script.chmod(0o700)
    machine.hook, hook = script, machine.hook
    ran = machine.run()
    assert hook.exists()
    assert ran.returncode == 70
    assert ran.stderr.splitlines()[-4:] == [
        "the cluster is full",
        "bigfleet-bootstrap: kubeadm join failed with exit 1",
        "",
        "bigfleet machine=m-1 operation=op-a1-5 result=failed exit=70: the hook failed",
    ]
    assert list(machine.memory.iterdir()) == []
