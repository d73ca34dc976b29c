"""Port that is bound without listening, for servers of this proxy that bind it too.

gRPC binds and listens in one step, and accepts nothing before it serves: connections would hang.  While a port is
reserved instead, they are refused.  Linux lets servers bind a port beside a socket that does not listen
(SO_REUSEADDR), and several processes listen if all want it (SO_REUSEPORT).  An edge file: it binds sockets.
"""

import errno
import socket

from sprocket.common.errors import ConfigError


class ReservedPort:
    """A port that only processes of one proxy bind, and that is bound while this object is open.

    The constructor raises ConfigError if another program has the port.
    """

    def __init__(self, host: str, port: int) -> None:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            # Without SO_REUSEPORT: another proxy that shares its ports must not share these.
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
                number = probe.getsockname()[1]
            self._socket = socket.socket(family, kind, protocol)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._socket.bind((address[0], number, *address[2:]))
        except OSError as error:
            reason = "another process has the port" if error.errno == errno.EADDRINUSE else error.strerror
            raise ConfigError(f"{host}:{port} cannot be listened on: {reason}. Choose another port") from None
        self.number = int(number)

    def close(self) -> None:
        """Release the port."""
        self._socket.close()
