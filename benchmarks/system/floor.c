/* The least that a broker can do, in C: `floor PORT DIRECTORY ASYNC_FLUSH|SYNC_FLUSH|ASYNC_MASTER|SYNC_MASTER`.
 *
 * One thread and epoll.  For each send: the frame, the header (JSON or ROCKETMQ), a record with its CRC, an entry of the
 * ConsumeQueue with the hash of the tag, and the response.  What arrives with one read is written with one pwrite to the
 * log, one to each queue, and one send.  Pulls give records as they lie in the log.  It checks nothing, recovers
 * nothing, and has no topics to create: no broker can be measured above it.  Its log grows, as each log does: a page that
 * is written again costs far less than a new one.  It keeps the newest segments and removes the others.
 *
 * With ASYNC_MASTER and SYNC_MASTER it has a slave: a process that gets each batch over TCP, writes it with one pwrite,
 * and answers where its log ends.  A SYNC_MASTER keeps responses until then, and serves others meanwhile.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#include "../../sprocket/engine/store/crc32.h"
#include "connections.h"

enum { MAX_QUEUES = 256, MAX_ENTRIES = 1 << 23, ENTRY_BYTES = 20, MAX_BATCH = 32768 };
enum { SEND_MESSAGE_V2 = 310, PULL_MESSAGE = 11, GET_MAX_OFFSET = 30, PULL_NOT_FOUND = 19, MAGIC_V1 = -626843481 };
enum { RECORD_FIXED_BYTES = 88, RECORD_SPARE_BYTES = 1 << 17, PULLED_BYTES = 1 << 20 };
enum { MAX_SEGMENTS = 4096, KEPT_SEGMENTS = 8, BATCH_HEADER_BYTES = 16 };
static const int64_t SEGMENT_BYTES = 1 << 30;

struct text { const uint8_t *at; size_t size; };
struct request { int code, opaque; struct text topic, queue_id, queue_offset, max_messages, born, flag, properties; };
struct queue { uint8_t topic[256]; size_t topic_bytes; int id, fd, pending; int64_t count; uint8_t *entries, *added; };

/* Responses that wait until the slave has all before `end`. */
struct waiting { struct peer *peer; struct waiting *next; int64_t end; size_t size; uint8_t bytes[]; };

static struct queue queues[MAX_QUEUES];
static struct waiting *oldest, **newest = &oldest;
static struct peer *slave;
static int waits_for_slave;
static int64_t reached; /* where the slave's log ends */
static int queue_count, log_fd, segment_count, is_sync, can_fold;
static int64_t log_end, batch_begin;
static uint8_t *segments[MAX_SEGMENTS], *batch, *out, scratch[1 << 16];
static size_t batch_bytes, out_bytes;
static const char *folder;

static uint32_t u32(const uint8_t *at) { uint32_t value; memcpy(&value, at, 4); return __builtin_bswap32(value); }
static uint8_t *put32(uint8_t *at, uint32_t value) { value = __builtin_bswap32(value); memcpy(at, &value, 4); return at + 4; }
static uint8_t *put64(uint8_t *at, uint64_t value) { value = __builtin_bswap64(value); memcpy(at, &value, 8); return at + 8; }
static uint8_t *put_text(uint8_t *at, const void *text, size_t size) { memcpy(at, text, size); return at + size; }
#define PUT(at, literal) put_text(at, literal, sizeof literal - 1)

static uint8_t *put_number(uint8_t *at, uint64_t value) {
    uint8_t digits[20], *first = digits + sizeof digits;
    do *--first = '0' + value % 10; while (value /= 10);
    return put_text(at, first, digits + sizeof digits - first);
}

static int64_t number(struct text text) {
    int64_t value = 0;
    for (size_t i = 0; i < text.size; i++) value = value * 10 + text.at[i] - '0';
    return value;
}

/* One member of a header, whichever object it is in: their names differ. */
static void note(struct request *request, struct text name, struct text value) {
    char letter = name.size == 1 ? name.at[0] : 0;
#define IS(long_name) (name.size == sizeof long_name - 1 && !memcmp(name.at, long_name, name.size))
    if (letter == 'b' || IS("topic")) request->topic = value;
    else if (letter == 'e' || IS("queueId")) request->queue_id = value;
    else if (letter == 'g') request->born = value;
    else if (letter == 'h') request->flag = value;
    else if (letter == 'i') request->properties = value;
    else if (IS("queueOffset")) request->queue_offset = value;
    else if (IS("maxMsgNums")) request->max_messages = value;
    else if (IS("code")) request->code = number(value);
    else if (IS("opaque")) request->opaque = number(value);
}

