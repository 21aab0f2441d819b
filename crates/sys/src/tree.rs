//! Trees of folders of any depth and shape, without recursion.
//!
//! The depth of a tree is often the choice of a stranger. The walk and the removal here need the same stack and the same two
//! descriptors for every tree: a [`Descent`] goes down by one name and up by `..`, and remembers on the heap which folder it
//! came from. No link is followed, no mount is crossed, and no path is handed to the kernel, so `PATH_MAX` is no bound.
//!
//! Another process may change the tree meanwhile, for instance swap a folder with a link. Every step down is an `openat` with
//! `O_NOFOLLOW`, and a step up that does not arrive in the folder it came from is an error.

mod descent;
mod remove;
mod walk;

pub use descent::Descent;
pub use remove::{empty, remove, remove_at};
pub use walk::{At, Visitor, walk};
