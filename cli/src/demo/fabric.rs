//! What connects the processes of a demo: shared memory, or a software switch as a process.

use anyhow::{Context, Result};

use super::messages::FabricAddress;
use super::{Arguments, Transport};
use crate::child_process::{ChildProcess, TemporaryStore};

/// The fabric with its own processes. Declared after the workers in a scenario, and so dropped
/// after them: a segment becomes stale when its last process has ended.
pub struct Fabric {
    pub address: FabricAddress,
    controller: Option<(ChildProcess, TemporaryStore)>,
    switch: Option<ChildProcess>,
}

impl Fabric {
    /// Starts a fabric for the processes of a demo; with a switch, waits until it listens.
    pub fn start(arguments: &Arguments) -> Result<Self> {
        let name = format!("demo-{}", std::process::id());
        let (address, switch) = match arguments.transport {
            Transport::Shm => (FabricAddress::SharedMemory(name), None),
            Transport::Udp => start_switch(arguments)?,
        };
        Ok(Self { address, controller: None, switch })
    }

    /// Starts the controller as `process` and waits until it is active.
    pub fn start_controller(&mut self, process: u32) -> Result<()> {
        let store = TemporaryStore::new("onepipe-demo-");
        let (kind, name) = match &self.address {
            FabricAddress::SharedMemory(name) => ("--fabric", name.clone()),
            FabricAddress::Switch(address) => ("--udp", address.to_string()),
        };
        let (controllers, path) = (format!("{process}:1"), store.path());
        #[rustfmt::skip]
        let arguments = [
            "controller", kind, &name, "--controllers", &controllers, "--store", &path,
            "--status-listen", "127.0.0.1:0", "--exit-on-stdin-eof", "--remove-store",
        ];
        let controller = ChildProcess::start("the controller".to_string(), &arguments)?;
        let (controller, _) = self.controller.insert((controller, store));
        controller.wait_for_line("active", drop).map(|_| ())
    }

    pub fn children(&mut self) -> impl Iterator<Item = &mut ChildProcess> {
        let controller = self.controller.as_mut().map(|(controller, _)| controller);
        controller.into_iter().chain(&mut self.switch)
    }
}

fn start_switch(arguments: &Arguments) -> Result<(FabricAddress, Option<ChildProcess>)> {
    let listen = if arguments.ipv6 { "[::1]:0" } else { "127.0.0.1:0" };
    let processes = (arguments.processes + u32::from(arguments.reliable)).to_string();
    let controllers = format!("{}:1", arguments.processes);
    let mut options = vec!["switch", "--listen", listen, "--processes", &processes];
    if arguments.reliable {
        options.extend(["--controllers", &controllers]);
    }
    options.push("--exit-on-stdin-eof");
    let mut switch = ChildProcess::start("the switch".to_string(), &options)?;
    let line = switch.wait_for_line("listening at ", drop)?;
    let address = line.rsplit(' ').next().and_then(|text| text.parse().ok());
    let address = address.with_context(|| format!("the switch printed {line:?}"))?;
    Ok((FabricAddress::Switch(address), Some(switch)))
}

impl Drop for Fabric {
    fn drop(&mut self) {
        (self.controller, self.switch) = (None, None);
        // The last process to leave removes its own segment; killed processes do not. A segment
        // that cannot be removed now is left to the next demo.
        let _ = onepipe_transport_shm::remove_stale_segments();
    }
}
