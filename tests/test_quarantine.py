"""quarantine.py: the same request of the same tenant, for ten minutes, and a bounded number of them."""

from fairstep.quarantine import MOST, SECONDS, Quarantine
from fairstep.request import Request, SamplingParams


def asked(tenant: str = "a", prompt: tuple[int, ...] = (1, 2), **params: float) -> Request:
    return Request(id="r", prompt_ids=prompt, params=SamplingParams(**params), tenant=tenant)  # type: ignore[arg-type]


def test_its_like_is_refused_until_its_time_is_up() -> None:
    ward = Quarantine()
    ward.put(asked(), 5.0)
    assert ward.left(asked(), 5.0) == SECONDS and ward.left(asked(), 6.0) == SECONDS - 1
    assert ward.left(asked(), 5.0 + SECONDS) == 0.0 and not len(ward)


def test_another_tenant_another_prompt_and_other_params_are_let_in() -> None:
    ward = Quarantine()
    ward.put(asked(), 0.0)
    for other in (asked("b"), asked(prompt=(1,)), asked(temperature=1.0)):
        assert ward.left(other, 0.0) == 0.0


def test_once_more_counts_from_then_on() -> None:
    ward = Quarantine()
    ward.put(asked(), 0.0)
    ward.put(asked("b"), 1.0)
    ward.put(asked(), 2.0)
    assert ward.left(asked(), SECONDS + 1.5) == 0.5 and len(ward) == 1


def test_the_oldest_goes_where_there_are_too_many() -> None:
    ward = Quarantine()
    for number in range(MOST + 1):
        ward.put(asked(prompt=(number,)), 0.0)
    assert len(ward) == MOST and ward.left(asked(prompt=(0,)), 0.0) == 0.0
