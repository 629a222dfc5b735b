"""Starts real Baton processes on free ports, and speaks to them as an outside client would."""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import urllib.request

import grpc

from stubs import inference_service_pb2 as pb
from stubs import inference_service_pb2_grpc as pb_grpc

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BATON_BIN", SOURCE / "build" / "release" / "bin"))
READY_SECONDS = 90  # Sanitizer builds on two busy cores are slow to start.


class Process:
    """One Baton process; `ready` holds the fields of its ready line."""

    def __init__(self, name, *arguments, env=None):
        self.name = name
        self._folder = tempfile.TemporaryDirectory(prefix="baton-test-")
        self.out_path = pathlib.Path(self._folder.name) / "out"
        self.log_path = pathlib.Path(self._folder.name) / "log"
        with self.out_path.open("wb") as out, self.log_path.open("wb") as log:
            self.process = subprocess.Popen([BIN / name, *arguments], stdout=out, stderr=log,
                                            env={**os.environ, **(env or {})})
        self.ready = {}

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        return self.log_path.read_text(errors="replace")

    def wait_ready(self):
        limit = time.monotonic() + READY_SECONDS
        while time.monotonic() < limit:
            match = re.search(r"^\S+ ready (.*)$", self.out_path.read_text(), re.MULTILINE)
            if match:
                self.ready = dict(field.split("=", 1) for field in match.group(1).split())
                return self
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise AssertionError(f"{self.name} did not get ready (exit {self.process.poll()}):\n{self.log()[-4000:]}")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, timeout=30):
        """SIGTERM; returns the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not stop within {timeout} s:\n{self.log()[-4000:]}")


class Cluster:
    """A router with workers. `stub` is the public service."""

    def __init__(self, model, router_flags=()):
        self.model = str(model)
        self.processes = []
        self.router = self._start("baton-router", f"--model={self.model}", "--port=0", "--worker_port=0",
                                  "--metrics_port=0", "--worker_wait=60s", *router_flags)
        self.client_address = self.router.ready["client"]
        self.channel = grpc.insecure_channel(self.client_address, [("grpc.max_receive_message_length", 64 << 20),
                                                                   ("grpc.max_send_message_length", 256 << 20)])
        self.stub = pb_grpc.InferenceServiceStub(self.channel)

    def _start(self, name, *flags):
        process = Process(name, *flags)
        self.processes.append(process)
        return process.wait_ready()

    def _start_worker(self, name, flags):
        return self._start(name, f"--model={self.model}", "--port=0", "--metrics_port=0",
                           f"--routers={self.router.ready['workers']}", *flags)

    def start_prefill(self, *flags):
        return self._start_worker("baton-prefill-worker", flags)

    def start_decode(self, *flags):
        return self._start_worker("baton-decode-worker", flags)

    def start_fake(self, role, *flags):
        """A worker on the fake model: `role` is "prefill" or "decode"."""
        return self._start_worker(f"baton-fake-{role}-worker", flags)

    def status(self):
        return self.stub.GetClusterStatus(pb.GetClusterStatusRequest(), timeout=10)

    def wait_workers(self, count, timeout=30):
        wait_until(lambda: sum(w.state == "ready" for w in self.status().workers) == count, timeout,
                   lambda: f"{count} ready workers; there are {self.status()}")

    def wait_idle(self, timeout=15):
        """Nothing runs, and every block is free or cached again: the pool check."""
        def idle():
            status = self.status()
            return (status.requests_running == 0 and status.requests_waiting == 0 and
                    all(w.blocks_free == w.blocks_total and w.blocks_pinned == 0 and w.blocks_reserved == 0 and
                        w.running_sequences == 0 and w.queued_requests == 0
                        for w in status.workers if w.state != "dead"))
        wait_until(idle, timeout, lambda: f"an idle cluster; it is {self.status()}")

    def stop(self):
        """Stops everything that lives; a crash of any process is an error."""
        self.channel.close()
        codes = {}
        for process in reversed(self.processes):
            if process.process.poll() is None:
                codes[process.name] = (process.stop(), process.log()[-4000:])
            elif process.process.returncode not in (0, -signal.SIGKILL):
                codes[process.name] = (process.process.returncode, process.log()[-4000:])
        bad = {name: code for name, code in codes.items() if code[0] != 0}
        assert not bad, bad


def wait_until(condition, timeout, describe):
    limit = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < limit, f"waited {timeout} s for {describe()}"
        time.sleep(0.02)


@contextlib.contextmanager
def running(model, prefill=1, decode=1, router_flags=(), prefill_flags=(), decode_flags=()):
    """A cluster that is stopped at the end, whatever happens."""
    cluster = Cluster(model, router_flags)
    try:
        for _ in range(decode):
            cluster.start_decode(*decode_flags)
        for _ in range(prefill):
            cluster.start_prefill(*prefill_flags)
        cluster.wait_workers(prefill + decode)
        yield cluster
    finally:
        cluster.stop()


def scrape(process):
    """The text of a process's metrics endpoint."""
    with urllib.request.urlopen(f"http://{process.ready['metrics']}/metrics", timeout=10) as response:
        return response.read().decode()


