package compat.grpc;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.LitePushConsumer;
import org.apache.rocketmq.client.apis.consumer.OffsetOption;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/** Scenarios of RocketMQ's gRPC client; each has a topic and a group of its own, made before. */
final class Scenarios {
    interface Scenario {
        void run(String topic, String group) throws Exception;
    }

    private final ClientServiceProvider provider = ClientServiceProvider.loadService();
    private final ClientConfiguration configuration;

    Scenarios(String endpoints, boolean tls, String accessKey, String secretKey) {
        var builder = ClientConfiguration.newBuilder().setEndpoints(endpoints).enableSsl(tls)
            .setRequestTimeout(Duration.ofSeconds(5));
        if (accessKey != null) {
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(accessKey, secretKey));
        }
        configuration = builder.build();
    }

    Map<String, Scenario> all() {
        Map<String, Scenario> table = new LinkedHashMap<>();
        table.put("normal-simple", this::normalSimple);
        table.put("normal-push", this::normalPush);
        table.put("async-send", this::asyncSend);
        table.put("fifo", this::fifo);
        table.put("delay", this::delay);
        table.put("recall", this::recall);
        table.put("transaction", this::transaction);
        table.put("orphan", this::orphan);
        table.put("tag-filter", this::tagFilter);
        table.put("sql-filter", this::sqlFilter);
        table.put("change-invisible", this::changeInvisible);
        table.put("dead-letter", this::deadLetter);
        table.put("wrong-type", this::wrongType);
        table.put("renewal", this::renewal);
        table.put("faults", this::faults);
        table.put("priority", this::priority);
        table.put("lite", this::lite);
        table.put("lite-exclusive", this::liteExclusive);
        return table;
    }

    private Producer producer(String topic) throws Exception {
        return provider.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic).build();
    }

    private SimpleConsumer simple(String topic, String group, FilterExpression filter) throws Exception {
        return provider.newSimpleConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setAwaitDuration(Duration.ofSeconds(5)).setSubscriptionExpressions(Map.of(topic, filter)).build();
    }

    private Message message(String topic, String body) {
        return provider.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8))
            .setKeys("key-" + body).addProperty("origin", "java").build();
    }

    private static String text(MessageView view) {
        return StandardCharsets.UTF_8.decode(view.getBody()).toString();
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }

    /** A group begins at the end of a topic: let it be known before anything is sent. */
    private void begin(SimpleConsumer consumer) throws Exception {
        consumer.receive(1, Duration.ofSeconds(10));
    }

    private List<MessageView> receive(SimpleConsumer consumer, int count, int seconds) throws Exception {
        List<MessageView> all = new ArrayList<>();
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        while (all.size() < count && System.nanoTime() < end) {
            for (MessageView view : consumer.receive(16, Duration.ofSeconds(20))) {
                all.add(view);
                consumer.ack(view);
            }
        }
        return all;
    }

    private void normalSimple(String topic, String group) throws Exception {
        try (SimpleConsumer consumer = simple(topic, group, FilterExpression.SUB_ALL); Producer producer = producer(topic)) {
            begin(consumer);
            Set<String> sent = new HashSet<>();
            Set<String> ids = new HashSet<>();
            for (int i = 0; i < 40; i++) {
                ids.add(producer.send(message(topic, "m" + i)).getMessageId().toString());
                sent.add("m" + i);
            }
            List<MessageView> views = receive(consumer, 40, 30);
            Set<String> got = new HashSet<>();
            for (MessageView view : views) {
                got.add(text(view));
                check(ids.contains(view.getMessageId().toString()), "id " + view.getMessageId());
                check("java".equals(view.getProperties().get("origin")), "property " + view.getProperties());
                check(view.getKeys().contains("key-" + text(view)), "keys " + view.getKeys());
                check(view.getDeliveryAttempt() == 1, "attempt " + view.getDeliveryAttempt());
            }
            check(views.size() == 40 && got.equals(sent), views.size() + " messages, " + got.size() + " kinds");
            check(consumer.receive(16, Duration.ofSeconds(20)).isEmpty(), "an acknowledged message came again");
        }
    }

    private void normalPush(String topic, String group) throws Exception {
        Set<String> got = ConcurrentHashMap.newKeySet();
        AtomicInteger count = new AtomicInteger();
        try (Producer producer = producer(topic);
             PushConsumer consumer = push(topic, group, view -> {
                 got.add(text(view));
                 count.incrementAndGet();
                 return ConsumeResult.SUCCESS;
             })) {
            warm(producer, topic, got);
            for (int i = 0; i < 200; i++) {
                producer.send(message(topic, "m" + i));
            }
            waitFor(() -> got.stream().filter(one -> one.startsWith("m")).count() == 200, 30);
            check(got.stream().filter(one -> one.startsWith("m")).count() == 200, got.size() + " of 200");
        }
    }

    /** Sends until each message is acknowledged, while servers are killed; the listener refuses one of them. */
    private void faults(String topic, String group) throws Exception {
        Set<String> got = ConcurrentHashMap.newKeySet();
        AtomicInteger refused = new AtomicInteger();
        try (Producer producer = producer(topic);
             PushConsumer consumer = push(topic, group, view -> {
                 String body = text(view);
                 if (body.equals("m7") && refused.getAndIncrement() == 0) {
                     return ConsumeResult.FAILURE;
                 }
                 got.add(body);
                 return ConsumeResult.SUCCESS;
             })) {
            warm(producer, topic, got);
            System.out.println("WARM");
            System.out.flush();
            for (int i = 0; i < 80; i++) {
                long end = System.nanoTime() + 60_000_000_000L;
                while (true) {
                    try {
                        producer.send(message(topic, "m" + i));
                        break;
                    } catch (Exception failed) {
                        check(System.nanoTime() < end, "m" + i + " is not taken: " + failed);
                        Thread.sleep(200);
                    }
                }
                Thread.sleep(200);
            }
            waitFor(() -> got.stream().filter(one -> one.startsWith("m")).count() == 80, 90);
            check(got.stream().filter(one -> one.startsWith("m")).count() == 80, got.size() + " of 80");
        }
    }

    private PushConsumer push(String topic, String group, org.apache.rocketmq.client.apis.consumer.MessageListener listener)
        throws Exception {
        return provider.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL))
            .setMessageListener(listener).build();
    }

    /** Send until the group, which begins at the end of the topic, gets something. */
    private void warm(Producer producer, String topic, Set<String> got) throws Exception {
        for (int i = 0; i < 60 && got.isEmpty(); i++) {
            producer.send(message(topic, "warm" + i));
            waitFor(() -> !got.isEmpty(), 1);
        }
        check(!got.isEmpty(), "the consumer gets nothing");
    }

    private interface Condition {
        boolean holds();
    }

    private static void waitFor(Condition condition, int seconds) throws InterruptedException {
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        while (!condition.holds() && System.nanoTime() < end) {
            Thread.sleep(20);
        }
    }

    private void asyncSend(String topic, String group) throws Exception {
        try (Producer producer = producer(topic)) {
            List<CompletableFuture<SendReceipt>> futures = new ArrayList<>();
            for (int i = 0; i < 300; i++) {
                futures.add(producer.sendAsync(message(topic, "m" + i)));
            }
            for (CompletableFuture<SendReceipt> future : futures) {
                check(!future.get().getMessageId().toString().isEmpty(), "no id");
            }
        }
    }

    private void fifo(String topic, String group) throws Exception {
        Map<String, List<Integer>> got = new ConcurrentHashMap<>();
        Set<String> warm = ConcurrentHashMap.newKeySet();
        AtomicInteger failures = new AtomicInteger();
        try (Producer producer = producer(topic);
             PushConsumer consumer = push(topic, group, view -> {
                 String[] words = text(view).split(":");
                 if (words[0].equals("warm")) {
                     warm.add(words[0]);
                     return ConsumeResult.SUCCESS;
                 }
                 int number = Integer.parseInt(words[1]);
                 if (number == 5 && failures.getAndIncrement() == 0) {
                     return ConsumeResult.FAILURE;
                 }
                 got.computeIfAbsent(words[0], key -> Collections.synchronizedList(new ArrayList<>())).add(number);
                 return ConsumeResult.SUCCESS;
             })) {
            for (int i = 0; i < 60 && warm.isEmpty(); i++) {
                producer.send(fifoMessage(topic, "warm", "warm:0"));
                waitFor(() -> !warm.isEmpty(), 1);
            }
            for (int i = 0; i < 20; i++) {
                for (String key : List.of("a", "b", "c")) {
                    producer.send(fifoMessage(topic, key, key + ":" + i));
                }
            }
            waitFor(() -> got.values().stream().mapToInt(List::size).sum() >= 60, 60);
            for (String key : List.of("a", "b", "c")) {
                List<Integer> numbers = got.getOrDefault(key, List.of());
                for (int i = 0; i < 20; i++) {
                    check(numbers.size() > i && numbers.get(i) == i, key + ": " + numbers);
                }
            }
        }
    }

    private Message fifoMessage(String topic, String key, String body) {
        return provider.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8))
            .setMessageGroup(key).build();
    }

    private void priority(String topic, String group) throws Exception {
        try (SimpleConsumer consumer = simple(topic, group, FilterExpression.SUB_ALL); Producer producer = producer(topic)) {
            begin(consumer);
            for (int priority : new int[] {1, 0, 3, 2}) {
                producer.send(provider.newMessageBuilder().setTopic(topic).setPriority(priority)
                    .setBody(("p" + priority).getBytes(StandardCharsets.UTF_8)).build());
            }
            List<MessageView> views = receive(consumer, 4, 30);
            List<String> bodies = views.stream().map(Scenarios::text).collect(Collectors.toList());
            check(bodies.equals(List.of("p3", "p2", "p1", "p0")), "order " + bodies);
        }
    }

    private void sendLite(Producer producer, String topic, String lite, String body) throws Exception {
        producer.send(provider.newMessageBuilder().setTopic(topic).setLiteTopic(lite)
            .setBody(body.getBytes(StandardCharsets.UTF_8)).build());
    }

    private LitePushConsumer litePush(String topic, String group, Map<String, List<String>> got, Set<String> failing)
        throws Exception {
        return provider.newLitePushConsumerBuilder().setClientConfiguration(configuration).bindTopic(topic)
            .setConsumerGroup(group).setMessageListener(view -> {
                String body = text(view);
                got.computeIfAbsent(view.getLiteTopic().orElse(""), name -> Collections.synchronizedList(new ArrayList<>()))
                    .add(body);
                return failing.remove(body) ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build();
    }

    /** Each lite topic in its order; a failed message again before those that follow it. */
    private void lite(String topic, String group) throws Exception {
        Map<String, List<String>> got = new ConcurrentHashMap<>();
        Set<String> failing = ConcurrentHashMap.newKeySet();
        failing.add("a1");
        try (Producer producer = producer(topic); LitePushConsumer consumer = litePush(topic, group, got, failing)) {
            consumer.subscribeLite("a");
            consumer.subscribeLite("b");
            for (int i = 0; i < 4; i++) {
                sendLite(producer, topic, "a", "a" + i);
                sendLite(producer, topic, "b", "b" + i);
                sendLite(producer, topic, "unread", "u" + i);
            }
            waitFor(() -> got.getOrDefault("a", List.of()).size() >= 5 && got.getOrDefault("b", List.of()).size() >= 4, 60);
            check(got.get("a").equals(List.of("a0", "a1", "a1", "a2", "a3")), "order of a: " + got);
            check(got.get("b").equals(List.of("b0", "b1", "b2", "b3")), "order of b: " + got);
            check(!got.containsKey("unread"), "a lite topic that nobody subscribed: " + got);
            check(consumer.getLiteTopicSet().equals(Set.of("a", "b")), "set " + consumer.getLiteTopicSet());
            consumer.unsubscribeLite("b");
            consumer.subscribeLite("again", OffsetOption.MIN_OFFSET);
            sendLite(producer, topic, "again", "x");
            waitFor(() -> got.containsKey("again"), 30);
            check(got.containsKey("again"), "nothing of the new lite topic");
        }
    }

    /** Of two clients of an exclusive group the last subscriber has the lite topic, and the other one hears of it. */
    private void liteExclusive(String topic, String group) throws Exception {
        Map<String, List<String>> first = new ConcurrentHashMap<>();
        Map<String, List<String>> second = new ConcurrentHashMap<>();
        Set<String> none = ConcurrentHashMap.newKeySet();
        try (Producer producer = producer(topic); LitePushConsumer one = litePush(topic, group, first, none);
             LitePushConsumer other = litePush(topic, group, second, none)) {
            one.subscribeLite("a");
            sendLite(producer, topic, "a", "for one");
            waitFor(() -> first.containsKey("a"), 30);
            other.subscribeLite("a");
            waitFor(() -> !one.getLiteTopicSet().contains("a"), 30);
            sendLite(producer, topic, "a", "for the other");
            waitFor(() -> second.containsKey("a"), 30);
            check(!one.getLiteTopicSet().contains("a"), "the first client was not told");
            check(second.containsKey("a"), "nothing for the other");
            check(first.get("a").equals(List.of("for one")), "first " + first);
        }
    }

    private void delay(String topic, String group) throws Exception {
        try (SimpleConsumer consumer = simple(topic, group, FilterExpression.SUB_ALL); Producer producer = producer(topic)) {
            begin(consumer);
            long due = System.currentTimeMillis() + 3000;
            producer.send(provider.newMessageBuilder().setTopic(topic).setBody("d".getBytes()).setDeliveryTimestamp(due).build());
            List<MessageView> views = receive(consumer, 1, 30);
            check(views.size() == 1, views.size() + " messages");
            check(System.currentTimeMillis() >= due - 100, "delivered early");
            check(views.get(0).getDeliveryTimestamp().isPresent(), "no delivery time");
        }
    }

    private void recall(String topic, String group) throws Exception {
        try (SimpleConsumer consumer = simple(topic, group, FilterExpression.SUB_ALL); Producer producer = producer(topic)) {
            begin(consumer);
            long due = System.currentTimeMillis() + 8000;
            SendReceipt receipt = producer.send(
                provider.newMessageBuilder().setTopic(topic).setBody("d".getBytes()).setDeliveryTimestamp(due).build());
            producer.recallMessage(topic, receipt.getRecallHandle());
            check(receive(consumer, 1, 14).isEmpty(), "the message was delivered");
        }
    }

    private void transaction(String topic, String group) throws Exception {
        try (SimpleConsumer consumer = simple(topic, group, FilterExpression.SUB_ALL);
             Producer producer = provider.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic)
                 .setTransactionChecker(view -> TransactionResolution.ROLLBACK).build()) {
            begin(consumer);
            for (String outcome : List.of("commit", "rollback", "commit")) {
                Transaction transaction = producer.beginTransaction();
                producer.send(message(topic, outcome), transaction);
                if (outcome.equals("commit")) {
                    transaction.commit();
                } else {
                    transaction.rollback();
                }
            }
            List<MessageView> views = receive(consumer, 3, 12);
            check(views.size() == 2, views.size() + " messages");
            for (MessageView view : views) {
                check(text(view).equals("commit"), text(view));
            }
        }
    }

    private void orphan(String topic, String group) throws Exception {
        AtomicInteger asked = new AtomicInteger();
        try (SimpleConsumer consumer = simple(topic, group, FilterExpression.SUB_ALL);
             Producer producer = provider.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic)
                 .setTransactionChecker(view -> {
                     asked.incrementAndGet();
                     return TransactionResolution.COMMIT;
                 }).build()) {
            begin(consumer);
            producer.send(message(topic, "orphan"), producer.beginTransaction());
            List<MessageView> views = receive(consumer, 1, 60);
            check(views.size() == 1 && text(views.get(0)).equals("orphan"), views.size() + " messages");
            check(asked.get() > 0, "the checker was not asked");
        }
    }

    private void tagFilter(String topic, String group) throws Exception {
        FilterExpression filter = new FilterExpression("red||blue", FilterExpressionType.TAG);
        try (SimpleConsumer consumer = simple(topic, group, filter); Producer producer = producer(topic)) {
            begin(consumer);
            for (String tag : List.of("red", "green", "blue", "green", "red")) {
                producer.send(provider.newMessageBuilder().setTopic(topic).setTag(tag).setBody(tag.getBytes()).build());
            }
            List<MessageView> views = receive(consumer, 4, 12);
            check(views.size() == 3, views.size() + " messages");
            for (MessageView view : views) {
                check(!text(view).equals("green"), text(view));
                check(view.getTag().orElse("").equals(text(view)), "tag " + view.getTag());
            }
        }
    }

    private void sqlFilter(String topic, String group) throws Exception {
        FilterExpression filter = new FilterExpression("price > 10 AND region IN ('eu')", FilterExpressionType.SQL92);
        try (SimpleConsumer consumer = simple(topic, group, filter); Producer producer = producer(topic)) {
            begin(consumer);
            for (int price : new int[] {5, 15, 25}) {
                for (String region : List.of("eu", "us")) {
                    producer.send(provider.newMessageBuilder().setTopic(topic).addProperty("price", "" + price)
                        .addProperty("region", region).setBody((region + price).getBytes()).build());
                }
            }
            List<MessageView> views = receive(consumer, 3, 12);
            check(views.size() == 2, views.size() + " messages");
        }
    }

    private void changeInvisible(String topic, String group) throws Exception {
        try (SimpleConsumer consumer = simple(topic, group, FilterExpression.SUB_ALL); Producer producer = producer(topic)) {
            begin(consumer);
            producer.send(message(topic, "again"));
            List<MessageView> first = new ArrayList<>();
            for (int i = 0; i < 10 && first.isEmpty(); i++) {
                first.addAll(consumer.receive(16, Duration.ofSeconds(30)));
            }
            check(first.size() == 1, first.size() + " messages");
            consumer.changeInvisibleDuration(first.get(0), Duration.ofSeconds(10));
            long changed = System.currentTimeMillis();
            List<MessageView> second = receive(consumer, 1, 40);
            check(second.size() == 1, second.size() + " messages again");
            check(second.get(0).getDeliveryAttempt() == 2, "attempt " + second.get(0).getDeliveryAttempt());
            check(System.currentTimeMillis() - changed > 8000, "redelivered early");
        }
    }

    private void deadLetter(String topic, String group) throws Exception {
        AtomicInteger count = new AtomicInteger();
        Set<String> warm = ConcurrentHashMap.newKeySet();
        AtomicInteger attempt = new AtomicInteger();
        try (Producer producer = producer(topic);
             PushConsumer consumer = push(topic, group, view -> {
                 if (text(view).startsWith("warm")) {
                     warm.add("warm");
                     return ConsumeResult.SUCCESS;
                 }
                 attempt.set(view.getDeliveryAttempt());
                 count.incrementAndGet();
                 return ConsumeResult.FAILURE;
             })) {
            warm(producer, topic, warm);
            producer.send(message(topic, "bad"));
            waitFor(() -> count.get() >= 2, 60);
            Thread.sleep(15_000);
            check(count.get() == 2, count.get() + " deliveries");
            check(attempt.get() == 2, "attempt " + attempt.get());
        }
    }

    private void wrongType(String topic, String group) throws Exception {
        try (Producer producer = producer(topic)) {
            try {
                producer.send(fifoMessage(topic, "g", "x"));
                check(false, "a FIFO message was taken by a topic for normal messages");
            } catch (Exception refused) {
                check(true, "");
            }
        }
    }

    /** A message is worked on for longer than its invisible time, and is delivered once. */
    private void renewal(String topic, String group) throws Exception {
        AtomicInteger count = new AtomicInteger();
        Set<String> warm = ConcurrentHashMap.newKeySet();
        try (Producer producer = producer(topic);
             PushConsumer consumer = push(topic, group, view -> {
                 if (text(view).startsWith("warm")) {
                     warm.add("warm");
                     return ConsumeResult.SUCCESS;
                 }
                 count.incrementAndGet();
                 try {
                     Thread.sleep(12_000);
                 } catch (InterruptedException stopped) {
                     Thread.currentThread().interrupt();
                 }
                 return ConsumeResult.SUCCESS;
             })) {
            warm(producer, topic, warm);
            producer.send(message(topic, "long"));
            waitFor(() -> count.get() >= 1, 30);
            Thread.sleep(25_000);
            check(count.get() == 1, count.get() + " deliveries");
        }
    }
}
