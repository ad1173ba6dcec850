package onepipe.peers;

/** One member of a rival. */
interface Transport {
    /** Returns whether the messages of all members arrive here, and the own ones at all members. */
    boolean hasAllMembers();

    /** Sends a message that was due at `dueNs` to all members, this one included. */
    void send(long dueNs) throws Exception;

    /** Releases what outlives this process otherwise. */
    void close();
}
