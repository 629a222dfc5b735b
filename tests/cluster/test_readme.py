"""Runs the README's commands as they stand there."""
import os
import re
import signal
import subprocess
import time

from cluster import SOURCE, wait_until

# tools/test is what runs this test; quickstart has a test of its own below.
RUN_ELSEWHERE = ("tools/test", "tools/quickstart")


def commands():
    text = (SOURCE / "README.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert blocks, "the README has no commands"
    return [line for block in blocks for line in block.splitlines() if line.strip()]


def test_the_two_commands_are_in_the_readme():
    for command in RUN_ELSEWHERE:
        assert command in commands() and (SOURCE / command).exists()


def test_commands_run_in_order(smollm2):
    """One shell runs all of them; processes started with & live until the end."""
    script = ["set -e", "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT"]
    for command in commands():
        if command in RUN_ELSEWHERE:
            continue
        if not command.endswith("&") and "baton chat" in command:
            # Workers attach within the router's --worker_wait; the client itself waits for no router.
            script.append("for i in $(seq 300); do build/release/bin/baton models >/dev/null 2>&1 && break; sleep 0.1; done")
        script.append(f"echo '$ {command}'" if "'" not in command else "true")
        script.append(command)
    result = subprocess.run(["bash", "-c", "\n".join(script)], cwd=SOURCE, capture_output=True, text=True, timeout=180,
                            env={**os.environ, "BATON_MODEL": str(smollm2)})
    assert result.returncode == 0, (result.stdout[-3000:], result.stderr[-3000:])
    assert "Lisbon" in result.stdout, result.stdout
    assert "prefill" in result.stdout and "decode" in result.stdout, result.stdout


def test_quickstart_answers_and_stops(smollm2):
    result = subprocess.run(["tools/quickstart", "--port=0", "--prompt", "What is the capital of Portugal, and on which river does it lie?"], cwd=SOURCE,
                            capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, (result.stdout[-3000:], result.stderr[-3000:])
    assert "Lisbon" in result.stdout and "TTFT" in result.stdout and "tokens/s" in result.stdout, result.stdout


def test_quickstart_keep_stops_everything_on_ctrl_c(smollm2, tmp_path):
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(["tools/quickstart", "--port=0", "--keep"], cwd=SOURCE, stdout=out, stderr=out,
                                   start_new_session=True)
    wait_until(lambda: "until Ctrl-C" in log.read_text() or process.poll() is not None, 120, log.read_text)
    assert process.poll() is None, log.read_text()
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) == 130
    time.sleep(0.2)
    left = subprocess.run(["pgrep", "-g", str(process.pid)], capture_output=True, text=True).stdout
    assert not left, left
