package onepipe.peers;

import java.util.StringJoiner;

/**
 * Counts of latencies in ns, with three significant digits: values below 2,048 each on their own,
 * and 1,024 ranges for each power of two above.
 */
final class Latencies {
    private static final int RANGE_BITS = 10;

    private final long[] counts = new long[64 << RANGE_BITS];

    void record(long latencyNs) {
        long value = Math.max(1, latencyNs);
        counts[index(value)]++;
    }

    /** Returns pairs of value and count as a JSON array. */
    String toJson() {
        StringJoiner pairs = new StringJoiner(",", "[", "]");
        for (int index = 0; index < counts.length; index++) {
            if (counts[index] > 0) {
                pairs.add("[" + highest(index) + "," + counts[index] + "]");
            }
        }
        return pairs.toString();
    }

    private static int shift(long value) {
        return Math.max(0, 63 - Long.numberOfLeadingZeros(value) - RANGE_BITS);
    }

    private static int index(long value) {
        int shift = shift(value);
        return (shift << RANGE_BITS) + (int) (value >>> shift);
    }

    /** Returns the highest value that is counted at `index`. */
    private static long highest(int index) {
        int shift = Math.max(0, (index >>> RANGE_BITS) - 1);
        long range = index - ((long) shift << RANGE_BITS);
        return ((range + 1) << shift) - 1;
    }
}
