package onepipe.peers;

import io.aeron.Aeron;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import java.nio.ByteOrder;
import java.util.concurrent.TimeUnit;
import org.agrona.CloseHelper;
import org.agrona.concurrent.BackoffIdleStrategy;
import org.agrona.concurrent.IdleStrategy;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Aeron. Over UDP each member has a media driver and sends to the endpoint of each member, as if
 * each were a host: no order between senders. Over IPC all members append to one log in shared
 * memory. Driver and receivers wait with Aeron's default idle strategy: it spins, yields, then
 * sleeps for up to a millisecond.
 */
final class AeronTransport implements Transport {
    private static final int STREAM = 1;
    /** Maximum number of messages of one poll. */
    private static final int POLL_MESSAGES_MAX = 64;
    /** Time after which a message that the log has no space for is given up, in ns. */
    private static final long OFFER_TIMEOUT_NS = TimeUnit.MILLISECONDS.toNanos(100);

    private final Job job;
    private final MediaDriver driver;
    private final Aeron aeron;
    private final Subscription subscription;
    private final Publication publication;
    private final UnsafeBuffer message;
    private volatile boolean isOpen = true;
    private final Thread poller;

    AeronTransport(Job job, Deliveries deliveries) {
        this.job = job;
        message = new UnsafeBuffer(new byte[job.bytes()]);
        boolean isUdp = job.role().equals("aeron-udp");
        driver = isUdp ? launchDriver(job, job.process()) : null;
        String folder = driverFolder(job, isUdp ? job.process() : 0);
        aeron = Aeron.connect(new Aeron.Context().aeronDirectoryName(folder));
        subscription = aeron.addSubscription(isUdp ? endpoint(job.process()) : "aeron:ipc", STREAM);
        publication =
                aeron.addPublication(isUdp ? "aeron:udp?control-mode=manual" : "aeron:ipc", STREAM);
        for (int member = 0; isUdp && member < job.processes(); member++) {
            publication.addDestination(endpoint(member));
        }
        poller = new Thread(() -> poll(deliveries), "poller");
        poller.setDaemon(true);
        poller.start();
    }

    private static String driverFolder(Job job, int driver) {
        return job.folder() + "/driver-" + driver;
    }

    /** Starts a media driver with one thread, whose folder is deleted at the end. */
    static MediaDriver launchDriver(Job job, int driver) {
        return MediaDriver.launch(new MediaDriver.Context()
                .aeronDirectoryName(driverFolder(job, driver))
                .threadingMode(ThreadingMode.SHARED)
                .dirDeleteOnStart(true)
                .dirDeleteOnShutdown(true));
    }

    private String endpoint(int member) {
        return "aeron:udp?endpoint=127.0.0.1:" + job.ports()[member];
    }

    private void poll(Deliveries deliveries) {
        IdleStrategy idle = new BackoffIdleStrategy();
        while (isOpen) {
            idle.idle(subscription.poll(
                    (buffer, offset, length, header) ->
                            deliveries.onMessage(buffer.getLong(offset, ByteOrder.LITTLE_ENDIAN)),
                    POLL_MESSAGES_MAX));
        }
    }

    @Override
    public boolean hasAllMembers() {
        int images = job.role().equals("aeron-udp") ? job.processes() : 1;
        return publication.isConnected() && subscription.imageCount() == images;
    }

    @Override
    public void send(long dueNs) {
        message.putLong(0, dueNs, ByteOrder.LITTLE_ENDIAN);
        long giveUpNs = System.nanoTime() + OFFER_TIMEOUT_NS;
        while (true) {
            long result = publication.offer(message);
            boolean canRetry =
                    result == Publication.BACK_PRESSURED || result == Publication.ADMIN_ACTION;
            // A message that was given up is missed, and counted, by its receivers.
            if (!canRetry || System.nanoTime() >= giveUpNs) {
                return;
            }
            Thread.yield();
        }
    }

    @Override
    public void close() {
        isOpen = false;
        try {
            poller.join();
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
        CloseHelper.closeAll(aeron, driver);
    }
}
