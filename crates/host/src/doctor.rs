//! What this host can do, proven by doing it.

use std::time::Instant;

use roost_engine::EngineReport;
use roost_model::{CreateSandbox, DoctorCheck, DoctorReport, EngineDoctor, NetworkPolicy, RunRequest, StartExec};
use roost_net::Severity;

use crate::HostError;
use crate::host::Host;

impl Host {
    /// Looks at everything; with `prove`, runs a sandbox on every engine that seems fit.
    pub async fn doctor(&self, prove: bool) -> DoctorReport {
        let mut engines = Vec::new();
        for engine in &self.shared.engines {
            let report = engine.report().await;
            let fit = report.fit();
            let proof = if prove && fit { Some(self.prove(&report).await) } else { None };
            let (proven_ms, problem) = match proof {
                Some(Ok(time)) => (Some(time), None),
                Some(Err(error)) => (None, Some(error.to_string())),
                None => (None, None),
            };
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
                checks: checks.collect(),
            });
        }
        let mut checks = self.disk_checks();
        checks.extend(self.network_checks());
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        DoctorReport { version: env!("CARGO_PKG_VERSION").to_owned(), kernel, engines, checks }
    }

    /// Runs a command in a fresh sandbox and returns the milliseconds to its output.
    async fn prove(&self, report: &EngineReport) -> Result<f64, HostError> {
        let template = ["mini", self.shared.config.default_template.as_str()]
            .into_iter()
            .find(|name| self.shared.templates.get(name).is_ok())
            .ok_or_else(|| HostError::TemplateNotFound { name: "mini".to_owned(), known: Vec::new() })?;
        let request = RunRequest {
            sandbox: CreateSandbox {
                template: Some(template.to_owned()),
                engine: Some(report.engine.to_string()),
                network: Some(NetworkPolicy { enabled: false }),
                ..CreateSandbox::default()
            },
            exec: StartExec { argv: vec!["echo".to_owned(), "well".to_owned()], ..StartExec::default() },
        };
        let started = Instant::now();
        let (run, attachment) = self.start_run(request).await?;
        let output = attachment.collect().await;
        let time = started.elapsed().as_secs_f64() * 1000.0;
        run.end().await;
        let output = output?;
        if output.stdout == "well\n" {
            Ok(time)
        } else {
            Err(HostError::Internal(format!("a command said {:?} and {:?}", output.stdout, output.stderr)))
        }
    }

    fn disk_checks(&self) -> Vec<DoctorCheck> {
        let pool = &self.shared.pool;
        let check =
            |what: &str, ok, required, detail: String| DoctorCheck { what: what.to_owned(), ok, required, detail };
        let room = match pool.check_room() {
            Ok(()) => check("room for new sandboxes", true, true, free_text(pool)),
            Err(error) => check("room for new sandboxes", false, true, error.to_string()),
        };
        let quotas = if pool.quotas() {
            check("disk limits", true, false, "simple quotas".to_owned())
        } else {
            check(
                "disk limits",
                false,
                false,
                "this kernel has no simple quotas (6.7 has): limits are not kept".to_owned(),
            )
        };
        vec![check("btrfs pool", true, true, pool.root().display().to_string()), room, quotas]
    }

    fn network_checks(&self) -> Vec<DoctorCheck> {
        let findings = self.shared.network.findings();
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

fn free_text(pool: &roost_disk::Pool) -> String {
    match pool.space() {
        Ok(space) => format!("{} GiB free in the pool, {} GiB on the host", space.free >> 30, space.host_free >> 30),
        Err(error) => error.to_string(),
    }
}
