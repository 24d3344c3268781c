"""No numbered behaviour of the contract goes without a test."""

from scripts import behaviours


def test_every_behaviour_has_a_test_with_its_number() -> None:
    assert sorted(behaviours.described().keys() - behaviours.proofs().keys()) == []


def test_tests_carry_only_numbers_that_exist() -> None:
    assert sorted(behaviours.proofs().keys() - behaviours.described().keys()) == []


def test_all_ninety_four_behaviours_are_described() -> None:
    assert sorted(behaviours.described()) == list(range(1, 95))
