import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.opensearch.common.settings.Settings;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.transport.Netty4Plugin;

/**
 * One node of OpenSearch with an HTTP port at 127.0.0.1.  It runs until its input ends.
 *
 * <p>Usage: SearchNode home port. It prints "started" when it answers.
 */
public class SearchNode extends Node {
    private SearchNode(Settings settings) {
        super(
                InternalSettingsPreparer.prepareEnvironment(settings, Map.of(), null, () -> "node"),
                List.of(Netty4Plugin.class),
                false);
    }

    public static void main(String[] arguments) throws Exception {
        Settings settings = Settings.builder()
                .put("path.home", Path.of(arguments[0]).toString())
                .put("http.port", arguments[1])
                .put("network.host", "127.0.0.1")
                .put("transport.port", "0")
                .put("discovery.type", "single-node")
                .put("node.name", "node")
                .put("transport.type", Netty4Plugin.NETTY_TRANSPORT_NAME)
                .put("http.type", Netty4Plugin.NETTY_HTTP_TRANSPORT_NAME)
                // However full the disk of this machine is.
                .put("cluster.routing.allocation.disk.threshold_enabled", false)
                .build();
        try (Node node = new SearchNode(settings)) {
            node.start();
            System.out.println("started");
            while (System.in.read() >= 0) {}
        }
    }
}
