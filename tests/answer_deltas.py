"""For tests of what writes answers: the deltas of an answer that says given ids, told by the real front."""

import random
from collections.abc import Sequence

from hypothesis import strategies as st

from fairstep.door import Coefficients, Gauges, Headroom, Report, Result
from fairstep.fairness.policies import make_room
from fairstep.front import Front
from fairstep.metrics import Metrics
from fairstep.request import Delta, Request, SamplingParams
from fakes_text import EOS, TURN, FakeTokenizer
from fakes_worker import ready, settings
from replay_engine import NEVER, told

# text whose characters are split over ids, stray bytes, special tokens in the middle; some end in EOS
_TEXT = st.text(alphabet="aé🫠END \n", max_size=8).map(lambda text: list(text.encode()))
_STRAY = st.lists(st.sampled_from([0x80, 0xC3, 0xF0, 0x9F, TURN, NEVER]), min_size=1, max_size=3)
_PARTS = st.lists(_TEXT | _STRAY, max_size=5).map(lambda parts: [token for part in parts for token in part])
SCRIPTS = st.builds(lambda tokens, last: [*tokens, last], _PARTS, st.sampled_from([EOS, ord("z"), 0xC3]))


def deltas_of(script: Sequence[int], prompt_ids: Sequence[int], params: SamplingParams) -> list[Delta]:
    """One delta a token at most; the prompt's log probabilities come with the first."""
    front = Front(ready(settings()), FakeTokenizer(), make_room("fcfs"), Metrics(), draw_seed=lambda: 7)
    front.submit(Request(id="r", prompt_ids=tuple(prompt_ids), params=params), now=0.0)
    front.orders(0.0)
    deltas: list[Delta] = []
    prompt_tops = params.prompt_logprobs
    of_prompt = () if prompt_tops is None else tuple(told(token, prompt_tops) for token in prompt_ids[1:])
    for place, token in enumerate(script):
        ends = token == EOS or token in params.stop_token_ids
        result = Result(
            1,
            1,
            (token,),
            "stop" if ends else "length" if place == len(script) - 1 else None,
            token if ends else None,
            logprobs=() if params.logprobs is None else (told(token, params.logprobs),),
            prompt_logprobs=() if place else of_prompt,
        )
        deltas += front.receive(Report(1, (result,), Headroom(4, 64), Gauges(), Coefficients(0, 0, 0, 0)), 0.0)
        if not front.has_requests:
            break
    assert deltas[-1].finish_reason is not None
    return deltas


def merged_at_random(deltas: Sequence[Delta], seed: int) -> list[Delta]:
    """Neighbours joined here and there, as for a reader who is late."""
    draw = random.Random(seed)
    groups: list[list[Delta]] = []
    for delta in deltas:
        if groups and draw.random() < 0.5:
            groups[-1].append(delta)
        else:
            groups.append([delta])
    return [Delta.merge(group) for group in groups]
