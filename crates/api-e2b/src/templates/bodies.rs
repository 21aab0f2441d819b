//! What is sent and answered, in E2B's names.

use jiff::Timestamp;
use roost_host::{BuildLevel, BuildLine, BuildPart, BuildState, BuildView, HostConfig};
use roost_model::{LimitsRequest, Tag, TemplateTag, TemplateView};
use serde::{Deserialize, Serialize};

use super::names::uuid;
use crate::e2b::ENVD_VERSION;

const MIB: u64 = 1 << 20;

/// A template to build.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestBuild {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) tags: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) cpu_count: Option<u32>,
    #[serde(default, rename = "memoryMB")]
    pub(crate) memory_mb: Option<u64>,
}

impl RequestBuild {
    pub(crate) fn limits(&self) -> LimitsRequest {
        LimitsRequest {
            cpus: self.cpu_count.map(f64::from),
            memory: self.memory_mb.map(|mib| mib.saturating_mul(MIB)),
            ..LimitsRequest::default()
        }
    }
}

/// A build that was taken down.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestedBuild {
    #[serde(rename = "templateID")]
    template: String,
    #[serde(rename = "buildID")]
    build: String,
    public: bool,
    names: Vec<String>,
    tags: Vec<Tag>,
    aliases: Vec<String>,
}

impl From<BuildView> for RequestedBuild {
    fn from(view: BuildView) -> Self {
        let name = view.name.to_string();
        Self {
            template: name.clone(),
            build: uuid(&view.id),
            public: false,
            names: vec![name.clone()],
            tags: view.tags,
            aliases: vec![name],
        }
    }
}

/// A line of a build's log.
#[derive(Debug, Serialize)]
pub(crate) struct LogEntry {
    timestamp: Timestamp,
    level: &'static str,
    message: String,
    step: String,
}

impl From<BuildLine> for LogEntry {
    fn from(line: BuildLine) -> Self {
        let level = match line.level {
            BuildLevel::Info => "info",
            BuildLevel::Warn => "warn",
            BuildLevel::Error => "error",
        };
        Self { timestamp: line.at, level, message: line.message, step: step_name(line.part) }
    }
}

fn step_name(part: BuildPart) -> String {
    match part {
        BuildPart::Base => "base".to_owned(),
        BuildPart::Step(place) => place.to_string(),
        BuildPart::Finish => "finalize".to_owned(),
    }
}

/// How far a build has come.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BuildStatus {
    #[serde(rename = "templateID")]
    template: String,
    #[serde(rename = "buildID")]
    build: String,
    status: &'static str,
    /// Always empty: they are in `logEntries`.
    logs: [String; 0],
    log_entries: Vec<LogEntry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
}

/// Why a build failed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Reason {
    message: String,
    step: String,
    log_entries: [LogEntry; 0],
}

impl BuildStatus {
    pub(crate) fn of(view: BuildView, lines: Vec<BuildLine>) -> Self {
        let status = status_word(&view.state);
        let reason = match view.state {
            BuildState::Failed { message, part } => Some(Reason { message, step: step_name(part), log_entries: [] }),
            _ => None,
        };
        Self {
            template: view.name.to_string(),
            build: uuid(&view.id),
            status,
            logs: [],
            log_entries: lines.into_iter().map(LogEntry::from).collect(),
            reason,
        }
    }
}

fn status_word(state: &BuildState) -> &'static str {
    match state {
        BuildState::Waiting => "waiting",
        BuildState::Building => "building",
        BuildState::Ready => "ready",
        BuildState::Failed { .. } => "error",
    }
}

/// A template in a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Template {
    #[serde(rename = "templateID")]
    template: String,
    #[serde(rename = "buildID")]
    build: String,
    cpu_count: u32,
    #[serde(rename = "memoryMB")]
    memory_mb: u64,
    #[serde(rename = "diskSizeMB")]
    disk_size_mb: u64,
    public: bool,
    aliases: Vec<String>,
    names: Vec<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
    created_by: Option<()>,
    last_spawned_at: Option<Timestamp>,
    spawn_count: u64,
    build_count: usize,
    envd_version: &'static str,
    build_status: &'static str,
}

