/* The registers of the input links and the promises of the outputs: docs/spec/ordering.md, R9-R14.
 *
 * Times have 48 bits and lie on a ring: they are compared by the sign of their difference. No time
 * is special, 0 included, so every register has a generation that says whether it holds a promise. */
#pragma once
#include "header.h"

#define PORTS_MAX 64
#define NO_PORT 0xffffffffu

/* Written by the daemon alone. Generations rise with each neighbour of a port; 0: nothing is there,
 * and no register of the port counts. */
struct control {
	u64 reference, ahead_ns_max;
	u32 ports, lower_ports, up_port, listen_addr, listen_port, generator, cpu, reserved;
	u32 generations[PORTS_MAX];
};

/* Written by this program alone: what the neighbour at a port has promised. */
struct link_register {
	u64 barrier, commit;
	/* The generation whose promise this is. */
	u32 generation;
	/* Frames of the generation so far, modulo 2^32. While they rise, the link is live for the daemon. */
	u32 frames;
	/* Not 0: the link is up and unfed, and `barrier` is its mark. */
	u32 is_unfed;
	/* The numbers of the last frame passed up for replication, and of the last one that the daemon
	 * has replicated. While they differ only the promises of replicated frames count, because copies
	 * follow that lie below others. */
	u32 detoured, returned;
	u32 reserved;
};

struct registers {
	struct link_register links[PORTS_MAX];
};

/* Written by this program alone: what was promised at a port. */
struct output_register {
	u64 barrier, commit;
	u32 generation, is_unfed;
};

/* Hides from the compiler what is known of a value: it would drop a mask that the verifier needs, and
 * turn arithmetic into branches, all combinations of which the verifier follows in a loop. */
#define OPAQUE(value) asm volatile("" : "+r"(value))

/* An index of a port that the verifier knows to be in range. */
INLINE u64 port_index(u64 port)
{
	port &= PORTS_MAX - 1;
	OPAQUE(port);
	return port;
}

struct promises {
	u64 barrier, commit;
};

MAP(control, MAP_ARRAY, u32, struct control, 1);
MAP(registers, MAP_ARRAY, u32, struct registers, 1);
MAP(advertised, MAP_ARRAY, u32, struct output_register, PORTS_MAX);

/* Whether `a` lies after `b` on the ring. */
INLINE int is_after(u64 a, u64 b) { return (s64)((a - b) << 16) > 0; }

INLINE u64 later(u64 a, u64 b) { return is_after(b, a) ? b : a; }

/* Counts promises of a link; the stronger of the old and the new one holds. */
INLINE void count_promises(struct link_register *link, u64 barrier, u64 commit)
{
	if (link->is_unfed) {
		/* What lies below the mark was sent before it. */
		if (is_after(link->barrier, barrier))
			return;
		link->is_unfed = 0;
		link->barrier = barrier;
		link->commit = commit;
		return;
	}
	link->barrier = later(link->barrier, barrier);
	link->commit = later(link->commit, commit);
}

/* Handles a frame of a link with its promises. */
INLINE void raise(struct link_register *link, u32 generation, u64 barrier, u64 commit)
{
	if (link->generation != generation) {
		link->barrier = barrier;
		link->commit = commit;
		link->is_unfed = 0;
		link->detoured = link->returned = 0;
		link->frames = 1;
		link->generation = generation;
		return;
	}
	link->frames++;
	if (link->detoured == link->returned)
		count_promises(link, barrier, commit);
}

/* Handles that all copies of the frame `number` have left, which has these promises. */
INLINE void release(struct link_register *link, u16 generation, u16 number, u64 barrier, u64 commit)
{
	s16 ahead = number - (u16)link->returned;

	/* A frame of an earlier neighbour, or an earlier frame. */
	if ((u16)link->generation != generation || ahead <= 0 || (s16)(number - (u16)link->detoured) > 0)
		return;
	link->returned = number;
	count_promises(link, barrier, commit);
}

/* Handles a beacon of a link that nothing feeds. */
INLINE void mark_unfed(struct link_register *link, u32 generation, u64 mark)
{
	if (link->generation != generation) {
		raise(link, generation, mark, mark);
	} else {
		link->frames++;
		if (link->is_unfed ? is_after(link->barrier, mark) : !is_after(mark, link->barrier))
			return;
		link->barrier = mark;
	}
	link->is_unfed = 1;
}

