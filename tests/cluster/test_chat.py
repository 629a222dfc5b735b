"""A real model answers through router, prefill worker and decode worker."""
import json
import pathlib
import struct

import grpc
import pytest

from cluster import chat, generate, generate_request, pb, running
from stubs import types_pb2

STOP, LENGTH = types_pb2.FINISH_REASON_STOP, types_pb2.FINISH_REASON_LENGTH
# llama.cpp's mean |Δ log-probability| of the same text against the same oracle (8-bit activations, as ours).
PEER_MEAN_LOGPROB_ERROR = 0.0551


def test_chat_streams_an_answer(smollm2_cluster):
    answer = chat(smollm2_cluster.stub, "What is the capital of Portugal, and on which river does it lie?", max_tokens=40)
    assert "Lisbon" in answer.text
    assert answer.usage.completion_tokens == len(answer.tokens)
    assert answer.timings.time_to_first_token.ToMilliseconds() > 0
    # All parts of the disaggregated path took part: prefill there, hand-off, decode elsewhere.
    for part in ("prefill", "handoff", "first_decode"):
        assert answer.timings.HasField(part), part


def test_prompt_ids_are_those_of_the_oracle(smollm2_cluster, smollm2_cases):
    for case in smollm2_cases:
        request = pb.TokenizeRequest()
        if "messages" in case:
            for message in case["messages"]:
                request.chat.messages.add(role=message["role"], content=message["content"])
        else:
            request.text = case["text"]
        response = smollm2_cluster.stub.Tokenize(request, timeout=10)
        assert list(response.token_ids) == case["prompt_ids"], case["id"]


def test_greedy_tokens_follow_the_oracle(smollm2_cluster, smollm2_cases):
    """Equal up to the first step whose margin is small enough for 8-bit activations to tip."""
    compared = 0
    for case in smollm2_cases:
        answer = generate(smollm2_cluster.stub, case["prompt_ids"], stop={"max_tokens": 64, "ignore_eos": True})
        assert len(answer.tokens) == 64 and answer.finish_reason == LENGTH
        for step, (got, want, margin) in enumerate(zip(answer.tokens, case["greedy_ids"], case["greedy_margins"])):
            if got != want:
                assert margin <= 0.5, f"{case['id']}: step {step} gives {got}, the oracle {want} by a margin of {margin}"
                break
            compared += 1
    assert compared > 300, compared


def test_teacher_forced_top1_along_the_greedy_tokens(smollm2_cluster, smollm2_cases):
    right = right_clear = total = total_clear = 0
    for case in smollm2_cases:
        start = len(case["prompt_ids"])
        answer = generate(smollm2_cluster.stub, case["prompt_ids"] + case["greedy_ids"], stop={"max_tokens": 1},
                          prompt_logprobs=1)
        for step, (want, margin) in enumerate(zip(case["greedy_ids"], case["greedy_margins"])):
            hit = answer.prompt_logprobs[start + step][1][0][0] == want
            right, total = right + hit, total + 1
            if margin > 0.2:
                right_clear, total_clear = right_clear + hit, total_clear + 1
    print(f"top-1 {right / total:.4f}, with a margin above 0.2 {right_clear / total_clear:.4f}")
    assert right / total >= 0.965
    assert right_clear / total_clear >= 0.995


