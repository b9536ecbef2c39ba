"""Maxima, sums and orders over rows of logits, none of which depends on how many other rows there are.

torch adds one long row alone in another order than many, and its topk takes any of equals: both are avoided here.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

PIECE = 256
BLOCK = 2**18  # elements made at once: 1 MiB stays in a cache, and the system need not clear it anew each time


def take_rows(logits: Tensor, places: Sequence[int]) -> Tensor:
    """The rows at `places`, which rise; all of them are not copied."""
    if len(places) == len(logits):
        return logits
    return logits.index_select(0, torch.tensor(places, device=logits.device))


def likeliest(logits: Tensor) -> Tensor:
    """The id of each row's highest logit, [R] int64; of equals the lowest. A NaN counts as the highest.

    By NumPy on a CPU: torch takes far longer there, and wakes other threads for it.
    """
    if logits.device.type == "cpu":
        return torch.from_numpy(logits.numpy().argmax(axis=1))
    return logits.argmax(dim=-1)


def row_sums(values: Tensor) -> Tensor:
    """Sums over the last axis, float64 [R], in pieces of a fixed size."""
    whole = values.shape[1] - values.shape[1] % PIECE
    pieces = values[:, :whole].reshape(len(values), whole // PIECE, PIECE).sum(dim=-1)
    rest = values[:, whole:].sum(dim=-1)
    return pieces.double().sum(dim=-1) + rest.double()


def softmax_weights(logits: Tensor, temperature: Tensor) -> Tensor:
    """exp((logit - highest) / temperature), float32 [R, V], of temperatures [R] float64."""
    distance = logits - logits.amax(dim=-1, keepdim=True)
    return distance.div_(temperature[:, None].to(torch.float32)).exp_()


def softmax_mass(logits: Tensor, temperature: Tensor) -> Tensor:
    """The sum of each row's weights, float64 [R]."""
    size = max(1, BLOCK // logits.shape[1])
    blocks = zip(logits.split(size), temperature.split(size), strict=True)
    return torch.cat([row_sums(softmax_weights(some, theirs)) for some, theirs in blocks])


def highest(logits: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The `size` highest logits of each row and their ids [R, size], highest first, of equals the lowest id first."""
    if size == logits.shape[1]:
        values, ids = logits.sort(dim=-1, descending=True, stable=True)
        return values, ids
    values, ids = logits.topk(size + 1, dim=-1)
    tied = (values[:, -1] == values[:, -2]).nonzero().flatten()  # topk may take any of equals over the edge
    ids = ids[:, :-1]
    if len(tied):
        ids[tied] = _ordered(logits[tied]).topk(size, dim=-1).indices
    ids = ids.sort(dim=-1).values
    values, places = logits.gather(1, ids).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(1, places)


def _ordered(logits: Tensor) -> Tensor:
    """int64 keys that order as the logits do, of equals the lowest id highest."""
    raw = (logits + 0.0).view(torch.int32)  # + 0.0: no negative zero
    ordered = torch.where(raw < 0, raw ^ 0x7FFFFFFF, raw).long()
    return (ordered << 32) - torch.arange(logits.shape[1], device=logits.device)
