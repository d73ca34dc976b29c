import java.io.File;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.tieredstore.MessageStoreConfig;
import org.apache.rocketmq.tieredstore.MessageStoreExecutor;
import org.apache.rocketmq.tieredstore.common.AppendResult;
import org.apache.rocketmq.tieredstore.file.FlatFileFactory;
import org.apache.rocketmq.tieredstore.file.FlatMessageFile;
import org.apache.rocketmq.tieredstore.metadata.DefaultMetadataStore;
import org.apache.rocketmq.tieredstore.provider.PosixFileSegment;

/**
 * Puts the messages of a CommitLog into RocketMQ's tiered storage, with the classes of RocketMQ that do it in a broker.
 *
 * <p>Usage: TierTool commitLogFolder tierFolder bytesOfAFile
 */
public class TierTool {
    public static void main(String[] arguments) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setBrokerName("broker-a");
        config.setStorePathRootDir(arguments[1] + "-metadata");
        config.setTieredStoreFilePath(arguments[1]);
        config.setTieredBackendServiceProvider(PosixFileSegment.class.getName());
        config.setTieredStoreCommitLogMaxSize(Long.parseLong(arguments[2]));
        FlatFileFactory factory = new FlatFileFactory(
            new DefaultMetadataStore(config), config, new MessageStoreExecutor());
        Map<String, FlatMessageFile> queues = new LinkedHashMap<>();
        File[] files = new File(arguments[0]).listFiles();
        Arrays.sort(files);
        int count = 0;
        for (File file : files) {
            ByteBuffer log = ByteBuffer.wrap(Files.readAllBytes(file.toPath()));
            while (log.remaining() > 8) {
                int size = log.getInt(log.position());
                int magic = log.getInt(log.position() + 4);
                if (size <= 0 || magic == MessageDecoder.BLANK_MAGIC_CODE) {
                    break;
                }
                ByteBuffer record = log.slice().limit(size).slice();
                log.position(log.position() + size);
                count += append(factory, queues, record);
            }
        }
        for (FlatMessageFile queue : queues.values()) {
            queue.commitAsync().join();
            queue.flushMetadata();
        }
        System.out.println("messages\t" + count);
        System.exit(0);
    }

    private static int append(FlatFileFactory factory, Map<String, FlatMessageFile> queues, ByteBuffer record)
        throws Exception {
        MessageExt message = MessageDecoder.decode(record.duplicate(), true, false);
        // Prepared and rolled back messages are in no queue, and so are never dispatched.
        boolean isInQueue = (message.getSysFlag() & MessageSysFlag.TRANSACTION_PREPARED_TYPE) == 0;
        if (message.getTopic().equals("BatchQueue") || !isInQueue) {
            return 0;
        }
        FlatMessageFile queue = queues.computeIfAbsent(message.getTopic() + "/" + message.getQueueId(), key -> {
            FlatMessageFile made = new FlatMessageFile(factory, message.getTopic(), message.getQueueId());
            made.initOffset(message.getQueueOffset());
            return made;
        });
        long offset = queue.getCommitLogMaxOffset();
        expect(queue.appendCommitLog(record.duplicate()));
        expect(queue.appendConsumeQueue(new DispatchRequest(
            message.getTopic(), message.getQueueId(), offset, message.getStoreSize(), 0L, message.getStoreTimestamp(),
            message.getQueueOffset(), message.getKeys(), "", 0, 0L, null)));
        queue.commitAsync().join();
        return 1;
    }

    private static void expect(AppendResult result) {
        if (result != AppendResult.SUCCESS) {
            throw new IllegalStateException(result.toString());
        }
    }
}
