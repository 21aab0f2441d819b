//! Tests of the native engine on the real kernel; they need root.
#![forbid(unsafe_code)]

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod pool;
#[cfg(test)]
mod start;
#[cfg(test)]
mod support;
