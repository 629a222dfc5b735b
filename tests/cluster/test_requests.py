"""What a request may ask for reaches the engines, and what an answer reports is so."""
import json

import grpc
import pytest

from cluster import SOURCE, chat, generate, generate_request, pb, running, wait_until
from stubs import types_pb2

GOLDEN = SOURCE / "tests" / "golden"
STOP, LENGTH = types_pb2.FINISH_REASON_STOP, types_pb2.FINISH_REASON_LENGTH
NO_EOS = {"max_tokens": 12, "ignore_eos": True}
END = "<|end|>"  # The tiny model's end of sequence.


def tokenize(stub, **fields):
    return list(stub.Tokenize(pb.TokenizeRequest(**fields), timeout=10).token_ids)


@pytest.mark.parametrize("name", ["llama-f32", "llama-bf16"])
def test_safetensors_are_served_by_token_ids(name):
    """F32 and BF16 folders (llama3 and YaRN scaling, biases, tied) give transformers' tokens, and say that they have no text."""
    cases = json.loads((GOLDEN / name / "expected.json").read_text())["prompts"]
    compared = 0
    with running(GOLDEN / name, prefill_flags=["--kv_dtype=f32"], decode_flags=["--kv_dtype=f32"]) as cluster:
        for case in cases:
            answer = generate(cluster.stub, case["prompt_ids"], logprobs=0,
                              stop={"max_tokens": len(case["greedy_ids"]), "ignore_eos": True})
            assert answer.text == ""
            for step, (want, margin) in enumerate(zip(case["greedy_ids"], case["greedy_margins"])):
                if answer.tokens[step] != want:
                    assert margin < 2e-3, (case["id"], step, margin)
                    break
                assert abs(answer.logprobs[step][0][1] - case["greedy_logprobs"][step]) <= 1e-3, (case["id"], step)
                compared += 1
        for call in (lambda: generate(cluster.stub, "text"), lambda: chat(cluster.stub, "text"),
                     lambda: generate(cluster.stub, [5], stop={"stop": ["x"]})):
            with pytest.raises(grpc.RpcError) as error:
                call()
            assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION, error.value.details()
    assert compared > 150, compared


def test_end_of_sequence_at_the_first_token_ends_there(tiny_cluster):
    [end] = tokenize(tiny_cluster.stub, text=END, parse_special=True)
    bias = {"logit_bias": {end: 100.0}}
    answer = generate(tiny_cluster.stub, [5, 6, 7], sampling=bias, stop={"max_tokens": 50})
    assert (answer.tokens, answer.text, answer.finish_reason) == ([end], "", STOP)
    assert answer.usage.completion_tokens == 1
    assert not answer.timings.HasField("first_decode")
    tiny_cluster.wait_idle()
    # The same with the end ignored goes on: it was the end of sequence that ended it.
    assert generate(tiny_cluster.stub, [5, 6, 7], sampling=bias, stop=NO_EOS).tokens == [end] * 12


def test_a_stop_string_in_the_first_token_ends_there(tiny_cluster):
    word = "hello"
    token = tokenize(tiny_cluster.stub, text=word)[0]
    text = tiny_cluster.stub.Detokenize(pb.DetokenizeRequest(token_ids=[token]), timeout=10).text
    answer = generate(tiny_cluster.stub, [5, 6, 7], sampling={"logit_bias": {token: 100.0}},
                      stop={"max_tokens": 300, "ignore_eos": True, "stop": [text]})
    assert (answer.text, answer.finish_reason) == ("", STOP)
    assert answer.usage.completion_tokens < 300
    tiny_cluster.wait_idle()


def test_usage_counts_what_the_model_saw(tiny_cluster):
    request = pb.TokenizeRequest()
    request.chat.messages.add(role="user", content="hello there")
    prompt = list(tiny_cluster.stub.Tokenize(request, timeout=10).token_ids)
    for answer in (chat(tiny_cluster.stub, "hello there", max_tokens=9),
                   generate(tiny_cluster.stub, prompt, stop={"max_tokens": 9})):
        assert answer.usage.prompt_tokens == len(prompt)
        assert answer.usage.cached_tokens == 0
        assert answer.usage.completion_tokens == len(answer.tokens) <= 9


