"""suspects.py: groups are halved until one is alone; whoever got further is innocent."""

from hypothesis import given
from hypothesis import strategies as st

from fairstep.suspects import Suspects


def everybody(seq: int) -> bool:
    return True


def test_each_half_has_a_trial_of_its_own() -> None:
    suspects = Suspects()
    suspects.accuse([1, 2, 3])
    assert suspects.begin(0, everybody) == (1, 2) and suspects.begin(1, everybody) == (3,)
    trial = suspects.trial_in(0)
    assert trial and not trial.is_passed
    suspects.prove(1)
    suspects.prove(2)
    assert trial.is_passed and suspects.end_trial(0) == {1, 2} and suspects.trial_in(0) is None


def test_who_has_no_room_is_tried_next() -> None:
    suspects = Suspects()
    suspects.accuse([1, 2, 3, 4, 5, 6])
    assert suspects.begin(0, lambda seq: seq < 3) == (1, 2)
    assert suspects.begin(1, everybody) == (3,)
    assert list(suspects.waiting()) == [4, 5, 6]


def test_who_leaves_is_waited_for_no_longer() -> None:
    suspects = Suspects()
    suspects.accuse([1, 2])
    suspects.begin(0, everybody)
    suspects.leave(1)
    trial = suspects.trial_in(0)
    assert trial and trial.is_passed and not trial.members
    suspects.leave(2)
    assert len(suspects) == 0 and suspects.begin(1, everybody) == ()


@given(st.integers(1, 64), st.data())
def test_one_culprit_is_alone_after_few_deaths(count: int, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(0, count - 1))
    suspects, group, deaths = Suspects(), list(range(count)), 1
    while len(group) > 1:
        suspects.accuse(group)
        suspects.check()
        while culprit not in (group := list(suspects.begin(deaths, everybody))):
            suspects.end_trial(deaths)
        suspects.end_trial(deaths)
        deaths += 1
    assert group == [culprit] and deaths <= 1 + (count - 1).bit_length()
