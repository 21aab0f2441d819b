//! The recipe of template `code-interpreter-v1`: Python kernels behind a small server, which E2B's code interpreter
//! speaks to.
//!
//! It is made in a sandbox like any other, by what every client can do: packages are installed, the server becomes a
//! service, and the moment when its first kernel waits for code is promoted. A sandbox made from it starts there.

use std::collections::VecDeque;

use anyhow::bail;
use roost_client::{Client, ClientError, ExecEvent, Upload, WriteOptions};
use roost_model::{
    CheckpointId, CreateCheckpoint, CreateSandbox, ErrorCode, ExecState, ImportTemplate, ServiceSpec, Span, StartExec,
    TemplateDefaults, TemplateView,
};

use crate::failure::hinted;
use crate::output::printable;
use crate::progress::Steps;

/// The word for it on the command line.
pub(crate) const RECIPE: &str = "code-interpreter";
/// The name by which E2B's packages ask for it.
pub(crate) const NAME: &str = "code-interpreter-v1";

const BASE: &str = "base";
const SERVICE: &str = "code-interpreter";
const PORT: u16 = 49999;
const FOLDER: &str = "/opt/code-interpreter";
const FILES: [(&str, &str); 4] = [
    ("server.py", include_str!("../assets/code_interpreter/server.py")),
    ("contexts.py", include_str!("../assets/code_interpreter/contexts.py")),
    ("environment.py", include_str!("../assets/code_interpreter/environment.py")),
    ("outputs.py", include_str!("../assets/code_interpreter/outputs.py")),
];
const INSTALL: &str = "export DEBIAN_FRONTEND=noninteractive
apt-get update &&
apt-get install -y --no-install-recommends python3-ipykernel python3-numpy python3-pandas python3-matplotlib &&
apt-get clean && rm -rf /var/lib/apt/lists/*";
/// Looking for fonts takes seconds, once per user.
const FIND_FONTS: &str = "python3 -c 'import matplotlib.font_manager'";
/// Should this process be killed, the sandbox goes by itself.
const LONGEST: u64 = 3600;
/// What is worth telling of a command that failed.
const LAST_LINES: usize = 20;

/// Makes the template.
pub(crate) async fn build(
    client: &Client,
    name: String,
    replace: bool,
    defaults: TemplateDefaults,
) -> anyhow::Result<TemplateView> {
    let there = client.list_templates().await?;
    let is_there = |wanted: &str| there.iter().any(|template| template.name == wanted);
    if is_there(&name) && !replace {
        let hint = "`--replace` puts the new one in its place";
        return Err(hinted(format!("template `{name}` exists already"), hint));
    }
    if !is_there(BASE) {
        let hint = "`roost template build base` makes it";
        return Err(hinted(format!("template `{BASE}`, which it starts from, is not there"), hint));
    }
    let wanted = CreateSandbox {
        template: Some(BASE.to_owned()),
        ttl: Some(Span::seconds(LONGEST)),
        engine: defaults.engine.map(|choice| choice.to_string()),
        capabilities: defaults.capabilities,
        ..CreateSandbox::default()
    };
    let sandbox = client.create_sandbox(&wanted).await?.id.to_string();
    let made = promote(client, &sandbox, name, replace).await;
    let removed = client.delete_sandbox(&sandbox).await;
    let template = made?;
    removed?;
    Ok(template)
}

async fn promote(client: &Client, sandbox: &str, name: String, replace: bool) -> anyhow::Result<TemplateView> {
    let mut steps = Steps::new();
    shell(client, sandbox, "root", INSTALL, &mut steps).await?;
    shell(client, sandbox, "user", FIND_FONTS, &mut steps).await?;
    steps.tell("starting the server", None);
    for (file, text) in FILES {
        let options = WriteOptions { owner: Some("root".to_owned()), mode: Some(0o644), ..WriteOptions::default() };
        client.write_file(sandbox, &format!("{FOLDER}/{file}"), Upload::bytes(text), &options).await?;
    }
    client.put_service(sandbox, SERVICE, &service()).await?;
    client.start_service(sandbox, SERVICE).await?;
    steps.tell("keeping the moment", None);
    let moment = moment(client, sandbox).await?;
    let wanted = ImportTemplate { name, promote: Some(moment.clone()), replace, ..ImportTemplate::default() };
    let made = async { client.make_template(&wanted).await?.finish().await }.await;
    // The template has all of it.
    client.delete_checkpoint(sandbox, moment.as_str()).await?;
    steps.done();
    Ok(made?)
}

fn service() -> ServiceSpec {
    ServiceSpec {
        argv: ["python3".to_owned(), format!("{FOLDER}/server.py")].into(),
        user: Some("user".to_owned()),
        port: Some(PORT),
        ..ServiceSpec::default()
    }
}

/// With memory where the host can save it; else the server starts with each sandbox, in a second or two.
async fn moment(client: &Client, sandbox: &str) -> Result<CheckpointId, ClientError> {
    let keep = async |files_only| {
        let wanted = CreateCheckpoint { comment: Some(RECIPE.to_owned()), files_only };
        client.create_checkpoint(sandbox, &wanted).await
    };
    let made = match keep(false).await {
        Err(error) if error.code() == Some(ErrorCode::EngineUnfit) => keep(true).await?,
        made => made?,
    };
    Ok(made.checkpoint.id)
}

/// Runs a line of shell that must succeed, and shows what it says.
async fn shell(client: &Client, sandbox: &str, user: &str, line: &str, steps: &mut Steps) -> anyhow::Result<()> {
    let start = StartExec { shell: Some(line.to_owned()), user: Some(user.to_owned()), ..StartExec::default() };
    let mut session = client.open_exec(sandbox, &start).await?;
    let mut last = VecDeque::new();
    while let Some(event) = session.next().await? {
        match event {
            ExecEvent::Output { bytes, .. } => {
                for text in String::from_utf8_lossy(&bytes).lines().filter(|text| !text.trim().is_empty()) {
                    let text = printable(text);
                    steps.tell(&text, None);
                    last.push_back(text);
                    if last.len() > LAST_LINES {
                        last.pop_front();
                    }
                }
            }
            ExecEvent::Exit(ExecState::Exited { exit_code: 0, .. }) => return Ok(()),
            ExecEvent::Exit(_) => break,
            ExecEvent::Created(_) | ExecEvent::Started(_) | ExecEvent::Gap { .. } => {}
        }
    }
    let said = Vec::from(last).join("\n");
    bail!("failed to prepare the sandbox of the template; its last words were:\n{said}")
}
