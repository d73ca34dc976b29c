import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Sends the requests of rocketmq-exporter or rocketmq-dashboard and prints what these programs read from the answers: name, tab, value. Types that moved between RocketMQ 4.9 and 5 are not named.
 */
public class MonitorRequests {
    private static final long MASTER = 0;
    private static final String[] WHOLE = (
        "msgPutTotalTodayNow msgGetTotalTodayNow msgPutTotalTodayMorning msgGetTotalTodayMorning "
        + "msgPutTotalYesterdayMorning msgGetTotalYesterdayMorning sendThreadPoolQueueHeadWaitTimeMills "
        + "queryThreadPoolQueueHeadWaitTimeMills pullThreadPoolQueueHeadWaitTimeMills sendThreadPoolQueueSize "
        + "queryThreadPoolQueueSize pullThreadPoolQueueSize sendThreadPoolQueueCapacity queryThreadPoolQueueCapacity "
        + "pullThreadPoolQueueCapacity bootTimestamp commitLogMinOffset commitLogMaxOffset dispatchMaxBuffer "
        + "dispatchBehindBytes brokerVersion pageCacheLockTimeMills getMessageEntireTimeMax putMessageEntireTimeMax "
        + "putMessageTimesTotal putMessageSizeTotal startAcceptSendRequestTimeStamp earliestMessageTimeStamp "
        + "remainTransientStoreBufferNumbs").split(" ");
    private static final String[] DECIMAL =
        "consumeQueueDiskRatio commitLogDiskRatio putMessageAverageSize putLatency99 putLatency999".split(" ");
    private static final String[] RATES = "putTps getMissTps getTransferredTps getTotalTps getFoundTps".split(" ");

    private static DefaultMQAdminExt admin;
    private static DefaultMQPullConsumer puller;
    private static String namesrv;

