"""Kubeconfig files: names, faults, and what of them may be seen."""

import base64
import os

import pytest

from bigfleet_azure.backends.azure import kubeconfig
from tests.support.kube.objects import write_kubeconfig

SERVER = "https://127.0.0.1:1"


@pytest.fixture
def scratch(tmp_path):
    made = tmp_path / "scratch"
    made.mkdir()
    return made


def read_fault(path, scratch) -> str:
    with pytest.raises(kubeconfig.Unusable) as caught:
        kubeconfig.read(path, scratch)
    return str(caught.value)


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "/etc/passwd", "../x", "a\0b"])
def test_what_is_no_plain_file_name_is_refused(name):
    assert "no plain file name" in kubeconfig.name_fault(name)


@pytest.mark.parametrize("name", ["prod", "prod.eu-1", "a b", "a..b"])
def test_plain_file_names_are_taken(name):
    assert kubeconfig.name_fault(name) == ""


def test_a_missing_file_is_named(tmp_path, scratch):
    path = tmp_path / "prod"
    assert read_fault(path, scratch) == f"{path} cannot be read: No such file or directory"


def test_a_broken_file_is_told_by_its_line_and_not_by_what_is_in_it(tmp_path, scratch):
    path = tmp_path / "prod"
    path.write_text("users:\n- token: hunter2\n  [", encoding="utf-8")
    said = read_fault(path, scratch)
    assert said == "it is no YAML at line 3"
    assert "hunter2" not in said


@pytest.mark.parametrize("content", ["", "[]", "text", "1"])
def test_a_file_that_is_something_else_is_refused(tmp_path, scratch, content):
    path = tmp_path / "prod"
    path.write_text(content, encoding="utf-8")
    assert "current-context" in read_fault(path, scratch)


def test_a_file_of_other_bytes_is_refused(tmp_path, scratch):
    path = tmp_path / "prod"
    path.write_bytes(b"\xff\xfe")
    assert read_fault(path, scratch) == f"{path} is not UTF-8"


@pytest.mark.parametrize("kind", ["context", "cluster", "user"])
def test_a_part_that_is_named_and_not_there_is_named(tmp_path, scratch, kind):
    path = write_kubeconfig(tmp_path / "prod", SERVER, {"token": "t"})
    path.write_text(path.read_text().replace(f'"{kind}s": [', f'"{kind}s": [], "x": ['))
    assert read_fault(path, scratch) in (f"it has no {kind} called it", "it has no user called me")


@pytest.mark.parametrize("program", ["exec", "auth-provider"])
def test_no_program_is_run_for_a_kubeconfig(tmp_path, scratch, program):
    path = write_kubeconfig(tmp_path / "prod", SERVER, {program: {"command": "touch"}})
    assert f"let in by `{program}`, and no program is run" in read_fault(path, scratch)


def test_a_cluster_without_a_server_is_refused(tmp_path, scratch):
    path = write_kubeconfig(tmp_path / "prod", SERVER, {"token": "t"})
    path.write_text(path.read_text().replace("server", "sever"))
    assert read_fault(path, scratch) == "its cluster has no server"


def test_a_token_file_is_read_as_it_is_now_and_without_its_line_end(tmp_path, scratch):
    (tmp_path / "token").write_text("abc\n", encoding="utf-8")
    path = write_kubeconfig(tmp_path / "prod", SERVER, {"tokenFile": "token"})
    read = kubeconfig.read(path, scratch)
    assert read.document["users"][0]["user"] == {"token": "abc"}
    assert read.files == (path, tmp_path / "token")


def test_keys_in_the_file_are_written_where_only_we_can_read(tmp_path, scratch):
    key = base64.b64encode(b"key").decode()
    path = write_kubeconfig(tmp_path / "prod", SERVER, {"client-key-data": key})
    user = kubeconfig.read(path, scratch).document["users"][0]["user"]
    written = scratch / "client-key"
    assert user == {"client-key": str(written)}
    assert written.read_bytes() == b"key"
    assert written.stat().st_mode & 0o777 == 0o600


def test_data_that_is_not_base64_is_refused_without_showing_it(tmp_path, scratch):
    path = write_kubeconfig(tmp_path / "prod", SERVER, {"client-key-data": "hunte"})
    assert read_fault(path, scratch) == "its client-key-data is not base64"


def change_in_place(folder):
    (folder / "prod").write_text("other", encoding="utf-8")


def change_by_replacing(folder):
    write_kubeconfig(folder / "prod", SERVER, {"token": "u"})


def change_the_token(folder):
    (folder / "token").write_text("defg", encoding="utf-8")


def change_by_removing(folder):
    (folder / "prod").unlink()


@pytest.mark.parametrize(
    "change", [change_in_place, change_by_replacing, change_the_token, change_by_removing]
)
def test_every_change_of_the_file_and_of_what_it_names_is_seen(tmp_path, scratch, change):
    (tmp_path / "token").write_text("abc", encoding="utf-8")
    path = write_kubeconfig(tmp_path / "prod", SERVER, {"tokenFile": "token"})
    read = kubeconfig.read(path, scratch)
    assert kubeconfig.stamp(read.files) == read.stamp
    change(tmp_path)
    assert kubeconfig.stamp(read.files) != read.stamp


def test_a_mounted_secret_that_is_swapped_by_its_link_is_seen(tmp_path, scratch):
    for name in ("..1", "..2"):
        (tmp_path / name).mkdir()
        write_kubeconfig(tmp_path / name / "prod", SERVER, {"token": "t"})
    (tmp_path / "..data").symlink_to("..1")
    path = tmp_path / "prod"
    path.symlink_to("..data/prod")
    read = kubeconfig.read(path, scratch)
    (tmp_path / "..new").symlink_to("..2")
    os.replace(tmp_path / "..new", tmp_path / "..data")  # noqa: PTH105
    assert kubeconfig.stamp(read.files) != read.stamp
