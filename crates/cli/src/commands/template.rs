//! `roost template`

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCompleter;
use jiff::Timestamp;
use roost_client::{Client, TemplateProgress, TemplateStream, TemplateUpload, Upload};
use roost_model::{Capability, EngineChoice, ImportTemplate, PatchTemplate, TemplateDefaults, TemplateView};

use crate::args::ShowArgs;
use crate::commands::checkpoint::resolve;
use crate::copy::pack::{Owners, Packing};
use crate::output::{self, Columns, printable};
use crate::progress::Steps;
use crate::units::{show_age, show_size};
use crate::{code_interpreter, complete, pipes};

/// Defaults of a new template.
#[derive(Debug, Clone, Args)]
pub(crate) struct DefaultsArgs {
    /// Isolate its sandboxes with ENGINE unless they ask for another: `native`, `gvisor` or `auto`
    #[arg(long, value_name = "ENGINE", add = ArgValueCompleter::new(complete::engines))]
    engine: Option<EngineChoice>,
    /// Give root in its sandboxes capabilities unless they ask for others: `net-admin`, `net-raw`, both with a comma, or `none`
    #[arg(long = "cap", value_name = "CAPS", value_parser = Capability::parse_set, add = ArgValueCompleter::new(complete::capabilities))]
    capabilities: Option<BTreeSet<Capability>>,
}

impl DefaultsArgs {
    fn defaults(self) -> TemplateDefaults {
        TemplateDefaults { engine: self.engine, capabilities: self.capabilities, ..TemplateDefaults::default() }
    }
}

