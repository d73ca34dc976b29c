package compat;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Predicate;
import org.apache.rocketmq.common.message.MessageExt;

/** What consumers have received, in order of arrival. */
final class Inbox {
    private final List<MessageExt> received = new ArrayList<>();
    private final List<Long> arrivals = new ArrayList<>();

    synchronized void add(List<MessageExt> messages) {
        received.addAll(messages);
        for (int i = 0; i < messages.size(); i++) {
            arrivals.add(System.currentTimeMillis());
        }
        notifyAll();
    }

    synchronized List<MessageExt> all() {
        return new ArrayList<>(received);
    }

    /** Of one queue: a concurrent consumer's threads may deliver in any order. */
    synchronized List<MessageExt> byOffset() {
        List<MessageExt> messages = new ArrayList<>(received);
        messages.sort(Comparator.comparingLong(MessageExt::getQueueOffset));
        return messages;
    }

    synchronized long arrivalMillis(int index) {
        return arrivals.get(index);
    }

    synchronized int size() {
        return received.size();
    }

    synchronized Set<String> bodies() {
        Set<String> bodies = new TreeSet<>();
        for (MessageExt message : received) {
            bodies.add(text(message));
        }
        return bodies;
    }

    synchronized Map<Integer, List<MessageExt>> byQueue() {
        Map<Integer, List<MessageExt>> queues = new HashMap<>();
        for (MessageExt message : received) {
            queues.computeIfAbsent(message.getQueueId(), id -> new ArrayList<>()).add(message);
        }
        return queues;
    }

    /** Waits until `ready` holds for this inbox; on timeout says what has come so far. */
    synchronized void await(Predicate<Inbox> ready, long timeoutMillis, String what) throws InterruptedException {
        long deadline = System.currentTimeMillis() + timeoutMillis;
        while (!ready.test(this)) {
            long left = deadline - System.currentTimeMillis();
            Expect.that(left > 0, "not within " + timeoutMillis + " ms: " + what + "; received " + received.size()
                + ", of these different " + bodies().size());
            wait(Math.min(left, 200));
        }
    }

    static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
