//! `INFO`: the state of the front and of the backend.

use onepipe_kv::Value;

use super::commands::bulk;
use super::service::Service;

/// The version of Redis whose commands and words the front has.
pub(super) const REDIS_VERSION: &str = "7.0.15";

/// Executes `INFO [section …]`.
pub(super) fn info(service: &Service, arguments: &[Vec<u8>]) -> Value {
    let is_asked = |name: &str| {
        let is_name = |word: &Vec<u8>| {
            [name, "all", "default", "everything"]
                .iter()
                .any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
        };
        arguments.len() == 1 || arguments[1..].iter().any(is_name)
    };
    let sections = sections(service);
    let asked = sections.into_iter().filter(|(name, _)| is_asked(name)).map(|(name, lines)| {
        let lines = lines.into_iter().map(|(name, value)| format!("{name}:{value}\r\n"));
        format!("# {name}\r\n{}", lines.collect::<String>())
    });
    bulk(asked.collect::<Vec<_>>().join("\r\n"))
}

type Section = (&'static str, Vec<(&'static str, String)>);

fn sections(service: &Service) -> Vec<Section> {
    let Service { options, counters, .. } = service;
    let uptime = service.since.elapsed().as_secs();
    let server = vec![
        ("redis_version", REDIS_VERSION.to_string()),
        ("redis_mode", "standalone".to_string()),
        ("onepipe_version", env!("CARGO_PKG_VERSION").to_string()),
        ("process_id", std::process::id().to_string()),
        ("tcp_port", service.local_address.port().to_string()),
        ("uptime_in_seconds", uptime.to_string()),
        ("uptime_in_days", (uptime / 86_400).to_string()),
    ];
    let clients = vec![
        ("connected_clients", service.clients.count().to_string()),
        ("maxclients", options.clients_max.to_string()),
    ];
    let stats = vec![
        ("total_connections_received", counters.connections.get().to_string()),
        ("rejected_connections", counters.rejected_connections.get().to_string()),
        ("total_commands_processed", counters.commands.get().to_string()),
        ("total_transactions", counters.transactions.get().to_string()),
        ("failed_transactions", counters.failed_transactions.get().to_string()),
        ("total_net_input_bytes", counters.input_bytes.get().to_string()),
        ("total_net_output_bytes", counters.output_bytes.get().to_string()),
        (
            "client_output_buffer_limit_disconnections",
            counters.closed_at_output_max.get().to_string(),
        ),
    ];
    let replication =
        vec![("role", "master".to_string()), ("connected_slaves", options.replicas.to_string())];
    let mut backend = vec![("shards", service.backend.shards().to_string())];
    backend.extend(service.backend.info());
    vec![
        ("Server", server),
        ("Clients", clients),
        ("Stats", stats),
        ("Replication", replication),
        ("Cluster", vec![("cluster_enabled", "0".to_string())]),
        ("Onepipe", backend),
    ]
}
