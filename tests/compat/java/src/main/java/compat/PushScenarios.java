package compat;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Push consumers: concurrent, orderly, filtered, and messages with a delay. */
final class PushScenarios {
    private PushScenarios() {
    }

    static Map<String, Scenario> all() {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        scenarios.put("concurrent-push", PushScenarios::concurrent);
        scenarios.put("orderly-push", PushScenarios::orderly);
        scenarios.put("tag-filter", PushScenarios::tagFilter);
        scenarios.put("delay-level-1", context -> delay(context, 1, 1_000));
        scenarios.put("delay-level-2", context -> delay(context, 2, 5_000));
        scenarios.put("long-polling", PushScenarios::longPolling);
        return scenarios;
    }

    private static void concurrent(Context context) throws Exception {
        context.createTopic(4);
        Inbox inbox = new Inbox();
        context.startPush("*", inbox);
        context.sendNumbered("c", "TagC", 300);
        inbox.await(box -> box.bodies().size() == 300, Context.PATIENCE_MILLIS, "300 messages");
        for (Map.Entry<Integer, List<MessageExt>> queue : inbox.byQueue().entrySet()) {
            Set<Long> offsets = new TreeSet<>();
            queue.getValue().forEach(message -> offsets.add(message.getQueueOffset()));
            Expect.equal((long) offsets.size() - 1, ((TreeSet<Long>) offsets).last(), "offsets without gaps in queue "
                + queue.getKey());
        }
    }

    /** Order is kept within each queue, also over a suspended one. */
    private static void orderly(Context context) throws Exception {
        context.createTopic(4);
        for (int i = 0; i < 200; i++) {
            context.producer().send(context.message("TagO", String.format("%03d", i)), Context.BY_QUEUE_ID, i % 4);
        }
        Inbox inbox = new Inbox();
        AtomicBoolean suspended = new AtomicBoolean();
        DefaultMQPushConsumer consumer = context.pushConsumer();
        consumer.subscribe(context.topic, "*");
        consumer.setSuspendCurrentQueueTimeMillis(200);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, state) -> {
            if (messages.get(0).getQueueOffset() == 10 && suspended.compareAndSet(false, true)) {
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            inbox.add(messages);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        inbox.await(box -> box.size() >= 200, Context.PATIENCE_MILLIS, "200 messages in order");
        Expect.that(suspended.get(), "one queue was suspended");
        Expect.equal(200, inbox.size(), "messages, none twice");
        for (List<MessageExt> queue : inbox.byQueue().values()) {
            List<Long> offsets = new ArrayList<>();
            queue.forEach(message -> offsets.add(message.getQueueOffset()));
            for (int i = 0; i < offsets.size(); i++) {
                Expect.equal((long) i, offsets.get(i), "offset in arrival order of queue " + queue.get(0).getQueueId());
            }
        }
    }

    private static void tagFilter(Context context) throws Exception {
        context.createTopic(2);
        for (String tag : List.of("TagA", "TagB", "TagC")) {
            context.sendNumbered(tag, tag, 10);
        }
        // Java's hashCode of "Aa" and "BB" is the same: the broker lets both pass, the client must sort them out.
        context.sendNumbered("Aa", "Aa", 5);
        context.sendNumbered("BB", "BB", 5);
        context.send(new Message(context.topic, "no tag".getBytes()));
        context.send(context.message("TagA", "last"));
        Inbox inbox = new Inbox();
        context.startPush("TagA || TagB||Aa", inbox);
        inbox.await(box -> box.bodies().size() >= 26, Context.PATIENCE_MILLIS, "26 messages");
        Thread.sleep(500);
        Set<String> tags = new TreeSet<>();
        inbox.all().forEach(message -> tags.add(message.getTags()));
        Expect.equal(new TreeSet<>(List.of("Aa", "TagA", "TagB")), tags, "tags");
        Expect.equal(26, inbox.bodies().size(), "messages");
    }

    private static void delay(Context context, int level, long delayMillis) throws Exception {
        context.createTopic(1);
        Inbox inbox = new Inbox();
        context.startPush("TagD", inbox);
        Message message = context.message("TagD", "late");
        message.setDelayTimeLevel(level);
        long sent = System.currentTimeMillis();
        context.send(message);
        inbox.await(box -> box.size() >= 1, Context.PATIENCE_MILLIS, "the delayed message");
        long took = inbox.arrivalMillis(0) - sent;
        Expect.that(took >= delayMillis - 20, "arrived after " + took + " ms, before its delay of " + delayMillis);
        Expect.that(took < delayMillis + 15_000, "arrived only after " + took + " ms");
        MessageExt received = inbox.all().get(0);
        Expect.equal(context.topic, received.getTopic(), "topic is the real one again");
        Expect.equal("TagD", received.getTags(), "tag");
        Expect.equal("key-late", received.getKeys(), "keys");
    }

    /** A pull that found nothing is held by the broker and answered by the next message, not by a new pull. */
    private static void longPolling(Context context) throws Exception {
        context.createTopic(1);
        Inbox inbox = new Inbox();
        context.startPush("*", inbox);
        context.send(context.message("TagL", "warm-up"));
        inbox.await(box -> box.size() >= 1, Context.PATIENCE_MILLIS, "the first message");
        for (int i = 0; i < 5; i++) {
            Thread.sleep(300);
            int seen = inbox.size();
            long sent = System.currentTimeMillis();
            context.send(context.message("TagL", "poll-" + i));
            inbox.await(box -> box.size() > seen, Context.PATIENCE_MILLIS, "message " + i);
            // A broker that does not hold the pull answers it after its suspend time of 15 s.
            Expect.that(inbox.arrivalMillis(seen) - sent < 5_000, "woken after " + (inbox.arrivalMillis(seen) - sent));
        }
    }
}
