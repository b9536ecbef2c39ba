"""The compiled step as Python sees it: the structs of model.h, and its functions through ctypes, which drops the GIL.

Pointers are plain addresses: whoever fills a struct keeps what it points to.
"""

import ctypes
from collections.abc import Callable
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import Any

import torch  # noqa: F401 (its OpenMP library must be there first: then both use one pool of threads)

from .build import CannotBuild, Level, built, nothing_to_say, usable_levels

ACTIVATIONS = {"silu": 0, "gelu_tanh": 1, "gelu": 2}


class CLinear(Structure):
    _fields_ = (
        ("kind", c_int32),
        ("outputs", c_int32),
        ("inputs", c_int32),
        ("unused", c_int32),
        ("panels", c_void_p),
        ("bias", c_void_p),
    )


class CLayer(Structure):
    _fields_ = (
        *((name, CLinear) for name in ("qkv", "o", "gate_up", "down")),
        *((name, c_void_p) for name in ("attention_in", "attention_out", "mlp_in", "mlp_out", "q_norm", "k_norm")),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("window", c_int32),
        ("table", c_int32),
    )


class CModel(Structure):
    _fields_ = (
        ("layers", POINTER(CLayer)),
        ("embedding", c_void_p),
        ("norm", c_void_p),
        ("head", CLinear),
        *((name, c_int32) for name in ("layer_count", "hidden", "intermediate", "heads", "kv_heads", "head_dim")),
        *((name, c_int32) for name in ("page_size", "activation", "whole_norm")),
        *((name, c_float) for name in ("eps", "attention_scale", "attention_softcap", "embedding_scale")),
        *((name, c_float) for name in ("residual_scale", "logit_scale", "logit_softcap")),
    )


class CStep(Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("ids", "page_tables", "bounds", "drawn")),
        ("cos", c_void_p * 2),
        ("sin", c_void_p * 2),
        ("turned", c_int32 * 2),
        ("by_token", c_int32 * 2),
        *((name, c_int32) for name in ("tokens", "slices", "table_width", "drawn_count")),
        *((name, c_void_p) for name in ("hidden", "logits", "likeliest", "workspace")),
    )


class Library:
    """A loaded build. Raises CannotBuild where the file is none."""

    def __init__(self, level: Level, path: Path) -> None:
        self.level = level
        try:
            library = ctypes.CDLL(str(path))
        except OSError as error:
            raise CannotBuild(f"{path} cannot be loaded ({error}): delete it, and it is built anew") from error
        self._library = library
        counts = (c_int32, c_int32)  # tokens, and those whose logits are asked for
        self.workspace: Callable[..., int] = self._function("workspace", c_int64, POINTER(CModel), *counts)  # bytes
        self.step: Callable[..., None] = self._function("step", None, POINTER(CModel), POINTER(CStep), c_int32)
        rows = (c_void_p, c_int32, c_void_p)  # given, how many, results
        self.logits: Callable[..., None] = self._function("logits", None, POINTER(CModel), *rows, c_int32)
        self.product: Callable[..., None] = self._function("product", None, POINTER(CLinear), *rows, c_int32)
        attention = (POINTER(CModel), POINTER(CStep), c_int32, c_void_p, c_void_p, c_int32)
        self.attention: Callable[..., None] = self._function("attention", None, *attention)
        each = (c_void_p,) * 4  # temperatures, keys, likeliest, results
        self.draw: Callable[..., None] = self._function("draw", None, c_void_p, c_int32, c_int64, *each, c_int32)
        self.read_all: Callable[..., int] = self._function("read_all", c_int64, c_void_p, c_int64, c_int32)
        near = (c_int64, c_int32, c_int32, c_void_p)  # pieces, kind, threads, results
        self.multiply_near: Callable[..., int] = self._function("multiply_near", c_int64, *near)
        self.struct_size: Callable[[int], int] = self._function("struct_size", c_int32, c_int32)

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        """A function of step.cpp."""
        function = getattr(self._library, f"fairstep_{name}")
        function.restype, function.argtypes = result, arguments
        return function


def best_library(cpu_flags: frozenset[str], compiling: Callable[[], None] = nothing_to_say) -> Library:
    """The best build that this CPU runs and the compiler makes; raises the first CannotBuild where there is none."""
    failures = []
    for level in usable_levels(cpu_flags):
        try:
            return Library(level, built(level, compiling))
        except CannotBuild as failure:
            failures.append(failure)
    raise failures[0]