    public static void main(String[] arguments) throws Exception {
        namesrv = arguments[1];
        admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(namesrv);
        admin.setInstanceName("admin");
        admin.start();
        puller = new DefaultMQPullConsumer("TOOLS_CONSUMER");
        puller.setNamesrvAddr(namesrv);
        puller.setInstanceName("puller");
        puller.start();
        try {
            if (arguments[0].equals("exporter")) {
                exporter(arguments[2]);
            } else {
                dashboard(arguments[2], arguments[3], arguments[4], arguments[5], arguments[6], arguments[7]);
            }
        } catch (Throwable error) {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void show(String name, Object value) {
        System.out.println(name + "\t" + value);
    }

    /** Shows a value, or the code of the refusal. */
    private static void show(String name, Callable<Object> value) throws Exception {
        try {
            show(name, value.call());
        } catch (MQClientException error) {
            show(name, "code " + error.getResponseCode());
        } catch (MQBrokerException error) {
            show(name, "code " + error.getResponseCode());
        }
    }

    // rocketmq-exporter: MetricsCollectTask, ClientMetricTaskRunnable, BrokerRuntimeStats

    private static void exporter(String wanted) throws Exception {
        var cluster = admin.examineBrokerClusterInfo();
        show("clusters", new TreeMap<>(cluster.getClusterAddrTable()));
        var topics = admin.fetchAllTopicList().getTopicList();
        show("topics contain", topics.contains(wanted));
        topicOffsets(wanted);
        for (var broker : cluster.getBrokerAddrTable().values()) {
            String master = broker.getBrokerAddrs().get(MASTER);
            show("cluster of " + broker.getBrokerName(), broker.getCluster());
            for (var group : admin.getAllProducerInfo(master).getData().entrySet()) {
                show("producers " + group.getKey(), group.getValue().size());
            }
            for (String name : new String[] {"BROKER_PUT_NUMS", "BROKER_GET_NUMS"}) {
                show(name, () -> admin.viewBrokerStatsData(master, name, broker.getCluster()).getStatsMinute().getTps());
            }
            runtime(admin.fetchBrokerRuntimeStats(master).getTable());
            for (var each : broker.getBrokerAddrs().entrySet()) {
                if (each.getKey() != MASTER) {
                    long behind = offset(master) - offset(each.getValue());
                    show("commit log diff " + each.getKey(), behind);
                }
            }
        }
        for (String group : new TreeSet<>(admin.queryTopicConsumeByWho(wanted).getGroupList())) {
            groupOffsets(wanted, group);
        }
        for (var broker : admin.examineTopicRouteInfo(wanted).getBrokerDatas()) {
            String master = broker.getBrokerAddrs().get(MASTER);
            for (String name : new String[] {"TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"}) {
                show(name, () -> admin.viewBrokerStatsData(master, name, wanted).getStatsMinute().getTps());
            }
            for (String group : new TreeSet<>(admin.queryTopicConsumeByWho(wanted).getGroupList())) {
                String key = wanted + "@" + group;
                for (String name : new String[] {"GROUP_GET_NUMS", "GROUP_GET_SIZE"}) {
                    show(name + " " + group, () -> admin.viewBrokerStatsData(master, name, key).getStatsMinute().getTps());
                }
                String back = "SNDBCK_PUT_NUMS";
                show(back + " " + group, () -> admin.viewBrokerStatsData(master, back, key).getStatsMinute().getSum());
            }
        }
    }

    private static void topicOffsets(String topic) throws Exception {
        long total = 0;
        long updated = 0;
        for (var each : admin.examineTopicStats(topic).getOffsetTable().values()) {
            total += each.getMaxOffset();
            updated = Math.max(updated, each.getLastUpdateTimestamp());
        }
        show("topic offset", total);
        show("topic updated", updated);
    }

    private static void groupOffsets(String topic, String group) throws Exception {
        try {
            var connection = admin.examineConsumerConnectionInfo(group);
            show("model " + group, connection.getMessageModel());
            show("members " + group, connection.getConnectionSet().size());
            for (var member : connection.getConnectionSet()) {
                show("member " + group, member.getClientAddr() + " " + member.getLanguage() + " " + member.getVersion());
                var info = admin.getConsumerRunningInfo(group, member.getClientId(), false);
                show("jstack " + group, info.getJstack());
                var status = info.getStatusTable().get(topic);
                show("status " + group, status.getConsumeFailedMsgs() + " " + status.getConsumeFailedTPS() + " "
                    + status.getConsumeOKTPS() + " " + status.getConsumeRT() + " " + status.getPullRT() + " " + status.getPullTPS());
            }
        } catch (MQClientException error) {
            show("members " + group, "code " + error.getResponseCode());
        } catch (MQBrokerException error) {
            show("members " + group, "code " + error.getResponseCode());
        }
        try {
            groupStats(topic, group);
        } catch (MQClientException error) {
            show("diff " + group, "code " + error.getResponseCode());
        }
    }

    private static void groupStats(String topic, String group) throws Exception {
        var stats = admin.examineConsumeStats(group, topic);
        show("diff " + group, stats.computeTotalDiff());
        show("consume tps " + group, stats.getConsumeTps());
        long consumed = 0;
        long found = 0;
        for (var each : stats.getOffsetTable().entrySet()) {
            consumed += each.getValue().getConsumerOffset();
            var pulled = puller.pull(each.getKey(), "*", each.getValue().getConsumerOffset(), 1);
            if (pulled.getPullStatus() == PullStatus.FOUND && pulled.getMsgFoundList().get(0).getStoreTimestamp() > 0) {
                found++;
            }
        }
        show("consumed " + group, consumed);
        show("queues with a message to consume " + group, found);
    }

    private static long offset(String broker) throws Exception {
        return Long.parseLong(admin.fetchBrokerRuntimeStats(broker).getTable().get("commitLogMaxOffset"));
    }

    /** Parses as BrokerRuntimeStats does: one figure that cannot be parsed loses all figures of a broker. */
    private static void runtime(Map<String, String> table) {
        for (String name : WHOLE) {
            show(name, Long.parseLong(table.get(name)));
        }
        for (String name : DECIMAL) {
            show(name, Double.parseDouble(table.get(name)));
        }
        for (String name : RATES) {
            show(name, Arrays.stream(table.get(name).split(" ")).mapToDouble(Double::parseDouble).count());
        }
        show("remainHowManyDataToFlush", Double.parseDouble(table.get("remainHowManyDataToFlush").split(" ")[0]));
        String[] capacity = table.get("commitLogDirCapacity").split(" ");
        for (int at : new int[] {2, 6}) {
            show("commitLogDirCapacity " + at, Double.parseDouble(capacity[at]) + " " + capacity[at + 1]);
        }
        int times = 0;
        for (String part : table.get("putMessageDistributeTime").split(" ")) {
            String[] words = part.split(":");
            if (words.length == 2 && Integer.parseInt(words[1]) >= 0) {
                times++;
            }
        }
        show("putMessageDistributeTime", times);
        show("runtime", table.get("runtime"));
        show("brokerVersionDesc", table.get("brokerVersionDesc"));
        for (String name : table.keySet()) {
            if (name.startsWith("scheduleMessageOffset")) {
                String[] offsets = table.get(name).split(",");
                show(name, Long.parseLong(offsets[0]) + "," + Long.parseLong(offsets[1]));
            }
        }
    }

    // rocketmq-dashboard: ClusterServiceImpl, TopicServiceImpl, ConsumerServiceImpl, MessageServiceImpl,
    // MessageTraceServiceImpl, ProducerServiceImpl, DashboardCollectTask

    private static void dashboard(
        String topic, String group, String offline, String producers, String messageId, String key) throws Exception {
        var cluster = admin.examineBrokerClusterInfo();
        String master = null;
        for (var broker : cluster.getBrokerAddrTable().values()) {
            master = broker.selectBrokerAddr();
            for (var each : new TreeMap<>(broker.getBrokerAddrs()).entrySet()) {
                var table = admin.fetchBrokerRuntimeStats(each.getValue()).getTable();
                for (String name : "putTps getTransferedTps getTransferredTps getTotalTps".split(" ")) {
                    String text = table.get(name);
                    show("broker " + each.getKey() + " " + name, text == null ? null : Double.parseDouble(text.split(" ")[0]));
                }
                show("broker " + each.getKey() + " version", table.get("brokerVersionDesc"));
            }
        }
        show("brokerName in its configuration", admin.getBrokerConfig(master).getProperty("brokerName"));
        topicPages(topic, master);
        groupPages(topic, group, offline, producers, master);
        messagePages(topic, group, messageId, key);
    }

    private static void topicPages(String topic, String master) throws Exception {
        show("topics contain", admin.fetchAllTopicList().getTopicList().contains(topic));
        for (var each : new TreeMap<>(admin.examineTopicStats(topic).getOffsetTable()).entrySet()) {
            var at = each.getValue();
            show("offsets " + each.getKey().getQueueId(), at.getMinOffset() + " " + at.getMaxOffset() + " " + (at.getLastUpdateTimestamp() > 0));
        }
        for (var queues : admin.examineTopicRouteInfo(topic).getQueueDatas()) {
            show("route", queues.getBrokerName() + " " + queues.getReadQueueNums() + " " + queues.getWriteQueueNums() + " " + queues.getPerm());
        }
        var sums = admin.viewBrokerStatsData(master, "TOPIC_PUT_NUMS", topic);
        show("sums", sums.getStatsDay().getSum() + " " + sums.getStatsHour().getSum() + " " + sums.getStatsMinute().getSum());
        admin.createAndUpdateTopicConfig(master, new TopicConfig("MadeOnAPage", 3, 2, 6));
        var made = ((TopicConfig) configs(master).get("MadeOnAPage"));
        show("made topic", made.getReadQueueNums() + " " + made.getWriteQueueNums() + " " + made.getPerm());
        DefaultMQProducer producer = new DefaultMQProducer("SELF_TEST_P_GROUP");
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("pages");
        producer.start();
        Object factory = called(producer.getDefaultMQProducerImpl(), "getmQClientFactory", "getMqClientFactory");
        Object api = called(factory, "getMQClientAPIImpl");
        Method listed = api.getClass().getMethod("getSystemTopicList", long.class);
        var system = (Collection<?>) called(listed.invoke(api, 20000L), "getTopicList");
        show("system topics contain TBW102", system.contains("TBW102"));
        show("sent", producer.send(new Message("MadeOnAPage", "A", "a key", "body".getBytes())).getSendStatus());
        admin.deleteTopicInBroker(new HashSet<>(Set.of(master)), "MadeOnAPage");
        forget("MadeOnAPage");
        show("deleted topic", configs(master).get("MadeOnAPage"));
    }

    /** Deletes a topic in the name server; the client of 4.9.8 always names a cluster. */
    private static void forget(String topic) throws Exception {
        Set<String> servers = new HashSet<>(Set.of(namesrv));
        try {
            admin.getClass().getMethod("deleteTopicInNameServer", Set.class, String.class).invoke(admin, servers, topic);
        } catch (NoSuchMethodException absent) {
            admin.getClass().getMethod("deleteTopicInNameServer", Set.class, String.class, String.class)
                .invoke(admin, servers, "", topic);
        }
    }

    private static Map<?, ?> configs(String broker) throws Exception {
        Method all = Arrays.stream(admin.getClass().getMethods())
            .filter(each -> Set.of("getAllTopicConfig", "getAllTopicGroup").contains(each.getName())).findFirst().get();
        return (Map<?, ?>) called(all.invoke(admin, broker, 3000L), "getTopicConfigTable");
    }

    /** Calls the first of these methods that the object has: some have another name in RocketMQ 5. */
    private static Object called(Object object, String... names) throws Exception {
        for (String name : names) {
            for (Method method : object.getClass().getMethods()) {
                if (method.getName().equals(name) && method.getParameterCount() == 0) {
                    return method.invoke(object);
                }
            }
        }
        throw new NoSuchMethodException(Arrays.toString(names));
    }

    private static void groupPages(String topic, String group, String offline, String producers, String master) throws Exception {
        var groups = admin.getAllSubscriptionGroup(master, 3000L).getSubscriptionGroupTable();
        show("groups contain", groups.containsKey(group) + " " + groups.containsKey(offline));
        show("consumers of the topic", new TreeSet<>(admin.queryTopicConsumeByWho(topic).getGroupList()));
        show("total diff", admin.examineConsumeStats(group).computeTotalDiff());
        for (var each : new TreeMap<>(admin.examineConsumeStats(offline, topic).getOffsetTable()).entrySet()) {
            var at = each.getValue();
            show("offsets of " + offline + " " + each.getKey().getQueueId(), at.getBrokerOffset() + " " + at.getConsumerOffset() + " " + (at.getLastTimestamp() > 0));
        }
        var connection = admin.examineConsumerConnectionInfo(group);
        show("connection", connection.getConsumeType() + " " + connection.getMessageModel() + " " + (connection.computeMinVersion() > 0));
        show("subscription", connection.getSubscriptionTable().get(topic).getSubString());
        for (var member : connection.getConnectionSet()) {
            var info = admin.getConsumerRunningInfo(group, member.getClientId(), true);
            show("queues of the member", info.getMqTable().keySet().stream().filter(each -> each.getTopic().equals(topic)).count());
            show("stack", !info.getJstack().isEmpty());
        }
        show("members of " + offline, () -> admin.examineConsumerConnectionInfo(offline).getConnectionSet().size());
        show("producers", admin.examineProducerConnectionInfo(producers, topic).getConnectionSet().size());
        show("reset online", () -> new TreeMap<>(admin.resetOffsetByTimestamp(topic, group, System.currentTimeMillis(), true)).values());
        show("reset offline", () -> admin.resetOffsetByTimestamp(topic, offline, System.currentTimeMillis(), true));
        show("reset offline, old", admin.resetOffsetByTimestampOld(offline, topic, System.currentTimeMillis(), true).stream()
            .mapToLong(each -> each.getRollbackOffset()).sum());
        var config = groups.get(offline);
        config.setGroupName("MadeOnAPage");
        config.setRetryMaxTimes(3);
        admin.createAndUpdateSubscriptionGroupConfig(master, config);
        show("made group", admin.getAllSubscriptionGroup(master, 3000L).getSubscriptionGroupTable().get("MadeOnAPage").getRetryMaxTimes());
        admin.deleteSubscriptionGroup(master, "MadeOnAPage");
        show("deleted group", admin.getAllSubscriptionGroup(master, 3000L).getSubscriptionGroupTable().get("MadeOnAPage"));
    }

    private static void messagePages(String topic, String group, String messageId, String key) throws Exception {
        var message = admin.viewMessage(topic, messageId);
        show("message", new String(message.getBody()) + " " + message.getTags() + " " + message.getKeys() + " " + message.getQueueId());
        for (var track : admin.messageTrackDetail(message)) {
            show("track " + track.getConsumerGroup(), track.getTrackType());
        }
        long now = System.currentTimeMillis();
        show("found by key", admin.queryMessage(topic, key, 64, 0, now).getMessageList().size());
        show("traces", admin.queryMessage("RMQ_SYS_TRACE_TOPIC", messageId, 64, 0, now).getMessageList().size());
        int read = 0;
        for (var queue : puller.fetchSubscribeMessageQueues(topic)) {
            long last = puller.searchOffset(queue, now);
            for (long at = puller.searchOffset(queue, 0); at <= last; ) {
                var pulled = puller.pull(queue, "*", at, 32);
                if (pulled.getPullStatus() != PullStatus.FOUND) {
                    break;
                }
                read += pulled.getMsgFoundList().size();
                at = pulled.getNextBeginOffset();
            }
        }
        show("read by time", read);
        for (var member : admin.examineConsumerConnectionInfo(group).getConnectionSet()) {
            show("consumed directly", admin.consumeMessageDirectly(group, member.getClientId(), topic, messageId).getConsumeResult());
        }
    }
}
