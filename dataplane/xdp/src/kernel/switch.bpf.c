/* The switch of form chip in the kernel: docs/design/xdp.md, "What does the kernel's switch do?".
 *
 * All frames of a switch are handled on one CPU: `enter` runs where a frame arrives and hands it
 * over to that CPU's map entry, `switch_frame` runs there. So no frame is overtaken between the
 * reading of the registers and the queue of its output, and the registers need no lock. */
#include "registers.h"

/* The neighbour that a frame is from. */
struct link_key {
	u32 ifindex, addr, port;
};

struct link {
	u32 port, generation;
	/* The identity under which a process was admitted. */
	u32 address, incarnation;
	/* Not 0: a switch, which passes frames of others. */
	u32 is_switch;
};

/* What a frame to a neighbour gets in front. */
struct output {
	u8 dst[6], src[6];
	u32 daddr, saddr, dport;
	u32 generation;
};

/* Where a node is that asks to be admitted, or admits this switch, for the daemon to connect it. */
struct joiner {
	u8 dst[6], src[6];
	u32 daddr;
};

/* What became of a frame; the counters are in this order in counters.rs. */
enum verdict {
	FORWARDED,
	FORWARDED_UNFED,
	SENT,
	RELEASED,
	CONSUMED,
	DETOURED,
	CONTROL,
	UNKNOWN_LINK,
	UNKNOWN_RECEIVER,
	MISATTRIBUTED,
	NOT_OURS,
	DROPPED_TRUNCATED,
	DROPPED_MALFORMED,
	DROPPED_OPCODE,
	DROPPED_AHEAD,
	DROPPED_BACK,
	DROPPED_HOPS,
	DROPPED_OUTPUT,
	VERDICTS,
};

/* Classes of opcodes, in OPCODE_CLASSES. */
enum class {
	CLASS_UNKNOWN,
	/* Passes with the promises of the output. */
	CLASS_ORDERED,
	CLASS_SHARED,
	CLASS_BEACON,
	CLASS_JOIN,
	/* Passes without promises. */
	CLASS_PLAIN,
	/* Is for the daemon, and counts nowhere. */
	CLASS_CONTROL,
};

MAP(links, MAP_HASH, struct link_key, struct link, 4 * PORTS_MAX);
MAP(outputs, MAP_ARRAY, u32, struct output, PORTS_MAX);
MAP(routes, MAP_HASH, u32, u32, 1 << 16);
MAP(joiners, MAP_LRU_HASH, struct link_key, struct joiner, 1024);
MAP(counters, MAP_PERCPU_ARRAY, u32, u64, VERDICTS);
FD_MAP(devices, MAP_DEVMAP, 8, PORTS_MAX);
FD_MAP(cpus, MAP_CPUMAP, 8, 256);

/* A frame in its headers. */
struct packet {
	struct ethernet *ethernet;
	struct ipv4 *ip;
	struct udp *udp;
	u8 *frame, *end;
};

INLINE int count(u32 verdict, int action)
{
	u64 *counter = map_lookup(&counters, &verdict);

	if (counter)
		++*counter;
	return action;
}

/* Finds the headers of a datagram. Returns 0 for other traffic. */
INLINE int find_headers(struct xdp_md *ctx, struct packet *packet)
{
	u8 *at = (u8 *)(unsigned long)ctx->data;

	packet->end = (u8 *)(unsigned long)ctx->data_end;
	packet->ethernet = (void *)at;
	packet->ip = (void *)(packet->ethernet + 1);
	packet->udp = (void *)(packet->ip + 1);
	packet->frame = (void *)(packet->udp + 1);
	return packet->frame <= packet->end && packet->ethernet->type == BE16(0x0800) &&
	       packet->ip->version_ihl == 0x45 && packet->ip->protocol == 17 &&
	       (packet->ip->fragment & BE16(0x3fff)) == 0;
}

/* Whether a datagram is for this switch. */
INLINE int is_ours(const struct packet *packet, const struct control *control)
{
	return packet->udp->dst == control->listen_port &&
	       (control->listen_addr == 0 || packet->ip->dst == control->listen_addr);
}

