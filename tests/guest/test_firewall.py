"""The firewall of the bootstrap hook, with a real iptables in network namespaces of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.guest.machines import PROGRAM, Machine
from tests.support.tools import require_tool

pytestmark = [pytest.mark.deploy, pytest.mark.process]

_NETWORK = """
set -eu
ip link set lo up
mount -t tmpfs tmpfs /run
mkdir /run/netns
for name in pod azure; do
    ip netns add $name
    ip link add $name type veth peer name eth0 netns $name
    ip link set $name up
    ip -n $name link set eth0 up
done
ip addr add 10.1.0.1/24 dev pod
ip -n pod addr add 10.1.0.2/24 dev eth0
ip -n pod route add default via 10.1.0.1
ip addr add 168.63.129.1/24 dev azure
ip -n azure addr add 168.63.129.16/24 dev eth0
ip -n azure route add default via 168.63.129.1
echo 1 >/proc/sys/net/ipv4/ip_forward
for port in 80 32526 8080; do ip netns exec azure $PYTHON -c "$SERVE" $port & done
for _ in $(seq 50); do
    if [ "$($PYTHON -c "$REACH" | wc -l)" = 3 ]; then break; fi
    sleep 0.1
done
"""
"""A machine between a pod and the wire server, which serves one port more than is closed."""

_SERVE = """
import socket, sys
server = socket.create_server(("168.63.129.16", int(sys.argv[1])))
server.settimeout(60)
while True:
    server.accept()[0].close()
"""

_REACH = """
import socket, sys
for port in (80, 32526, 8080):
    try:
        socket.create_connection(("168.63.129.16", port), timeout=0.5).close()
        print(port)
    except OSError:
        pass
"""


@pytest.fixture
def inside() -> list[str]:
    """What starts a shell in new namespaces, and ends all that it started."""
    for tool in ("iptables", "ip"):
        require_tool(tool)
    command = [str(require_tool("unshare")), "--net", "--mount", "--pid", "--fork", "--kill-child"]
    tried = subprocess.run([*command, "true"], capture_output=True, check=False)
    if tried.returncode:
        absent = pytest.fail if os.environ.get("REQUIRE_TOOLS") == "1" else pytest.skip
        absent(f"no network namespaces here: {tried.stderr.decode().strip()}")
    return [*command, str(require_tool("bash")), "-c"]


def run(inside: list[str], script: str, hook: Path) -> list[str]:
    ended = subprocess.run(
        [*inside, _NETWORK + script],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHON": sys.executable,
            "SERVE": _SERVE,
            "REACH": _REACH,
            "HOOK": str(hook),
        },
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.split()


def test_pods_do_not_reach_the_wire_server_and_the_machine_does(inside: list[str]) -> None:
    script = """
    pod() { ip netns exec pod $PYTHON -c "$REACH"; }
    pod; echo before
    bash $HOOK --firewall; bash $HOOK --firewall
    pod; echo after
    # What a network may write later comes behind it.
    iptables -I FORWARD -j ACCEPT; iptables -F FORWARD
    pod; echo again
    $PYTHON -c "$REACH"; echo machine
    iptables -t mangle -S FORWARD | grep -c 168.63.129.16
    """
    assert run(inside, script, PROGRAM) == [
        *("80", "32526", "8080", "before", "8080", "after", "8080", "again"),
        *("80", "32526", "8080", "machine", "2"),
    ]


def test_a_drain_removes_the_networks_rules_and_links_only(
    inside: list[str], machine: Machine
) -> None:
    for name in ("ip", "iptables", "iptables-save", "iptables-restore"):
        machine.remove(name)
        (machine.tools / name).symlink_to(require_tool(name))
    assert (machine.disk / "etc" / "kubernetes").exists()
    (machine.disk / "etc" / "kubernetes" / "kubelet.conf").touch()
    environment = " ".join(f"{key}={value}" for key, value in machine.environment().items())
    script = f"""
    env {environment} {machine.hook} --firewall
    iptables -N KUBE-FORWARD; iptables -A FORWARD -j KUBE-FORWARD
    iptables -t nat -N CNI-HOSTPORT-MASQ; iptables -t nat -A POSTROUTING -j CNI-HOSTPORT-MASQ
    iptables -A INPUT -s 10.9.9.9 -j DROP
    ip link add cni0 type bridge; ip link add other0 type bridge
    env {environment} {machine.hook} --drain --grace=0 2>/dev/null
    iptables-save | grep -cE 'KUBE|CNI' || true
    iptables-save | grep -cE '168.63.129.16|10.9.9.9'
    ip -o link | grep -oE 'cni0|other0'
    """
    assert run(inside, script, machine.hook) == ["0", "3", "other0"]
