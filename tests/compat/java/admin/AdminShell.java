import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Runs RocketMQ's mqadmin once for each line of its input: words with tabs between them, no word for the list of commands. A line "=" ends each output.
 */
public class AdminShell {
    public static void main(String[] arguments) throws Exception {
        System.setErr(System.out);
        endWaits(Thread.currentThread());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                MQAdminStartup.main0(line.isEmpty() ? new String[0] : line.split("\t"), null);
            } catch (Throwable error) {
                error.printStackTrace();
            }
            System.out.println();
            System.out.println("=");
            System.out.flush();
        }
        System.exit(0);
    }

    /** A client that ends waits up to 3 s for its event thread, which polls an empty queue: interrupt that thread. */
    private static void endWaits(Thread main) {
        Thread waker = new Thread(() -> {
            while (true) {
                try {
                    Thread.sleep(20);
                } catch (InterruptedException error) {
                    return;
                }
                boolean ends = Arrays.stream(main.getStackTrace()).anyMatch(frame ->
                    frame.getClassName().endsWith("NettyRemotingClient") && frame.getMethodName().equals("shutdown"));
                if (ends) {
                    Thread.getAllStackTraces().keySet().stream()
                        .filter(thread -> thread.getName().equals("NettyEventExecutor")).forEach(Thread::interrupt);
                }
            }
        });
        waker.setDaemon(true);
        waker.start();
    }
}
