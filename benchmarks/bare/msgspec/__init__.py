"""Stands in for msgspec where a machine with a GPU hasn't got it: messages inside one process, none over a socket."""

import dataclasses
from types import SimpleNamespace
from typing import Any


class Struct:
    def __init_subclass__(cls, frozen: bool = False, kw_only: bool = False, **_: Any) -> None:
        dataclasses.dataclass(frozen=frozen, kw_only=kw_only)(cls)


class DecodeError(Exception):
    pass


class ValidationError(DecodeError):
    pass


class Encoder:
    def __init__(self, *_: Any, **__: Any) -> None:
        pass


class Decoder(Encoder):
    def __class_getitem__(cls, _: Any) -> type:
        return cls


json = msgpack = SimpleNamespace(Encoder=Encoder, Decoder=Decoder)
MsgspecError = DecodeError
