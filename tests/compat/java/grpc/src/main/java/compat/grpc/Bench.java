package compat.grpc;

import java.time.Duration;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;

/** Rates of one client: sends with 64 outstanding, then receives and acknowledgements. */
public final class Bench {
    public static void main(String[] arguments) throws Exception {
        var provider = ClientServiceProvider.loadService();
        var configuration = ClientConfiguration.newBuilder().setEndpoints(arguments[0])
            .enableSsl(false).setRequestTimeout(Duration.ofSeconds(10)).build();
        String topic = arguments[1];
        int seconds = Integer.parseInt(arguments[2]);
        SimpleConsumer consumer = provider.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(topic + "-group").setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL)).build();
        consumer.receive(1, Duration.ofSeconds(20));
        var producer = provider.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic).build();
        byte[] body = new byte[1024];
        send(provider, producer, topic, body, 5);
        System.out.println("WARM");
        System.in.read();
        long begin = System.nanoTime();
        long sent = send(provider, producer, topic, body, seconds);
        System.out.printf("SEND %.0f%n", sent / ((System.nanoTime() - begin) / 1e9));
        System.in.read();
        AtomicLong received = new AtomicLong();
        begin = System.nanoTime();
        long end = begin + seconds * 1_000_000_000L;
        Thread[] threads = new Thread[8];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread(() -> {
                while (System.nanoTime() < end) {
                    try {
                        for (MessageView view : consumer.receive(32, Duration.ofSeconds(60))) {
                            consumer.ack(view);
                            received.incrementAndGet();
                        }
                    } catch (Exception failed) {
                        System.out.println("FAILED " + failed);
                    }
                }
            });
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.printf("RECEIVE %.0f%n", received.get() / ((System.nanoTime() - begin) / 1e9));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static long send(ClientServiceProvider provider, org.apache.rocketmq.client.apis.producer.Producer producer,
        String topic, byte[] body, int seconds) throws InterruptedException {
        Semaphore slots = new Semaphore(64);
        AtomicLong done = new AtomicLong();
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        while (System.nanoTime() < end) {
            slots.acquire();
            producer.sendAsync(provider.newMessageBuilder().setTopic(topic).setBody(body).build())
                .whenComplete((receipt, error) -> {
                    if (error == null) {
                        done.incrementAndGet();
                    }
                    slots.release();
                });
        }
        slots.acquire(64);
        return done.get();
    }
}
