/* Connections of the benchmark's servers: one thread, epoll, frames that arrive in parts.
 *
 * The program that includes this file defines `serve`.
 */
#ifndef SPROCKET_BENCHMARK_CONNECTIONS_H
#define SPROCKET_BENCHMARK_CONNECTIONS_H

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BUFFER_BYTES = 16 << 20, MAX_EVENTS = 64 };

/* One connection; `in` holds BUFFER_BYTES, of which `held` are the begin of a frame. */
struct peer { int fd; size_t held; uint8_t *in; };

/* Read from a connection once and answer its whole frames.  Anything but 0 closes the connection. */
static int serve(struct peer *peer);

static int send_all(int fd, const uint8_t *bytes, size_t size) {
    for (size_t written = 0; written < size;) {
        ssize_t part = send(fd, bytes + written, size - written, MSG_NOSIGNAL);
        if (part < 0) return -1;
        written += part;
    }
    return 0;
}

/* Listen on a port of the loopback address and serve until the process is killed.  Return 1 if the port is taken.
 * `other` is a connection that is served besides; NULL for none. */
static int serve_all(int port, struct peer *other) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0), poll = epoll_create1(0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, MAX_EVENTS)) return 1;
    struct peer door = {.fd = listener};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &door}, events[MAX_EVENTS];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    event.data.ptr = other;
    if (other) epoll_ctl(poll, EPOLL_CTL_ADD, other->fd, &event);
    for (;;) {
        int ready = epoll_wait(poll, events, MAX_EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            struct peer *peer = events[i].data.ptr;
            if (peer == &door) {
                peer = calloc(1, sizeof *peer);
                peer->fd = accept(listener, NULL, NULL);
                peer->in = malloc(BUFFER_BYTES);
                setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                event.data.ptr = peer;
                epoll_ctl(poll, EPOLL_CTL_ADD, peer->fd, &event);
            } else if (serve(peer)) {
                close(peer->fd), free(peer->in), free(peer);
            }
        }
    }
}

#endif
