"""Which text each token brought: joined it is the answer, and the cuts between deltas do not change it."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from answer_deltas import SCRIPTS, deltas_of, merged_at_random
from fairstep.request import Completion, Delta, SamplingParams
from fairstep.serving.spans import Span, Spans
from fakes_text import EOS, FakeTokenizer

PROMPTS = st.sampled_from([b"hi", b"hi \xf0\x9f", b"\xc3"])  # some end inside a character
STOPS = st.sampled_from([(), ("END",), ("ND", "é"), ("<eos>",)])


def spans_of(parts: Sequence[Delta | Completion], prompt: bytes, params: SamplingParams) -> list[Span]:
    detokenizer = FakeTokenizer().detokenizer(list(prompt), skip_special=params.skip_special_tokens)
    spans = Spans(detokenizer, 10, shows_stop=params.include_stop)
    return [span for part in parts for span in spans.take(part)]


@given(SCRIPTS, PROMPTS, STOPS, st.booleans(), st.booleans(), st.sampled_from([(), (ord("a"),)]), st.integers())
def test_spans_joined_are_the_text_and_the_same_however_the_deltas_are_cut(
    script: list[int],
    prompt: bytes,
    stop: tuple[str, ...],
    skip_special: bool,
    include_stop: bool,
    stop_ids: tuple[int, ...],
    seed: int,
) -> None:
    params = SamplingParams(
        stop=stop, stop_token_ids=stop_ids, skip_special_tokens=skip_special, include_stop=include_stop
    )
    deltas = deltas_of(script, prompt, params)
    whole = Completion.join(deltas)
    spans = spans_of([whole], prompt, params)
    assert len(spans) == len(whole.token_ids)
    assert "".join(span.text for span in spans) == whole.text
    for span in spans:
        assert whole.text[span.offset - 10 :].startswith(span.text)
        assert not (span.cut and span.text)
    assert spans_of(merged_at_random(deltas, seed), prompt, params) == spans
    assert spans_of(deltas, prompt, params) == spans


def cut(script: Sequence[int], **fields: object) -> list[tuple[str, bool]]:
    params = SamplingParams(**fields)  # type: ignore[arg-type]
    spans = spans_of(deltas_of(script, b"hi", params), b"hi", params)
    return [(span.text, span.cut) for span in spans]


def test_the_token_that_completes_a_character_brings_all_of_it() -> None:
    assert cut([*"é!".encode()]) == [("", False), ("é", False), ("!", False)]


def test_only_tokens_that_a_stop_kept_out_of_the_text_are_cut() -> None:
    assert cut([*b"a", EOS]) == [("a", False), ("", True)]
    assert cut([*b"aEN"], stop=("END",)) == [("a", False), ("E", False), ("N", False)]
    assert cut([*b"aEND"], stop=("END",)) == [("a", False), ("", True), ("", True), ("", True)]
    assert cut([*"aé".encode()], stop=("é",)) == [("a", False), ("", True), ("", True)]
    assert cut([*b"aEND"], stop=("END",), include_stop=True) == [(char, False) for char in "aEND"]
    assert cut([*b"ab"], stop_token_ids=(ord("b"),)) == [("a", False), ("", True)]


def test_what_is_no_character_shows_with_the_last_of_its_bytes() -> None:
    assert cut([0xF0, 0x9F]) == [("", False), ("\ufffd", False)]
    assert cut([0xC3, EOS]) == [("\ufffd", False), ("", True)]
