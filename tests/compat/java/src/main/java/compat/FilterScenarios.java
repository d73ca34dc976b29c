package compat;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.Message;

/** Consumers that filter by SQL92 over properties; the broker needs enablePropertyFilter. */
final class FilterScenarios {
    private static final String WANTED = "a between 3 and 6 AND TAGS = 'TagF' AND kind IN ('odd', 'even') AND none IS NULL";

    private FilterScenarios() {
    }

    static Map<String, Scenario> all() {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        scenarios.put("sql-filter", FilterScenarios::push);
        scenarios.put("sql-filter-lite-pull", FilterScenarios::litePull);
        scenarios.put("sql-filter-refused", FilterScenarios::refused);
        return scenarios;
    }

    private static void send(Context context, String prefix, String tag) throws Exception {
        for (int i = 0; i < 10; i++) {
            Message message = context.message(tag, prefix + i);
            message.putUserProperty("a", String.valueOf(i));
            message.putUserProperty("kind", i % 2 == 0 ? "even" : "odd");
            context.send(message);
        }
    }

    /** What was there and what comes while pulls are held; of both what matches, and each once. */
    private static void push(Context context) throws Exception {
        context.createTopic(2);
        send(context, "early-", "TagF");
        send(context, "other-", "TagG");
        context.send(context.message("TagF", "no property"));
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = context.pushConsumer();
        consumer.subscribe(context.topic, MessageSelector.bySql(WANTED));
        consumer.registerMessageListener(Context.into(inbox));
        consumer.start();
        inbox.await(box -> box.bodies().size() >= 4, Context.PATIENCE_MILLIS, "4 messages that were there");
        send(context, "late-", "TagF");
        inbox.await(box -> box.bodies().size() >= 8, Context.PATIENCE_MILLIS, "4 messages that came later");
        Thread.sleep(300);
        TreeSet<String> wanted = new TreeSet<>();
        for (int i = 3; i <= 6; i++) {
            wanted.add("early-" + i);
            wanted.add("late-" + i);
        }
        Expect.equal(wanted, inbox.bodies(), "bodies");
        Expect.equal(8, inbox.size(), "messages, none twice");
    }

    /** A lite pull consumer sends its filter with every pull. */
    private static void litePull(Context context) throws Exception {
        context.createTopic(1);
        send(context, "p-", "TagF");
        DefaultLitePullConsumer consumer = context.litePullConsumer();
        consumer.subscribe(context.topic, MessageSelector.bySql("a >= 7 or a = 0"));
        consumer.setPullBatchSize(2);
        consumer.start();
        List<String> bodies = new ArrayList<>();
        long deadline = System.currentTimeMillis() + Context.PATIENCE_MILLIS;
        while (bodies.size() < 4) {
            Expect.that(System.currentTimeMillis() < deadline, "4 messages; received " + bodies);
            consumer.poll(500).forEach(message -> bodies.add(Inbox.text(message)));
        }
        consumer.poll(300).forEach(message -> bodies.add(Inbox.text(message)));
        Expect.equal(List.of("p-0", "p-7", "p-8", "p-9"), bodies, "bodies");
    }

    /** A filter that is none is refused when the consumer starts. */
    private static void refused(Context context) throws Exception {
        context.createTopic(1);
        DefaultMQPushConsumer consumer = context.pushConsumer();
        consumer.subscribe(context.topic, MessageSelector.bySql("a between 10 and 1"));
        consumer.registerMessageListener(Context.into(new Inbox()));
        try {
            consumer.start();
        } catch (MQClientException expected) {
            Expect.equal(23, expected.getResponseCode(), "SUBSCRIPTION_PARSE_FAILED");
            return;
        }
        throw new AssertionError("a filter that is none was accepted");
    }
}