INLINE u32 sum_halves(u32 word) { return (word & 0xffff) + (word >> 16); }

/* Sends a frame to the neighbour at `port`. */
INLINE int send(struct packet *packet, const struct control *control, const struct output *output,
		u32 port, u32 verdict)
{
	struct ipv4 *ip = packet->ip;
	u32 sum;

	__builtin_memcpy(packet->ethernet->dst, output->dst, 12);
	ip->fragment = BE16(0x4000);
	ip->ttl = 64;
	ip->protocol = 17;
	ip->src = output->saddr;
	ip->dst = output->daddr;
	sum = (ip->version_ihl | ip->tos << 8) + ip->total_len + ip->id + ip->fragment +
	      (ip->ttl | ip->protocol << 8) + sum_halves(ip->src) + sum_halves(ip->dst);
	sum = sum_halves(sum);
	ip->check = ~sum_halves(sum);
	packet->udp->src = control->listen_port;
	packet->udp->dst = output->dport;
	/* The check over the payload is that of the frame itself. */
	packet->udp->check = 0;
	/* A neighbour without a device gets nothing. */
	if (redirect_map(&devices, port, XDP_DROP) != XDP_REDIRECT)
		return count(DROPPED_OUTPUT, XDP_DROP);
	return count(verdict, XDP_REDIRECT);
}

/* Sends what the daemon has written into the generator's device. The last octets of the Ethernet
 * source say what it is: a command, a port, and a number. */
INLINE int generate(struct packet *packet, const struct control *settings,
		    struct registers *state)
{
	const u8 *command = packet->ethernet->src;
	u32 port = port_index(command[3]);
	struct output_register *advertised_at;
	const struct output *output;
	struct header header;
	struct promises promises = {};
	u32 class;

	if (command[2] == 1) {
		const u8 *generation = packet->ethernet->dst + 2;

		if (!read_header(packet->frame, packet->end, &header))
			return count(DROPPED_TRUNCATED, XDP_DROP);
		release(&state->links[port_index(port)], generation[0] << 8 | generation[1],
			command[4] << 8 | command[5], barrier_of(&header), commit_of(&header));
		return count(RELEASED, XDP_DROP);
	}
	output = map_lookup(&outputs, &port);
	advertised_at = map_lookup(&advertised, &port);
	if (!output || !advertised_at || output->generation == 0)
		return count(DROPPED_OUTPUT, XDP_DROP);
	if (!read_header(packet->frame, packet->end, &header))
		return count(DROPPED_TRUNCATED, XDP_DROP);
	class = OPCODE_CLASSES[opcode_of(&header)];
	if (class == CLASS_BEACON || class == CLASS_ORDERED || class == CLASS_SHARED) {
		int is_fed = minimum(port, &promises);

		if (class == CLASS_BEACON && flags_of(&header) & FLAG_UNFED) {
			/* The daemon has not seen yet that an input feeds the output. */
			if (is_fed)
				return count(DROPPED_OUTPUT, XDP_DROP);
			promises.barrier = barrier_of(&header);
			promises.commit = commit_of(&header);
			advertise_unfed(advertised_at, output->generation, &promises);
		} else if (is_fed) {
			advertise(advertised_at, output->generation, &promises);
		} else {
			/* No input is left that the daemon still counts. */
			return count(DROPPED_OUTPUT, XDP_DROP);
		}
		set_promises(&header, promises.barrier, promises.commit);
	}
	if (!write_header(packet->frame, packet->end, &header))
		return count(DROPPED_TRUNCATED, XDP_DROP);
	return send(packet, settings, output, port, SENT);
}

