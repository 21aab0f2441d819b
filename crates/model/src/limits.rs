//! What a sandbox may use at most.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Limits in force for a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Limits {
    /// CPUs, fractions allowed.
    pub cpus: f64,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes on disk.
    pub disk: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Bytes of all memory images of it; absent, twice `memory` and `disk` together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<u64>,
}

/// Limits as asked for; what is absent keeps its default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitsRequest {
    /// CPUs, fractions allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Bytes of memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Bytes on disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<u64>,
    /// Processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Bytes of all memory images of it: the one it sleeps in and those of its checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<u64>,
}

/// Why limits are not acceptable.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("limit `{which}` of {given} is not between {least} and {most}")]
pub struct LimitError {
    /// Which limit.
    pub which: &'static str,
    /// What was asked for.
    pub given: String,
    /// The smallest that works.
    pub least: String,
    /// The largest this host can give.
    pub most: String,
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The smallest default for memory, where the host has it: a package manager and a compiler need as much.
const LEAST_USUAL_MEMORY: u64 = 512 * MIB;
/// The largest default for memory: 2 GiB for each of the two CPUs of the default.
const MOST_USUAL_MEMORY: u64 = 4 * GIB;
/// Memory of the host that no default reaches into: for the daemon, its helpers and the system.
const RESERVED_MEMORY: u64 = 256 * MIB;

impl Default for Limits {
    fn default() -> Self {
        Self { cpus: 2.0, memory: 2 << 30, disk: 20 << 30, pids: 4096, images: None }
    }
}

impl Limits {
    /// The smallest limits with which a sandbox still starts.
    pub const LEAST: Self = Self { cpus: 0.01, memory: 16 * MIB, disk: MIB, pids: 16, images: Some(MIB) };

    /// The defaults on a host that has at most `host`. The memory is half of the host's, within bounds, and it is a limit and
    /// no reservation: a process that runs away reaches its sandbox's limit before the host runs out of memory.
    pub fn usual(host: &Self) -> Self {
        let memory = (host.memory / 2).clamp(LEAST_USUAL_MEMORY, MOST_USUAL_MEMORY);
        let bearable = host.memory.saturating_sub(RESERVED_MEMORY).max(Self::LEAST.memory);
        Self { memory: memory.min(bearable), ..Self::default() }.at_most(host)
    }

    /// These limits with what `wanted` names put in their place.
    pub fn with(&self, wanted: &LimitsRequest) -> Self {
        Self {
            cpus: wanted.cpus.unwrap_or(self.cpus),
            memory: wanted.memory.unwrap_or(self.memory),
            disk: wanted.disk.unwrap_or(self.disk),
            pids: wanted.pids.unwrap_or(self.pids),
            images: wanted.images.or(self.images),
        }
    }

    /// These limits, each no larger than the host's: defaults must not fail on a small host.
    pub fn at_most(&self, host: &Self) -> Self {
        Self {
            cpus: self.cpus.min(host.cpus),
            memory: self.memory.min(host.memory),
            disk: self.disk.min(host.disk),
            pids: self.pids.min(host.pids),
            images: self.images,
        }
    }

    /// Returns the bytes that all memory images of the sandbox may take together.
    pub fn image_budget(&self) -> u64 {
        self.images.unwrap_or_else(|| self.memory.saturating_mul(2).saturating_add(self.disk))
    }

    /// Checks that a sandbox can live with these limits on a host that has at most `host`.
    pub fn check(&self, host: &Self) -> Result<(), LimitError> {
        let least = Self::LEAST;
        if !(self.cpus >= least.cpus && self.cpus <= host.cpus) {
            return Err(LimitError {
                which: "cpus",
                given: self.cpus.to_string(),
                least: least.cpus.to_string(),
                most: host.cpus.to_string(),
            });
        }
        let whole = [
            ("memory", self.memory, least.memory, host.memory),
            ("disk", self.disk, least.disk, host.disk),
            ("pids", self.pids, least.pids, host.pids),
            // Images are counted against what is free when they are written.
            ("images", self.image_budget(), least.image_budget(), u64::MAX),
        ];
        for (which, given, least, most) in whole {
            if given < least || given > most {
                let text = |n: u64| n.to_string();
                return Err(LimitError { which, given: text(given), least: text(least), most: text(most) });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> Limits {
        Limits { cpus: 2.0, memory: 4 << 30, disk: 50 << 30, pids: 32768, images: None }
    }

    #[test]
    fn zero_and_beyond_the_host_are_refused_by_name() {
        let cases = [
            (LimitsRequest { cpus: Some(0.0), ..Default::default() }, "cpus"),
            (LimitsRequest { cpus: Some(f64::NAN), ..Default::default() }, "cpus"),
            (LimitsRequest { cpus: Some(99.0), ..Default::default() }, "cpus"),
            (LimitsRequest { memory: Some(0), ..Default::default() }, "memory"),
            (LimitsRequest { memory: Some(u64::MAX), ..Default::default() }, "memory"),
            (LimitsRequest { disk: Some(0), ..Default::default() }, "disk"),
            (LimitsRequest { pids: Some(0), ..Default::default() }, "pids"),
            (LimitsRequest { images: Some(0), ..Default::default() }, "images"),
        ];
        for (wanted, which) in cases {
            let refused = Limits::default().with(&wanted).check(&host()).unwrap_err();
            assert_eq!(refused.which, which);
        }
    }

    #[test]
    fn default_memory_is_half_of_the_host_within_bounds() {
        let cases = [
            // (host, default), in MiB.
            (128_000, 4096),
            (24_576, 4096),
            (8192, 4096),
            (4096, 2048),
            (1024, 512),
            (966, 512),
            (512, 256),
            (300, 44),
            (256, 16),
            (128, 16),
        ];
        for (size, expected) in cases {
            let host = Limits { memory: size * MIB, ..host() };
            assert_eq!(Limits::usual(&host).memory, expected * MIB, "on a host with {size} MiB");
            assert!(Limits::usual(&host).check(&host).is_ok());
        }
    }

    #[test]
    fn image_budget_follows_the_other_limits_unless_it_is_set() {
        let limits = Limits { memory: 100, disk: 7, ..Limits::default() };
        assert_eq!(limits.image_budget(), 207);
        let raised = limits.with(&LimitsRequest { memory: Some(200), ..Default::default() });
        assert_eq!(raised.image_budget(), 407);
        let set = limits.with(&LimitsRequest { images: Some(50), ..Default::default() });
        assert_eq!(set.with(&LimitsRequest { memory: Some(200), ..Default::default() }).image_budget(), 50);
        assert_eq!(Limits { memory: u64::MAX, ..limits }.image_budget(), u64::MAX);
    }

    #[test]
    fn limits_of_an_older_record_have_the_usual_image_budget() {
        let old = r#"{"cpus":2.0,"memory":10,"disk":5,"pids":16}"#;
        let limits: Limits = serde_json::from_str(old).unwrap();
        assert_eq!((limits.image_budget(), serde_json::to_string(&limits).unwrap().as_str()), (25, old));
    }

    #[test]
    fn defaults_fit_a_small_host_once_clamped() {
        let small = Limits { cpus: 1.0, memory: 512 << 20, disk: 5 << 30, pids: 1000, images: None };
        assert!(Limits::default().at_most(&small).check(&small).is_ok());
    }
}
