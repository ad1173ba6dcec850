/* What the program uses of the kernel's stable interface, so that clang alone builds it. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;
typedef short s16;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

/* Values of enum xdp_action. */
enum { XDP_DROP = 1, XDP_PASS = 2, XDP_REDIRECT = 4 };

struct xdp_md {
	u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};

/* Values of enum bpf_map_type. */
enum { MAP_HASH = 1, MAP_ARRAY = 2, MAP_PERCPU_ARRAY = 6, MAP_LRU_HASH = 9, MAP_DEVMAP = 14, MAP_CPUMAP = 16 };

/* A map, described in the way that BTF loaders read. */
#define MAP(name, map_type, key_type, value_type, entries) \
	struct { \
		int (*type)[map_type]; \
		int (*max_entries)[entries]; \
		key_type *key; \
		value_type *value; \
	} name SECTION(".maps")

/* A map whose values are file descriptors. */
#define FD_MAP(name, map_type, value_len, entries) \
	struct { \
		int (*type)[map_type]; \
		int (*max_entries)[entries]; \
		int (*key_size)[4]; \
		int (*value_size)[value_len]; \
	} name SECTION(".maps")

/* Helpers, by their numbers in enum bpf_func_id. None is reserved for programs under the GPL. */
static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*const redirect_map)(void *map, u64 key, u64 flags) = (void *)51;

struct ethernet {
	u8 dst[6], src[6];
	u16 type;
} __attribute__((packed));

struct ipv4 {
	u8 version_ihl, tos;
	u16 total_len, id, fragment;
	u8 ttl, protocol;
	u16 check;
	u32 src, dst;
} __attribute__((packed));

struct udp {
	u16 src, dst, len, check;
} __attribute__((packed));

#define BE16(value) __builtin_bswap16(value)
#define BE32(value) __builtin_bswap32(value)
#define BE64(value) __builtin_bswap64(value)
