//! Shows the sandbox its own control groups, read-only, where programs look for their limits.
//!
//! The folders belong to the host, so a save names each of them as external and a restore shows it the new sandbox's:
//!
//! ```text
//! v2            /sys/fs/cgroup          the group's folder
//! v1 and mixed  /sys/fs/cgroup          an empty tmpfs with a folder for each of
//!               /sys/fs/cgroup/memory   the group's folder in that hierarchy
//! ```

use std::fs;
use std::io;
use std::path::Path;

use roost_sys::cgroup::Group;
use roost_sys::mount::{AttributeChange, DetachedMount, FsContext, MountAttrFlags};

use super::protocol::ShownGroup;

/// A view that is not attached yet. The part with the empty place comes first.
#[derive(Debug)]
pub(super) struct GroupView(Vec<(String, DetachedMount)>);

impl GroupView {
    /// Makes the view of these groups.
    pub(super) fn make(shown: &[ShownGroup]) -> io::Result<Self> {
        let read_only = AttributeChange::default().set(inert() | MountAttrFlags::MOUNT_ATTR_RDONLY);
        let mut parts = Vec::with_capacity(shown.len() + 1);
        if shown.iter().all(|group| !group.place.is_empty()) {
            let folder = FsContext::open("tmpfs")
                .and_then(|tmpfs| tmpfs.option("source", "cgroup")?.option("size", "4k")?.option("mode", "0755"))
                .and_then(|tmpfs| tmpfs.create_writable(inert()))
                .map_err(io::Error::other)?;
            for group in shown {
                fs::create_dir(folder.proc_path().join(&group.place))?;
            }
            folder.change(&read_only, false).map_err(io::Error::other)?;
            parts.push((String::new(), folder));
        }
        for group in shown {
            let folder = DetachedMount::clone_of(&group.folder).map_err(io::Error::other)?;
            folder.change(&read_only, false).map_err(io::Error::other)?;
            parts.push((group.place.clone(), folder));
        }
        Ok(Self(parts))
    }

    /// Attaches the view at a folder. A kernel without control groups has no such folder.
    pub(super) fn attach(&self, at: &Path) -> io::Result<()> {
        if !at.exists() {
            return Ok(());
        }
        self.0.iter().try_for_each(|(place, mount)| {
            let target = if place.is_empty() { at.to_owned() } else { at.join(place) };
            mount.attach(target).map_err(io::Error::other)
        })
    }

    /// Returns the parts under their names in an image.
    pub(super) fn parts(&self) -> impl Iterator<Item = (String, &DetachedMount)> {
        self.0.iter().map(|(place, mount)| (name(place), mount))
    }

    /// Returns every place that an image may have a part at, with the name of that part.
    pub(super) fn names() -> impl Iterator<Item = (&'static str, String)> {
        Group::PLACES.into_iter().map(|place| (place, name(place)))
    }
}

fn inert() -> MountAttrFlags {
    MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC
}

fn name(place: &str) -> String {
    format!("group-{}", if place.is_empty() { "view" } else { place })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_view_have_names_of_their_own() {
        let names: std::collections::BTreeSet<_> = GroupView::names().map(|(_, name)| name).collect();
        assert_eq!(names.len(), Group::PLACES.len());
        assert!(names.contains("group-view") && names.contains("group-memory"));
    }
}
