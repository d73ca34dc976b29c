/* The load generator's inner loop: a window of outstanding requests, refilled per read by what it answered.
 * generator.py prepares the frames, compiles this file when a C compiler is there, and has the same loop in Python.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { READ_BYTES = 4 << 20, SILENCE_LIMIT_S = 15, ERROR_BYTES = 512, SAMPLE_EVERY = 7 };

struct load {                 /* mirrored by generator_c.py */
    int32_t port;
    int32_t connections;
    int32_t slots;            /* per connection */
    int32_t first_opaque;
    int32_t is_pull;
    int32_t head_bytes;       /* of each slot's frame; for a pull what comes before the offset */
    int32_t tail_bytes;       /* for a pull what comes after the offset, otherwise 0 */
    int32_t max_samples;
    int64_t last_offset;      /* for a pull: from here on a slot begins again at 0 */
    int64_t stop_after;       /* messages; 0 is no limit */
    double seconds;
    const uint8_t *heads;     /* connections * slots * head_bytes */
    const uint8_t *tails;
    int64_t *offsets;         /* for a pull: where each slot of each connection begins */
    double *samples;          /* out, microseconds */
    int64_t messages;         /* out */
    int32_t sample_count;     /* out */
    double elapsed_s;         /* out */
    char error[ERROR_BYTES];  /* out */
};

struct connection {
    int fd;
    int first_slot;           /* of this connection, for what is kept per slot over all connections */
    size_t held;
    uint8_t *in, *out;
    double *sent_at;
};

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static int fail(struct load *load, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(load->error, ERROR_BYTES, format, arguments);
    va_end(arguments);
    return -1;
}

static uint32_t u32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
}

static void put_u32(uint8_t *at, uint32_t value) {
    at[0] = value >> 24, at[1] = value >> 16, at[2] = value >> 8, at[3] = value;
}

/* The number after `key` in a JSON header, or -1. */
static int64_t number_after(const uint8_t *header, size_t size, const char *key, size_t key_size) {
    const uint8_t *at = memmem(header, size, key, key_size);
    if (!at) return -1;
    int64_t value = 0;
    at += key_size;
    if (*at < '0' || *at > '9') return -1;
    while (at < header + size && *at >= '0' && *at <= '9') value = value * 10 + (*at++ - '0');
    return value;
}
#define NUMBER_AFTER(header, size, key) number_after(header, size, key, sizeof(key) - 1)

static size_t put_request(struct load *load, struct connection *connection, int slot, uint8_t *to) {
    int index = connection->first_slot + slot;
    if (!load->is_pull) {
        memcpy(to, load->heads + (size_t)index * load->head_bytes, load->head_bytes);
        return load->head_bytes;
    }
    uint8_t *at = to + 8;
    memcpy(at, load->heads + (size_t)index * load->head_bytes, load->head_bytes);
    at += load->head_bytes;
    at += sprintf((char *)at, "%lld", (long long)load->offsets[index]);
    memcpy(at, load->tails + (size_t)index * load->tail_bytes, load->tail_bytes);
    at += load->tail_bytes;
    put_u32(to, at - to - 4);
    put_u32(to + 4, at - to - 8);
    return at - to;
}

static int write_all(struct load *load, int fd, const uint8_t *from, size_t size) {
    while (size) {
        ssize_t written = send(fd, from, size, MSG_NOSIGNAL);
        if (written < 0) return fail(load, "send: %s", strerror(errno));
        from += written, size -= written;
    }
    return 0;
}

static int fill(struct load *load, struct connection *connection) {
    size_t size = 0;
    double now = now_s();
    for (int slot = 0; slot < load->slots; slot++) {
        size += put_request(load, connection, slot, connection->out + size);
        connection->sent_at[slot] = now;
    }
    return write_all(load, connection->fd, connection->out, size);
}

/* Walks the records of a pull's body; they must be as many as the header's offsets say. */
static int count_records(struct load *load, const uint8_t *at, const uint8_t *end, int64_t wanted) {
    int64_t records = 0;
    while (at + 4 <= end) {
        uint32_t size = u32(at);
        if (!size || size > (size_t)(end - at)) break;
        at += size, records++;
    }
    if (at != end || records != wanted)
        return fail(load, "a pull brought %lld records, its next offset says %lld", (long long)records, (long long)wanted);
    return 0;
}

/* One response at `frame`; returns its slot or -1. */
static int take(struct load *load, struct connection *connection, const uint8_t *frame, uint32_t length) {
    uint32_t mark = u32(frame + 4), header_bytes = mark & 0xFFFFFF;
    const uint8_t *header = frame + 8;
    int64_t code, opaque;
    if (header_bytes + 4 > length) return fail(load, "a header of %u in a frame of %u bytes", header_bytes, length);
    if (mark >> 24) {
        code = header[0] << 8 | header[1];
        opaque = u32(header + 5);
    } else {
        code = NUMBER_AFTER(header, header_bytes, "\"code\":");
        opaque = NUMBER_AFTER(header, header_bytes, "\"opaque\":");
    }
    int64_t slot = opaque - load->first_opaque;
    if (code) return fail(load, "code %lld: %.*s", (long long)code, header_bytes < 400 ? (int)header_bytes : 400, header);
    if (slot < 0 || slot >= load->slots) return fail(load, "opaque %lld was never asked", (long long)opaque);
    if (!load->is_pull) {
        load->messages++;
        return slot;
    }
    int64_t *offset = &load->offsets[connection->first_slot + slot];
    int64_t next = NUMBER_AFTER(header, header_bytes, "\"nextBeginOffset\":\"");
    if (count_records(load, header + header_bytes, frame + 4 + length, next - *offset)) return -1;
    load->messages += next - *offset;
    *offset = next <= load->last_offset ? next : 0;
    return slot;
}

