//! What this host can do, proven by doing it.

use std::path::Path;

use roost_disk::{DiskLimits, MissingTool, aside_of, count_aside, missing_tools};
use roost_engine::{Capabilities, Engine, EngineReport};
use roost_model::{DoctorCheck, DoctorReport, Doctoring, EngineAbilities, EngineDoctor, EngineFigures, Level};
use roost_net::Severity;

use crate::HostError;
use crate::host::Host;

impl Host {
    /// Looks at everything, and tries every engine that seems fit as far as it is told to.
    pub async fn doctor(&self, how: Doctoring) -> DoctorReport {
        let mut engines = Vec::new();
        let mut known = self.shared.proofs.figures().await;
        for engine in &self.shared.engines {
            let report = engine.report().await;
            let fit = report.fit();
            let tried = if fit { self.try_engine(engine.as_ref(), &report, how).await } else { Ok((None, None)) };
            let (proven_ms, measured, problem) = match tried {
                Ok((time, measured)) => (time, measured, None),
                Err(error) => (None, None, Some(error.to_string())),
            };
            let missing = report.checks.iter().find(|check| check.required && !check.ok);
            let problem = problem.or_else(|| missing.map(|check| format!("{}: {}", check.what, check.detail)));
            let abilities = abilities(engine.capabilities());
            let checks = report.checks.into_iter().map(|check| DoctorCheck {
                what: check.what,
                ok: check.ok,
                required: check.required,
                detail: check.detail,
            });
            engines.push(EngineDoctor {
                engine: report.engine,
                fit: fit && problem.is_none(),
                proven_ms,
                problem,
                figures: measured.or_else(|| known.remove(report.engine.as_str())),
                abilities,
                checks: checks.collect(),
            });
        }
        let mut checks = self.disk_checks();
        checks.push(self.limits_check());
        checks.extend(self.recipe_checks());
        checks.extend(self.network_checks().await);
        checks.extend(self.table_checks().await);
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        DoctorReport { version: env!("CARGO_PKG_VERSION").to_owned(), kernel, engines, checks }
    }

    async fn try_engine(
        &self,
        engine: &dyn Engine,
        report: &EngineReport,
        how: Doctoring,
    ) -> Result<(Option<f64>, Option<EngineFigures>), HostError> {
        if how == Doctoring::Look {
            return Ok((None, None));
        }
        let template = self.trial_template()?;
        let proof = self.prove(report.engine, template).await;
        self.shared.proofs.note(report.engine, &proof).await;
        let time = proof?;
        let measured = match how {
            Doctoring::Measure => Some(self.measure(engine, template).await?),
            Doctoring::Prove | Doctoring::Look => None,
        };
        Ok((Some(time), measured))
    }

    fn disk_checks(&self) -> Vec<DoctorCheck> {
        let pool = &self.shared.pool;
        let check =
            |what: &str, ok, required, detail: String| DoctorCheck { what: what.to_owned(), ok, required, detail };
        let room = match pool.check_room() {
            Ok(()) => check("room for new sandboxes", true, true, free_text(pool)),
            Err(error) => check("room for new sandboxes", false, true, error.to_string()),
        };
        let (limited, detail) = disk_limits(pool.disk_limits(), pool.root());
        let quotas = check("disk limits", limited, false, detail);
        let mut checks = vec![check("btrfs pool", true, true, pool.root().display().to_string()), room, quotas];
        for base in [self.shared.config.data_dir.as_path(), pool.root()] {
            let entries = count_aside(base);
            if entries > 0 {
                let detail =
                    format!("{entries} in `{}`: look at the entries and remove them", aside_of(base).display());
                checks.push(check("leftovers put aside", false, false, detail));
            }
        }
        checks
    }

    /// The recipes that lack a tool of the host, where no template of their name is there.
    fn recipe_checks(&self) -> Vec<DoctorCheck> {
        let lacks = |missing: &MissingTool| self.template(missing.template).is_err();
        missing_tools().into_iter().filter(lacks).map(recipe_check).collect()
    }

    fn limits_check(&self) -> DoctorCheck {
        let config = &self.shared.config;
        let limits = config.default_limits.at_most(&config.host_limits);
        let (memory, of) = (limits.memory >> 20, config.host_limits.memory >> 20);
        let detail = format!(
            "{} CPUs, {memory} of {of} MiB memory, {} GiB disk, {} processes",
            limits.cpus,
            limits.disk >> 30,
            limits.pids
        );
        DoctorCheck { what: "default limits of a sandbox".to_owned(), ok: true, required: false, detail }
    }

    async fn network_checks(&self) -> Vec<DoctorCheck> {
        let findings = self.shared.network.findings().await;
        let mut checks: Vec<DoctorCheck> = findings
            .into_iter()
            .map(|finding| DoctorCheck {
                what: format!("network: {}", finding.code),
                ok: finding.severity == Severity::Note,
                required: finding.severity == Severity::Failure,
                detail: match finding.hint {
                    Some(hint) => format!("{} ({hint})", finding.message),
                    None => finding.message,
                },
            })
            .collect();
        if checks.iter().all(|check| check.ok) {
            let detail = "router namespace up, nothing stands in the way".to_owned();
            checks.insert(0, DoctorCheck { what: "network".to_owned(), ok: true, required: true, detail });
        }
        checks
    }
}

fn recipe_check(missing: MissingTool) -> DoctorCheck {
    let MissingTool { template, tool, package } = missing;
    let detail = format!("`{tool}` is not installed, without which it cannot be built (`apt install {package}`)");
    DoctorCheck { what: format!("template `{template}`"), ok: false, required: false, detail }
}

fn abilities(capabilities: Capabilities) -> EngineAbilities {
    let Capabilities {
        freeze,
        save_memory,
        live_limits,
        survives_daemon,
        own_kernel,
        tmp_on_disk,
        limits_end_all,
        counts_processes,
        setuid,
    } = capabilities;
    let levels = [(freeze, Level::Ram), (save_memory, Level::Disk), (true, Level::Files)];
    EngineAbilities {
        levels: levels.into_iter().filter_map(|(can, level)| can.then_some(level)).collect(),
        own_kernel,
        live_limits,
        survives_daemon,
        tmp_on_disk,
        limits_end_all,
        counts_processes,
        setuid,
    }
}

/// Whether limits of disks hold, and how, or what to do about it.
pub(crate) fn disk_limits(limits: DiskLimits, pool: &Path) -> (bool, String) {
    match limits {
        DiskLimits::Simple => (true, "simple quotas".to_owned()),
        DiskLimits::Full => (
            true,
            "full qgroups, because this kernel has no simple quotas (6.7 has): checkpoints are slower to remove"
                .to_owned(),
        ),
        DiskLimits::OffInForeign => (
            false,
            format!(
                "quotas are off in the btrfs of the data folder: limits are not kept (`btrfs quota enable --simple {}` turns \
                 them on, without `--simple` on kernels before 6.7; then restart the daemon)",
                pool.display()
            ),
        ),
        DiskLimits::Off => (
            false,
            "this kernel has no simple quotas (6.7 has) and full ones are off: limits are not kept (`full_quotas`)"
                .to_owned(),
        ),
    }
}

fn free_text(pool: &roost_disk::Pool) -> String {
    match pool.space() {
        Ok(space) => format!("{} GiB free in the pool, {} GiB on the host", space.free >> 30, space.host_free >> 30),
        Err(error) => error.to_string(),
    }
}
