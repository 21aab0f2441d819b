//! Templates: immutable root images that sandboxes start from.
//!
//! ```text
//! <data>/templates/<name>/<digest>/image.erofs     the root, read-only for ever
//! <data>/templates/<name>/<digest>/template.json   what it is and what it gives its sandboxes
//! <data>/templates/<name>/<digest>-<id>/           the same of a promoted one: its base's image (a hard link), and in
//!                                                  the pool, by that id, what its sandboxes start with
//! <data>/templates/<name>/current -> <digest>      the one that new sandboxes start from
//! <data>/templates/<name>/tag-<tag> -> <digest>    the one that `name:tag` means
//! <data>/templates/.staging-<random>/              being made; swept at the next start unless its maker lives
//! <run>/templates/<digest>/                        the image, mounted once for all its sandboxes
//! ```
//!
//! A template appears by one rename of a whole, synced folder and one of the pointer. Replacing or removing it moves
//! the pointer only; an image that sandboxes still stand on stays until [`Templates::sweep`] finds it unused.

mod archive;
mod base;
mod copy;
mod erofs;
mod finalize;
mod import;
mod limits;
mod manifest;
mod mini;
mod oci;
mod promote;
mod staging;
mod store;
mod tools;
mod tree;
mod unpack;

pub use base::build_base;
pub use erofs::MountError;
pub use import::{Existing, ImportError, ImportSource, Progress, Stage};
pub use limits::TreeLimit;
pub use manifest::Template;
pub use mini::build_mini;
pub use promote::Promotion;
pub use store::{TemplateError, Templates};
pub use tools::{MissingTool, missing_tools};
