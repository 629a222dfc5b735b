"""Everything a caller can get wrong ends in a clear status, and disturbs nobody else."""
import json
import math
import socket
import struct
import subprocess
import threading
import time

import grpc
import pytest

from cluster import BIN, SOURCE, chat, generate, generate_request, pb, running

INVALID = grpc.StatusCode.INVALID_ARGUMENT


def refused(call, code, *words):
    """The call fails with `code`, and the message holds every word."""
    with pytest.raises(grpc.RpcError) as error:
        call()
    assert error.value.code() == code, (error.value.code(), error.value.details())
    for word in words:
        assert str(word) in error.value.details(), (word, error.value.details())


GENERATE_CASES = {
    "no_prompt": (lambda: pb.GenerateRequest(), INVALID, ["prompt"]),
    "empty_text": (lambda: generate_request(""), INVALID, ["text"]),
    "no_token_ids": (lambda: generate_request([]), INVALID, ["token_ids"]),
    "token_beyond_vocabulary": (lambda: generate_request([1, 4294967295]), INVALID, ["token_ids", "4294967295"]),
    "prompt_beyond_context": (lambda: generate_request([5] * 100000), INVALID, ["100000"]),
    "max_tokens_zero": (lambda: generate_request([5], stop={"max_tokens": 0}), INVALID, ["max_tokens", "0"]),
    "max_tokens_negative": (lambda: generate_request([5], stop={"max_tokens": -3}), INVALID, ["max_tokens", "-3"]),
    "max_tokens_huge": (lambda: generate_request([5], stop={"max_tokens": 2**63 - 1}), INVALID,
                        ["max_tokens", 2**63 - 1]),
    "temperature_nan": (lambda: generate_request([5], sampling={"temperature": math.nan}), INVALID, ["temperature", "nan"]),
    "temperature_negative": (lambda: generate_request([5], sampling={"temperature": -1.0}), INVALID, ["temperature", "-1"]),
    "top_p_zero": (lambda: generate_request([5], sampling={"top_p": 0.0}), INVALID, ["top_p", "0"]),
    "top_p_above_one": (lambda: generate_request([5], sampling={"top_p": 1.5}), INVALID, ["top_p", "1.5"]),
    "min_p_above_one": (lambda: generate_request([5], sampling={"min_p": 2.0}), INVALID, ["min_p", "2"]),
    "repetition_penalty_zero": (lambda: generate_request([5], sampling={"repetition_penalty": 0.0}), INVALID,
                                ["repetition_penalty", "0"]),
    "presence_penalty": (lambda: generate_request([5], sampling={"presence_penalty": 3.0}), INVALID,
                         ["presence_penalty", "3"]),
    "frequency_penalty": (lambda: generate_request([5], sampling={"frequency_penalty": -9.0}), INVALID,
                          ["frequency_penalty", "-9"]),
    "logit_bias_key": (lambda: generate_request([5], sampling={"logit_bias": {99999999: 1.0}}), INVALID,
                       ["logit_bias", "99999999"]),
    "logit_bias_value": (lambda: generate_request([5], sampling={"logit_bias": {5: 101.0}}), INVALID,
                         ["logit_bias", "101"]),
    "many_stops": (lambda: generate_request([5], stop={"stop": ["x"] * 17}), INVALID, ["stop", "17", "16"]),
    "empty_stop": (lambda: generate_request([5], stop={"stop": [""]}), INVALID, ["stop"]),
    "long_stop": (lambda: generate_request([5], stop={"stop": ["x" * 257]}), INVALID, ["stop", "257", "256"]),
    "stop_token": (lambda: generate_request([5], stop={"stop_token_ids": [99999999]}), INVALID,
                   ["stop_token_ids", "99999999"]),
    "many_logprobs": (lambda: generate_request([5], logprobs=21), INVALID, ["logprobs", "21", "20"]),
    "many_prompt_logprobs": (lambda: generate_request([5], prompt_logprobs=21), INVALID, ["prompt_logprobs", "21", "20"]),
    "max_tokens_beyond_31_bits": (lambda: generate_request([5], stop={"max_tokens": 2**31}), INVALID,
                                  ["max_tokens", 2**31]),
    "temperature_infinite": (lambda: generate_request([5], sampling={"temperature": math.inf}), INVALID,
                             ["temperature", "inf"]),
    "top_p_nan": (lambda: generate_request([5], sampling={"top_p": math.nan}), INVALID, ["top_p", "nan"]),
    "min_p_nan": (lambda: generate_request([5], sampling={"min_p": math.nan}), INVALID, ["min_p", "nan"]),
    "logit_bias_nan": (lambda: generate_request([5], sampling={"logit_bias": {5: math.nan}}), INVALID,
                       ["logit_bias", "nan"]),
    "many_logit_biases": (lambda: generate_request([5], sampling={"logit_bias": dict.fromkeys(range(1025), 1.0)}), INVALID,
                          ["logit_bias", "1025", "1024"]),
    "many_stop_tokens": (lambda: generate_request([5], stop={"stop_token_ids": [5] * 65}), INVALID,
                         ["stop_token_ids", "65", "64"]),
    "long_client_id": (lambda: generate_request([5], client_request_id="x" * 257), INVALID,
                       ["client_request_id", "257", "256"]),
    "unknown_model": (lambda: generate_request([5], model="nobody"), grpc.StatusCode.NOT_FOUND, ["nobody"]),
    "two_answers": (lambda: generate_request([5], n=2), INVALID, ["n", "2"]),
}


