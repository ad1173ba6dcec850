/* Two processes of one program: one owns a region, the other one operates on it.
 *
 * cargo build -p onepipe-c
 * cc api/c/examples/memory.c -Iapi/c/include -Ltarget/debug -lonepipe_c -o memory
 * LD_LIBRARY_PATH=target/debug ./memory */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "onepipe.h"

#define REGION 1u
#define OWNER 0u

static void check(onepipe_status status) {
    if (status != ONEPIPE_OK) {
        fprintf(stderr, "status %d: %s\n", (int)status, onepipe_error());
        exit(1);
    }
}

int main(void) {
    char fabric[64];
    snprintf(fabric, sizeof fabric, "c-memory-%ld", (long)getpid());
    onepipe *owner = NULL, *client = NULL;
    check(onepipe_join(fabric, OWNER, &owner));
    check(onepipe_join(fabric, 1, &client));
    check(onepipe_wait_for_peers(client, 1, 30000));
    check(onepipe_register(owner, REGION, 64, ONEPIPE_READ | ONEPIPE_WRITE | ONEPIPE_ATOMICS));

    check(onepipe_write(client, OWNER, REGION, 16, "hello", 5));
    char text[6] = {0};
    check(onepipe_read(client, OWNER, REGION, 16, text, 5));
    printf("read: %s\n", text);

    uint64_t before = 0;
    check(onepipe_fetch_add(client, OWNER, REGION, 8, 40, &before));
    check(onepipe_compare_and_swap(client, OWNER, REGION, 8, 40, 42, &before));
    uint64_t word = 0;
    check(onepipe_local_read(owner, REGION, 8, &word, sizeof word));
    printf("word: %" PRIu64 ", before %" PRIu64 "\n", word, before);

    /* An error says what the owner refuses. */
    onepipe_status status = onepipe_read(client, OWNER, REGION, 60, text, 5);
    printf("status %d: %s\n", (int)status, onepipe_error());
    status = onepipe_write(client, OWNER, REGION, 0, NULL, 1);
    printf("status %d: %s\n", (int)status, onepipe_error());

    check(onepipe_leave(client));
    check(onepipe_leave(owner));
    return 0;
}
