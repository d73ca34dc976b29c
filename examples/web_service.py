"""A web service that sends from its request threads, with only the standard library.

``python examples/web_service.py [name server]``: without an address it starts its own broker.  It listens on
a free port, sends itself three orders, consumes them, and ends.
"""

import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cluster import name_server

from sprocket import ClientError, ConsumeFrom, Message, sync


def handler_of(producer: sync.Producer) -> type[BaseHTTPRequestHandler]:
    """Return a handler class whose threads share `producer`."""

    class Orders(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                answer = producer.send(Message("WebOrders", body), timeout_s=3).message_id
                self.send_response(202)
            except ClientError as error:
                answer = str(error)
                self.send_response(503)
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Orders


def main(namesrv: str) -> None:
    with sync.connect(namesrv) as mq:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(mq.producer("web")))
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        for number in range(3):
            url = f"http://127.0.0.1:{server.server_port}/orders"
            with urllib.request.urlopen(url, data=b"order %d" % number, timeout=10) as answer:
                print(answer.status, "accepted as", answer.read().decode())
        server.shutdown()
        serving.join()
        server.server_close()

        for count, message in enumerate(mq.consumer("web-workers", "WebOrders", consume_from=ConsumeFrom.FIRST), 1):
            with message.process():
                print("received", message.body.decode())
            if count == 3:
                break


if __name__ == "__main__":
    with name_server() as address:
        main(address)