def test_token_ids_get_no_bos_and_are_taken_as_they_are(tiny_cluster):
    assert generate(tiny_cluster.stub, [5], stop=NO_EOS).usage.prompt_tokens == 1
    ids = tokenize(tiny_cluster.stub, text="over the river")
    by_text = generate(tiny_cluster.stub, "over the river", stop=NO_EOS, logprobs=2)
    assert generate(tiny_cluster.stub, ids, stop=NO_EOS, logprobs=2).same_as(by_text)


def test_a_seed_that_was_drawn_gives_the_answer_again(tiny_cluster):
    sampling = {"temperature": 1.0}
    drawn = [generate(tiny_cluster.stub, [5, 6, 7], sampling=sampling, stop=NO_EOS) for _ in range(4)]
    assert len({answer.usage.seed for answer in drawn}) == 4
    assert len({tuple(answer.tokens) for answer in drawn}) > 1
    for answer in drawn:
        again = generate(tiny_cluster.stub, [5, 6, 7], sampling={**sampling, "seed": answer.usage.seed}, stop=NO_EOS)
        assert again.tokens == answer.tokens and again.usage.seed == answer.usage.seed
    greedy = {tuple(generate(tiny_cluster.stub, [5, 6, 7], sampling={"seed": seed}, stop=NO_EOS).tokens)
              for seed in range(3)}
    assert len(greedy) == 1


def test_prompt_logprobs_are_those_of_generation(tiny_cluster):
    """An answer sent back as a prompt has the very log-probabilities it was generated with, whoever computed them."""
    prompt = [5, 6, 7, 8, 9]
    answer = generate(tiny_cluster.stub, prompt, stop={"max_tokens": 33, "ignore_eos": True}, logprobs=20)
    echo = generate(tiny_cluster.stub, prompt + answer.tokens, stop={"max_tokens": 1}, prompt_logprobs=20)
    assert len(echo.prompt_logprobs) == len(prompt) + 33
    assert echo.prompt_logprobs[0] == (None, ())
    assert echo.prompt_logprobs[len(prompt):] == answer.logprobs
    for chosen, top in echo.prompt_logprobs[1:]:
        assert len({token for token, _ in top}) == 20
        assert [value for _, value in top] == sorted((value for _, value in top), reverse=True)
        assert chosen[1] <= top[0][1]
    again = generate(tiny_cluster.stub, prompt + answer.tokens, stop={"max_tokens": 1}, prompt_logprobs=20)
    assert again.prompt_logprobs == echo.prompt_logprobs


def test_logprobs_carry_the_bytes_of_their_own_tokens(tiny_cluster):
    [piece] = list(tiny_cluster.stub.Generate(generate_request([5, 6, 7], stop={"max_tokens": 1}, logprobs=5), timeout=60))
    entries = [piece.logprobs[0].chosen, *piece.logprobs[0].top]
    assert len({entry.token_bytes for entry in entries[1:]}) == 5
    for entry in entries:
        text = tiny_cluster.stub.Detokenize(pb.DetokenizeRequest(token_ids=[entry.token_id]), timeout=10).text
        assert entry.token_bytes.decode(errors="replace") == text


def test_timings_add_up(slow_cluster):
    """With steps of 20 ms each part has its place: a prompt's step in prefill, the next in first_decode."""
    answer = generate(slow_cluster.stub, [5] * 30, stop={"max_tokens": 6, "ignore_eos": True})
    ms = {field.name: value.ToMicroseconds() / 1000 for field, value in answer.timings.ListFields()}
    assert set(ms) == {"text", "queue", "prefill_queue", "prefill", "handoff", "first_decode", "time_to_first_token",
                       "total"}, ms
    assert ms["prefill"] >= 20 and ms["first_decode"] >= 20, ms
    assert ms["text"] + ms["queue"] + ms["prefill_queue"] + ms["prefill"] <= ms["time_to_first_token"], ms
    # Five more tokens, each a step.
    assert ms["total"] >= ms["time_to_first_token"] + 5 * 20 - 1, ms
    # What of the time before the second token is in no part is messages on their way.
    assert ms["handoff"] <= ms["total"] - ms["time_to_first_token"], ms


