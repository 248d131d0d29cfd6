"""A server process for the tests of signals and of its own death."""

import json
import os
import sys

from engine.server.app import Server, bind, to_stderr
from engine.server.options import ServerOptions
from tests.engine.server.byte_text import ByteText

EXPENSIVE = ("torch", "numba", "triton", "transformers")


def main() -> int:
    asked = json.loads(sys.argv[1])
    options = ServerOptions(engine=tuple(asked.pop("engine")), port=0, announce=to_stderr, **asked)
    server = Server(options, ByteText(), bind(options))
    print(json.dumps({"port": server.port}), flush=True)
    server.run()
    loaded = [name for name in EXPENSIVE if name in sys.modules]
    print(json.dumps({"loaded": loaded, "pid": os.getpid()}), flush=True)
    return 1 if server.failure else 0


if __name__ == "__main__":
    sys.exit(main())
