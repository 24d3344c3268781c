"""The script that runs the hook in the guest, run for real by the shells that guests have."""

import base64
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bigfleet_azure.backends.azure import guest_script
from tests.support.tools import require_tool

SECRET = b"apiVersion: v1\nsecret-\xff" + os.urandom(3000).hex().encode() + b"\nend without newline"
SHELLS = ["/bin/sh", "dash", "bash"]
WAIT = """\
touch "$DISK/started"; n=0
until [ -e "$DISK/go" ] || [ $n -gt 999 ]; do n=$((n+1)); sleep 0.02; done
"""
"""A hook that goes on when told, and not for ever when nobody tells it."""


class Guest:
    """A guest's disk and memory, in directories of their own.

    Attributes:
        hook: the program in the image; not there until `install`.
        kept: where a hook may put what it got.
    """

    def __init__(self, disk: Path, memory: Path, shell: str) -> None:
        self.disk = disk
        self.memory = memory
        self.shell = shell
        self.hook = disk / "opt" / "it's a `hook` $HOME"
        self.kept = disk / "kept"
        self.state = disk / "state" / "operations"
        self.script = disk / "script.sh"

    def install(self, body: str, *, mode: int = 0o755) -> None:
        """Put a hook into the image; it counts its runs."""
        self.hook.parent.mkdir(exist_ok=True)
        self.hook.write_text(f'#!/bin/sh\necho run >>"{self.disk}/runs"\n{body}\n')
        self.hook.chmod(mode)

    @property
    def runs(self) -> int:
        runs = self.disk / "runs"
        return len(runs.read_text().splitlines()) if runs.exists() else 0

    def configure(
        self, operation: str = "op-a1-5", *, late: float = -60, blob: bytes = SECRET
    ) -> subprocess.CompletedProcess[str]:
        return self.run(self.configure_text(operation, late=late, blob=blob))

    def configure_text(
        self, operation: str = "op-a1-5", *, late: float = -60, blob: bytes = SECRET
    ) -> str:
        return guest_script.configure_script(
            hook=str(self.hook),
            blob=base64.b64encode(blob).decode(),
            machine_id="m-1",
            operation_id=operation,
            deadline=time.time() - late,
        )

    def drain(self, operation: str, grace: int = 30) -> subprocess.CompletedProcess[str]:
        return self.run(
            guest_script.drain_script(
                hook=str(self.hook),
                grace_seconds=grace,
                machine_id="m-1",
                operation_id=operation,
                deadline=time.time() + 60,
            )
        )

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        with self.start(text) as running:
            stdout, stderr = running.communicate(timeout=30)
        return subprocess.CompletedProcess([], running.returncode, stdout, stderr)

    @contextmanager
    def start(self, text: str) -> "Iterator[subprocess.Popen[str]]":
        """The script, running; it ends with the block at the latest."""
        for original, here in (
            (guest_script.STATE_FILE, str(self.state)),
            (guest_script.MEMORY_PLACES, str(self.memory)),
        ):
            assert text.count(original) <= 1
            text = text.replace(original, here)
        self.script.write_text(text)
        self.script.chmod(0o500)
        typed = self.disk / "typed"
        typed.write_text("something to read")
        with (
            typed.open() as stdin,
            subprocess.Popen(
                [self.shell, str(self.script)],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={"PATH": os.environ["PATH"], "KEPT": str(self.kept), "DISK": str(self.disk)},
                cwd=self.disk,
            ) as running,
        ):
            try:
                yield running
            finally:
                running.kill()

    def left_in_memory(self) -> list[str]:
        return [path.name for path in self.memory.iterdir()]


