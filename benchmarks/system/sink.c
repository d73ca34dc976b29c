/* A server that answers every request with a canned success: `sink PORT PULLED_BODY_FILE`.
 * It states the ceiling of the load generator; a broker cannot be measured above it.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "connections.h"

enum { PULL_BATCH = 32 };

static uint8_t *out, pulled[1 << 20];
static size_t pulled_bytes;

static uint32_t u32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
}

static void put_u32(uint8_t *at, uint32_t value) {
    at[0] = value >> 24, at[1] = value >> 16, at[2] = value >> 8, at[3] = value;
}

static long number_after(const uint8_t *header, size_t size, const char *key) {
    const uint8_t *at = memmem(header, size, key, strlen(key));
    return at ? strtol((const char *)at + strlen(key), NULL, 10) : -1;
}

static size_t answer_json(const uint8_t *header, size_t size, uint8_t *to) {
    long opaque = number_after(header, size, "\"opaque\":"), code = number_after(header, size, "\"code\":");
    char *text = (char *)to + 8;
    int header_bytes;
    size_t body_bytes = 0;
    if (code == 11) {
        long offset = number_after(header, size, "\"queueOffset\":\"");
        header_bytes = sprintf(text, "{\"code\":0,\"extFields\":{\"suggestWhichBrokerId\":\"0\",\"nextBeginOffset\":\"%ld\","
            "\"minOffset\":\"0\",\"maxOffset\":\"1048576\"},\"flag\":1,\"opaque\":%ld}", offset + PULL_BATCH, opaque);
        memcpy(text + header_bytes, pulled, pulled_bytes);
        body_bytes = pulled_bytes;
    } else {
        header_bytes = sprintf(text, "{\"code\":0,\"extFields\":{\"msgId\":\"7F00000100002A9F0000000000000000\","
            "\"queueId\":\"0\",\"queueOffset\":\"1234567\",\"offset\":\"1048576\"},\"flag\":1,\"opaque\":%ld}", opaque);
    }
    put_u32(to, 4 + header_bytes + body_bytes);
    put_u32(to + 4, header_bytes);
    return 8 + header_bytes + body_bytes;
}

static size_t answer_binary(const uint8_t *header, uint8_t *to) {
    memset(to, 0, 29);
    put_u32(to, 25);
    put_u32(to + 4, 1u << 24 | 21);
    memcpy(to + 13, header + 5, 4);
    to[20] = 1;
    return 29;
}

static int serve(struct peer *peer) {
    ssize_t received = recv(peer->fd, peer->in + peer->held, BUFFER_BYTES - peer->held, 0);
    if (received <= 0) return -1;
    size_t end = peer->held + received, at = 0, size = 0;
    while (at + 8 <= end) {
        uint32_t length = u32(peer->in + at), mark = u32(peer->in + at + 4);
        if (at + 4 + length > end) break;
        if (mark >> 24) size += answer_binary(peer->in + at + 8, out + size);
        else size += answer_json(peer->in + at + 8, mark & 0xFFFFFF, out + size);
        at += 4 + length;
    }
    peer->held = end - at;
    memmove(peer->in, peer->in + at, peer->held);
    return send_all(peer->fd, out, size);
}

int main(int count, char **arguments) {
    if (count != 3) return 2;
    FILE *body = fopen(arguments[2], "rb");
    if (!body) return 2;
    pulled_bytes = fread(pulled, 1, sizeof pulled, body);
    fclose(body);
    out = malloc(BUFFER_BYTES * 2);
    return serve_all(atoi(arguments[1]), NULL);
}
