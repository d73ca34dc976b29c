package compat;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.impl.consumer.ProcessQueue;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Several consumers of one group, and one consumer over its restart. */
final class GroupScenarios {
    private GroupScenarios() {
    }

    static Map<String, Scenario> all() {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        scenarios.put("broadcasting", GroupScenarios::broadcasting);
        scenarios.put("join-and-leave", GroupScenarios::joinAndLeave);
        scenarios.put("offset-over-restart", GroupScenarios::offsetOverRestart);
        return scenarios;
    }

    private static void broadcasting(Context context) throws Exception {
        context.createTopic(4);
        Inbox left = new Inbox();
        Inbox right = new Inbox();
        for (Inbox inbox : new Inbox[] {left, right}) {
            DefaultMQPushConsumer consumer = context.pushConsumer();
            Versions.broadcast(consumer);
            consumer.subscribe(context.topic, "*");
            consumer.registerMessageListener(Context.into(inbox));
            consumer.start();
        }
        context.sendNumbered("b", "TagB", 60);
        left.await(box -> box.bodies().size() == 60, Context.PATIENCE_MILLIS, "all 60 messages at the first");
        right.await(box -> box.bodies().size() == 60, Context.PATIENCE_MILLIS, "all 60 messages at the second");
    }

    /** A second consumer takes half of the queues and gives them back when it leaves; nothing is lost. */
    private static void joinAndLeave(Context context) throws Exception {
        int queues = 8;
        context.createTopic(queues);
        AtomicBoolean sending = new AtomicBoolean(true);
        AtomicInteger sent = new AtomicInteger();
        Inbox first = new Inbox();
        Inbox second = new Inbox();
        context.producer();
        Thread sender = new Thread(() -> {
            try {
                while (sending.get()) {
                    context.send(context.message("TagJ", "j-" + sent.get()));
                    sent.incrementAndGet();
                    Thread.sleep(5);
                }
            } catch (Exception failure) {
                throw new IllegalStateException(failure);
            }
        });
        sender.start();
        DefaultMQPushConsumer stays = context.startPush("*", first);
        awaitQueues(stays, context.topic, context.queues().size());
        first.await(box -> box.byQueue().size() == queues, Context.PATIENCE_MILLIS, "messages of every queue");
        DefaultMQPushConsumer leaves = context.startPush("*", second);
        int half = context.queues().size() / 2;
        awaitQueues(leaves, context.topic, half);
        awaitQueues(stays, context.topic, half);
        second.await(box -> box.byQueue().size() >= queues / 2, Context.PATIENCE_MILLIS, "half of the queues moved");
        leaves.shutdown();
        awaitQueues(stays, context.topic, context.queues().size());
        int seen = first.size();
        first.await(box -> box.size() > seen + 50, Context.PATIENCE_MILLIS, "messages after the second left");
        sending.set(false);
        sender.join();
        first.await(box -> union(first, second).size() == sent.get(), Context.PATIENCE_MILLIS, "all " + sent + " messages");
    }

    private static Set<String> union(Inbox first, Inbox second) {
        Set<String> bodies = new TreeSet<>(first.bodies());
        bodies.addAll(second.bodies());
        return bodies;
    }

    private static void awaitQueues(DefaultMQPushConsumer consumer, String topic, int wanted) throws Exception {
        long deadline = System.currentTimeMillis() + Context.PATIENCE_MILLIS;
        while (true) {
            int owned = 0;
            for (Object key : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()) {
                owned += ((MessageQueue) key).getTopic().equals(topic) ? 1 : 0;
            }
            if (owned == wanted) {
                return;
            }
            Expect.that(System.currentTimeMillis() < deadline, "owns " + owned + " queues, wanted " + wanted);
            Thread.sleep(50);
        }
    }

    /** A consumer that starts again goes on behind what its group has committed. */
    private static void offsetOverRestart(Context context) throws Exception {
        context.createTopic(2);
        context.sendNumbered("before", "TagR", 20);
        Inbox before = new Inbox();
        DefaultMQPushConsumer consumer = context.startPush("*", before);
        before.await(box -> box.bodies().size() == 20, Context.PATIENCE_MILLIS, "20 messages");
        awaitIdle(consumer);
        consumer.shutdown();
        context.sendNumbered("after", "TagR", 20);
        Inbox after = new Inbox();
        DefaultMQPushConsumer restarted = context.startPush("*", after);
        after.await(box -> box.bodies().size() >= 20, Context.PATIENCE_MILLIS, "20 messages after the restart");
        for (MessageExt message : after.all()) {
            Expect.that(Inbox.text(message).startsWith("after"), "delivered again after its commit: " + Inbox.text(message));
        }
        awaitIdle(restarted);
    }

    /** Waits until all listeners have returned: a shutdown commits only up to the oldest that has not. */
    private static void awaitIdle(DefaultMQPushConsumer consumer) throws Exception {
        long deadline = System.currentTimeMillis() + Context.PATIENCE_MILLIS;
        long cached;
        do {
            // Between the last removal from the cache and the update of the offset there is nothing to wait for.
            Thread.sleep(300);
            cached = 0;
            for (ProcessQueue queue : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable()
                .values()) {
                cached += queue.getMsgCount().get();
            }
            Expect.that(System.currentTimeMillis() < deadline, cached + " messages are still being consumed");
        } while (cached > 0);
    }
}