def is_memory(path: Path) -> bool:
    asked = subprocess.run(
        ["stat", "-f", "-c", "%T", str(path)], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() in ("tmpfs", "ramfs")


@pytest.fixture(params=SHELLS)
def guest(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Guest]:
    if not is_memory(Path("/dev/shm")):
        pytest.skip("/dev/shm is no memory file system here")
    memory = Path(tempfile.mkdtemp(dir="/dev/shm"))
    try:
        yield Guest(tmp_path, memory, str(require_tool(request.param)))
    finally:
        shutil.rmtree(memory)


def result_of(done: subprocess.CompletedProcess[str]) -> str:
    """The result named in the last line, which is the same as the exit code says."""
    last = done.stderr.rstrip("\n").splitlines()[-1]
    words = dict(word.split("=", 1) for word in last.split(":")[0].split() if "=" in word)
    assert last.startswith("bigfleet ")
    assert words["machine"] == "m-1"
    assert int(words["exit"]) == done.returncode
    return words["result"]


@pytest.mark.parametrize(
    "blob", [SECRET, b"", bytes(range(256)) * 700], ids=["text", "no", "large"]
)
def test_the_hook_gets_the_blob_byte_for_byte(guest: Guest, blob: bytes) -> None:
    guest.install('[ $# -eq 1 ] && cp "$1" "$KEPT"')
    done = guest.configure(blob=blob)
    assert (done.returncode, result_of(done)) == (0, "succeeded")
    assert guest.kept.read_bytes() == blob


def test_drain_tells_the_grace_and_needs_no_memory(guest: Guest) -> None:
    guest.install('echo "$# $*" >"$KEPT"')
    done = guest.drain("op-a1-6", grace=120)
    assert (done.returncode, result_of(done)) == (0, "succeeded")
    assert guest.kept.read_text() == "2 --drain --grace=120\n"


@pytest.mark.behaviour(69)
def test_while_the_hook_runs_the_secret_is_in_memory_and_nowhere_else(guest: Guest) -> None:
    needle, encoded = "mysecretneedle77", base64.b64encode(b"mysecretneedle77").decode()[:-4]
    guest.install(
        f"""cd /
        [ "$(stat -f -c %T "$1")" = tmpfs ] || echo "not in memory" >>"$KEPT"
        [ "$(stat -c %a "$1") $(stat -c %a "${{1%/*}}")" = "600 700" ] || echo open >>"$KEPT"
        printf '%s\\n' {needle[:8]}.{needle[9:]} {encoded[:8]}.{encoded[9:]} >"$DISK/patterns"
        for each in /proc/[0-9]*/cmdline /proc/[0-9]*/environ; do
            tr '\\0' '\\n' <"$each" 2>/dev/null >"$DISK/words" || continue
            ! grep -f "$DISK/patterns" "$DISK/words" >>"$KEPT" || echo "$each" >>"$KEPT"
            rm "$DISK/words"
        done
        grep -rl -f "$DISK/patterns" "$DISK" --exclude=patterns --exclude-dir=opt >>"$KEPT"
        ls -A "${{1%/*}}" >"$DISK/listed"
        cp "$1" "$DISK/copy"
        """
    )
    assert guest.configure(blob=f"token {needle}\n".encode() * 300).returncode == 0
    assert guest.kept.read_text() == ""
    assert (guest.disk / "listed").read_text() == "blob\n"
    assert needle in (guest.disk / "copy").read_text()


@pytest.mark.behaviour(69)
@pytest.mark.parametrize(
    "body", ["exit 0", "exit 3", "kill -9 $$", 'rm "$1"', 'mkdir "$1.d"; echo x >"$1.d/y"']
)
def test_nothing_is_left_of_the_secret_however_the_hook_ends(guest: Guest, body: str) -> None:
    guest.install(body)
    guest.configure()
    assert guest.left_in_memory() == []
    assert not guest.script.exists()
    piece = base64.b64encode(SECRET)[100:140]
    assert [
        path for path in guest.disk.rglob("*") if path.is_file() and piece in path.read_bytes()
    ] == []


@pytest.mark.behaviour(69)
def test_the_shell_keeps_its_own_copy_of_the_secret_in_memory_too(guest: Guest) -> None:
    guest.install("exit 0")
    programs = guest.disk / "bin"
    programs.mkdir()
    real = shutil.which("base64")
    (programs / "base64").write_text(
        f'#!/bin/sh\nreadlink /proc/self/fd/0 >"$KEPT"\nexec {real} "$@"\n'
    )
    (programs / "base64").chmod(0o755)
    text = guest.configure_text(blob=os.urandom(150_000))
    done = guest.run(text.replace("set -eu\n", f'set -eu\nPATH="{programs}:$PATH"\n', 1))
    assert done.returncode == 0
    source = guest.kept.read_text()
    assert source.startswith(("pipe:", f"{guest.memory}/bigfleet."))


@pytest.mark.behaviour(69)
def test_a_refused_script_leaves_no_secret_on_the_disk_either(guest: Guest) -> None:
    guest.install("exit 0")
    assert guest.configure(late=60).returncode == 91
    assert not guest.script.exists()
    assert guest.left_in_memory() == []


def test_what_a_killed_run_left_in_memory_goes_with_the_next(guest: Guest) -> None:
    guest.install('echo $$ >"$DISK/pid.new"; mv "$DISK/pid.new" "$DISK/pid"; exec sleep 30')
    with guest.start(guest.configure_text("op-a1-5")) as running:
        wait_for(guest.disk / "pid")
        running.kill()
        os.kill(int((guest.disk / "pid").read_text()), signal.SIGKILL)
    assert len(guest.left_in_memory()) == 1
    guest.install("exit 0")
    assert guest.configure("op-a1-6").returncode == 0
    assert guest.left_in_memory() == []


def test_the_hooks_exit_code_is_passed_on_after_its_output(guest: Guest) -> None:
    guest.install(
        "i=0; while [ $i -lt 3000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done\n"
        "printf 'no newline' >&2; exit 41"
    )
    done = guest.configure()
    assert (done.returncode, result_of(done)) == (41, "failed")
    assert "out 2999" in done.stdout[-4096:]
    assert "no newline\nbigfleet " in done.stderr[-4096:]


def test_a_killed_hook_is_a_failed_one(guest: Guest) -> None:
    guest.install("kill -9 $$")
    done = guest.configure()
    assert (done.returncode, result_of(done)) == (137, "failed")


def test_a_hook_has_nothing_to_read(guest: Guest) -> None:
    guest.install('cat >"$KEPT"')
    assert guest.configure().returncode == 0
    assert guest.kept.read_bytes() == b""


@pytest.mark.parametrize(("mode", "code"), [(None, 127), (0o644, 126)])
def test_a_hook_that_is_missing_says_so_and_may_be_tried_again(
    guest: Guest, mode: int | None, code: int
) -> None:
    if mode is not None:
        guest.install("exit 0", mode=mode)
    done = guest.configure()
    assert (done.returncode, result_of(done)) == (code, "hook-missing")
    guest.install("exit 0")
    assert guest.configure().returncode == 0


def test_a_directory_is_no_hook(guest: Guest) -> None:
    guest.hook.mkdir(parents=True)
    assert guest.configure().returncode == 126


def test_after_the_deadline_the_hook_does_not_start(guest: Guest) -> None:
    guest.install("exit 0")
    done = guest.configure(late=5)
    assert (done.returncode, result_of(done)) == (91, "refused-late")
    assert guest.runs == 0


def test_a_reimaged_disk_with_the_last_script_is_stopped_by_the_deadline(guest: Guest) -> None:
    guest.install("exit 0")
    assert guest.configure().returncode == 0
    shutil.rmtree(guest.state.parent)
    assert guest.configure(late=5).returncode == 91
    assert guest.runs == 1


@pytest.mark.parametrize("code", [0, 7])
def test_a_second_run_tells_how_the_first_ended_even_late(guest: Guest, code: int) -> None:
    guest.install(f"exit {code}")
    first, second, late = guest.configure(), guest.configure(), guest.configure(late=60)
    assert first.returncode == second.returncode == late.returncode == code
    assert result_of(second) == ("failed" if code else "repeated")
    assert guest.runs == 1


@pytest.mark.parametrize("code", [0, 7])
def test_a_run_beside_the_first_waits_and_tells_how_that_ended(guest: Guest, code: int) -> None:
    guest.install(f"{WAIT}exit {code}")
    with guest.start(guest.configure_text()) as first:
        wait_for(guest.disk / "started")
        with guest.start(guest.configure_text()) as second:
            time.sleep(0.3)  # a real shell tells nobody that it waits
            assert second.poll() is None
            (guest.disk / "go").touch()
            second.communicate(timeout=30)
        first.communicate(timeout=30)
    assert first.returncode == second.returncode == code
    assert guest.runs == 1


def test_a_run_beside_the_first_waits_until_the_deadline_only(guest: Guest) -> None:
    guest.install(WAIT)
    with guest.start(guest.configure_text()) as first:
        wait_for(guest.disk / "started")
        began = time.monotonic()
        done = guest.configure(late=0)
        assert time.monotonic() - began < 10
        (guest.disk / "go").touch()
        first.communicate(timeout=30)
    assert (done.returncode, result_of(done)) == (93, "refused-interrupted")
    assert first.returncode == 0


def test_what_the_hook_leaves_running_does_not_hold_up_the_next_operation(guest: Guest) -> None:
    guest.install('sleep 20 >/dev/null 2>&1 & echo $! >"$DISK/pid"')
    assert guest.configure("op-a1-5").returncode == 0
    guest.install("exit 0")
    began = time.monotonic()
    assert guest.drain("op-a1-6").returncode == 0
    assert time.monotonic() - began < 10
    os.kill(int((guest.disk / "pid").read_text()), signal.SIGKILL)


def test_an_operation_that_began_and_did_not_end_is_not_started_twice(guest: Guest) -> None:
    guest.install("kill -9 $PPID; sleep 1")
    assert guest.configure().returncode == -signal.SIGKILL
    done = guest.configure()
    assert (done.returncode, result_of(done)) == (93, "refused-interrupted")
    assert guest.runs == 1


def test_an_older_operation_is_refused_and_newer_ones_go_on(guest: Guest) -> None:
    guest.install("exit 0")
    assert guest.configure("op-a1-9").returncode == 0
    done = guest.drain("op-a1-8")
    assert (done.returncode, result_of(done)) == (92, "refused-older")
    assert guest.drain("op-a1-10").returncode == 0
    assert guest.configure("op-a1-11").returncode == 0
    assert guest.runs == 3


def test_a_new_incarnation_is_newer_than_all_before_it(guest: Guest) -> None:
    guest.install("exit 0")
    assert guest.configure("op-a1-900").returncode == 0
    assert guest.drain("op-b2-3").returncode == 0
    done = guest.configure("op-a1-901")
    assert (done.returncode, result_of(done)) == (92, "refused-older")
    assert guest.configure("op-b2-2").returncode == 92
    assert guest.configure("op-b2-4").returncode == 0
    assert guest.state.read_text() == "op-a1 900 0\nop-b2 4 0\n"


def test_one_incarnation_is_not_taken_for_another_that_begins_alike(guest: Guest) -> None:
    guest.install("exit 0")
    for operation in ("op-a12-1", "op-a1-2", "op-a-5"):
        assert guest.configure(operation).returncode == 0
    assert guest.state.read_text() == "op-a12 1 0\nop-a1 2 0\nop-a 5 0\n"


def test_a_guest_without_memory_file_system_does_not_get_the_secret(guest: Guest) -> None:
    guest.install("exit 0")
    if is_memory(guest.disk):
        pytest.skip("there is no disk here")
    guest.memory, memory = guest.disk, guest.memory
    done = guest.configure()
    guest.memory = memory
    assert (done.returncode, result_of(done)) == (94, "no-memory")
    assert guest.runs == 0


def test_a_disk_that_cannot_remember_runs_nothing(guest: Guest) -> None:
    guest.install("exit 0")
    guest.state.parent.write_text("in the way")
    done = guest.configure()
    assert (done.returncode, result_of(done)) == (95, "broken")
    assert guest.runs == 0
    assert guest.left_in_memory() == []


def test_a_blob_that_does_not_unpack_is_not_handed_over(guest: Guest) -> None:
    guest.install("exit 0")
    text = guest.configure_text(blob=b"abcdef")
    done = guest.run(text.replace("\nYWJjZGVm\n", "\nYWJ*ZGVm\n"))
    assert (done.returncode, result_of(done)) == (95, "broken")
    assert guest.runs == 0
    assert guest.left_in_memory() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_to_the_script_waits_for_the_hook(guest: Guest, number: int) -> None:
    guest.install(f"{WAIT}exit 5")
    with guest.start(guest.configure_text()) as running:
        wait_for(guest.disk / "started")
        running.send_signal(number)
        time.sleep(0.1)  # a real shell tells nobody that it took a signal
        assert running.poll() is None
        (guest.disk / "go").touch()
        _, stderr = running.communicate(timeout=30)
    assert running.returncode == 5
    assert "result=failed exit=5" in stderr
    assert guest.left_in_memory() == []
    assert guest.configure().returncode == 5


def test_the_hook_gets_signals_as_ever(guest: Guest) -> None:
    guest.install("kill -TERM $$; exit 0")
    assert guest.configure().returncode == 128 + signal.SIGTERM


def test_shellcheck_has_nothing_to_say(tmp_path: Path) -> None:
    shellcheck = require_tool("shellcheck")
    common = {"hook": "/opt/bigfleet/bootstrap", "machine_id": "m-1", "operation_id": "op-a1-5"}
    scripts = {
        "configure.sh": guest_script.configure_script(**common, blob="QUJD", deadline=1.5),
        "drain.sh": guest_script.drain_script(**common, grace_seconds=5, deadline=1.5),
    }
    for name, text in scripts.items():
        (tmp_path / name).write_text(text)
    command = [str(shellcheck), "--shell=sh", *(str(tmp_path / name) for name in scripts)]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")


@pytest.mark.parametrize(
    "operation", ["", "op", "op-", "op-a1-5x", "op-a1-5\n", "op-a b-5", "$(x)-5"]
)
def test_an_id_that_does_not_order_is_refused(operation: str) -> None:
    with pytest.raises(ValueError, match="does not end in a number"):
        guest_script.drain_script(
            hook="/h", grace_seconds=0, machine_id="m-1", operation_id=operation, deadline=1
        )


def wait_for(path: Path) -> None:
    end = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not appear"
        time.sleep(0.01)
