//! `roost config`

use clap::Args;
use serde_json::json;

use crate::args::SettingArgs;
use crate::config::Loaded;
use crate::output::{self, Columns};

/// Show the daemon's settings and where each comes from
#[derive(Debug, Args)]
#[command(after_help = "\
Settings come from defaults, roost.toml in the data folder, ROOST_… variables and flags, the later over the earlier.
A daemon that runs already keeps those it started with.

Examples:
  roost config
  ROOST_LISTEN=none roost config --data-dir /srv/roost

A roost.toml with everything in it:
  listen = \"127.0.0.1:7077\"
  tls_cert = \"/etc/roost/cert.pem\"
  tls_key = \"/etc/roost/key.pem\"
  domain = \"https://localhost:7077\"
  default_template = \"base\"
  default_engine = \"native\"
  pool_size = \"100g\"
  socket = \"/run/roost/roost.sock\"
  runtime_dir = \"/run/roost\"
  log = \"text\"
  [limits]
  cpus = 2
  memory = \"auto\"
  disk = \"20g\"
  pids = 4096
  [capabilities]
  default = []
  allowed = [\"net-admin\", \"net-raw\"]")]
pub(crate) struct ConfigArgs {
    #[command(flatten)]
    pub(crate) settings: SettingArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn config(loaded: &Loaded, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        let settings = loaded.settings.iter().map(|setting| {
            (setting.key.to_owned(), json!({"value": setting.value, "from": setting.origin.to_string()}))
        });
        return output::json(&settings.collect::<serde_json::Map<_, _>>());
    }
    let mut columns = Columns::new(&["SETTING", "VALUE", "FROM"], &[]);
    for setting in &loaded.settings {
        columns.row([setting.key.to_owned(), setting.value.clone(), setting.origin.to_string()]);
    }
    Ok(columns.print()?)
}