def test_text_logprobs_are_as_near_as_the_peer(smollm2_cluster, oracle):
    forced = json.loads((oracle / "smollm2" / "expected.json").read_text())["teacher_forced"]
    raw = (oracle / "smollm2" / "expected.safetensors").read_bytes()
    header_bytes = struct.unpack("<Q", raw[:8])[0]
    begin, end = json.loads(raw[8:8 + header_bytes])["teacher_forced.logprobs"]["data_offsets"]
    want = struct.unpack(f"<{(end - begin) // 4}f", raw[8 + header_bytes + begin:8 + header_bytes + end])
    answer = generate(smollm2_cluster.stub, forced["ids"], stop={"max_tokens": 1}, prompt_logprobs=1)
    got = [entry[0][1] for entry in answer.prompt_logprobs[1:]]
    error = sum(abs(g - w) for g, w in zip(got, want)) / len(want)
    top1 = sum(entry[1][0][0] == best for entry, best in
               zip(answer.prompt_logprobs[1:], forced["argmax_ids"])) / len(want)
    print(f"mean |delta logprob| {error:.4f}, top-1 {top1:.4f}")
    assert error <= 1.2 * PEER_MEAN_LOGPROB_ERROR
    assert top1 >= 0.955


def test_tiny_model_through_three_processes(tiny_cluster):
    answer = chat(tiny_cluster.stub, "hello there", max_tokens=12)
    assert 1 <= len(answer.tokens) <= 12
    tiny_cluster.wait_idle()


def test_max_tokens_counts_exactly(tiny_cluster):
    for n in (1, 2, 3, 17):
        answer = generate(tiny_cluster.stub, [5, 6, 7], stop={"max_tokens": n, "ignore_eos": True})
        assert (len(answer.tokens), answer.finish_reason, answer.usage.completion_tokens) == (n, LENGTH, n)
    tiny_cluster.wait_idle()


def test_one_token_needs_no_decode_worker(tiny):
    with running(tiny, decode=0) as cluster:
        answer = generate(cluster.stub, [5, 6, 7], stop={"max_tokens": 1})
        assert len(answer.tokens) == 1
        with pytest.raises(grpc.RpcError) as error:
            generate(cluster.stub, [5, 6, 7], stop={"max_tokens": 2}, timeout=90)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE


def test_stop_token_at_the_first_token_ends_there(tiny_cluster):
    first = generate(tiny_cluster.stub, [5, 6, 7], stop={"max_tokens": 4, "ignore_eos": True}).tokens[0]
    answer = generate(tiny_cluster.stub, [5, 6, 7], stop={"max_tokens": 50, "stop_token_ids": [first]})
    assert (answer.tokens, answer.finish_reason) == ([first], STOP)
    tiny_cluster.wait_idle()


def test_stop_string_cuts_the_text_exactly(smollm2_cluster):
    whole = chat(smollm2_cluster.stub, "Count from one to ten in words.", max_tokens=60)
    for begin in (0, 7, 12):
        stop = whole.text[begin:begin + 6]
        request = pb.ChatRequest(messages=[pb.ChatMessage(role="user", content="Count from one to ten in words.")])
        request.stop_conditions.max_tokens = 60
        request.stop_conditions.stop.append(stop)
        text = "".join(r.piece.text for r in smollm2_cluster.stub.Chat(request, timeout=60))
        assert text == whole.text[:whole.text.index(stop)], (stop, text)
    smollm2_cluster.wait_idle()


def test_pieces_are_whole_characters(smollm2_cluster, smollm2_cases):
    case = next(c for c in smollm2_cases if c["id"] == "raw3")
    pieces = list(smollm2_cluster.stub.Generate(
        generate_request(case["prompt_ids"], stop={"max_tokens": 40, "ignore_eos": True}), timeout=60))
    tokens = [t for p in pieces for t in p.token_ids]
    whole = smollm2_cluster.stub.Detokenize(pb.DetokenizeRequest(token_ids=tokens), timeout=10).text
    assert "".join(p.text for p in pieces) == whole


def test_logprobs_have_an_entry_a_token(tiny_cluster):
    answer = generate(tiny_cluster.stub, [5, 6, 7, 8], stop={"max_tokens": 8, "ignore_eos": True}, logprobs=3,
                      prompt_logprobs=2)
    assert len(answer.logprobs) == 8
    for token, (chosen, top) in zip(answer.tokens, answer.logprobs):
        assert chosen[0] == token
        assert len(top) == 3 and len({t for t, _ in top}) == 3
        assert [p for _, p in top] == sorted((p for _, p in top), reverse=True)
        assert top[0] == chosen  # Greedy: the chosen one is the best one.
    assert len(answer.prompt_logprobs) == 4
    assert answer.prompt_logprobs[0] == (None, ())
    assert [entry[0][0] for entry in answer.prompt_logprobs[1:]] == [6, 7, 8]


