//! Warnings about parts of a request that this host does not keep.

use std::path::Path;

use roost_disk::DiskLimits;
use roost_model::LimitsRequest;

use crate::doctor::disk_limits;
use crate::shared::Shared;

impl Shared {
    /// Returns warnings about limits that a request names.
    pub(crate) fn unkept(&self, asked: Option<&LimitsRequest>) -> Vec<String> {
        unkept(asked, self.pool.disk_limits(), self.pool.root())
    }
}

fn unkept(asked: Option<&LimitsRequest>, limits: DiskLimits, pool: &Path) -> Vec<String> {
    if asked.is_none_or(|asked| asked.disk.is_none()) {
        return Vec::new();
    }
    match disk_limits(limits, pool) {
        (true, _) => Vec::new(),
        (false, why) => vec![format!("the disk limit is not in force: {why}")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_limit_that_is_asked_for_and_not_kept_is_a_warning() {
        let asked = LimitsRequest { disk: Some(1 << 30), ..LimitsRequest::default() };
        let other = LimitsRequest { memory: Some(1 << 30), ..LimitsRequest::default() };
        let pool = Path::new("/data/pool");
        for limits in [DiskLimits::Off, DiskLimits::OffInForeign] {
            let warnings = unkept(Some(&asked), limits, pool);
            assert!(matches!(warnings.as_slice(), [one] if one.contains("limits are not kept")), "{warnings:?}");
            assert!(unkept(Some(&other), limits, pool).is_empty() && unkept(None, limits, pool).is_empty());
        }
        assert!(unkept(Some(&asked), DiskLimits::Simple, pool).is_empty());
        assert!(unkept(Some(&asked), DiskLimits::Full, pool).is_empty());
    }
}
