//! Jobs of crontabs inside: read as a sandbox falls asleep, so that it is woken for the next one.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use roost_lifecycle::{Cron, zone};
use roost_model::chain;
use roost_store::SandboxRecord;
use roost_wire::{CronJob, Reply, Request};

use crate::HostError;
use crate::effects::Effects;
use crate::guest::Guest;

/// A guest that does not answer by then has no crontabs: falling asleep does not wait for it any longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// So much before its minute a sandbox is woken, that cron itself is awake when it comes.
const AHEAD: SignedDuration = SignedDuration::from_secs(1);

/// As many jobs as a guest of ours reads. Each costs a search for its next minute while the sandbox falls asleep.
const MOST_JOBS: usize = 512;
const LONGEST_LINE: usize = 256;

impl Effects {
    /// Sets an alarm for the next job of the crontabs inside, if a cron daemon runs there.
    pub(crate) async fn note_crontabs(&self, record: &SandboxRecord) {
        let jobs = match tokio::time::timeout(PATIENCE, self.cron_jobs(record)).await {
            Ok(Ok(jobs)) => jobs,
            Ok(Err(error)) => {
                tracing::debug!(sandbox = %record.id, error = %chain(&error), "its crontabs were not read");
                Vec::new()
            }
            Err(_) => {
                tracing::debug!(sandbox = %record.id, "its crontabs were not read in time");
                Vec::new()
            }
        };
        self.shared.leases.crontab(&record.id, next_job(&jobs, Timestamp::now())).await;
    }

    async fn cron_jobs(&self, record: &SandboxRecord) -> Result<Vec<CronJob>, HostError> {
        let guest = Guest::of(self.shared.clone(), record)?;
        let mut connection = match guest.ready() {
            Some(mut ready) => match ready.call(&Request::CronJobs).await {
                Ok(reply) => return Ok(jobs_in(reply)),
                // It had gone stale.
                Err(_) => guest.connect().await?,
            },
            None => guest.connect().await?,
        };
        Ok(jobs_in(connection.call(&Request::CronJobs).await.map_err(|error| guest.failed(error))?))
    }
}

fn jobs_in(reply: Reply) -> Vec<CronJob> {
    let is_short = |job: &CronJob| job.schedule.len() <= LONGEST_LINE;
    match reply {
        Reply::CronJobs(jobs) => jobs.into_iter().filter(is_short).take(MOST_JOBS).collect(),
        _ => Vec::new(),
    }
}

/// When to wake for the earliest of the jobs, and why.
fn next_job(jobs: &[CronJob], now: Timestamp) -> Option<(Timestamp, String)> {
    let times = jobs.iter().filter_map(|job| {
        let cron: Cron = job.schedule.parse().ok()?;
        Some((cron.next_after(now, &zone_inside(job.tz.as_deref()))?, &job.schedule))
    });
    let (at, schedule) = times.min()?;
    Some((at.saturating_sub(AHEAD).unwrap_or(at), format!("crontab inside: {schedule}")))
}

/// A time zone as it is called inside: a name, or a rule as in `TZ`. One that is not known here counts as UTC.
fn zone_inside(name: Option<&str>) -> TimeZone {
    let rule = || name.and_then(|name| TimeZone::posix(name).ok());
    zone(name).ok().or_else(rule).unwrap_or(TimeZone::UTC)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_job_wakes_a_second_before_its_minute() {
        let now: Timestamp = "2026-11-15T06:50:21Z".parse().unwrap();
        let job = |schedule: &str, tz: Option<&str>| CronJob { schedule: schedule.into(), tz: tz.map(str::to_owned) };
        let jobs = [
            job("0 9 * * *", None),
            job("0 8 * * *", Some("CET-1CEST,M3.5.0,M10.5.0/3")),
            job("nonsense", None),
            job("@reboot", None),
        ];
        let (at, why) = next_job(&jobs, now).unwrap();
        assert_eq!((at.to_string().as_str(), why.as_str()), ("2026-11-15T06:59:59Z", "crontab inside: 0 8 * * *"));
        assert_eq!(next_job(&jobs[2..], now), None);
        assert_eq!(next_job(&[], now), None);
        // Nobody is let down by a zone that is only known inside.
        assert!(next_job(&[job("* * * * *", Some("Mars/Base"))], now).is_some());
    }
}
