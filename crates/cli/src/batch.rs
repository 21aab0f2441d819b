//! The parts of `roost batch`: tasks read from a file, a folder that a run can be resumed from, signs of progress.

mod folder;
mod signs;
mod tasks;

pub(crate) use folder::{Begun, RunFolder};
pub(crate) use signs::Signs;
pub(crate) use tasks::read_tasks;
