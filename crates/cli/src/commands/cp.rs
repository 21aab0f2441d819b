//! `roost cp`

use clap::Args;
use clap::builder::ValueHint;
use roost_client::Client;

use crate::copy::download::Origin;
use crate::copy::spec::Place;
use crate::copy::upload::Target;
use crate::failure::hinted;

/// Copy files and folders into and out of a sandbox
///
/// One side is SANDBOX:PATH, the other a path here, or `-` for standard input or output. Folders are copied with
/// everything in them; into a folder of their name if the destination is there, as `cp -r` does. Modes are kept; what
/// comes in belongs to the sandbox's default user.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  roost cp ./file box:/tmp/             a file into a folder
  roost cp ./src box:/srv/app           a folder, as /srv/app or into it
  roost cp ./src/. box:/srv/app         its content alone
  roost cp a b c box:work/              several; relative paths start in the working folder
  roost cp box:/etc/os-release .
  roost cp box:/home/user ./backup
  echo hello | roost cp - box:/tmp/greeting
  roost cp box:/srv/app - | gzip > app.tar.gz")]
pub(crate) struct CpArgs {
    /// What to copy, then where to: paths here, SANDBOX:PATH, or `-`
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "TARGET"], value_hint = ValueHint::AnyPath)]
    places: Vec<String>,
    /// Give what comes in to OWNER, `user` or `user:group`
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
}

pub(crate) async fn cp(client: &Client, wanted: CpArgs) -> anyhow::Result<()> {
    let mut places: Vec<Place> = wanted.places.iter().map(|text| Place::parse(text)).collect();
    let Some(target) = places.pop() else { return Ok(()) };
    let several = places.len() > 1;
    for source in places {
        match (&source, &target) {
            (Place::Inside { sandbox, path }, Place::Here(here)) => {
                Origin { client, sandbox, path }.put(here, several).await?;
            }
            (Place::Inside { sandbox, path }, Place::Stream) => Origin { client, sandbox, path }.put_stream().await?,
            (source, Place::Inside { sandbox, path }) => {
                let owner = wanted.owner.as_deref();
                let target = Target { client, sandbox, path, owner, must_be_folder: several };
                match source {
                    Place::Here(here) => target.take(here).await?,
                    Place::Stream => target.take_stream().await?,
                    Place::Inside { .. } => {
                        let hint = "copy through here: `roost cp a:/x - | roost cp - b:/x`";
                        return Err(hinted("both sides are in sandboxes", hint));
                    }
                }
            }
            _ => return Err(hinted("neither side is in a sandbox", "write one side as SANDBOX:PATH")),
        }
    }
    Ok(())
}
