package compat;

import java.lang.reflect.Method;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages for a time of their own, and taking them back; clients since 5.0, reached by reflection. */
final class TimerScenarios {
    /** The width of a slot, and what a busy machine may add. */
    private static final long LATE_MILLIS = 6_000;
    private static final int MESSAGE_ILLEGAL = 13;

    private TimerScenarios() {
    }

    static Map<String, Scenario> all() {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        if (setter("setDelayTimeMs") != null) {
            scenarios.put("timer-delay", TimerScenarios::delay);
            scenarios.put("timer-refused", TimerScenarios::refused);
        }
        if (recall() != null) {
            scenarios.put("timer-recall", TimerScenarios::recalled);
        }
        return scenarios;
    }

    private static Method setter(String name) {
        try {
            return Message.class.getMethod(name, long.class);
        } catch (NoSuchMethodException old) {
            return null;
        }
    }

    private static Method recall() {
        try {
            return DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class);
        } catch (NoSuchMethodException old) {
            return null;
        }
    }

    private static Message timed(Context context, String body, String setter, long value) throws Exception {
        Message message = context.message("TagW", body);
        setter(setter).invoke(message, value);
        return message;
    }

    /** Each comes at its time, not before, and once; with all that it was sent with. */
    private static void delay(Context context) throws Exception {
        context.createTopic(2);
        Inbox inbox = new Inbox();
        context.startPush("TagW", inbox);
        Map<String, Long> due = new TreeMap<>();
        for (int i = 0; i < 10; i++) {
            long now = System.currentTimeMillis();
            due.put("ms-" + i, now + 2_300);
            context.send(timed(context, "ms-" + i, "setDelayTimeMs", 2_300));
            due.put("sec-" + i, now + 4_000);
            context.send(timed(context, "sec-" + i, "setDelayTimeSec", 4));
            due.put("at-" + i, now + 5_500);
            context.send(timed(context, "at-" + i, "setDeliverTimeMs", now + 5_500));
            due.put("past-" + i, now);
            context.send(timed(context, "past-" + i, "setDeliverTimeMs", now - 1_000));
        }
        inbox.await(box -> box.bodies().equals(due.keySet()), Context.PATIENCE_MILLIS, "all messages");
        Thread.sleep(2_000);
        Expect.equal(due.size(), inbox.size(), "deliveries");
        for (int index = 0; index < inbox.size(); index++) {
            MessageExt message = inbox.all().get(index);
            String body = Inbox.text(message);
            long late = inbox.arrivalMillis(index) - due.get(body);
            Expect.between(0, LATE_MILLIS, late, "ms after its time of " + body);
            Expect.equal(context.topic, message.getTopic(), "topic of " + body);
            Expect.equal("key-" + body, message.getKeys(), "keys of " + body);
        }
    }

    private static void refused(Context context) throws Exception {
        context.createTopic(1);
        for (long seconds : new long[] {3 * 24 * 3600 + 60, 365 * 24 * 3600}) {
            try {
                context.producer().send(timed(context, "far", "setDelayTimeSec", seconds));
            } catch (org.apache.rocketmq.client.exception.MQBrokerException refusal) {
                Expect.equal(MESSAGE_ILLEGAL, refusal.getResponseCode(), "code of the refusal");
                Expect.that(refusal.getErrorMessage().contains("the delay time should not be bigger than the max delay"),
                    "remark of the refusal: " + refusal.getErrorMessage());
                continue;
            }
            throw new AssertionError(seconds + " seconds were taken");
        }
    }

    /** Of twenty messages every second is taken back; those do not come, the others do. */
    private static void recalled(Context context) throws Exception {
        context.createTopic(2);
        Inbox inbox = new Inbox();
        context.startPush("*", inbox);
        Set<String> wanted = new TreeSet<>();
        Method handleOf = SendResult.class.getMethod("getRecallHandle");
        for (int i = 0; i < 20; i++) {
            SendResult sent = context.producer().send(timed(context, "m-" + i, "setDelayTimeMs", 5_000));
            Expect.equal(SendStatus.SEND_OK, sent.getSendStatus(), "send status");
            String handle = (String) handleOf.invoke(sent);
            Expect.that(handle != null && !handle.isEmpty(), "recall handle of m-" + i);
            if (i % 2 == 0) {
                Object id = recall().invoke(context.producer(), context.topic, handle);
                Expect.equal(sent.getMsgId(), id, "id of the message that was taken back");
            } else {
                wanted.add("m-" + i);
            }
        }
        SendResult plain = context.send(context.message("TagW", "plain"));
        Expect.that(handleOf.invoke(plain) == null, "a plain message has a recall handle");
        wanted.add("plain");
        inbox.await(box -> box.bodies().size() >= wanted.size(), Context.PATIENCE_MILLIS, "what was not taken back");
        Thread.sleep(3_000);
        Expect.equal(wanted, inbox.bodies(), "what came");
    }
}