def metrics(process):
    """Each series' value, by its name with labels."""
    lines = (line.rsplit(" ", 1) for line in scrape(process).splitlines() if line and not line.startswith("#"))
    return {name: float(value) for name, value in lines}


class Answer:
    """A whole answer, read to its end."""

    def __init__(self, stream):
        self.text, self.tokens, self.logprobs, self.prompt_logprobs = "", [], [], []
        self.finish_reason = self.usage = self.timings = None
        self.request_id = ""
        for response in stream:
            piece = response.piece if isinstance(response, pb.ChatResponse) else response
            assert self.finish_reason is None, "a message after the last"
            assert piece.position == len(self.tokens) or not piece.token_ids, (piece.position, len(self.tokens))
            self.request_id = self.request_id or piece.request_id
            self.text += piece.text
            self.tokens += piece.token_ids
            self.logprobs += [exact(entry) for entry in piece.logprobs]
            self.prompt_logprobs += [exact(entry) for entry in piece.prompt_logprobs]
            if piece.finish_reason:
                self.finish_reason, self.usage, self.timings = piece.finish_reason, piece.usage, piece.timings
        assert self.finish_reason is not None, "the stream ended OK without a finish reason"

    def same_as(self, other):
        return (self.tokens, self.logprobs, self.text, self.prompt_logprobs) == (
            other.tokens, other.logprobs, other.text, other.prompt_logprobs)


def exact(entry):
    """A PositionLogprobs as plain values; floats compare exactly."""
    chosen = (entry.chosen.token_id, entry.chosen.logprob) if entry.HasField("chosen") else None
    return chosen, tuple((t.token_id, t.logprob) for t in entry.top)


def generate(stub, prompt, timeout=120, **fields):
    """Generate from text (str) or token ids (list), read to its end."""
    return Answer(stub.Generate(generate_request(prompt, **fields), timeout=timeout))


def generate_request(prompt, sampling=None, stop=None, logprobs=None, prompt_logprobs=None, **fields):
    request = pb.GenerateRequest(**fields)
    if isinstance(prompt, str):
        request.text = prompt
    else:
        request.token_ids.ids.extend(prompt)
    for name, value in (sampling or {}).items():
        if name == "logit_bias":
            for key, bias in value.items():
                request.sampling.logit_bias[key] = bias
        else:
            setattr(request.sampling, name, value)
    for name, value in (stop or {}).items():
        if isinstance(value, (list, tuple)):
            getattr(request.stop_conditions, name).extend(value)
        else:
            setattr(request.stop_conditions, name, value)
    if logprobs is not None:
        request.logprob_options.logprobs = logprobs
    if prompt_logprobs is not None:
        request.logprob_options.prompt_logprobs = prompt_logprobs
    return request


def chat(stub, text, timeout=120, max_tokens=None, **fields):
    request = pb.ChatRequest(messages=[pb.ChatMessage(role="user", content=text)], **fields)
    if max_tokens is not None:
        request.stop_conditions.max_tokens = max_tokens
    return Answer(stub.Chat(request, timeout=timeout))
