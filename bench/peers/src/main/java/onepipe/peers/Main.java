package onepipe.peers;

import com.sun.management.OperatingSystemMXBean;
import io.aeron.driver.MediaDriver;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.util.concurrent.locks.LockSupport;

/** One process of `onepipe bench peers`; it prints its outcome as one line of JSON. */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) {
        // Standard output is for the outcome alone; libraries print banners.
        PrintStream out = System.out;
        System.setOut(System.err);
        try {
            Job job = Job.parse(arguments);
            out.println(job.role().equals("aeron-driver") ? drive(job) : take(job));
            out.flush();
        } catch (Throwable failure) {
            System.err.println("bench peers: " + String.join(" ", arguments) + ": " + failure);
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        // Threads of the libraries would keep the process.
        Runtime.getRuntime().halt(0);
    }

    /** Takes part as a member. */
    private static String take(Job job) throws Exception {
        Deliveries deliveries = new Deliveries(job);
        Transport transport = switch (job.role()) {
            case "jgroups" -> new JGroupsTransport(job, deliveries);
            case "aeron-udp", "aeron-ipc" -> new AeronTransport(job, deliveries);
            default -> throw new IllegalArgumentException("unknown role " + job.role());
        };
        while (!transport.hasAllMembers()) {
            if (System.nanoTime() >= job.beginNs()) {
                throw new IllegalStateException("the other members have not joined in time");
            }
            LockSupport.parkNanos(1_000_000);
        }
        // The first sample loads classes for tens of milliseconds.
        Sample.take();
        long number = 0;
        while (job.dueNs(job.process(), number - 1) > System.nanoTime()) {
            number--;
        }
        for (; number < 0; number++) {
            send(job, transport, number);
        }
        waitUntil(job.beginNs());
        Sample sample = Sample.take();
        for (; job.dueNs(job.process(), number) < job.endNs(); number++) {
            send(job, transport, number);
        }
        waitUntil(job.endNs());
        Sample end = Sample.take();
        waitUntil(job.endNs() + Job.DRAIN_NS);
        String outcome = deliveries.toJson(end.secondsSince(sample), end.cpuSecondsSince(sample));
        transport.close();
        return outcome;
    }

    /** Runs the media driver of all members until they have gone. */
    private static String drive(Job job) {
        try (MediaDriver driver = AeronTransport.launchDriver(job, 0)) {
            Sample.take();
            waitUntil(job.beginNs());
            Sample sample = Sample.take();
            waitUntil(job.endNs());
            Sample end = Sample.take();
            waitUntil(job.endNs() + 3 * Job.DRAIN_NS);
            return "{\"seconds\":" + end.secondsSince(sample)
                    + ",\"cpu_seconds\":" + end.cpuSecondsSince(sample)
                    + ",\"latencies\":[],\"lost\":0,\"order_digest\":0}";
        }
    }

    private static void send(Job job, Transport transport, long number) throws Exception {
        long dueNs = job.dueNs(job.process(), number);
        waitUntil(dueNs);
        transport.send(dueNs);
    }

    private static void waitUntil(long untilNs) {
        for (long leftNs; (leftNs = untilNs - System.nanoTime()) > 0; ) {
            LockSupport.parkNanos(leftNs);
        }
    }

    /** Time and CPU time of this process at one moment. */
    private record Sample(long atNs, long cpuNs) {
        static Sample take() {
            OperatingSystemMXBean system =
                    (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
            return new Sample(System.nanoTime(), system.getProcessCpuTime());
        }

        double secondsSince(Sample begin) {
            return (atNs - begin.atNs) / 1e9;
        }

        double cpuSecondsSince(Sample begin) {
            return (cpuNs - begin.cpuNs) / 1e9;
        }
    }
}
