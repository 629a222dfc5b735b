"""Health, reflection, metrics, --help and --version of every process, as outside tools see them."""
import re
import subprocess

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from cluster import BIN, Process, chat, generate, generate_request, metrics, pb, scrape, wait_until

BINARIES = ("baton-router", "baton-prefill-worker", "baton-decode-worker", "baton")


def addresses(cluster):
    for process in cluster.processes:
        for field in ("client", "workers", "service"):
            if field in process.ready:
                yield process, process.ready[field]


def test_health(tiny_cluster):
    for process, address in addresses(tiny_cluster):
        with grpc.insecure_channel(address) as channel:
            response = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
            assert response.status == health_pb2.HealthCheckResponse.SERVING, (process.name, address)


def test_reflection(tiny_cluster):
    services = set()
    for _, address in addresses(tiny_cluster):
        with grpc.insecure_channel(address) as channel:
            services |= set(ProtoReflectionDescriptorDatabase(channel).get_services())
    assert {"baton.v1.InferenceService", "baton.v1.AttachService", "baton.v1.PrefillWorkerService",
            "baton.v1.DecodeWorkerService", "baton.v1.LinkService", "grpc.health.v1.Health"} <= services


def test_metrics_pass_promtool(tiny_cluster):
    chat(tiny_cluster.stub, "hello", max_tokens=5)
    for process in tiny_cluster.processes:
        text = scrape(process)
        assert "baton_" in text
        result = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        assert result.returncode == 0, (process.name, result.stdout, result.stderr)


def wait_for_both(cluster):
    """A worker that a busy machine held up for a second is suspect, and prompts are computed on the decode side."""
    wait_until(lambda: generate(cluster.stub, [5], stop={"max_tokens": 2}).timings.HasField("handoff"), 20,
               lambda: "an answer from both workers")


def the(cluster, name):
    return next(p for p in cluster.processes if p.name == name)


def test_metrics_split_the_time(tiny_cluster):
    """Each part counts one answer more, and by as much as the answer itself reports; per role, and by nobody's name."""
    def observe():
        return metrics(tiny_cluster.router), metrics(prefill), metrics(decode)
    prefill, decode = the(tiny_cluster, "baton-prefill-worker"), the(tiny_cluster, "baton-decode-worker")
    wait_for_both(tiny_cluster)
    tiny_cluster.wait_idle()
    before = observe()
    answer = generate(tiny_cluster.stub, [5] * 40, stop={"max_tokens": 9, "ignore_eos": True})
    tiny_cluster.wait_idle()
    ended = 'baton_worker_handoff_seconds_count{role="prefill"}'  # The last to be counted.
    wait_until(lambda: metrics(prefill)[ended] > before[1][ended], 10, lambda: "the end of the hand-off")
    router, prefill_values, decode_values = ({name: after.get(name, 0) - first.get(name, 0) for name in after}
                                             for first, after in zip(before, observe()))
    for part in ("text", "queue", "prefill_queue", "prefill", "handoff", "first_decode"):
        assert router[f'baton_router_part_seconds_count{{part="{part}"}}'] == 1, part
        seconds = getattr(answer.timings, part).ToMicroseconds() / 1e6
        assert abs(router[f'baton_router_part_seconds_sum{{part="{part}"}}'] - seconds) < 1e-5, part
    assert 0 < router["baton_router_inter_token_seconds_count"] <= 8  # Tokens that leave together with the first have no gap.
    assert router["baton_router_time_to_first_token_seconds_count"] == 1
    assert router["baton_router_completion_tokens_total"] == 9
    assert router['baton_router_requests_total{outcome="length"}'] == 1
    for name in ("queue", "prefill", "handoff"):
        assert prefill_values[f'baton_worker_{name}_seconds_count{{role="prefill"}}'] == 1, name
    for name in ("handoff", "first_decode"):
        assert decode_values[f'baton_worker_{name}_seconds_count{{role="decode"}}'] == 1, name
    assert prefill_values['baton_worker_prefill_tokens_total{role="prefill"}'] == 40
    assert decode_values['baton_worker_decode_rows_total{role="decode"}'] == 8
    assert prefill_values['baton_handoffs_total{outcome="ok",side="source"}'] == 1
    assert not any(answer.request_id in name for values in observe() for name in values)


def test_kv_gauges_add_up(slow_cluster):
    """While streams run and after: free + held + reserved is all there is, and held is what the streams need."""
    def kv(name):
        values = metrics(the(slow_cluster, f"baton-fake-{name}-worker"))
        return {state: values[f'baton_worker_kv_blocks{{role="{name}",state="{state}"}}']
                for state in ("free", "held", "reserved", "pinned")}
    total = kv("decode")["free"]
    calls = [slow_cluster.stub.Generate(generate_request([5 + i] * 40, stop={"max_tokens": 100, "ignore_eos": True}),
                                        timeout=60) for i in range(4)]
    wait_until(lambda: kv("decode")["held"] >= 4 * 3, 10, lambda: f"held blocks; there are {kv('decode')}")
    now = kv("decode")
    assert now["free"] + now["held"] <= total and now["free"] < total, now
    for call in calls:
        assert sum(len(piece.token_ids) for piece in call) == 100
    slow_cluster.wait_idle()
    for name in ("decode", "prefill"):
        wait_until(lambda: kv(name) == {"free": total, "held": 0, "reserved": 0, "pinned": 0}, 10, lambda: f"{kv(name)}")


