"""prompt_shares.py: tier by tier, by weight, and nothing is lost that somebody wants."""

from hypothesis import given
from hypothesis import strategies as st

from fairstep.stepping.prompt_shares import Want, part_tokens


def test_tenants_share_by_weight_and_who_wants_less_leaves_the_rest() -> None:
    assert part_tokens(100, [Want(0, "a", 1, 90), Want(0, "b", 3, 90)]) == {(0, "a"): 25, (0, "b"): 75}
    assert part_tokens(100, [Want(0, "a", 1, 90), Want(0, "b", 3, 10)]) == {(0, "a"): 90, (0, "b"): 10}


def test_a_lower_tier_gets_what_the_higher_one_leaves() -> None:
    assert part_tokens(100, [Want(1, "a", 9, 90), Want(0, "b", 1, 70)]) == {(0, "b"): 70, (1, "a"): 30}
    assert part_tokens(50, [Want(1, "a", 9, 90), Want(0, "b", 1, 70)]) == {(0, "b"): 50, (1, "a"): 0}


def test_a_tenants_sequences_share_one_part() -> None:
    wants = [Want(0, "a", 1, 30), Want(0, "a", 1, 30), Want(0, "b", 1, 60)]
    assert part_tokens(60, wants) == {(0, "a"): 30, (0, "b"): 30}


many = st.lists(st.builds(Want, st.integers(0, 2), st.sampled_from("abc"), st.just(1), st.integers(1, 50)), min_size=1)


@given(st.integers(0, 200), many)
def test_no_token_is_lost_or_given_twice(whole: int, wants: list[Want]) -> None:
    parts = part_tokens(whole, wants)
    assert sum(parts.values()) == min(whole, sum(want.tokens for want in wants))
    for (tier, tenant), tokens in parts.items():
        asked = sum(want.tokens for want in wants if (want.tier, want.tenant) == (tier, tenant))
        assert 0 <= tokens <= asked
        peers = [got for (other, _), got in parts.items() if other == tier]
        assert tokens == asked or tokens >= max(peers) - 1, "somebody of equal weight got more, and it wants more"