/* A JSON string without its escapes; those of properties stand for 1 and 2. */
static struct text json_text(const uint8_t **at, const uint8_t *end, uint8_t **spare) {
    struct text text = {++*at, 0};
    uint8_t *plain = NULL;
    for (; *at < end && **at != '"'; ++*at) {
        if (**at == '\\' && end - *at > 6) {
            if (!plain) plain = *spare, memcpy(plain, text.at, *at - text.at), plain += *at - text.at, text.at = *spare;
            *plain++ = (*at)[1] == 'u' ? ((*at)[4] - '0') << 4 | ((*at)[5] - '0') : (*at)[1];
            *at += (*at)[1] == 'u' ? 5 : 1;
        } else if (plain) *plain++ = **at;
    }
    text.size = (plain ? plain : *at) - text.at;
    if (plain) *spare = plain;
    ++*at;
    return text;
}

static void read_json(struct request *request, const uint8_t *at, const uint8_t *end) {
    uint8_t *spare = scratch;
    struct text name = {0}, value;
    if (end - at > (ptrdiff_t)sizeof scratch) return;
    while (at < end) {
        if (*at == '"') {
            value = json_text(&at, end, &spare);
            if (at < end && *at == ':') name = value, at++;
            else note(request, name, value);
        } else if (*at >= '0' && *at <= '9') {
            for (value.at = at; at < end && *at >= '0' && *at <= '9'; at++);
            value.size = at - value.at;
            note(request, name, value);
        } else at++;
    }
}

static void read_binary(struct request *request, const uint8_t *at, const uint8_t *end) {
    request->code = at[0] << 8 | at[1];
    request->opaque = u32(at + 5);
    for (at += 21; at + 6 < end;) {
        struct text name = {at + 2, at[0] << 8 | at[1]};
        struct text value = {name.at + name.size + 4, 0};
        if (value.at > end || (value.size = u32(value.at - 4)) > (size_t)(end - value.at)) return;
        note(request, name, value);
        at = value.at + value.size;
    }
}

static struct queue *queue_of(struct text topic, int id) {
    static struct queue *latest = queues;
    for (struct queue *queue = latest, *first = latest; ; ) {
        if (queue->id == id && queue->topic_bytes == topic.size && !memcmp(queue->topic, topic.at, topic.size)) return latest = queue;
        if (++queue >= queues + queue_count) queue = queues;
        if (queue == first) break;
    }
    if (queue_count == MAX_QUEUES || topic.size > 255) exit(3);
    struct queue *queue = &queues[queue_count];
    char path[4096];
    snprintf(path, sizeof path, "%s/queue-%d", folder, queue_count++);
    memcpy(queue->topic, topic.at, queue->topic_bytes = topic.size);
    queue->id = id, queue->fd = open(path, O_RDWR | O_CREAT, 0644), queue->added = malloc(MAX_BATCH * ENTRY_BYTES);
    if (ftruncate(queue->fd, (int64_t)MAX_ENTRIES * ENTRY_BYTES)) exit(3);
    queue->entries = mmap(NULL, (int64_t)MAX_ENTRIES * ENTRY_BYTES, PROT_READ, MAP_SHARED, queue->fd, 0);
    return latest = queue;
}

static int64_t tags_code(struct text properties) {
    const uint8_t *at = memmem(properties.at, properties.size, "TAGS\1", 5), *end = properties.at + properties.size;
    uint32_t hash = 0;
    for (at = at ? at + 5 : end; at < end && *at != 2; at++) hash = 31 * hash + *at;
    return (int32_t)hash;
}

/* Send a batch to the slave: position, size, records. */
static void replicate(void) {
    uint8_t header[BATCH_HEADER_BYTES];
    put64(put64(header, batch_begin), batch_bytes);
    if (send(slave->fd, header, sizeof header, MSG_NOSIGNAL | MSG_MORE) != sizeof header) exit(4);
    if (send_all(slave->fd, batch, batch_bytes)) exit(4);
}

