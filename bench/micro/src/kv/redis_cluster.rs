//! A Redis cluster of three masters on this machine.

use anyhow::Result;

use super::server::{Server, free_ports, output_of};

const NODES: usize = 3;

/// Starts the cluster, as the manual of Redis says, and waits until all nodes accept commands.
pub(super) fn start() -> Result<Server> {
    let mut server = Server::new(false)?;
    let ports = free_ports(2 * NODES)?;
    let (ports, buses) = ports.split_at(NODES);
    for (port, bus) in ports.iter().zip(buses) {
        let bus = bus.to_string();
        let settings = ["--cluster-enabled", "yes", "--cluster-port", &bus, "--appendonly", "no"];
        server.start_redis(*port, &settings)?;
    }
    server.wait_for_redis()?;
    let addresses: Vec<String> =
        (ports.iter().zip(buses)).map(|(port, bus)| format!("127.0.0.1:{port}@{bus}")).collect();
    let mut command = vec!["redis-cli", "--cluster", "create"];
    command.extend(addresses.iter().map(String::as_str));
    command.extend(["--cluster-replicas", "0", "--cluster-yes"]);
    output_of(&command)?;
    server.wait_for("the Redis cluster is up", |server| {
        let is_up = |port: &u16| {
            let info = output_of(&["redis-cli", "-p", &port.to_string(), "CLUSTER", "INFO"]);
            info.is_ok_and(|info| info.contains("cluster_state:ok"))
        };
        server.ports().iter().all(is_up).then_some(())
    })?;
    Ok(server)
}
