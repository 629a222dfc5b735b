"""Cancels, kills and stops: every request ends once, and nothing is left behind."""
import concurrent.futures
import signal
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from cluster import generate, generate_request, metrics, running, wait_until

LONG = {"max_tokens": 400, "ignore_eos": True}


def test_cancel_frees_both_workers(tiny_cluster):
    for rounds in range(3):
        calls = [tiny_cluster.stub.Generate(generate_request([5 + i] * (20 + i), stop=LONG), timeout=60)
                 for i in range(20)]
        for i, call in enumerate(calls):
            if (i + rounds) % 2:
                next(call)
            call.cancel()
        tiny_cluster.wait_idle()
    assert len(generate(tiny_cluster.stub, [5], stop={"max_tokens": 3, "ignore_eos": True}).tokens) == 3


def test_deadline_ends_the_request_everywhere(tiny_cluster):
    calls = [tiny_cluster.stub.Generate(generate_request([5] * 50, stop=LONG), timeout=0.01 * i) for i in range(1, 9)]
    for call in calls:
        try:
            list(call)
        except grpc.RpcError as error:
            assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    tiny_cluster.wait_idle()


def outcomes(calls):
    """How each call ended, and how long after now."""
    def finish(call):
        started = time.monotonic()
        try:
            for _ in call:
                pass
            return "OK", time.monotonic() - started
        except grpc.RpcError as error:
            return error.code().name, time.monotonic() - started
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(finish, calls))


def start_streams(cluster, count, stop=LONG):
    """Streams that have all had a second token: their KV is on the decode side."""
    calls = [cluster.stub.Generate(generate_request([5 + i] * 30, stop=stop), timeout=60) for i in range(count)]
    for call in calls:
        while (piece := next(call)).position + len(piece.token_ids) < 2:
            pass
    return calls


def decode_rows(cluster):
    decode = next(p for p in cluster.processes if "decode" in p.name)
    return metrics(decode)['baton_worker_decode_rows_total{role="decode"}']


def test_a_cancel_stops_the_engine_within_a_step(slow_cluster):
    """Each step of a lone stream is one row: hardly any is computed once the client has gone."""
    [call] = start_streams(slow_cluster, 1)
    before = decode_rows(slow_cluster)
    call.cancel()
    slow_cluster.wait_idle()
    assert decode_rows(slow_cluster) - before <= 4  # The step under way, the next, and the way of the cancel: 20 ms each.


def test_a_deadline_stops_the_engine_within_a_step(slow_cluster):
    before = decode_rows(slow_cluster)
    call = slow_cluster.stub.Generate(generate_request([5] * 30, stop=LONG), timeout=0.4)
    assert outcomes([call])[0][0] == "DEADLINE_EXCEEDED"
    slow_cluster.wait_idle()
    assert decode_rows(slow_cluster) - before <= 0.4 / 0.02 + 4


def test_decode_worker_killed_mid_stream(slow_cluster):
    calls = start_streams(slow_cluster, 8)
    victim = next(p for p in slow_cluster.processes if p.name == "baton-fake-decode-worker")
    victim.kill()
    for code, seconds in outcomes(calls):
        assert code == "UNAVAILABLE" and seconds < 1.0, (code, seconds)
    slow_cluster.start_fake("decode")
    slow_cluster.wait_workers(2)
    assert len(generate(slow_cluster.stub, [5], stop={"max_tokens": 3, "ignore_eos": True}).tokens) == 3
    slow_cluster.wait_idle()


def test_prefill_worker_killed_while_streams_run(slow_cluster):
    """Streams whose KV has arrived go on; later requests wait for, and get, another prefill worker or a clear status."""
    calls = start_streams(slow_cluster, 4)
    victim = next(p for p in reversed(slow_cluster.processes) if p.name == "baton-fake-prefill-worker")
    victim.kill()
    assert {code for code, _ in outcomes(calls)} == {"OK"}
    slow_cluster.start_fake("prefill")
    slow_cluster.wait_workers(2)
    assert len(generate(slow_cluster.stub, [5], stop={"max_tokens": 3, "ignore_eos": True}).tokens) == 3
    slow_cluster.wait_idle()


