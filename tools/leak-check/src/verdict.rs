//! Whether a new object is a leak of this run.

use std::path::Path;

use crate::objects::Object;
use crate::owners::Owners;

/// Describes a leak with the test that left it; nothing if the object belongs to somebody else.
pub(crate) fn leak(object: &Object, owners: &Owners) -> Option<String> {
    let (tag, path) = (object.tag.as_deref(), object.path.as_deref());
    if let Some(test) = owners.test_of(tag, path) {
        return Some(format!("{}  (left by {test})", object.text));
    }
    let foreign = owners.is_foreign(tag, path) || of_a_living_test(object) || of_another_checkout(object);
    (!foreign).then(|| format!("{}  (of no known instance)", object.text))
}

/// Tests of single crates put their own pid into the tag (`t1234-5`): such an object belongs to a run that goes on.
fn of_a_living_test(object: &Object) -> bool {
    let tag = object.tag.as_deref().and_then(|tag| tag.strip_prefix('t')?.split_once('-'));
    tag.is_some_and(|(pid, _)| Path::new("/proc").join(pid).exists())
}

/// A command, or a helper of a daemon, that was started from another build than the one under test.
fn of_another_checkout(object: &Object) -> bool {
    let under_test = std::env::var_os("ROOST_BIN");
    let folder = under_test.as_deref().and_then(|program| Path::new(program).parent());
    let (Some(folder), Some(program)) = (folder, &object.program) else { return false };
    object.tag.is_none() && !program.starts_with(folder)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::owners::registered;

    fn object(tag: Option<&str>, path: Option<&str>) -> Object {
        Object { text: "thing".to_owned(), tag: tag.map(str::to_owned), path: path.map(PathBuf::from), program: None }
    }

    #[test]
    fn leak_is_named_with_its_test_and_foreign_objects_are_none() {
        let ours = registered("/var/tmp/roost-e2e-a/data\tlife::x\n");
        let owners = Owners::new(ours, [PathBuf::from("/var/lib/roost")].into_iter());
        let told = |path| leak(&object(None, Some(path)), &owners);
        assert_eq!(told("/var/tmp/roost-e2e-a/data/pool").as_deref(), Some("thing  (left by life::x)"));
        assert_eq!(told("/var/lib/roost/pool"), None);
        assert_eq!(told("/run/roost/router"), None);
        assert_eq!(told("/var/tmp/roost-e2e-b").as_deref(), Some("thing  (of no known instance)"));
        let of = |pid: u32| leak(&object(Some(&format!("t{pid}-1")), None), &owners);
        assert_eq!(of(std::process::id()), None, "its test still runs");
        assert!(of(u32::MAX).is_some());
    }
}
