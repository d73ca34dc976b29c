package sprocket.suite;

import java.io.File;
import java.util.Properties;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;

/** What tests take for a name server of theirs; it is never started in this process. */
public class RemoteNameServer extends NamesrvController {
    private final File directory;
    private final NettyServerConfig net;
    private ServerProcess process;

    public RemoteNameServer(File directory) {
        this(directory, new NettyServerConfig());
    }

    private RemoteNameServer(File directory, NettyServerConfig net) {
        super(new NamesrvConfig(), net);
        this.directory = directory;
        this.net = net;
    }

    @Override
    public void start() throws Exception {
        net.setListenPort(ServerProcess.freePort());
        Properties properties = new Properties();
        properties.setProperty("listenPort", String.valueOf(net.getListenPort()));
        properties.setProperty("kvConfigPath", new File(directory, "kvConfig.json").getPath());
        process = new ServerProcess("namesrv", directory, properties, net.getListenPort());
    }

    @Override
    public void shutdown() {
        process.stop();
    }
}