@pytest.mark.parametrize("binary", BINARIES)
def test_help_and_version(binary):
    shown = subprocess.run([BIN / binary, "--help"], capture_output=True, text=True, timeout=30)
    assert "--port" in shown.stdout + shown.stderr or binary == "baton"
    version = subprocess.run([BIN / binary, "--version"], capture_output=True, text=True, timeout=30)
    assert version.returncode == 0 and "0.1" in version.stdout


def test_logs_carry_the_request_id(tiny_cluster):
    """Of every process a request went through; and the client's own id beside the router's."""
    wait_for_both(tiny_cluster)
    request_id = generate(tiny_cluster.stub, [5, 6, 7], stop={"max_tokens": 3, "ignore_eos": True},
                          client_request_id="from-a-client").request_id
    assert len(request_id) == 32
    for process in tiny_cluster.processes:
        wait_until(lambda: request_id in process.log(), 10, lambda: f"{request_id} in {process.name}'s log")
    assert "from-a-client" in tiny_cluster.router.log()


def test_default_ports():
    """What the README and a newcomer rely on."""
    shown = subprocess.run([BIN / "baton-router", "--help"], capture_output=True, text=True, timeout=30).stdout
    defaults = dict(re.findall(r"--(\w+) \([^;]*?\);\s+default: ([^;]+);", shown))
    assert (defaults["port"], defaults["worker_port"], defaults["metrics_port"]) == ("50051", "50050", "9400")
    assert defaults["worker_wait"] == "5s"


def test_status_command(tiny_cluster):
    shown = subprocess.run([BIN / "baton", "status", f"--router={tiny_cluster.client_address}"], capture_output=True,
                           text=True, timeout=30)
    assert shown.returncode == 0, shown.stderr
    assert "prefill" in shown.stdout and "decode" in shown.stdout


def test_client_commands(tiny_cluster):
    def baton(*words):
        result = subprocess.run([BIN / "baton", *words, f"--router={tiny_cluster.client_address}"], capture_output=True,
                                text=True, timeout=60)
        assert result.returncode == 0, result.stderr
        return result.stdout
    assert "5 generated (length)" in baton("chat", "--prompt=hello", "--max_tokens=5", "--ignore_eos")
    assert "tokens/s" in baton("generate", "--prompt=hello", "--max_tokens=5")
    token = tiny_cluster.stub.Tokenize(pb.TokenizeRequest(text="hello"), timeout=10).token_ids[0]
    assert re.match(rf'\s*{token}\s+"', baton("tokenize", "hello"))
    assert "context=" in baton("models")
    seeded = ("generate", "--prompt=hello", "--max_tokens=9", "--temperature=1", "--ignore_eos")
    text = [baton(*seeded, f"--seed={seed}").split("[")[0] for seed in (3, 3, 4)]
    assert text[0] == text[1] != text[2]


def test_chat_at_the_terminal(tiny_cluster):
    """Two questions on stdin: the second is asked with the first and its answer before it."""
    result = subprocess.run([BIN / "baton", "chat", f"--router={tiny_cluster.client_address}", "--max_tokens=4",
                             "--ignore_eos"], input="hello\nand then?\n", capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    first, second = (int(count) for count in re.findall(r"\[(\d+) prompt tokens, 4 generated", result.stdout))
    assert second > first + 4, result.stdout


def test_client_says_what_is_wrong():
    result = subprocess.run([BIN / "baton", "chat", "--prompt=x", "--router=127.0.0.1:1"], capture_output=True, text=True,
                            timeout=60)
    assert result.returncode == 1 and "UNAVAILABLE" in result.stderr
    result = subprocess.run([BIN / "baton", "frob"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 1 and "frob" in result.stderr and "status" in result.stderr


def test_serve_is_a_service_like_the_others(tiny):
    process = Process("baton", "serve", str(tiny), "--port=0", "--metrics_port=0").wait_ready()
    with grpc.insecure_channel(process.ready["client"]) as channel:
        response = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
        assert response.status == health_pb2.HealthCheckResponse.SERVING
        assert "baton.v1.InferenceService" in ProtoReflectionDescriptorDatabase(channel).get_services()
    result = subprocess.run(["promtool", "check", "metrics"], input=scrape(process), capture_output=True, text=True)
    assert result.returncode == 0, (result.stdout, result.stderr)
    assert process.stop() == 0
