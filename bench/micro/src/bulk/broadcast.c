/*
 * MPI_Bcast as measured by the bulk benchmark: from the root's call until the last rank has all.
 *
 *   broadcast BYTES ROUNDS [yield]
 *
 * All ranks run on one machine and share its monotonic clock. Every byte is compared after each
 * round. With `yield` a waiting rank yields its core, for libraries that spin. Rank 0 prints the
 * nanoseconds of each round on a line of its own.
 */
#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void await(MPI_Request *request) {
    int is_done = 0;
    while (MPI_Test(request, &is_done, MPI_STATUS_IGNORE), !is_done)
        sched_yield();
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc < 3)
        MPI_Abort(MPI_COMM_WORLD, 2);
    size_t bytes = strtoull(argv[1], NULL, 10);
    long rounds = strtol(argv[2], NULL, 10);
    int yields = argc > 3;
    unsigned char *memory = malloc(bytes + 1), *expected = malloc(bytes + 1);
    for (size_t at = 0; at < bytes; at++)
        expected[at] = (unsigned char)((uint32_t)at * 2654435761u >> 24);
    for (long round = 0; round < rounds; round++) {
        for (size_t at = 0; at < bytes && at < 8; at++)
            expected[at] = (unsigned char)(round + (long)at);
        if (rank == 0)
            memcpy(memory, expected, bytes);
        else
            memset(memory, 0, bytes);
        MPI_Request request;
        if (yields) {
            MPI_Ibarrier(MPI_COMM_WORLD, &request);
            await(&request);
        } else {
            MPI_Barrier(MPI_COMM_WORLD);
        }
        uint64_t at[2] = {now_ns(), 0}, last = 0;
        if (yields) {
            MPI_Ibcast(memory, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
            await(&request);
        } else {
            MPI_Bcast(memory, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
        }
        at[1] = now_ns();
        if (memcmp(memory, expected, bytes) != 0) {
            fprintf(stderr, "rank %d got other data in round %ld\n", rank, round);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        if (yields) {
            MPI_Ireduce(&at[1], &last, 1, MPI_UINT64_T, MPI_MAX, 0, MPI_COMM_WORLD, &request);
            await(&request);
        } else {
            MPI_Reduce(&at[1], &last, 1, MPI_UINT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
        }
        if (rank == 0)
            printf("%llu\n", (unsigned long long)(last - at[0]));
    }
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    /* MPICH over TCP may hang in MPI_Finalize; the results are already printed. */
    if (yields)
        _exit(0);
    MPI_Finalize();
    return 0;
}