def test_roles(tiny_cluster):
    def ask(*messages):
        request = pb.ChatRequest(messages=[pb.ChatMessage(role=r, content=c) for r, c in messages])
        request.stop_conditions.max_tokens = 2
        return list(tiny_cluster.stub.Chat(request, timeout=60))
    assert ask(("system", "Be brief."), ("user", "hello"), ("assistant", "hi"), ("user", "and?"))
    # A role of ours that this model's template refuses, in the template's own words.
    with pytest.raises(grpc.RpcError) as error:
        ask(("tool", "42"))
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "no such role: tool" in error.value.details()


def test_served_model_name(tiny):
    with running(tiny, router_flags=["--served_model_name=alice"]) as cluster:
        assert cluster.stub.ListModels(pb.ListModelsRequest(), timeout=10).models[0].name == "alice"
        assert len(generate(cluster.stub, [5], stop=NO_EOS, model="alice").tokens) == 12
        with pytest.raises(grpc.RpcError) as error:
            generate(cluster.stub, [5], stop=NO_EOS, model=tiny.stem)
        assert error.value.code() == grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("kv_dtype", ["f32", "f16", "bf16"])
def test_kv_types(tiny, kv_dtype):
    flags = [f"--kv_dtype={kv_dtype}"]
    with running(tiny, prefill_flags=flags, decode_flags=flags) as cluster:
        assert len(generate(cluster.stub, [5] * 40, stop=NO_EOS).tokens) == 12
        for worker in cluster.processes[1:]:
            assert f"KV {kv_dtype}" in worker.log()


def test_workers_that_cannot_exchange_kv_are_never_paired(tiny):
    """Another KV type on the decode side: nothing is generated from foreign bytes; one token needs no exchange."""
    with running(tiny, prefill_flags=["--kv_dtype=f16"], decode_flags=["--kv_dtype=f32"],
                 router_flags=["--queue_wait_max=1s"]) as cluster:
        with running(tiny, prefill=0, decode_flags=["--kv_dtype=f32"]) as alone:
            want = generate(alone.stub, [5] * 40, stop=NO_EOS, logprobs=3)
        # The decode worker prefills by itself rather than with a partner it does not match.
        assert generate(cluster.stub, [5] * 40, stop=NO_EOS, logprobs=3).same_as(want)
        prefill = next(p for p in cluster.processes if p.name == "baton-prefill-worker")
        assert "link up" not in prefill.log()


def test_sixty_four_sequences_decode_at_once(slow_cluster):
    calls = [slow_cluster.stub.Generate(generate_request([5 + i] * 8, stop={"max_tokens": 60, "ignore_eos": True}),
                                        timeout=120) for i in range(80)]

    def decoding():
        return max(w.running_sequences for w in slow_cluster.status().workers if w.role == "decode")
    wait_until(lambda: decoding() >= 64, 30, lambda: f"64 running sequences; there are {decoding()}")
    for call in calls:
        assert sum(len(piece.token_ids) for piece in call) == 60
    slow_cluster.wait_idle()


def test_settings_are_printed_at_start(tiny):
    flags = ["--context_tokens=512", "--block_tokens=32", "--chunk_tokens=64", "--running_max=7",
             f"--arena_bytes={8 << 20}"]
    with running(tiny, prefill_flags=flags, decode_flags=flags) as cluster:
        assert cluster.stub.ListModels(pb.ListModelsRequest(), timeout=10).models[0].context_tokens == 512
        for worker in cluster.processes[1:]:
            for flag in flags:
                assert flag.removeprefix("--") in worker.log(), (flag, worker.log())
            assert "kv arena bytes=" in worker.log()
        assert "setting worker_wait=" in cluster.router.log()


def test_defaults_are_computed_and_printed(tiny):
    with running(tiny) as cluster:
        for worker in cluster.processes[1:]:
            for setting in ("block_tokens=16", "chunk_tokens=512", "context_tokens=1024", "kv arena bytes="):
                assert setting in worker.log(), setting
            assert "KV bf16" in worker.log()


def test_a_cpu_levels_fallback_is_named_at_start(tiny):
    with running(tiny, prefill=0, decode_flags=["--cpu=avx2"]) as cluster:
        assert "reference code for" in cluster.processes[1].log() and "matmul" in cluster.processes[1].log()