def test_seeded_sampling_repeats_and_varies(tiny_cluster):
    def sample(seed):
        return generate(tiny_cluster.stub, [5, 6, 7], sampling={"temperature": 1.0, "top_p": 0.95, "seed": seed},
                        stop={"max_tokens": 16, "ignore_eos": True}).tokens
    assert sample(1) == sample(1)
    assert len({tuple(sample(seed)) for seed in range(1, 6)}) > 1


def test_sampling_parameters_reach_the_engine(tiny_cluster):
    stop = {"max_tokens": 12, "ignore_eos": True}
    plain = generate(tiny_cluster.stub, [5, 6, 7], stop=stop).tokens
    forced = generate(tiny_cluster.stub, [5, 6, 7], sampling={"logit_bias": {9: 100.0}}, stop=stop).tokens
    assert forced == [9] * 12
    banned = generate(tiny_cluster.stub, [5, 6, 7], sampling={"logit_bias": {plain[0]: -100.0}}, stop=stop).tokens
    assert banned[0] != plain[0]
    frequent = generate(tiny_cluster.stub, [5, 6, 7], stop=stop,
                        sampling={"logit_bias": {9: 60.0}, "frequency_penalty": 2.0}).tokens
    assert frequent[0] == 9
    unrepeated = generate(tiny_cluster.stub, [5, 6, 7], stop=stop, sampling={"repetition_penalty": 1000.0}).tokens
    assert len(set(unrepeated)) == 12 and not set(unrepeated) & {5, 6, 7}
    top1 = generate(tiny_cluster.stub, [5, 6, 7], stop=stop, sampling={"temperature": 2.0, "top_k": 1, "seed": 3}).tokens
    assert top1 == plain


def test_models_and_tokenizer_services(tiny_cluster):
    models = tiny_cluster.stub.ListModels(pb.ListModelsRequest(), timeout=10).models
    assert len(models) == 1 and models[0].has_chat_template and models[0].vocabulary_size > 0
    text = "Hello, wörld! 你好 🙂"
    tokens = tiny_cluster.stub.Tokenize(pb.TokenizeRequest(text=text), timeout=10)
    assert b"".join(tokens.token_bytes) == text.encode()
    assert tiny_cluster.stub.Detokenize(pb.DetokenizeRequest(token_ids=tokens.token_ids), timeout=10).text == text


@pytest.mark.parametrize("level", ["reference", "avx2", "avx512-nobf16", "avx512"])
def test_every_cpu_level_gives_a_right_answer(tiny, level):
    """Greedy tokens follow transformers' until a margin that 8-bit activations may tip."""
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    needs = {"avx2": "avx2", "avx512-nobf16": "avx512_vnni", "avx512": "avx512_bf16"}.get(level)
    if needs and needs not in flags:
        pytest.skip(f"this CPU has no {needs}")
    cases = json.loads(tiny.with_suffix(".expected.json").read_text())["prompts"]
    compared = 0
    with running(tiny, prefill_flags=[f"--cpu={level}"], decode_flags=[f"--cpu={level}"]) as cluster:
        assert {w.cpu_level for w in cluster.status().workers} == {level}
        for case in cases:
            answer = generate(cluster.stub, case["prompt_ids"], stop={"max_tokens": len(case["greedy_ids"]), "ignore_eos": True})
            for got, want, margin in zip(answer.tokens, case["greedy_ids"], case["greedy_margins"]):
                if got != want:
                    assert margin <= 0.7, (case["id"], margin)
                    break
                compared += 1
    assert compared > 40, compared
