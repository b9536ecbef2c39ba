"""The tree of errors."""

import inspect

import pytest

from fairstep import errors
from fairstep.errors import ConfigError, FairstepError, InvalidParameter, InvalidRequest

ALL = [cls for _, cls in inspect.getmembers(errors, inspect.isclass)]


@pytest.mark.parametrize("cls", ALL)
def test_every_error_is_in_the_tree_and_in_its_drawing(cls: type[Exception]) -> None:
    assert issubclass(cls, FairstepError)
    assert cls.__name__ in (errors.__doc__ or "")


def test_codes_tell_errors_apart() -> None:
    codes = [cls.code for cls in ALL if issubclass(cls, FairstepError)]
    assert len(set(codes)) == len(codes)


def test_a_wrong_request_names_its_field() -> None:
    assert InvalidRequest("too long", "prompt").param == "prompt"
    assert InvalidRequest("what").param is None


def test_wrong_values_are_value_errors_too() -> None:
    assert issubclass(InvalidParameter, ValueError)
    assert issubclass(ConfigError, ValueError)
