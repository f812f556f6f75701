"""What becomes of models and what runs in a process that this one forks, which has none of their threads?"""

import subprocess
import sys
from pathlib import Path

import pytest

FIXTURE = Path(__file__).parents[2] / "examples/models/stories260K"

SCRIPT = """
import os, sys, warnings
import skulk
warnings.simplefilter("ignore")  # Python 3.12 and newer warn of forks beside threads.
model = skulk.Model.load(sys.argv[1], threads=2)
session = model.session()
running = model.generate("Once upon a time", max_tokens=400, ignore_eos=True)
next(running)
server = skulk.serve(sys.argv[1], threads=1)
child = os.fork()
if child == 0:
    refused = 0
    for use in (
        lambda: model.generate("Once", max_tokens=3),
        lambda: model.logits("Once"),
        lambda: model.context,
        lambda: session.generate("Once", max_tokens=3),
        lambda: next(running),
        lambda: running.text(),
        lambda: server.address,
        lambda: server.stop(),
    ):
        try:
            use()
        except skulk.InvalidArgumentError as error:
            assert "forked" in str(error) and error.hint, error
            refused += 1
    running.cancel()
    running.close()
    model.close()
    server.__exit__()
    del running, session, server
    own = skulk.Model.load(sys.argv[1], threads=1)
    print(refused, own.generate("Once upon a time", max_tokens=4).text(), flush=True)
    sys.exit(0)
_, status = os.waitpid(child, 0)
print(status, len(running.text()) > 100, model.generate("Once upon a time", max_tokens=4).text())
server.stop()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no forks")
def test_what_another_process_made_is_refused_and_left_alone() -> None:
    command = [sys.executable, "-c", SCRIPT, str(FIXTURE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "8 , there was a\n0 True , there was a\n"
