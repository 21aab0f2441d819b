//! What a build does, out of the form that E2B's clients send.

use roost_host::{BuildFrom, BuildPlan, BuildStep, PlannedStep};
use serde::Deserialize;

use super::names::template_name;
use crate::error::E2bError;

/// Everything that a build does.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StartBuild {
    #[serde(default)]
    from_image: Option<String>,
    #[serde(default)]
    from_template: Option<String>,
    #[serde(default)]
    force: Option<bool>,
    #[serde(default)]
    steps: Vec<Step>,
    #[serde(default)]
    start_cmd: Option<String>,
    #[serde(default)]
    ready_cmd: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Step {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    files_hash: Option<String>,
    #[serde(default)]
    force: Option<bool>,
}

impl StartBuild {
    /// The same in Roost's words.
    pub(crate) fn plan(self) -> Result<BuildPlan, E2bError> {
        let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        let from = match (given(self.from_template), given(self.from_image)) {
            (Some(template), None) => BuildFrom::Template(template_name(&template)?.to_string()),
            (None, Some(image)) => BuildFrom::Image(image),
            _ => return Err(E2bError::bad_request("give one of `fromTemplate` and `fromImage`")),
        };
        let steps = self.steps.into_iter().enumerate().map(|(place, step)| {
            let kind = step.kind.clone();
            let force = step.force.unwrap_or(false);
            let step =
                step.read().map_err(|why| E2bError::bad_request(format!("step {} ({kind}): {why}", place + 1)))?;
            Ok(PlannedStep { step, force })
        });
        Ok(BuildPlan {
            from,
            steps: steps.collect::<Result<_, E2bError>>()?,
            start: given(self.start_cmd),
            ready: given(self.ready_cmd),
            force: self.force.unwrap_or(false),
        })
    }
}

impl Step {
    fn read(self) -> Result<BuildStep, String> {
        let given = |place: usize| self.args.get(place).filter(|text| !text.is_empty()).cloned();
        let needed = |place: usize, what: &str| given(place).ok_or_else(|| format!("{what} is missing"));
        Ok(match self.kind.to_ascii_uppercase().as_str() {
            "RUN" => BuildStep::Run { command: needed(0, "the command")?, user: given(1) },
            "COPY" => BuildStep::Copy {
                files: self.files_hash.clone().ok_or("the hash of its files is missing")?,
                source: needed(0, "the source")?,
                to: needed(1, "the target")?,
                owner: given(2),
                mode: given(3).map(mode).transpose()?,
            },
            "ENV" => BuildStep::Env { variables: variables(&self.args)? },
            "WORKDIR" => BuildStep::Workdir { path: needed(0, "the folder")? },
            "USER" => BuildStep::User { user: needed(0, "the user")? },
            other => return Err(format!("`{other}` is none of RUN, COPY, ENV, WORKDIR and USER")),
        })
    }
}

fn mode(text: String) -> Result<String, String> {
    let octal = text.len() <= 5 && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    if octal { Ok(text) } else { Err(format!("`{text}` is not an octal mode")) }
}

fn variables(args: &[String]) -> Result<Vec<(String, String)>, String> {
    if args.is_empty() || !args.len().is_multiple_of(2) {
        return Err("names and values do not pair up".to_owned());
    }
    args.chunks_exact(2)
        .map(|pair| match pair {
            [name, value] if !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0') => {
                Ok((name.clone(), value.clone()))
            }
            _ => Err(format!("`{}` is not a valid environment variable", pair[0])),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(body: serde_json::Value) -> Result<BuildPlan, E2bError> {
        serde_json::from_value::<StartBuild>(body).unwrap().plan()
    }

    #[test]
    fn what_the_sdks_send_is_read() {
        let plan = plan(json!({
            "fromTemplate": "base", "force": false, "startCmd": "python app.py", "readyCmd": "",
            "steps": [
                {"type": "RUN", "args": ["make", "root"], "force": true},
                {"type": "COPY", "args": ["a.py", "/app/", "", "0755"], "filesHash": "ab", "force": false},
                {"type": "COPY", "args": ["a.py", "/app/", "user", ""], "filesHash": "ab"},
                {"type": "ENV", "args": ["A", "1", "B", ""]},
                {"type": "WORKDIR", "args": ["/app"]},
                {"type": "USER", "args": ["root"]},
            ],
        }))
        .unwrap();
        assert_eq!((plan.start.as_deref(), plan.ready, plan.force), (Some("python app.py"), None, false));
        assert_eq!(plan.from, BuildFrom::Template("base".into()));
        let [run, copy, owned, env, ..] = plan.steps.as_slice() else { panic!("{:?}", plan.steps) };
        assert_eq!(
            (&run.step, run.force),
            (&BuildStep::Run { command: "make".into(), user: Some("root".into()) }, true)
        );
        let copied = |owner: Option<&str>, mode: Option<&str>| BuildStep::Copy {
            files: "ab".into(),
            source: "a.py".into(),
            to: "/app/".into(),
            owner: owner.map(str::to_owned),
            mode: mode.map(str::to_owned),
        };
        assert_eq!((&copy.step, &owned.step), (&copied(None, Some("0755")), &copied(Some("user"), None)));
        assert_eq!(env.step, BuildStep::Env { variables: vec![("A".into(), "1".into()), ("B".into(), String::new())] });
    }

    #[test]
    fn what_makes_no_sense_says_which_step_it_is() {
        for (step, why) in [
            (json!({"type": "RUN", "args": []}), "step 1 (RUN): the command is missing"),
            (json!({"type": "COPY", "args": ["a", "b"]}), "the hash of its files is missing"),
            (json!({"type": "COPY", "args": ["a", "b", "", "u+x"], "filesHash": "ab"}), "not an octal mode"),
            (json!({"type": "ENV", "args": ["A"]}), "do not pair up"),
            (json!({"type": "ENV", "args": ["A=B", "c"]}), "not a valid environment variable"),
            (json!({"type": "ADD", "args": ["a"]}), "`ADD` is none of"),
        ] {
            let refused = plan(json!({"fromImage": "python:3", "steps": [step]})).unwrap_err();
            assert!(refused.message().contains(why), "{}", refused.message());
        }
        assert!(plan(json!({"steps": []})).is_err());
        assert!(plan(json!({"fromImage": "a", "fromTemplate": "b"})).is_err());
    }
}
