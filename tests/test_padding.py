"""padding.py: a padded batch computes one rectangle: shorter prompts are filled up, ended rows go on."""

from hypothesis import given
from hypothesis import strategies as st

from fairstep.door import Orders, Report
from fairstep.stepping.cost import StepModel
from fairstep.stepping.loop import StepLoop
from fairstep.stepping.pages import NULL_PAGE
from fairstep.stepping.plan import StepOutput, StepPlan
from fakes_stepping import admit, settings


def padded(rows: list[tuple[int, int]], **changes: int) -> list[tuple[StepPlan, Report]]:
    """The steps of one batch of (prompt tokens, outputs)."""
    loop = StepLoop(settings(**{"static": True, "padded": True, "pages": 200, **changes}), StepModel())
    admits = [admit(seq, range(prompt), max_tokens=outputs) for seq, (prompt, outputs) in enumerate(rows, 1)]
    loop.apply(Orders(1, admit=tuple(admits)))
    steps = []
    while loop.has_work:
        plan = loop.plan()
        assert plan.slices, "there is work and nothing runs"
        output = StepOutput((3,) * sum(piece.samples for piece in plan.slices))
        steps.append((plan, loop.commit(plan, output, run_seconds=1.0)))
        loop.check()
    return steps


def tokens(plan: StepPlan, *, decode: bool) -> int:
    return sum(len(piece.tokens) for piece in plan.padding if piece.decode == decode)


def test_shorter_prompts_are_filled_up_to_the_longest() -> None:
    (plan, report), *_ = padded([(2, 1), (6, 1), (5, 1)])
    assert [(piece.start, piece.end) for piece in plan.padding] == [(5, 6), (2, 6)]
    assert all(set(piece.pages) == {NULL_PAGE} and not piece.samples for piece in plan.padding)
    assert report.step is not None and (report.step.prompt_tokens, report.step.padding) == (13, 5)
    assert [piece.seq for piece in report.step.slices] == [1, 2, 3], "padding is nobody's"


def test_rows_that_have_ended_are_computed_until_all_have() -> None:
    steps = padded([(4, 1), (4, 2), (4, 4)])
    assert [tokens(plan, decode=True) for plan, _ in steps] == [0, 1, 2, 2]
    last, report = steps[-1]
    assert [(piece.start, piece.end, piece.samples) for piece in last.padding] == [(6, 7, True)] * 2
    assert report.step is not None and (report.step.decode_tokens, report.step.padding) == (1, 2)


def test_a_step_is_never_padding_alone_nor_larger_than_a_step_may_be() -> None:
    steps = padded([(1, 1), (1, 1), (30, 1)], step_tokens=8, chunk=8)
    sizes = [sum(len(piece.tokens) for piece in plan.slices + plan.padding) for plan, _ in steps]
    assert max(sizes) <= 8 and sum(tokens(plan, decode=False) for plan, _ in steps) == 2 * 29


def test_nothing_is_padded_otherwise() -> None:
    loop = StepLoop(settings(static=True), StepModel())
    loop.apply(Orders(1, admit=(admit(1, [1], max_tokens=1), admit(2, [2, 3], max_tokens=3))))
    assert loop.plan().padding == ()


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 9)), min_size=1, max_size=4), st.integers(4, 40))
def test_a_batch_computes_its_rectangle(rows: list[tuple[int, int]], step_tokens: int) -> None:
    steps = padded(rows, step_tokens=step_tokens, chunk=step_tokens, inter_token_target=1e9)  # type: ignore[arg-type]
    longest = max(prompt for prompt, _ in rows)
    prompts = sum(len(p.tokens) for plan, _ in steps for p in plan.slices + plan.padding if not p.decode)
    assert prompts == longest * len(rows)
    decodes_alone = [plan for plan, _ in steps if all(piece.decode for piece in plan.slices)]
    assert all(len(plan.slices) + len(plan.padding) == len(rows) for plan in decodes_alone)
