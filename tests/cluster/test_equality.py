"""The same request gives the same tokens and log-probabilities, bit for bit, however it is served."""
import concurrent.futures
import pathlib
import subprocess

import pytest

from cluster import BIN, generate, running
from serve import serving

PROMPT_LENGTHS = (1, 7, 8, 31, 33, 100, 170)


def prompts():
    return [[(7 * i + 13 * n) % 200 + 20 for i in range(length)] for n, length in enumerate(PROMPT_LENGTHS)]


def ask(stub, prompt, greedy):
    sampling = {} if greedy else {"temperature": 0.9, "top_k": 50, "seed": 42, "frequency_penalty": 0.3}
    return generate(stub, prompt, sampling=sampling, stop={"max_tokens": 24, "ignore_eos": True}, logprobs=4)


def answers_alone(stub):
    return [ask(stub, prompt, greedy) for greedy in (True, False) for prompt in prompts()]


def answers_together(stub, copies=3):
    """All of them at once among others like them: at least 32 requests in flight."""
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        futures = [[pool.submit(ask, stub, prompt, greedy) for _ in range(copies)]
                   for greedy in (True, False) for prompt in prompts()]
        return [[future.result() for future in group] for group in futures]


@pytest.fixture(scope="module")
def expected(tiny):
    with running(tiny) as cluster:
        yield answers_alone(cluster.stub)


def check(expected, got):
    for index, (want, answer) in enumerate(zip(expected, got, strict=True)):
        assert answer.same_as(want), f"request {index}: {answer.tokens} is not {want.tokens}, or a log-probability differs"


CONFIGURATIONS = {
    "chunk_16": dict(prefill_flags=["--chunk_tokens=16"]),
    "block_8": dict(prefill_flags=["--block_tokens=8"], decode_flags=["--block_tokens=8"]),
    "block_32": dict(prefill_flags=["--block_tokens=32"], decode_flags=["--block_tokens=32"]),
    "grpc": dict(prefill_flags=["--kv_transports=grpc"]),
    "shm": dict(prefill_flags=["--kv_transports=shm"]),
    "one_thread": dict(prefill_flags=["--threads=1"], decode_flags=["--threads=1"]),
    "grpc_chunk_16_block_8": dict(prefill_flags=["--kv_transports=grpc", "--chunk_tokens=16", "--block_tokens=8"],
                                  decode_flags=["--block_tokens=8"]),
    "two_of_each": dict(prefill=2, decode=2),
    "local_prefill": dict(prefill=0),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_same_answers(tiny, expected, name):
    with running(tiny, **CONFIGURATIONS[name]) as cluster:
        check(expected, answers_alone(cluster.stub))
        cluster.wait_idle()


def same_as_expected(expected, got):
    return all(answer.same_as(want) for want, answer in zip(expected, got, strict=True))


def test_another_order_of_sums_is_seen(tiny, expected):
    """The comparison can fail: the reference adds in another order than AVX-512, which is another numerics class."""
    flags = ["--cpu=reference"]
    if "avx512_vnni" not in pathlib.Path("/proc/cpuinfo").read_text().split():
        pytest.skip("this CPU runs the reference anyway")
    with running(tiny, prefill_flags=flags, decode_flags=flags) as cluster:
        assert not same_as_expected(expected, answers_alone(cluster.stub))


@pytest.mark.parametrize("fault", ["stale_block", "wrong_position"])
def test_a_planted_fault_is_seen(tiny, expected, fault):
    """One wrong block or position in the decode worker, in builds that have such faults."""
    shown = subprocess.run([BIN / "baton-decode-worker", "--help"], capture_output=True, text=True, timeout=30).stdout
    if "--planted_fault" not in shown:
        pytest.skip("this build has no planted faults")
    with running(tiny, decode_flags=[f"--planted_fault={fault}"]) as cluster:
        assert not same_as_expected(expected, answers_alone(cluster.stub))


def test_same_answers_in_a_batch(tiny, expected):
    with running(tiny) as cluster:
        for copy in zip(*answers_together(cluster.stub)):
            check(expected, copy)
        cluster.wait_idle()


def test_same_answers_from_serve(tiny, expected):
    with serving(tiny) as stub:
        check(expected, answers_alone(stub))


def test_same_answers_from_serve_over_loopback(tiny, expected):
    with serving(tiny, "--split") as stub:
        check(expected, answers_alone(stub))


def test_real_model_alone_and_in_a_batch(smollm2, smollm2_cases):
    cases = [case for case in smollm2_cases if case["length"] < 200]

    def ask_case(stub, case):
        return generate(stub, case["prompt_ids"], stop={"max_tokens": 24, "ignore_eos": True}, logprobs=3)

    with running(smollm2) as cluster:
        alone = [ask_case(cluster.stub, case) for case in cases]
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            together = list(pool.map(lambda case: ask_case(cluster.stub, case), cases * 2))
        check(alone + alone, together)
    with running(smollm2, prefill_flags=["--kv_transports=grpc", "--chunk_tokens=16"]) as cluster:
        check(alone, [ask_case(cluster.stub, case) for case in cases])
    with serving(smollm2) as stub:
        check(alone, [ask_case(stub, case) for case in cases])
