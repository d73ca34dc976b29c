package compat;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Single messages, looked up by key, unique key and offset message id. */
@SuppressWarnings("deprecation")
final class QueryScenarios {
    private static final int MESSAGES = 30;

    private QueryScenarios() {
    }

    static Map<String, Scenario> all() {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        scenarios.put("query-by-key", QueryScenarios::byKey);
        scenarios.put("view-message", QueryScenarios::view);
        return scenarios;
    }

    private static List<SendResult> send(Context context) throws Exception {
        context.createTopic(2);
        List<SendResult> results = new ArrayList<>();
        for (int i = 0; i < MESSAGES; i++) {
            Message message = context.message("TagQ", "query-" + i);
            message.setKeys(List.of("order-" + i, "customer-" + i % 3, "schl\u00fcssel-" + i));
            results.add(context.send(message));
        }
        return results;
    }

    private static void byKey(Context context) throws Exception {
        long begin = System.currentTimeMillis() - 1000;
        List<SendResult> results = send(context);
        long end = System.currentTimeMillis() + 60_000;
        DefaultMQProducer producer = context.producer();
        for (int i = 0; i < MESSAGES; i++) {
            for (String key : new String[] {"order-" + i, "schl\u00fcssel-" + i}) {
                List<MessageExt> found = producer.queryMessage(context.topic, key, 32, begin, end).getMessageList();
                Expect.equal(1, found.size(), "messages with key " + key);
                Expect.equal("query-" + i, new String(found.get(0).getBody()), "body of " + key);
                Expect.equal(results.get(i).getMsgId(), found.get(0).getMsgId(), "id of " + key);
            }
        }
        QueryResult shared = producer.queryMessage(context.topic, "customer-1", 32, begin, end);
        Expect.equal(MESSAGES / 3, shared.getMessageList().size(), "messages of a customer");
        Expect.that(shared.getIndexLastUpdateTimestamp() >= begin, "time that the index reaches");
        List<MessageExt> few = producer.queryMessage(context.topic, "customer-1", 4, begin, end).getMessageList();
        Expect.equal(List.of("query-19", "query-22", "query-25", "query-28"),
            few.stream().map(message -> new String(message.getBody())).collect(Collectors.toList()), "the newest four");
        expectNothing(() -> producer.queryMessage(context.topic, "nobody", 32, begin, end));
        expectNothing(() -> producer.queryMessage(context.topic, "order-1", 32, 1000, 2000));
    }

    private static void view(Context context) throws Exception {
        List<SendResult> results = send(context);
        for (int i = 0; i < MESSAGES; i += 7) {
            SendResult result = results.get(i);
            for (String id : new String[] {result.getOffsetMsgId(), result.getMsgId()}) {
                MessageExt message = context.producer().viewMessage(context.topic, id);
                Expect.equal("query-" + i, new String(message.getBody()), "body of " + id);
                Expect.equal(result.getQueueOffset(), message.getQueueOffset(), "queue offset of " + id);
                Expect.equal(result.getMsgId(), message.getMsgId(), "unique id of " + id);
            }
        }
    }

    private interface Query {
        QueryResult run() throws Exception;
    }

    private static void expectNothing(Query query) throws Exception {
        try {
            query.run();
        } catch (MQClientException expected) {
            return;
        }
        throw new AssertionError("a query found what is not there");
    }
}
