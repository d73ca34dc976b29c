package compat;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageBatch;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The ways to send, each checked by what a consumer then reads. */
@SuppressWarnings("deprecation")
final class SendScenarios {
    private SendScenarios() {
    }

    static Map<String, Scenario> all() {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        scenarios.put("sync-send", SendScenarios::sync);
        scenarios.put("auto-create-topic", SendScenarios::autoCreateTopic);
        scenarios.put("async-send", SendScenarios::async);
        scenarios.put("oneway", SendScenarios::oneway);
        scenarios.put("batch-send", SendScenarios::batch);
        scenarios.put("batch-queue", SendScenarios::batchQueue);
        scenarios.put("queue-selector", SendScenarios::queueSelector);
        scenarios.put("compressed-body", SendScenarios::compressedBody);
        scenarios.put("unicode", SendScenarios::unicode);
        scenarios.put("message-limits", SendScenarios::limits);
        scenarios.put("refused-sends", SendScenarios::refused);
        return scenarios;
    }

    private static void sync(Context context) throws Exception {
        context.createTopic(1);
        long before = System.currentTimeMillis();
        for (int i = 0; i < 20; i++) {
            Message message = context.message("TagS", "sync-" + i);
            message.setFlag(77);
            message.putUserProperty("colour", "blue");
            SendResult result = context.send(message);
            Expect.equal((long) i, result.getQueueOffset(), "queue offset of message " + i);
            Expect.equal(0, result.getMessageQueue().getQueueId(), "queue id");
            Expect.that(result.getOffsetMsgId() != null && result.getOffsetMsgId().length() == 32, "offset message id "
                + result.getOffsetMsgId());
        }
        Inbox inbox = new Inbox();
        context.startPush("*", inbox);
        inbox.await(box -> box.bodies().size() == 20, Context.PATIENCE_MILLIS, "20 messages");
        MessageExt first = inbox.byOffset().get(0);
        Expect.equal("TagS", first.getTags(), "tag");
        Expect.equal("key-sync-0", first.getKeys(), "keys");
        Expect.equal(77, first.getFlag(), "flag");
        Expect.equal("blue", first.getUserProperty("colour"), "user property");
        Expect.equal(0L, first.getQueueOffset(), "queue offset");
        Expect.equal(0, first.getReconsumeTimes(), "reconsume times");
        Expect.between(before - 1000, System.currentTimeMillis() + 1000, first.getBornTimestamp(), "born timestamp");
        Expect.between(before - 1000, System.currentTimeMillis() + 1000, first.getStoreTimestamp(), "store timestamp");
        Expect.that(first.getBornHostString() != null && first.getStoreHost() != null, "hosts are set");
    }

    private static void autoCreateTopic(Context context) throws Exception {
        SendResult result = context.send(context.message("TagA", "first of its topic"));
        Expect.equal(0L, result.getQueueOffset(), "queue offset");
        Inbox inbox = new Inbox();
        context.startPush("*", inbox);
        inbox.await(box -> box.bodies().contains("first of its topic"), Context.PATIENCE_MILLIS, "the first message");
        Expect.equal(4, context.queues().size(), "queues of a topic that the client created by sending");
    }

