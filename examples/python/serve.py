"""Serves a model's feed-forward blocks and experts, so that other processes and machines have them computed here.

Run it from anywhere: python examples/python/serve.py [MODEL] [--listen http://127.0.0.1:8080] [--layers 0:15] ...
Elsewhere: skulk.Model.load(MODEL, ffn_at=["http://127.0.0.1:8080"])
"""

import argparse
from pathlib import Path

import skulk

STORIES = Path(__file__).parents[1] / "models" / "stories260K"


def span(text: str) -> range:
    first, behind = text.split(":")
    return range(int(first), int(behind))


def content(path: str) -> str:
    return Path(path).read_text(encoding="utf-8").strip()


def main() -> None:
    parser = argparse.ArgumentParser(description="Serves a model's feed-forward blocks and experts.")
    parser.add_argument("model", nargs="?", default=STORIES, help="a checkpoint; by default a small one")
    parser.add_argument("--listen", help="http://host:port, https://host:port or unix:///path; by default a free port")
    parser.add_argument("--layers", type=span, metavar="FIRST:BEHIND", help="only these layers")
    parser.add_argument("--experts", type=span, metavar="FIRST:BEHIND", help="only these experts of each layer")
    parser.add_argument("--key-file", dest="key", type=content, help="holds the key that clients must know")
    parser.add_argument("--identity-file", dest="identity", type=content, help="certificate and key for https, in PEM")
    parser.add_argument("--clients-file", dest="clients", type=content, help="certificates of clients' authority, in PEM")
    parser.add_argument("--ffn-budget", type=int, metavar="BYTES", help="weights that are kept in memory at a time")
    parser.add_argument("--threads", type=int, help="threads that compute")
    options = vars(parser.parse_args())

    with skulk.serve(options.pop("model"), **options) as server:
        print(server.address, flush=True)
        try:
            server.wait()
        except KeyboardInterrupt:
            # What was begun may end.
            server.stop(grace=10)
            print(server.metrics)


if __name__ == "__main__":
    main()