@pytest.mark.parametrize("transport", ["shm", "grpc"])
def test_prefill_worker_killed_during_handoffs(tiny, transport):
    """The hand-off's peer dies under it, again and again: decode frees what it held, and goes on serving."""
    with running(tiny, prefill=0, prefill_flags=[]) as cluster:
        for _ in range(3):
            prefill = cluster.start_prefill(f"--kv_transports={transport}", "--chunk_tokens=16")
            cluster.wait_workers(2)
            calls = [cluster.stub.Generate(generate_request([5 + i] * 170, stop={"max_tokens": 20, "ignore_eos": True}),
                                           timeout=30) for i in range(16)]
            next(calls[0])
            prefill.kill()
            for code, seconds in outcomes(calls):
                # Those not yet answered may be retried elsewhere; none hangs, none ends otherwise.
                assert code in ("OK", "UNAVAILABLE") and seconds < 20, (code, seconds)
            cluster.wait_idle()
        cluster.start_prefill()
        cluster.wait_workers(2)
        assert len(generate(cluster.stub, [5] * 100, stop={"max_tokens": 5, "ignore_eos": True}).tokens) == 5


def test_stalled_prefill_worker_ends_within_the_deadline(tiny):
    with running(tiny) as cluster:
        prefill = next(p for p in cluster.processes if p.name == "baton-prefill-worker")
        prefill.process.send_signal(signal.SIGSTOP)
        call = cluster.stub.Generate(generate_request([5] * 170, stop={"max_tokens": 20}), timeout=30)
        started = time.monotonic()
        [(code, _)] = outcomes([call])
        assert code in ("OK", "UNAVAILABLE") and time.monotonic() - started < 10, (code, time.monotonic() - started)
        prefill.process.send_signal(signal.SIGCONT)
        cluster.wait_workers(2)
        cluster.wait_idle()
        assert len(generate(cluster.stub, [5] * 100, stop={"max_tokens": 5, "ignore_eos": True}).tokens) == 5


def test_sigterm_finishes_running_streams(tiny):
    with running(tiny) as cluster:
        call = cluster.stub.Generate(generate_request([5] * 30, stop={"max_tokens": 300, "ignore_eos": True}), timeout=60)
        next(call)
        cluster.router.process.send_signal(signal.SIGTERM)
        assert sum(len(piece.token_ids) for piece in call) >= 298
        assert cluster.router.process.wait(30) == 0


@pytest.mark.parametrize("role", ["decode", "prefill"])
def test_sigterm_drains_a_worker(slow_cluster, role):
    """It says so at once, gets nothing new, finishes what it has, and goes with exit code 0."""
    stop = {"max_tokens": 60, "ignore_eos": True}  # 1.2 s.
    calls = start_streams(slow_cluster, 4, stop)
    worker = next(p for p in slow_cluster.processes if p.name == f"baton-fake-{role}-worker")
    if role == "prefill":
        slow_cluster.start_fake("prefill", "--fake_step=20ms")
        calls.append(slow_cluster.stub.Generate(generate_request([9] * 600, stop=stop), timeout=60))
    worker.process.send_signal(signal.SIGTERM)
    wait_until(lambda: worker.process.poll() is not None or
               any(w.role == role and w.state == "draining" for w in slow_cluster.status().workers), 10,
               lambda: "a draining worker")
    if role == "decode":
        with grpc.insecure_channel(worker.ready["service"]) as channel:
            health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
            assert health.status == health_pb2.HealthCheckResponse.NOT_SERVING
    assert {code for code, _ in outcomes(calls)} == {"OK"}
    assert worker.process.wait(30) == 0


def test_worker_restarts_with_another_router_lifetime(tiny):
    """A worker that comes back serves at once; a decode worker survives many prefill lives."""
    with running(tiny) as cluster:
        for _ in range(5):
            prefill = next(p for p in reversed(cluster.processes) if p.name == "baton-prefill-worker")
            assert prefill.stop() == 0
            cluster.start_prefill()
            cluster.wait_workers(2)
            assert len(generate(cluster.stub, [5] * 40, stop={"max_tokens": 4, "ignore_eos": True}).tokens) == 4


def test_a_crowd_on_small_pools_is_served_in_the_end(tiny):
    """Two pools of one context each, refusals and preemptions without end: every answer comes, and is the usual one."""
    small = ["--arena_bytes=1048576", "--chunk_tokens=64"]

    def ask(cluster, number):
        prompt = [5 + number % 17, 9, 200 + number % 13] * (3 + number * 37 % 220)
        return generate(cluster.stub, prompt, stop={"max_tokens": 60 + number % 200, "ignore_eos": True},
                        sampling={"temperature": 0.9, "seed": number}).tokens

    with running(tiny, prefill=2, decode=2, prefill_flags=small, decode_flags=small) as cluster:
        alone = [ask(cluster, number) for number in range(40)]
        with concurrent.futures.ThreadPoolExecutor(150) as pool:
            crowd = list(pool.map(lambda number: ask(cluster, number % 40), range(400)))
        assert crowd == alone * 10
        cluster.wait_idle()
