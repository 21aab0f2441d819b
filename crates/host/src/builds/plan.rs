//! What a build does, decided without doing it: who and where each step runs, and what its result is remembered by.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Changes when the same steps would make something else than before.
const FORMAT: u32 = 1;

/// One step of a template's build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum BuildStep {
    /// Runs a line in a login shell.
    Run {
        /// The line.
        command: String,
        /// Who runs it; whoever is the user by then if absent.
        user: Option<String>,
    },
    /// Copies files that were handed in before.
    Copy {
        /// By which they were handed in.
        files: String,
        /// Which of them: a file, a folder, whose content is meant then, or a pattern.
        source: String,
        /// Where to.
        to: String,
        /// Who owns them: `user` or `user:group`; whoever is the user by then if absent.
        owner: Option<String>,
        /// Permission bits, octal; as they are if absent.
        mode: Option<String>,
    },
    /// Sets variables, for the steps that follow and for the template's sandboxes. Values may name earlier ones.
    Env {
        /// Names and values.
        variables: Vec<(String, String)>,
    },
    /// Makes a folder, in which the steps that follow and the template's sandboxes start.
    Workdir {
        /// The folder; relative to the one before.
        path: String,
    },
    /// Says who runs the steps that follow and the template's sandboxes.
    User {
        /// By name or number.
        user: String,
    },
}

/// A step with what was asked for it besides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedStep {
    /// What to do.
    pub step: BuildStep,
    /// Do it and all that follow even if the same was done before.
    #[serde(default)]
    pub force: bool,
}

/// What a build starts from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildFrom {
    /// A template: `name` or `name:tag`.
    Template(String),
    /// The template that a container image was imported as.
    Image(String),
}

/// Everything a build does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildPlan {
    /// What it starts from.
    pub from: BuildFrom,
    /// What is done one after the other.
    pub steps: Vec<PlannedStep>,
    /// A line that is started at the end and runs on in every sandbox made from the template.
    pub start: Option<String>,
    /// A line that is tried until it succeeds before the template is taken.
    pub ready: Option<String>,
    /// Do everything even if the same was done before.
    #[serde(default)]
    pub force: bool,
}

/// Who and where a step runs, and with what environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) user: String,
    pub(crate) workdir: Option<String>,
    pub(crate) env: BTreeMap<String, String>,
}

impl Standing {
    /// How things stand after a step.
    pub(crate) fn after(mut self, step: &BuildStep) -> Self {
        match step {
            BuildStep::Run { .. } | BuildStep::Copy { .. } => {}
            BuildStep::Env { variables } => {
                // All of one step see what was before it.
                let before = self.env.clone();
                self.env.extend(variables.iter().map(|(name, value)| (name.clone(), expand(value, &before))));
            }
            BuildStep::Workdir { path } => self.workdir = Some(self.place(path)),
            BuildStep::User { user } => self.user = expand(user, &self.env),
        }
        self
    }

    /// A path of a step as an absolute one.
    pub(crate) fn place(&self, path: &str) -> String {
        let expanded = expand(path, &self.env);
        let base = Path::new("/").join(self.workdir.as_deref().unwrap_or("/"));
        let mut plain = PathBuf::from("/");
        for part in base.join(&expanded).components() {
            match part {
                Component::ParentDir => {
                    plain.pop();
                }
                Component::Normal(name) => plain.push(name),
                _ => {}
            }
        }
        let text = plain.to_string_lossy().into_owned();
        // A slash at the end says that a folder is meant.
        if expanded.ends_with('/') && text != "/" { format!("{text}/") } else { text }
    }
}

/// A text with variables replaced as in a Dockerfile: `$name`, `${name}`, `${name:-else}`, `${name:+then}`, `\$`.
pub(crate) fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['$', '\\']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(escaped) = rest.strip_prefix("\\$") {
            out.push('$');
            rest = escaped;
            continue;
        }
        let found = rest.strip_prefix('$').and_then(|after| variable(after, env));
        match found {
            Some((value, after)) => {
                out.push_str(&value);
                rest = after;
            }
            None => {
                out.push_str(&rest[..1]);
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// The value of the variable that a text after a dollar sign begins with, and what follows it.
fn variable<'a>(text: &'a str, env: &BTreeMap<String, String>) -> Option<(String, &'a str)> {
    let value = |name: &str| env.get(name).cloned().unwrap_or_default();
    let Some(braced) = text.strip_prefix('{') else {
        let name = name_at(text)?;
        return Some((value(name), &text[name.len()..]));
    };
    let (inside, after) = braced.split_once('}')?;
    let name = name_at(inside)?;
    let (value, operation) = (value(name), &inside[name.len()..]);
    let value = match (operation, operation.get(..2)) {
        ("", _) => value,
        (_, Some(":-")) if value.is_empty() => operation[2..].to_owned(),
        (_, Some(":-")) => value,
        (_, Some(":+")) if value.is_empty() => String::new(),
        (_, Some(":+")) => operation[2..].to_owned(),
        _ => return None,
    };
    Some((value, after))
}

fn name_at(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    let name = &text[..end];
    (!name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit())).then_some(name)
}

/// What a template as it is, without a step, is remembered by.
pub(crate) fn base_key(base: &str) -> String {
    blake3::hash(format!("{FORMAT} {base}").as_bytes()).to_hex().to_string()
}

