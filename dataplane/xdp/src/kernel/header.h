/* The onepipe header as seven words, and its hop tag: docs/wire-format.md. */
#pragma once
#include "kernel.h"
/* CRC_TABLES and OPCODE_CLASSES, written by build.rs. */
#include "tables.h"

enum { VERSION = 0x20, SHORT_HEADER_LEN = 38, HEADER_LEN = 56, OPCODE_WITHOUT_TIMES = 0x40 };
enum { FLAG_CONGESTION = 1 << 1, FLAG_UNFED = 1 << 4 };
enum { HOPS_MASK = 0x3f, OPCODE_JOIN = 0x0a, OPCODE_JOIN_ANSWER = 0x0e };
#define NO_ADDRESS 0xffffffffu
#define TIME_MASK 0xffffffffffffull

/* The header as it stands in the packet, read as little-endian words. */
struct header {
	u64 w0, w1, w2, w3, w4, w5, w6;
};

INLINE u8 version_of(const struct header *h) { return h->w0; }
INLINE u8 opcode_of(const struct header *h) { return h->w0 >> 8; }
INLINE u8 flags_of(const struct header *h) { return h->w0 >> 16; }
INLINE u8 hops_of(const struct header *h) { return h->w0 >> 24; }
INLINE u32 src_of(const struct header *h) { return BE32((u32)(h->w0 >> 32)); }
INLINE u32 dst_of(const struct header *h) { return BE32((u32)h->w1); }
INLINE u32 incarnation_of(const struct header *h) { return BE32((u32)(h->w1 >> 32)); }
INLINE u16 length_of(const struct header *h) { return BE16((u16)(h->w4 >> 32)); }
INLINE u64 barrier_of(const struct header *h)
{
	return (BE64(h->w5) & 0xffffffff) << 16 | BE64(h->w6) >> 48;
}
INLINE u64 commit_of(const struct header *h) { return BE64(h->w6) & TIME_MASK; }

/* Writes the number of a frame of a link into its hop tag, whose first half is 0 without a key. The
 * daemon takes it out again. */
INLINE void stamp(u8 *tag, u32 generation, u32 number)
{
	*(u32 *)tag = (generation & 0xffff) << 16 | (number & 0xffff);
}

INLINE void set_promises(struct header *h, u64 barrier, u64 commit)
{
	u64 head = BE64(h->w5) >> 32 << 32;

	h->w5 = BE64(head | barrier >> 16);
	h->w6 = BE64(barrier << 48 | commit);
}

/* Reads the header in the `len` bytes at `at`. Returns 0 if they are too few. */
INLINE int read_header(const u8 *at, const u8 *end, struct header *h)
{
	if (at + SHORT_HEADER_LEN > end)
		return 0;
	h->w0 = *(u64 *)at;
	h->w1 = *(u64 *)(at + 8);
	h->w2 = *(u64 *)(at + 16);
	h->w3 = *(u64 *)(at + 24);
	if (opcode_of(h) >= OPCODE_WITHOUT_TIMES) {
		/* The check counts such a header as continued by zeros. */
		h->w4 = *(u32 *)(at + 32) | (u64) * (u16 *)(at + 36) << 32;
		h->w5 = h->w6 = 0;
		return 1;
	}
	if (at + HEADER_LEN > end)
		return 0;
	h->w4 = *(u64 *)(at + 32);
	h->w5 = *(u64 *)(at + 40);
	h->w6 = *(u64 *)(at + 48);
	return 1;
}

INLINE u32 crc_word(u32 crc, u64 word)
{
	u32 low = crc ^ (u32)word, high = word >> 32;

	return CRC_TABLES[7][low & 0xff] ^ CRC_TABLES[6][low >> 8 & 0xff] ^
	       CRC_TABLES[5][low >> 16 & 0xff] ^ CRC_TABLES[4][low >> 24] ^
	       CRC_TABLES[3][high & 0xff] ^ CRC_TABLES[2][high >> 8 & 0xff] ^
	       CRC_TABLES[1][high >> 16 & 0xff] ^ CRC_TABLES[0][high >> 24];
}

/* The CRC-32C over octets 0-27 and 36-55 of the header. */
INLINE u32 hop_tag(const struct header *h)
{
	u32 crc = ~0u;

	crc = crc_word(crc, h->w0);
	crc = crc_word(crc, h->w1);
	crc = crc_word(crc, h->w2);
	crc = crc_word(crc, (u32)h->w3 | h->w4 >> 32 << 32);
	crc = crc_word(crc, h->w5);
	crc = crc_word(crc, h->w6);
	return ~crc;
}

/* Whether the tag is right, and made without a key. */
INLINE int is_intact(const struct header *h)
{
	return hops_of(h) <= HOPS_MASK && h->w3 >> 32 == 0 && (u32)h->w4 == BE32(hop_tag(h));
}

/* Writes back what a switch may rewrite, with a new tag. The caller has checked the bounds by
 * read_header. */
INLINE int write_header(u8 *at, const u8 *end, const struct header *h)
{
	if (at + SHORT_HEADER_LEN > end)
		return 0;
	*(u64 *)at = h->w0;
	*(u32 *)(at + 28) = 0;
	*(u32 *)(at + 32) = BE32(hop_tag(h));
	if (opcode_of(h) >= OPCODE_WITHOUT_TIMES)
		return 1;
	if (at + HEADER_LEN > end)
		return 0;
	*(u64 *)(at + 40) = h->w5;
	*(u64 *)(at + 48) = h->w6;
	return 1;
}