/* Write what this read has appended: the log with one call, each queue with one. */
static void write_batch(void) {
    if (!batch_bytes) return;
    if (slave) replicate();
    if (pwrite(log_fd, batch, batch_bytes, batch_begin % SEGMENT_BYTES) != (ssize_t)batch_bytes) exit(3);
    for (struct queue *queue = queues; queue < queues + queue_count; queue++) {
        int64_t first = (queue->count - queue->pending) % MAX_ENTRIES;
        if (queue->pending && pwrite(queue->fd, queue->added, queue->pending * ENTRY_BYTES, first * ENTRY_BYTES) < 0) exit(3);
        queue->pending = 0;
    }
    batch_bytes = 0;
    if (is_sync && fdatasync(log_fd)) exit(3);
}

static void name_segment(char path[4096], int number) { snprintf(path, 4096, "%s/segment-%d", folder, number); }

/* Go on with a new segment. */
static void open_segment(void) {
    char path[4096];
    if (segment_count == MAX_SEGMENTS) exit(3);
    if (segment_count) close(log_fd);
    if (segment_count >= KEPT_SEGMENTS) {
        int oldest = segment_count - KEPT_SEGMENTS;
        munmap(segments[oldest], SEGMENT_BYTES), segments[oldest] = NULL;
        name_segment(path, oldest);
        unlink(path);
    }
    name_segment(path, segment_count);
    log_fd = open(path, O_RDWR | O_CREAT, 0644);
    if (log_fd < 0 || posix_fallocate(log_fd, 0, SEGMENT_BYTES)) exit(2);
    log_end = (int64_t)segment_count * SEGMENT_BYTES;
    segments[segment_count++] = mmap(NULL, SEGMENT_BYTES, PROT_READ, MAP_SHARED, log_fd, 0);
}

/* Append one message; return its position in the log. */
static int64_t append(struct request *request, struct queue *queue, struct text body, int64_t now_ms) {
    size_t size = RECORD_FIXED_BYTES + body.size + 1 + request->topic.size + 2 + request->properties.size;
    if (log_end + (int64_t)size > segment_count * SEGMENT_BYTES) write_batch(), open_segment();
    if (queue->pending == MAX_BATCH || batch_bytes + size > BUFFER_BYTES) write_batch();
    if (!batch_bytes) batch_begin = log_end;
    static const uint8_t host[8] = {127, 0, 0, 1};
    uint8_t *to = batch + batch_bytes;
    to = put32(put32(to, size), MAGIC_V1);
    to = put32(put32(to, crc32_of(body.at, body.size, can_fold) & 0x7FFFFFFF), queue->id);
    to = put64(put64(put32(to, number(request->flag)), queue->count), log_end);
    to = put_text(put64(put32(to, 0), number(request->born)), host, 8);
    to = put64(put32(put_text(put64(to, now_ms), host, 8), 0), 0);
    to = put_text(put32(to, body.size), body.at, body.size);
    *to++ = request->topic.size;
    to = put_text(to, request->topic.at, request->topic.size);
    *to++ = request->properties.size >> 8;
    *to++ = request->properties.size;
    put_text(to, request->properties.at, request->properties.size);
    uint8_t *entry = queue->added + queue->pending++ * ENTRY_BYTES;
    put64(put32(put64(entry, log_end), size), tags_code(request->properties));
    int64_t at = log_end;
    queue->count++, log_end += size, batch_bytes += size;
    return at;
}

static uint8_t *put_field(uint8_t *to, int is_binary, const char *name, const uint8_t *value, size_t size) {
    size_t name_bytes = strlen(name);
    if (is_binary) {
        *to++ = 0, *to++ = name_bytes;
        return put_text(put32(put_text(to, name, name_bytes), size), value, size);
    }
    to = PUT(put_text(PUT(to, "\""), name, name_bytes), "\":\"");
    return PUT(put_text(to, value, size), "\",");
}

static uint8_t *put_number_field(uint8_t *to, int is_binary, const char *name, int64_t value) {
    uint8_t digits[20];
    return put_field(to, is_binary, name, digits, put_number(digits, value) - digits);
}

