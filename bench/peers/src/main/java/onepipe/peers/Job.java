package onepipe.peers;

/**
 * What one process does. The arguments are those of `Job::arguments` in
 * bench/micro/src/peers/job.rs; times are those of CLOCK_MONOTONIC, which System.nanoTime reads on
 * Linux.
 *
 * @param role          jgroups, aeron-udp or aeron-ipc: a member; aeron-driver: the media driver of
 *                      all aeron-ipc members
 * @param process       index of the process, from 0
 * @param processes     number of members
 * @param rate          messages that a member sends per second, each to all members
 * @param bytes         length of a message, at least 8
 * @param beginNs       begin of the measurement; messages before it warm the machine up
 * @param endNs         end of the measurement
 * @param ports         free UDP ports, one for each member
 * @param folder        folder for the files of this run, in shared memory
 */
record Job(
        String role,
        int process,
        int processes,
        double rate,
        int bytes,
        long beginNs,
        long endNs,
        int[] ports,
        String folder) {

    /** Time after the measurement in which the last messages arrive, in ns. */
    static final long DRAIN_NS = 500_000_000;

    /** Reads the arguments, in the order of the fields; ports are separated by commas. */
    static Job parse(String[] arguments) {
        if (arguments.length != 9) {
            throw new IllegalArgumentException("expected 9 arguments, not " + arguments.length);
        }
        String[] numbers = arguments[7].split(",");
        int[] ports = new int[numbers.length];
        for (int i = 0; i < ports.length; i++) {
            ports[i] = Integer.parseInt(numbers[i]);
        }
        return new Job(
                arguments[0],
                Integer.parseInt(arguments[1]),
                Integer.parseInt(arguments[2]),
                Double.parseDouble(arguments[3]),
                Math.max(8, Integer.parseInt(arguments[4])),
                Long.parseLong(arguments[5]),
                Long.parseLong(arguments[6]),
                ports,
                arguments[8]);
    }

    /** Returns when message `number` of `process` is due; numbers below 0 belong to the warm-up. */
    long dueNs(int process, long number) {
        double phase = (double) process / processes;
        return beginNs + (long) ((number + phase) * (1e9 / rate));
    }

    /** Returns the number of messages that all members send in the measurement. */
    long expected() {
        long expected = 0;
        for (int sender = 0; sender < processes; sender++) {
            for (long number = 0; dueNs(sender, number) < endNs; number++) {
                expected++;
            }
        }
        return expected;
    }
}
