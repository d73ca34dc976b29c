package compat.storm;

import java.io.PrintStream;
import java.time.Instant;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * What happened, one line each on standard output, fields separated by tabs. The lines and their fields are those that
 * `tests/checkers/history.py` reads; times are microseconds of the system's clock, which all clients on a machine share.
 */
final class Journal {
    private final PrintStream out;

    Journal(PrintStream out) {
        this.out = out;
    }

    static long micros() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000 + now.getNano() / 1_000;
    }

    /** A send that the broker has acknowledged; without a queue where the place says nothing to a consumer. */
    void sent(String kind, String key, long began, MessageQueue queue, long offset) {
        line("SENT", kind, key, began, micros(), queue == null ? "" : queue.getBrokerName(),
            queue == null ? -1 : queue.getQueueId(), queue == null ? -1 : offset);
    }

    /** A send whose outcome nobody knows. */
    void unsure(String kind, String key, long began, Throwable reason) {
        line("UNSURE", kind, key, began, micros(), reason);
    }

    void got(String kind, String consumer, String key, long began, MessageQueue queue, long offset, int times) {
        line("GOT", kind, key, began, micros(), queue.getBrokerName(), queue.getQueueId(), offset, consumer, times,
            queue.getTopic());
    }

    /** A reply that came, or why none did. */
    void reply(String kind, String key, long began, String text) {
        line("REPLY", kind, key, began, micros(), text);
    }

    /** A broker's question about a transaction. */
    void asked(String kind, String key) {
        line("ASKED", kind, key, micros(), micros());
    }

    void phase(String name) {
        line("PHASE", name, micros());
    }

    void trouble(String kind, Throwable failure) {
        line("TROUBLE", kind, failure);
    }

    private synchronized void line(Object... fields) {
        StringBuilder text = new StringBuilder();
        for (Object field : fields) {
            text.append(text.length() == 0 ? "" : "\t").append(String.valueOf(field).replaceAll("\\s+", " "));
        }
        out.println(text);
        out.flush();
    }
}