impl Template {
    pub(crate) fn of(view: &TemplateView, builds: usize, config: &HostConfig) -> Self {
        let limits = config.default_limits.at_most(&config.host_limits);
        let limits = view.defaults.limits.as_ref().map_or_else(|| limits.clone(), |own| limits.with(own));
        Self {
            template: view.name.clone(),
            build: uuid(&view.id),
            cpu_count: whole(limits.cpus),
            memory_mb: limits.memory / MIB,
            disk_size_mb: limits.disk / MIB,
            public: false,
            aliases: vec![view.name.clone()],
            names: vec![view.name.clone()],
            created_at: view.created_at,
            updated_at: view.created_at,
            created_by: None,
            last_spawned_at: None,
            spawn_count: view.sandboxes,
            build_count: builds,
            envd_version: ENVD_VERSION,
            build_status: "ready",
        }
    }
}

/// E2B counts whole processors.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of processors is small")]
fn whole(cpus: f64) -> u32 {
    cpus.ceil().clamp(1.0, 4096.0) as u32
}

/// A template with what was built for it.
#[derive(Debug, Serialize)]
pub(crate) struct TemplateWithBuilds {
    #[serde(flatten)]
    template: Template,
    builds: Vec<Build>,
}

/// A build in a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Build {
    #[serde(rename = "buildID")]
    build: String,
    status: &'static str,
    created_at: Timestamp,
    updated_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<Timestamp>,
    cpu_count: u32,
    #[serde(rename = "memoryMB")]
    memory_mb: u64,
    envd_version: &'static str,
}

impl TemplateWithBuilds {
    pub(crate) fn of(template: Template, builds: Vec<BuildView>) -> Self {
        let described = |view: BuildView| Build {
            build: uuid(&view.id),
            status: status_word(&view.state),
            created_at: view.created_at,
            updated_at: view.changed_at,
            finished_at: view.state.is_over().then_some(view.changed_at),
            cpu_count: view.limits.cpus.map_or(template.cpu_count, whole),
            memory_mb: view.limits.memory.map_or(template.memory_mb, |bytes| bytes / MIB),
            envd_version: ENVD_VERSION,
        };
        let builds = builds.into_iter().rev().map(described).collect();
        Self { template, builds }
    }
}

/// What a name means.
#[derive(Debug, Serialize)]
pub(crate) struct Alias {
    #[serde(rename = "templateID")]
    pub(crate) template: String,
    pub(crate) public: bool,
}

/// Tags to give to a version.
#[derive(Debug, Deserialize)]
pub(crate) struct AssignTags {
    pub(crate) target: String,
    pub(crate) tags: Vec<String>,
}

/// Tags that were given.
#[derive(Debug, Serialize)]
pub(crate) struct AssignedTags {
    pub(crate) tags: Vec<Tag>,
    #[serde(rename = "buildID")]
    pub(crate) build: String,
}

/// Tags to take away.
#[derive(Debug, Deserialize)]
pub(crate) struct RemoveTags {
    pub(crate) name: String,
    pub(crate) tags: Vec<String>,
}

/// A tag of a template.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TagView {
    tag: Tag,
    #[serde(rename = "buildID")]
    build: String,
    created_at: Timestamp,
}

impl From<TemplateTag> for TagView {
    fn from(known: TemplateTag) -> Self {
        Self { tag: known.tag, build: uuid(&known.template), created_at: known.since }
    }
}

#[cfg(test)]
mod tests {
    use roost_model::TemplateId;

    use super::*;

    #[test]
    fn a_failure_says_where_it_was() {
        let view = BuildView {
            id: TemplateId::generate(),
            name: "web".parse().unwrap(),
            tags: vec![Tag::default()],
            limits: LimitsRequest::default(),
            state: BuildState::Failed { message: "no".into(), part: BuildPart::Step(2) },
            created_at: Timestamp::UNIX_EPOCH,
            changed_at: Timestamp::UNIX_EPOCH,
        };
        let line = BuildLine {
            at: Timestamp::UNIX_EPOCH,
            level: BuildLevel::Warn,
            message: "hm".into(),
            part: BuildPart::Finish,
        };
        let shown = serde_json::to_value(BuildStatus::of(view, vec![line])).unwrap();
        assert_eq!((&shown["status"], &shown["reason"]["step"]), (&"error".into(), &"2".into()));
        assert_eq!(shown["logEntries"][0]["step"], "finalize");
        assert_eq!(shown["logEntries"][0]["timestamp"], "1970-01-01T00:00:00Z");
    }
}
