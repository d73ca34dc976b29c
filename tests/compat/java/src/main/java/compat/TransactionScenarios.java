package compat;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages that become visible when, and only when, their producer's own transaction succeeds. */
final class TransactionScenarios {
    private static final int EACH = 5;
    private static final long SILENCE_MILLIS = 1_500;

    private TransactionScenarios() {
    }

    static Map<String, Scenario> all() {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        scenarios.put("transactions", TransactionScenarios::transactions);
        return scenarios;
    }

    /** Knows how each transaction went: at once for `commit` and `rollback`, when asked for `later` and `never`. */
    private static final class Outcomes implements TransactionListener {
        final Set<String> executed = ConcurrentHashMap.newKeySet();
        final Map<String, MessageExt> asked = new ConcurrentHashMap<>();

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            String body = new String(message.getBody());
            executed.add(message.getTransactionId());
            return body.startsWith("commit") ? LocalTransactionState.COMMIT_MESSAGE
                : body.startsWith("rollback") ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.UNKNOW;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String body = Inbox.text(message);
            asked.put(body, message);
            return body.startsWith("later") ? LocalTransactionState.COMMIT_MESSAGE
                : LocalTransactionState.ROLLBACK_MESSAGE;
        }
    }

    private static void transactions(Context context) throws Exception {
        context.createTopic(2);
        Inbox inbox = new Inbox();
        context.startPush("TagX", inbox);
        Outcomes outcomes = new Outcomes();
        TransactionMQProducer producer = context.transactionProducer(outcomes);
        Set<String> wanted = new TreeSet<>();
        Map<String, String> ids = new ConcurrentHashMap<>();
        for (int i = 0; i < EACH; i++) {
            for (String kind : List.of("commit", "rollback", "later", "never")) {
                String body = kind + "-" + i;
                TransactionSendResult sent = producer.sendMessageInTransaction(context.message("TagX", body), null);
                Expect.equal(SendStatus.SEND_OK, sent.getSendStatus(), "send status of " + body);
                Expect.that(outcomes.executed.contains(sent.getTransactionId()), "transaction id of " + body);
                ids.put(body, sent.getTransactionId());
                if (kind.equals("commit") || kind.equals("later")) {
                    wanted.add(body);
                }
            }
        }
        inbox.await(box -> box.bodies().size() >= EACH, 5_000, "those that were committed at once");
        inbox.await(box -> box.bodies().containsAll(wanted), Context.PATIENCE_MILLIS, "those that were committed when asked");
        for (long until = System.currentTimeMillis() + Context.PATIENCE_MILLIS;
            outcomes.asked.size() < 2 * EACH && System.currentTimeMillis() < until; ) {
            Thread.sleep(50);
        }
        Thread.sleep(SILENCE_MILLIS);
        Expect.equal(wanted, inbox.bodies(), "what was delivered");
        Expect.equal(wanted.size(), inbox.size(), "deliveries");
        for (MessageExt message : inbox.all()) {
            String body = Inbox.text(message);
            Expect.equal(context.topic, message.getTopic(), "topic of " + body);
            Expect.equal(ids.get(body), message.getTransactionId() == null ? message.getMsgId()
                : message.getTransactionId(), "transaction id of the delivered " + body);
            Expect.equal("key-" + body, message.getKeys(), "keys of " + body);
        }
        for (int i = 0; i < EACH; i++) {
            for (String kind : List.of("later", "never")) {
                MessageExt asked = outcomes.asked.get(kind + "-" + i);
                Expect.that(asked != null, "nobody asked about " + kind + "-" + i);
                Expect.equal(context.topic, asked.getTopic(), "topic of the question about " + kind + "-" + i);
                Expect.equal("TagX", asked.getTags(), "tag of the question about " + kind + "-" + i);
            }
            Expect.that(!outcomes.asked.containsKey("commit-" + i), "was asked about commit-" + i);
            Expect.that(!outcomes.asked.containsKey("rollback-" + i), "was asked about rollback-" + i);
        }
    }
}
