"""`baton serve` as a test fixture."""
import contextlib

import grpc

from cluster import Process, pb_grpc


@contextlib.contextmanager
def serving(model, *flags):
    """A whole cluster in one process; gives the public stub."""
    process = Process("baton", "serve", str(model), "--port=0", "--metrics_port=0", *flags)
    try:
        process.wait_ready()
        with grpc.insecure_channel(process.ready["client"]) as channel:
            yield pb_grpc.InferenceServiceStub(channel)
    finally:
        code = process.stop()
        assert code == 0, process.log()[-4000:]
