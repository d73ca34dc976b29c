package compat.storm;

import compat.storm.Receivers.Receiver;
import compat.storm.Senders.Sender;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/**
 * Many kinds of traffic at once, while somebody else stops brokers: `Storm <name servers> <run> <period ms> <kind>...`.
 * On standard input it is told what to do: `send`, `join` (a second consumer each), `leave` (the first of each),
 * `stop` (sending), `exit`. Its journal goes to standard output. Topics are there before it starts.
 */
public final class Storm {
    private final Map<String, Traffic> traffic = new TreeMap<>();
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final Journal journal = new Journal(System.out);
    private final long periodMillis;
    private volatile boolean isSending = true;

    private Storm(String nameServers, String run, long periodMillis, List<String> kinds) {
        this.periodMillis = periodMillis;
        for (String kind : kinds) {
            traffic.put(kind, new Traffic(new Setting(nameServers, run, kind, journal), sender(kind), receiver(kind)));
        }
    }

    public static void main(String[] args) throws Exception {
        Storm storm = new Storm(args[0], args[1], Long.parseLong(args[2]), Arrays.asList(args).subList(3, args.length));
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        storm.atOnce("ready", each -> each.begin());
        for (String order = orders.readLine(); order != null && !order.equals("exit"); order = orders.readLine()) {
            storm.obey(order);
        }
        Runtime.getRuntime().halt(0);
    }

    private void obey(String order) throws Exception {
        switch (order) {
            case "start": atOnce("started", each -> each.start("first")); break;
            case "send": traffic.values().forEach(each -> threads.submit(() -> sendOn(each))); break;
            case "join": atOnce("joined", each -> each.start("second")); break;
            case "leave": atOnce("left", each -> each.end("first")); break;
            case "stop": isSending = false; journal.phase("stopped"); break;
            default: throw new IllegalArgumentException(order);
        }
    }

    @FunctionalInterface
    private interface Step {
        void on(Traffic traffic) throws Exception;
    }

    /** Every kind takes the step; what fails is written down for its kind, and the others go on. */
    private void atOnce(String phase, Step step) throws Exception {
        List<Future<?>> steps = new ArrayList<>();
        for (Traffic each : traffic.values()) {
            steps.add(threads.submit(() -> {
                try {
                    step.on(each);
                } catch (Exception failure) {
                    journal.trouble(each.setting.kind, failure);
                }
            }));
        }
        for (Future<?> each : steps) {
            each.get();
        }
        journal.phase(phase);
    }

    private void sendOn(Traffic each) {
        try {
            for (int number = 0; isSending; number++) {
                each.sender.send(each.producer, each.setting, number);
                Thread.sleep(periodMillis);
            }
        } catch (Exception failure) {
            journal.trouble(each.setting.kind, failure);
        }
    }

    private static final class Traffic {
        final Setting setting;
        final Sender sender;
        final Receiver receiver;
        final Map<String, AutoCloseable> consumers = new TreeMap<>();
        DefaultMQProducer producer;

        Traffic(Setting setting, Sender sender, Receiver receiver) {
            this.setting = setting;
            this.sender = sender;
            this.receiver = receiver;
        }

        void begin() throws Exception {
            producer = setting.started(setting.kind.equals("transaction") ? Senders.transactional(setting)
                : new DefaultMQProducer(setting.group + "-producer"));
        }

        void start(String consumer) throws Exception {
            consumers.put(consumer, receiver.start(setting, consumer));
        }

        void end(String consumer) throws Exception {
            consumers.remove(consumer).close();
        }
    }

    private static Sender sender(String kind) {
        switch (kind) {
            case "async": return Senders::async;
            case "oneway": return Senders::oneway;
            case "orderly": return Senders.sharded();
            case "delay-level": return Senders::delayLevel;
            case "delay-time": return Senders::delayTime;
            case "transaction": return Senders::transaction;
            case "batch": return Senders::batch;
            case "request-reply": return Senders::request;
            case "tag-filter": return Senders::tagged;
            case "sql-filter": return Senders::withProperty;
            default: return Senders::sync;
        }
    }

    private static Receiver receiver(String kind) {
        switch (kind) {
            case "orderly": return Receivers::orderly;
            case "batch": return Receivers::batches;
            case "request-reply": return Receivers::replying;
            case "lite-pull": return Receivers::litePull;
            case "pull": return Receivers::pull;
            case "broadcasting": return Receivers::broadcast;
            case "tag-filter": return Receivers.push("A || C");
            case "sql-filter": return Receivers.sql("a BETWEEN 2 AND 5 OR a = 9");
            case "retry": return Receivers::failing;
            case "pop": return Receivers::pop;
            default: return Receivers.push("*");
        }
    }
}
