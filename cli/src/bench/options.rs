//! The options of each benchmark, from the arguments of the command.

use clap::ValueEnum;
use onepipe_bench_micro::{
    AmcastOptions, ArbiterOptions, BulkMemory, BulkOptions, LightOptions, MemoryOptions,
    RealtimeOptions, TableOptions,
};

use super::{Arguments, Memory, Transport};

pub(super) fn light_options(arguments: &Arguments, defaults: LightOptions) -> LightOptions {
    let processes = arguments.processes.unwrap_or(defaults.processes);
    if !(2..=64).contains(&processes) {
        crate::usage_error("bench idle and light take 2 to 64 processes");
    }
    LightOptions {
        processes,
        is_udp: arguments.transport != Some(Transport::Shm),
        has_fixed_interval: arguments.fixed_interval,
        idle: arguments.idle.idle(),
        rate: arguments.rate.map_or(defaults.rate, f64::from),
        bytes: arguments.size.first().copied().unwrap_or(defaults.bytes),
        runs: arguments.runs.map_or(defaults.runs, |runs| runs as usize),
        seconds: arguments.seconds.unwrap_or(defaults.seconds),
        ..defaults
    }
}

pub(super) fn memory_options(arguments: &Arguments) -> MemoryOptions {
    let defaults = MemoryOptions::default();
    MemoryOptions {
        is_udp: arguments.transport == Some(Transport::Udp),
        bytes: arguments.size.first().copied().unwrap_or(defaults.bytes),
        window: arguments.window.unwrap_or(defaults.window),
        runs: arguments.runs.map_or(defaults.runs, |runs| runs as usize),
        seconds: arguments.seconds.unwrap_or(defaults.seconds),
    }
}

pub(super) fn table_options(arguments: &Arguments) -> TableOptions {
    let defaults = TableOptions::default();
    let replicas = arguments.replicas.map(|replicas| vec![replicas as u32]);
    TableOptions {
        is_udp: arguments.transport == Some(Transport::Udp),
        replicas: replicas.unwrap_or(defaults.replicas),
        value_len: arguments.size.first().copied().unwrap_or(defaults.value_len),
        window: arguments.window.unwrap_or(defaults.window),
        runs: arguments.runs.map_or(defaults.runs, |runs| runs as usize),
        seconds: arguments.seconds.unwrap_or(defaults.seconds),
    }
}

pub(super) fn bulk_options(arguments: &Arguments) -> BulkOptions {
    let mut options = match arguments.between_nodes {
        true => BulkOptions::nodes(),
        false => BulkOptions::loopback(),
    };
    if let Some(processes) = arguments.processes {
        if !(2..=16).contains(&processes) {
            crate::usage_error("bench bulk takes 2 to 16 processes");
        }
        options.processes = vec![processes];
    }
    if !arguments.size.is_empty() {
        options.bytes.clone_from(&arguments.size);
    }
    if let Some(transport) = arguments.transport {
        let name = transport.to_possible_value();
        let carrier = name.and_then(|name| onepipe::Carrier::by_name(name.get_name()));
        options.carrier = carrier.unwrap_or_else(|| {
            let names: Vec<&str> = onepipe::Carrier::ALL.iter().map(|it| it.name()).collect();
            crate::usage_error(&format!("bench bulk supports --transport {}", names.join(", ")))
        });
    }
    if let Some(block) = arguments.block {
        match u32::try_from(block) {
            Ok(bytes @ 1..) => options.block_len = bytes,
            _ => crate::usage_error("--block must be 1 byte to 4 GiB"),
        }
    }
    options.node_mbit = arguments.link_mbit;
    options.memory = match arguments.memory {
        Memory::Private => BulkMemory::Private,
        Memory::Shared => BulkMemory::Shared,
        Memory::Mapped => BulkMemory::Mapped,
    };
    options.has_slow_link = arguments.slow_link;
    options.runs = arguments.runs.map_or(options.runs, |runs| runs as usize);
    options
}

pub(super) fn amcast_options(arguments: &Arguments) -> AmcastOptions {
    let mut options = AmcastOptions::default();
    options.window = arguments.window.unwrap_or(options.window);
    options.replicas = arguments.replicas.unwrap_or(1) as usize;
    options.runs = arguments.runs.map_or(options.runs, |runs| runs as usize);
    options.seconds = arguments.seconds.unwrap_or(options.seconds);
    if !arguments.groups.is_empty() {
        options.groups.clone_from(&arguments.groups);
    }
    if !arguments.size.is_empty() {
        options.bytes.clone_from(&arguments.size);
    }
    options
}

pub(super) fn arbiter_options(arguments: &Arguments, is_path: bool) -> ArbiterOptions {
    let mut options = match is_path {
        true => ArbiterOptions::of_paths(),
        false => ArbiterOptions::default(),
    };
    if let Some(runs) = arguments.runs {
        options.runs = runs as usize;
        options.traces = runs;
    }
    if !arguments.nodes.is_empty() {
        options.nodes.clone_from(&arguments.nodes);
    }
    if !arguments.load.is_empty() {
        options.loads.clone_from(&arguments.load);
    }
    options.cores = arguments.cores.map_or(options.cores, |cores| cores as usize);
    options.batch_slots = arguments.batch;
    options.policy = arguments.policy.policy();
    options
}

pub(super) fn realtime_options(arguments: &Arguments) -> RealtimeOptions {
    let defaults = RealtimeOptions::default();
    let given = |given: &Vec<_>, default| if given.is_empty() { default } else { given.clone() };
    RealtimeOptions {
        runs: arguments.runs.map_or(defaults.runs, |runs| runs as usize),
        seconds: arguments.seconds.unwrap_or(defaults.seconds),
        nodes: given(&arguments.nodes, defaults.nodes),
        loads: if arguments.load.is_empty() { defaults.loads } else { arguments.load.clone() },
        slot_ns: arguments.slot_ns,
        lead_ns: arguments.lead,
        batch_slots: arguments.batch,
        policy: arguments.policy.policy(),
        cores: arguments.cores.map_or(defaults.cores, |cores| cores as usize),
    }
}