/* Lets a frame pass to its receiver. */
INLINE int forward(struct packet *packet, const struct control *control, struct header *header,
		   u32 input, u32 class)
{
	u32 dst = dst_of(header), port, verdict = FORWARDED;
	const u32 *route = map_lookup(&routes, &dst);
	struct output_register *advertised_at;
	const struct output *output;

	if (route)
		port = *route;
	else if (control->up_port != NO_PORT)
		/* From above it leads back, and is dropped below. */
		port = control->up_port;
	else
		/* The daemon learns from it where its sender is. */
		return count(UNKNOWN_RECEIVER, XDP_PASS);
	if (port == input)
		return count(DROPPED_BACK, XDP_DROP);
	output = map_lookup(&outputs, &port);
	advertised_at = map_lookup(&advertised, &port);
	if (!output || !advertised_at || output->generation == 0)
		return count(DROPPED_OUTPUT, XDP_DROP);
	if (class == CLASS_ORDERED) {
		struct promises promises = {};

		if (minimum(port, &promises)) {
			advertise(advertised_at, output->generation, &promises);
		} else if (advertised_at->generation == output->generation) {
			promises.barrier = advertised_at->barrier;
			promises.commit = advertised_at->commit;
			verdict = FORWARDED_UNFED;
		} else {
			/* A quarter of the ring ago: it raises nothing anywhere. */
			promises.barrier = (control->reference - (1ull << 46)) & TIME_MASK;
			promises.commit = promises.barrier;
			verdict = FORWARDED_UNFED;
		}
		set_promises(header, promises.barrier, promises.commit);
	}
	if (hops_of(header) == 0)
		return count(DROPPED_HOPS, XDP_DROP);
	header->w0 -= 1 << 24;
	if ((packet->ip->tos & 3) == 3)
		/* A queue on the link has marked the datagram. */
		header->w0 |= FLAG_CONGESTION << 16;
	if (!write_header(packet->frame, packet->end, header))
		return count(DROPPED_TRUNCATED, XDP_DROP);
	return send(packet, control, output, port, verdict);
}

/* Notes where a joiner is, and passes it up. */
INLINE int pass_unknown(const struct packet *packet, const struct link_key *key,
			const struct header *header)
{
	struct joiner joiner;

	u8 opcode = opcode_of(header);

	if ((opcode == OPCODE_JOIN || opcode == OPCODE_JOIN_ANSWER) && version_of(header) >= VERSION) {
		__builtin_memcpy(joiner.dst, packet->ethernet->dst, 12);
		joiner.daddr = packet->ip->dst;
		map_update(&joiners, key, &joiner, 0);
	} else if (header->w3 >> 32 != 0) {
		/* It would pass for the number of a frame for the daemon to replicate. */
		return count(DROPPED_MALFORMED, XDP_DROP);
	}
	return count(UNKNOWN_LINK, XDP_PASS);
}

