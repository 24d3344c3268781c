"""What an offering's stored settings come to, and its user data, which is stored nowhere."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet_azure.backends.azure.options import VmProfile
from bigfleet_azure.backends.azure.profiles import (
    MAX_USER_DATA_BYTES,
    profile_of,
    with_user_data,
)
from bigfleet_azure.domain.errors import RETRYABLE, BackendError
from bigfleet_azure.domain.lifecycle import CapacityType
from bigfleet_azure.domain.offering import Offer

DEFAULTS = VmProfile(
    subnet_id="/subnet", tags={"Team": "a", "cost": "1"}, base_user_data=b"cloud-init"
)


def offer(**settings: object) -> Offer:
    return Offer(
        vm_size="Standard_D4s_v5",
        zone="eastus-1",
        capacity_type=CapacityType.ON_DEMAND,
        count=1,
        settings=settings,
    )


def test_an_offering_that_says_nothing_is_made_like_all() -> None:
    assert profile_of(DEFAULTS, offer()) is DEFAULTS


def test_only_what_an_offering_says_differs() -> None:
    changed = profile_of(DEFAULTS, offer(public_ip=True, asg_ids=["/asg"]))
    assert (changed.public_ip, changed.asg_ids) == (True, ("/asg",))
    assert profile_of(changed, offer(public_ip=False, asg_ids=[])) == DEFAULTS


def test_settings_of_another_version_are_passed_over() -> None:
    assert profile_of(DEFAULTS, offer(of_the_future=1)) == DEFAULTS


@given(
    st.dictionaries(st.text(max_size=4), st.text(max_size=4)),
    st.dictionaries(st.text(max_size=4), st.text(max_size=4)),
)
def test_of_two_tags_that_azure_takes_for_one_the_offerings_is_kept(
    common: dict[str, str], own: dict[str, str]
) -> None:
    tags = profile_of(VmProfile(tags=common), offer(tags=own)).tags
    assert tags.items() >= own.items()
    lowered = {key.lower() for key in own}
    assert set(tags) - set(own) == {key for key in common if key.lower() not in lowered}


def test_user_data_of_its_own_is_read_when_a_machine_is_made(tmp_path: Path) -> None:
    path = tmp_path / "talos.yaml"
    profile = profile_of(DEFAULTS, offer(base_user_data=str(path)))
    assert profile.base_user_data == b""
    for content in (b"first", b"\x00second\r\n\xff", b""):
        path.write_bytes(content)
        assert with_user_data(profile).base_user_data == content


def test_user_data_of_all_stays_and_an_empty_path_means_none() -> None:
    assert with_user_data(DEFAULTS) is DEFAULTS
    bare = profile_of(DEFAULTS, offer(base_user_data=""))
    assert with_user_data(bare).base_user_data == b""


@pytest.mark.parametrize("content", [None, b"planted" * MAX_USER_DATA_BYTES])
def test_a_file_that_cannot_be_used_holds_the_machine_until_it_is_mended(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "talos.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BackendError) as caught:
        with_user_data(profile_of(DEFAULTS, offer(base_user_data=str(path))))
    assert caught.value.kind in RETRYABLE
    assert str(path) in str(caught.value)
    assert "planted" not in str(caught.value)


def test_user_data_is_in_no_text_form_of_a_profile_or_an_offer(tmp_path: Path) -> None:
    path = tmp_path / "talos.yaml"
    path.write_bytes(b"planted")
    own = offer(base_user_data=str(path))
    assert "planted" not in repr(with_user_data(profile_of(DEFAULTS, own)))
    assert "planted" not in json.dumps(own.settings)
