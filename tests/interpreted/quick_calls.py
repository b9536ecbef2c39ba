"""Calls from one kernel function to another, in triton's interpreter, without the millisecond that each of them takes.

The interpreter puts its own operations into triton.language when a kernel starts and takes them out when it ends; and
it puts them in again at every call inside the kernel, where they are in place already. An interpreter that is not as
this file knows it is left alone.
"""

from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime import interpreter


def install() -> bool:
    """Whether calls are quick now."""
    patch: Callable[[Any], Any] | None = getattr(interpreter, "_patch_lang", None)
    scope: Callable[[], Any] | None = getattr(interpreter, "_LangPatchScope", None)
    if patch is None or scope is None:
        return False
    languages: dict[Any, list[Any]] = {}

    def patch_once(function: Any) -> Any:
        if function not in languages:
            languages[function] = [each for each in function.__globals__.values() if each is tl or each is tl.core]
        owners = [tl.tensor.__add__, *(language.load for language in languages[function])]
        return patch(function) if any(tl.core.is_builtin(owner) for owner in owners) else scope()

    interpreter._patch_lang = patch_once
    return True