/* Records of a pull, as they lie in the log; return the position after them. */
static uint8_t *put_records(uint8_t *to, struct queue *queue, int64_t offset, int64_t most, int64_t *next) {
    const uint8_t *end = to + PULLED_BYTES;
    for (*next = offset; *next < queue->count && *next < offset + most; ++*next) {
        const uint8_t *entry = queue->entries + *next % MAX_ENTRIES * ENTRY_BYTES;
        int64_t at = (int64_t)u32(entry) << 32 | u32(entry + 4);
        const uint8_t *segment = segments[at / SEGMENT_BYTES];
        if (!segment || to + u32(entry + 8) > end) break;
        to = put_text(to, segment + at % SEGMENT_BYTES, u32(entry + 8));
    }
    return to;
}

static void answer(struct request *request, int is_binary, struct text body, int64_t now_ms) {
    uint8_t *frame = out + out_bytes, *header = frame + 8, fields[512], *field = fields, id[32];
    static uint8_t records[PULLED_BYTES];
    int64_t next = 0, size = 0;
    int code = 0;
    struct queue *queue = request->topic.size && request->queue_id.size ? queue_of(request->topic, number(request->queue_id)) : NULL;
    if (queue && request->code == SEND_MESSAGE_V2) {
        field = put_number_field(field, is_binary, "queueOffset", queue->count);
        uint64_t at = append(request, queue, body, now_ms);
        memcpy(id, "7F00000100002A9F", 16);
        for (int i = 0; i < 16; i++) id[16 + i] = "0123456789ABCDEF"[at >> (60 - 4 * i) & 15];
        field = put_field(put_number_field(field, is_binary, "queueId", queue->id), is_binary, "msgId", id, 32);
    } else if (queue && request->code == PULL_MESSAGE) {
        write_batch();
        size = put_records(records, queue, number(request->queue_offset), number(request->max_messages), &next) - records;
        code = size ? 0 : PULL_NOT_FOUND;
        field = put_number_field(put_number_field(field, is_binary, "nextBeginOffset", next), is_binary, "minOffset", 0);
        field = put_number_field(field, is_binary, "maxOffset", queue->count);
        field = put_number_field(field, is_binary, "suggestWhichBrokerId", 0);
    } else if (queue && request->code == GET_MAX_OFFSET) field = put_number_field(field, is_binary, "offset", queue->count);
    if (is_binary) {
        static const uint8_t language_and_version[3] = {0, 1, 0xDF};
        *header = code >> 8, header[1] = code;
        uint8_t *to = put32(put_text(header + 2, language_and_version, 3), request->opaque);
        header = put_text(put32(put32(put32(to, 1), 0), field - fields), fields, field - fields);
    } else {
        header = PUT(put_number(PUT(header, "{\"code\":"), code), ",\"extFields\":{");
        header = put_text(header, fields, field > fields ? field - fields - 1 : 0);
        header = PUT(put_number(PUT(header, "},\"flag\":1,\"language\":\"CPP\",\"opaque\":"), request->opaque), ",\"version\":479}");
    }
    put32(put32(frame, header - frame - 4 + size), is_binary << 24 | (header - frame - 8));
    out_bytes = put_text(header, records, size) - out;
}

static int flush_out(struct peer *peer) {
    write_batch();
    if (waits_for_slave && log_end > reached) {
        struct waiting *one = malloc(sizeof *one + out_bytes);
        *one = (struct waiting){peer, NULL, log_end, out_bytes};
        memcpy(one->bytes, out, out_bytes);
        *newest = one, newest = &one->next;
    } else if (send_all(peer->fd, out, out_bytes)) return -1;
    out_bytes = 0;
    return 0;
}

/* Send the responses of what the slave has by now. */
static int take_acknowledgements(void) {
    ssize_t received = recv(slave->fd, slave->in + slave->held, BUFFER_BYTES - slave->held, 0);
    if (received <= 0) exit(4);
    size_t end = slave->held + received, whole = end / 8 * 8;
    slave->held = end - whole;
    if (whole) {
        reached = (int64_t)u32(slave->in + whole - 8) << 32 | u32(slave->in + whole - 4);
        memmove(slave->in, slave->in + whole, slave->held);
        while (oldest && oldest->end <= reached) {
            struct waiting *one = oldest;
            if (one->peer) send_all(one->peer->fd, one->bytes, one->size);
            if (!(oldest = one->next)) newest = &oldest;
            free(one);
        }
    }
    return 0;
}

