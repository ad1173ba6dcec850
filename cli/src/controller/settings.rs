//! Settings of a controller: options, the environment and a file, in this order of precedence.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use onepipe_base::{Controllers, ProcessId};
#[cfg(feature = "etcd")]
use onepipe_daemon_controller::EtcdConfig;
use onepipe_daemon_controller::{Attachment, Config};
use onepipe_transport_driver::Idle;
use serde::Deserialize;

use crate::args::{address, controllers};
use crate::state_dir::DefaultStore;
use crate::units;

/// Default address of the status page.
pub const STATUS_LISTEN: &str = "127.0.0.1:4480";
const FABRIC: &str = "default";
/// Last process id of a segment of default size, 64 processes.
const LAST_OF_SEGMENT: u32 = 63;
/// Last process id behind a switch of default size, 1,024 processes.
const LAST_BEHIND_SWITCH: u32 = 1023;

/// Options of a controller, from whatever source.
#[derive(Clone, Debug, Default, Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ControllerOptions {
    /// File with these options in a table `[controller]`
    #[arg(long, value_name = "FILE", env = "ONEPIPE_CONFIG")]
    #[serde(skip)]
    config: Option<PathBuf>,
    /// Name of the fabric in shared memory [default: default]
    #[arg(long, value_name = "NAME", env = "ONEPIPE_FABRIC", conflicts_with = "udp")]
    fabric: Option<String>,
    /// Address of the switch or aggregator to join through, instead of shared memory
    #[arg(long, value_name = "ADDRESS", env = "ONEPIPE_SWITCH", value_parser = valid(address))]
    udp: Option<String>,
    /// Process ids of all controllers, like 1000 or 1000:3: the first, and how many [default: as
    /// stated by the switch, or by the first process in shared memory; 63 if this is the first]
    #[arg(long, value_name = "FIRST[:COUNT]", env = "ONEPIPE_CONTROLLERS",
          value_parser = valid(controllers))]
    controllers: Option<String>,
    /// Process id of this controller [default: the first of the controllers]
    #[arg(long, value_name = "ID", env = "ONEPIPE_PROCESS")]
    process: Option<u32>,
    /// File to store decisions in, which controllers on one machine may share; a file in /dev/shm
    /// is fast, and lost when the machine reboots [default: controller-FABRIC.redb in
    /// $STATE_DIRECTORY, $XDG_STATE_HOME/onepipe, ~/.local/state/onepipe or, for root,
    /// /var/lib/onepipe]
    #[arg(long, value_name = "FILE", env = "ONEPIPE_STORE", conflicts_with = "etcd")]
    store: Option<PathBuf>,
    /// Store decisions in etcd, for controllers on several machines: the URLs of the etcd members
    #[arg(long, value_name = "URL,...", env = "ONEPIPE_ETCD", value_delimiter = ',')]
    #[serde(default)]
    etcd: Vec<String>,
    /// Prefix of this fabric's keys in etcd [default: /onepipe/default/]
    #[arg(long, value_name = "TEXT", env = "ONEPIPE_ETCD_PREFIX", requires = "etcd")]
    etcd_prefix: Option<String>,
    /// Lease of the active controller in etcd: when the lease has expired, another one takes over
    /// [default: 5s]
    #[arg(long, value_name = "TIME", env = "ONEPIPE_LEASE", requires = "etcd",
          value_parser = valid(units::time_ns))]
    lease: Option<String>,
    /// Address of the HTTP status page [default: 127.0.0.1:4480]; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS", env = "ONEPIPE_STATUS_LISTEN",
          value_parser = valid(address))]
    status_listen: Option<String>,
    /// Busy-poll: fastest decisions, takes a whole core
    #[arg(long)]
    #[serde(default)]
    spin: bool,
}

/// The configuration file: a table for each command.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigFile {
    #[serde(default)]
    controller: ControllerOptions,
}

/// Where decisions are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreChoice {
    /// A local file; whether it is the default, whose folder is created.
    File { path: PathBuf, is_default: bool },
    /// An etcd cluster.
    #[cfg(feature = "etcd")]
    Etcd(EtcdConfig),
}

