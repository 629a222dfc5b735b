"""Python stubs, generated from the protos as an outside client would generate them, once per test run."""
import importlib
import pathlib
import sys
import tempfile

import grpc_tools.protoc

_PROTOS = pathlib.Path(__file__).resolve().parents[2] / "protos"
_folder = tempfile.TemporaryDirectory(prefix="baton-stubs-")
_include = pathlib.Path(grpc_tools.protoc.__file__).parent / "_proto"
_code = grpc_tools.protoc.main(
    ["protoc", f"-I{_PROTOS}", f"-I{_include}", f"--python_out={_folder.name}", f"--grpc_python_out={_folder.name}",
     *(str(path) for path in sorted(_PROTOS.glob("baton/v1/*.proto")))])
assert _code == 0, "protoc failed"
sys.path.insert(0, _folder.name)

inference_service_pb2 = importlib.import_module("baton.v1.inference_service_pb2")
inference_service_pb2_grpc = importlib.import_module("baton.v1.inference_service_pb2_grpc")
types_pb2 = importlib.import_module("baton.v1.types_pb2")
