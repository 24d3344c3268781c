"""A machine with the bootstrap hook: its disk in a folder, its programs stand-ins that log calls.

The stand-ins are the only programs by these names that the hook can find here, so that no test can
touch the machine it runs on. The text of the hook is its own but for the beginnings of paths.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.tools import ROOT, require_tool

PROGRAM = ROOT / "deploy" / "bootstrap" / "bootstrap"
NODE = os.uname().nodename.lower()

TOKEN = "abcdef.0123456789abcdef"
BLOB = f"""\
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken:
    apiServerEndpoint: 10.0.0.4:6443
    token: {TOKEN}
    caCertHashes: ["sha256:0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0"]
"""

_TOOLS = (
    *("awk", "base64", "bash", "cat", "chmod", "cp", "cut", "date", "env", "flock", "grep"),
    *("head", "mkdir", "mktemp", "mv", "rm", "sed", "sh", "sha256sum", "stat", "tail", "timeout"),
    *("touch", "tr", "true", "uname"),
)
_PATH_LINE = "export PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"

_KUBECTL = r"""
[ ! -e "$FAKE/no-api" ] || { echo "dial tcp 10.0.0.4:6443: connection refused" >&2; exit 1; }
while [ "${1#--}" != "$1" ]; do
    if [ "$1" = --kubeconfig ]; then [ -e "$2" ] || exit 1; fi
    shift 2
done
case "$1 $2 $*" in
    "get pods "*) cat "$FAKE/pods"; exit ;;
    "create --raw "*)
        name=${3%/eviction} name=${name##*/}
        printf '%s\n' "$(cat)" >>"$FAKE/evictions"
        [ ! -e "$FAKE/budget-$name" ] || { echo "would violate the budget" >&2; exit 1; }
        flock "$FAKE" sed -i "/ $name /d" "$FAKE/pods"; exit ;;
    "delete pod "*) flock "$FAKE" sed -i "/ $5 /d" "$FAKE/pods"; exit ;;
    "patch --local "*) cat; exit ;;
    "replace --raw "*) cat >"$FAKE/status"; exit ;;
esac
[ -e "$FAKE/node" ] || { echo "Error from server (NotFound): nodes \"$3\" not found" >&2; exit 1; }
case $* in
    *jsonpath=*)
        # Each line is one answer; the last one stays.
        head -n 1 "$FAKE/node" | sed "s/NOW/$(date -u +%Y-%m-%dT%H:%M:%SZ)/"
        if [ "$(grep -c . "$FAKE/node")" -gt 1 ]; then sed -i 1d "$FAKE/node"; fi ;;
    *"-o json"*) echo "{\"kind\":\"Node\"}" ;;
esac
"""

_KUBEADM = r"""
case $1 in
    join) cp "$3" "$FAKE/config" 2>/dev/null || cat "$3" >"$FAKE/config"
        [ ! -e "$FAKE/kubeadm-join" ] || . "$FAKE/kubeadm-join"
        : >"$DISK/etc/kubernetes/kubelet.conf"
        cat "$FAKE/registered" >"$FAKE/node" ;;
    reset) [ ! -e "$FAKE/kubeadm-reset" ] || . "$FAKE/kubeadm-reset"
        rm -f "$DISK/etc/kubernetes/kubelet.conf" "$DISK/etc/kubernetes/bootstrap-kubelet.conf" ;;
esac
"""

_IPTABLES = r"""
rule=${*#*-[CI] }
case $* in
    *" -C "*) grep -qxF -- "$rule" "$FAKE/rules" ;;
    *" -I "*) [ ! -e "$FAKE/no-netfilter" ] || { echo "no netfilter" >&2; exit 3; }
        printf "%s\n" "$rule" >>"$FAKE/rules" ;;