/// What to do with templates.
#[derive(Debug, Subcommand)]
pub(crate) enum TemplateCommand {
    /// List templates; -q prints their names
    #[command(after_help = "\
Example:
  roost template ls")]
    Ls {
        #[command(flatten)]
        show: ShowArgs,
    },
    /// Remove templates with all their tags, or single tags
    #[command(after_help = "\
Examples:
  roost template rm mine
  roost template rm mine:v1")]
    Rm {
        /// Names of templates
        #[arg(required = true, value_name = "TEMPLATE", add = ArgValueCompleter::new(complete::templates))]
        names: Vec<String>,
    },
    /// Give a version of a template further names; NAME:TAG starts sandboxes from it
    #[command(after_help = "\
Examples:
  roost template tag mine v1
  roost template tag mine:v2 stable default")]
    Tag {
        /// A template, or NAME:TAG for one of its versions
        #[arg(value_name = "TEMPLATE", add = ArgValueCompleter::new(complete::templates))]
        template: String,
        /// Tags; `default` is what NAME alone means
        #[arg(required = true, value_name = "TAG")]
        tags: Vec<String>,
    },
    /// Change what a template gives its sandboxes, from the next one on
    #[command(after_help = "\
Examples:
  roost template set base --engine gvisor
  roost template set base --engine default    that of the daemon's configuration")]
    Set {
        /// A template, or NAME:TAG for one of its versions
        #[arg(value_name = "TEMPLATE", add = ArgValueCompleter::new(complete::templates))]
        template: String,
        /// Isolate its sandboxes with ENGINE unless they ask for another: `native`, `gvisor`, `auto` or `default`
        #[arg(long, value_name = "ENGINE", add = ArgValueCompleter::new(complete::engines))]
        engine: String,
        /// Print everything, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a template of a root filesystem or a container image: a folder, a tar file (.gz too), or `-` for a stream
    #[command(after_help = "\
Examples:
  roost template import mine ./rootfs.tar.gz --user app --workdir /srv
  roost template import mine ./rootfs-folder --replace
  docker export some-container | roost template import mine -
  docker save python:3.11 | roost template import python:3.11 -

An image of `docker save`, or an OCI layout, brings its environment, user and folder with it.")]
    Import {
        /// The name it gets, or NAME:TAG
        name: String,
        /// A folder, a tar file or `-`
        source: PathBuf,
        /// Put it in the place of a template of that name; sandboxes made from the old one go on
        #[arg(long)]
        replace: bool,
        /// Run commands as USER unless they say otherwise
        #[arg(long, value_name = "USER")]
        user: Option<String>,
        /// Start commands in DIR unless they say otherwise
        #[arg(long, value_name = "DIR")]
        workdir: Option<String>,
        #[command(flatten)]
        defaults: DefaultsArgs,
    },
    /// Build a template by a recipe
    #[command(after_help = "\
Recipes:
  mini   busybox alone, made in a second
  base   Debian with Python, Node.js, git, a C compiler and more, made in minutes
  code-interpreter   base with Python kernels for E2B's code interpreter, named code-interpreter-v1

Examples:
  roost template build base
  roost template build code-interpreter
  roost template build mini --name small --replace")]
    Build {
        /// The recipe
        recipe: String,
        /// Name it; after its recipe otherwise
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        defaults: DefaultsArgs,
        /// Put it in the place of a template of that name; sandboxes made from the old one go on
        #[arg(long)]
        replace: bool,
    },
    /// Make a template of a checkpoint; what ran in it runs in every sandbox made from it
    #[command(after_help = "\
Examples:
  roost template promote ckp_01… warm
  roost template promote $(roost checkpoint box -q) warm --replace")]
    Promote {
        /// Id of the checkpoint, or unique start of it
        checkpoint: String,
        /// The name it gets
        name: String,
        /// Put it in the place of a template of that name; sandboxes made from the old one go on
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        defaults: DefaultsArgs,
    },
}

pub(crate) async fn template(client: &Client, wanted: TemplateCommand) -> anyhow::Result<()> {
    match wanted {
        TemplateCommand::Ls { show } => ls(client, show).await,
        TemplateCommand::Rm { names } => {
            for name in names {
                client.delete_template(&name).await?;
                output::line(name)?;
            }
            Ok(())
        }
        TemplateCommand::Tag { template, tags } => {
            let name = template.split(':').next().unwrap_or_default();
            for tag in tags {
                client.tag_template(&template, &tag).await?;
                output::line(format!("{name}:{tag}"))?;
            }
            Ok(())
        }
        TemplateCommand::Set { template, engine, json } => {
            let changed = client.patch_template(&template, &PatchTemplate { engine: Some(engine) }).await?;
            if json {
                return output::json(&changed);
            }
            Ok(output::line(format!("{template}  engine {}", show_engine(&changed)))?)
        }
        TemplateCommand::Import { name, source, replace, user, workdir, defaults } => {
            let DefaultsArgs { engine, capabilities } = defaults;
            import(client, &source, TemplateUpload { name, replace, user, workdir, engine, capabilities }).await
        }
        TemplateCommand::Build { recipe, name, replace, defaults } if recipe == code_interpreter::RECIPE => {
            let name = name.unwrap_or_else(|| code_interpreter::NAME.to_owned());
            show(&code_interpreter::build(client, name, replace, defaults.defaults()).await?)
        }
        TemplateCommand::Build { recipe, name, replace, defaults } => {
            let name = name.unwrap_or_else(|| recipe.clone());
            let defaults = defaults.defaults();
            let wanted = ImportTemplate { name, build: Some(recipe), replace, defaults, ..ImportTemplate::default() };
            follow(client.make_template(&wanted).await?).await
        }
        TemplateCommand::Promote { checkpoint, name, replace, defaults } => {
            let promote = Some(resolve(client, &checkpoint).await?);
            let defaults = defaults.defaults();
            let wanted = ImportTemplate { name, promote, replace, defaults, ..ImportTemplate::default() };
            follow(client.make_template(&wanted).await?).await
        }
    }
}

/// What isolates its sandboxes unless they ask for another.
fn show_engine(template: &TemplateView) -> String {
    template.defaults.engine.map_or_else(|| "default".to_owned(), |choice| choice.to_string())
}

async fn ls(client: &Client, show: ShowArgs) -> anyhow::Result<()> {
    let templates = client.list_templates().await?;
    if show.json {
        return output::json(&templates);
    }
    if show.quiet {
        // A template's name is what every command takes.
        for template in &templates {
            output::line(&template.name)?;
        }
        return Ok(());
    }
    let now = Timestamp::now();
    let mut columns =
        Columns::new(&["NAME", "SIZE", "AGE", "USER", "ENGINE", "SANDBOXES"], &["SIZE", "AGE", "SANDBOXES"]);
    for template in templates {
        let engine = show_engine(&template);
        columns.row([
            template.name,
            show_size(template.size),
            show_age(template.created_at, now),
            template.defaults.user.unwrap_or_else(|| "root".to_owned()),
            engine,
            template.sandboxes.to_string(),
        ]);
    }
    Ok(columns.print()?)
}

async fn import(client: &Client, source: &Path, wanted: TemplateUpload) -> anyhow::Result<()> {
    if source == Path::new("-") {
        let pieces = pipes::read_stdin().context("failed to read standard input")?;
        return follow(client.upload_template(&wanted, stream_of(pieces)).await?).await;
    }
    let found = std::fs::metadata(source).with_context(|| format!("failed to find `{}`", source.display()))?;
    if client.is_local() {
        // The daemon reads it where it lies, with owners and all.
        let path = source.canonicalize().with_context(|| format!("failed to find `{}`", source.display()))?;
        let path = path.to_str().with_context(|| format!("`{}` is not UTF-8", source.display()))?.to_owned();
        let TemplateUpload { user, workdir, engine, capabilities, .. } = wanted.clone();
        let defaults = TemplateDefaults { user, workdir, engine, capabilities, ..TemplateDefaults::default() };
        let wanted = ImportTemplate {
            name: wanted.name,
            path: Some(path),
            replace: wanted.replace,
            defaults,
            ..ImportTemplate::default()
        };
        return follow(client.make_template(&wanted).await?).await;
    }
    if found.is_dir() {
        let bar = indicatif::ProgressBar::hidden();
        let packing = Packing::start(source.to_owned(), Owners::Kept, bar)?;
        let (upload, outcome) = packing.into_parts();
        let made = client.upload_template(&wanted, upload).await;
        outcome.check().await?;
        return follow(made?).await;
    }
    if !found.is_file() {
        bail!("`{}` is neither a folder nor a file", source.display());
    }
    let file = tokio::fs::File::open(source).await.with_context(|| format!("failed to open `{}`", source.display()))?;
    follow(client.upload_template(&wanted, Upload::reader(file, Some(found.len()))).await?).await
}

fn stream_of(pieces: tokio::sync::mpsc::Receiver<std::io::Result<bytes::Bytes>>) -> Upload {
    Upload::stream(crate::copy::channel::stream(pieces), None)
}

/// Shows progress until the template is there.
async fn follow(mut stream: TemplateStream) -> anyhow::Result<()> {
    let mut steps = Steps::new();
    let mut done: Option<Box<TemplateView>> = None;
    while let Some(told) = stream.next().await? {
        match told {
            TemplateProgress::Progress { message, fraction } => steps.tell(&printable(&message), fraction),
            TemplateProgress::Done { template } => done = Some(template),
        }
    }
    steps.done();
    let Some(template) = done else { bail!("the daemon stopped before the template was done") };
    show(&template)
}

fn show(template: &TemplateView) -> anyhow::Result<()> {
    Ok(output::line(format!("{}  {}", template.name, show_size(template.size)))?)
}