/* One read, and one write for what it freed; returns the answers, or -1. */
static int turn(struct load *load, struct connection *connection, int refill) {
    ssize_t received = recv(connection->fd, connection->in + connection->held, READ_BYTES - connection->held, 0);
    if (received == 0) return fail(load, "the broker closed the connection");
    if (received < 0)
        return errno == EAGAIN ? fail(load, "no response in %d s", SILENCE_LIMIT_S) : fail(load, "recv: %s", strerror(errno));
    size_t end = connection->held + received, at = 0, out = 0;
    int answers = 0;
    double now = now_s();
    while (at + 8 <= end) {
        uint32_t length = u32(connection->in + at);
        if (length > READ_BYTES - 4) return fail(load, "a frame of %u bytes", length);
        if (at + 4 + length > end) break;
        int slot = take(load, connection, connection->in + at, length);
        if (slot < 0) return -1;
        if ((load->slots == 1 || load->messages % SAMPLE_EVERY == 0) && load->sample_count < load->max_samples)
            load->samples[load->sample_count++] = (now - connection->sent_at[slot]) * 1e6;
        if (refill) {
            connection->sent_at[slot] = now;
            out += put_request(load, connection, slot, connection->out + out);
        }
        answers++;
        at += 4 + length;
    }
    connection->held = end - at;
    if (at && connection->held) memmove(connection->in, connection->in + at, connection->held);
    if (out && write_all(load, connection->fd, connection->out, out)) return -1;
    return answers;
}

static int open_connection(struct load *load, struct connection *connection, int index) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(load->port)};
    struct timeval limit = {.tv_sec = SILENCE_LIMIT_S};
    int one = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connection->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connection->fd < 0 || connect(connection->fd, (struct sockaddr *)&address, sizeof address))
        return fail(load, "connect: %s", strerror(errno));
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(connection->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    connection->first_slot = index * load->slots;
    connection->in = malloc(READ_BYTES);
    connection->out = malloc((size_t)load->slots * (load->head_bytes + load->tail_bytes + 32));
    connection->sent_at = calloc(load->slots, sizeof(double));
    return connection->in && connection->out && connection->sent_at ? 0 : fail(load, "out of memory");
}

static int run_one(struct load *load, struct connection *connection, double deadline) {
    while (now_s() < deadline && (!load->stop_after || load->messages < load->stop_after))
        if (turn(load, connection, 1) < 0) return -1;
    return 0;
}

static int run_many(struct load *load, struct connection *connections, double deadline) {
    struct epoll_event events[64];
    int poll = epoll_create1(0), status = 0;
    for (int i = 0; i < load->connections; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[i]};
        epoll_ctl(poll, EPOLL_CTL_ADD, connections[i].fd, &event);
    }
    while (!status && now_s() < deadline) {
        int ready = epoll_wait(poll, events, 64, SILENCE_LIMIT_S * 1000);
        if (ready <= 0) status = fail(load, "no response in %d s", SILENCE_LIMIT_S);
        for (int i = 0; !status && i < ready; i++) status = turn(load, events[i].data.ptr, 1) < 0 ? -1 : 0;
    }
    close(poll);
    return status;
}

/* Takes in what is still outstanding, so that a count of sent messages is a count of stored ones. */
static int drain(struct load *load, struct connection *connection) {
    for (int left = load->slots; left > 0;) {
        int answers = turn(load, connection, 0);
        if (answers < 0) return -1;
        left -= answers;
    }
    return 0;
}

int run_load(struct load *load) {
    struct connection *connections = calloc(load->connections, sizeof *connections);
    int status = connections ? 0 : fail(load, "out of memory");
    for (int i = 0; !status && i < load->connections; i++) {
        connections[i].fd = -1;
        status = open_connection(load, &connections[i], i);
    }
    double started = now_s(), deadline = started + load->seconds;
    for (int i = 0; !status && i < load->connections; i++) status = fill(load, &connections[i]);
    if (!status) status = load->connections == 1 ? run_one(load, connections, deadline) : run_many(load, connections, deadline);
    load->elapsed_s = now_s() - started;
    int64_t counted = load->messages;
    for (int i = 0; !status && i < load->connections; i++) status = drain(load, &connections[i]);
    load->messages = counted;
    for (int i = 0; connections && i < load->connections; i++) {
        if (connections[i].fd > 0) close(connections[i].fd);
        free(connections[i].in), free(connections[i].out), free(connections[i].sent_at);
    }
    free(connections);
    return status;
}
