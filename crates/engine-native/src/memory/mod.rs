//! Saving and restoring memory and processes: CRIU, driven by a launcher.

mod contents;
mod dump;
mod image;
mod pagemap;
mod pages;
mod refusal;
mod restore;
mod settle;
mod tool;
mod watches;

pub(crate) use tool::Memory;
