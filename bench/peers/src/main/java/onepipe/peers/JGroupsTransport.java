package onepipe.peers;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.jgroups.BytesMessage;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.Receiver;
import org.jgroups.protocols.pbcast.GMS;

/**
 * Total order by JGroups: its own stack sequencer.xml as shipped, over UDP multicast on the
 * loopback interface. The first member is the sequencer.
 */
final class JGroupsTransport implements Transport {
    /** Interval at which a member looks for the cluster, in ms. */
    private static final long POLL_MS = 20;
    /** The logger of the library; a field, as unreferenced loggers lose their level. */
    private static final Logger LOGGER = Logger.getLogger("org.jgroups");

    private final Job job;
    private final JChannel channel;

    JGroupsTransport(Job job, Deliveries deliveries) throws Exception {
        this.job = job;
        // It warns of each message that is repeated while members join.
        LOGGER.setLevel(Level.SEVERE);
        System.setProperty("java.net.preferIPv4Stack", "true");
        System.setProperty("jgroups.bind_addr", "127.0.0.1");
        System.setProperty("jgroups.udp.mcast_port", Integer.toString(job.ports()[0]));
        channel = new JChannel("sequencer.xml");
        GMS membership = channel.getProtocolStack().findProtocol(GMS.class);
        membership.printLocalAddress(false);
        channel.setReceiver(new Receiver() {
            @Override
            public void receive(Message message) {
                ByteBuffer payload = ByteBuffer.wrap(message.getArray());
                payload.order(ByteOrder.LITTLE_ENDIAN);
                deliveries.onMessage(payload.getLong(message.getOffset()));
            }
        });
        join("onepipe-peers-" + job.ports()[0]);
    }

    /**
     * Joins the cluster, after member 0 has founded it. Members that start at the same time may
     * each found one, and JGroups merges them only after tens of seconds.
     */
    private void join(String cluster) throws Exception {
        Path founded = Path.of(job.folder(), "founded");
        while (job.process() > 0 && !Files.exists(founded)) {
            if (System.nanoTime() >= job.beginNs()) {
                throw new IllegalStateException("member 0 has not founded the cluster in time");
            }
            Thread.sleep(POLL_MS);
        }
        channel.connect(cluster);
        if (job.process() == 0) {
            Files.createFile(founded);
        }
    }

    @Override
    public boolean hasAllMembers() {
        return channel.getView().size() == job.processes();
    }

    @Override
    public void send(long dueNs) throws Exception {
        // JGroups stores the array until all members have acknowledged the message.
        ByteBuffer payload = ByteBuffer.allocate(job.bytes()).order(ByteOrder.LITTLE_ENDIAN);
        payload.putLong(0, dueNs);
        channel.send(new BytesMessage(null, payload.array()));
    }

    @Override
    public void close() {
        // Nothing outlives the process. All members end at once, so an orderly change of the view
        // would only wait for members that have gone.
    }
}
