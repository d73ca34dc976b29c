package compat;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Push consumers that pop, because an operator has set their group's mode; clients since 5.0. */
final class PopScenarios {
    /** The least that a client takes. */
    private static final long INVISIBLE_MILLIS = 5_000;
    /** What an unacknowledged message needs at most to come again after its time, plus as much. */
    private static final long COMES_AGAIN_MILLIS = 12_000;

    private PopScenarios() {
    }

    static Map<String, Scenario> all() {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        if (PopClient.exists()) {
            scenarios.put("pop-push", PopScenarios::push);
            scenarios.put("pop-consume-later", PopScenarios::consumeLater);
            scenarios.put("pop-join-and-leave", PopScenarios::joinAndLeave);
            scenarios.put("pop-shared-queues", PopScenarios::sharedQueues);
            scenarios.put("pop-tag-filter", PopScenarios::tagFilter);
            scenarios.put("pop-sql-filter", PopScenarios::sqlFilter);
            scenarios.put("pop-to-pull", PopScenarios::toPull);
        }
        return scenarios;
    }

    private static DefaultMQPushConsumer start(Context context, MessageListenerConcurrently listener) throws Exception {
        DefaultMQPushConsumer consumer = PopClient.consumer(context, INVISIBLE_MILLIS);
        consumer.subscribe(context.topic, "*");
        consumer.registerMessageListener(listener);
        consumer.start();
        return consumer;
    }

    /** Every message comes once, before and after the consumer's start; what is acknowledged never comes again. */
    private static void push(Context context) throws Exception {
        context.createTopic(4);
        PopClient.setMode(context, "POP", 0);
        context.sendNumbered("before", "TagP", 60);
        Inbox inbox = new Inbox();
        start(context, Context.into(inbox));
        inbox.await(box -> box.size() == 60, Context.PATIENCE_MILLIS, "60 messages from before the start");
        context.sendNumbered("after", "TagP", 140);
        inbox.await(box -> box.bodies().size() == 200, Context.PATIENCE_MILLIS, "all 200 messages");
        Thread.sleep(COMES_AGAIN_MILLIS);
        Expect.equal(200, inbox.size(), "deliveries of 200 messages");
        for (MessageExt message : inbox.all()) {
            Expect.that(message.getProperty(PopClient.POP_CK) != null, "not popped: " + Inbox.text(message));
            Expect.equal(context.topic, message.getTopic(), "topic");
            Expect.equal(0, message.getReconsumeTimes(), "reconsume times of " + Inbox.text(message));
        }
    }

