//! What people read when something is refused.

use std::error::Error;

use roost_host::HostError;
use roost_model::chain;

/// An error of the host in one line, with what to do about it.
pub(crate) fn of(error: &HostError) -> String {
    let said = chain(error as &(dyn Error + 'static));
    match error {
        HostError::SandboxNotFound { similar: Some(similar), .. } => format!("{said}; did you mean `{similar}`?"),
        HostError::SandboxNotFound { .. } => format!("{said}; `ssh roost@… ls` shows those there are"),
        HostError::StaysAsleep { name, .. } => format!("{said}: `ssh roost@… wake {name}`"),
        _ => said,
    }
}

/// For somebody none of whose keys is known.
pub(crate) fn nobody_knows(fingerprints: &[String]) -> String {
    if fingerprints.is_empty() {
        return "roost: passwords let nobody in here. Make a key with `ssh-keygen`, and have it let in on the host: \
            `roost key add ~/.ssh/id_ed25519.pub`"
            .to_owned();
    }
    let keys = fingerprints.join(", ");
    let (are, one) = if fingerprints.len() == 1 { ("is", "this key") } else { ("are", "these keys") };
    format!("roost: {one} {are} not known here: {keys}. Have one let in on the host: `roost key add FILE.pub`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_answered_with_a_guess() {
        let unknown = |similar: Option<&str>| HostError::SandboxNotFound {
            name: "wbe".to_owned(),
            similar: similar.map(str::to_owned),
        };
        assert_eq!(of(&unknown(Some("web"))), "no sandbox named `wbe`; did you mean `web`?");
        assert_eq!(of(&unknown(None)), "no sandbox named `wbe`; `ssh roost@… ls` shows those there are");
    }

    #[test]
    fn unknown_keys_are_named() {
        let one = nobody_knows(&["SHA256:abc".to_owned()]);
        assert!(one.starts_with("roost: this key is not known here: SHA256:abc."), "{one}");
        assert!(nobody_knows(&[]).contains("roost key add"));
    }
}
