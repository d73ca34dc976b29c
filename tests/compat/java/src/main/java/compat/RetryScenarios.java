package compat;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages that a consumer could not handle: again later, then to the dead-letter topic. */
final class RetryScenarios {
    private RetryScenarios() {
    }

    static Map<String, Scenario> all() {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        scenarios.put("consume-later", RetryScenarios::consumeLater);
        scenarios.put("dead-letter", RetryScenarios::deadLetter);
        return scenarios;
    }

    private static void consumeLater(Context context) throws Exception {
        context.createTopic(1);
        context.send(context.message("TagL", "again"));
        Inbox inbox = new Inbox();
        context.startPush("TagL", (messages, state) -> {
            inbox.add(messages);
            state.setDelayLevelWhenNextConsume(1);
            return messages.get(0).getReconsumeTimes() < 2 ? ConsumeConcurrentlyStatus.RECONSUME_LATER
                : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        inbox.await(box -> box.size() >= 3, Context.PATIENCE_MILLIS, "three deliveries");
        List<MessageExt> deliveries = inbox.all();
        for (int i = 0; i < 3; i++) {
            Expect.equal(i, deliveries.get(i).getReconsumeTimes(), "reconsume times of delivery " + i);
            Expect.equal(context.topic, deliveries.get(i).getTopic(), "topic of delivery " + i);
            Expect.equal("again", Inbox.text(deliveries.get(i)), "body of delivery " + i);
            Expect.equal("TagL", deliveries.get(i).getTags(), "tag of delivery " + i);
            Expect.equal(deliveries.get(0).getMsgId(), deliveries.get(i).getMsgId(), "message id of delivery " + i);
        }
        long apart = inbox.arrivalMillis(1) - inbox.arrivalMillis(0);
        Expect.that(apart >= 900, "the second delivery came after " + apart + " ms, level 1 is 1 s");
    }

    private static void deadLetter(Context context) throws Exception {
        context.createTopic(1);
        context.send(context.message("TagD", "poison"));
        Inbox attempts = new Inbox();
        DefaultMQPushConsumer failing = context.pushConsumer();
        failing.setMaxReconsumeTimes(1);
        failing.subscribe(context.topic, "*");
        failing.registerMessageListener((MessageListenerConcurrently) (messages, state) -> {
            attempts.add(messages);
            state.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        failing.start();
        attempts.await(box -> box.size() >= 2, Context.PATIENCE_MILLIS, "the delivery and one retry");
        Inbox dead = new Inbox();
        DefaultMQPushConsumer undertaker = context.pushConsumer();
        undertaker.setConsumerGroup(context.group + "-dlq");
        undertaker.subscribe("%DLQ%" + context.group, "*");
        undertaker.registerMessageListener(Context.into(dead));
        undertaker.start();
        dead.await(box -> box.size() >= 1, Context.PATIENCE_MILLIS, "the dead letter");
        MessageExt letter = dead.all().get(0);
        Expect.equal("poison", Inbox.text(letter), "body");
        Expect.equal("key-poison", letter.getKeys(), "keys");
        Expect.equal(context.topic, letter.getProperty("RETRY_TOPIC"), "property RETRY_TOPIC");
        Expect.equal(2, attempts.size(), "deliveries before the dead letter");
    }
}
