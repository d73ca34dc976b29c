package compat;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.exception.RequestTimeoutException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Requests that wait for the reply of their consumer. */
final class ReplyScenarios {
    private static final int REQUESTS = 20;
    private static final long WAIT_MILLIS = 20_000;

    private ReplyScenarios() {
    }

    static Map<String, Scenario> all() {
        Map<String, Scenario> scenarios = new LinkedHashMap<>();
        scenarios.put("request-reply", ReplyScenarios::requestReply);
        return scenarios;
    }

    private static void requestReply(Context context) throws Exception {
        context.createTopic(2);
        Inbox unanswered = new Inbox();
        ConcurrentLinkedQueue<Throwable> failures = new ConcurrentLinkedQueue<>();
        DefaultMQProducer replier = context.producer();
        Inbox ready = new Inbox();
        context.startPush("*", (messages, state) -> {
            for (MessageExt message : messages) {
                String body = Inbox.text(message);
                try {
                    if (body.startsWith("silent")) {
                        unanswered.add(List.of(message));
                    } else if (body.startsWith("warm")) {
                        ready.add(List.of(message));
                    } else {
                        replier.send(reply(message, "re: " + body));
                    }
                } catch (Exception failure) {
                    failures.add(failure);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        context.sendNumbered("warm", "TagR", 2);
        ready.await(box -> box.size() == 2, Context.PATIENCE_MILLIS, "the responder consumes both queues");

        DefaultMQProducer requester = requester(context, "stays");
        try {
            for (int i = 0; i < REQUESTS; i++) {
                Message answer = ask(requester, context.message("TagR", "one-" + i)).get(WAIT_MILLIS, TimeUnit.MILLISECONDS);
                Expect.equal("re: one-" + i, text(answer), "reply");
                Expect.equal("reply", answer.getProperty("MSG_TYPE"), "message type");
                Expect.that(answer.getProperty("ARRIVE_TIME") != null, "arrive time is set");
                Expect.that(answer.getProperty("PUSH_REPLY_TIME") != null, "push time is set");
            }
            String large = "x".repeat(20_000);
            Message answer = ask(requester, context.message("TagR", large)).get(WAIT_MILLIS, TimeUnit.MILLISECONDS);
            Expect.equal("re: " + large, text(answer), "large reply");
            atOnce(context, requester);
            try {
                requester.request(context.message("TagR", "silent-here"), 2_000);
                throw new AssertionError("a request that nobody answers must time out");
            } catch (RequestTimeoutException expected) {
                Expect.that(expected.getErrorMessage().contains("OK, but wait reply message timeout"), "says that "
                    + "the request was sent: " + expected.getErrorMessage());
            }
        } finally {
            requester.shutdown();
        }
        Expect.that(failures.isEmpty(), failures.size() + " failed, first " + failures.peek());
        requesterLeaves(context, replier, unanswered);
    }

    /**
     * The form with a callback: the other one of 5.3.3 gives up as soon as the request is sent. Here that is reported
     * as a success without a message, and the reply as another one.
     */
    private static CompletableFuture<Message> ask(DefaultMQProducer requester, Message request) throws Exception {
        CompletableFuture<Message> answer = new CompletableFuture<>();
        requester.request(request, new RequestCallback() {
            @Override
            public void onSuccess(Message reply) {
                if (reply != null) {
                    answer.complete(reply);
                }
            }

            @Override
            public void onException(Throwable failure) {
                answer.completeExceptionally(failure);
            }
        }, WAIT_MILLIS);
        return answer;
    }

    private static void atOnce(Context context, DefaultMQProducer requester) throws Exception {
        List<CompletableFuture<Message>> answers = new ArrayList<>();
        for (int i = 0; i < REQUESTS; i++) {
            answers.add(ask(requester, context.message("TagR", "many-" + i)));
        }
        for (int i = 0; i < REQUESTS; i++) {
            Expect.equal("re: many-" + i, text(answers.get(i).get(WAIT_MILLIS, TimeUnit.MILLISECONDS)), "its own reply");
        }
    }

    private static void requesterLeaves(Context context, DefaultMQProducer replier, Inbox unanswered) throws Exception {
        DefaultMQProducer requester = requester(context, "leaves");
        try {
            ask(requester, context.message("TagR", "silent-gone"));
            unanswered.await(box -> box.bodies().contains("silent-gone"), Context.PATIENCE_MILLIS, "the request");
        } finally {
            requester.shutdown();
        }
        MessageExt request = unanswered.all().stream().filter(m -> Inbox.text(m).equals("silent-gone")).findFirst().get();
        long deadline = System.currentTimeMillis() + Context.PATIENCE_MILLIS;
        while (true) {
            try {
                replier.send(reply(request, "too late"));
            } catch (Exception refused) {
                String remark = "push reply message fail, channel of <" + MessageUtil.getReplyToClient(request) + "> not found.";
                if (refused.toString().contains(remark)
                    || refused.getCause() != null && refused.getCause().toString().contains(remark)) {
                    return;
                }
                // A broker that has not seen the connection end yet says that the push failed.
            }
            Expect.that(System.currentTimeMillis() < deadline, "a reply to a requester that is gone is still taken");
            Thread.sleep(100);
        }
    }

    private static Message reply(MessageExt request, String body) throws Exception {
        return MessageUtil.createReplyMessage(request, body.getBytes(StandardCharsets.UTF_8));
    }

    private static DefaultMQProducer requester(Context context, String name) throws Exception {
        DefaultMQProducer requester = new DefaultMQProducer(context.group + "-" + name, Context.signing());
        requester.setNamesrvAddr(context.nameServers);
        requester.setInstanceName("compat-" + context.group + "-" + name);
        requester.setSendMsgTimeout(10_000);
        requester.start();
        return requester;
    }

    private static String text(Message message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }
}
