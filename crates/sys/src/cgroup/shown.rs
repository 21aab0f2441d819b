//! The part of a group that its own processes may see, from outside and from inside.

use std::path::{Path, PathBuf};

use super::layout::Home;
use super::{Group, Layout};

impl Group {
    /// The places below `/sys/fs/cgroup` that [`Group::shown`] may name; an empty place is that folder itself.
    pub const PLACES: [&str; 6] = ["", "memory", "cpu", "cpuacct", "pids", "unified"];

    /// Returns the group's folders that say what it has and uses, each with the place where programs look for it.
    ///
    /// Where v2 serves everything a single folder takes the empty place.
    pub fn shown(&self) -> Vec<(PathBuf, &'static str)> {
        let layout = self.layout();
        if let [home @ Home::V2(_)] = layout.homes()[..] {
            return self.folder(Some(home)).map(|folder| (folder, "")).into_iter().collect();
        }
        let [_, memory, cpu, accounting, pids, unified] = Self::PLACES;
        let on_v1 =
            [(memory, &layout.memory), (cpu, &layout.cpu), (accounting, &layout.accounting), (pids, &layout.pids)];
        let on_v1 = on_v1.into_iter().filter(|(_, home)| matches!(home, Some(Home::V1(_))));
        let mut shown: Vec<_> = on_v1.filter_map(|(place, home)| Some((self.folder(home.as_ref())?, place))).collect();
        shown.extend(self.unified_folder().map(|folder| (folder, unified)));
        shown
    }
}

impl Layout {
    /// Finds the concerns of one group whose folders [`Group::shown`] put in their places below `at`.
    ///
    /// This is cheaper than [`Layout::detect`], which reads the whole table of mounts.
    pub fn of_shown(at: &Path) -> Self {
        let [_, memory, cpu, accounting, pids, unified] = Group::PLACES;
        let home = |place: &str, file: &str| {
            let own = at.join(place);
            if own.is_dir() {
                return Some(Home::V1(own));
            }
            [at.join(unified), at.to_owned()].into_iter().find(|folder| folder.join(file).exists()).map(Home::V2)
        };
        Self {
            memory: home(memory, "memory.max"),
            cpu: home(cpu, "cpu.max"),
            accounting: home(accounting, "cpu.stat"),
            pids: home(pids, "pids.max"),
            freezer: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cgroups;
    use super::*;

    fn shown(layout: Layout) -> Vec<(PathBuf, &'static str)> {
        Cgroups::new(layout, "roost-test").group("one").shown()
    }

    #[test]
    fn v2_group_takes_the_whole_view() {
        let home = Some(Home::V2("/c".into()));
        let layout = Layout {
            memory: home.clone(),
            cpu: home.clone(),
            accounting: home.clone(),
            pids: home.clone(),
            freezer: home,
        };
        assert_eq!(shown(layout), [("/c/roost-test/one".into(), "")]);
    }

    #[test]
    fn v1_group_has_a_folder_for_each_controller_and_none_for_the_freezer() {
        let v1 = |name: &str| Some(Home::V1(format!("/c/{name}").into()));
        let layout = Layout {
            memory: v1("memory"),
            cpu: v1("cpu,cpuacct"),
            accounting: v1("cpu,cpuacct"),
            pids: None,
            freezer: v1("freezer"),
        };
        let together = PathBuf::from("/c/cpu,cpuacct/roost-test/one");
        let memory = PathBuf::from("/c/memory/roost-test/one");
        assert_eq!(shown(layout), [(memory, "memory"), (together.clone(), "cpu"), (together, "cpuacct")]);
    }

    #[test]
    fn mixed_group_shows_v2_beside_v1() {
        let layout = Layout {
            memory: Some(Home::V1("/c/memory".into())),
            accounting: Some(Home::V2("/c/unified".into())),
            ..Layout::default()
        };
        let places: Vec<_> = shown(layout).into_iter().map(|(_, place)| place).collect();
        assert_eq!(places, ["memory", "unified"]);
    }

    #[test]
    fn inside_finds_what_was_shown() {
        let at = tempfile::tempdir().unwrap();
        let at = at.path();
        assert_eq!(Layout::of_shown(at), Layout::default());
        let make = |file: &str| {
            std::fs::create_dir_all(at.join(file).parent().unwrap()).unwrap();
            std::fs::write(at.join(file), "").unwrap();
        };
        for file in ["memory/memory.limit_in_bytes", "unified/cpu.stat", "unified/cpu.max"] {
            make(file);
        }
        let (v1, v2) = (Some(Home::V1(at.join("memory"))), Some(Home::V2(at.join("unified"))));
        let mixed = Layout { memory: v1, cpu: v2.clone(), accounting: v2, ..Layout::default() };
        assert_eq!(Layout::of_shown(at), mixed);
    }

    #[test]
    fn inside_of_v2_one_folder_serves_everything() {
        let at = tempfile::tempdir().unwrap();
        for file in ["memory.max", "cpu.max", "cpu.stat", "pids.max"] {
            std::fs::write(at.path().join(file), "").unwrap();
        }
        let home = Some(Home::V2(at.path().to_owned()));
        let layout = Layout::of_shown(at.path());
        assert_eq!([&layout.memory, &layout.cpu, &layout.accounting, &layout.pids], [&home; 4]);
    }

    #[test]
    fn every_place_is_known_beforehand() {
        let group = Cgroups::new(Layout::detect().unwrap(), "roost-test").group("one");
        assert!(group.shown().iter().all(|(_, place)| Group::PLACES.contains(place)));
    }
}
