"""Fixtures of the cluster tests."""
import hashlib
import json
import os
import pathlib

import pytest

from cluster import SOURCE, running

DEFAULT_MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def _default_model():
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return pathlib.Path(os.environ.get("BATON_MODEL") or
                        cache / "baton" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="session")
def smollm2():
    """The default model's path; tests that need it skip, and say so, without it."""
    if os.environ.get("BATON_SANITIZED"):
        pytest.skip("the default model is too slow under sanitizers: the tiny model's tests run there")
    path = _default_model()
    if not path.exists():
        pytest.skip(f"the default model is not at {path}: run tools/fetch_model")
    assert hashlib.sha256(path.read_bytes()).hexdigest() == DEFAULT_MODEL_SHA256
    return path


@pytest.fixture(scope="session")
def oracle():
    """The oracle's folder; tests that need it skip, and say so, without it."""
    path = pathlib.Path(os.environ.get("BATON_ORACLE_DIR") or SOURCE.parent / "shared" / "oracle")
    if not path.exists():
        pytest.skip(f"no oracle at {path}: set BATON_ORACLE_DIR")
    return path


@pytest.fixture(scope="session")
def smollm2_cases(oracle):
    return json.loads((oracle / "smollm2" / "expected.json").read_text())["cases"]


@pytest.fixture(scope="session")
def tiny():
    """A tiny model of ours with tokenizer and chat template, always there."""
    return SOURCE / "tests" / "golden" / "tiny.Q4_1.gguf"


@pytest.fixture(scope="module")
def tiny_cluster(tiny):
    with running(tiny) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def smollm2_cluster(smollm2):
    with running(smollm2) as cluster:
        yield cluster


@pytest.fixture
def slow_cluster(tiny):
    """Workers on the fake model whose steps take 20 ms, so that a test can act in the middle of an answer."""
    with running(tiny, prefill=0, decode=0) as cluster:
        for role in ("decode", "prefill"):
            cluster.start_fake(role, "--fake_step=20ms")
        cluster.wait_workers(2)
        yield cluster