/* All ones if `a` and `b` are equal, else 0. */
INLINE u64 mask_if_equal(u32 a, u32 b)
{
	u64 differ = a ^ b;

	OPAQUE(differ);
	return (s64)(differ - 1) >> 63;
}

/* The lower of two differences of times, each of 48 bits. */
INLINE s64 lower(s64 a, s64 b)
{
	s64 mask = (b - a) >> 63;

	OPAQUE(mask);
	return a + ((b - a) & mask);
}

/* Above every difference of two times. */
#define NO_DIFFERENCE (1ll << 48)

/* The difference of a time from `base`, where `mask` is set, else NO_DIFFERENCE. */
INLINE s64 difference(u64 time, u64 base, u64 mask)
{
	s64 value = (s64)((time - base) << 16) >> 16;

	return (value & mask) | (NO_DIFFERENCE & ~mask);
}

/* All ones if the link at `port` takes part in the minimum, else 0. */
INLINE u64 mask_if_fed(const struct registers *registers, const struct control *control, u64 port)
{
	const struct link_register *link = &registers->links[port];
	u32 generation = control->generations[port];

	return mask_if_equal(link->generation, generation) & ~mask_if_equal(generation, 0) &
	       mask_if_equal(link->is_unfed, 0);
}

/* Computes the minimum over the links that feed the output `port`. Returns 0 if there is none.
 *
 * A function of its own, so that the verifier follows its loop once, and not for each path to it. */
__attribute__((noinline)) int minimum(u32 port, struct promises *result)
{
	u32 zero = 0;
	const struct control *settings = map_lookup(&control, &zero);
	const struct registers *state = map_lookup(&registers, &zero);
	s64 barrier = NO_DIFFERENCE, commit = NO_DIFFERENCE;
	u64 base, inputs = 0;
	u32 end;

	if (!settings || !state || !result)
		return 0;
	/* All are compared relative to one time, and stay within half the ring of it. */
	base = settings->reference;
	/* A node above is fed from below; one below by all others. */
	end = port >= settings->lower_ports ? settings->lower_ports : settings->ports;
	for (u32 input = 0; input < PORTS_MAX; input++) {
		u64 mask;

		if (input >= end)
			break;
		mask = mask_if_fed(state, settings, input) & ~mask_if_equal(input, port);
		inputs |= mask;
		barrier = lower(barrier, difference(state->links[input].barrier, base, mask));
		commit = lower(commit, difference(state->links[input].commit, base, mask));
	}
	if (inputs == 0 && port < settings->lower_ports) {
		/* A lone port gets its own promise back, so that its barrier advances at all. */
		u64 own = port_index(port);

		inputs = mask_if_fed(state, settings, own);
		barrier = difference(state->links[own].barrier, base, inputs);
		commit = difference(state->links[own].commit, base, inputs);
	}
	result->barrier = (base + barrier) & TIME_MASK;
	result->commit = (base + commit) & TIME_MASK;
	return inputs != 0;
}

/* Raises what was promised at an output to `fresh`, and returns it in `fresh`. */
INLINE void advertise(struct output_register *output, u32 generation, struct promises *fresh)
{
	if (output->generation == generation) {
		fresh->barrier = later(output->barrier, fresh->barrier);
		fresh->commit = later(output->commit, fresh->commit);
	}
	output->barrier = fresh->barrier;
	output->commit = fresh->commit;
	output->is_unfed = 0;
	output->generation = generation;
}

/* As advertise for a beacon that says that nothing feeds the output: its barrier is a mark above
 * all that was promised before. */
INLINE void advertise_unfed(struct output_register *output, u32 generation, struct promises *mark)
{
	if (output->generation == generation) {
		u64 least = output->is_unfed ? output->barrier : (output->barrier + 1) & TIME_MASK;

		mark->barrier = later(least, mark->barrier);
		mark->commit = later(output->commit, mark->commit);
	}
	output->barrier = mark->barrier;
	output->commit = mark->commit;
	output->is_unfed = 1;
	output->generation = generation;
}