    /** What is given back comes again, with its count, by a change of its invisible time; the rest does not. */
    private static void consumeLater(Context context) throws Exception {
        context.createTopic(2);
        PopClient.setMode(context, "POP", 0);
        Inbox inbox = new Inbox();
        Inbox refused = new Inbox();
        Set<String> given = ConcurrentHashMap.newKeySet();
        start(context, (messages, consume) -> {
            String body = Inbox.text(messages.get(0));
            if (body.endsWith("7") && given.add(body)) {
                refused.add(messages);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            inbox.add(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        context.sendNumbered("l", "TagL", 40);
        inbox.await(box -> box.bodies().size() == 40, Context.PATIENCE_MILLIS, "all 40 messages");
        Expect.equal(4, refused.size(), "refused messages");
        Expect.equal(40, inbox.size(), "accepted deliveries of 40 messages");
        for (MessageExt message : inbox.all()) {
            Expect.equal(given.contains(Inbox.text(message)) ? 1 : 0, message.getReconsumeTimes(),
                "reconsume times of " + Inbox.text(message));
            Expect.equal(context.topic, message.getTopic(), "topic");
        }
        for (MessageExt message : refused.all()) {
            MessageExt again = inbox.all().stream().filter(one -> Inbox.text(one).equals(Inbox.text(message))).findAny().get();
            Expect.equal(message.getMsgId(), again.getMsgId(), "id of what came again");
            Expect.equal(message.getTags(), again.getTags(), "tags of what came again");
        }
    }

    /** All consumers take from all queues; one that joins gets its part, and one that leaves loses nothing. */
    private static void joinAndLeave(Context context) throws Exception {
        context.createTopic(4);
        PopClient.setMode(context, "POP", 0);
        AtomicBoolean sending = new AtomicBoolean(true);
        AtomicInteger sent = new AtomicInteger();
        Thread sender = sender(context, sending, sent);
        Inbox first = new Inbox();
        Inbox second = new Inbox();
        start(context, Context.into(first));
        first.await(box -> box.size() > 50, Context.PATIENCE_MILLIS, "messages at the first");
        DefaultMQPushConsumer leaves = start(context, Context.into(second));
        second.await(box -> box.size() > 50, Context.PATIENCE_MILLIS, "messages at the second");
        leaves.shutdown();
        int seen = first.size();
        first.await(box -> box.size() > seen + 50, Context.PATIENCE_MILLIS, "messages after the second left");
        sending.set(false);
        sender.join();
        first.await(box -> union(first, second).size() == sent.get(), Context.PATIENCE_MILLIS, "all messages");
    }

    private static Thread sender(Context context, AtomicBoolean sending, AtomicInteger sent) throws Exception {
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
        return sender;
    }

    private static Set<String> union(Inbox... inboxes) {
        Set<String> bodies = new TreeSet<>();
        for (Inbox inbox : inboxes) {
            bodies.addAll(inbox.bodies());
        }
        return bodies;
    }

    /** With popShareQueueNum 1 each of three consumers pops from its own queues and those of the next one. */
    private static void sharedQueues(Context context) throws Exception {
        context.createTopic(6);
        int all = context.queues().size();
        PopClient.setMode(context, "POP", 1);
        Inbox[] inboxes = {new Inbox(), new Inbox(), new Inbox(), new Inbox()};
        DefaultMQPushConsumer[] consumers = new DefaultMQPushConsumer[inboxes.length];
        for (int i = 0; i < inboxes.length; i++) {
            consumers[i] = start(context, Context.into(inboxes[i]));
        }
        long deadline = System.currentTimeMillis() + Context.PATIENCE_MILLIS;
        while (true) {
            Map<String, Integer> takers = new LinkedHashMap<>();
            for (DefaultMQPushConsumer consumer : consumers) {
                for (String queue : PopClient.queues(consumer, context.topic)) {
                    takers.merge(queue, 1, Integer::sum);
                }
            }
            if (takers.size() == all && takers.values().stream().allMatch(count -> count == 2)) {
                break;
            }
            Expect.that(System.currentTimeMillis() < deadline, "two consumers for each queue, but there are " + takers);
            Thread.sleep(100);
        }
        context.sendNumbered("s", "TagS", 200);
        inboxes[0].await(box -> union(inboxes).size() == 200, Context.PATIENCE_MILLIS, "all 200 messages");
        int deliveries = 0;
        for (Inbox inbox : inboxes) {
            deliveries += inbox.size();
        }
        Expect.equal(200, deliveries, "deliveries of 200 messages");
    }

    private static void tagFilter(Context context) throws Exception {
        context.createTopic(2);
        PopClient.setMode(context, "POP", 0);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = PopClient.consumer(context, INVISIBLE_MILLIS);
        consumer.subscribe(context.topic, "TagA || TagC");
        consumer.registerMessageListener(Context.into(inbox));
        consumer.start();
        for (int i = 0; i < 60; i++) {
            context.send(context.message("Tag" + "ABCD".charAt(i % 4), "f-" + i));
        }
        inbox.await(box -> box.size() >= 30, Context.PATIENCE_MILLIS, "30 messages of two tags");
        for (MessageExt message : inbox.all()) {
            Expect.that(message.getTags().equals("TagA") || message.getTags().equals("TagC"), "tag " + message.getTags());
        }
        Expect.equal(30, inbox.bodies().size(), "messages of two tags");
    }

    private static void sqlFilter(Context context) throws Exception {
        context.createTopic(2);
        PopClient.setMode(context, "POP", 0);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = PopClient.consumer(context, INVISIBLE_MILLIS);
        consumer.subscribe(context.topic, MessageSelector.bySql("price BETWEEN 10 AND 19 AND TAGS = 'TagQ'"));
        consumer.registerMessageListener(Context.into(inbox));
        consumer.start();
        for (int i = 0; i < 60; i++) {
            Message message = context.message(i % 2 == 0 ? "TagQ" : "TagR", "q-" + i);
            message.putUserProperty("price", "" + i);
            context.send(message);
        }
        inbox.await(box -> box.size() >= 5, Context.PATIENCE_MILLIS, "5 messages that match");
        Expect.equal(Set.of("q-10", "q-12", "q-14", "q-16", "q-18"), inbox.bodies(), "messages that match");
    }

    /**
     * A group is switched to PULL and back while its consumer runs; it goes on where it was. What is handed to a pop
     * that its client has given up comes again, and may have been pulled by then.
     */
    private static void toPull(Context context) throws Exception {
        context.createTopic(2);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = start(context, Context.into(inbox));
        String[] modes = {"POP", "PULL", "POP"};
        for (int i = 0; i < modes.length; i++) {
            boolean isPop = modes[i].equals("POP");
            PopClient.setMode(context, modes[i], 0);
            awaitMode(context, consumer, isPop);
            String prefix = "m" + i;
            context.sendNumbered(prefix, "TagM", 40);
            int wanted = 40 * (i + 1);
            inbox.await(box -> box.bodies().size() == wanted, Context.PATIENCE_MILLIS, wanted + " messages");
            for (MessageExt message : inbox.all()) {
                if (Inbox.text(message).startsWith(prefix)) {
                    Expect.equal(isPop, message.getProperty(PopClient.POP_CK) != null, "popped " + Inbox.text(message));
                }
            }
            // What is consumed is acknowledged or committed a moment later.
            Thread.sleep(1_000);
        }
        Expect.between(120, 140, inbox.size(), "deliveries of 120 messages");
    }

    private static void awaitMode(Context context, DefaultMQPushConsumer consumer, boolean isPop) throws Exception {
        long deadline = System.currentTimeMillis() + Context.PATIENCE_MILLIS;
        while (true) {
            boolean pops = !PopClient.queues(consumer, context.topic).isEmpty();
            boolean pulls = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()
                .stream().anyMatch(queue -> queue.getTopic().equals(context.topic));
            if (pops == isPop && pulls == !isPop) {
                return;
            }
            Expect.that(System.currentTimeMillis() < deadline, "pops " + pops + ", pulls " + pulls);
            Thread.sleep(100);
        }
    }
}
