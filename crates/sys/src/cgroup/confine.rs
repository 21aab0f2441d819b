//! Confines a group's threads to some of the processors.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::layout::Home;
use super::{CgroupError, Group, read_value};

/// How often a group is searched for threads that were born meanwhile. A thread that is born of a confined one is confined, so
/// the second search usually finds none.
const SEARCHES: usize = 4;

/// Returns the numbers of the processors that the calling thread may run on.
pub fn own_processors() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|number| set.is_set(*number)).collect())
}

/// Confines the calling thread, and with it all that it starts, to these processors.
pub fn confine_self(processors: &[usize]) -> io::Result<()> {
    Ok(sched_setaffinity(None, &set_of(processors))?)
}

impl Group {
    /// Confines every thread of the group to these processors.
    pub fn confine(&self, processors: &[usize]) -> Result<(), CgroupError> {
        let Some(file) = self.threads_file() else { return Ok(()) };
        let set = set_of(processors);
        let mut done = BTreeSet::new();
        for _ in 0..SEARCHES {
            let threads: BTreeSet<i32> = read_value(&file)?.lines().filter_map(|line| line.parse().ok()).collect();
            let new: Vec<i32> = threads.difference(&done).copied().collect();
            if new.is_empty() {
                break;
            }
            for thread in new.iter().filter_map(|thread| Pid::from_raw(*thread)) {
                match sched_setaffinity(Some(thread), &set) {
                    // The thread has just ended.
                    Ok(()) | Err(Errno::SRCH) => {}
                    Err(error) => {
                        return Err(CgroupError::new("confine to processors", &file, io::Error::from(error)));
                    }
                }
            }
            done.extend(new);
        }
        Ok(())
    }

    fn threads_file(&self) -> Option<PathBuf> {
        let home = self.layout().homes().into_iter().next()?;
        let name = match home {
            Home::V1(_) => "tasks",
            Home::V2(_) => "cgroup.threads",
        };
        self.folder(Some(home)).map(|folder| folder.join(name))
    }
}

fn set_of(processors: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for number in processors.iter().filter(|number| **number < CpuSet::MAX_CPU) {
        set.set(*number);
    }
    set
}