/* The slave's whole life: write each batch, and say where the log ends. */
static void follow(int fd) {
    static uint8_t in[2 * BUFFER_BYTES], acknowledgement[8];
    char path[4096];
    snprintf(path, sizeof path, "%s/slave", folder);
    int copy = open(path, O_RDWR | O_CREAT, 0644);
    size_t held = 0;
    for (;;) {
        ssize_t received = recv(fd, in + held, sizeof in - held, 0);
        if (received <= 0) exit(0);
        size_t end = held + received, at = 0;
        while (at + BATCH_HEADER_BYTES <= end) {
            int64_t begin = (int64_t)u32(in + at) << 32 | u32(in + at + 4), size = u32(in + at + 12);
            if (at + BATCH_HEADER_BYTES + size > end) break;
            if (pwrite(copy, in + at + BATCH_HEADER_BYTES, size, begin % (KEPT_SEGMENTS * SEGMENT_BYTES)) != size) exit(3);
            put64(acknowledgement, begin + size);
            at += BATCH_HEADER_BYTES + size;
        }
        if (at && send_all(fd, acknowledgement, sizeof acknowledgement)) exit(0);
        memmove(in, in + at, held = end - at);
    }
}

/* Start the slave, and connect to it. */
static void start_slave(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int one = 1, door = socket(AF_INET, SOCK_STREAM, 0), master = getpid();
    if (bind(door, (struct sockaddr *)&address, size) || listen(door, 1)) exit(4);
    getsockname(door, (struct sockaddr *)&address, &size);
    int child = fork(), fd;
    if (child < 0) exit(4);
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != master || (fd = socket(AF_INET, SOCK_STREAM, 0)) < 0) exit(4);
        if (connect(fd, (struct sockaddr *)&address, size)) exit(4);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        follow(fd);
    }
    slave = calloc(1, sizeof *slave);
    slave->in = malloc(BUFFER_BYTES);
    if ((slave->fd = accept(door, NULL, NULL)) < 0) exit(4);
    setsockopt(slave->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    close(door);
}

static int answer_read(struct peer *peer) {
    ssize_t received = recv(peer->fd, peer->in + peer->held, BUFFER_BYTES - peer->held, 0);
    if (received <= 0) return -1;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    size_t end = peer->held + received, at = 0;
    while (at + 8 <= end) {
        uint32_t length = u32(peer->in + at), mark = u32(peer->in + at + 4), header_bytes = mark & 0xFFFFFF;
        if (length < 4 + header_bytes || length > BUFFER_BYTES - 4) return -1;
        if (at + 4 + length > end) break;
        const uint8_t *header = peer->in + at + 8;
        struct request request = {0};
        (mark >> 24 ? read_binary : read_json)(&request, header, header + header_bytes);
        struct text body = {header + header_bytes, length - 4 - header_bytes};
        answer(&request, mark >> 24, body, now.tv_sec * 1000 + now.tv_nsec / 1000000);
        if (out_bytes > BUFFER_BYTES && flush_out(peer)) return -1;
        at += 4 + length;
    }
    peer->held = end - at;
    memmove(peer->in, peer->in + at, peer->held);
    return flush_out(peer);
}

static int serve(struct peer *peer) {
    if (peer == slave) return take_acknowledgements();
    if (!answer_read(peer)) return 0;
    out_bytes = 0;
    write_batch();
    for (struct waiting *one = oldest; one; one = one->next)
        if (one->peer == peer) one->peer = NULL;
    return -1;
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    folder = arguments[2], is_sync = !strcmp(arguments[3], "SYNC_FLUSH");
    crc32_prepare();
    can_fold = crc32_can_fold();
    open_segment();
    batch = malloc(BUFFER_BYTES + RECORD_SPARE_BYTES);
    out = malloc(2 * BUFFER_BYTES + (2 << 20));
    waits_for_slave = !strcmp(arguments[3], "SYNC_MASTER");
    if (waits_for_slave || !strcmp(arguments[3], "ASYNC_MASTER")) start_slave();
    return serve_all(atoi(arguments[1]), slave);
}
