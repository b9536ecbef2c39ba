"""One suite against Engine, AsyncEngine in a thread and AsyncEngine in a process, on a tiny random model."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fairstep import EngineConfig, SamplingParams
from fairstep.errors import ContextTooLong, InvalidRequest, ModelError
from three_engines import KINDS, Ask, AsyncFace, SyncFace, engine_of, join
from tiny_models import tiny_llama

CONFIG = EngineConfig(dtype="float32", kv_memory="8MiB", max_seats=8, step_tokens=64, threads=1)
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_llama(tmp_path_factory.mktemp("tiny-llama")))


@pytest.fixture(scope="module", params=KINDS)
def face(request: pytest.FixtureRequest, model: str) -> Iterator[SyncFace | AsyncFace]:
    with engine_of(request.param, model, CONFIG) as face:
        yield face


@pytest.fixture(scope="module")
def control(model: str) -> Iterator[SyncFace]:
    """An engine that answers one request at a time."""
    with SyncFace(model, CONFIG) as face:
        yield face


PROMPTS = ["the cat sat", "hello there", "how are you", "dog on the log", "a", "mat mat mat mat", "sat", "today?"]


def alone(control: SyncFace, ask: Ask) -> tuple[int, ...]:
    return join(control.answer([ask])[0]).token_ids


def test_answers_together_equal_answers_alone(face: SyncFace | AsyncFace, control: SyncFace) -> None:
    asks = [Ask(prompt, GREEDY, after_deltas=n % 4) for n, prompt in enumerate(PROMPTS)]
    asks[0] = Ask(PROMPTS[0], GREEDY)
    together = [join(deltas) for deltas in face.answer(asks)]
    assert [c.token_ids for c in together] == [alone(control, Ask(p, GREEDY)) for p in PROMPTS]
    assert {c.finish_reason for c in together} == {"length"}
    assert all(c.usage.completion_tokens == 12 for c in together)


def test_seeded_sampling_is_the_same_whoever_shares_the_batch(face: SyncFace | AsyncFace, control: SyncFace) -> None:
    seeded = Ask("hello there", SamplingParams(temperature=0.9, top_p=0.9, seed=42, max_tokens=16, ignore_eos=True))
    noise = [Ask(p, SamplingParams(temperature=1.2, max_tokens=16, ignore_eos=True)) for p in PROMPTS[:5]]
    together = join(face.answer([*noise, seeded])[-1])
    assert together.token_ids == alone(control, seeded)


def test_text_is_the_decoded_ids(face: SyncFace | AsyncFace) -> None:
    (deltas,) = face.answer([Ask("the cat", SamplingParams(temperature=1, seed=1, max_tokens=40))])
    answer = join(deltas)
    prompt = face.engine.tokenizer.encode("the cat")
    whole = face.engine.tokenizer.decode([*prompt, *answer.token_ids])
    assert whole == face.engine.tokenizer.decode(prompt) + answer.text
    assert answer.usage.prompt_tokens == len(prompt)


def test_a_stop_string_ends_the_answer_before_it(face: SyncFace | AsyncFace, control: SyncFace) -> None:
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=40, ignore_eos=True)
    text = join(control.answer([Ask("hello", params)])[0]).text
    stop = text[9:12]
    assert stop
    stopped = SamplingParams(temperature=1.0, seed=3, max_tokens=40, ignore_eos=True, stop=stop)
    answer = join(face.answer([Ask("hello", stopped)])[0])
    assert answer.text == text[: text.find(stop)]
    assert (answer.finish_reason, answer.stop_reason) == ("stop", stop)


def test_a_cancel_gives_pages_back_and_loses_no_one_else_a_token(face: SyncFace | AsyncFace, control: SyncFace) -> None:
    long = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True)
    got = face.answer([Ask("the cat sat", long, cancel_after=3), Ask("hello there", GREEDY)])
    assert got[0][-1].finish_reason == "cancelled"
    assert join(got[1]).token_ids == alone(control, Ask("hello there", GREEDY))
    face.settle()
    text = face.metrics()
    for gauge in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert [float(x.split()[-1]) for x in text.splitlines() if x.startswith(f"fairstep:{gauge}{{")] == [0.0], gauge


def test_more_requests_than_seats_all_end(face: SyncFace | AsyncFace) -> None:
    asks = [Ask([5 + n % 250, 7, 9], GREEDY) for n in range(30)]
    assert {join(d).finish_reason for d in face.answer(asks)} == {"length"}
    assert max(len(step.slices) for step in face.steps()) == 8


def test_a_second_prompt_that_begins_the_same_finds_its_pages(face: SyncFace | AsyncFace) -> None:
    prompt = [11 + n % 200 for n in range(50)]
    first, again = (join(face.answer([Ask(prompt, GREEDY)])[0]) for _ in range(2))
    assert again.usage.cached_tokens == 48 and again.token_ids == first.token_ids


@pytest.mark.parametrize(
    ("ask", "error"),
    [
        (Ask([], GREEDY), InvalidRequest),
        (Ask([10**6], GREEDY), InvalidRequest),
        (Ask([5] * 600, GREEDY), ContextTooLong),
        (Ask([5], SamplingParams(max_tokens=10**12)), ContextTooLong),
    ],
)
def test_what_can_never_be_is_refused_and_the_engine_lives(
    face: SyncFace | AsyncFace, ask: Ask, error: type[Exception]
) -> None:
    with pytest.raises(error):
        face.answer([ask])
    assert join(face.answer([Ask("hello", GREEDY)])[0]).finish_reason == "length"


@pytest.mark.parametrize("kind", KINDS)
def test_preemption_by_a_tiny_pool_changes_no_token(kind: str, model: str, control: SyncFace) -> None:
    # 8 pages of 8 tokens for four sequences that grow to 34 each
    memory = 9 * 8 * 2 * 2 * 2 * 16 * 4
    tiny = EngineConfig(
        dtype="float32", kv_memory=memory, page_size=8, max_seats=4, step_tokens=32, threads=1, prefix_cache=True
    )
    params = SamplingParams(temperature=0.8, seed=5, max_tokens=30, ignore_eos=True)
    asks = [Ask([20 + n, 30, 40, 50], params) for n in range(4)]
    with engine_of(kind, model, tiny) as face:
        together = [join(d).token_ids for d in face.answer(asks)]
        preempted = [x for x in face.metrics().splitlines() if x.startswith("fairstep:num_preemptions_total{")]
    assert together == [alone(control, ask) for ask in asks]
    assert float(preempted[0].split()[-1]) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_is_not_there_is_told_in_one_line(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught, engine_of(kind, str(tmp_path / "nothing"), CONFIG):
        pass
    assert "nothing" in str(caught.value) and "\n" not in str(caught.value)


def test_two_engines_in_one_process_know_nothing_of_each_other(model: str, control: SyncFace) -> None:
    with SyncFace(model, CONFIG) as one, SyncFace(model, CONFIG) as two:
        first = one.engine.submit("the cat sat", GREEDY)
        second = two.engine.submit("the cat sat", GREEDY)
        deltas = []
        while one.engine.has_requests or two.engine.has_requests:
            deltas += one.engine.step() + two.engine.step()
        assert {d.request_id for d in deltas} == {first, second}
        tokens = [tuple(t for d in deltas if d.request_id == r for t in d.token_ids) for r in (first, second)]
        assert tokens[0] == tokens[1] == alone(control, Ask("the cat sat", GREEDY))