impl fmt::Display for StoreChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, .. } => write!(f, "{}", path.display()),
            #[cfg(feature = "etcd")]
            Self::Etcd(config) => write!(f, "etcd {}", config.endpoints.join(",")),
        }
    }
}

#[derive(Debug)]
pub struct Settings {
    pub config: Config,
    pub store: StoreChoice,
}

impl Settings {
    /// Reads the file, if one is given, and validates everything.
    pub fn resolve(options: &ControllerOptions) -> Result<Self> {
        let options = match &options.config {
            Some(path) => options.clone().or(read_file(path)?),
            None => options.clone(),
        };
        let attachment = match (&options.udp, &options.fabric) {
            (Some(switch), _) => Attachment::Switch(address(switch)?),
            (None, name) => Attachment::Segment(name.clone().unwrap_or_else(|| FABRIC.to_owned())),
        };
        let last_process = match attachment {
            Attachment::Switch(_) => LAST_BEHIND_SWITCH,
            Attachment::Segment(_) => LAST_OF_SEGMENT,
        };
        let controllers = match &options.controllers {
            Some(text) => controllers(text)?,
            // The fabric states which ids are those of controllers.
            None => {
                Controllers { first: ProcessId(options.process.unwrap_or(last_process)), count: 1 }
            }
        };
        let process = options.process.map_or(controllers.first, ProcessId);
        if !controllers.contains(process) {
            let (first, last) = (controllers.first.0, controllers.first.0 + controllers.count - 1);
            bail!(
                "--process {} is not the id of a controller: --controllers names {first} to {last}",
                process.0
            );
        }
        let mut config = Config::new(attachment, process, controllers);
        // The id of this replica may be the default.
        config.given.controllers = options.controllers.is_some().then_some(controllers);
        config.adopts_process = options.controllers.is_none() && options.process.is_none();
        let listen = options.status_listen.as_deref().unwrap_or(STATUS_LISTEN);
        config.status_listen = Some(address(listen)?);
        if options.spin {
            config.idle = Idle::Spin;
        }
        let store = options.store(&config.attachment)?;
        Ok(Self { config, store })
    }
}

impl ControllerOptions {
    /// Returns these options, with those of `file` where none is set.
    fn or(self, file: Self) -> Self {
        // Options that exclude each other are taken from one source.
        let has_attachment = self.fabric.is_some() || self.udp.is_some();
        let attachment =
            if has_attachment { (self.fabric, self.udp) } else { (file.fabric, file.udp) };
        let has_store = self.store.is_some() || !self.etcd.is_empty();
        let store = if has_store { (self.store, self.etcd) } else { (file.store, file.etcd) };
        Self {
            config: self.config,
            fabric: attachment.0,
            udp: attachment.1,
            controllers: self.controllers.or(file.controllers),
            process: self.process.or(file.process),
            store: store.0,
            etcd: store.1,
            etcd_prefix: self.etcd_prefix.or(file.etcd_prefix),
            lease: self.lease.or(file.lease),
            status_listen: self.status_listen.or(file.status_listen),
            spin: self.spin || file.spin,
        }
    }

    fn store(&self, attachment: &Attachment) -> Result<StoreChoice> {
        if self.etcd.is_empty() {
            if let Some(path) = self.store.clone() {
                return Ok(StoreChoice::File { path, is_default: false });
            }
            let of = match attachment {
                Attachment::Switch(address) => address.to_string(),
                Attachment::Segment(name) => name.clone(),
            };
            let path = DefaultStore { role: "controller", of: &of }.path()?;
            return Ok(StoreChoice::File { path, is_default: true });
        }
        ensure!(self.store.is_none(), "give either --store or --etcd, not both");
        self.etcd_store()
    }

    #[cfg(feature = "etcd")]
    fn etcd_store(&self) -> Result<StoreChoice> {
        let mut config = EtcdConfig::new(self.etcd.iter().cloned());
        if let Some(prefix) = &self.etcd_prefix {
            config.prefix.clone_from(prefix);
        }
        if let Some(lease) = &self.lease {
            // etcd leases have whole seconds.
            let seconds = units::time_ns(lease)?.div_ceil(1_000_000_000);
            config.lease_ttl_s = u32::try_from(seconds).context("--lease is too long")?;
        }
        Ok(StoreChoice::Etcd(config))
    }

