"""siblings.py: who waits for whom, and that each goes in once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairstep.siblings import Siblings


def family(*followers: int, leader: int = 1) -> Siblings:
    siblings = Siblings()
    for seq in followers:
        siblings.wait(seq, leader)
        siblings.check()
    return siblings


def test_all_go_in_together_once_the_leaders_prompt_is_computed() -> None:
    siblings = family(2, 3, 4)
    assert siblings.computed(1) == [2, 3, 4] and len(siblings) == 0
    assert siblings.computed(1) == []
    siblings.check()


def test_the_oldest_leads_the_others_when_the_leader_ends_first() -> None:
    siblings = family(2, 3, 4)
    assert siblings.ended(1) == [2] and len(siblings) == 2
    siblings.check()
    assert siblings.computed(2) == [3, 4]


def test_one_that_ends_while_it_waits_is_forgotten() -> None:
    siblings = family(2, 3)
    assert siblings.ended(2) == []
    siblings.check()
    assert siblings.computed(1) == [3]
    siblings = family(2)
    assert siblings.ended(2) == [] and len(siblings) == 0
    siblings.check()


def test_who_follows_a_follower_waits_for_its_leader() -> None:
    siblings = family(2)
    siblings.wait(3, 2)
    siblings.check()
    assert siblings.computed(2) == [] and siblings.computed(1) == [2, 3]


def test_a_sequence_waits_once() -> None:
    with pytest.raises(AssertionError, match="already"):
        family(2).wait(2, 5)


acts = st.lists(st.tuples(st.sampled_from(("new", "wait", "computed", "ended")), st.integers(0, 9)), max_size=40)


@given(acts)
def test_everybody_goes_in_once_or_ends_and_nobody_waits_for_the_dead(history: list[tuple[str, int]]) -> None:
    siblings, live, inside = Siblings(), [], set()
    for seq, (act, which) in enumerate(history, start=1):
        if act == "new" or not live:
            live.append(seq)
            inside.add(seq)
            continue
        other = live[which % len(live)]
        if act == "wait":
            siblings.wait(seq, other)
            live.append(seq)
            continue
        if act == "ended":
            live.remove(other)
        let_in = getattr(siblings, act)(other)
        assert not inside & set(let_in) and set(let_in) <= set(live), "let in twice, or after its end"
        inside |= set(let_in)
        siblings.check()
        assert len(siblings) == sum(seq not in inside for seq in live), "somebody waits nowhere"
    for seq in list(live):
        live.remove(seq)
        inside |= set(siblings.ended(seq))
    assert len(siblings) == 0
