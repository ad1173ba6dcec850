/* Registered memory of a onepipe fabric.
 *
 * A process registers regions of its memory; others read and write them and execute atomic
 * operations on them, without its application. All operations are executed in the total order of
 * the fabric. See docs/guide/memory.md.
 *
 * Link with -lonepipe_c. Offsets and lengths are in bytes. Words have 8 bytes, little endian, and
 * their offsets are multiples of 8. A handle may be used by several threads, one call at a time.
 * Each function returns ONEPIPE_OK or a reason; onepipe_error then has a text for people. */
#ifndef ONEPIPE_H
#define ONEPIPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum onepipe_status {
    ONEPIPE_OK = 0,
    /* An argument is NULL, no UTF-8, or out of range. */
    ONEPIPE_ARGUMENT = 1,
    /* The fabric cannot be joined. */
    ONEPIPE_JOIN = 2,
    /* The owner refuses the operation: unknown region, out of bounds, no right, misaligned.
       Nothing was executed. Also: the own region is unknown, or registered already. */
    ONEPIPE_REFUSED = 3,
    /* The owner has ended, or does not answer. The operation may have been executed. */
    ONEPIPE_UNKNOWN = 4,
    /* The request exceeds a limit. Nothing was sent. */
    ONEPIPE_LIMIT = 5,
    /* This process has left the fabric. */
    ONEPIPE_LEFT = 6,
    /* The time is over. */
    ONEPIPE_TIMEOUT = 7,
    /* A bug of this library. */
    ONEPIPE_BUG = 8
} onepipe_status;

/* Rights of all other processes, to be combined. */
#define ONEPIPE_READ 1u
#define ONEPIPE_WRITE 2u
#define ONEPIPE_ATOMICS 4u

/* A process of a fabric. */
typedef struct onepipe onepipe;

/* Returns the text of the last error of the calling thread, valid until its next call. */
const char *onepipe_error(void);

/* Joins a fabric in shared memory, by its name, as the process with this id. */
onepipe_status onepipe_join(const char *fabric, uint32_t process, onepipe **pipe);

/* Joins through the software switch at "host:port". */
onepipe_status onepipe_join_udp(const char *address, uint32_t process, onepipe **pipe);

/* Waits until this number of other processes have joined. */
onepipe_status onepipe_wait_for_peers(onepipe *pipe, size_t count, uint32_t timeout_ms);

/* Leaves the fabric and frees the handle, whatever is returned. NULL is ignored. */
onepipe_status onepipe_leave(onepipe *pipe);

/* Registers a region of `len` zero bytes under a number of the caller's choice. */
onepipe_status onepipe_register(onepipe *pipe, uint32_t region, size_t len, uint32_t rights);

/* Removes a region. */
onepipe_status onepipe_deregister(onepipe *pipe, uint32_t region);

/* Copies bytes out of or into a region of this process, between operations of others. */
onepipe_status onepipe_local_read(onepipe *pipe, uint32_t region, size_t offset, void *bytes,
                                  size_t len);
onepipe_status onepipe_local_write(onepipe *pipe, uint32_t region, size_t offset,
                                   const void *bytes, size_t len);

/* Reads bytes of a region of process `owner`. */
onepipe_status onepipe_read(onepipe *pipe, uint32_t owner, uint32_t region, uint64_t offset,
                            void *bytes, uint32_t len);

/* Writes bytes. */
onepipe_status onepipe_write(onepipe *pipe, uint32_t owner, uint32_t region, uint64_t offset,
                             const void *bytes, size_t len);

/* Replaces a word by `value` if it is `expected`. `before` gets the word before: it was replaced
   if that is `expected`. */
onepipe_status onepipe_compare_and_swap(onepipe *pipe, uint32_t owner, uint32_t region,
                                        uint64_t offset, uint64_t expected, uint64_t value,
                                        uint64_t *before);

/* Adds to a word, modulo 2^64. `before` gets the word before. */
onepipe_status onepipe_fetch_add(onepipe *pipe, uint32_t owner, uint32_t region, uint64_t offset,
                                 uint64_t addend, uint64_t *before);

#ifdef __cplusplus
}
#endif

#endif
