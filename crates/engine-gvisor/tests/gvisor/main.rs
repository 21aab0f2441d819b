//! Tests of the gVisor engine on the real kernel; they need root and runsc, as `scripts/runsc` brings it.
#![forbid(unsafe_code)]

#[cfg(test)]
mod ahead;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod inside;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod network;
#[cfg(test)]
mod pause;
#[cfg(test)]
mod support;
