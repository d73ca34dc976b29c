package compat.grpc;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

/**
 * Counts sends and receives of one process at several proxies.  Arguments: number of clients, each with a connection of
 * its own; then ENDPOINT TOPIC of each proxy.  Commands on stdin: {@code send PROXY OUTSTANDING CLIENTS SECONDS},
 * {@code receive PROXY THREADS CLIENTS SECONDS}; each is answered with {@code MESSAGES SECONDS FAILED P50_US P99_US}, the
 * last two of the times of sends, and 0 for receives.
 */
public final class Bench {
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
    private static final byte[] BODY = new byte[1024];

    private static final class Proxy {
        final String topic;
        final ClientConfiguration configuration;
        final List<Producer> producers = new ArrayList<>();
        final List<SimpleConsumer> consumers = new ArrayList<>();

        Proxy(String topic, ClientConfiguration configuration) {
            this.topic = topic;
            this.configuration = configuration;
        }

        SimpleConsumer newConsumer() throws Exception {
            return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
                .setConsumerGroup(topic + "-group").setAwaitDuration(Duration.ofSeconds(5))
                .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL)).build();
        }
    }

    public static void main(String[] arguments) throws Exception {
        int clients = Integer.parseInt(arguments[0]);
        List<Proxy> proxies = new ArrayList<>();
        for (int i = 1; i < arguments.length; i += 2) {
            var configuration = ClientConfiguration.newBuilder().setEndpoints(arguments[i])
                .enableSsl(false).setRequestTimeout(Duration.ofSeconds(10)).build();
            var proxy = new Proxy(arguments[i + 1], configuration);
            for (int client = 0; client < clients; client++) {
                proxy.producers.add(PROVIDER.newProducerBuilder().setClientConfiguration(configuration)
                    .setTopics(proxy.topic).build());
            }
            proxies.add(proxy);
        }
        System.out.println("READY");
        var commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split(" ");
            Proxy proxy = proxies.get(Integer.parseInt(words[1]));
            int parallel = Integer.parseInt(words[2]);
            int used = Integer.parseInt(words[3]);
            double seconds = Double.parseDouble(words[4]);
            long begin = System.nanoTime();
            long end = begin + (long) (seconds * 1e9);
            var failed = new AtomicLong();
            var took = new ConcurrentLinkedQueue<Long>();
            long done = words[0].equals("send") ? send(proxy, parallel, used, end, failed, took)
                : receive(proxy, parallel, used, end, failed);
            double secondsTaken = (System.nanoTime() - begin) / 1e9;
            long[] sorted = took.stream().mapToLong(Long::longValue).sorted().toArray();
            System.out.printf("%d %.6f %d %d %d%n", done, secondsTaken, failed.get(), part(sorted, 50), part(sorted, 99));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /** The value below which {@code percent} of {@code sorted} lie, from ns to us; 0 if there is none. */
    private static long part(long[] sorted, int percent) {
        return sorted.length == 0 ? 0 : sorted[(sorted.length - 1) * percent / 100] / 1000;
    }

    private static long send(Proxy proxy, int outstanding, int clients, long end, AtomicLong failed, Queue<Long> took)
        throws Exception {
        var slots = new Semaphore(outstanding);
        var done = new AtomicLong();
        for (int next = 0; System.nanoTime() < end; next = (next + 1) % clients) {
            slots.acquire();
            var message = PROVIDER.newMessageBuilder().setTopic(proxy.topic).setBody(BODY).build();
            long begin = System.nanoTime();
            proxy.producers.get(next).sendAsync(message).whenComplete((receipt, error) -> {
                took.add(System.nanoTime() - begin);
                (error == null ? done : failed).incrementAndGet();
                slots.release();
            });
        }
        slots.acquire(outstanding);
        return done.get();
    }

    private static long receive(Proxy proxy, int threads, int clients, long end, AtomicLong failed) throws Exception {
        while (proxy.consumers.size() < clients) {
            proxy.consumers.add(proxy.newConsumer());
        }
        var received = new AtomicLong();
        List<Thread> running = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            SimpleConsumer consumer = proxy.consumers.get(i % clients);
            Thread thread = new Thread(() -> {
                while (System.nanoTime() < end) {
                    try {
                        for (MessageView view : consumer.receive(32, Duration.ofSeconds(60))) {
                            consumer.ack(view);
                            received.incrementAndGet();
                        }
                    } catch (Exception error) {
                        failed.incrementAndGet();
                    }
                }
            });
            thread.start();
            running.add(thread);
        }
        for (Thread thread : running) {
            thread.join();
        }
        return received.get();
    }
}