@pytest.mark.parametrize("name", GENERATE_CASES)
def test_generate_refuses(tiny_cluster, name):
    make, code, words = GENERATE_CASES[name]
    refused(lambda: list(tiny_cluster.stub.Generate(make(), timeout=10)), code, *words)


def test_prompt_and_max_tokens_beyond_context(tiny_cluster):
    context = tiny_cluster.stub.ListModels(pb.ListModelsRequest(), timeout=10).models[0].context_tokens
    refused(lambda: generate(tiny_cluster.stub, [5] * (context + 1)), INVALID, context + 1, context)
    refused(lambda: generate(tiny_cluster.stub, [5] * context), INVALID, context)
    refused(lambda: generate(tiny_cluster.stub, [5] * (context - 3), stop={"max_tokens": 4}), INVALID, "max_tokens", 4,
            context)
    for room in (1, 2, 3):
        rest = generate(tiny_cluster.stub, [5] * (context - room), stop={"ignore_eos": True})
        assert len(rest.tokens) == room


def test_chat_refuses(tiny_cluster):
    stub = tiny_cluster.stub
    refused(lambda: list(stub.Chat(pb.ChatRequest(), timeout=10)), INVALID, "messages")
    wizard = pb.ChatRequest(messages=[pb.ChatMessage(role="wizard", content="x")])
    refused(lambda: list(stub.Chat(wizard, timeout=10)), INVALID, "role", "wizard")
    many = pb.ChatRequest(messages=[pb.ChatMessage(role="user", content="x")] * 1025)
    refused(lambda: list(stub.Chat(many, timeout=10)), INVALID, "messages", 1025, 1024)


def test_tokenize_and_detokenize_refuse(tiny_cluster):
    stub = tiny_cluster.stub
    refused(lambda: stub.Tokenize(pb.TokenizeRequest(), timeout=10), INVALID, "input")
    refused(lambda: stub.Tokenize(pb.TokenizeRequest(text=""), timeout=10), INVALID, "text")
    refused(lambda: stub.Tokenize(pb.TokenizeRequest(text="x", model="nobody"), timeout=10), grpc.StatusCode.NOT_FOUND,
            "nobody")
    refused(lambda: stub.Detokenize(pb.DetokenizeRequest(token_ids=[1, 4294967295]), timeout=10), INVALID, "token_ids[1]",
            4294967295)


def test_prompts_of_odd_text_are_answered(tiny_cluster):
    for text in (" ", "\n\n\n", "\0", "<|end|>", "\U0001f469\u200d\U0001f4bb" * 50, "x" * 700):
        answer = generate(tiny_cluster.stub, text, stop={"max_tokens": 2, "ignore_eos": True})
        assert len(answer.tokens) == 2, text


