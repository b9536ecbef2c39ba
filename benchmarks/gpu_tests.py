"""Part of gpu_check: the kernel tests on the device, each file in a process of its own, which a fault would end."""

import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "interpreted"
AT_ONCE = 6
SECONDS = 250  # for all of them: what hasn't ended by then is told as such
# what the checkout's own settings say, without those of plugins that may be missing
SETTINGS = """[pytest]
pythonpath = {root}/tests {root}/tests/interpreted
markers =
    full: slow
    real: needs the default model
"""


def run(out: Path, rehearse: bool) -> dict[str, Any]:
    settings = out / "pytest.ini"
    settings.write_text(SETTINGS.format(root=ROOT), encoding="utf-8")
    files = [TESTS / "test_activation.py"] if rehearse else sorted(TESTS.glob("test_*.py"))
    ends = time.monotonic() + SECONDS
    with ThreadPoolExecutor(AT_ONCE) as pool:
        told = dict(
            zip(
                [path.name for path in files],
                pool.map(lambda path: tested(path, settings.resolve(), rehearse, ends), files),
                strict=True,
            )
        )
    for name, row in told.items():
        print(f"{name:32} {row['summary']}", *row["failures"], sep="\n    ")
    wrong = [name for name, row in told.items() if row["code"] not in (0, 5)]  # 5: nothing collected there
    return {"files": told, "wrong": wrong}


def tested(path: Path, settings: Path, rehearse: bool, ends: float) -> dict[str, Any]:
    """One file's outcome, known by the instant `ends`."""
    command = [sys.executable, "-m", "pytest", str(path), "-c", str(settings), "--rootdir", str(ROOT)]
    command += ["--confcutdir", str(TESTS), "--import-mode=importlib", "-q", "--tb=line", "-rfE", "-m", "not full"]
    command += ["-p", "no:cacheprovider"]
    env = {**os.environ, "FAIRSTEP_KERNEL_DEVICE": "" if rehearse else "cuda"}
    left = max(1.0, ends - time.monotonic())
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=left, check=False)
    except subprocess.TimeoutExpired:
        return {"code": -1, "summary": f"had not ended after {left:.0f} s", "failures": []}
    lines = done.stdout.splitlines()
    failures = [line[:300] for line in lines if re.match(r"(FAILED|ERROR) ", line)][:20]
    return {"code": done.returncode, "summary": lines[-1] if lines else done.stderr[-300:], "failures": failures}
