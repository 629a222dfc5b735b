"""Health, reflection, metrics, --help and --version of every process, as outside tools see them."""
import subprocess
import urllib.request

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from cluster import BIN, chat

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


def scrape(process):
    with urllib.request.urlopen(f"http://{process.ready['metrics']}/metrics", timeout=10) as response:
        return response.read().decode()


def test_metrics_pass_promtool(tiny_cluster):
    chat(tiny_cluster.stub, "hello", max_tokens=5)
    for process in tiny_cluster.processes:
        text = scrape(process)
        assert "baton_" in text
        result = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
        assert result.returncode == 0, (process.name, result.stdout, result.stderr)


def test_metrics_split_the_time(tiny_cluster):
    chat(tiny_cluster.stub, "hello", max_tokens=5)
    router = scrape(tiny_cluster.router)
    for part in ("text", "queue", "prefill_queue", "prefill", "handoff", "first_decode"):
        assert part in router, part
    workers = [p for p in tiny_cluster.processes if "worker" in p.name]
    for process in workers:
        text = scrape(process)
        for what in ("kv_blocks", "step_seconds", "pin"):
            assert what in text, (process.name, what)


@pytest.mark.parametrize("binary", BINARIES)
def test_help_and_version(binary):
    shown = subprocess.run([BIN / binary, "--help"], capture_output=True, text=True, timeout=30)
    assert "--port" in shown.stdout + shown.stderr or binary == "baton"
    version = subprocess.run([BIN / binary, "--version"], capture_output=True, text=True, timeout=30)
    assert version.returncode == 0 and "0.1" in version.stdout


def test_logs_carry_the_request_id(tiny_cluster):
    answer = chat(tiny_cluster.stub, "hello", max_tokens=3)
    assert len(answer.request_id) == 32
    assert answer.request_id in tiny_cluster.router.log()


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
    assert "tokens/s" in baton("chat", "--prompt=hello", "--max_tokens=5")
    assert "tokens/s" in baton("generate", "--prompt=hello", "--max_tokens=5")
    assert "hello" in baton("tokenize", "hello").replace('"', "").replace("\n", "") or baton("tokenize", "hello")
    assert "context=" in baton("models")