/// What the state after each step is remembered by: the same steps on the same template, in the same order.
pub(crate) fn keys(base: &str, steps: &[PlannedStep]) -> Vec<String> {
    let mut parent = base_key(base);
    let mut keys = Vec::with_capacity(steps.len());
    for planned in steps {
        let step = serde_json::to_string(&planned.step).unwrap_or_default();
        parent = blake3::hash(format!("{parent}\n{step}").as_bytes()).to_hex().to_string();
        keys.push(parent.clone());
    }
    keys
}

/// How many steps from the first on may be taken from what was done before.
pub(crate) fn reusable(plan: &BuildPlan) -> usize {
    if plan.force {
        return 0;
    }
    plan.steps.iter().position(|planned| planned.force).unwrap_or(plan.steps.len())
}

impl BuildStep {
    /// Whether it leaves something on the disk.
    pub(crate) fn changes_files(&self) -> bool {
        matches!(self, Self::Run { .. } | Self::Copy { .. } | Self::Workdir { .. })
    }
}

/// The step as a person would write it.
impl std::fmt::Display for BuildStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Run { command, user: None } => write!(f, "RUN {command}"),
            Self::Run { command, user: Some(user) } => write!(f, "RUN (as {user}) {command}"),
            Self::Copy { source, to, .. } => write!(f, "COPY {source} {to}"),
            Self::Env { variables } => {
                let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
                write!(f, "ENV {}", names.join(" "))
            }
            Self::Workdir { path } => write!(f, "WORKDIR {path}"),
            Self::User { user } => write!(f, "USER {user}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn run(command: &str) -> PlannedStep {
        PlannedStep { step: BuildStep::Run { command: command.to_owned(), user: None }, force: false }
    }

    #[test]
    fn variables_are_replaced_as_in_a_dockerfile() {
        let env = env(&[("A", "one"), ("EMPTY", ""), ("B_2", "two")]);
        for (text, expected) in [
            ("$A/${B_2}x$A", "one/twoxone"),
            ("${NONE:-else} ${A:-else} ${EMPTY:-else}", "else one else"),
            ("${A:+then}${NONE:+then}", "then"),
            ("$NONE|${NONE}|", "||"),
            (r"\$A $ $1 ${ ${A", "$A $ $1 ${ ${A"),
            ("${A!}", "${A!}"),
            ("ä$Aä", "äoneä"),
            (r"\\", r"\\"),
        ] {
            assert_eq!(expand(text, &env), expected, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_expands_to_something(text in r"[a$\\{}:+A-]{0,24}") {
            let plain = !text.contains(['$', '\\']);
            let expanded = expand(&text, &env(&[("A", "one")]));
            proptest::prop_assert!(!plain || expanded == text);
        }

        #[test]
        fn no_path_leads_above_the_root(path in "[a-c./]{0,24}") {
            let standing = Standing { user: "root".into(), workdir: Some("/w".into()), env: BTreeMap::new() };
            let place = standing.place(&path);
            proptest::prop_assert!(place.starts_with('/') && !place.split('/').any(|part| part == ".."));
        }
    }

    #[test]
    fn steps_say_who_and_where_the_next_ones_are() {
        let start = Standing { user: "user".into(), workdir: Some("/home/user".into()), env: env(&[("P", "/bin")]) };
        let steps = [
            BuildStep::Env { variables: vec![("P".into(), "/x:$P".into()), ("Q".into(), "$P".into())] },
            BuildStep::Workdir { path: "app".into() },
            BuildStep::Workdir { path: "../srv$P".into() },
            BuildStep::User { user: "root".into() },
        ];
        let end = steps.iter().fold(start, Standing::after);
        assert_eq!(end.env, env(&[("P", "/x:/bin"), ("Q", "/bin")]), "one step sees what was before it");
        assert_eq!((end.user.as_str(), end.workdir.as_deref()), ("root", Some("/home/user/srv/x:/bin")));
        assert_eq!(end.place("/a/../b/"), "/b/");
        assert_eq!(end.place("../../.."), "/home/user");
    }

    #[test]
    fn a_key_depends_on_the_template_and_all_steps_before() {
        let steps = [run("a"), run("b")];
        let all = keys("tpl_1", &steps);
        assert_eq!(all, keys("tpl_1", &steps));
        assert_eq!(all[0], keys("tpl_1", &steps[..1])[0]);
        assert_ne!(all, keys("tpl_2", &steps));
        assert_ne!(all[1], keys("tpl_1", &[run("c"), run("b")])[1]);
        let forced = [PlannedStep { force: true, ..run("a") }, run("b")];
        assert_eq!(all, keys("tpl_1", &forced), "what was forced once can be used afterwards");
    }

    #[test]
    fn what_is_forced_is_done_again_with_all_that_follows() {
        let plan = |force, steps: &[bool]| BuildPlan {
            force,
            steps: steps.iter().map(|force| PlannedStep { force: *force, ..run("x") }).collect(),
            from: BuildFrom::Template("base".to_owned()),
            start: None,
            ready: None,
        };
        assert_eq!(reusable(&plan(false, &[false, false])), 2);
        assert_eq!(reusable(&plan(false, &[false, true, false])), 1);
        assert_eq!(reusable(&plan(true, &[false])), 0);
    }
}
