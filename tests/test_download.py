"""download.py on the CPU: what comes is what was there at the call."""

import torch

from fairstep.model.download import Download


def test_what_comes_is_as_it_was_when_it_was_sent_and_comes_again() -> None:
    tokens, values = torch.tensor([3, 1, 2]), torch.zeros(0, 4)
    download = Download([tokens, values])
    tokens.fill_(9)
    for _ in range(2):
        first, second = download.wait()
        assert first.tolist() == [3, 1, 2] and second.shape == (0, 4)