def test_hundred_megabytes_are_refused(tiny_cluster):
    refused(lambda: generate(tiny_cluster.stub, "x" * (100 << 20)), grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert len(generate(tiny_cluster.stub, [5], stop={"max_tokens": 3, "ignore_eos": True}).tokens) == 3


def test_bad_requests_do_not_disturb_a_running_answer(tiny_cluster):
    def ask():
        return tiny_cluster.stub.Generate(
            generate_request([5, 6, 7], stop={"max_tokens": 200, "ignore_eos": True}), timeout=60)
    want = [t for piece in ask() for t in piece.token_ids]
    got = []
    for index, piece in enumerate(ask()):
        got += piece.token_ids
        make, code, words = list(GENERATE_CASES.values())[index % len(GENERATE_CASES)]
        refused(lambda: list(tiny_cluster.stub.Generate(make(), timeout=10)), code, *words)
    assert got == want


def test_calls_that_end_before_their_request(tiny_cluster):
    """Half-closed without a message, and cancelled before one: the router answers, and goes on."""
    with grpc.insecure_channel(tiny_cluster.client_address) as channel:
        raw = channel.stream_stream("/baton.v1.InferenceService/Generate", request_serializer=bytes,
                                    response_deserializer=bytes)
        refused(lambda: list(raw(iter(()), timeout=10)), INVALID, "without a request")
        for _ in range(100):
            never = threading.Event()
            raw(iter(never.wait, True), timeout=10).cancel()
            never.set()
    assert len(generate(tiny_cluster.stub, [5], stop={"max_tokens": 3, "ignore_eos": True}).tokens) == 3


def test_two_thousand_idle_connections(tiny_cluster):
    def usual():
        times = []
        for _ in range(15):
            answer = chat(tiny_cluster.stub, "hello", max_tokens=4)
            times.append(answer.timings.time_to_first_token.ToMicroseconds())
        return sorted(times)[len(times) // 2]
    before = usual()
    host, port = tiny_cluster.client_address.rsplit(":", 1)
    idle = []
    try:
        for _ in range(2000):
            connection = socket.create_connection((host, int(port)), timeout=10)
            # A whole HTTP/2 client greeting: preface and an empty SETTINGS frame.
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
            idle.append(connection)
        assert usual() <= 2 * before + 2000  # Microseconds; two milliseconds for a busy machine.
    finally:
        for connection in idle:
            connection.close()


def start_fails(name, *flags):
    result = subprocess.run([BIN / name, *flags], capture_output=True, text=True, timeout=60)
    assert result.returncode not in (0, -6, -11), (result.returncode, result.stderr)
    return result.stderr


WORKERS = ("baton-prefill-worker", "baton-decode-worker")


def test_hostile_model_files_are_refused(tiny, tmp_path):
    good = tiny.read_bytes()
    bad = {"empty.gguf": b"", "short.gguf": good[:100], "truncated.gguf": good[:len(good) // 2],
           "magic.gguf": b"GGML" + good[4:], "version.gguf": good[:4] + struct.pack("<I", 99) + good[8:],
           "counts.gguf": good[:8] + struct.pack("<Q", 2**63) + good[16:]}
    for name, data in bad.items():
        path = tmp_path / name
        path.write_bytes(data)
        for binary in ("baton-router", *WORKERS):
            assert name in start_fails(binary, f"--model={path}", "--port=0", "--metrics_port=0"), (binary, name)


def test_hostile_safetensors_are_refused(tmp_path):
    good = SOURCE / "tests" / "golden" / "llama-f32"
    tensors = (good / "model.safetensors").read_bytes()
    config = json.loads((good / "config.json").read_text())
    bad = {
        "truncated": (tensors[:len(tensors) // 2], config),
        "endless_header": (struct.pack("<Q", 2**63) + tensors[8:], config),
        "flipped_header": (tensors[:40] + bytes([tensors[40] ^ 0x80]) + tensors[41:], config),
        "no_tensors": (struct.pack("<Q", 2) + b"{}", config),
        "other_shape": (tensors, {**config, "hidden_size": config["hidden_size"] * 2}),
        "other_architecture": (tensors, {**config, "model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"]}),
    }
    for name, (data, values) in bad.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(data)
        (folder / "config.json").write_text(json.dumps(values))
        for binary in WORKERS:
            assert name in start_fails(binary, f"--model={folder}", "--port=0", "--metrics_port=0"), (binary, name)


def test_a_model_whose_text_is_not_understood_is_refused(tiny, tmp_path):
    """No silent other pre-tokenizer, no silent other template: the router does not start."""
    good = tiny.read_bytes()
    for name, was, now, word in (("pre.gguf", b"tokenizer.ggml.pre", b"tokenizer.ggml.prX", "tokenizer.ggml.pre"),
                                 ("template.gguf", b"{%- endfor -%}", b"{%- endfoo -%}", "line")):
        assert good.count(was) == 1, was
        (tmp_path / name).write_bytes(good.replace(was, now))
        message = start_fails("baton-router", f"--model={tmp_path / name}", "--port=0", "--worker_port=0",
                              "--metrics_port=0")
        assert word in message, message


def test_missing_file_and_port_in_use(tiny, tiny_cluster):
    for binary in ("baton-router", *WORKERS):
        assert "/nowhere.gguf" in start_fails(binary, "--model=/nowhere.gguf", "--port=0", "--metrics_port=0")
    port = tiny_cluster.client_address.rsplit(":", 1)[1]
    assert port in start_fails("baton-router", f"--model={tiny}", f"--port={port}", "--worker_port=0", "--metrics_port=0")
    for binary in WORKERS:
        assert port in start_fails(binary, f"--model={tiny}", f"--port={port}", "--metrics_port=0")


def test_flags_out_of_range_are_named(tiny):
    for flag, value in (("block_tokens", 17), ("chunk_tokens", 0), ("running_max", 100000), ("threads", 100000)):
        message = start_fails("baton-decode-worker", f"--model={tiny}", "--port=0", "--metrics_port=0", f"--{flag}={value}")
        assert flag in message and str(value) in message, message


def test_no_worker(tiny):
    with running(tiny, prefill=0, decode=0, router_flags=["--worker_wait=2s"]) as cluster:
        started = time.monotonic()
        refused(lambda: generate(cluster.stub, [5]), grpc.StatusCode.UNAVAILABLE)
        waited = time.monotonic() - started
        refused(lambda: generate(cluster.stub, [5]), grpc.StatusCode.UNAVAILABLE)
        at_once = time.monotonic() - started - waited
        assert waited < 4 and at_once < 1, (waited, at_once)


def test_request_waits_for_the_first_worker(tiny):
    with running(tiny, prefill=0, decode=0) as cluster:
        call = cluster.stub.Generate(generate_request([5], stop={"max_tokens": 3, "ignore_eos": True}), timeout=60)
        cluster.start_decode()
        cluster.start_prefill()
        assert sum(len(piece.token_ids) for piece in call) == 3