esac
"""

_STAND_INS = {
    "kubectl": _KUBECTL,
    "kubeadm": _KUBEADM,
    "iptables": _IPTABLES,
    "iptables-save": 'cat "$FAKE/saved" 2>/dev/null',
    "iptables-restore": 'cat >"$FAKE/restored"',
    "ip6tables-save": "",
    "ip6tables-restore": "cat >/dev/null",
    "ip": 'case $* in "-o link") cat "$FAKE/links" ;; esac',
    "nft": "",
    "systemctl": "",
    "cloud-init": 'echo "status: ${CLOUD_INIT:-done}"',
    "sleep": f"exec {shutil.which('sleep')} 0.05",
}

READY = "True|NOW|KubeletReady: kubelet is posting ready status"
NOT_READY = (
    "False|NOW|KubeletNotReady: container runtime network not ready: cni plugin not initialized"
)


class Machine:
    """One machine.

    Attributes:
        disk: what is on it; `/etc` and others below it.
        memory: a folder in a real memory file system.
        fake: what the stand-ins know and keep.
    """

    def __init__(self, folder: Path, memory: Path) -> None:
        self.disk = folder / "disk"
        self.memory = memory
        self.fake = folder / "fake"
        self.tools = folder / "tools"
        for made in (self.disk / "etc" / "kubernetes", self.disk / "run", self.fake, self.tools):
            made.mkdir(parents=True)
        for name in _TOOLS:
            (self.tools / name).symlink_to(require_tool(name))
        for name, body in _STAND_INS.items():
            self.stand_in(name, body)
        self.registered(NOT_READY, READY)
        (self.fake / "rules").touch()
        (self.fake / "links").touch()
        (self.fake / "pods").touch()
        self.hook = folder / "bootstrap"
        self.hook.write_text(self._text())
        self.hook.chmod(0o755)

    def stand_in(self, name: str, body: str) -> None:
        """Put a program into the machine that logs its arguments."""
        path = self.tools / name
        head = "" if name == "sleep" else f'echo {name} "$@" >>"$FAKE/calls"\n'
        path.write_text(f"#!{require_tool('sh')}\n{head}{body}\n")
        path.chmod(0o755)

    def remove(self, name: str) -> None:
        """Take a program out of the machine."""
        (self.tools / name).unlink()

    def registered(self, *answers: str) -> None:
        """What the Ready condition is after a join, one answer after the other."""
        self.put("registered", *answers)

    def put(self, name: str, *lines: str) -> None:
        """Give the stand-ins something to know."""
        (self.fake / name).write_text("".join(f"{line}\n" for line in lines))

    def set(self, **settings: object) -> None:
        """Write the hook's settings."""
        path = self.disk / "etc" / "bigfleet" / "bootstrap.env"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def join(self, blob: str | bytes = BLOB) -> subprocess.CompletedProcess[str]:
        """The hook with a blob in memory."""
        path = self.memory / "blob"
        path.write_bytes(blob.encode() if isinstance(blob, str) else blob)
        try:
            return self.run(str(path))
        finally:
            path.unlink()

    def drain(self, grace: int = 30) -> subprocess.CompletedProcess[str]:
        return self.run("--drain", f"--grace={grace}")

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """The hook, or another program of the machine's when the first argument is a path of it."""
        return subprocess.run(
            [str(self.hook), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=self.environment() | environment,
            cwd=self.disk,
        )

    def environment(self) -> dict[str, str]:
        return {"PATH": str(self.tools), "FAKE": str(self.fake), "DISK": str(self.disk)}

    def calls(self, *names: str) -> list[str]:
        """What was called, of these programs or of all."""
        path = self.fake / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if not names or line.split()[0] in names]

    def changes(self) -> list[str]:
        """Calls of kubeadm and kubectl that change something, without flags of the connection."""
        kubectl = (
            f"kubectl --kubeconfig {self.disk}/etc/kubernetes/kubelet.conf --request-timeout 10s "
        )
        lines = [line.replace(kubectl, "") for line in self.calls("kubectl", "kubeadm")]
        return [line for line in lines if not line.startswith(("get ", "patch --local"))]

    def files_with(self, text: str) -> list[str]:
        """Files of disk and memory that hold `text`."""
        found = [*self.disk.rglob("*"), *self.memory.rglob("*")]
        return [str(path) for path in found if path.is_file() and text in path.read_text()]

    def _text(self) -> str:
        text = PROGRAM.read_text()
        assert text.count(_PATH_LINE) == 1
        text = text.replace(_PATH_LINE, "")
        rest = text.partition("\n")[2]
        for place in ("etc", "run", "var", "opt"):
            rest = rest.replace(f"/{place}/", f"{self.disk}/{place}/")
        return f"#!{require_tool('bash')}\n{rest}"


@contextmanager
def memory_folder() -> Iterator[Path]:
    """A folder in a memory file system."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="bigfleet-test-") as folder:
        yield Path(folder)
