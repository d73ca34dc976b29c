package sprocket.suite;

import java.io.File;
import java.io.IOException;
import java.io.Writer;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.common.MixAll;

/** One of Sprocket's servers as a process: {@code sprocket <kind> -c <file>}. */
public final class ServerProcess {
    private static final long START_LIMIT_MS = 120_000;
    private static final long STOP_LIMIT_S = 60;
    private final Process process;

    public ServerProcess(String kind, File directory, Properties properties, int port) throws Exception {
        this(directory, port, List.of(kind, "-c", file(directory, properties).getPath()));
    }

    /** Runs {@code sprocket} with these words, and waits until it serves at the port. */
    public ServerProcess(File directory, int port, List<String> words) throws Exception {
        // It ends with this process, also when that is killed.
        List<String> command = new ArrayList<>(List.of(System.getProperty("sprocket.python"), "-I", "-m",
            "sprocket.common.processes.bound", String.valueOf(ProcessHandle.current().pid()), "sprocket_cli"));
        command.addAll(words);
        process = new ProcessBuilder(command).redirectErrorStream(true)
            .redirectOutput(ProcessBuilder.Redirect.appendTo(new File(directory.getPath() + ".log"))).start();
        Runtime.getRuntime().addShutdownHook(new Thread(process::destroy));
        awaitPort(port);
    }

    private static File file(File directory, Properties properties) throws IOException {
        File file = new File(directory.getPath() + ".conf");
        try (Writer writer = Files.newBufferedWriter(file.toPath())) {
            for (String key : properties.stringPropertyNames()) {
                writer.write(key + "=" + properties.getProperty(key) + "\n");
            }
        }
        return file;
    }

    private void awaitPort(int port) throws Exception {
        long end = System.currentTimeMillis() + START_LIMIT_MS;
        while (System.currentTimeMillis() < end && process.isAlive()) {
            try (Socket ignored = new Socket("127.0.0.1", port)) {
                return;
            } catch (IOException e) {
                Thread.sleep(100);
            }
        }
        process.destroy();
        throw new IllegalStateException("the server did not open port " + port);
    }

    public void stop() {
        process.destroy();
        try {
            if (!process.waitFor(STOP_LIMIT_S, TimeUnit.SECONDS)) {
                process.destroyForcibly();
            }
        } catch (InterruptedException e) {
            process.destroyForcibly();
            Thread.currentThread().interrupt();
        }
    }

    public static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    /** What a test has set: the fields of `config` that differ from those of `plain`. */
    public static void putChanges(Object config, Object plain, Properties into) {
        Properties changed = MixAll.object2Properties(config);
        Properties usual = MixAll.object2Properties(plain);
        for (String key : changed.stringPropertyNames()) {
            if (!changed.getProperty(key).equals(usual.getProperty(key))) {
                into.setProperty(key, changed.getProperty(key));
            }
        }
        into.remove("rocketmqHome");
        into.remove("broker");  // the field of LiveBrokerConfig
    }
}