    private static void async(Context context) throws Exception {
        context.createTopic(4);
        int count = 500;
        CountDownLatch answers = new CountDownLatch(count);
        ConcurrentLinkedQueue<Throwable> failures = new ConcurrentLinkedQueue<>();
        for (int i = 0; i < count; i++) {
            context.producer().send(context.message("TagA", "async-" + i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    if (result.getSendStatus() != SendStatus.SEND_OK) {
                        failures.add(new AssertionError(result.toString()));
                    }
                    answers.countDown();
                }

                @Override
                public void onException(Throwable failure) {
                    failures.add(failure);
                    answers.countDown();
                }
            });
        }
        Expect.that(answers.await(30, TimeUnit.SECONDS), answers.getCount() + " of " + count + " never answered");
        Expect.that(failures.isEmpty(), failures.size() + " failed, first " + failures.peek());
        Inbox inbox = new Inbox();
        context.startPush("*", inbox);
        inbox.await(box -> box.bodies().size() == count, Context.PATIENCE_MILLIS, count + " messages");
    }

    private static void oneway(Context context) throws Exception {
        context.createTopic(2);
        for (int i = 0; i < 50; i++) {
            context.producer().sendOneway(context.message("TagO", "oneway-" + i));
        }
        Inbox inbox = new Inbox();
        context.startPush("*", inbox);
        inbox.await(box -> box.bodies().size() == 50, Context.PATIENCE_MILLIS, "50 messages");
    }

    private static void batch(Context context) throws Exception {
        context.createTopic(1);
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < 32; i++) {
            Message message = context.message("TagB", "batch-" + i);
            message.putUserProperty("index", Integer.toString(i));
            messages.add(message);
        }
        SendResult result = context.producer().send(messages);
        Expect.equal(SendStatus.SEND_OK, result.getSendStatus(), "status of the batch");
        Expect.equal(32, result.getMsgId().split(",").length, "message ids of the batch");
        Expect.equal(32, result.getOffsetMsgId().split(",").length, "offset message ids of the batch");
        Expect.equal(0L, result.getQueueOffset(), "queue offset of the batch");
        Expect.equal(32L, context.send(context.message("TagB", "after")).getQueueOffset(), "queue offset after it");
        Inbox inbox = new Inbox();
        context.startPush("TagB", inbox);
        inbox.await(box -> box.bodies().size() == 33, Context.PATIENCE_MILLIS, "33 messages");
        for (MessageExt message : inbox.all()) {
            if (!Inbox.text(message).equals("after")) {
                Expect.equal("batch-" + message.getQueueOffset(), Inbox.text(message), "body at its queue offset");
                Expect.equal(Long.toString(message.getQueueOffset()), message.getUserProperty("index"), "property");
            }
        }
    }

    /** In a topic whose queue type is BatchCQ a batch is one record, which clients from 5.0 on unwrap. */
    private static void batchQueue(Context context) throws Exception {
        Versions.createBatchTopic(context.producer(), context.topic, 1);
        context.awaitRoute(1);
        long offset = 0;
        for (int count : new int[] {3, 32, 1}) {
            MessageBatch batch = MessageBatch.generateFromList(numbered(context, offset, count));
            MessageClientIDSetter.setUniqID(batch);
            batch.setBody(batch.encode());
            SendResult result = context.send(batch);
            Expect.equal(1, result.getOffsetMsgId().split(",").length, "offset message ids of the batch");
            Expect.equal(offset, result.getQueueOffset(), "queue offset of the batch");
            offset += count;
        }
        Inbox inbox = new Inbox();
        context.startPush("*", inbox);
        if (!Versions.unwrapsBatches()) {
            inbox.await(box -> box.size() == 3, Context.PATIENCE_MILLIS, "3 records");
            Expect.equal("35", inbox.byOffset().get(2).getProperty("INNER_BASE"), "place of the last record");
            return;
        }
        inbox.await(box -> box.bodies().size() == 36, Context.PATIENCE_MILLIS, "36 messages");
        for (MessageExt message : inbox.all()) {
            Expect.equal("batch-" + message.getQueueOffset(), Inbox.text(message), "body at its queue offset");
            Expect.equal(Long.toString(message.getQueueOffset()), message.getUserProperty("index"), "property");
            Expect.equal("TagB", message.getTags(), "tag");
        }
        DefaultMQPullConsumer consumer = context.pullConsumer();
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(context.topic).iterator().next();
        PullResult inside = consumer.pull(queue, "*", 10, 32);
        Expect.equal("batch-3", Inbox.text(inside.getMsgFoundList().get(0)), "first message of the record around it");
        Expect.equal(35L, inside.getNextBeginOffset(), "next offset");
        Expect.equal(36L, consumer.maxOffset(queue), "max offset");
    }

    private static List<Message> numbered(Context context, long first, int count) {
        List<Message> messages = new ArrayList<>();
        for (long i = first; i < first + count; i++) {
            Message message = context.message("TagB", "batch-" + i);
            message.putUserProperty("index", Long.toString(i));
            MessageClientIDSetter.setUniqID(message);
            messages.add(message);
        }
        return messages;
    }

    private static void queueSelector(Context context) throws Exception {
        context.createTopic(4);
        for (int i = 0; i < 40; i++) {
            SendResult result = context.producer().send(context.message("TagQ", "q" + i), Context.BY_QUEUE_ID, i % 4);
            Expect.equal(i % 4, result.getMessageQueue().getQueueId(), "queue chosen by the selector");
        }
        MessageQueue third = context.queues().get(3);
        SendResult direct = context.producer().send(context.message("TagQ", "direct"), third);
        Expect.equal(third, direct.getMessageQueue(), "queue named by the sender");
        Inbox inbox = new Inbox();
        context.startPush("*", inbox);
        inbox.await(box -> box.bodies().size() == 41, Context.PATIENCE_MILLIS, "41 messages");
        Expect.equal(10, inbox.byQueue().get(0).size(), "messages in queue 0");
        Expect.equal(11, inbox.byQueue().get(3).size(), "messages in queue 3");
    }

    /** Bodies above 4 KiB are compressed by the producer and inflated by the consumer. */
    private static void compressedBody(Context context) throws Exception {
        context.createTopic(1);
        byte[] random = new byte[300_000];
        new Random(7).nextBytes(random);
        byte[] text = "all work and no play ".repeat(20_000).getBytes(StandardCharsets.UTF_8);
        context.send(new Message(context.topic, "TagC", random));
        context.send(new Message(context.topic, "TagC", text));
        Inbox inbox = new Inbox();
        context.startPush("*", inbox);
        inbox.await(box -> box.size() >= 2, Context.PATIENCE_MILLIS, "2 messages");
        List<MessageExt> messages = inbox.byOffset();
        Expect.that(Arrays.equals(random, messages.get(0).getBody()), "random body unchanged");
        Expect.that(Arrays.equals(text, messages.get(1).getBody()), "text body unchanged");
        Expect.that(messages.get(1).getStoreSize() < text.length / 10, "stored compressed: " + messages.get(1).getStoreSize());
    }

    private static void unicode(Context context) throws Exception {
        context.createTopic(1);
        String name = "naïve-名前-\uD83D\uDE80";
        Message message = new Message(context.topic, "标签", "ключ-1 鍵-2", "Grüße, 世界 \uD83C\uDF0D".getBytes(
            StandardCharsets.UTF_8));
        message.putUserProperty(name, "wert-ß-値");
        context.send(message);
        Inbox inbox = new Inbox();
        context.startPush("标签", inbox);
        inbox.await(box -> box.size() == 1, Context.PATIENCE_MILLIS, "the message by its tag");
        MessageExt received = inbox.all().get(0);
        Expect.equal("Grüße, 世界 \uD83C\uDF0D", Inbox.text(received), "body");
        Expect.equal("标签", received.getTags(), "tag");
        Expect.equal("ключ-1 鍵-2", received.getKeys(), "keys");
        Expect.equal("wert-ß-値", received.getUserProperty(name), "user property");
    }

    /** The largest body and properties go through whole; what is over is refused by the broker with its reason. */
    private static void limits(Context context) throws Exception {
        context.createTopic(1);
        DefaultMQProducer producer = context.producer();
        producer.setMaxMessageSize(8 << 20);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.setRetryTimesWhenSendFailed(0);
        byte[] largest = new byte[4 << 20];
        new Random(9).nextBytes(largest);
        Expect.equal(SendStatus.SEND_OK, producer.send(new Message(context.topic, largest)).getSendStatus(), "4 MiB");
        refusedAsIllegal(producer, new Message(context.topic, new byte[(4 << 20) + 1]));
        Message wordy = new Message(context.topic, new byte[1]);
        wordy.putUserProperty("text", "x".repeat(32_400));
        Expect.equal(SendStatus.SEND_OK, producer.send(wordy).getSendStatus(), "long properties");
        Message tooWordy = new Message(context.topic, new byte[1]);
        tooWordy.putUserProperty("text", "x".repeat(32_767));
        refusedAsIllegal(producer, tooWordy);
        Inbox inbox = new Inbox();
        context.startPush("*", inbox);
        inbox.await(box -> box.size() == 2, Context.PATIENCE_MILLIS, "2 messages");
        Expect.that(Arrays.equals(largest, inbox.byOffset().get(0).getBody()), "the largest body");
        Expect.equal(32_400, inbox.byOffset().get(1).getUserProperty("text").length(), "length of the property");
    }

    private static void refusedAsIllegal(DefaultMQProducer producer, Message message) throws Exception {
        try {
            producer.send(message);
        } catch (MQBrokerException refusal) {
            Expect.equal(13, refusal.getResponseCode(), "code of the refusal");
            Expect.that(refusal.getErrorMessage().contains("msg body length limit 4194304B, msg properties length limit "
                + "32KB."), "remark names the limits: " + refusal.getErrorMessage());
            return;
        }
        throw new AssertionError("not refused: body " + message.getBody().length);
    }

    /** What the broker refuses comes back at once as an error with a remark, and the connection lives on. */
    private static void refused(Context context) throws Exception {
        context.createTopic(1);
        context.producer().setRetryTimesWhenSendFailed(0);
        MessageQueue beyond = new MessageQueue(context.topic, context.queues().get(0).getBrokerName(), 9);
        Set<String> refusals = new HashSet<>();
        try {
            context.producer().send(context.message("TagR", "no such queue"), beyond);
        } catch (MQBrokerException refusal) {
            refusals.add("queue");
            Expect.that(refusal.getErrorMessage() != null && refusal.getErrorMessage().contains("9"), "remark names the queue: "
                + refusal.getErrorMessage());
        }
        Expect.equal(Set.of("queue"), refusals, "refused");
        Expect.equal(0L, context.send(context.message("TagR", "fine")).getQueueOffset(), "queue offset afterwards");
    }
}