    #[cfg(not(feature = "etcd"))]
    fn etcd_store(&self) -> Result<StoreChoice> {
        // A lease on the command line is valid; one in the file was not checked yet.
        if let Some(lease) = &self.lease {
            units::time_ns(lease)?;
        }
        bail!("this onepipe was built without etcd: build it with `--features etcd`")
    }
}

fn read_file(path: &Path) -> Result<ControllerOptions> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    let file: ConfigFile =
        toml::from_str(&text).with_context(|| format!("in {}", path.display()))?;
    Ok(file.controller)
}

/// Returns a clap parser that validates with `read` and keeps the text, as in the file.
fn valid<T>(
    read: impl Fn(&str) -> Result<T> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<String> + Clone + Send + Sync + 'static {
    move |text| read(text).map(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Result<ControllerOptions> {
        let path = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(path.path(), text).expect("write");
        read_file(path.path())
    }

    #[test]
    fn options_override_file_and_file_overrides_default() {
        let text = "[controller]\nudp = '127.0.0.1:4410'\ncontrollers = '1000:3'\nprocess = 1001\n\
                    store = '/var/lib/onepipe/lab.redb'\nspin = true\n";
        let options = ControllerOptions { process: Some(1002), ..ControllerOptions::default() };
        let options = options.or(file(text).expect("all keys are known"));
        let settings = Settings::resolve(&options).expect("valid settings");
        let machine = &settings.config.machine;
        assert_eq!((machine.process, machine.controllers.count), (ProcessId(1002), 3));
        assert_eq!(settings.config.idle, Idle::Spin);
        let path = "/var/lib/onepipe/lab.redb".into();
        assert_eq!(settings.store, StoreChoice::File { path, is_default: false });
        let switch = Attachment::Switch("127.0.0.1:4410".parse().expect("an address"));
        assert_eq!(settings.config.attachment, switch);
        let in_memory =
            ControllerOptions { fabric: Some("lab".to_owned()), ..ControllerOptions::default() };
        let in_memory = in_memory.or(file(text).expect("all keys are known"));
        assert_eq!(in_memory.udp, None, "the attachment comes from one source");
    }

    #[test]
    fn uses_defaults_without_options() {
        let settings = Settings::resolve(&ControllerOptions::default()).expect("valid defaults");
        assert_eq!(settings.config.machine.process, ProcessId(63));
        assert_eq!(settings.config.attachment, Attachment::Segment("default".to_owned()));
        assert_eq!(settings.config.status_listen, Some(address(STATUS_LISTEN).expect("valid")));
    }

    #[test]
    fn names_invalid_settings() {
        let error = |options: ControllerOptions| {
            format!("{:#}", Settings::resolve(&options).expect_err("invalid settings"))
        };
        let options = ControllerOptions {
            controllers: Some("1000:3".to_owned()),
            process: Some(7),
            ..ControllerOptions::default()
        };
        assert_eq!(
            error(options),
            "--process 7 is not the id of a controller: --controllers names 1000 to 1002"
        );
        for text in ["many", "", "1:", "1:0", "1048576", "4294967295:2"] {
            let options = ControllerOptions {
                controllers: Some(text.to_owned()),
                ..ControllerOptions::default()
            };
            assert!(error(options).starts_with(&format!("{text:?}")), "{text}");
        }
        let options = ControllerOptions {
            config: Some("/no/such/file".into()),
            ..ControllerOptions::default()
        };
        assert!(error(options).starts_with("cannot read /no/such/file"));
        let unknown = file("[controller]\nproces = 3\n").expect_err("a typing error");
        assert!(format!("{unknown:#}").contains("unknown field `proces`"), "{unknown:#}");
        let unknown = file("[controler]\n").expect_err("a typing error");
        assert!(format!("{unknown:#}").contains("unknown field `controler`"), "{unknown:#}");
    }
}
