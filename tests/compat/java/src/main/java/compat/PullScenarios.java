package compat;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers that ask for messages themselves, and the offsets a client may ask for. */
@SuppressWarnings("deprecation")
final class PullScenarios {
    private PullScenarios() {
    }

    static Map<String, Scenario> all() {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        scenarios.put("pull-consumer", PullScenarios::pull);
        scenarios.put("lite-pull-subscribe", PullScenarios::litePullSubscribe);
        scenarios.put("lite-pull-assign", PullScenarios::litePullAssign);
        scenarios.put("offsets", PullScenarios::offsets);
        return scenarios;
    }

    private static void pull(Context context) throws Exception {
        context.createTopic(1);
        context.sendNumbered("p", "TagP", 40);
        DefaultMQPullConsumer consumer = context.pullConsumer();
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(context.topic).iterator().next();
        PullResult first = consumer.pull(queue, "*", 0, 16);
        Expect.equal(PullStatus.FOUND, first.getPullStatus(), "status of the first pull");
        Expect.equal(16, first.getMsgFoundList().size(), "messages of the first pull");
        Expect.equal(16L, first.getNextBeginOffset(), "next offset");
        Expect.equal(0L, first.getMinOffset(), "min offset");
        Expect.equal(40L, first.getMaxOffset(), "max offset");
        Expect.equal("p-0", Inbox.text(first.getMsgFoundList().get(0)), "first body");
        Expect.equal(PullStatus.NO_NEW_MSG, consumer.pull(queue, "*", 40, 16).getPullStatus(), "at the end");
        PullResult beyond = consumer.pull(queue, "*", 4_000, 16);
        Expect.equal(PullStatus.OFFSET_ILLEGAL, beyond.getPullStatus(), "far beyond the end");
        Expect.equal(40L, beyond.getNextBeginOffset(), "offset to go on from");
        Expect.equal(PullStatus.NO_MATCHED_MSG, consumer.pull(queue, "Other", 0, 16).getPullStatus(), "another tag");
        Thread sender = new Thread(() -> {
            try {
                Thread.sleep(1_000);
                context.send(context.message("TagP", "late"));
            } catch (Exception failure) {
                throw new IllegalStateException(failure);
            }
        });
        sender.start();
        PullResult held = consumer.pullBlockIfNotFound(queue, "*", 40, 16);
        sender.join();
        Expect.equal(PullStatus.FOUND, held.getPullStatus(), "status of the held pull");
        Expect.equal("late", Inbox.text(held.getMsgFoundList().get(0)), "body of the held pull");
        // Not -1: the queue still begins at 0, so the broker lets a new group begin there.
        Expect.equal(0L, consumer.fetchConsumeOffset(queue, true), "offset of a group that never committed");
        consumer.updateConsumeOffset(queue, 17);
        consumer.getOffsetStore().persist(queue);
        awaitCommitted(consumer, queue, 17);
    }

    private static void awaitCommitted(DefaultMQPullConsumer consumer, MessageQueue queue, long wanted) throws Exception {
        long deadline = System.currentTimeMillis() + Context.PATIENCE_MILLIS;
        long committed;
        do {
            Thread.sleep(50);
            committed = consumer.fetchConsumeOffset(queue, true);
            Expect.that(System.currentTimeMillis() < deadline, "committed offset is " + committed + ", wanted " + wanted);
        } while (committed != wanted);
    }

    private static void litePullSubscribe(Context context) throws Exception {
        context.createTopic(4);
        context.sendNumbered("l", "TagL", 100);
        DefaultLitePullConsumer consumer = context.litePullConsumer();
        consumer.subscribe(context.topic, "*");
        consumer.start();
        Inbox inbox = new Inbox();
        drain(consumer, inbox, 100);
        Expect.equal(100, inbox.bodies().size(), "messages");
        consumer.commitSync();
        long committed = 0;
        for (MessageQueue queue : context.queues()) {
            committed += awaitCommitted(consumer, queue, inbox.byQueue().get(queue.getQueueId()).size());
        }
        Expect.equal(100L, committed, "sum of the committed offsets");
    }

    private static long awaitCommitted(DefaultLitePullConsumer consumer, MessageQueue queue, long wanted) throws Exception {
        long deadline = System.currentTimeMillis() + Context.PATIENCE_MILLIS;
        long committed;
        do {
            committed = consumer.committed(queue);
            Expect.that(System.currentTimeMillis() < deadline, "committed offset is " + committed + ", wanted " + wanted);
            Thread.sleep(20);
        } while (committed != wanted);
        return committed;
    }

    private static void litePullAssign(Context context) throws Exception {
        context.createTopic(2);
        for (int i = 0; i < 40; i++) {
            context.producer().send(context.message("TagA", "a-" + i), Context.BY_QUEUE_ID, i % 2);
        }
        DefaultLitePullConsumer consumer = context.litePullConsumer();
        consumer.start();
        List<MessageQueue> queues = new ArrayList<>(consumer.fetchMessageQueues(context.topic));
        queues.sort(null);
        consumer.assign(queues.subList(0, 1));
        Inbox inbox = new Inbox();
        drain(consumer, inbox, 20);
        Expect.equal(0L, inbox.all().get(0).getQueueOffset(), "first offset");
        Expect.equal(1, inbox.byQueue().size(), "queues polled");
        consumer.commitSync();
        awaitCommitted(consumer, queues.get(0), 20);
        // Only now: a stock client may still deliver what a pull in flight brings, if it seeks right after assign.
        seek(consumer, queues.get(0), 5);
        seek(consumer, queues.get(0), 0);
    }

    private static void seek(DefaultLitePullConsumer consumer, MessageQueue queue, long offset) throws Exception {
        consumer.seek(queue, offset);
        Inbox inbox = new Inbox();
        drain(consumer, inbox, (int) (20 - offset));
        Expect.equal(offset, inbox.all().get(0).getQueueOffset(), "offset after seek(" + offset + ")");
        Expect.equal((int) (20 - offset), inbox.size(), "messages from there to the end");
    }

    private static void drain(DefaultLitePullConsumer consumer, Inbox inbox, int wanted) {
        long deadline = System.currentTimeMillis() + Context.PATIENCE_MILLIS;
        while (inbox.size() < wanted) {
            inbox.add(consumer.poll(500));
            Expect.that(System.currentTimeMillis() < deadline, "polled " + inbox.size() + " messages, wanted " + wanted);
        }
    }

    private static void offsets(Context context) throws Exception {
        context.createTopic(1);
        MessageQueue queue = context.queues().get(0);
        Expect.equal(0L, context.producer().maxOffset(queue), "max offset of an empty queue");
        context.sendNumbered("early", "TagO", 5);
        Thread.sleep(400);
        long between = System.currentTimeMillis();
        Thread.sleep(400);
        context.sendNumbered("late", "TagO", 5);
        Expect.equal(10L, context.producer().maxOffset(queue), "max offset");
        Expect.equal(0L, context.producer().minOffset(queue), "min offset");
        Expect.equal(5L, context.producer().searchOffset(queue, between), "first offset stored after a time");
        Expect.equal(0L, context.producer().searchOffset(queue, 1), "offset for a time before all");
        long future = System.currentTimeMillis() + 3_600_000;
        Expect.between(9, 10, context.producer().searchOffset(queue, future), "offset for a time after all");
        MessageExt first = context.pullConsumer().pull(queue, "*", 0, 1).getMsgFoundList().get(0);
        Expect.equal(first.getStoreTimestamp(), context.producer().earliestMsgStoreTime(queue), "earliest store time");
    }
}