INLINE int handle(struct xdp_md *ctx)
{
	struct packet packet;
	struct link_key key;
	struct header header;
	struct link_register *link_register;
	struct registers *state;
	const struct control *settings;
	const struct link *link;
	u32 zero = 0, class, port, frame_len;
	u64 ahead;

	settings = map_lookup(&control, &zero);
	state = map_lookup(&registers, &zero);
	if (!settings || !state || !find_headers(ctx, &packet))
		return XDP_PASS;
	if (ctx->ingress_ifindex == settings->generator && settings->generator != 0)
		return generate(&packet, settings, state);
	if (!is_ours(&packet, settings))
		return count(NOT_OURS, XDP_PASS);
	/* The frame is sealed apart, and what was changed here would not fit the datagram's check. */
	packet.udp->check = 0;
	frame_len = (u32)BE16(packet.udp->len) - sizeof(struct udp);
	if (BE16(packet.udp->len) + sizeof(struct ipv4) != BE16(packet.ip->total_len) ||
	    frame_len > (u64)(packet.end - packet.frame) ||
	    !read_header(packet.frame, packet.end, &header))
		return count(DROPPED_TRUNCATED, XDP_DROP);
	key.ifindex = ctx->ingress_ifindex;
	key.addr = packet.ip->src;
	key.port = packet.udp->src;
	link = map_lookup(&links, &key);
	if (!link)
		return pass_unknown(&packet, &key, &header);
	class = OPCODE_CLASSES[opcode_of(&header)];
	if (version_of(&header) != VERSION)
		/* Join and JoinAnswer of any version are for the daemon. */
		return class == CLASS_JOIN ? pass_unknown(&packet, &key, &header)
					   : count(DROPPED_MALFORMED, XDP_DROP);
	if (!is_intact(&header))
		return count(DROPPED_MALFORMED, XDP_DROP);
	if (class == CLASS_UNKNOWN)
		return count(DROPPED_OPCODE, XDP_DROP);
	if ((opcode_of(&header) < OPCODE_WITHOUT_TIMES ? HEADER_LEN : SHORT_HEADER_LEN) +
		    length_of(&header) > frame_len)
		return count(DROPPED_TRUNCATED, XDP_DROP);
	port = link->port;
	if (link->generation == 0 || link->generation != settings->generations[port_index(port)])
		return pass_unknown(&packet, &key, &header);
	if (class == CLASS_CONTROL)
		return count(CONTROL, XDP_PASS);
	if (class == CLASS_JOIN && length_of(&header) > 0)
		/* A request to be admitted counts nowhere. */
		return pass_unknown(&packet, &key, &header);
	if (!link->is_switch && (src_of(&header) != link->address ||
				 incarnation_of(&header) != link->incarnation))
		return count(MISATTRIBUTED, XDP_PASS);
	if (class == CLASS_PLAIN)
		return forward(&packet, settings, &header, port, class);
	ahead = (later(barrier_of(&header), commit_of(&header)) - settings->reference) & TIME_MASK;
	if (is_after(settings->reference + ahead, settings->reference) &&
	    ahead > settings->ahead_ns_max)
		return count(DROPPED_AHEAD, XDP_DROP);
	link_register = &state->links[port_index(port)];
	if (class == CLASS_SHARED && dst_of(&header) == NO_ADDRESS) {
		/* The promise of the frame counts when the last copy has left. */
		if (link_register->generation != link->generation) {
			u64 past = (settings->reference - (1ull << 46)) & TIME_MASK;

			raise(link_register, link->generation, past, past);
		} else {
			link_register->frames++;
		}
		link_register->detoured = (link_register->detoured + 1) & 0xffff;
		if (packet.frame + SHORT_HEADER_LEN > packet.end)
			return count(DROPPED_TRUNCATED, XDP_DROP);
		stamp(packet.frame + 28, link->generation, link_register->detoured);
		return count(DETOURED, XDP_PASS);
	}
	if (class == CLASS_BEACON && flags_of(&header) & FLAG_UNFED) {
		mark_unfed(link_register, link->generation, barrier_of(&header));
		return count(CONSUMED, XDP_PASS);
	}
	raise(link_register, link->generation, barrier_of(&header), commit_of(&header));
	if (class == CLASS_BEACON || class == CLASS_JOIN)
		return count(CONSUMED, XDP_PASS);
	return forward(&packet, settings, &header, port, CLASS_ORDERED);
}

/* Handles a frame on the CPU on which it has arrived: for a switch whose frames all arrive on one
 * CPU, and for test runs. */
SECTION("xdp") int switch_direct(struct xdp_md *ctx) { return handle(ctx); }

/* Handles a frame on the CPU of the switch. */
SECTION("xdp/cpumap") int switch_frame(struct xdp_md *ctx) { return handle(ctx); }

/* Hands frames for the switch over to its CPU. */
SECTION("xdp") int enter(struct xdp_md *ctx)
{
	struct packet packet;
	const struct control *settings;
	u32 zero = 0;

	settings = map_lookup(&control, &zero);
	if (!settings || !find_headers(ctx, &packet))
		return XDP_PASS;
	if ((ctx->ingress_ifindex != settings->generator || settings->generator == 0) &&
	    !is_ours(&packet, settings))
		return count(NOT_OURS, XDP_PASS);
	return redirect_map(&cpus, settings->cpu, XDP_DROP);
}

/* Lets a device receive redirected frames: a veth does only while a program is attached to it. */
SECTION("xdp") int receive(struct xdp_md *ctx) { return XDP_PASS; }
