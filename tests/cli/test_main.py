"""Which command an argument list means, what it says, and how the program ends."""

import json
import os
import re
import subprocess
import sys

import pytest

from bigfleet_azure import __version__
from bigfleet_azure.cli.exits import Exit
from bigfleet_azure.cli.main import main
from bigfleet_azure.daemon import app
from bigfleet_azure.daemon.options import OPTIONS
from bigfleet_azure.store.base import StoreUnusable


@pytest.fixture
def served(monkeypatch):
    """Takes the daemon's place; holds the settings it was started with."""
    started = []

    def run(settings):
        started.append(settings)
        return 0

    monkeypatch.setattr(app, "run", run)
    for name in os.environ:
        if name.startswith("BIGFLEET_AZURE_"):
            monkeypatch.delenv(name)
    return started


@pytest.fixture
def fails(monkeypatch):
    """Makes the daemon's start fail."""

    def fail_with(error):
        def run(_):
            raise error

        monkeypatch.setattr(app, "run", run)

    return fail_with


@pytest.mark.behaviour(90)
@pytest.mark.parametrize(
    "argv",
    [
        ["--seed-count", "7"],
        ["-seed-count=7"],
        ["serve", "--seed-count", "7"],
        ["serve", "-seed-count=7"],
    ],
)
def test_bare_flags_mean_serve(served, argv):
    assert main(argv) == Exit.OK
    assert served[0].seed_count == 7


def test_no_argument_at_all_means_serve_with_the_defaults(served):
    assert main([]) == Exit.OK
    assert served[0].seed_count == 32


def test_serve_reads_the_environment_and_the_file(served, monkeypatch, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text("provider: grün\nlog-level: debug\n", encoding="utf-8")
    monkeypatch.setenv("BIGFLEET_AZURE_CONFIG", str(path))
    monkeypatch.setenv("BIGFLEET_AZURE_PROVIDER", "blue")
    assert main([]) == Exit.OK
    assert (served[0].provider, served[0].log_level) == ("blue", "debug")


@pytest.mark.behaviour(87, 93)
def test_serve_names_every_fault_and_does_not_start(served, capsys):
    assert main(["--tls-ca=ca.pem", "--seed-count=x"]) == Exit.USAGE
    assert served == []
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "Error: --seed-count=x is not a whole number such as 32",
        "Error: --tls-ca=ca.pem cannot be used without --tls-cert and --tls-key; give none of "
        "the three for plaintext, cert and key for TLS, all three for mutual TLS",
        "`bigfleet-azure serve --help` explains every flag.",
    ]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (app.CannotListen(":9000 is taken"), Exit.CANNOT_LISTEN),
        (app.StartError("ca.pem cannot be read"), Exit.USAGE),
        (StoreUnusable("state.db is damaged"), Exit.STATE_UNUSABLE),
    ],
)
def test_a_start_that_fails_is_one_line_and_a_documented_code(fails, capsys, error, code):
    fails(error)
    assert main(["--use-fake-backend"]) == code
    assert capsys.readouterr().err == f"Error: {error}\n"


def test_a_bug_shows_its_trace(fails):
    fails(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        main(["--use-fake-backend"])


@pytest.mark.behaviour(93)
def test_faults_of_the_offerings_file_are_listed_one_a_line(capsys, tmp_path):
    path = tmp_path / "o.json"
    path.write_text('[{"vm_size": "nonsense", "count": -1}]')
    assert main(["--use-fake-backend", f"--offerings={path}"]) == Exit.USAGE
    assert capsys.readouterr().err.splitlines() == [
        f"Error: {path}: [0].zone: is required",
        f"Error: {path}: [0].count: must be 0 or more",
        f"Error: {path}: [0].vm_size: 'nonsense' is not an Azure VM size such as Standard_D4s_v5",
    ]


@pytest.mark.parametrize("flag", ["--version", "-version"])
def test_the_version_is_printed(capsys, flag):
    assert main([flag]) == Exit.OK
    assert capsys.readouterr().out == f"bigfleet-azure {__version__}\n"


@pytest.mark.parametrize(
    "argv", [["serve", "--help"], ["--seed-count=3", "-h"], ["serve", "-help"]]
)
def test_the_help_of_serve_names_every_option_with_default_and_variable(served, capsys, argv):
    assert main(argv) == Exit.OK
    assert served == []
    text = " ".join(capsys.readouterr().out.split())
    for option in OPTIONS:
        if not option.env_only:
            assert f" --{option.name} {option.metavar}".rstrip() in text
        assert f"${option.env} " in f"{text} "
        default = option.derived or option.default
        assert f"Default: {default}." in text or not default
    assert "--state-key " not in text


def test_the_help_of_serve_fits_the_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    main(["serve", "--help"])
    described = capsys.readouterr().out.split("\n\nServing:")[1]
    assert max(map(len, described.splitlines())) <= 60


@pytest.mark.parametrize("flag", ["--help", "-h", "-help"])
def test_help_names_every_command(capsys, flag):
    assert main([flag]) == Exit.OK
    text = capsys.readouterr().out
    for command in ("serve", "machines", "offerings", "state", "--version"):
        assert command in text


@pytest.mark.parametrize(
    "command",
    [
        ["machines"],
        *(
            ["machines", name]
            for name in ("list", "get", "create", "configure", "drain", "delete", "watch")
        ),
        ["offerings"],
        ["offerings", "check"],
        ["state"],
        *(["state", name] for name in ("show", "backup", "verify")),
    ],
    ids=" ".join,
)
def test_every_command_explains_itself(capsys, command):
    assert main([*command, "--help"]) == Exit.OK
    assert f"Usage: bigfleet-azure {' '.join(command)} " in capsys.readouterr().out


def test_an_unknown_command_is_a_usage_fault(capsys):
    assert main(["mashines"]) == Exit.USAGE
    assert "No such command 'mashines'" in capsys.readouterr().err


def test_exit_codes_are_distinct_and_explained():
    assert len({int(code) for code in Exit}) == len(Exit) == len(Exit.__members__)
    assert all(code.meaning.endswith(".") for code in Exit)
    assert json.dumps(Exit.USAGE) == "2"


# The process


def run_process(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.process
def test_python_dash_m_ends_with_the_documented_code():
    done = run_process("-m", "bigfleet_azure", "--addr=9000")
    assert done.returncode == Exit.USAGE
    assert done.stderr.startswith("Error: --addr=9000 has no port")


@pytest.mark.process
def test_tls_13_is_required_before_anything_can_import_grpc():
    code = (
        "import sys, os; import bigfleet_azure.__main__;"
        "print('grpc' in sys.modules, os.environ['GRPC_SSL_CIPHER_SUITES'])"
    )
    done = run_process("-c", code, GRPC_SSL_CIPHER_SUITES="anything")
    assert re.fullmatch(r"False ECDHE-PSK-\S+\n", done.stdout), done.stderr


@pytest.mark.process
def test_the_start_of_the_daemon_does_not_pay_for_the_tools_beside_it():
    code = (
        "import sys, bigfleet_azure.daemon.app as app;"
        "app.run = lambda settings: 0;"
        "import bigfleet_azure.__main__ as m; m.main(['--use-fake-backend']);"
        "print(sorted({'click', 'rich', 'yaml', 'pydantic', 'bigfleet_azure.cli.commands'}"
        " & sys.modules.keys()))"
    )
    done = run_process("-c", code)
    assert done.stdout == "[]\n", done.stderr
