"""answer_lengths.py: how long each tenant's answers are."""

from fairstep.admission.answer_lengths import KEPT, AnswerLengths


def test_an_unknown_tenant_is_like_all_of_them_until_it_has_drawn_more() -> None:
    lengths = AnswerLengths()
    assert not lengths and lengths.mean("a") == 0.0
    lengths.add("a", 10)
    lengths.add("b", 30)
    assert lengths and "a" in lengths and "new" not in lengths
    assert (lengths.mean("a"), lengths.mean("new"), lengths.least("new")) == (10.0, 20.0, 0)
    lengths.drawn("new", 100)
    assert (lengths.mean("new"), lengths.least("new"), lengths.left("new", 100)) == (100, 100, 100)
    lengths.add("new", 104)
    lengths.drawn("new", 900)
    assert lengths.mean("new") == lengths.least("new") == 104.0


def test_what_is_left_is_that_of_the_answers_which_went_on() -> None:
    lengths = AnswerLengths()
    for tokens in (10, 20, 60):
        lengths.add("a", tokens)
    assert lengths.left("a", 0) == 30.0
    assert lengths.left("a", 15) == (5 + 45) / 2
    assert lengths.left("a", 200) == 30.0 / 4


def test_late_answers_count_and_memory_is_bounded() -> None:
    lengths = AnswerLengths(most_names=3)
    for _ in range(KEPT):
        lengths.add("a", 1)
    for _ in range(KEPT):
        lengths.add("a", 100)
    assert lengths.mean("a") == 100.0
    for number in range(10):
        lengths.drawn(f"drawing {number}", 5)
        lengths.add(f"tenant {number}", 5)
        lengths.check()
    assert "a" not in lengths and len(lengths._drawn) <= 3
