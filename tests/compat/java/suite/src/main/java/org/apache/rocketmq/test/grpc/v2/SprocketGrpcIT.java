package org.apache.rocketmq.test.grpc.v2;

import java.io.File;
import java.nio.file.Files;
import java.util.List;
import org.apache.rocketmq.proxy.config.ConfigurationManager;
import org.junit.After;
import org.junit.Before;
import org.junit.Test;
import sprocket.suite.ServerProcess;

/** RocketMQ's tests of a gRPC proxy, at Sprocket's: {@code ClusterGrpcIT} starts RocketMQ's. */
public class SprocketGrpcIT extends GrpcBaseIT {
    private ServerProcess proxy;

    @Before
    public void setUp() throws Exception {
        File directory = Files.createTempDirectory("proxy").toFile();
        // Their helpers read a proxy's file, though no proxy of theirs starts.
        Files.createDirectory(directory.toPath().resolve("conf"));
        Files.writeString(directory.toPath().resolve("conf/rmq-proxy.json"), "{}");
        System.setProperty(ConfigurationManager.RMQ_PROXY_HOME, directory.getPath());
        // A proxy of theirs would set it for all clients of the process.
        System.setProperty("rocketmq.namesrv.addr", NAMESRV_ADDR);
        super.setUp();
        int port = ServerProcess.freePort();
        String cluster = brokerController1.getBrokerConfig().getBrokerClusterName();
        proxy = new ServerProcess(directory, port, List.of("proxy", "-n", NAMESRV_ADDR, "--set", "grpcServerPort=" + port,
            "--set", "remotingListenPort=-1", "--set", "rocketMQClusterName=" + cluster,
            "--set", "minInvisibleTimeMillsForRecv=3", "--set", "grpcClientConsumerMinLongPollingTimeoutMillis=0"));
        ConfigurationManager.getProxyConfig().setGrpcServerPort(port);
        blockingStub = createBlockingStub(createChannel(port));
        stub = createStub(createChannel(port));
    }

    @After
    public void tearDown() {
        proxy.stop();
    }

    @Test
    public void testQueryRoute() throws Exception {
        assertQueryRoute(blockingStub.queryRoute(buildQueryRouteRequest(initTopic())), BROKER_NUM * DEFAULT_QUEUE_NUMS);
    }

    @Test
    public void testQueryAssignment() throws Exception {
        super.testQueryAssignment();
    }

    @Test
    public void testQueryFifoAssignment() throws Exception {
        super.testQueryFifoAssignment();
    }

    @Test
    public void testTransactionCheckThenCommit() {
        super.testTransactionCheckThenCommit();
    }

    @Test
    public void testSimpleConsumerSendAndRecvDelayMessage() throws Exception {
        super.testSimpleConsumerSendAndRecvDelayMessage();
    }

    @Test
    public void testSimpleConsumerSendAndRecallDelayMessage() throws Exception {
        super.testSimpleConsumerSendAndRecallDelayMessage();
    }

    @Test
    public void testSimpleConsumerSendAndRecvBigMessage() throws Exception {
        super.testSimpleConsumerSendAndRecvBigMessage();
    }

    @Test
    public void testSimpleConsumerSendAndRecv() throws Exception {
        super.testSimpleConsumerSendAndRecv();
    }

    @Test
    public void testSimpleConsumerToDLQ() throws Exception {
        super.testSimpleConsumerToDLQ();
    }

    @Test
    public void testConsumeOrderly() throws Exception {
        super.testConsumeOrderly();
    }
}
