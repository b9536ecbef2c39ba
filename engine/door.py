"""The door between front and worker: values only, in plain integers, as msgpack frames. Knows neither side.

The front sends Orders, the worker answers with Reports. Results are addressed by (seq, attempt), never by a
place in a batch; the attempt number rises with every admission, so a late result is recognised and dropped.
gc=False: no value here can refer to itself, and there are several for every token: the collector need not count them.
"""

import struct
from typing import Literal

import msgspec

Outcome = Literal["stop", "length", "yielded", "preempted", "error"]


class Sampling(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the worker must know to draw a sequence's tokens and to end it.

    temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 are off; seed is in [0, 2**64).
    stop_ids end the sequence (the id is reported); they are masked while fewer than min_tokens are drawn.
    max_tokens counts the outputs of the whole request, over all attempts; 0 computes the prompt and draws nothing.
    repetition 1, presence 0 and frequency 0 are off: the first counts prompt and outputs, the others outputs alone.
    bias: (id, what is added to its logit). allowed: the only ids that may be drawn; () all. bad_words: id sequences
    whose last id may not follow the others. logprobs, prompt_logprobs: how many of the likeliest tokens to report
    beside each output, and beside each prompt token; 0 that token alone, -1 nothing.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    max_tokens: int = 16
    min_tokens: int = 0
    stop_ids: tuple[int, ...] = ()
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    bias: tuple[tuple[int, float], ...] = ()
    allowed: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    logprobs: int = -1
    prompt_logprobs: int = -1

    @property
    def penalized(self) -> bool:
        """Whether a penalty is on."""
        return self.repetition != 1.0 or self.presence != 0.0 or self.frequency != 0.0

    @property
    def needs_history(self) -> bool:
        """Whether a draw depends on the tokens so far."""
        return self.penalized or bool(self.bad_words)


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Log probabilities at one position, of the model's raw distribution: before bias, penalties and temperature.

    ids[0] is the token itself, then come the likeliest ones, likeliest first (the token may be there again); `values`
    are theirs, finite. rank: how many tokens are at least as likely as it, itself included: 1 is the likeliest.
    """

    ids: tuple[int, ...]
    values: tuple[float, ...]
    rank: int


class Admit(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A sequence to take in. `tokens` is the prompt and, on a later attempt, the outputs so far.

    order rises with arrival at the front and is kept over attempts: the largest is the youngest.
    salt separates prefix caches (the tenant or an operator's prefix group).
    group: sequences of one number (other than 0) answer one prompt and share its pages, also without a prefix cache.
    """

    seq: int
    attempt: int
    tokens: tuple[int, ...]
    prompt_len: int
    sampling: Sampling
    order: int = 0
    tenant: str = "anonymous"
    tier: int = 0
    weight: int = 1
    priority: int = 0
    salt: str = ""
    group: int = 0


class Orders(msgspec.Struct, frozen=True, array_like=True, tag="orders", gc=False):
    """Applied in this order: cancel, give_back (yield), admit. `number` rises by one from 1."""

    number: int
    cancel: tuple[tuple[int, int], ...] = ()
    give_back: tuple[tuple[int, int], ...] = ()
    admit: tuple[Admit, ...] = ()


class Result(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a step or an order did to one attempt. `outcome` None: it goes on.

    stop: a stop id was drawn (it is the last of `tokens` and `stop_id`). length: max_tokens or the context ended.
    yielded, preempted: seat and pages are given back; the front may admit it again. error: `error` says why.
    cached: prompt tokens found in the prefix cache (once, with the attempt's first slice); computed: tokens computed
    for the first time; recomputed: tokens that an earlier attempt had computed already.
    logprobs: one for each of `tokens`, if asked for. prompt_logprobs: of the prompt's tokens at positions
    prompt_from, prompt_from + 1, ... (never position 0, which nothing predicts); a later attempt may tell them again.
    isolated: with outcome error: a step failed, and did so again with this sequence alone.
    """

    seq: int
    attempt: int
    tokens: tuple[int, ...] = ()
    outcome: Outcome | None = None
    stop_id: int | None = None
    error: str | None = None
    cached: int = 0
    computed: int = 0
    recomputed: int = 0
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_from: int = 1
    isolated: bool = False


class Headroom(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Room left after what the worker already holds, also for sequences it holds but has not seated.

    seats: free seats less sequences waiting in the worker (may be negative). pages: free plus evictable pages less
    what those need (may be negative). queued: sequences held without a seat.
    """

    seats: int
    pages: int
    queued: int = 0


class Coefficients(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Seconds of a step: base + prompt * prompt tokens + sequence * sequences + context * tokens attended to."""

    base: float
    prompt: float
    sequence: float
    context: float


class SliceRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One sequence's token range in a step: positions [start, start + length)."""

    seq: int
    attempt: int
    start: int
    length: int
    decode: bool


class StepRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A step as planned and as it went. Times in seconds.

    modelled: the step's cost by the coefficients it was planned with. decode_only: the same for its decodes alone
    (0 without decodes). target: the most `modelled` may be (0: no target, nothing decodes).
    coefficients: those the plan was made with. padding: tokens computed for nothing, in padded batches. dropped: tokens
    computed for sequences that had ended by then, where steps are planned ahead.
    """

    number: int
    slices: tuple[SliceRecord, ...]
    prompt_tokens: int
    decode_tokens: int
    modelled: float
    decode_only: float
    target: float
    coefficients: Coefficients
    plan_seconds: float = 0.0
    run_seconds: float = 0.0
    padding: int = 0
    dropped: int = 0


class Gauges(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Live state of the worker when the Report was made; counters are since start."""

    running: int = 0
    waiting: int = 0
    pages_total: int = 0
    pages_used: int = 0
    pages_cached: int = 0
    preemptions: int = 0
    prefix_queries: int = 0  # tokens looked up
    prefix_hits: int = 0  # tokens found
    stale_orders: int = 0


class Report(msgspec.Struct, frozen=True, array_like=True, tag="report", gc=False):
    """Sent after every step, after Orders that lead to no step, and every 500 ms when idle.

    orders: the number of the last Orders applied. step: None when nothing ran. number rises by one from 1, so that a
    Report which comes again is recognised; 0: not numbered.
    """

    orders: int
    results: tuple[Result, ...]
    headroom: Headroom
    gauges: Gauges
    coefficients: Coefficients
    step: StepRecord | None = None
    number: int = 0


class Start(msgspec.Struct, frozen=True, array_like=True, tag="start"):
    """First message to a worker process. `config` is EngineConfig as a dict of plain values."""

    model: str
    config: dict[str, str | int | float | bool | None]


class Progress(msgspec.Struct, frozen=True, array_like=True, tag="progress"):
    """While a worker loads: what it does now, and the done part from 0 to 1."""

    what: str
    fraction: float


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """A worker's model is loaded. `context` is the longest sequence served: the model's, the setting's or the pool's.

    defaults: the model's own sampling defaults. seconds: load time by part. eos_ids: ids that end an answer.
    path: what computes it, "fairstep" (our decoder by torch), "cpu:LEVEL" (our decoder as a C++ step, LEVEL being what
    it uses of the CPU), "triton" (our decoder by Triton kernels) or "transformers" (the model's own code over our
    attention; "transformers:triton" where that is Triton's). weights: what their products multiply where that is not
    all of `dtype`, for people.
    """

    model: str
    architecture: str
    vocab_size: int
    context: int
    eos_ids: tuple[int, ...]
    defaults: dict[str, float]
    pages: int
    page_size: int
    seats: int
    dtype: str
    device: str
    parameters: int
    seconds: dict[str, float]
    notes: tuple[str, ...] = ()
    prefix_cache: bool = True
    path: str = "fairstep"
    weights: str = ""


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="failed"):
    """A worker could not start or had to end: one line for people; kind is the error's code."""

    kind: str
    message: str


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    """End the worker in order."""


Message = Start | Progress | Ready | Failed | Orders | Report | Stop

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_length = struct.Struct("!I")


def frame(message: Message) -> bytes:
    """A message as 4 bytes of big-endian length and its msgpack."""
    body = _encoder.encode(message)
    return _length.pack(len(body)) + body


def parse(body: bytes) -> Message:
    """The message in a frame's body. Raises msgspec.ValidationError on anything else."""
    return _decoder.decode(body)


class FrameReader:
    """Messages out of bytes that come in pieces of any size."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Take more bytes; the messages that are whole now. Raises as parse() does."""
        self._buffer += data
        messages: list[Message] = []
        while (end := self._end()) is not None:
            messages.append(parse(bytes(self._buffer[_length.size : end])))
            del self._buffer[:end]
        return messages

    def _end(self) -> int | None:
        """Where the first frame ends, if it is here whole."""
        if len(self._buffer) < _length.size:
            return None
        end: int = _length.size + _length.unpack_from(self._buffer)[0]
        return end if len(self._buffer) >= end else None
