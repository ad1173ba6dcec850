package onepipe.peers;

/** What a member has received in the measurement. Threads of a library may call from anywhere. */
final class Deliveries {
    private final Job job;
    private final Latencies latencies = new Latencies();
    private long received;
    private long orderDigest;

    Deliveries(Job job) {
        this.job = job;
    }

    /** Counts a message that was due at `dueNs`. */
    synchronized void onMessage(long dueNs) {
        long latencyNs = System.nanoTime() - dueNs;
        if (dueNs < job.beginNs() || dueNs >= job.endNs()) {
            return;
        }
        received++;
        latencies.record(latencyNs);
        // Due times differ between messages, so equal digests mean the same messages in one order.
        orderDigest = (orderDigest * 31 + dueNs) * 0x9E3779B97F4A7C15L;
    }

    /** Returns the outcome as JSON: `Outcome` in bench/micro/src/peers/job.rs. */
    synchronized String toJson(double seconds, double cpuSeconds) {
        return "{\"seconds\":" + seconds
                + ",\"cpu_seconds\":" + cpuSeconds
                + ",\"latencies\":" + latencies.toJson()
                + ",\"lost\":" + (job.expected() - received)
                + ",\"order_digest\":" + Long.toUnsignedString(orderDigest)
                + "}";
    }
}
